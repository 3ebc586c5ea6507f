//! The watches, for metrics and for readiness; and the requests, by cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::clock::millis;
use crate::core::ids::{ClusterName, Kind};
use crate::core::view::Watch;

/// What a watch tells of itself. Its methods cost an atomic or two.
#[derive(Debug)]
pub struct WatchMetrics {
    epoch: Instant,
    state: AtomicU8,
    /// The first list is complete, or can't be had for now: start-up waits no more for it.
    tried: AtomicBool,
    listed: AtomicBool,
    /// Milliseconds from `epoch`, and one; 0 is never.
    heard_at: AtomicU64,
    objects: AtomicU64,
    lists: AtomicU64,
    resumes: AtomicU64,
    events: AtomicU64,
    /// What the watch broke with; rarely written, and never on the way of an event.
    error: Mutex<Box<str>>,
}

impl WatchMetrics {
    fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            state: AtomicU8::new(Watch::Never as u8),
            tried: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            heard_at: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            resumes: AtomicU64::new(0),
            events: AtomicU64::new(0),
            error: Mutex::default(),
        }
    }

    /// A list began.
    pub fn listing(&self) {
        self.state.store(Watch::Listing as u8, Relaxed);
        self.lists.fetch_add(1, Relaxed);
    }

    /// The list is complete, with so many objects; the watch is live.
    pub fn live(&self, objects: u64) {
        self.objects.store(objects, Relaxed);
        self.listed.store(true, Relaxed);
        self.tried.store(true, Relaxed);
        self.state.store(Watch::Live as u8, Relaxed);
        self.heard(false);
    }

    /// The watch goes on where it broke.
    pub fn resumed(&self) {
        self.resumes.fetch_add(1, Relaxed);
        self.state.store(Watch::Live as u8, Relaxed);
        self.heard(false);
    }

    /// The watch broke, or can't be had.
    pub fn lost(&self, error: &str) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error.into();
        self.state.store(Watch::Lost as u8, Relaxed);
        self.tried.store(true, Relaxed);
    }

    /// Something came from the API server: an event, a bookmark.
    pub fn heard(&self, is_event: bool) {
        self.heard_at.store(millis(self.epoch.elapsed()).saturating_add(1), Relaxed);
        if is_event {
            self.events.fetch_add(1, Relaxed);
        }
    }

    fn state(&self) -> Watch {
        let state = self.state.load(Relaxed);
        let states = [Watch::Listing, Watch::Live, Watch::Lost];
        states.into_iter().find(|s| *s as u8 == state).unwrap_or(Watch::Never)
    }

    fn age_seconds(&self) -> Option<f64> {
        let at_ms = self.heard_at.load(Relaxed).checked_sub(1)?;
        Some((self.epoch.elapsed().as_secs_f64() - at_ms as f64 / 1000.0).max(0.0))
    }
}

/// Whether the process is ready, and each watch's part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// It is, or was once.
    pub ready: bool,
    /// The watches, by cluster and kind.
    pub watches: Vec<WatchStatus>,
}

/// One watch, as the probes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    /// Where.
    pub cluster: ClusterName,
    /// Of which kind.
    pub kind: Kind,
    /// How it is.
    pub state: Watch,
    /// It was listed in full at least once.
    pub listed: bool,
    /// What it broke with, while it is lost. May hold addresses.
    pub error: Option<String>,
}

/// All watches.
#[derive(Debug)]
pub(super) struct Watches {
    epoch: Instant,
    table: RwLock<BTreeMap<(ClusterName, Kind), Arc<WatchMetrics>>>,
    was_ready: AtomicBool,
}

type Rows = Vec<((ClusterName, Kind), Arc<WatchMetrics>)>;

impl Watches {
    pub(super) fn new() -> Self {
        Self { epoch: Instant::now(), table: RwLock::default(), was_ready: AtomicBool::new(false) }
    }

