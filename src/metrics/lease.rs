//! Whether this instance leads, as it is at the time of a scrape.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::Gauge;
use tokio::time::Instant;

use super::Metrics;
use super::text::encode_family;

#[derive(Debug, Default)]
struct Lease {
    /// Empty in commands that lead nothing.
    name: String,
    is_leader: bool,
    /// Until when the gate is open; `None` while it is closed, and without an election.
    until: Option<Instant>,
    /// As last seen; empty when nobody holds it.
    holder: String,
}

#[derive(Debug, Default)]
pub(super) struct LeaseMetrics(Mutex<Lease>);

impl LeaseMetrics {
    fn lock(&self) -> MutexGuard<'_, Lease> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metrics {
    /// The name of the Lease by which this instance leads, or would with an election.
    pub fn set_lease_name(&self, name: &str) {
        name.clone_into(&mut self.lease.lock().name);
    }

    /// Whether this instance leads, and until when, unless it renews the Lease. Called at every renewal
    /// and every change.
    pub fn set_leader(&self, is_leader: bool, until: Option<Instant>) {
        let mut lease = self.lease.lock();
        lease.is_leader = is_leader;
        lease.until = until;
    }

    /// Empty when nobody holds the Lease.
    pub fn set_lease_holder(&self, holder: &str) {
        holder.clone_into(&mut self.lease.lock().holder);
    }

    /// The Lease's holder, as last seen; `None` when nobody holds it, and without an election.
    pub fn lease_holder(&self) -> Option<String> {
        Some(self.lease.lock().holder.clone()).filter(|holder| !holder.is_empty())
    }
}

impl Collector for LeaseMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let lease = self.lock();
        if lease.name.is_empty() {
            return Ok(());
        }
        let labels = || vec![("name", lease.name.clone())];
        let help = "1 while this instance may mirror, nudge and delete.";
        let is_leader = [(labels(), f64::from(u8::from(lease.is_leader)))];
        encode_family(&mut encoder, Gauge, ("leader_election_master_status", help), is_leader)?;
        let help = "Seconds for which it still may if the Lease is not renewed.";
        let left = lease.until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| (labels(), left.as_secs_f64()));
        encode_family(&mut encoder, Gauge, ("throughline_lease_left_seconds", help), left)
    }
}
