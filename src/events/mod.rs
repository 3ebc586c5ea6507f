//! Kubernetes Events: problems with an object, and their end, posted on the object itself, where
//! `kubectl describe` shows them.
//!
//! A [`Recorder`] never waits: what its queue can't take is dropped and counted. Each cluster has a
//! worker that correlates Events as client-go does ([`correlate`]) and sends them. Only the hub and
//! edges get Events; an upstream cluster gets none unless it holds the Lease.

pub mod correlate;
mod lru;
mod object;
mod reporter;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::ClusterClient;
use crate::core::data::ids::ClusterName;
use crate::metrics::{EventDelivery, Metrics};

pub use object::{EventReport, EventWrite, ObjectReference, Severity};
pub use reporter::Reporter;

/// The queue for one cluster; client-go's number.
const QUEUE_MAX: usize = 1000;

/// Takes reports for clusters. Clones share the queues; the workers end when the last clone is
/// dropped.
#[derive(Clone, Debug)]
pub struct Recorder {
    queues: Arc<BTreeMap<ClusterName, mpsc::Sender<EventReport>>>,
    metrics: Arc<Metrics>,
}

impl Recorder {
    /// Starts a worker for each of these clusters.
    pub fn start(clusters: Vec<Arc<ClusterClient>>, metrics: Arc<Metrics>) -> (Self, JoinSet<()>) {
        let mut workers = JoinSet::new();
        let mut queues = BTreeMap::new();
        for cluster in clusters {
            let (queue, reports) = mpsc::channel(QUEUE_MAX);
            queues.insert(cluster.name().clone(), queue);
            workers.spawn(worker::Worker::new(cluster, metrics.clone()).run(reports));
        }
        (Self { queues: Arc::new(queues), metrics }, workers)
    }

    /// Queues a report for its cluster; drops it when the queue is full.
    pub fn record(&self, cluster: &ClusterName, report: EventReport) {
        let Some(queue) = self.queues.get(cluster) else { return };
        if queue.try_send(report).is_err() {
            self.metrics.count_kubernetes_event(EventDelivery::Dropped);
        }
    }
}
