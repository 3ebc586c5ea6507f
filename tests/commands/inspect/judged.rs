//! What a look at the clusters says of times: it has seen nothing change, and judges by who wrote when.

use std::sync::Arc;

use throughline::core::contract::settings::LateSettings;
use throughline::core::view::fleet::{Leader, Writer};
use throughline::inspect::judge;
use throughline::inspect::writers::Writers;

use super::*;

type Written<'a> = (&'a str, &'a NamespacedName, u64);

fn look(stage: &Stage, written: &[Written<'_>]) -> Fleet {
    look_with(&[], stage, written, Leader::default())
}

/// Each Connector was written at this time, in seconds after the start of the stage.
fn look_with(seen: &[EventKind], stage: &Stage, written: &[Written<'_>], leader: Leader) -> Fleet {
    let mut writers = Writers::new(&Settings::default().mirror.nudge_key);
    seen.iter().for_each(|event| writers.observe(event));
    for (cluster, object, at) in written {
        let at_ms = UnixMillis(START + at * SECOND);
        let writer = Writer { manager: "agent".to_owned(), at_ms, of_field: true };
        writers.set_writer(&(*cluster).into(), Kind::Connector, object, writer);
    }
    let mut fleet = Fleet { source: Source::Clusters, leader, ..stage.fleet() };
    let limits = LateSettings::default();
    judge::complete(&mut fleet, &writers, &limits, &Problems::default(), &|_| None);
    fleet
}

fn found(fleet: &Fleet) -> (State, Hop, Option<Cause>) {
    worst(&fleet.connectors[0]).unwrap()
}

#[test]
fn what_is_late_follows_from_the_time_of_the_write_before() {
    let mut stage = Stage::settled(Settings::default());
    stage.leads(false).upstream(OFFLINE);
    let (up, hub) = (NamespacedName::new("default", "lab"), at_edge("lab"));
    let pending = (State::Pending, Hop::Mirrored, None);
    let late = |hop, cause| (State::Stuck, hop, Some(cause));
    let not_mirrored = late(Hop::Mirrored, Cause::NotMirrored);
    // managedFields have whole seconds, so a hop is late a second later.
    for (at, expected, many) in [(594, pending, 0), (593, not_mirrored, 1)] {
        let fleet = look(&stage, &[("up", &up, at)]);
        assert_eq!(found(&fleet), expected, "written at {at} s");
        assert_eq!((fleet.count(State::Stuck), fleet.problems.len() as u64), (many, many));
        assert_eq!(fleet.connectors[0].worst().unwrap().since_ms.unwrap().0, START + at * SECOND);
    }
    assert_eq!(found(&look(&stage, &[])), pending, "nobody knows since when");

    let holder = Leader { holder: Some("pod-b".to_owned()), ..Leader::default() };
    let fleet = look_with(&[], &stage, &[("up", &up, 1)], holder.clone());
    let message = &fleet.problems[0].message;
    assert!(message.ends_with("last write: see pod-b."), "{message}");
    let holder = Leader { waits_until_ms: Some(UnixMillis(stage.now + 1)), ..holder };
    let fleet = look_with(&[], &stage, &[("up", &up, 1)], holder);
    assert_eq!((found(&fleet), fleet.problems.len()), (pending, 0), "it may not write yet");

    stage.hub(OFFLINE);
    let fleet = look(&stage, &[("up", &up, 1), ("hub", &hub, 1)]);
    assert_eq!(found(&fleet), late(Hop::Carried, Cause::NotCarried));
    stage.edge(OFFLINE);
    let fleet = look(&stage, &[("up", &up, 1), ("edge", &hub, 1)]);
    assert_eq!(found(&fleet), late(Hop::Announced, Cause::NotAnnounced));
}

/// A look that has just begun says since when at least.
#[test]
fn a_time_that_may_be_longer_says_so() {
    let mut stage = Stage::settled(Settings::default());
    let copy = |uid| with_uid(UP.copy("lab", N1), uid);
    stage.list("up", "Connector", [with_uid(UP.connector("lab", N1), "u-up")]);
    stage.list("hub", "Connector", [copy("u-hub")]).list("edge", "Connector", [copy("u-edge")]);
    stage.pass(1_000);
    let text = status_of(&look(&stage, &[]));
    assert!(text.contains("  > 1.00 s  1/1"), "{text}");

    // A nudge is a later write of the same object, and no mirror.
    let key = Settings::default().mirror.nudge_key;
    let object = with(copy("u-hub"), json!({"metadata": {"annotations": { key: "3" }}}));
    let nudged = EventKind::Applied { cluster: "hub".into(), object: Arc::new(read(object)) };
    for (seen, at_least) in [(&[][..], false), (&[nudged], true)] {
        let fleet = look_with(seen, &stage, &[("hub", &at_edge("lab"), 590)], Leader::default());
        let hop = fleet.connectors[0].hops_of(Hop::Mirrored).next().unwrap();
        assert_eq!((hop.since_ms, hop.at_least), (Some(UnixMillis(START + 590_000)), at_least));
    }
}

#[test]
fn gateways_that_announce_what_was_true_are_stale() {
    let mut stage = Stage::settled(Settings::default());
    let column = |stage: &Stage| {
        let text = status_of(&fleet(stage));
        let row = text.lines().nth(1).unwrap();
        row.split_at(row.find("/1").unwrap() - 1).1.to_owned()
    };
    assert_eq!(column(&stage), "1/1");
    stage.upstream(OFFLINE);
    assert_eq!(column(&stage), "1/1 stale", "it still announces that it is online");
    let mirror = stage.only_action();
    stage.hub(OFFLINE).succeed(&mirror);
    assert_eq!(column(&stage), "1/1 stale");
    stage.edge(OFFLINE);
    assert_eq!(column(&stage), "0/1", "the gateway has to be touched");
    stage.settle_to(700_000);
    assert_eq!(column(&stage), "1/1");
    stage.upstream(Some(&status(None).replace(r#"{"id""#, r#"{"homeRelay":"r","id""#)));
    assert_eq!(column(&stage), "1/1", "what routes nothing is no other truth");
    stage.lost("up", "Connector");
    assert_eq!(column(&stage), "1/1 stale", "nobody knows the truth");
    stage.resumed("up", "Connector").lost("edge", "Gateway");
    assert_eq!(column(&stage), "?/1");
    let untouched = Stage::settled(settings(|s| s.touch.enabled = false));
    assert!(status_of(&fleet(&untouched)).contains(" 0/0\n"), "throughline touches none");
}
