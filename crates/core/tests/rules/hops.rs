//! The duration of each hop in the machine's notes, and the cases in which it is unknown.

use throughline_core::contract::event::EventKind;
use throughline_core::contract::note::{Hop, NoteKind, Stall, StallCause};
use throughline_core::contract::settings::Settings;
use throughline_core::data::ids::{Kind, ObjectKey};
use throughline_core::data::time::UnixMillis;

use crate::stage::{Stage, status};

/// The hops passed since the last call, each with its duration.
fn hops(stage: &mut Stage) -> Vec<(Hop, String, Option<u64>)> {
    let hop = |kind| match kind {
        NoteKind::HopPassed { hop, cluster, after_ms, .. } => {
            Some((hop, cluster.to_string(), after_ms))
        }
        _ => None,
    };
    stage.notes().into_iter().filter_map(|note| hop(note.kind)).collect()
}

/// Three tiers with nothing left to do.
fn settled() -> Stage {
    let mut stage = Stage::settled(Settings::default());
    stage.notes();
    stage
}

#[test]
fn each_hop_is_measured_from_the_one_before() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.pass_to(600_040);
    stage.hub(Some(&status(None)));
    stage.succeed(&mirror);
    stage.pass_to(600_110);
    stage.edge(Some(&status(None)));
    stage.pass_to(600_210);
    let touch = stage.only_action();
    stage.pass_to(600_217);
    stage.succeed(&touch);
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
fn a_second_change_is_measured_from_its_own_start() {
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
fn a_change_first_seen_in_a_list_has_no_duration() {
    let mut stage = Stage::new(Settings::default());
    let online = status(Some("n1"));
    let v = stage.version();
    let connector = format!(
        r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"lab","resourceVersion":"{v}"}},"status":{online}}}"#
    );
    stage.list("up", "Connector", &[&connector]);
    stage.hub(Some("{}"));
    let mirror = stage.only_action();
    stage.pass_to(500);
    stage.succeed(&mirror);
    assert_eq!(hops(&mut stage), [(Hop::Mirrored, "hub".to_owned(), None)]);
    // The next change comes from a watch.
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.pass_to(525);
    stage.succeed(&mirror);
    assert_eq!(hops(&mut stage)[1], (Hop::Mirrored, "hub".to_owned(), Some(25)));
}

#[test]
fn repairing_an_overwrite_has_no_duration() {
    let mut stage = settled();
    stage.hub(Some("{}"));
    let mirror = stage.only_action();
    stage.pass_to(600_020);
    stage.hub(Some(&status(Some("n1"))));
    stage.succeed(&mirror);
    assert_eq!(hops(&mut stage), [(Hop::Mirrored, "hub".to_owned(), None)]);
    // The same holds for a copy that another writer changes at the edge.
    stage.pass_to(600_030);
    stage.edge(Some("{}"));
    stage.pass_to(600_060);
    stage.edge(Some(&status(Some("n1"))));
    let arrived = hops(&mut stage).into_iter().find(|(hop, ..)| *hop == Hop::Arrived);
    assert_eq!(arrived.unwrap().2, None);
}

#[test]
fn a_copy_first_seen_in_a_relist_has_no_duration() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.pass_to(600_020);
    stage.succeed(&mirror);
    stage.hub(Some(&status(None)));
    stage.lost("edge", "Connector");
    stage.pass_to(609_000);
    let copy = stage.connector_copy("u-edge", Some(&status(None)));
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
fn an_instance_at_an_edge_measures_its_own_hop() {
    let mut stage = settled();
    for cluster in ["up", "hub"] {
        stage.event(EventKind::ClusterRemoved { cluster: cluster.into() });
    }
    hops(&mut stage);
    stage.edge(Some(&status(None)));
    stage.pass_to(600_100);
    let touch = stage.only_action();
    stage.pass_to(600_105);
    stage.succeed(&touch);
    assert_eq!(
        hops(&mut stage),
        [(Hop::Arrived, "edge".to_owned(), None), (Hop::Touched, "edge".to_owned(), Some(105)),]
    );
}

/// Events about a stall go to the hub Connector until the change has arrived at the edge, then to the
/// edge Connector.
#[test]
fn a_stall_is_reported_on_the_connector_where_it_is_stuck() {
    let mut stage = Stage::new(Settings::default());
    let online = status(Some("n"));
    let subject = |stage: &mut Stage, hop| {
        let notes: Vec<_> = stage.notes().into_iter().map(|note| note.kind).collect();
        let stalled =
            |note: &&NoteKind| matches!(note, NoteKind::Stalled(stall) if stall.hop == hop);
        let stall = notes.iter().find(stalled).unwrap_or_else(|| panic!("{notes:?}"));
        let subject = stage.machine.involved_object(stall).unwrap();
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
    let gone = NoteKind::Stalled(Stall {
        cluster: "edge".into(),
        connector: ObjectKey::new("ns", "gone"),
        hop: Hop::Touched,
        since: UnixMillis(0),
        cause: StallCause::NotTouched { cluster: "edge".into() },
        reason: String::new(),
    });
    assert_eq!(stage.machine.involved_object(&gone), None);
}
