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
mod poster;
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
use crate::environment::here;
use crate::metrics::{EventDelivery, Metrics};
use budget::EventBudget;
use worker::Worker;

pub use budget::Scope;
pub use object::{EventReport, EventWrite, ObjectReference, Severity};
pub use reporter::Reporter;

/// The queue for one cluster; client-go's number.
const QUEUE_MAX: usize = 1000;

/// Takes reports for clusters. Clones share queues and budget; the workers end when the last clone is
/// dropped.
#[derive(Clone, Debug)]
pub struct Recorder {
    metrics: Arc<Metrics>,
    started: Instant,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    queues: BTreeMap<ClusterName, mpsc::Sender<EventReport>>,
    workers: mpsc::UnboundedSender<(Worker, mpsc::Receiver<EventReport>)>,
    budget: EventBudget,
    /// The Lease, and its cluster, once it is known.
    lease: Option<(ClusterName, ObjectReference)>,
}

impl Recorder {
    /// Starts a worker for each of these clusters. The task that is returned runs them, and those of
    /// clusters that join later.
    pub fn start(
        clusters: Vec<Arc<ClusterClient>>,
        max_per_minute: u32,
        metrics: Arc<Metrics>,
    ) -> (Self, JoinSet<()>) {
        let (workers, started) = mpsc::unbounded_channel();
        let budget = EventBudget::new(max_per_minute);
        let shared = Shared { queues: BTreeMap::new(), workers, budget, lease: None };
        let shared = Arc::new(Mutex::new(shared));
        let recorder = Self { metrics, started: Instant::now(), shared };
        for cluster in clusters {
            recorder.join(cluster);
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(here(run_workers(started)));
        (recorder, tasks)
    }

    /// Starts a worker for a cluster that joins.
    pub(crate) fn join(&self, cluster: Arc<ClusterClient>) {
        let (queue, reports) = mpsc::channel(QUEUE_MAX);
        self.shared(|shared| {
            shared.queues.insert(cluster.name().clone(), queue);
            // Where nothing runs workers any longer, the run is at its end.
            let _ = shared.workers.send((Worker::new(cluster, self.metrics.clone()), reports));
        });
    }

    /// A cluster leaves: its worker ends once it has sent what is queued.
    pub(crate) fn leave(&self, cluster: &ClusterName) {
        self.shared(|shared| shared.queues.remove(cluster));
    }

    /// Queues a report for its cluster. Returns false when it is dropped: the budget is used up, or
    /// the queue is full.
    pub fn record(&self, cluster: &ClusterName, scope: Scope, report: EventReport) -> bool {
        let now_ms = millis(self.started.elapsed());
        let is_sent = self.shared(|shared| {
            let queue = shared.queues.get(cluster)?;
            Some(shared.budget.take(now_ms, scope) && queue.try_send(report).is_ok())
        });
        let Some(is_sent) = is_sent else { return false };
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

/// Runs workers until the last recorder is dropped and every queue is empty.
async fn run_workers(mut started: mpsc::UnboundedReceiver<(Worker, mpsc::Receiver<EventReport>)>) {
    let mut workers = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            new = started.recv() => match new {
                Some((worker, reports)) => drop(workers.spawn(here(worker.run(reports)))),
                None => break,
            },
            Some(_) = workers.join_next() => {}
        }
    }
    workers.join_all().await;
}
