//! Requests to API servers, by cluster.
//!
//! The labels are client-go's, except that `host` is the cluster's name and never an address.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use prometheus_client::registry::Registry;

use super::text::counters;
use super::{Metrics, lock};
use crate::core::data::ids::ClusterName;

/// By method, and the code of the response; `None` for no response.
type Counts = BTreeMap<(&'static str, Option<u16>), u64>;

/// The requests to one cluster. Clients of one cluster share its series, which end with the last
/// client.
#[derive(Debug)]
pub struct ClusterRequests {
    cluster: ClusterName,
    requests: Arc<Mutex<AllRequests>>,
}

#[derive(Debug, Default)]
pub(super) struct AllRequests {
    by_cluster: BTreeMap<ClusterName, Cluster>,
    /// Includes clusters that have left: a counter never decreases.
    all: Counts,
}

#[derive(Debug, Default)]
struct Cluster {
    clients: usize,
    counts: Counts,
}

impl ClusterRequests {
    /// `code` is `None` for a request that got no response.
    pub fn count(&self, method: &'static str, code: Option<u16>) {
        let mut requests = lock(&self.requests);
        *requests.all.entry((method, code)).or_default() += 1;
        if let Some(cluster) = requests.by_cluster.get_mut(&self.cluster) {
            *cluster.counts.entry((method, code)).or_default() += 1;
        }
    }
}

impl Drop for ClusterRequests {
    fn drop(&mut self) {
        let by_cluster = &mut lock(&self.requests).by_cluster;
        let Some(cluster) = by_cluster.get_mut(&self.cluster) else { return };
        cluster.clients -= 1;
        if cluster.clients == 0 {
            by_cluster.remove(&self.cluster);
        }
    }
}

impl Metrics {
    /// A counter for the requests to a cluster.
    pub fn requests(&self, cluster: &ClusterName) -> ClusterRequests {
        lock(&self.requests).by_cluster.entry(cluster.clone()).or_default().clients += 1;
        ClusterRequests { cluster: cluster.clone(), requests: self.requests.clone() }
    }
}

impl AllRequests {
    pub(super) fn scrape(&self, scrape: &mut Registry, is_per_cluster: bool) {
        let of_clusters = self.by_cluster.iter().filter(|_| is_per_cluster);
        let of_clusters = of_clusters.map(|(name, cluster)| (name.as_str(), &cluster.counts));
        let of_all = (!is_per_cluster).then_some(("all", &self.all));
        let samples = of_clusters.chain(of_all).flat_map(|(host, counts)| {
            counts.iter().map(move |((method, code), count)| {
                let code = code.map_or("<error>".to_owned(), |code| code.to_string());
                let [method, host] = [*method, host].map(str::to_owned);
                (vec![("code", code), ("method", method), ("host", host)], *count as f64)
            })
        });
        let help = "Requests to API servers, by code, method and the cluster's configured name";
        scrape.register("rest_client_requests", help, counters(samples));
    }
}
