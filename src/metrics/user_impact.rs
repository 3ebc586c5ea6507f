//! What users see: for how long the Gateways of each edge answered wrongly, as far as the watches
//! show it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{Counter, Gauge};
use tokio::time::Instant;

use super::text::{Labels, encode_family};
use super::{Detail, Metrics};
use crate::core::data::ids::ClusterName;
use crate::environment::elapsed;
use crate::outage::Answers;

const WRONG_SECONDS: (&str, &str) = (
    "throughline_user_visible_wrong_seconds",
    "Time in which Gateways answered wrongly, summed over Gateways and the connectors behind them: \
     upstream says one thing and Envoy was programmed with another. Inferred from watches: it sees no \
     request, no extension server's cache and no Envoy, and nothing from before this instance's first \
     lists. Lost watches and upstreams that are not followed count as unknown.",
);
const ONLINE_SECONDS: (&str, &str) = (
    "throughline_user_visible_online_seconds",
    "Time in which a connector was online upstream, summed as the wrong seconds are: what the time \
     with 503 is a part of.",
);
const UNKNOWN_SECONDS: (&str, &str) = (
    "throughline_user_visible_unknown_seconds",
    "Time in which it was unknown whether Gateways answered rightly, because a watch was lost or the \
     connector's upstream is not followed, summed as the wrong seconds are. It is part of no other \
     sum.",
);
const WRONG_NOW: (&str, &str) = (
    "throughline_user_visible_wrong",
    "Gateways, times the connectors behind them, that answer wrongly now.",
);

/// How many Gateways answer how, or for how many seconds they did, times Gateways.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    down: f64,
    dead_tunnel: f64,
    online: f64,
    unknown: f64,
}

impl Sums {
    /// So long these answers.
    fn of(answers: Answers, seconds: f64) -> Self {
        let Answers { right, down, dead_tunnel, unknown, .. } = answers;
        let times = |gateways: u32| seconds * f64::from(gateways);
        Self {
            down: times(down),
            dead_tunnel: times(dead_tunnel),
            online: times(right) + times(down),
            unknown: times(unknown),
        }
    }

    fn by_symptom(&self) -> [(&'static str, f64); 2] {
        [("503", self.down), ("dead_tunnel", self.dead_tunnel)]
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.down += other.down;
        self.dead_tunnel += other.dead_tunnel;
        self.online += other.online;
        self.unknown += other.unknown;
    }
}

/// One edge: its sums up to a moment, and how its Gateways answer since then.
#[derive(Clone, Copy, Debug)]
struct EdgeImpact {
    sums: Sums,
    since: Instant,
    now: Answers,
}

impl EdgeImpact {
    fn sums_now(&self) -> Sums {
        let mut sums = self.sums;
        sums += Sums::of(self.now, elapsed(self.since).as_secs_f64());
        sums
    }
}

#[derive(Debug, Default)]
struct Edges {
    by_name: BTreeMap<ClusterName, EdgeImpact>,
    /// Of edges that have left, for the sums over all edges: a counter never falls.
    left: Option<Sums>,
}

#[derive(Debug)]
pub(super) struct UserImpact {
    edges: Mutex<Edges>,
    detail: Arc<Detail>,
}

impl UserImpact {
    pub(super) fn new(detail: Arc<Detail>) -> Self {
        Self { edges: Mutex::default(), detail }
    }

    fn edges(&self) -> MutexGuard<'_, Edges> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Labels, the sums of seconds, and how many Gateways answer how now: for each edge, or for all.
    fn rows(&self) -> Vec<(Labels, Sums, Sums)> {
        let edges = self.edges();
        let of_edges = edges.by_name.iter().map(|(name, edge)| {
            let labels = vec![("cluster", name.to_string())];
            (labels, edge.sums_now(), Sums::of(edge.now, 1.0))
        });
        if self.detail.is_per_cluster() {
            return of_edges.collect();
        }
        let left = edges.left.map(|sums| (Labels::new(), sums, Sums::default()));
        let all = of_edges.chain(left).reduce(|(_, mut sums, mut now), edge| {
            sums += edge.1;
            now += edge.2;
            (Labels::new(), sums, now)
        });
        all.into_iter().map(|(_, sums, now)| (Labels::new(), sums, now)).collect()
    }
}

impl Metrics {
    /// How the Gateways of an edge answer from now on; `None`: the edge has left. Called at changes
    /// only.
    pub fn set_answers(&self, edge: &ClusterName, answers: Option<Answers>) {
        let mut edges = self.user_impact.edges();
        let before = edges.by_name.remove(edge).map(|impact| impact.sums_now());
        if let Some(now) = answers {
            let sums = before.unwrap_or_default();
            edges.by_name.insert(edge.clone(), EdgeImpact { sums, since: Instant::now(), now });
        } else if let Some(before) = before {
            *edges.left.get_or_insert_default() += before;
        }
    }
}

impl Collector for UserImpact {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rows = self.rows();
        let by_symptom = |labels: &Labels, sums: &Sums| {
            sums.by_symptom().map(|(symptom, value)| {
                let symptom = ("symptom", symptom.to_owned());
                (labels.iter().cloned().chain([symptom]).collect::<Labels>(), value)
            })
        };
        let wrong = rows.iter().flat_map(|(labels, sums, _)| by_symptom(labels, sums));
        encode_family(&mut encoder, Counter, WRONG_SECONDS, wrong)?;
        let online = rows.iter().map(|(labels, sums, _)| (labels.clone(), sums.online));
        encode_family(&mut encoder, Counter, ONLINE_SECONDS, online)?;
        let unknown = rows.iter().map(|(labels, sums, _)| (labels.clone(), sums.unknown));
        encode_family(&mut encoder, Counter, UNKNOWN_SECONDS, unknown)?;
        let wrong_now = rows.iter().flat_map(|(labels, _, now)| by_symptom(labels, now));
        encode_family(&mut encoder, Gauge, WRONG_NOW, wrong_now)
    }
}