    pub(super) fn watch(&self, cluster: &ClusterName, kind: Kind) -> Arc<WatchMetrics> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(WatchMetrics::new(self.epoch));
        Arc::clone(table.entry((cluster.clone(), kind)).or_insert_with(new))
    }

    pub(super) fn forget(&self, cluster: &ClusterName) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.retain(|(name, _), _| name != cluster);
    }

    fn rows(&self) -> Rows {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.iter().map(|(key, watch)| (key.clone(), Arc::clone(watch))).collect()
    }

    /// Every watch was tried, and one cluster at least is listed in full: a broken cluster holds up
    /// nobody, and a process that sees nothing is of no use.
    pub(super) fn readiness(&self) -> Readiness {
        let rows = self.rows();
        let mut whole: BTreeMap<&ClusterName, bool> = BTreeMap::new();
        for ((cluster, _), watch) in &rows {
            *whole.entry(cluster).or_insert(true) &= watch.listed.load(Relaxed);
        }
        let tried = rows.iter().all(|(_, watch)| watch.tried.load(Relaxed));
        if tried && whole.values().any(|listed| *listed) {
            self.was_ready.store(true, Relaxed);
        }
        let status = |((cluster, kind), watch): &((ClusterName, Kind), Arc<WatchMetrics>)| {
            let state = watch.state();
            let error = || watch.error.lock().unwrap_or_else(PoisonError::into_inner).to_string();
            WatchStatus {
                cluster: cluster.clone(),
                kind: *kind,
                state,
                listed: watch.listed.load(Relaxed),
                error: (state == Watch::Lost).then(error),
            }
        };
        Readiness {
            ready: self.was_ready.load(Relaxed),
            watches: rows.iter().map(status).collect(),
        }
    }
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    rows: &Rows,
    (name, help): (&str, &str),
    value: impl Fn(&WatchMetrics) -> Option<f64>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for ((cluster, kind), watch) in rows {
        if let Some(value) = value(watch) {
            let labels = [("cluster", cluster.as_str()), ("kind", kind.as_str())];
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

impl Collector for Watches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rows = self.rows();
        if rows.is_empty() {
            return Ok(());
        }
        let e = &mut encoder;
        let about = "The watch: 0 never listed, 1 listing, 2 live, 3 lost.";
        gauges(e, &rows, ("throughline_watch_state", about), |w| Some(f64::from(w.state() as u8)))?;
        let about = "Since the API server was last heard, bookmarks included.";
        gauges(e, &rows, ("throughline_watch_age_seconds", about), WatchMetrics::age_seconds)?;
        let about = "Objects in the latest complete list.";
        gauges(e, &rows, ("throughline_watch_objects", about), |w| {
            w.listed.load(Relaxed).then(|| w.objects.load(Relaxed) as f64)
        })?;
        let about = "How often the watch was taken up again: by a new list, or where it broke.";
        let mut metric =
            e.encode_descriptor("throughline_watch_restarts", about, None, MetricType::Counter)?;
        for ((cluster, kind), watch) in &rows {
            let relists = watch.lists.load(Relaxed).saturating_sub(1);
            for (by, count) in [("list", relists), ("resume", watch.resumes.load(Relaxed))] {
                let labels = [("cluster", cluster.as_str()), ("kind", kind.as_str()), ("by", by)];
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        let about = "Changes that the watch brought; lists and bookmarks are none.";
        let mut metric =
            e.encode_descriptor("throughline_watch_events", about, None, MetricType::Counter)?;
        for ((cluster, kind), watch) in &rows {
            let labels = [("cluster", cluster.as_str()), ("kind", kind.as_str())];
            let events = ConstCounter::new(watch.events.load(Relaxed));
            events.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

type ByMethodAndCode = BTreeMap<(&'static str, u16), AtomicU64>;

/// Requests, as client-go counts them; `host` is the cluster's name, never an address.
#[derive(Debug, Default)]
pub(super) struct Requests(RwLock<BTreeMap<ClusterName, ByMethodAndCode>>);

impl Requests {
    pub(super) fn count(&self, cluster: &ClusterName, method: &'static str, code: u16) {
        let key = (method, code);
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = table.get(cluster).and_then(|counts| counts.get(&key)) {
            count.fetch_add(1, Relaxed);
            return;
        }
        drop(table);
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let counts = table.entry(cluster.clone()).or_default();
        counts.entry(key).or_default().fetch_add(1, Relaxed);
    }

    pub(super) fn forget(&self, cluster: &ClusterName) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(cluster);
    }
}

impl Collector for Requests {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if table.is_empty() {
            return Ok(());
        }
        let about = "Requests to API servers, by code, method and the cluster's configured name.";
        let mut metric =
            encoder.encode_descriptor("rest_client_requests", about, None, MetricType::Counter)?;
        for (cluster, counts) in &*table {
            for ((method, code), count) in counts {
                let code = if *code == 0 { "<error>".to_owned() } else { code.to_string() };
                let labels =
                    [("code", code.as_str()), ("method", method), ("host", cluster.as_str())];
                let count = ConstCounter::new(count.load(Relaxed));
                count.encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
