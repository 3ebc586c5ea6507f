//! A difference that routes nothing waits; one that routes never does.

use crate::stage::*;

/// Settled, with all confirmations done, at 600 s.
fn settled(change: impl FnOnce(&mut Settings)) -> Stage {
    let stage = Stage::settled(settings(change));
    assert_eq!((stage.state(), stage.hop(Hop::Mirrored).cause), (ONLINE_AND_OK, None));
    stage
}

/// Upstream has another address than the hub since 600 s.
fn moved(change: impl FnOnce(&mut Settings)) -> Stage {
    let mut stage = settled(change);
    says(&mut stage, "n1", 1);
    stage
}

fn says<'a>(stage: &'a mut Stage, node: &str, address: u64) -> &'a mut Stage {
    stage.upstream(Some(&status_at(node, address)))
}

/// Hub and edge come to say what was written.
fn carried<'a>(stage: &'a mut Stage, mirror: &Decision) -> &'a mut Stage {
    stage.hub(written(mirror)).succeed(mirror).edge(written(mirror))
}

#[test]
fn an_address_waits_five_seconds_and_is_shown_as_deferred_meanwhile() {
    let mut stage = moved(|_| ());
    stage.quiet_to(604_999);
    assert_eq!(stage.state(), ONLINE_AND_OK);
    let hop = stage.hop(Hop::Mirrored);
    assert_eq!((hop.state, hop.cause), (State::Ok, Some(Cause::Deferred)));
    assert_eq!(hop.since_ms, Some(UnixMillis(START + 600_000)));
    assert!(hop.says.unwrap().online, "it routes as upstream says");
    let mirror = stage.action_at(605_000);
    assert_eq!((mirror.action.verb, mirror.urgency), (Verb::Mirror, Urgency::Deferrable));
    assert_eq!(mirror.because, "upstream's status changed, but not what routes; waited 5 s");
    assert_eq!(carried(&mut stage, &mirror).state(), ONLINE_AND_OK);
    assert_eq!(stage.hop(Hop::Mirrored).cause, None);
    assert_eq!(stage.settle_to(900_000), [], "no Gateway is touched for it");
    assert_eq!(stage.causes(), [(true, Cause::Deferred), (false, Cause::Deferred)]);
}

#[test]
fn an_address_that_changes_every_second_is_written_every_five_seconds() {
    let mut stage = settled(|_| ());
    let mut written = Vec::new();
    for second in 600..660 {
        says(&mut stage, "n1", second).run_to((second + 1) * SECOND, |stage, mirror| {
            written.push(time_of(mirror));
            carried(stage, mirror);
        });
    }
    // Each is counted from the change that came after the write before.
    let expected: Vec<_> = (1..=12).map(|n| 600_000 + n * 5_000).collect();
    assert_eq!(written, expected);
}

#[test]
fn what_routes_is_written_at_once_and_takes_along_what_waits() {
    let mut stage = moved(|_| ());
    let mirror = says(stage.pass_to(602_000), "n2", 1).only_action();
    assert_eq!((time_of(&mirror), mirror.urgency), (602_000, Urgency::Routing));
    assert!(written(&mirror).unwrap().contains("r-1"));
    stage.succeed(&mirror).quiet_to(609_000);
    // An annotation that vanishes or appears routes, whatever it says.
    assert_eq!(stage.hub(None).only_action().urgency, Urgency::Routing);
}

#[test]
fn a_value_of_another_writer_that_routes_alike_is_corrected_later() {
    let mut stage = settled(|_| ());
    let mirror = stage.hub(Some(&status_at("n1", 7))).next_at(605_000);
    assert_eq!(
        mirror.because,
        "another writer changed the hub's annotation, but not what routes; waited 5 s"
    );
    // One that routes otherwise is corrected at once, though the last write is still deferred.
    let next = stage.fail(mirror.action.id).hub(OFFLINE).action_at(606_000);
    assert_eq!(next.urgency, Urgency::Routing, "after the pause of the failure");
}

#[test]
fn the_replicator_that_writes_it_first_leaves_nothing_to_do() {
    let mut stage = moved(|_| ());
    let text = status_at("n1", 1);
    stage.pass_to(601_000).hub(Some(&text)).edge(Some(&text));
    assert_eq!(stage.settle_to(900_000), []);
    assert_eq!(stage.causes(), [(true, Cause::Deferred), (false, Cause::Deferred)]);
    assert_eq!(stage.machine.poll_deadline(), None);
}

