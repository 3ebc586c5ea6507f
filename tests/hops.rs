//! How long each hop took, as the machine tells it; and when it does not say, because it can't know.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/stage.rs"]
mod stage;

use stage::{Stage, status};
use throughline::core::action::{Hop, Noted, Stall};
use throughline::core::event::Happened;
use throughline::core::ids::{Kind, ObjectKey};
use throughline::core::settings::Settings;
use throughline::core::time::UnixMillis;

/// The hops passed since the last look, each with its duration.
fn hops(stage: &mut Stage) -> Vec<(Hop, String, Option<u64>)> {
    let hop = |noted| match noted {
        Noted::HopPassed { hop, cluster, after_ms, .. } => {
            Some((hop, cluster.to_string(), after_ms))
        }
        _ => None,
    };
    stage.notes().into_iter().filter_map(|note| hop(note.what)).collect()
}

/// Three tiers on which nothing is left to do.
fn settled() -> Stage {
    let mut stage = Stage::settled(Settings::default());
    stage.notes();
    stage
}

#[test]
fn each_hop_is_measured_from_the_one_before() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    stage.pass_to(600_040);
    stage.hub(Some(&status(None)));
    stage.land(&mirror);
    stage.pass_to(600_110);
    stage.edge(Some(&status(None)));
    stage.pass_to(600_210);
    let touch = stage.one();
    stage.pass_to(600_217);
    stage.land(&touch);
    assert_eq!(
        hops(&mut stage),
        [
            (Hop::Upstream, "up".to_owned(), None),
            (Hop::Mirrored, "hub".to_owned(), Some(40)),
            (Hop::Arrived, "edge".to_owned(), Some(70)),
            (Hop::Touched, "edge".to_owned(), Some(107)),
        ]
    );
}

#[test]
fn a_change_on_top_of_a_change_is_measured_by_itself() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    stage.pass_to(600_030);
    stage.upstream(Some(&status(Some("n2"))));
    stage.pass_to(600_050);
    stage.hub(Some(&status(Some("n2"))));
    let mirrored = hops(&mut stage).into_iter().find(|(hop, ..)| *hop == Hop::Mirrored);
    assert_eq!(mirrored.unwrap().2, Some(20));
}

#[test]
fn what_a_list_brought_has_no_known_beginning() {
    let mut stage = Stage::new(Settings::default());
    let online = status(Some("n1"));
    let v = stage.version();
    let source = format!(
        r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"lab","resourceVersion":"{v}"}},"status":{online}}}"#
    );
    stage.list("up", "Connector", &[&source]);
    stage.hub(Some("{}"));
    let mirror = stage.one();
    stage.pass_to(500);
    stage.land(&mirror);
    assert_eq!(hops(&mut stage), [(Hop::Mirrored, "hub".to_owned(), None)]);
    // The next change is seen as it happens.
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    stage.pass_to(525);
    stage.land(&mirror);
    assert_eq!(hops(&mut stage)[1], (Hop::Mirrored, "hub".to_owned(), Some(25)));
}

#[test]
fn what_another_writer_undid_is_no_change_of_upstreams() {
    let mut stage = settled();
    stage.hub(Some("{}"));
    let mirror = stage.one();
    stage.pass_to(600_020);
    stage.hub(Some(&status(Some("n1"))));
    stage.land(&mirror);
    assert_eq!(hops(&mut stage), [(Hop::Mirrored, "hub".to_owned(), None)]);
    // Nor is a copy that somebody changes at the edge, as far as arriving goes.
    stage.pass_to(600_030);
    stage.edge(Some("{}"));
    stage.pass_to(600_060);
    stage.edge(Some(&status(Some("n1"))));
    let arrived = hops(&mut stage).into_iter().find(|(hop, ..)| *hop == Hop::Arrived);
    assert_eq!(arrived.unwrap().2, None);
}

#[test]
fn a_copy_that_a_relist_shows_arrived_at_nobody_knows_when() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    stage.pass_to(600_020);
    stage.land(&mirror);
    stage.hub(Some(&status(None)));
    stage.lost("edge", "Connector");
    stage.pass_to(609_000);
    let copy = stage.replica("u-edge", Some(&status(None)));
    stage.list("edge", "Connector", &[&copy]);
    stage.settle_to(620_000);
    let late: Vec<_> = hops(&mut stage)
        .into_iter()
        .filter(|(hop, ..)| matches!(hop, Hop::Arrived | Hop::Touched))
        .map(|(hop, _, after_ms)| (hop, after_ms))
        .collect();
    assert_eq!(late, [(Hop::Arrived, None), (Hop::Touched, None)]);
}

#[test]
fn a_process_at_an_edge_measures_its_own_hop() {
    let mut stage = settled();
    for cluster in ["up", "hub"] {
        stage.tell(Happened::ClusterRemoved { cluster: cluster.into() });
    }
    hops(&mut stage);
    stage.edge(Some(&status(None)));
    stage.pass_to(600_100);
    let touch = stage.one();
    stage.pass_to(600_105);
    stage.land(&touch);
    assert_eq!(
        hops(&mut stage),
        [(Hop::Arrived, "edge".to_owned(), None), (Hop::Touched, "edge".to_owned(), Some(105)),]
    );
}

/// Who looks at the object that a stall is told on sees it: the hub's until it has arrived, then the edge's.
#[test]
fn a_stall_is_told_on_the_connector_where_it_is_stuck() {
    let mut stage = Stage::new(Settings::default());
    let online = status(Some("n"));
    let subject = |stage: &mut Stage, hop| {
        let notes: Vec<_> = stage.notes().into_iter().map(|note| note.what).collect();
        let stalled = |note: &&Noted| matches!(note, Noted::Stalled(stall) if stall.hop == hop);
        let stall = notes.iter().find(stalled).unwrap_or_else(|| panic!("{notes:?}"));
        let subject = stage.machine.subject(stall).unwrap();
        assert_eq!((subject.kind, subject.object.name.as_str()), (Kind::Connector, "lab"));
        assert!(subject.resource_version.is_some());
        (subject.cluster.to_string(), subject.uid.unwrap())
    };
    let at = |cluster: &str, uid: &str| (cluster.to_owned(), uid.to_owned());
    stage.upstream(Some(&online));
    stage.hub(None);
    stage.edge(None);
    stage.proxy(&["lab"]);
    stage.gateway("");
    stage.settle_to(0);
    stage.pass_to(20_000);
    assert_eq!(subject(&mut stage, Hop::Arrived), at("hub", "u-hub"));
    stage.upstream(Some(&status(None)));
    stage.pass_to(26_000);
    assert_eq!(subject(&mut stage, Hop::Mirrored), at("hub", "u-hub"));
    stage.edge(Some(&online));
    stage.pass_to(40_000);
    assert_eq!(subject(&mut stage, Hop::Touched), at("edge", "u-edge"));
    let gone = Noted::Stalled(Stall {
        cluster: "edge".into(),
        connector: ObjectKey::new("ns", "gone"),
        hop: Hop::Touched,
        since: UnixMillis(0),
        reason: String::new(),
    });
    assert_eq!(stage.machine.subject(&gone), None);
}
