//! Whatever happens in whatever order, nothing is wrong once all is right, and nothing once all have
//! left. The seed is printed.

use throughline_core::view::WatchState;

use super::{loses, paused, put_right, watchful, without_labels};
use crate::consistency::assert_consistent;
use crate::random::Random;
use crate::stage::*;

const KINDS: [(&str, &str); 8] = [
    ("up", "Namespace"),
    ("up", "Connector"),
    ("up", "Gateway"),
    ("hub", "Connector"),
    ("hub", "HTTPRoute"),
    ("edge", "Connector"),
    ("edge", "HTTPProxy"),
    ("edge", "Gateway"),
];

const CLUSTERS: [(&str, Role); 3] =
    [("up", Role::Upstream), ("hub", Role::Hub), ("edge", Role::Edge)];

#[test]
fn nothing_stays_wrong_when_all_is_right_or_all_have_left() {
    let mut seen = BTreeSet::new();
    for seed in 1..=60 {
        println!("seed {seed}");
        let mut stage = walk(seed, &mut seen);
        put_right(&mut stage);
        assert_eq!(stage.wrong(), []);

        let mut stage = walk(seed, &mut seen);
        stage.leave("up").leave("hub").leave("edge").pass(2 * MINUTE);
        assert_eq!(stage.wrong(), []);
    }
    assert!(seen.len() >= 20, "{seen:?}");
}

/// Nobody knows of a hop that it is late unless the watches are live that show where it ends.
fn assert_known(stage: &Stage, late: Cause) {
    let needed: &[_] = match late {
        Cause::NotMirrored => &[("hub", "Connector"), ("up", "Connector")],
        Cause::NotCarried => &[("hub", "Connector"), ("edge", "Connector")],
        Cause::NotAnnounced => &[("edge", "Connector"), ("edge", "HTTPProxy"), ("edge", "Gateway")],
        _ => return,
    };
    let fleet = stage.fleet();
    for (name, kind) in needed {
        let cluster = fleet.clusters.iter().find(|cluster| cluster.name.as_str() == *name).unwrap();
        let watch = cluster.watches[&Kind::parse(kind).unwrap()];
        assert_eq!(watch, WatchState::Live, "{late:?}: {name} {kind}");
    }
}

fn walk(seed: u64, seen: &mut BTreeSet<Cause>) -> Stage {
    let mut random = Random(seed);
    let scope = random.one_of(&[TouchScope::Gateway, TouchScope::GatewayClass]);
    let mut stage = Stage::settled(Settings { touch: with_scope(scope).touch, ..watchful() });
    put_right(&mut stage);
    stage.notes();
    let mut unanswered = Vec::new();
    for _ in 0..100 {
        if random.below(4) == 0 {
            fault(&mut stage, &mut random);
        } else {
            step(&mut stage, &mut random);
        }
        check(&mut stage, seen);
        let outcomes =
            [applied(None), forbidden(), unavailable(None), conflict(), Outcome::NotFound];
        unanswered.extend(stage.actions());
        unanswered.retain(|decision| {
            let is_late = random.below(8) == 0;
            if !is_late {
                stage.finish(decision, random.one_of(&outcomes));
            }
            is_late
        });
        check(&mut stage, seen);
    }
    for decision in unanswered {
        stage.finish(&decision, unavailable(None));
    }
    stage
}

fn check(stage: &mut Stage, seen: &mut BTreeSet<Cause>) {
    assert_consistent(stage);
    for (_, problem) in stage.problems().into_iter().filter(|(began, _)| *began) {
        assert_known(stage, problem.cause);
        seen.insert(problem.cause);
    }
}

/// What happens every day.
fn step(stage: &mut Stage, random: &mut Random) {
    let moved = status_at("n1", random.below(3));
    let said = random.one_of(&[N1, N2, OFFLINE, Some("{}"), Some(&moved)]);
    match random.below(7) {
        0 => _ = stage.upstream(said),
        1 => _ = stage.hub(said),
        2 => _ = stage.edge(said),
        3 => _ = stage.gateway(random.one_of(&["", r#""x":"y""#, PAUSE, FOREIGN])),
        4 => _ = stage.resumed("up", "Connector").resumed("hub", "Connector"),
        _ => _ = stage.pass(random.one_of(&[100, 3_000, 6_000, 11_000, 61_000])),
    }
}

fn fault(stage: &mut Stage, random: &mut Random) {
    let (cluster, kind) = random.one_of(&KINDS);
    match random.below(12) {
        0 => _ = stage.lost(cluster, kind),
        1 => _ = stage.resumed(cluster, kind),
        2 => _ = stage.list(cluster, kind, []),
        3 => _ = stage.unreadable("lab", "status: a list"),
        4 => _ = stage.leads(random.below(2) == 0),
        5 => paused(stage),
        6 => without_labels(stage),
        7 => _ = stage.applied("up", namespace(random.one_of(&[UID, OTHER_UID]))),
        8 => _ = stage.route(HOUR, &["gone"]),
        9 => _ = stage.proxy(random.one_of::<&[&str]>(&[&[], &["lab"]])),
        10 => loses(stage, random.one_of(&[ErrorCause::Forbidden, ErrorCause::TimedOut])),
        _ => {
            let (cluster, role) = random.one_of(&CLUSTERS);
            stage.leave(cluster).pass(random.one_of(&[0, 11_000])).join(cluster, role);
        }
    }
}

const PAUSE: &str = r#""throughline.datumapis.com/paused":"true""#;
const FOREIGN: &str = r#""gateway.envoyproxy.io/connector-liveness":"foreign""#;
