//! Instances that say of themselves what the API servers or the network did not see.

use std::time::Duration;

use serde_json::json;
use throughline::core::contract::action::Action;
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{ActionId, ClusterName, Kind};
use tokio::time::Instant;

use super::{HUB_CONNECTOR, LEASE, ROUTE, Trace};
use crate::instance::{CompleteList, Done, Tape};
use crate::network::SentWrite;

fn mirror(id: u64, kind: &str, name: &str) -> Action {
    let action = json!({ "id": id, "type": "mirror", "cluster": "hub", "kind": kind,
        "namespace": "n", "name": name });
    serde_json::from_value(action).unwrap()
}

#[test]
fn an_action_that_is_taken_for_carried_out_and_was_not_is_rejected() {
    const NOT_DONE: &str = "for carried out";
    let now = Instant::now();
    let later = now + Duration::from_secs(60);
    for (client, kind, name, decided, how) in [
        (1, "Connector", "c", now, ""),
        (2, "Connector", "c", now, NOT_DONE),
        (1, "Connector", "d", now, NOT_DONE),
        (1, "HTTPRoute", "c", now, NOT_DONE),
        (1, "Connector", "c", later, NOT_DONE),
    ] {
        let trace = Trace::new().leads(1).mirrors(1, "1").wait(1_000);
        let done = Done { decided, ended: trace.now, action: mirror(1, kind, name) };
        trace.does(|oracle, _| oracle.done(client, &done)).assert(how);
    }
}

#[test]
fn an_action_that_a_newer_one_replaced_and_that_has_no_outcome_is_rejected() {
    const FORGOTTEN: &str = "has no outcome, and a newer one has";
    let (replaced, applied) = (|| Outcome::Superseded, || Outcome::Unchanged);
    for (older, ends, how) in [
        ("c", vec![(1, replaced()), (2, applied())], ""),
        ("d", vec![(2, applied())], ""),
        // The first one may be under way when the leadership is lost, which drops the second one at once.
        ("c", vec![(2, Outcome::Dropped), (1, replaced())], ""),
        ("c", vec![(2, applied())], FORGOTTEN),
        ("c", vec![(2, applied()), (1, replaced())], FORGOTTEN),
    ] {
        let mut tape = Tape::default();
        tape.decided(mirror(1, "Connector", older));
        tape.decided(mirror(2, "Connector", "c"));
        ends.iter().for_each(|(id, outcome)| tape.finished(ActionId(*id), outcome));
        let forgotten = tape.forgotten.iter();
        let trace = forgotten.fold(Trace::new(), |trace, action| {
            trace.does(|oracle, _| oracle.forgotten(1, action))
        });
        trace.assert(how);
    }
}

#[test]
fn a_write_that_an_instance_sends_when_it_knows_that_it_does_not_lead_is_rejected() {
    let began = Instant::now();
    let after = |ms| began + Duration::from_millis(ms);
    // It leads from 1 s to 5 s, and from 7 s on.
    let leadership =
        [(1_000, true), (5_000, false), (7_000, true)].map(|(ms, leads)| (after(ms), leads));
    let sent = |ms, path: &str| {
        let (at, host, path) = (after(ms), "hub".to_owned(), path.to_owned());
        let write = SentWrite { at, client: 1, host, path };
        Trace::new().does(|oracle, _| oracle.sent(&write, &leadership))
    };
    for path in [HUB_CONNECTOR, ROUTE] {
        for right in [995, 1_000, 4_999, 5_000, 5_010, 6_990, 7_000, 60_000] {
            sent(right, path).assert("");
        }
        for wrong in [500, 5_030, 6_000, 6_970] {
            sent(wrong, path).assert("does not lead, as it knows itself");
        }
    }
    sent(6_000, LEASE).assert("");
}

#[test]
fn a_list_without_its_last_page_is_not_complete() {
    const PATH: &str = "/apis/networking.datumapis.com/v1alpha1/connectors";
    const INCOMPLETE: &str = "did not get its last page";
    let edge = ClusterName::from("edge");
    for (client, pages, kind, how) in [
        (1, vec![true, false, true, true], Kind::Connector, ""),
        (1, vec![true, false], Kind::Connector, INCOMPLETE),
        (1, vec![], Kind::Connector, INCOMPLETE),
        (2, vec![true], Kind::Connector, INCOMPLETE),
        (1, vec![true], Kind::Gateway, INCOMPLETE),
    ] {
        let mut trace = Trace::new();
        for is_given in pages {
            let answered =
                trace.does(|o, now| o.list_answered(client, &edge, PATH, (now, is_given)));
            trace = answered.wait(1_000);
        }
        let complete = CompleteList { at: trace.now, cluster: edge.clone(), kind };
        // What is asked for later says nothing about it.
        let trace = trace.does(|oracle, now| {
            oracle.list_answered(1, &edge, PATH, (now + Duration::from_millis(1), false));
            oracle.complete(1, &complete);
        });
        trace.assert(how);
    }
}
