//! The open problems, by cause and cluster.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

use super::text::gauges;
use super::watches::WatchStatus;
use crate::core::contract::cause::{AlertRule, Cause, Problem, ProblemId};
use crate::core::view::WatchState;

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

    pub(super) fn scrape(&self, scrape: &mut Registry, watches: &[WatchStatus]) {
        // A zero means that this instance watches the cluster, whatever other instances report.
        let live = WatchStatus::by_cluster(watches)
            .filter(|of| of.iter().all(|watch| watch.state == WatchState::Live));
        let mut counts: BTreeMap<_, _> =
            live.map(|of| ((Cause::ClusterUnavailable, &of[0].cluster), 0)).collect();
        for (ProblemId { cause, cluster, .. }, objects) in &self.0 {
            *counts.entry((*cause, cluster)).or_default() += objects;
        }
        let samples = counts.into_iter().map(|((cause, cluster), count)| {
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
    use crate::core::contract::cause::About;
    use crate::core::contract::note::{Note, NoteKind};
    use crate::core::data::ids::{Kind, NamespacedName};
    use crate::core::data::time::UnixMillis;
    use crate::metrics::{Format, Metrics};

    #[test]
    fn problems_are_counted_by_cause_and_cluster_until_they_end() {
        let metrics = Metrics::new();
        let problem = |cluster: &str, name| {
            let about =
                About::object(&cluster.into(), Kind::Connector, NamespacedName::new("ns", name));
            Problem::new(Cause::NotCarried, about, UnixMillis(1))
        };
        let note = |kind| metrics.count_note(&Note { at: UnixMillis(2), kind });
        let value = |series: &str| {
            let text = metrics.text(None, Format::Plain);
            text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok())
        };
        let begun = || value(r#"throughline_causes_total{cause="not_carried"}"#).unwrap();
        let open = |cluster| {
            let labels = format!("{{cause=\"not_carried\",cluster=\"{cluster}\"}}");
            value(&format!("throughline_causes_open{labels}"))
        };
        let [a, b] = ["a", "b"].map(|name| problem("edge", name));
        for problem in [&a, &b, &problem("edge-2", "a")] {
            note(NoteKind::Began(problem.clone()));
        }
        assert_eq!((open("edge"), open("edge-2"), begun()), (Some(2.0), Some(1.0), 3.0));
        // New facts begin nothing, and other objects count.
        let about = About { more: 2, ..a.about.clone() };
        note(NoteKind::Began(Problem { about, ..a.clone() }));
        assert_eq!((open("edge"), begun()), (Some(4.0), 3.0));
        note(NoteKind::Ended(a.clone()));
        note(NoteKind::Ended(b));
        assert_eq!((open("edge"), open("edge-2")), (None, Some(1.0)));
        note(NoteKind::Began(a));
        assert_eq!((open("edge"), begun()), (Some(1.0), 4.0), "another problem");
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
