//! A registry in which every metric has a value.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use throughline::core::contract::action::{Action, Precondition, Verb};
use throughline::core::contract::event::Outcome;
use throughline::core::contract::hold_reason::HoldReason;
use throughline::core::contract::note::{
    Anomaly, AnomalyKind, Hop, Note, NoteKind, Stall, StallCause,
};
use throughline::core::contract::touches_waiting::TouchesWaiting;
use throughline::core::data::ids::{ActionId, Kind, ObjectKey};
use throughline::core::data::time::UnixMillis;
use throughline::metrics::{ClusterRequests, Metrics};
use throughline::outage::Answers;

pub(crate) fn action(verb: Verb) -> Action {
    Action {
        id: ActionId(1),
        verb,
        cluster: "hub".into(),
        kind: Kind::Connector,
        object: ObjectKey::new("ns", "lab"),
        annotations: Vec::new(),
        precondition: Precondition::default(),
        connectors: Vec::new(),
    }
}

pub(crate) fn note(kind: NoteKind) -> Note {
    Note { at: UnixMillis(1), kind }
}

pub(crate) fn passed(hop: Hop, after_ms: Option<u64>) -> Note {
    let (cluster, connector) = ("hub".into(), ObjectKey::new("ns", "lab"));
    note(NoteKind::HopPassed { cluster, connector, hop, online: true, after_ms })
}

pub(crate) fn stall(hop: Hop) -> Stall {
    let connector = ObjectKey::new("ns", "lab");
    let cause = StallCause::NotLeading;
    Stall { cluster: "hub".into(), connector, hop, since: UnixMillis(1), cause, reason: "r".into() }
}

/// Updates every metric. Those of requests last as long as what is returned.
#[must_use]
pub(crate) fn count(metrics: &Metrics) -> Arc<ClusterRequests> {
    let up = "org/team \"a\"".into();
    let watch = metrics.watch(&up, Kind::Connector);
    watch.list_started();
    watch.list_finished(7);
    watch.event_received();
    watch.bookmark_received();
    watch.lost(&"dial 10.0.0.1: refused".into());
    watch.resumed();
    watch.list_started();
    metrics.watch(&up, Kind::Gateway);
    for verb in [Verb::Mirror, Verb::Touch] {
        metrics.action_queued(verb);
        metrics.action_started(verb, Duration::from_millis(3));
    }
    let requests = metrics.requests(&up);
    requests.count("PATCH", Some(200));
    requests.count("PATCH", Some(200));
    requests.count("PATCH", None);
    let took = Duration::from_millis(20);
    metrics.action_finished(&action(Verb::Mirror), &Outcome::Unchanged, took);
    metrics.action_finished(&action(Verb::Touch), &Outcome::Refused { error: "".into() }, took);
    metrics.action_finished(&action(Verb::Touch), &Outcome::Superseded, Duration::ZERO);
    metrics.set_queue(4, 2);
    metrics.set_lane(&up, Kind::Gateway, 3, true);
    let held = NoteKind::DeletesHeld { cluster: up.clone(), held: true, orphans: 4, routes: 12 };
    metrics.count_note(&Note { at: UnixMillis(1), kind: held });
    let waiting = TouchesWaiting { touches: 1_200, per_second: 50 };
    metrics.count_note(&note(NoteKind::TouchesWaiting { cluster: up.clone(), waiting }));
    let reason = HoldReason::TooMany;
    let held = NoteKind::Held { cluster: up.clone(), reason, held: 7, named: 20 };
    metrics.count_note(&Note { at: UnixMillis(1), kind: held });
    metrics.set_answers(&up, Some(Answers { down: 2, unknown: 1, ..Answers::default() }));
    metrics.count_note(&passed(Hop::Upstream, None));
    metrics.count_note(&passed(Hop::Mirrored, Some(40)));
    metrics.count_note(&passed(Hop::Mirrored, None));
    metrics.count_note(&note(NoteKind::Stalled(stall(Hop::Arrived))));
    metrics.count_note(&note(NoteKind::Stalled(stall(Hop::Arrived))));
    metrics.count_note(&note(NoteKind::StallEnded(stall(Hop::Arrived))));
    let (cluster, detail) = ("hub".into(), String::new());
    let anomaly = AnomalyKind::OversizedStatus;
    metrics.count_note(&note(NoteKind::Anomaly(Anomaly {
        manager: None,
        anomaly,
        cluster,
        object: None,
        detail,
    })));
    metrics.event_handled(Duration::from_micros(6));
    metrics.set_leader(true);
    metrics.add_log_lines_lost(5);
    let now = tokio::time::Instant::now();
    metrics.set_lease(Some(now), Some(now));
    requests
}
