//! A leader that does not see what another instance sees hands over; nobody else does.

use throughline::core::contract::cause::Cause;
use throughline::core::contract::error_cause::{ErrorCause, RequestFailure};
use throughline::core::data::ids::{ClusterName, Kind};

use super::*;

use crate::log::Log;

const BLIND: Duration = Duration::from_secs(30);

impl Instance {
    fn loses(&self, cluster: &str) {
        let failure = RequestFailure::new(ErrorCause::Unreachable, "gone".to_owned());
        self.metrics.watch(&ClusterName::from(cluster), Kind::Connector).lost(&failure);
    }

    fn sees(&self, cluster: &str) {
        self.metrics.watch(&ClusterName::from(cluster), Kind::Connector).list_finished();
    }
}

/// Two instances that see two upstreams; the first one leads.
async fn two(api: &FakeApi) -> (Instance, Instance) {
    let mut one = instance("one", api);
    one.becomes(true, RETRY).await;
    let two = instance("two", api);
    for instance in [&one, &two] {
        instance.sees("up");
        instance.sees("other");
    }
    (one, two)
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_blind_where_another_sees_hands_over_within_a_minute() {
    let api = FakeApi::released();
    let (mut one, mut two) = two(&api).await;
    two.stays(BLIND).await;
    one.loses("up");
    one.becomes(false, BLIND + 5 * RETRY).await;
    let after = two.becomes(true, LEASE + RETRY).await;
    // Its last writes must have ended: the Lease expires, and is not released.
    assert!(after > LEASE - 2 * RETRY, "{after:?}");
    assert_eq!(api.holder(), "two");
    one.sees("up");
    one.stays(Duration::from_secs(600)).await;
    two.stays(Duration::from_secs(600)).await;
    let events = api.0.lock().unwrap().events.clone();
    assert!(events.contains(&"one stands down: another instance sees more clusters".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_nobody_sees_changes_nothing() {
    let api = FakeApi::released();
    let (mut one, mut two) = two(&api).await;
    one.loses("up");
    two.loses("up");
    one.stays(Duration::from_secs(600)).await;
    // One sees less of this, the other of that: neither is the better leader.
    two.sees("up");
    two.loses("other");
    one.stays(Duration::from_secs(600)).await;
    two.stays(BLIND).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_loss_of_sight_changes_nothing() {
    let api = FakeApi::released();
    let (mut one, _two) = two(&api).await;
    for _ in 0..20 {
        one.loses("up");
        one.stays(BLIND - 2 * RETRY).await;
        one.sees("up");
        one.stays(2 * RETRY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_everything_ignores_a_question() {
    let api = FakeApi::released();
    let (mut one, _two) = two(&api).await;
    for _ in 0..5 {
        api.0.lock().unwrap().question = Some("mallory".to_owned());
        one.stays(BLIND).await;
    }
    assert!(one.gate.is_open());
}

/// The one that asked is gone: the former leader leads again, blind as it is.
#[tokio::test(start_paused = true)]
async fn a_leader_that_nobody_replaces_leads_again() {
    let api = FakeApi::released();
    let (mut one, two) = two(&api).await;
    drop(two.election);
    one.loses("up");
    one.stays(BLIND + RETRY).await;
    api.0.lock().unwrap().question = Some("two".to_owned());
    api.edit(|_| {});
    one.becomes(false, 2 * RETRY).await;
    let after = one.becomes(true, 2 * LEASE + 2 * RETRY).await;
    assert!(after >= 2 * LEASE - RETRY, "{after:?}");
    // And it hands over at most once in five minutes.
    api.0.lock().unwrap().question = Some("two".to_owned());
    api.edit(|_| {});
    one.stays(Duration::from_secs(180)).await;
}

/// Two installations by mistake: the first to hold the Lease leads, whatever the other one sees, and the
/// other one says once why nobody mirrors its own upstream.
#[tokio::test(start_paused = true)]
async fn a_standby_that_follows_other_clusters_never_leads_and_says_so_once() {
    let log = Log::default();
    let _logging = log.capture();
    let warnings = || log.text().matches("follows other clusters").count();
    let api = FakeApi::released();
    let mut one = instance("one", &api);
    one.becomes(true, RETRY).await;
    let mut two = instance("two", &api);
    for (instance, clusters) in [(&one, ["hub", "theirs"]), (&two, ["hub", "ours"])] {
        clusters.iter().for_each(|cluster| instance.sees(cluster));
    }
    two.stays(Duration::from_secs(290)).await;
    assert_eq!(warnings(), 0, "one may not have read its configuration yet");
    one.loses("hub");
    one.stays(Duration::from_secs(600)).await;
    two.stays(Duration::from_secs(600)).await;
    assert_eq!(warnings(), 1);
    let text = log.text();
    let warning = text.lines().find(|line| line.contains("follows other clusters")).unwrap();
    for part in ["holder=\"one\"", "only_there=\"theirs\"", "only_here=\"ours\""] {
        assert!(warning.contains(part), "{part} in {warning}");
    }

    // With the holder gone, the other one leads, and mirrors its own.
    drop(one.election);
    two.becomes(true, LEASE + RETRY).await;
}

/// A project that comes, or a new configuration, reaches one instance before the other.
#[tokio::test(start_paused = true)]
async fn clusters_that_differ_for_a_moment_are_not_warned_of() {
    let log = Log::default();
    let _logging = log.capture();
    let api = FakeApi::released();
    let (mut one, two) = two(&api).await;
    for n in 0..20 {
        two.sees(&format!("new-{n}"));
        one.stays(Duration::from_secs(60)).await;
        one.sees(&format!("new-{n}"));
        one.stays(Duration::from_secs(10)).await;
    }
    assert_eq!(log.text().matches("follows other clusters").count(), 0);
}

/// A holder that is gone may have left a Lease of an hour.
#[tokio::test(start_paused = true)]
async fn a_lease_of_absurd_length_that_nobody_renews_is_a_problem() {
    let api = FakeApi::default();
    api.edit(|record| (record.holder, record.lease_ms) = ("gone".to_owned(), 3_600_000));
    let mut one = instance("one", &api);
    one.stays(LEASE - RETRY).await;
    assert!(one.unled.is_empty(), "its holder may still renew it");
    one.stays(Duration::from_secs(600)).await;
    let Some(NoteKind::Began(problem)) = one.unled.recv().await else { panic!("it is over") };
    assert_eq!((problem.cause, one.unled.len()), (Cause::NoLeader, 0));
}
