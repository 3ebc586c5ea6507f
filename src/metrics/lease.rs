//! The Lease as this process knows it, at the time of a scrape; nothing is told without election.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

/// When the Lease was last renewed by this process, and until when leader-only work may start.
#[derive(Debug, Default)]
pub(super) struct LeaseTimes(Mutex<(Option<Instant>, Option<Instant>)>);

impl LeaseTimes {
    pub(super) fn set(&self, renewed: Option<Instant>, until: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (renewed, until);
    }
}

impl Collector for LeaseTimes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (renewed, until) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
