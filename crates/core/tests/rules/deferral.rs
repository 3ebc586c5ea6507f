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
