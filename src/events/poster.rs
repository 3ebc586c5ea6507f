//! Posts the Events of a group: one for each object where they are few, one for all where they are many.

use std::collections::BTreeMap;

use super::object::{EventReport, ObjectReference, Severity};
use super::problem::{Problem, namespace_reference};
use super::{Recorder, Scope};
use crate::core::contract::note::StallCause;
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::grouping::{Cause, Group, Stage};
use crate::outside_text::{one_line, without_secrets};
use crate::report::style;

/// Up to this many objects of one cause get an Event each.
pub(super) const FEW_MAX: usize = 5;

/// Posts Events, and remembers those about many objects.
#[derive(Debug)]
pub(super) struct Poster {
    pub(super) recorder: Recorder,
    pub(super) many: BTreeMap<Cause, ManyPosted>,
}

/// An Event about many objects that was posted.
#[derive(Debug)]
pub(super) struct ManyPosted {
    pub(super) cluster: ClusterName,
    object: ObjectReference,
    count: usize,
    /// How to say that it is over.
    over: Option<(&'static str, String)>,
}

impl Poster {
    pub(super) fn post(
        &self,
        at: UnixMillis,
        (cluster, object): (&ClusterName, ObjectReference),
        scope: Scope,
        (severity, reason): (Severity, &'static str),
        message: &str,
    ) -> bool {
        let message = one_line(&without_secrets(message)).into_owned();
        self.recorder.record(cluster, scope, EventReport { at, object, severity, reason, message })
    }

    pub(super) fn post_on_object(&self, at: UnixMillis, scope: Scope, problem: &Problem) -> bool {
        let Problem { subject, severity, reason, message, .. } = problem;
        let object = ObjectReference::from(subject.clone());
        self.post(at, (&subject.cluster, object), scope, (*severity, reason), message)
    }

    pub(super) fn report(
        &mut self,
        at: UnixMillis,
        cause: &Cause,
        stage: Stage,
        group: &mut Group<Problem>,
    ) {
        if stage == Stage::Ended {
            return self.report_end(at, cause, group);
        }
        if stage == Stage::Began {
            self.many.remove(cause);
        }
        // Those that are left of many have had their Event.
        let is_new = group.is_occurrences() || !self.many.contains_key(cause);
        if group.members.len() <= FEW_MAX && is_new {
            for problem in group.members.values_mut().filter(|problem| !problem.is_posted) {
                problem.is_posted = self.post_on_object(at, Scope::Object, problem);
            }
        } else {
            self.report_many(at, cause, group);
        }
    }

    fn report_many(&mut self, at: UnixMillis, cause: &Cause, group: &Group<Problem>) {
        let count = group.members.len();
        let posted = self.many.get(cause);
        // Each new number is another Event: of a problem that goes on, only when it has doubled.
        let is_news =
            posted.is_none_or(|posted| group.is_occurrences() || count >= 2 * posted.count);
        let Some(first) = group.members.values().next().filter(|_| is_news) else { return };
        let place = posted.map(|posted| (posted.cluster.clone(), posted.object.clone()));
        let (cluster, object) = place.unwrap_or_else(|| self.place_of_many(cause, group, first));
        let message = first.message_for_many(cause, count);
        let about = (first.severity, first.reason);
        if self.post(at, (&cluster, object.clone()), Scope::Many, about, &message) {
            let over = over_for_many(cause, first);
            self.many.insert(cause.clone(), ManyPosted { cluster, object, count, over });
        }
    }

    /// Where to post about many objects: their namespace, if they share one; else the Lease.
    fn place_of_many(
        &self,
        cause: &Cause,
        group: &Group<Problem>,
        first: &Problem,
    ) -> (ClusterName, ObjectReference) {
        let (cluster, namespace) = (&first.subject.cluster, &first.subject.object.namespace);
        let is_there = |problem: &Problem| {
            problem.subject.cluster == *cluster && problem.subject.object.namespace == *namespace
        };
        let is_leading = matches!(cause, Cause::Stall { cause: StallCause::NotLeading, .. });
        let shares_one = !is_leading && group.members.values().all(is_there);
        let lease = self.recorder.lease().filter(|_| !shares_one);
        lease.unwrap_or_else(|| (cluster.clone(), namespace_reference(namespace)))
    }

    fn report_end(&mut self, at: UnixMillis, cause: &Cause, group: &Group<Problem>) {
        let Some(ManyPosted { cluster, object, over, .. }) = self.many.remove(cause) else {
            return;
        };
        if let Some((reason, message)) = over {
            let total = usize::try_from(group.total).unwrap_or(usize::MAX);
            let message = format!("over for {}: {message}", style::count(total, "object"));
            self.post(at, (&cluster, object), Scope::Many, (Severity::Normal, reason), &message);
        }
    }
}

fn over_for_many(cause: &Cause, first: &Problem) -> Option<(&'static str, String)> {
    match (cause, first.reason) {
        (Cause::Stall { .. }, "StalledMirror") => {
            Some(("Recovered", "it is mirrored again".to_owned()))
        }
        (Cause::Stall { .. }, "StalledArrival") => Some(("Recovered", "it has arrived".to_owned())),
        (Cause::Stall { .. }, _) => Some(("Recovered", "their Gateways announce it".to_owned())),
        (Cause::Orphan { .. }, _) => Some(("NotOrphaned", "none is an orphan now".to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::mpsc;

    use super::super::{EventBudget, Instant, Shared};
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn no_secret_of_a_message_is_posted() {
        let (queue, mut reports) = mpsc::channel(1);
        let (workers, _started) = mpsc::unbounded_channel();
        let (queues, budget) = (BTreeMap::from([("hub".into(), queue)]), EventBudget::new(60));
        let shared = Arc::new(Mutex::new(Shared { queues, workers, budget, lease: None }));
        let (metrics, started) = (Arc::new(Metrics::new()), Instant::now());
        let recorder = Recorder { metrics, started, shared };
        let poster = Poster { recorder, many: BTreeMap::new() };
        let message = "client_secret=hunter, AKIAIOSFODNN7EXAMPLE and xoxb-1-2 at 10.0.0.7:443";
        let (at, about) = (UnixMillis(0), (Severity::Warning, "Refused"));
        let object = namespace_reference("ns-1");
        assert!(poster.post(at, (&"hub".into(), object), Scope::Object, about, message));
        let posted = reports.try_recv().unwrap().message;
        assert_eq!(posted, "client_secret=<secret>, <secret> and <secret> at <address>");
    }
}
