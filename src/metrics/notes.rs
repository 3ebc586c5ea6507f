//! Counts of what the machine notes: hops, stalls, anomalies, and what it holds back.

use std::time::Duration;

use super::Metrics;
use super::counts::NamedGauges;
use crate::core::contract::note::{Note, NoteKind, Stall, StallCause};

/// The value of `hop` for a stall of the hop "mirrored" where everything that routes is done.
pub(super) const DEFERRED: &str = "deferred";

const fn hop_label(stall: &Stall) -> &'static str {
    match stall.cause {
        StallCause::Deferred { .. } => DEFERRED,
        _ => stall.hop.as_str(),
    }
}

impl Metrics {
    pub fn count_note(&self, note: &Note) {
        match &note.kind {
            NoteKind::HopPassed { hop, after_ms: Some(after_ms), .. } => {
                let seconds = Duration::from_millis(*after_ms).as_secs_f64();
                self.instruments.hops.get_or_create(&[("hop", hop.as_str())]).observe(seconds);
            }
            NoteKind::Began(_)
            | NoteKind::Ended(_)
            | NoteKind::HopPassed { after_ms: None, .. }
            | NoteKind::Deferred { .. }
            | NoteKind::Orphan { .. }
            | NoteKind::OrphanGone { .. }
            | NoteKind::Discovery { .. }
            | NoteKind::Naming { .. }
            | NoteKind::ClusterGone { .. } => {}
            NoteKind::Held { cluster, reason, held, .. } => {
                let labels = [("cluster", cluster.to_string()), ("reason", reason.as_str().into())];
                set_or_clear(&self.instruments.held, &labels, *held);
            }
            NoteKind::TouchesWaiting { cluster, waiting } => {
                let labels = [("cluster", cluster.to_string())];
                set_or_clear(&self.instruments.touches_waiting, &labels, waiting.touches);
            }
            NoteKind::DeletesHeld { cluster, held, .. } => {
                let labels = [("cluster", cluster.to_string())];
                set_or_clear(&self.instruments.deletes_held, &labels, u64::from(*held));
            }
            NoteKind::Stalled(stall) => {
                let labels = [("hop", hop_label(stall))];
                self.instruments.stalls.get_or_create(&labels).inc();
                self.instruments.stalls_open.get_or_create(&labels).inc();
            }
            NoteKind::StallEnded(stall) => {
                self.instruments.stalls_open.get_or_create(&[("hop", hop_label(stall))]).dec();
            }
            NoteKind::Anomaly(anomaly) => {
                let labels = [("anomaly", anomaly.anomaly.as_str())];
                self.instruments.anomalies.get_or_create(&labels).inc();
            }
        }
    }
}

/// Zero creates no series: it may be about a cluster that has left.
fn set_or_clear<const N: usize>(
    gauges: &NamedGauges<N>,
    labels: &[(&'static str, String); N],
    value: u64,
) {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    if value > 0 {
        gauges.get_or_create(labels).set(value);
    } else if let Some(gauge) = gauges.get(labels) {
        gauge.set(value);
    }
}
