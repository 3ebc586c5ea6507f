//! Whether this instance leads, at the time of a scrape.

use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::text::gauges;
use super::{Metrics, lock};

#[derive(Debug, Default)]
pub(super) struct Lease {
    /// `None` in commands without leadership, and in a dry run.
    name: Option<String>,
    is_leader: bool,
    /// When the gate closes; `None` while it is closed, and without an election.
    until: Option<Instant>,
    /// As last observed; empty if the Lease has no holder.
    holder: String,
}

impl Metrics {
    /// Sets the name of the Lease by which this instance leads, or would with an election.
    pub fn set_lease_name(&self, name: &str) {
        lock(&self.lease).name = Some(name.to_owned());
    }

    /// Sets whether this instance leads, and until when without a renewal. Called at every renewal and
    /// every change.
    pub fn set_leader(&self, is_leader: bool, until: Option<Instant>) {
        let mut lease = lock(&self.lease);
        lease.is_leader = is_leader;
        lease.until = until;
    }

    /// Sets the Lease's holder; empty if it has none.
    pub fn set_lease_holder(&self, holder: &str) {
        holder.clone_into(&mut lock(&self.lease).holder);
    }

    /// The Lease's holder as last observed; `None` if it has none, and without an election.
    pub fn lease_holder(&self) -> Option<String> {
        Some(lock(&self.lease).holder.clone()).filter(|holder| !holder.is_empty())
    }
}

impl Lease {
    pub(super) fn scrape(&self, scrape: &mut Registry) {
        let Some(name) = &self.name else { return };
        let sample = |value: f64| (vec![("name", name.clone())], value);
        let help = "1 while this instance may mirror, nudge and delete";
        let is_leader = sample(f64::from(u8::from(self.is_leader)));
        scrape.register("leader_election_master_status", help, gauges([is_leader]));
        let help = "Seconds for which it still may if the Lease is not renewed";
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| sample(left.as_secs_f64()));
        scrape.register("throughline_lease_left_seconds", help, gauges(left));
    }
}
