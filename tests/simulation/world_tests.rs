//! The oracle's own test of worlds at rest: a right one is accepted, and one in which something is wrong is
//! rejected.

use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::data::time::UnixMillis;

use crate::random::Random;
use crate::world::{Names, TRIGGER, World};

fn world() -> World {
    World::new(Names::new(2, 2), 3, UnixMillis(1_000), &mut Random::new(1))
}

/// Mirrors everything by hand.
fn mirrored(mut world: World, at_ms: u64) -> World {
    let hub_and_edges = std::iter::once(&world.names.hub).chain(&world.names.edges);
    for cluster in hub_and_edges {
        for (n, connector) in world.connectors.iter().enumerate() {
            let (key, status) = (world.hub_key(n), connector.status().to_string());
            world.annotate(cluster, Kind::Connector, &key, (UPSTREAM_STATUS, Some(&status)));
        }
    }
    (1..3).for_each(|second| world.advance(UnixMillis(at_ms + 1_000 * second)));
    world
}

/// A world in which somebody did all that instances should do.
fn right_world() -> World {
    let mut world = mirrored(world(), 0);
    // The second trigger announces what the first one announced too early.
    for at_ms in [5_000, 10_000] {
        let trigger = format!("0-{at_ms}-0");
        for edge in &world.names.edges {
            for (n, connector) in world.connectors.iter().enumerate() {
                for gateway in &connector.gateways {
                    let key = ObjectKey::new(world.hub_key(n).namespace, gateway);
                    world.annotate(edge, Kind::Gateway, &key, (TRIGGER, Some(&trigger)));
                }
            }
        }
        (1..3).for_each(|second| world.advance(UnixMillis(at_ms + 1_000 * second)));
    }
    world
}

#[test]
fn a_world_that_says_something_else_than_upstream_is_rejected() {
    assert!(!world().deviations().is_empty(), "nobody has mirrored anything");
    assert_eq!(right_world().deviations(), Vec::<String>::new());
    let is_wrong_once = |cluster: fn(&World) -> &ClusterName, value| {
        let world = right_world();
        let at = (UPSTREAM_STATUS, value);
        world.annotate(cluster(&world), Kind::Connector, &world.hub_key(1), at);
        assert_eq!(world.deviations().len(), 1, "{:?}", world.deviations());
    };
    for value in [None, Some("{}"), Some("no JSON")] {
        is_wrong_once(|world| &world.names.hub, value);
        is_wrong_once(|world| &world.names.edges[1], value);
    }
    let mut world = right_world();
    world.flip(0);
    assert!(world.deviations().len() >= 3, "{:?}", world.deviations());
    // Envoy answers as before as long as no Gateway is touched.
    let deviations = mirrored(world, 20_000).deviations();
    assert!(!deviations.is_empty());
    assert!(deviations.iter().all(|what| what.contains("Envoy answers")), "{deviations:?}");
}
