//! What users see: for how long the Gateways of each edge answered wrongly, as far as the watches
//! show it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use super::Metrics;
use super::watches::Detail;
use crate::core::data::ids::ClusterName;
use crate::environment::elapsed;
use crate::outage::Answers;

const WRONG_SECONDS: &str = "Time in which Gateways answered wrongly, summed over Gateways and the \
    connectors behind them: upstream says one thing and Envoy was programmed with another. Inferred \
    from watches: it sees no request, no extension server's cache and no Envoy, and nothing from \
    before this instance's first lists. Lost watches and upstreams that are not followed count as \
    unknown.";
const ONLINE_SECONDS: &str = "Time in which a connector was online upstream, summed as the wrong \
    seconds are: what the time with 503 is a part of.";
const UNKNOWN_SECONDS: &str = "Time in which it was unknown whether Gateways answered rightly, \
    because a watch was lost or the connector's upstream is not followed, summed as the wrong seconds \
    are. It is part of no other sum.";
const WRONG_NOW: &str = "Gateways, times the connectors behind them, that answer wrongly now.";

/// Gateways by how they answer. Each sum is in seconds, times Gateways.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    down: f64,
    dead_tunnel: f64,
    online: f64,
    unknown: f64,
}

impl Sums {
    fn add(&mut self, other: Self) {
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
        let seconds = elapsed(self.since).as_secs_f64();
        let times = |gateways: u32| seconds * f64::from(gateways);
        let mut sums = self.sums;
        sums.add(Sums {
            down: times(self.now.down),
            dead_tunnel: times(self.now.dead_tunnel),
            online: times(self.now.right) + times(self.now.down),
            unknown: times(self.now.unknown),
        });
        sums
    }
}

#[derive(Debug, Default)]
struct Edges {
    by_name: BTreeMap<ClusterName, EdgeImpact>,
    /// Of edges that have left, for the sums over all edges: a counter never falls.
    left: Sums,
    has_left: bool,
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

    fn set(&self, edge: &ClusterName, answers: Option<Answers>) {
        let mut edges = self.edges();
        let Edges { by_name, left, has_left } = &mut *edges;
        let before = by_name.remove(edge).map(|impact| impact.sums_now());
        match answers {
            Some(now) => {
                let sums = before.unwrap_or_default();
                by_name.insert(edge.clone(), EdgeImpact { sums, since: Instant::now(), now });
            }
            None => {
                *has_left |= before.is_some();
                left.add(before.unwrap_or_default());
            }
        }
    }
}

impl Metrics {
    /// How the Gateways of an edge answer from now on; `None`: the edge has left. Called at changes
    /// only.
    pub fn set_answers(&self, edge: &ClusterName, answers: Option<Answers>) {
        self.user_impact.set(edge, answers);
    }
}

/// A row to encode: the edge's name, unless it is the sum over all edges.
type Row = (Option<ClusterName>, Sums, Answers);

impl Collector for UserImpact {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rows: Vec<Row> = {
            let edges = self.edges();
            let row = |(name, edge): (&ClusterName, &EdgeImpact)| {
                (Some(name.clone()), edge.sums_now(), edge.now)
            };
            if edges.by_name.is_empty() && !edges.has_left {
                return Ok(());
            }
            edges.by_name.iter().map(row).chain([(None, edges.left, Answers::default())]).collect()
        };
        let rows = if self.detail.is_per_cluster() {
            rows.into_iter().filter(|(name, ..)| name.is_some()).collect()
        } else {
            let (mut sums, mut now) = (Sums::default(), Answers::default());
            for (_, edge_sums, edge_now) in rows {
                sums.add(edge_sums);
                now.down += edge_now.down;
                now.dead_tunnel += edge_now.dead_tunnel;
            }
            vec![(None, sums, now)]
        };
        let symptoms = |row: &Row| {
            let (name, sums, now) = row;
            [("503", sums.down, now.down), ("dead_tunnel", sums.dead_tunnel, now.dead_tunnel)]
                .map(|(symptom, seconds, now)| (labels(name.as_ref(), Some(symptom)), seconds, now))
        };
        let mut metric = encoder.encode_descriptor(
            "throughline_user_visible_wrong_seconds",
            WRONG_SECONDS,
            None,
            MetricType::Counter,
        )?;
        for (labels, seconds, _) in rows.iter().flat_map(symptoms) {
            ConstCounter::new(seconds).encode(metric.encode_family(&labels)?)?;
        }
        type Pick = fn(&Sums) -> f64;
        let of_edge: [(&str, &str, Pick); 2] = [
            ("throughline_user_visible_online_seconds", ONLINE_SECONDS, |sums| sums.online),
            ("throughline_user_visible_unknown_seconds", UNKNOWN_SECONDS, |sums| sums.unknown),
        ];
        for (name, help, pick) in of_edge {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (edge, sums, _) in &rows {
                let labels = labels(edge.as_ref(), None);
                ConstCounter::new(pick(sums)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let mut metric = encoder.encode_descriptor(
            "throughline_user_visible_wrong",
            WRONG_NOW,
            None,
            MetricType::Gauge,
        )?;
        for (labels, _, now) in rows.iter().flat_map(symptoms) {
            ConstGauge::new(f64::from(now)).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn labels(
    edge: Option<&ClusterName>,
    symptom: Option<&'static str>,
) -> Vec<(&'static str, String)> {
    let edge = edge.map(|edge| ("cluster", edge.to_string()));
    edge.into_iter().chain(symptom.map(|symptom| ("symptom", symptom.to_owned()))).collect()
}