#[test]
fn what_waits_is_a_cause_from_its_first_change_until_it_is_mirrored_or_something_else_is_late() {
    let mut stage = moved(|s| s.mirror.defer_ms = HOUR);
    says(stage.pass_to(630_000), "n1", 2).pass_to(660_000);
    let since: Vec<_> = stage.began(Cause::Deferred).iter().map(|p| p.since.0 - START).collect();
    assert_eq!(since, [600_000], "later changes do not make it younger");
    assert_eq!(
        (stage.state(), stage.hop(Hop::Mirrored).cause),
        (ONLINE_AND_OK, Some(Cause::Deferred))
    );
    // A flip ends it: from now on something else is late.
    assert_eq!(stage.upstream(OFFLINE).causes(), [(false, Cause::Deferred)]);
    let mirror = stage.only_action();
    assert_eq!(mirror.urgency, Urgency::Routing);
    let late = stage.pass_to(665_000).began(Cause::NotMirrored);
    assert_eq!(late[0].since.0, START + 660_000);
    assert_eq!(late[0].facts.what.as_deref(), Some("not answered yet"));
    // And what was late about the flip is over when it is taken back.
    says(stage.finish(&mirror, Outcome::Dropped), "n1", 2);
    assert_eq!(stage.wrong(), [Cause::Deferred]);
}

#[test]
fn a_write_that_fails_is_tried_again_without_waiting_for_five_more_seconds() {
    let mut stage = moved(|_| ());
    let mirror = stage.action_at(605_000);
    let again = stage.fail(mirror.action.id).next_at(606_000);
    assert_eq!(again.because, mirror.because.replace("5 s", "6 s"));
    // A change while it is in flight is another difference: it waits from the outcome on.
    says(stage.pass_to(607_000), "n1", 2).pass_to(608_000);
    assert_eq!(carried(&mut stage, &again).next_at(613_000).urgency, Urgency::Deferrable);
}

#[test]
fn while_it_waits_an_edge_that_lacks_the_flip_is_nudged_as_ever() {
    let mut stage = settled(|_| ());
    let flip = stage.upstream(N2).only_action();
    says(stage.succeed(&flip).pass_to(608_000), "n2", 1);
    let nudge = stage.next_at(610_000);
    assert_eq!((nudge.action.verb, nudge.urgency), (Verb::Nudge, Urgency::Nudge));
    assert_eq!(stage.wrong(), [Cause::Deferred, Cause::NotCarried]);
    stage.succeed(&nudge).edge(written(&flip));
    let touch = stage.settle_to(612_999);
    assert!(touch.iter().all(|action| action.action.verb == Verb::Touch), "{touch:#?}");
    assert_eq!(stage.wrong(), [Cause::Deferred]);
    assert_eq!(stage.action_at(613_000).urgency, Urgency::Deferrable);
}

#[test]
fn an_edge_that_has_what_the_hub_says_is_not_nudged_for_what_waits() {
    let mut stage = moved(|s| s.mirror.defer_ms = 50_000);
    stage.quiet_to(649_999);
    assert_eq!(stage.wrong(), [Cause::Deferred]);
}

#[test]
fn a_new_leader_counts_from_when_it_saw_the_difference() {
    let mut stage = settled(|_| ());
    says(stage.leads(false), "n1", 1).pass_to(603_000).leads(true);
    assert_eq!(stage.next_at(605_000).urgency, Urgency::Deferrable);
    // Had it waited for longer, it would be due at once; and one that loses the Lease writes nothing.
    let mut stage = moved(|_| ());
    stage.pass_to(601_000).leads(false).quiet_to(630_000);
    assert_eq!(time_of(&stage.leads(true).only_action()), 630_000);
}

#[test]
fn what_waits_for_an_object_that_is_gone_is_forgotten() {
    let gone: [fn(&mut Stage) -> &mut Stage; 3] = [
        |stage| stage.deleted("hub", with_uid(UP.copy("lab", None), "u-hub")),
        |stage| stage.leave("hub"),
        |stage| stage.leave("up"),
    ];
    for forget in gone {
        let mut stage = moved(|_| ());
        // A minute later the names of upstreams are compared, for the last time.
        forget(stage.pass_to(601_000)).quiet_to(670_000);
        assert_eq!(stage.machine.poll_deadline(), None);
    }
    // Another object under the name: what it says is a difference of its own.
    let mut stage = moved(|_| ());
    let other = UP.copy("lab", Some(&status_at("n1", 3)));
    let mirror = stage.pass_to(603_000).applied("hub", other).next_at(608_000);
    assert_eq!(mirror.action.precondition.uid.as_deref(), Some("u-lab"));
}
