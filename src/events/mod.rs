//! Kubernetes Events about a problem and its end, on the object concerned, where `kubectl describe`
//! shows them.
//!
//! A [`Recorder`] never waits: Events beyond the rate limit are dropped and counted. Only the hub and
//! edges get Events; an upstream cluster gets none unless it holds the Lease.

mod event;
mod poster;
mod sender;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Event, ObjectReference};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::ClusterClient;
use crate::clock::millis;
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::core::rate_limit::{Rate, RateLimiter};
use crate::environment::{here, wall_clock};
use crate::metrics::{EventDelivery, Metrics};
use sender::Sender;

pub use event::again;
pub use poster::Poster;

/// The most Events that wait for their senders; the rate limit admits fewer.
const QUEUE_MAX: usize = 1000;

/// Posts Events. Clones share queue and rate limit.
#[derive(Clone, Debug)]
pub struct Recorder {
    metrics: Arc<Metrics>,
    started: Instant,
    rate: Rate,
    queue: mpsc::Sender<(Arc<Sender>, Event)>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    senders: BTreeMap<ClusterName, Arc<Sender>>,
    limiter: RateLimiter,
    last_number: u64,
    /// The Lease, and its cluster, once it is known.
    lease: Option<(ClusterName, ObjectReference)>,
}

impl Recorder {
    /// Starts posting for these clusters, and those that join later. The returned task posts the
    /// Events; it ends once the last clone is dropped and all are posted.
    pub fn start(
        clusters: Vec<Arc<ClusterClient>>,
        max_per_minute: u32,
        metrics: Arc<Metrics>,
    ) -> (Self, JoinSet<()>) {
        let (recorder, mut queue) = Self::new(clusters, max_per_minute, metrics);
        let mut task = JoinSet::new();
        task.spawn(here(async move {
            // One task for each Event: a panic in one ends no other.
            let mut sends = JoinSet::new();
            while let Some((sender, event)) = queue.recv().await {
                sends.spawn(here(async move { sender.deliver(&event).await }));
                while sends.try_join_next().is_some() {}
            }
            while sends.join_next().await.is_some() {}
        }));
        (recorder, task)
    }

    fn new(
        clusters: Vec<Arc<ClusterClient>>,
        max_per_minute: u32,
        metrics: Arc<Metrics>,
    ) -> (Self, mpsc::Receiver<(Arc<Sender>, Event)>) {
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let rate = Rate::every_ms(60_000 / u64::from(max_per_minute.max(1)), max_per_minute.into());
        let started = Instant::now();
        let recorder = Self { metrics, started, rate, queue, shared: Arc::default() };
        clusters.into_iter().for_each(|cluster| recorder.join(cluster));
        (recorder, events)
    }

    /// Adds a cluster that joined.
    pub(crate) fn join(&self, cluster: Arc<ClusterClient>) {
        let name = cluster.name().clone();
        let metrics = self.metrics.clone();
        self.shared(|shared| shared.senders.insert(name, Arc::new(Sender::new(cluster, metrics))));
    }

    /// Removes a cluster that left.
    pub(crate) fn leave(&self, cluster: &ClusterName) {
        self.shared(|shared| shared.senders.remove(cluster));
    }

    /// A new Event to post; `about` is its type and reason.
    pub fn event(
        &self,
        at: UnixMillis,
        object: ObjectReference,
        about: (&str, String),
        message: &str,
    ) -> Event {
        let nanos = u64::try_from(wall_clock().as_nanos()).unwrap_or(u64::MAX);
        // Unique among the Events of the object, whichever instance posts them.
        let number = self.shared(|shared| {
            shared.last_number = nanos.max(shared.last_number + 1);
            shared.last_number
        });
        event::event(at, object, about, message, number)
    }

    /// Posts an Event, without waiting. Returns false if it was dropped.
    pub fn post(&self, cluster: &ClusterName, event: &Event) -> bool {
        let sender = self.shared(|shared| shared.senders.get(cluster).cloned());
        let Some(sender) = sender else { return false };
        let is_queued =
            self.is_within_limit() && self.queue.try_send((sender, event.clone())).is_ok();
        if !is_queued {
            self.metrics.count_kubernetes_event(EventDelivery::Dropped);
        }
        is_queued
    }

    /// Whether the rate limit admits one more Event.
    fn is_within_limit(&self) -> bool {
        let now = UnixMillis(millis(self.started.elapsed()));
        self.shared(|Shared { limiter, .. }| {
            let is_free = limiter.ready_at(self.rate) <= now;
            if is_free {
                limiter.take(self.rate, now);
            }
            is_free
        })
    }

    /// Sets the Lease, on which Events without another object are posted.
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
