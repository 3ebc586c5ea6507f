//! The impact on users: how long the Gateways of each edge answered wrongly, according to the watches.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::text::{Labels, counters, gauges};
use super::{Metrics, lock};
use crate::core::contract::symptom::Answers;
use crate::core::data::ids::ClusterName;
use crate::environment::elapsed;

const WRONG: &str = "Time in which Gateways answered wrongly, summed over Gateways and the \
     connectors behind them: upstream says one thing and Envoy was programmed with another. \
     Inferred from watches: it sees no request, no extension server's cache and no Envoy, and \
     nothing from before this instance's first lists. Lost watches and upstreams that are not \
     followed count as unknown";
const ONLINE: &str = "Time in which a connector was online upstream, summed as the wrong seconds \
     are: what the time with 503 is a part of";
const UNKNOWN: &str = "Time in which it was unknown whether Gateways answered rightly, because a \
     watch was lost or the connector's upstream is not followed, summed as the wrong seconds are. \
     It is part of no other sum";
const WRONG_NOW: &str = "Gateways, times the connectors behind them, that answer wrongly now";

/// The number of Gateways by their answers, or Gateways times seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    down: f64,
    dead_tunnel: f64,
    online: f64,
    unknown: f64,
}

impl Sums {
    fn of(answers: Answers) -> Self {
        let Answers { right, down, dead_tunnel, unknown, .. } = answers;
        Self {
            down: down.into(),
            dead_tunnel: dead_tunnel.into(),
            online: f64::from(right) + f64::from(down),
            unknown: unknown.into(),
        }
    }

    fn add(&mut self, other: Self, times: f64) {
        self.down += other.down * times;
        self.dead_tunnel += other.dead_tunnel * times;
        self.online += other.online * times;
        self.unknown += other.unknown * times;
    }

    fn by_symptom(&self, labels: &Labels) -> [(Labels, f64); 2] {
        [("503", self.down), ("dead_tunnel", self.dead_tunnel)].map(|(symptom, value)| {
            let symptom = ("symptom", symptom.to_owned());
            (labels.iter().cloned().chain([symptom]).collect(), value)
        })
    }
}

/// The impact at one edge: its sums up to a time, and the state of its Gateways since.
#[derive(Debug)]
struct EdgeImpact {
    sums: Sums,
    since: Instant,
    now: Sums,
}

impl EdgeImpact {
    fn sums_now(&self) -> Sums {
        let mut sums = self.sums;
        sums.add(self.now, elapsed(self.since).as_secs_f64());
        sums
    }
}

#[derive(Debug, Default)]
pub(super) struct Edges {
    by_name: BTreeMap<ClusterName, EdgeImpact>,
    /// The sums of edges that have left, for the sums over all edges: a counter never decreases.
    left: Option<Sums>,
}

impl Metrics {
    /// Sets the answers of an edge's Gateways from now on; `None` means that the edge has left. Called
    /// only at changes.
    pub fn set_answers(&self, edge: &ClusterName, answers: Option<Answers>) {
        let mut edges = lock(&self.edges);
        let before = edges.by_name.remove(edge).map(|impact| impact.sums_now());
        if let Some(answers) = answers {
            let sums = before.unwrap_or_default();
            let now = Sums::of(answers);
            edges.by_name.insert(edge.clone(), EdgeImpact { sums, since: Instant::now(), now });
        } else if let Some(before) = before {
            edges.left.get_or_insert_default().add(before, 1.0);
        }
    }
}

impl Edges {
    /// By labels, for each edge or for all: the sums of seconds, and the current numbers of Gateways.
    fn rows(&self, is_per_cluster: bool) -> BTreeMap<Labels, (Sums, Sums)> {
        let mut rows: BTreeMap<Labels, (Sums, Sums)> = BTreeMap::new();
        for (name, edge) in &self.by_name {
            let label = is_per_cluster.then(|| ("cluster", name.to_string()));
            let (sums, now) = rows.entry(label.into_iter().collect()).or_default();
            sums.add(edge.sums_now(), 1.0);
            now.add(edge.now, 1.0);
        }
        if let Some(left) = self.left.filter(|_| !is_per_cluster) {
            rows.entry(Labels::new()).or_default().0.add(left, 1.0);
        }
        rows
    }

    pub(super) fn scrape(&self, scrape: &mut Registry, is_per_cluster: bool) {
        let rows = self.rows(is_per_cluster);
        let wrong = rows.iter().flat_map(|(labels, (sums, _))| sums.by_symptom(labels));
        scrape.register("throughline_user_visible_wrong_seconds", WRONG, counters(wrong));
        let online = rows.iter().map(|(labels, (sums, _))| (labels.clone(), sums.online));
        scrape.register("throughline_user_visible_online_seconds", ONLINE, counters(online));
        let unknown = rows.iter().map(|(labels, (sums, _))| (labels.clone(), sums.unknown));
        scrape.register("throughline_user_visible_unknown_seconds", UNKNOWN, counters(unknown));
        let wrong_now = rows.iter().flat_map(|(labels, (_, now))| now.by_symptom(labels));
        scrape.register("throughline_user_visible_wrong", WRONG_NOW, gauges(wrong_now));
    }
}
