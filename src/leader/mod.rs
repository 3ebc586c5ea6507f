//! Leader election on a Lease, which selects the instance that mirrors and deletes. [`election`] holds
//! the rules; `candidate.rs` adds clock, timers and requests, `publish.rs` log lines and Events. An election
//! never ends the process, and retries for as long as the process runs.

mod candidate;
pub mod election;
pub mod gate;
pub mod group;
mod handover;
pub mod lease;
mod publish;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::core::contract::event::EventKind;
use crate::environment::{here, random};
use crate::fleet::ClusterTable;
use crate::leader::gate::GateKeeper;
use crate::metrics::Metrics;
use crate::problems::Outside;
use candidate::Candidate;
use election::Timings;
use group::Group;
use lease::LeaseClient;
pub(crate) use publish::no_leader;

/// The receivers of an election's events.
#[derive(Debug)]
pub struct Listeners {
    /// [`EventKind::LeadershipAcquired`] or [`EventKind::LeadershipLost`] at each change, even when the
    /// tenure merely expires; [`EventKind::LeadershipPending`] when this instance has created the Lease
    /// and may lead later.
    pub events: mpsc::UnboundedSender<EventKind>,
    /// Whether the Lease can be used, and whether an instance leads by it.
    pub usable: Outside,
    pub led: Outside,
    /// Whether an instance leads each of the other shards.
    pub held: Outside,
    pub metrics: Arc<Metrics>,
    /// The clusters of the run, with their roles.
    pub clusters: ClusterTable,
}

/// Takes part in an election until it is released or dropped.
#[derive(Debug)]
pub struct LeaderElection {
    resign: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl LeaderElection {
    /// Joins the election of a shard under `identity`, which no other instance may ever have (see
    /// [`identity`]). `orphans`, which is only logged, says what is done with orphaned routes.
    pub fn start(
        lease: LeaseClient,
        identity: String,
        group: Group,
        timings: Timings,
        keeper: GateKeeper,
        orphans: &'static str,
        listeners: Listeners,
    ) -> Self {
        let (resign, resigned) = oneshot::channel();
        let identity = group.identity(identity);
        info!(identity, lease = group.own_lease(), "joined the leader election");
        let candidate = Candidate::new(identity, group, timings, keeper, orphans, listeners);
        let mut task = JoinSet::new();
        task.spawn(here(candidate.run(lease, resigned)));
        Self { resign, task }
    }

    /// Closes the gate and releases the Lease, so that another instance can lead at once. All
    /// leader-only writes must have ended. If they have not, drop this instead: the gate closes, and
    /// the Lease expires.
    pub async fn release(mut self, within: Duration) {
        // The receiver is gone only if the task has already ended.
        let _ = self.resign.send(());
        if timeout(within, self.task.join_next()).await.is_err() {
            warn!("could not release the Lease in time; it will expire");
        }
    }
}

/// A name unique to this instance: the pod's or host's name and a random part.
pub fn identity() -> String {
    let read = |file| std::fs::read_to_string(file).ok();
    let host = std::env::var("HOSTNAME").ok().or_else(|| read("/etc/hostname"));
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| "throughline".to_owned());
    let a = random();
    let b = random();
    let c = a >> 16 & 0xffff;
    let d = a & 0xffff;
    let e = b & 0xffff_ffff_ffff;
    format!("{host}_{:08x}-{c:04x}-{d:04x}-{:04x}-{e:012x}", a >> 32, b >> 48)
}
