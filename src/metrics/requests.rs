//! Requests to API servers, by cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::watches::Detail;
use crate::core::data::ids::ClusterName;

/// The method, and the code of the response; `None` where there was none.
type MethodAndCode = (&'static str, Option<u16>);
type Counts = BTreeMap<MethodAndCode, AtomicU64>;
type Sums = BTreeMap<MethodAndCode, u64>;

/// The requests to one cluster. Clients of one cluster share it, and its series end with the last of
/// them.
#[derive(Debug)]
pub struct ClusterRequests {
    cluster: ClusterName,
    counts: Arc<RwLock<Counts>>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    by_cluster: BTreeMap<ClusterName, (Arc<RwLock<Counts>>, Weak<ClusterRequests>)>,
    /// Of clusters that have left, for the sums: a counter never falls.
    left: Sums,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(counts: &RwLock<Counts>) -> RwLockReadGuard<'_, Counts> {
    counts.read().unwrap_or_else(PoisonError::into_inner)
}

fn add(sums: &mut Sums, counts: &Counts) {
    for (key, count) in counts {
        *sums.entry(*key).or_default() += count.load(Relaxed);
    }
}

impl ClusterRequests {
    /// `code` is `None` for a request that got no response.
    pub fn count(&self, method: &'static str, code: Option<u16>) {
        let key = (method, code);
        if let Some(count) = read(&self.counts).get(&key) {
            count.fetch_add(1, Relaxed);
            return;
        }
        let mut counts = self.counts.write().unwrap_or_else(PoisonError::into_inner);
        counts.entry(key).or_default().fetch_add(1, Relaxed);
    }
}

impl Drop for ClusterRequests {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        let Shared { by_cluster, left } = &mut *shared;
        // The cluster may have joined again meanwhile, and goes on with these counts.
        let has_left = by_cluster.get(&self.cluster).is_some_and(|(_, it)| it.strong_count() == 0);
        if has_left && let Some((counts, _)) = by_cluster.remove(&self.cluster) {
            add(left, &read(&counts));
        }
    }
}

/// Requests, labelled as client-go labels them, except that `host` is the cluster's name and never
/// an address.
#[derive(Debug)]
pub(super) struct RequestCounts {
    shared: Arc<Mutex<Shared>>,
    detail: Arc<Detail>,
}

impl RequestCounts {
    pub(super) fn new(detail: Arc<Detail>) -> Self {
        Self { shared: Arc::default(), detail }
    }

    pub(super) fn of_cluster(&self, cluster: &ClusterName) -> Arc<ClusterRequests> {
        let mut shared = lock(&self.shared);
        let before = shared.by_cluster.get(cluster);
        if let Some(requests) = before.and_then(|(_, requests)| requests.upgrade()) {
            return requests;
        }
        let counts = before.map(|(counts, _)| counts.clone()).unwrap_or_default();
        let requests = Arc::new(ClusterRequests {
            cluster: cluster.clone(),
            counts: counts.clone(),
            shared: self.shared.clone(),
        });
        shared.by_cluster.insert(cluster.clone(), (counts, Arc::downgrade(&requests)));
        requests
    }
}

impl Collector for RequestCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let shared = lock(&self.shared);
        let Shared { by_cluster, left } = &*shared;
        if by_cluster.is_empty() && left.is_empty() {
            return Ok(());
        }
        let about = "Requests to API servers, by code, method and the cluster's configured name.";
        let mut metric =
            encoder.encode_descriptor("rest_client_requests", about, None, MetricType::Counter)?;
        let code_text = |code: Option<u16>| code.map_or("<error>".to_owned(), |c| c.to_string());
        if !self.detail.is_per_cluster() {
            let mut sums = left.clone();
            by_cluster.values().for_each(|(counts, _)| add(&mut sums, &read(counts)));
            for ((method, code), count) in sums {
                let code = code_text(code);
                let labels = [("code", code.as_str()), ("method", method)];
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
            return Ok(());
        }
        for (cluster, (counts, _)) in by_cluster {
            for ((method, code), count) in &*read(counts) {
                let code = code_text(*code);
                let labels =
                    [("code", code.as_str()), ("method", method), ("host", cluster.as_str())];
                let count = ConstCounter::new(count.load(Relaxed));
                count.encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
