//! Kubernetes Events: what went wrong with an object, and that it is right again, told on the object
//! itself, where `kubectl describe` shows it.
//!
//! A [`Recorder`] never waits: what does not fit its queue is dropped and counted. One worker for each
//! cluster correlates as client-go does ([`correlate`]) and sends. Events go to the hub and to edges
//! alone; an upstream cluster gets none, unless it is the one that was chosen to hold the Lease.

pub mod correlate;
mod lru;
mod object;
mod reporter;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::Cluster;
use crate::core::ids::ClusterName;
use crate::metrics::{EventFate, Metrics};

pub use object::{Reference, Report, Sending, Severity};
pub use reporter::Reporter;

/// Reports that may wait for one cluster; client-go's number.
const QUEUE: usize = 1000;

/// Takes reports for clusters. Clones record to the same queues; when the last one is gone, the workers
/// end.
#[derive(Clone, Debug)]
pub struct Recorder {
    queues: Arc<BTreeMap<ClusterName, mpsc::Sender<Report>>>,
    metrics: Arc<Metrics>,
}

impl Recorder {
    /// Starts a worker for each of these clusters. Nothing is sent until something is recorded.
    pub fn start(clusters: Vec<Arc<Cluster>>, metrics: Arc<Metrics>) -> (Self, JoinSet<()>) {
        let mut workers = JoinSet::new();
        let mut queues = BTreeMap::new();
        for cluster in clusters {
            let (queue, reports) = mpsc::channel(QUEUE);
            queues.insert(cluster.name().clone(), queue);
            workers.spawn(worker::Worker::new(cluster, metrics.clone()).run(reports));
        }
        (Self { queues: Arc::new(queues), metrics }, workers)
    }

    /// Leads a report to its cluster, or drops it when too many wait.
    pub fn record(&self, cluster: &ClusterName, report: Report) {
        let Some(queue) = self.queues.get(cluster) else { return };
        if queue.try_send(report).is_err() {
            self.metrics.kubernetes_event(EventFate::Dropped);
        }
    }
}
