//! The state of the watches, for metrics and readiness.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::text::gauges;
use super::{Metrics, lock};
use crate::clock::millis;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::data::time::UnixMillis;
use crate::core::view::WatchState::{self, Listing, Live, Lost, Never};

/// The metrics of one watch. Updating them costs a lock that is seldom contended.
#[derive(Debug)]
pub struct WatchMetrics {
    status: Mutex<WatchStatus>,
    // Shared by all watches of the kind, and kept after this one: a counter never decreases.
    relists: Counter,
    resumes: Counter,
    events: Counter,
}

/// The state of one watch for the probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    pub cluster: ClusterName,
    pub kind: Kind,
    pub state: WatchState,
    /// At least one list was completed.
    pub was_listed: bool,
    /// When it last received anything, including bookmarks.
    pub received_at: Option<Instant>,
    /// The last failure. The text may contain addresses.
    pub failure: Option<RequestFailure>,
}

impl WatchMetrics {
    pub fn list_started(&self) {
        let before = std::mem::replace(&mut lock(&self.status).state, Listing);
        if before != Never {
            self.relists.inc();
        }
    }

    /// The list is complete, and the watch is live.
    pub fn list_finished(&self) {
        let mut status = lock(&self.status);
        status.was_listed = true;
        status.state = Live;
        status.received_at = Some(Instant::now());
    }

    /// The watch continues where it was lost.
    pub fn resumed(&self) {
        self.resumes.inc();
        lock(&self.status).state = Live;
        self.bookmark_received();
    }

    /// The watch continues soon, and was never lost.
    pub fn reopened(&self) {
        self.resumes.inc();
    }

    /// The watch was lost, or could not be started.
    pub fn lost(&self, failure: &RequestFailure) {
        let mut status = lock(&self.status);
        status.failure = Some(failure.clone());
        status.state = Lost;
    }

    /// Counts a received change.
    pub fn event_received(&self) {
        self.events.inc();
        self.bookmark_received();
    }

    /// Records that the API server keeps the watch alive.
    pub fn bookmark_received(&self) {
        lock(&self.status).received_at = Some(Instant::now());
    }
}

impl WatchStatus {
    /// The first list is complete or has failed: readiness no longer waits for this watch.
    fn was_tried(&self) -> bool {
        self.was_listed || self.failure.is_some()
    }

    /// The watches of each cluster. They are ordered by cluster.
    pub(super) fn by_cluster(watches: &[Self]) -> impl Iterator<Item = &[Self]> {
        watches.chunk_by(|a, b| a.cluster == b.cluster)
    }
}

/// Whether the process is ready, and the state of each watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether it is ready now, or has been.
    pub ready: bool,
    /// By cluster and kind.
    pub watches: Vec<WatchStatus>,
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    all: BTreeMap<(ClusterName, Kind), Arc<WatchMetrics>>,
    /// Clusters that readiness does not wait for.
    discovered: BTreeSet<ClusterName>,
    was_ready: bool,
}

impl Watches {
    pub(super) fn statuses(&self) -> Vec<WatchStatus> {
        self.all.values().map(|watch| lock(&watch.status).clone()).collect()
    }

    pub(super) fn remove_cluster(&mut self, cluster: &ClusterName) {
        for kind in Kind::ALL {
            self.all.remove(&(cluster.clone(), kind));
        }
        self.discovered.remove(cluster);
    }
}

impl Metrics {
    /// The metrics of one watch; created at the first call.
    pub fn watch(&self, cluster: &ClusterName, kind: Kind) -> Arc<WatchMetrics> {
        let new = || {
            let status = WatchStatus {
                cluster: cluster.clone(),
                kind,
                state: Never,
                was_listed: false,
                received_at: None,
                failure: None,
            };
            let kind = ("kind", kind.as_str());
            let restarts = |by| self.counts.watch_restarts.get_or_create_owned(&[kind, ("by", by)]);
            Arc::new(WatchMetrics {
                status: Mutex::new(status),
                relists: restarts("list"),
                resumes: restarts("resume"),
                events: self.counts.watch_events.get_or_create_owned(&[kind]),
            })
        };
        lock(&self.watches).all.entry((cluster.clone(), kind)).or_insert_with(new).clone()
    }

    /// Excludes a discovered cluster from readiness.
    pub fn set_discovered(&self, cluster: &ClusterName) {
        lock(&self.watches).discovered.insert(cluster.clone());
    }

    /// The clusters whose watch of Connectors is in this state.
    pub fn clusters_in(&self, state: WatchState) -> BTreeSet<ClusterName> {
        let is_in = |watch: &WatchStatus| watch.kind == Kind::Connector && watch.state == state;
        let watches = lock(&self.watches).statuses().into_iter();
        watches.filter(is_in).map(|watch| watch.cluster).collect()
    }

    /// Ready once every watch of the configured clusters has been tried and at least one cluster is
    /// fully listed: neither a broken cluster nor thousands of discovered ones may delay readiness, and
    /// an instance without any listed cluster is of no use. Once ready, it stays so.
    pub fn readiness(&self) -> Readiness {
        let mut all = lock(&self.watches);
        let watches = all.statuses();
        let all_tried =
            watches.iter().all(|w| w.was_tried() || all.discovered.contains(&w.cluster));
        let any_listed =
            WatchStatus::by_cluster(&watches).any(|cluster| cluster.iter().all(|w| w.was_listed));
        all.was_ready |= all_tried && any_listed;
        Readiness { ready: all.was_ready, watches }
    }

    /// When each watch last received anything, including bookmarks.
    pub fn received(&self, now: UnixMillis) -> Vec<(ClusterName, Kind, UnixMillis)> {
        let received = |watch: WatchStatus| {
            let at = UnixMillis(now.0.saturating_sub(millis(watch.received_at?.elapsed())));
            Some((watch.cluster, watch.kind, at))
        };
        lock(&self.watches).statuses().into_iter().filter_map(received).collect()
    }
}

/// The number of watched clusters, and of those that are not watched, by state.
pub(super) fn clusters_by_state(watches: &[WatchStatus]) -> [(&'static str, usize); 3] {
    let state = |cluster: &[WatchStatus]| match cluster {
        _ if cluster.iter().any(|watch| watch.state == Lost) => "lost",
        _ if cluster.iter().all(|watch| watch.was_listed) => "followed",
        _ => "joining",
    };
    let states: Vec<_> = WatchStatus::by_cluster(watches).map(state).collect();
    ["followed", "joining", "lost"]
        .map(|name| (name, states.iter().filter(|state| **state == name).count()))
}

pub(super) fn scrape(scrape: &mut Registry, watches: &[WatchStatus]) {
    let mut by_state = Vec::new();
    let mut silence = Vec::new();
    for kind in Kind::ALL {
        let watches: Vec<_> = watches.iter().filter(|watch| watch.kind == kind).collect();
        if watches.is_empty() {
            continue;
        }
        let label = || ("kind", kind.to_string());
        for (state, name) in
            [(Never, "never"), (Listing, "listing"), (Live, "live"), (Lost, "lost")]
        {
            let count = watches.iter().filter(|watch| watch.state == state).count();
            by_state.push((vec![label(), ("state", name.to_owned())], count as f64));
        }
        let earliest = watches.iter().filter_map(|watch| watch.received_at).min();
        silence.extend(earliest.map(|at| (vec![label()], at.elapsed().as_secs_f64())));
    }
    scrape.register("throughline_watches", "Watches, by kind and state", gauges(by_state));
    let help = "The longest time since a watch brought anything, bookmarks included";
    scrape.register("throughline_watch_silence_seconds", help, gauges(silence));
}
