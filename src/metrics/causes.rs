//! What is wrong, by cause and cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::Gauge;
use prometheus_client::registry::Registry;

use super::counts::{Counters, add};
use super::text::encode_family;
use super::watches::WatchTable;
use crate::core::contract::cause::{AlertRule, Cause, Problem, ProblemId};
use crate::core::data::ids::ClusterName;

#[derive(Debug)]
pub(super) struct Causes {
    /// The open problems, and how many objects each concerns.
    open: Mutex<BTreeMap<ProblemId, usize>>,
    begun: Counters<1>,
    watches: Arc<WatchTable>,
}

impl Causes {
    pub(super) fn new(r: &mut Registry, watches: Arc<WatchTable>) -> Self {
        let begun = add(r, "throughline_causes", "How often a cause began", Counters::default());
        for cause in Cause::ALL {
            drop(begun.get_or_create(&[("cause", cause.as_str())]));
        }
        Self { open: Mutex::default(), begun, watches }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<ProblemId, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that is open already has new facts.
    pub(super) fn begin(&self, problem: &Problem) {
        if self.open().insert(problem.id(), 1 + problem.about.more).is_none() {
            self.begun.get_or_create(&[("cause", problem.cause.as_str())]).inc();
        }
    }

    pub(super) fn end(&self, problem: &Problem) {
        self.open().remove(&problem.id());
    }
}

impl Collector for Causes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // A zero says that this instance follows the cluster, whatever others see.
        let live = self.watches.live_clusters().into_iter();
        let mut counts: BTreeMap<(Cause, ClusterName), usize> =
            live.map(|cluster| ((Cause::ClusterUnavailable, cluster), 0)).collect();
        for (ProblemId { cause, cluster, .. }, objects) in &*self.open() {
            *counts.entry((*cause, cluster.clone())).or_default() += objects;
        }
        let samples = counts.into_iter().map(|((cause, cluster), count)| {
            let mut labels =
                vec![("cause", cause.as_str().to_owned()), ("cluster", cluster.to_string())];
            if cause.info().alert.contains(&AlertRule::Upstream) {
                labels.push(("whole", "true".to_owned()));
            }
            (labels, count as f64)
        });
        let help = "Subjects that have this cause now; whole: all of an upstream.";
        encode_family(&mut encoder, Gauge, ("throughline_causes_open", help), samples)
    }
}

#[cfg(test)]
mod tests {
    use crate::core::contract::cause::{About, Cause, Facts, Problem};
    use crate::core::contract::note::{Note, NoteKind};
    use crate::core::data::ids::{Kind, ObjectKey};
    use crate::core::data::time::UnixMillis;
    use crate::metrics::{Format, Metrics};

    fn problem(cause: Cause, cluster: &str, object: &str) -> Problem {
        let object = Some(ObjectKey::new("ns", object));
        let about = About { cluster: cluster.into(), kind: Some(Kind::Connector), object, more: 0 };
        Problem { cause, about, since: UnixMillis(1), facts: Facts::default() }
    }

    fn began(metrics: &Metrics, problem: &Problem) {
        metrics.count_note(&Note { at: UnixMillis(1), kind: NoteKind::Began(problem.clone()) });
    }

    fn ended(metrics: &Metrics, problem: &Problem) {
        metrics.count_note(&Note { at: UnixMillis(2), kind: NoteKind::Ended(problem.clone()) });
    }

    /// The series of open causes, and how often this cause began.
    fn shown(metrics: &Metrics, cause: Cause) -> (Vec<String>, String) {
        let text = metrics.text(None, Format::Plain);
        let open = text.lines().filter_map(|line| line.strip_prefix("throughline_causes_open"));
        let total = format!("throughline_causes_total{{cause=\"{}\"}} ", cause.as_str());
        let total = text.lines().find_map(|line| line.strip_prefix(&total)).unwrap();
        (open.map(str::to_owned).collect(), total.to_owned())
    }

    #[test]
    fn problems_are_counted_by_cause_and_cluster_until_they_end() {
        let metrics = Metrics::new();
        let [a, b] = ["a", "b"].map(|name| problem(Cause::NotCarried, "edge", name));
        began(&metrics, &a);
        began(&metrics, &b);
        began(&metrics, &problem(Cause::NotCarried, "edge-2", "a"));
        let series = |n| format!("{{cause=\"not_carried\",cluster=\"edge\"}} {n}.0");
        let other = "{cause=\"not_carried\",cluster=\"edge-2\"} 1.0".to_owned();
        let total = |n: u8| n.to_string();
        let shown = || shown(&metrics, Cause::NotCarried);
        assert_eq!(shown(), (vec![series(2), other.clone()], total(3)));
        ended(&metrics, &a);
        assert_eq!(shown(), (vec![series(1), other.clone()], total(3)));
        ended(&metrics, &b);
        assert_eq!(shown(), (vec![other], total(3)));
    }

    #[test]
    fn new_facts_begin_nothing_and_other_objects_count() {
        let metrics = Metrics::new();
        let mut problem = problem(Cause::NotReplicated, "up", "a");
        began(&metrics, &problem);
        problem.facts.part = 3;
        problem.about.more = 2;
        began(&metrics, &problem);
        let whole = "{cause=\"not_replicated\",cluster=\"up\",whole=\"true\"} 3.0".to_owned();
        assert_eq!(shown(&metrics, problem.cause), (vec![whole], "1".to_owned()));
        ended(&metrics, &problem);
        assert_eq!(shown(&metrics, problem.cause).0, [""; 0]);
        began(&metrics, &problem);
        assert_eq!(shown(&metrics, problem.cause).1, "2");
    }

    #[test]
    fn a_cluster_is_available_while_all_its_watches_are_live() {
        let metrics = Metrics::new();
        let [connectors, gateways] =
            [Kind::Connector, Kind::Gateway].map(|kind| metrics.watch(&"up".into(), kind));
        let cause = Cause::ClusterUnavailable;
        connectors.list_finished();
        assert_eq!(shown(&metrics, cause).0, [""; 0]);
        gateways.list_finished();
        let available = "{cause=\"cluster_unavailable\",cluster=\"up\"} 0.0";
        assert_eq!(shown(&metrics, cause).0, [available]);
        gateways.lost(&"refused".into());
        assert_eq!(shown(&metrics, cause).0, [""; 0]);
    }
}
