//! Kubernetes Events: problems and their end. Where few objects have a problem, they are posted on the
//! objects themselves, where `kubectl describe` shows them; where many have it for one cause, once on
//! the Lease or on their namespace, with the number.
//!
//! A [`Recorder`] never waits: what its queue can't take is dropped and counted. Each cluster has a
//! worker that correlates Events as client-go does ([`correlate`]) and sends them. Only the hub and
//! edges get Events; an upstream cluster gets none unless it holds the Lease.

mod budget;
pub mod correlate;
mod lru;
mod object;
mod problem;
mod reporter;
mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::ClusterClient;
use crate::clock::millis;
use crate::core::data::ids::ClusterName;
use crate::metrics::{EventDelivery, Metrics};
use budget::EventBudget;

pub use budget::Scope;
pub use object::{EventReport, EventWrite, ObjectReference, Severity};
pub use reporter::Reporter;

/// The queue for one cluster; client-go's number.
const QUEUE_MAX: usize = 1000;

/// Takes reports for clusters. Clones share queues and budget; the workers end when the last clone is
/// dropped.
#[derive(Clone, Debug)]
pub struct Recorder {
    queues: Arc<BTreeMap<ClusterName, mpsc::Sender<EventReport>>>,
    metrics: Arc<Metrics>,
    started: Instant,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    budget: EventBudget,
    /// The Lease, and its cluster, once it is known.
    lease: Option<(ClusterName, ObjectReference)>,
}

impl Recorder {
    /// Starts a worker for each of these clusters.
    pub fn start(
        clusters: Vec<Arc<ClusterClient>>,
        max_per_minute: u32,
        metrics: Arc<Metrics>,
    ) -> (Self, JoinSet<()>) {
        let mut workers = JoinSet::new();
        let mut queues = BTreeMap::new();
        for cluster in clusters {
            let (queue, reports) = mpsc::channel(QUEUE_MAX);
            queues.insert(cluster.name().clone(), queue);
            workers.spawn(worker::Worker::new(cluster, metrics.clone()).run(reports));
        }
        let shared = Shared { budget: EventBudget::new(max_per_minute), lease: None };
        let (queues, shared) = (Arc::new(queues), Arc::new(Mutex::new(shared)));
        (Self { queues, metrics, started: Instant::now(), shared }, workers)
    }

    /// Queues a report for its cluster. Returns false when it is dropped: the budget is used up, or
    /// the queue is full.
    pub fn record(&self, cluster: &ClusterName, scope: Scope, report: EventReport) -> bool {
        let Some(queue) = self.queues.get(cluster) else { return false };
        let now_ms = millis(self.started.elapsed());
        let is_sent = self.shared(|shared| shared.budget.take(now_ms, scope))
            && queue.try_send(report).is_ok();
        if !is_sent {
            self.metrics.count_kubernetes_event(EventDelivery::Dropped);
        }
        is_sent
    }

    /// The Lease exists: what concerns many objects can be posted on it.
    pub fn set_lease(&self, cluster: &ClusterName, lease: ObjectReference) {
        self.shared(|shared| shared.lease = Some((cluster.clone(), lease)));
    }

    fn lease(&self) -> Option<(ClusterName, ObjectReference)> {
        self.shared(|shared| shared.lease.clone())
    }

    fn shared<T>(&self, access: impl FnOnce(&mut Shared) -> T) -> T {
        access(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
