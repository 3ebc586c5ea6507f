//! The Lease as this instance knows it at the time of a scrape; no metrics without an election.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

/// When this instance last renewed the Lease, until when its gate is open, and who holds the Lease.
#[derive(Debug, Default)]
pub(super) struct LeaseMetrics {
    times: Mutex<(Option<Instant>, Option<Instant>)>,
    /// As last seen; empty when nobody holds it.
    holder: Mutex<String>,
}

impl LeaseMetrics {
    pub(super) fn set(&self, renewed: Option<Instant>, until: Option<Instant>) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = (renewed, until);
    }

    pub(super) fn set_holder(&self, holder: &str) {
        holder.clone_into(&mut self.holder.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn holder(&self) -> Option<String> {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        Some(holder.clone()).filter(|holder| !holder.is_empty())
    }
}

impl Collector for LeaseMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (renewed, until) = *self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gauge = |name: &str, help: &str, value: Option<f64>| match value {
            Some(value) => {
                let metric = ConstGauge::new(value);
                metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
            }
            None => Ok(()),
        };
        gauge(
            "throughline_lease_age_seconds",
            "Seconds since this instance last renewed the Lease.",
            renewed.map(|at| at.elapsed().as_secs_f64()),
        )?;
        gauge(
            "throughline_lease_left_seconds",
            "Seconds for which leader-only writes may still start if the Lease is not renewed.",
            until.map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64()),
        )
    }
}
