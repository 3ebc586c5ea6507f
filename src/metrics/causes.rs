//! The open problems, by cause and cluster.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

use super::text::gauges;
use super::watches::WatchStatus;
use crate::core::contract::cause::{AlertRule, Cause, Problem, ProblemId};
use crate::core::data::ids::ClusterName;

/// The open problems, with the number of objects that each concerns.
#[derive(Debug, Default)]
pub(super) struct OpenProblems(BTreeMap<ProblemId, usize>);

impl OpenProblems {
    /// Returns whether the problem is new; an open one gets new facts.
    pub(super) fn begin(&mut self, problem: &Problem) -> bool {
        self.0.insert(problem.id(), 1 + problem.about.more).is_none()
    }

    pub(super) fn end(&mut self, problem: &Problem) {
        self.0.remove(&problem.id());
    }

    /// The number of objects by cause and cluster.
    fn counts<'a>(
        &'a self,
        watches: &'a [WatchStatus],
    ) -> BTreeMap<(Cause, &'a ClusterName), usize> {
        // A zero means that this instance watches the cluster, whatever other instances report.
        let live =
            WatchStatus::by_cluster(watches).filter(|of| of.iter().all(WatchStatus::is_live));
        let mut counts: BTreeMap<_, _> =
            live.map(|of| ((Cause::ClusterUnavailable, &of[0].cluster), 0)).collect();
        for (ProblemId { cause, cluster, .. }, objects) in &self.0 {
            *counts.entry((*cause, cluster)).or_default() += objects;
        }
        counts
    }

    pub(super) fn scrape(&self, scrape: &mut Registry, watches: &[WatchStatus]) {
        let samples = self.counts(watches).into_iter().map(|((cause, cluster), count)| {
            let mut labels =
                vec![("cause", cause.as_str().to_owned()), ("cluster", cluster.to_string())];
            if cause.info().alert.contains(&AlertRule::Upstream) {
                labels.push(("whole", "true".to_owned()));
            }
            (labels, count as f64)
        });
        let help = "Subjects that have this cause now; whole: all of an upstream";
        scrape.register("throughline_causes_open", help, gauges(samples));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contract::cause::{About, Facts};
    use crate::core::data::ids::{Kind, ObjectKey};
    use crate::core::data::time::UnixMillis;
    use crate::metrics::{Format, Metrics};

    fn problem(cause: Cause, cluster: &str, object: &str) -> Problem {
        let object = Some(ObjectKey::new("ns", object));
        let about = About { cluster: cluster.into(), kind: Some(Kind::Connector), object, more: 0 };
        Problem { cause, about, since: UnixMillis(1), facts: Facts::default() }
    }

    fn counts(problems: &OpenProblems) -> Vec<(Cause, &str, usize)> {
        let counts = problems.counts(&[]).into_iter();
        counts.map(|((cause, cluster), count)| (cause, cluster.as_str(), count)).collect()
    }

    #[test]
    fn problems_are_counted_by_cause_and_cluster_until_they_end() {
        let mut problems = OpenProblems::default();
        let [a, b] = ["a", "b"].map(|name| problem(Cause::NotCarried, "edge", name));
        for begins in [&a, &b, &problem(Cause::NotCarried, "edge-2", "a")] {
            assert!(problems.begin(begins));
        }
        let [edge, other] = [("edge", 2), ("edge-2", 1)].map(|(c, n)| (Cause::NotCarried, c, n));
        assert_eq!(counts(&problems), [edge, other]);
        problems.end(&a);
        problems.end(&b);
        assert_eq!(counts(&problems), [other]);
        assert!(problems.begin(&a), "another problem");
    }

    #[test]
    fn new_facts_begin_nothing_and_other_objects_count() {
        let mut problems = OpenProblems::default();
        let mut problem = problem(Cause::NotReplicated, "up", "a");
        assert!(problems.begin(&problem));
        problem.facts.part = 3;
        problem.about.more = 2;
        assert!(!problems.begin(&problem));
        assert_eq!(counts(&problems), [(Cause::NotReplicated, "up", 3)]);
    }

    #[test]
    fn a_cluster_is_available_while_all_its_watches_are_live() {
        let metrics = Metrics::new();
        let [connectors, gateways] =
            [Kind::Connector, Kind::Gateway].map(|kind| metrics.watch(&"up".into(), kind));
        let available = "throughline_causes_open{cause=\"cluster_unavailable\",cluster=\"up\"} 0.0";
        let is_shown = || metrics.text(None, Format::Plain).contains(available);
        connectors.list_finished();
        assert!(!is_shown());
        gateways.list_finished();
        assert!(is_shown());
        gateways.lost(&"refused".into());
        assert!(!is_shown());
    }
}
