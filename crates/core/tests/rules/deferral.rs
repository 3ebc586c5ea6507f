//! A difference that routes nothing waits; one that routes never does.

use throughline_core::contract::action::{Decision, Urgency, Verb};
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::contract::note::{Hop, NoteKind, Stall, StallCause};
use throughline_core::contract::settings::Settings;
use throughline_core::view::{AnnotationState, Phase};

use crate::stage::{START, Stage, status};

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

/// Online on a node, at an address.
fn at(node: &str, address: u64) -> String {
    status(Some(node)).replace(r#"{"id""#, &format!(r#"{{"homeRelay":"r-{address}","id""#))
}

/// Settled, with all confirmations done, at 600 s.
fn settled(change: impl FnOnce(&mut Settings)) -> Stage {
    let mut stage = Stage::settled(settings(change));
    assert_eq!(stage.machine.phases()[&Phase::Settled], 1);
    stage.notes();
    stage
}

/// Hub and edge come to say what was written.
fn carried(stage: &mut Stage, mirror: &Decision) {
    let text = mirror.action.annotations[0].1.clone();
    stage.hub(text.as_deref());
    stage.succeed(mirror);
    stage.edge(text.as_deref());
}

fn time(decision: &Decision) -> u64 {
    decision.at.0 - START
}

#[test]
fn an_address_waits_five_seconds_and_is_shown_as_deferred_meanwhile() {
    let mut stage = settled(|_| ());
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(604_999);
    stage.assert_no_action();
    let view = stage.machine.view();
    let (connector, hub) = (&view.connectors[0], &view.connectors[0].hubs[0]);
    assert_eq!((connector.phase, hub.annotation), (Phase::Deferred, AnnotationState::Deferred));
    assert_eq!(hub.deferred_since_ms.unwrap().0, START + 600_000);
    assert!(hub.says.as_ref().unwrap().online, "it routes as upstream says");
    stage.pass_to(605_000);
    let mirror = stage.only_action();
    assert_eq!((mirror.action.verb, mirror.urgency), (Verb::Mirror, Urgency::Deferrable));
    assert_eq!(mirror.because, "upstream's status changed, but not what routes; waited 5 s");
    carried(&mut stage, &mirror);
    assert_eq!(stage.machine.phases()[&Phase::Settled], 1);
    assert_eq!(stage.settle_to(900_000), [], "no Gateway is touched for it");
    assert_eq!(stage.problems(), []);
}

#[test]
fn an_address_that_changes_every_second_is_written_every_five_seconds() {
    let mut stage = settled(|_| ());
    let mut written = Vec::new();
    for second in 0..60 {
        stage.upstream(Some(&at("n1", second)));
        stage.pass_to(600_000 + (second + 1) * 1_000);
        for mirror in stage.actions() {
            written.push(time(&mirror) - 600_000);
            carried(&mut stage, &mirror);
        }
    }
    // Each is counted from the change that came after the write before.
    assert_eq!(written[..4], [5_000, 10_000, 15_000, 20_000]);
    assert_eq!(written.len(), 12);
}

#[test]
fn what_routes_is_written_at_once_and_takes_along_what_waits() {
    let mut stage = settled(|_| ());
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(602_000);
    stage.upstream(Some(&at("n2", 1)));
    let mirror = stage.only_action();
    assert_eq!((time(&mirror), mirror.urgency), (602_000, Urgency::Routing));
    assert!(mirror.action.annotations[0].1.as_ref().unwrap().contains("r-1"));
    stage.succeed(&mirror);
    stage.pass_to(609_000);
    stage.assert_no_action();
    // An annotation that vanishes or appears routes, whatever it says.
    stage.hub(None);
    assert_eq!(stage.only_action().urgency, Urgency::Routing);
}

#[test]
fn a_value_of_another_writer_that_routes_alike_is_corrected_later() {
    let mut stage = settled(|_| ());
    stage.hub(Some(&at("n1", 7)));
    stage.assert_no_action();
    stage.pass_to(605_000);
    let mirror = stage.only_action();
    assert_eq!(
        mirror.because,
        "another writer changed the hub's annotation, but not what routes; waited 5 s"
    );
    // One that routes otherwise is corrected at once, though the last write is still deferred.
    stage.fail(mirror.action.id);
    stage.hub(Some(&status(None)));
    stage.pass_to(606_000);
    assert_eq!(stage.only_action().urgency, Urgency::Routing, "after the pause of the failure");
}

#[test]
fn the_replicator_that_writes_it_first_leaves_nothing_to_do() {
    let mut stage = settled(|_| ());
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(601_000);
    stage.hub(Some(&at("n1", 1)));
    stage.edge(Some(&at("n1", 1)));
    assert_eq!(stage.settle_to(900_000), []);
    assert_eq!(stage.problems(), []);
    assert_eq!(stage.machine.poll_deadline(), None);
}

#[test]
fn it_is_no_stall_for_a_minute_and_then_one_that_says_why() {
    let mut stage = settled(|s| s.mirror.defer_ms = 3_600_000);
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(630_000);
    stage.upstream(Some(&at("n1", 2)));
    stage.pass_to(659_999);
    assert_eq!(stage.problems(), []);
    stage.pass_to(660_000);
    let problems = stage.problems();
    let [NoteKind::Stalled(Stall { hop: Hop::Mirrored, cause, reason, since, .. })] = &problems[..]
    else {
        panic!("{problems:?}");
    };
    assert_eq!(*cause, StallCause::Deferred { cluster: "hub".into() });
    assert!(reason.starts_with("what routes is mirrored"), "{reason}");
    assert_eq!(since.0, START + 600_000, "later changes do not make it younger");
    assert_eq!(stage.machine.phases()[&Phase::Stalled], 1);
    // A flip ends it: from now on something else is late.
    stage.upstream(Some(&status(None)));
    assert!(matches!(&stage.problems()[..], [NoteKind::StallEnded(_)]));
    let mirror = stage.only_action();
    assert_eq!(mirror.urgency, Urgency::Routing);
    stage.pass_to(665_000);
    assert!(matches!(
        &stage.problems()[..],
        [NoteKind::Stalled(Stall { cause: StallCause::WriteInFlight { .. }, .. })]
    ));
    // And what was late about the flip is over when it is taken back.
    stage.finish(&mirror, Outcome::Dropped);
    stage.upstream(Some(&at("n1", 2)));
    assert!(matches!(&stage.problems()[..], [NoteKind::StallEnded(_)]));
}

#[test]
fn a_write_that_fails_is_tried_again_without_waiting_for_five_more_seconds() {
    let mut stage = settled(|_| ());
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(605_000);
    let mirror = stage.only_action();
    stage.fail(mirror.action.id);
    stage.pass_to(605_999);
    stage.assert_no_action();
    stage.pass_to(606_000);
    let again = stage.only_action();
    assert_eq!(again.because, mirror.because.replace("5 s", "6 s"));
    // A change while it is in flight is another difference: it waits from the outcome on.
    stage.pass_to(607_000);
    stage.upstream(Some(&at("n1", 2)));
    stage.pass_to(608_000);
    carried(&mut stage, &again);
    stage.pass_to(612_999);
    stage.assert_no_action();
    stage.pass_to(613_000);
    assert_eq!(stage.only_action().urgency, Urgency::Deferrable);
}

#[test]
fn while_it_waits_an_edge_that_lacks_the_flip_is_nudged_as_ever() {
    let mut stage = settled(|_| ());
    stage.upstream(Some(&status(Some("n2"))));
    let flip = stage.only_action();
    stage.succeed(&flip);
    stage.pass_to(608_000);
    stage.upstream(Some(&at("n2", 1)));
    stage.pass_to(609_999);
    stage.assert_no_action();
    stage.pass_to(610_000);
    let nudge = stage.only_action();
    assert_eq!((nudge.action.verb, nudge.urgency), (Verb::Nudge, Urgency::Nudge));
    let problems = stage.problems();
    assert!(
        matches!(&problems[..], [NoteKind::Stalled(Stall { hop: Hop::Arrived, .. })]),
        "{problems:?}"
    );
    stage.succeed(&nudge);
    stage.edge(flip.action.annotations[0].1.as_deref());
    let touch = stage.settle_to(612_999);
    assert!(touch.iter().all(|action| action.action.verb == Verb::Touch), "{touch:#?}");
    assert!(matches!(&stage.problems()[..], [NoteKind::StallEnded(_)]));
    stage.pass_to(613_000);
    assert_eq!(stage.only_action().urgency, Urgency::Deferrable);
}

#[test]
fn an_edge_that_has_what_the_hub_says_is_not_nudged_for_what_waits() {
    let mut stage = settled(|s| s.mirror.defer_ms = 50_000);
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(649_999);
    stage.assert_no_action();
    assert_eq!(stage.problems(), []);
}

#[test]
fn a_new_leader_counts_from_when_it_saw_the_difference() {
    let mut stage = settled(|_| ());
    stage.event(EventKind::LeadershipLost);
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(603_000);
    stage.event(EventKind::LeadershipAcquired);
    stage.pass_to(604_999);
    stage.assert_no_action();
    stage.pass_to(605_000);
    assert_eq!(stage.only_action().urgency, Urgency::Deferrable);
    // Had it waited for longer, it would be due at once; and one that loses the Lease writes nothing.
    let mut stage = settled(|_| ());
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(601_000);
    stage.event(EventKind::LeadershipLost);
    stage.pass_to(630_000);
    stage.assert_no_action();
    stage.event(EventKind::LeadershipAcquired);
    assert_eq!(time(&stage.only_action()), 630_000);
}

#[test]
fn what_waits_for_an_object_that_is_gone_is_forgotten() {
    let gone: [fn(&mut Stage); 3] = [
        |stage| {
            let object = stage.connector_copy("u-hub", None);
            stage.deleted("hub", &object);
        },
        |stage| stage.event(EventKind::ClusterRemoved { cluster: "hub".into() }),
        |stage| stage.event(EventKind::ClusterRemoved { cluster: "up".into() }),
    ];
    for forget in gone {
        let mut stage = settled(|_| ());
        stage.upstream(Some(&at("n1", 1)));
        stage.pass_to(601_000);
        forget(&mut stage);
        stage.assert_no_action();
        // A minute later the names of upstreams are compared, for the last time.
        stage.pass_to(670_000);
        stage.assert_no_action();
        assert_eq!(stage.machine.poll_deadline(), None);
    }
    // Another object under the name: what it says is a difference of its own.
    let mut stage = settled(|_| ());
    stage.upstream(Some(&at("n1", 1)));
    stage.pass_to(603_000);
    let other = stage.connector_copy("u-other", Some(&at("n1", 3)));
    stage.applied("hub", &other);
    stage.pass_to(607_999);
    stage.assert_no_action();
    stage.pass_to(608_000);
    assert_eq!(stage.only_action().action.precondition.uid.as_deref(), Some("u-other"));
}
