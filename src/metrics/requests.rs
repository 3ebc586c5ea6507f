//! Requests to API servers, by cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::Counter;

use super::text::encode_family;
use super::{Detail, Metrics};
use crate::core::data::ids::ClusterName;

/// By method, and the code of the response; `None` where there was none.
type Counts = BTreeMap<(&'static str, Option<u16>), u64>;

/// The `host` of a fleet that is too large for series of each cluster.
const ALL: &str = "all";

/// The requests to one cluster. Clients of one cluster share it, and its series end with the last of
/// them.
#[derive(Debug)]
pub struct ClusterRequests {
    counts: Mutex<Counts>,
    all: Arc<Mutex<AllRequests>>,
}

#[derive(Debug, Default)]
struct AllRequests {
    by_cluster: BTreeMap<ClusterName, Weak<ClusterRequests>>,
    /// Of clusters that have left, for the sums: a counter never falls.
    left: Counts,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(sums: &mut Counts, counts: &Counts) {
    for (key, count) in counts {
        *sums.entry(*key).or_default() += count;
    }
}

impl ClusterRequests {
    /// `code` is `None` for a request that got no response.
    pub fn count(&self, method: &'static str, code: Option<u16>) {
        *lock(&self.counts).entry((method, code)).or_default() += 1;
    }
}

impl Drop for ClusterRequests {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        add(&mut all.left, &lock(&self.counts));
        all.by_cluster.retain(|_, requests| requests.strong_count() > 0);
    }
}

/// Requests, labelled as client-go labels them, except that `host` is the cluster's name and never
/// an address.
#[derive(Debug)]
pub(super) struct RequestCounts {
    all: Arc<Mutex<AllRequests>>,
    detail: Arc<Detail>,
}

impl RequestCounts {
    pub(super) fn new(detail: Arc<Detail>) -> Self {
        Self { all: Arc::default(), detail }
    }
}

impl Metrics {
    /// Where the requests to a cluster are counted. The counts have series of their own until the last
    /// clone of this is dropped.
    pub fn requests(&self, cluster: &ClusterName) -> Arc<ClusterRequests> {
        let mut all = lock(&self.requests.all);
        if let Some(requests) = all.by_cluster.get(cluster).and_then(Weak::upgrade) {
            return requests;
        }
        let (counts, shared) = (Mutex::default(), self.requests.all.clone());
        let requests = Arc::new(ClusterRequests { counts, all: shared });
        all.by_cluster.insert(cluster.clone(), Arc::downgrade(&requests));
        requests
    }
}

impl Collector for RequestCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let is_per_cluster = self.detail.is_per_cluster();
        let mut by_host: BTreeMap<String, Counts> = BTreeMap::new();
        // Dropped only after the lock: the last holder of one's counts takes it.
        let clusters: Vec<_> = {
            let all = lock(&self.all);
            if !is_per_cluster {
                by_host.insert(ALL.to_owned(), all.left.clone());
            }
            let live = |(name, requests): (&ClusterName, &Weak<ClusterRequests>)| {
                Some((name.to_string(), requests.upgrade()?))
            };
            all.by_cluster.iter().filter_map(live).collect()
        };
        for (name, requests) in &clusters {
            let host = if is_per_cluster { name } else { ALL };
            add(by_host.entry(host.to_owned()).or_default(), &lock(&requests.counts));
        }
        let samples = by_host.iter().flat_map(|(host, counts)| {
            counts.iter().map(move |((method, code), count)| {
                let code = code.map_or("<error>".to_owned(), |code| code.to_string());
                let method = ("method", (*method).to_owned());
                (vec![("code", code), method, ("host", host.clone())], *count as f64)
            })
        });
        let help = "Requests to API servers, by code, method and the cluster's configured name.";
        encode_family(&mut encoder, Counter, ("rest_client_requests", help), samples)
    }
}
