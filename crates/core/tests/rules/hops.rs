//! The duration of each hop in the machine's notes, and the cases in which it is unknown.

use crate::stage::*;

/// The durations of the one hop since the last call.
fn after(stage: &mut Stage, of: Hop) -> Vec<Option<u64>> {
    let hops = stage.hops().into_iter();
    hops.filter(|(hop, ..)| *hop == of).map(|(.., after_ms)| after_ms).collect()
}

#[test]
fn each_hop_is_measured_from_the_one_before() {
    let mut stage = Stage::settled(Settings::default());
    let mirror = stage.upstream(OFFLINE).only_action();
    stage.pass_to(600_040).hub(OFFLINE).succeed(&mirror);
    let touch = stage.pass_to(600_110).edge(OFFLINE).action_at(600_210);
    stage.pass_to(600_217).succeed(&touch);
    let hops = [
        (Hop::Upstream, "up".to_owned(), None),
        (Hop::Mirrored, "hub".to_owned(), Some(40)),
        (Hop::Carried, "edge".to_owned(), Some(70)),
        (Hop::Announced, "edge".to_owned(), Some(107)),
    ];
    assert_eq!(stage.hops(), hops);
}

#[test]
fn a_change_first_seen_in_a_list_has_no_duration() {
    let mut stage = Stage::default();
    stage.list("up", "Connector", [UP.connector("lab", N1)]);
    let mirror = stage.hub(Some("{}")).only_action();
    stage.pass_to(500).succeed(&mirror);
    assert_eq!(stage.hops(), [(Hop::Mirrored, "hub".to_owned(), None)]);
    // The next change comes from a watch.
    let mirror = stage.upstream(OFFLINE).only_action();
    stage.pass_to(525).succeed(&mirror);
    assert_eq!(after(&mut stage, Hop::Mirrored), [Some(25)]);
}

#[test]
fn repairing_an_overwrite_has_no_duration() {
    let mut stage = Stage::settled(Settings::default());
    let mirror = stage.hub(Some("{}")).only_action();
    stage.pass_to(600_020).hub(N1).succeed(&mirror);
    assert_eq!(stage.hops(), [(Hop::Mirrored, "hub".to_owned(), None)]);
    // The same holds for a copy that another writer changes at the edge.
    stage.pass_to(600_030).edge(Some("{}")).pass_to(600_060).edge(N1);
    assert_eq!(after(&mut stage, Hop::Carried).last(), Some(&None));
}

#[test]
fn an_instance_at_an_edge_measures_its_own_hop() {
    let mut stage = Stage::settled(Settings::default());
    stage.leave("up").leave("hub").hops();
    let touch = stage.edge(OFFLINE).action_at(600_100);
    stage.pass_to(600_105).succeed(&touch);
    let edge = || "edge".to_owned();
    assert_eq!(stage.hops(), [(Hop::Carried, edge(), None), (Hop::Announced, edge(), Some(105))]);
}

/// Events about what is late go to the object where it is stuck.
#[test]
fn what_is_late_is_about_the_object_where_it_is_stuck() {
    let mut stage = Stage::default();
    stage.upstream(N1).hub(None).edge(None).proxy(&["lab"]);
    stage.gateway("");
    stage.settle_to(0);
    type Late = (fn(&mut Stage) -> &mut Stage, Cause, &'static str);
    let late: [Late; 3] = [
        (|stage| stage.pass_to(20_000), Cause::NotCarried, "edge Connector u-edge"),
        (
            |stage| stage.upstream(OFFLINE).pass_to(26_000),
            Cause::NotMirrored,
            "hub Connector u-hub",
        ),
        (|stage| stage.edge(N1).pass_to(40_000), Cause::NotAnnounced, "edge Gateway u-app"),
    ];
    for (pass, cause, expected) in late {
        let found = pass(&mut stage).began(cause);
        let object = stage.machine.involved_object(&found[0].about).unwrap();
        let (cluster, kind) = (object.cluster, object.kind);
        assert_eq!(format!("{cluster} {kind} {}", object.uid.unwrap()), expected);
    }
}

#[test]
fn a_copy_first_seen_in_a_relist_has_no_duration() {
    let mut stage = Stage::settled(Settings::default());
    let mirror = stage.upstream(OFFLINE).only_action();
    stage.pass_to(600_020).succeed(&mirror).hub(OFFLINE);
    stage.lost("edge", "Connector").pass_to(609_000).notes();
    stage.list("edge", "Connector", [with_uid(UP.copy("lab", OFFLINE), "u-edge")]);
    stage.settle_to(620_000);
    let edge = || "edge".to_owned();
    assert_eq!(stage.hops(), [(Hop::Carried, edge(), None), (Hop::Announced, edge(), None)]);
}
