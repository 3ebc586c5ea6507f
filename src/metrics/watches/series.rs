//! The watches' state as metrics: a series for each watch, or sums where a fleet is too large for that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Rows, WatchMetrics, WatchTable};
use crate::core::data::ids::Kind;
use crate::core::view::WatchState;

const OBJECTS: &str = "Objects in the latest complete list.";
const RESTARTS: &str =
    "How often the watch was restarted: by a new list, or resumed where it was lost.";
const EVENTS: &str = "Changes that the watch brought, without lists and bookmarks.";

/// Adds up what watches of all clusters show, by kind.
fn by_kind(rows: &Rows, value: impl Fn(&WatchMetrics) -> u64) -> BTreeMap<Kind, u64> {
    let mut sums = BTreeMap::new();
    for ((_, kind), watch) in rows {
        *sums.entry(*kind).or_default() += value(watch);
    }
    sums
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

impl Collector for WatchTable {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rows = self.rows();
        if rows.is_empty() {
            return Ok(());
        }
        let e = &mut encoder;
        encode_states(e, &rows)?;
        if !self.detail.is_per_cluster() {
            return encode_sums(e, &rows);
        }
        let about = "State of the watch: 0 never listed, 1 listing, 2 live, 3 lost.";
        gauges(e, &rows, ("throughline_watch_state", about), |w| Some(f64::from(w.state() as u8)))?;
        let about = "Seconds since the watch last brought anything, bookmarks included.";
        gauges(e, &rows, ("throughline_watch_age_seconds", about), WatchMetrics::age_seconds)?;
        gauges(e, &rows, ("throughline_watch_objects", OBJECTS), |w| {
            w.was_listed.load(Relaxed).then(|| w.objects.load(Relaxed) as f64)
        })?;
        let mut metric =
            e.encode_descriptor("throughline_watch_restarts", RESTARTS, None, MetricType::Counter)?;
        for ((cluster, kind), watch) in &rows {
            let relists = watch.lists.load(Relaxed).saturating_sub(1);
            for (by, count) in [("list", relists), ("resume", watch.resumes.load(Relaxed))] {
                let labels = [("cluster", cluster.as_str()), ("kind", kind.as_str()), ("by", by)];
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        let mut metric =
            e.encode_descriptor("throughline_watch_events", EVENTS, None, MetricType::Counter)?;
        for ((cluster, kind), watch) in &rows {
            let labels = [("cluster", cluster.as_str()), ("kind", kind.as_str())];
            let events = ConstCounter::new(watch.events.load(Relaxed));
            events.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// How many watches are in each state.
fn encode_states(e: &mut DescriptorEncoder<'_>, rows: &Rows) -> fmt::Result {
    let about = "Watches, by kind and state.";
    let mut metric = e.encode_descriptor("throughline_watches", about, None, MetricType::Gauge)?;
    let states = [
        (WatchState::Never, "never"),
        (WatchState::Listing, "listing"),
        (WatchState::Live, "live"),
        (WatchState::Lost, "lost"),
    ];
    for (state, name) in states {
        for (kind, watches) in by_kind(rows, |watch| u64::from(watch.state() == state)) {
            let labels = [("kind", kind.as_str()), ("state", name)];
            ConstGauge::new(watches as f64).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// The sums over all clusters, where there is no series for each.
fn encode_sums(e: &mut DescriptorEncoder<'_>, rows: &Rows) -> fmt::Result {
    let mut metric =
        e.encode_descriptor("throughline_watch_objects", OBJECTS, None, MetricType::Gauge)?;
    for (kind, objects) in by_kind(rows, |watch| watch.objects.load(Relaxed)) {
        let labels = [("kind", kind.as_str())];
        ConstGauge::new(objects as f64).encode(metric.encode_family(&labels)?)?;
    }
    let mut metric =
        e.encode_descriptor("throughline_watch_restarts", RESTARTS, None, MetricType::Counter)?;
    let relists = by_kind(rows, |watch| watch.lists.load(Relaxed).saturating_sub(1));
    let resumes = by_kind(rows, |watch| watch.resumes.load(Relaxed));
    for (by, counts) in [("list", relists), ("resume", resumes)] {
        for (kind, count) in counts {
            let labels = [("kind", kind.as_str()), ("by", by)];
            ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    let mut metric =
        e.encode_descriptor("throughline_watch_events", EVENTS, None, MetricType::Counter)?;
    for (kind, events) in by_kind(rows, |watch| watch.events.load(Relaxed)) {
        let labels = [("kind", kind.as_str())];
        ConstCounter::new(events).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
