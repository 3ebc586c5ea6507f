//! The oracle's own test of worlds at rest: a right one is accepted, and one in which something is wrong is
//! rejected.

use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::data::time::UnixMillis;

use crate::random::Random;
use crate::world::{Names, TRIGGER, World};

/// A world in which somebody did all that instances should do.
fn right_world() -> World {
    let world = World::new(Names::new(2, 2), 3, UnixMillis(1_000), &mut Random::new(1));
    announced(announced(world, 0), 10_000)
}

/// Mirrors everything by hand, and touches every Gateway.
fn announced(mut world: World, from_ms: u64) -> World {
    let clusters: Vec<_> = std::iter::once(&world.names.hub).chain(&world.names.edges).collect();
    for (n, connector) in world.connectors.iter().enumerate() {
        let (key, status) = (world.hub_key(n), connector.status().to_string());
        for cluster in &clusters {
            world.annotate(cluster, Kind::Connector, &key, (UPSTREAM_STATUS, Some(&status)));
        }
    }
    world.advance(UnixMillis(from_ms + 2_000));
    world.advance(UnixMillis(from_ms + 3_000));
    let trigger = format!("0-{from_ms}-0");
    for (n, connector) in world.connectors.iter().enumerate() {
        for (edge, gateway) in world
            .names
            .edges
            .iter()
            .flat_map(|edge| connector.gateways.iter().map(move |gateway| (edge, gateway)))
        {
            let gateway = ObjectKey::new(world.hub_key(n).namespace, gateway);
            world.annotate(edge, Kind::Gateway, &gateway, (TRIGGER, Some(&trigger)));
        }
    }
    world.advance(UnixMillis(from_ms + 4_000));
    world.advance(UnixMillis(from_ms + 5_000));
    world
}

#[test]
fn a_world_that_says_what_upstream_says_is_right() {
    let world = World::new(Names::new(2, 2), 3, UnixMillis(1_000), &mut Random::new(1));
    assert!(!world.deviations().is_empty(), "nobody has mirrored anything");
    assert_eq!(right_world().deviations(), Vec::<String>::new());
}

#[test]
fn a_world_that_says_something_else_is_rejected() {
    let breaks_at = |cluster: &dyn Fn(&World) -> ClusterName, value| {
        let world = right_world();
        let (cluster, key) = (cluster(&world), world.hub_key(1));
        world.annotate(&cluster, Kind::Connector, &key, (UPSTREAM_STATUS, value));
        assert_eq!(world.deviations().len(), 1, "{:?}", world.deviations());
    };
    for value in [None, Some("{}"), Some("no JSON")] {
        breaks_at(&|world| world.names.hub.clone(), value);
        breaks_at(&|world| world.names.edges[1].clone(), value);
    }
    let mut world = right_world();
    world.flip(0);
    assert!(
        world.deviations().len() >= 3,
        "upstream says something else: {:?}",
        world.deviations()
    );
}

#[test]
fn an_envoy_that_answers_something_else_is_rejected() {
    let mut world = right_world();
    world.flip(0);
    let clusters: Vec<_> = std::iter::once(&world.names.hub).chain(&world.names.edges).collect();
    let (key, status) = (world.hub_key(0), world.connectors[0].status().to_string());
    for cluster in clusters {
        world.annotate(cluster, Kind::Connector, &key, (UPSTREAM_STATUS, Some(&status)));
    }
    world.advance(UnixMillis(20_000));
    world.advance(UnixMillis(21_000));
    let deviations = world.deviations();
    assert!(!deviations.is_empty(), "no Gateway was touched");
    assert!(deviations.iter().all(|what| what.contains("Envoy answers")), "{deviations:?}");
}
