//! The Lease as this process knows it, at the time of a scrape; nothing is told without election.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

/// When the Lease was last renewed by this process, until when leader-only work may start, and who
/// holds it.
#[derive(Debug, Default)]
pub(super) struct LeaseTimes {
    times: Mutex<(Option<Instant>, Option<Instant>)>,
    /// Who holds it, as it was last seen; empty for nobody.
    holder: Mutex<String>,
}

impl LeaseTimes {
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

impl Collector for LeaseTimes {
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
            "Since this process last renewed the Lease.",
            renewed.map(|at| at.elapsed().as_secs_f64()),
        )?;
        gauge(
            "throughline_lease_left_seconds",
            "For so long leader-only work may still start, if the Lease is not renewed.",
            until.map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64()),
        )
    }
}
