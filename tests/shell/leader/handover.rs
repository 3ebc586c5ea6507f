//! A leader that lost the watches of a cluster that it mirrors lets another instance lead.

use throughline::core::contract::cause::Cause;
use throughline::core::data::ids::Kind;

use super::*;

const BLIND: Duration = Duration::from_secs(30);

impl Instance {
    fn loses(&self, cluster: &str) {
        self.metrics.watch(&cluster.into(), Kind::Connector).lost(&"gone".into());
    }

    fn sees(&self, cluster: &str) {
        self.metrics.watch(&cluster.into(), Kind::Connector).list_finished();
    }
}

/// Two instances that see everything; the first one leads.
async fn two() -> (Api, Instance, Instance) {
    let (api, one) = leader().await;
    let two = instance("two", &api);
    for instance in [&one, &two] {
        ["up", "hub", "edge"].iter().for_each(|cluster| instance.sees(cluster));
    }
    (api, one, two)
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_lost_an_upstream_for_long_hands_over_once() {
    let (api, mut one, mut two) = two().await;
    // An edge, or a short loss, is no reason.
    one.loses("edge");
    for _ in 0..20 {
        one.loses("up");
        one.stays(BLIND - 2 * RETRY).await;
        one.sees("up");
        one.stays(2 * RETRY).await;
    }
    one.loses("up");
    two.loses("up");
    one.becomes(false, BLIND + 5 * RETRY).await;
    let after = two.becomes(true, LEASE + RETRY).await;
    // Its last writes must have ended: the Lease expires, and is not released.
    assert!(after > LEASE - 2 * RETRY, "{after:?}");
    // The next one never saw the upstream: it leads on.
    tokio::join!(one.stays(Duration::from_secs(600)), two.stays(Duration::from_secs(600)));
    let events = api.events().await;
    let said = "one stands down: it lost the watches of a cluster";
    assert!(events.iter().any(|event| event == said), "{events:?}");
}

/// Nobody else is there: it leads again, blind as it is, and does not stand down for five minutes.
#[tokio::test(start_paused = true)]
async fn a_leader_that_nobody_replaces_leads_again() {
    let (_api, mut one, two) = two().await;
    drop(two.election);
    one.loses("hub");
    one.becomes(false, BLIND + 2 * RETRY).await;
    let after = one.becomes(true, 2 * LEASE + 2 * RETRY).await;
    assert!(after >= 2 * LEASE - RETRY, "{after:?}");
    one.stays(Duration::from_secs(250)).await;
}

/// A holder that is gone may have left a Lease of an hour.
#[tokio::test(start_paused = true)]
async fn a_lease_of_absurd_length_that_nobody_renews_is_a_problem() {
    let api = Api::new();
    api.put("tl", json!({"spec": {"holderIdentity": "gone", "leaseDurationSeconds": 3_600}}));
    let mut one = instance("one", &api);
    one.stays(LEASE - RETRY).await;
    assert!(one.unled.is_empty(), "its holder may still renew it");
    one.stays(Duration::from_secs(600)).await;
    let Some(NoteKind::Began(problem)) = one.unled.recv().await else { panic!("it is over") };
    assert_eq!((problem.cause, one.unled.len()), (Cause::NoLeader, 0));
}
