//! Instances that say of themselves what the API servers or the network did not see.

use std::time::Duration;

use serde_json::json;
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{ActionId, ClusterName, Kind};
use tokio::time::{Instant, advance};

use super::{HUB_CONNECTOR, LEASE, ROUTE, Trace};
use crate::instance::{CompleteList, Done, Tape};
use crate::network::SentWrite;

#[tokio::test(start_paused = true)]
async fn an_action_that_is_taken_for_carried_out_and_was_not_is_rejected() {
    let done = async |client, kind: &str, name: &str, decided: Instant| {
        let mut trace = Trace::led().mirrors(1, json!("1"));
        advance(Duration::from_secs(1)).await;
        let action = json!({ "id": 1, "type": "mirror", "cluster": "hub", "kind": kind,
            "namespace": "n", "name": name });
        let action = serde_json::from_value(action).unwrap();
        trace.0.done(client, &Done { decided, ended: Instant::now(), action });
        trace
    };
    let now = Instant::now();
    done(1, "Connector", "c", now).await.assert_right();
    done(2, "Connector", "c", now).await.assert_broken("for carried out");
    done(1, "Connector", "d", now).await.assert_broken("for carried out");
    done(1, "HTTPRoute", "c", now).await.assert_broken("for carried out");
    let later = now + Duration::from_secs(60);
    done(1, "Connector", "c", later).await.assert_broken("for carried out");
}

#[tokio::test(start_paused = true)]
async fn an_action_that_a_newer_one_replaced_and_that_has_no_outcome_is_rejected() {
    let trace = |older: &str, ends: &[(u64, Outcome)]| {
        let mut tape = Tape::default();
        for (id, name) in [(1, older), (2, "c")] {
            let action = json!({ "id": id, "type": "mirror", "cluster": "hub", "kind": "Connector",
                "namespace": "n", "name": name });
            tape.decided(serde_json::from_value(action).unwrap());
        }
        for (id, outcome) in ends {
            tape.finished(ActionId(*id), outcome);
        }
        let mut trace = Trace::new();
        tape.forgotten.iter().for_each(|action| trace.0.forgotten(1, action));
        trace
    };
    let (replaced, applied) = (Outcome::Superseded, Outcome::Unchanged);
    trace("c", &[(1, replaced.clone()), (2, applied.clone())]).assert_right();
    trace("d", &[(2, applied.clone())]).assert_right();
    // The first one may be under way when the leadership is lost, which drops the second one at once.
    trace("c", &[(2, Outcome::Dropped), (1, replaced.clone())]).assert_right();
    trace("c", &[(2, applied.clone())]).assert_broken("has no outcome, and a newer one has");
    trace("c", &[(2, applied), (1, replaced)]).assert_broken("has no outcome, and a newer one has");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_an_instance_sends_when_it_knows_that_it_does_not_lead_is_rejected() {
    let began = Instant::now();
    let after = |ms| began + Duration::from_millis(ms);
    // It leads from 1 s to 5 s, and from 7 s on.
    let leadership =
        [(1_000, true), (5_000, false), (7_000, true)].map(|(ms, leads)| (after(ms), leads));
    let sent = |ms, path: &str| {
        let (at, host, path) = (after(ms), "hub".to_owned(), path.to_owned());
        let mut trace = Trace::new();
        trace.0.sent(&SentWrite { at, client: 1, host, path }, &leadership);
        trace
    };
    for path in [HUB_CONNECTOR, ROUTE] {
        for right in [995, 1_000, 4_999, 5_000, 5_010, 6_990, 7_000, 60_000] {
            sent(right, path).assert_right();
        }
        for wrong in [500, 5_030, 6_000, 6_970] {
            sent(wrong, path).assert_broken("does not lead, as it knows itself");
        }
    }
    sent(6_000, LEASE).assert_right();
}

#[tokio::test(start_paused = true)]
async fn a_list_without_its_last_page_is_not_complete() {
    const PATH: &str = "/apis/networking.datumapis.com/v1alpha1/connectors";
    let listed = async |client, pages: &[bool], kind| {
        let (mut trace, edge) = (Trace::new(), ClusterName::from("edge"));
        for is_given in pages {
            trace.0.list_answered(client, &edge, PATH, (Instant::now(), *is_given));
            advance(Duration::from_secs(1)).await;
        }
        trace.0.complete(1, &CompleteList { at: Instant::now(), cluster: edge.clone(), kind });
        // What is asked for later says nothing about it.
        trace.0.list_answered(1, &edge, PATH, (Instant::now(), false));
        trace
    };
    listed(1, &[true, false, true, true], Kind::Connector).await.assert_right();
    listed(1, &[true, false], Kind::Connector).await.assert_broken("did not get its last page");
    listed(1, &[], Kind::Connector).await.assert_broken("did not get its last page");
    listed(2, &[true], Kind::Connector).await.assert_broken("did not get its last page");
    listed(1, &[true], Kind::Gateway).await.assert_broken("did not get its last page");
}
