//! A registry in which every metric has a value.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use throughline::core::contract::action::Verb;
use throughline::core::contract::cause::{About, Cause, Facts, Hop, Problem};
use throughline::core::contract::event::Outcome;
use throughline::core::contract::note::{Note, NoteKind};
use throughline::core::contract::symptom::Answers;
use throughline::core::data::ids::{Kind, NamespacedName};
use throughline::core::data::time::UnixMillis;
use throughline::metrics::{ClusterRequests, EventDelivery, Metrics};

fn note(kind: NoteKind) -> Note {
    Note { at: UnixMillis(1), kind }
}

fn passed(hop: Hop, after_ms: Option<u64>) -> Note {
    let (cluster, connector) = ("hub".into(), NamespacedName::new("ns", "lab"));
    note(NoteKind::HopPassed { cluster, connector, hop, online: true, after_ms })
}

fn problem(cause: Cause, object: &str) -> Problem {
    let object = NamespacedName::new("ns", object);
    let about = About::object(&"edge".into(), Kind::Connector, object);
    Problem { cause, about, since: UnixMillis(1), facts: Facts::default() }
}

/// Updates every metric. Those of requests last as long as what is returned.
#[must_use]
pub(crate) fn count(metrics: &Metrics) -> ClusterRequests {
    let up = "org/team \"a\"".into();
    let watch = metrics.watch(&up, Kind::Connector);
    watch.list_started();
    watch.list_finished();
    watch.event_received();
    watch.bookmark_received();
    watch.lost(&"dial 10.0.0.1: refused".into());
    watch.resumed();
    watch.list_started();
    metrics.watch(&up, Kind::Gateway);
    let requests = metrics.requests(&up);
    requests.count("PATCH", Some(200));
    requests.count("PATCH", Some(200));
    requests.count("PATCH", None);
    let after = Duration::from_millis(20);
    metrics.action_finished(Verb::Mirror, &Outcome::Unchanged, after);
    metrics.action_finished(Verb::Touch, &Outcome::Refused { error: "".into() }, after);
    metrics.action_finished(Verb::Touch, &Outcome::Superseded, Duration::ZERO);
    metrics.set_queue(&up, 4);
    metrics.set_answers(&up, Some(Answers { down: 2, unknown: 1, ..Answers::default() }));
    metrics.count_note(&passed(Hop::Upstream, None));
    metrics.count_note(&passed(Hop::Mirrored, Some(40)));
    metrics.count_note(&passed(Hop::Mirrored, None));
    metrics.count_note(&note(NoteKind::Began(problem(Cause::NotCarried, "lab"))));
    metrics.count_note(&note(NoteKind::Began(problem(Cause::NotCarried, "lab"))));
    metrics.count_note(&note(NoteKind::Began(problem(Cause::NotReplicated, "lab"))));
    metrics.event_handled(Duration::from_micros(6));
    metrics.set_lease_name("throughline");
    metrics.set_leader(true, Some(tokio::time::Instant::now()));
    metrics.add_log_lines_lost(5);
    metrics.count_kubernetes_event(EventDelivery::Dropped);
    requests
}
