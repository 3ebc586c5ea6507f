//! The shards as this instance knows them at the time of a scrape; no metrics with one shard.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use super::Metrics;
use super::watches::WatchTable;
use crate::clock::millis;
use crate::core::data::ids::ClusterName;
use crate::core::data::shard::{Shard, Shards};

/// Who holds a shard's Lease, as this instance last saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardHolder {
    pub shard: Shard,
    /// `None`: the Lease names nobody, or was never seen.
    pub holder: Option<String>,
    /// How long ago this instance first saw that holder.
    pub held_ms: Option<u64>,
    /// Whether this instance leads the shard.
    pub leads: bool,
    /// For how long nobody has held it: released, expired, or without a Lease.
    pub unheld_ms: Option<u64>,
}

/// What is known of one shard.
#[derive(Clone, Debug, Default)]
struct Row {
    leads: bool,
    renewed: Option<Instant>,
    until: Option<Instant>,
    /// As last seen, and when it was first seen; empty when nobody holds it.
    holder: (String, Option<Instant>),
    /// The last one that was not empty.
    last_holder: String,
    moves: u64,
    /// `None` before the Leases were read for the first time.
    unheld: Option<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Table {
    /// One, and no rows, until the elections of several begin.
    shards: Shards,
    rows: Vec<Row>,
}

#[derive(Debug)]
pub(super) struct ShardMetrics {
    watches: Arc<WatchTable>,
    table: Mutex<Table>,
}

impl ShardMetrics {
    pub(super) fn new(watches: Arc<WatchTable>) -> Self {
        Self { watches, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, shard: Shard, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.table().rows.get_mut(usize::from(shard.0)) {
            change(row);
        }
    }
}

impl Row {
    fn set_holder(&mut self, holder: &str) {
        if self.holder.0 == holder {
            return;
        }
        self.holder = (holder.to_owned(), (!holder.is_empty()).then(Instant::now));
        if !holder.is_empty() && holder != self.last_holder {
            self.moves += u64::from(!self.last_holder.is_empty());
            holder.clone_into(&mut self.last_holder);
        }
    }

    fn shown(&self, shard: Shard) -> ShardHolder {
        let (holder, since) = &self.holder;
        let ago_ms = |since: Instant| millis(since.elapsed());
        ShardHolder {
            shard,
            holder: Some(holder.clone()).filter(|holder| !holder.is_empty()),
            held_ms: since.map(ago_ms),
            leads: self.leads,
            unheld_ms: self.unheld.flatten().map(ago_ms),
        }
    }
}

impl Metrics {
    /// The upstreams are shared out in so many shards; with one, nothing is shown of shards.
    pub fn set_shards(&self, shards: Shards) {
        let rows = if shards.is_one() { 0 } else { shards.count() };
        *self.shards.table() = Table { shards, rows: vec![Row::default(); rows] };
    }

    /// An upstream: while this instance leads its shard, its watch of Connectors must be live.
    pub fn set_upstream(&self, cluster: &ClusterName) {
        self.watches.set_upstream(cluster);
    }

    /// Called at every change. An instance that leads any shard counts as leader.
    pub fn set_shard_leader(&self, shard: Shard, leads: bool) {
        let mut table = self.shards.table();
        if let Some(row) = table.rows.get_mut(usize::from(shard.0)) {
            row.leads = leads;
        }
        // Under the lock, so that of two elections the last word is the right one.
        self.set_leader(table.rows.iter().any(|row| row.leads));
    }

    /// As [`Metrics::set_lease`], of one shard's Lease.
    pub fn set_shard_lease(&self, shard: Shard, renewed: Option<Instant>, until: Option<Instant>) {
        self.shards.change(shard, |row| (row.renewed, row.until) = (renewed, until));
    }

    /// Empty when nobody holds the shard's Lease.
    pub fn set_shard_holder(&self, shard: Shard, holder: &str) {
        self.shards.change(shard, |row| row.set_holder(holder));
    }

    /// Since when nobody holds the shard; `None`: somebody does.
    pub fn set_shard_unheld(&self, shard: Shard, since: Option<Instant>) {
        self.shards.change(shard, |row| row.unheld = Some(since));
    }

    /// The shards and who holds them; none with one shard.
    pub fn shard_holders(&self) -> Vec<ShardHolder> {
        let table = self.shards.table();
        table.shards.all().zip(&table.rows).map(|(shard, row)| row.shown(shard)).collect()
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: Vec<(Shard, f64)>,
) -> fmt::Result {
    if values.is_empty() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (shard, value) in values {
        let labels = [("shard", shard.to_string())];
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Collector for ShardMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (shards, rows) = {
            let table = self.table();
            (table.shards, table.shards.all().zip(table.rows.clone()).collect::<Vec<_>>())
        };
        if rows.is_empty() {
            return Ok(());
        }
        let of = |value: &dyn Fn(&Row) -> Option<f64>| -> Vec<(Shard, f64)> {
            rows.iter().filter_map(|(shard, row)| Some((*shard, value(row)?))).collect()
        };
        let ago = |since: Instant| since.elapsed().as_secs_f64();
        let now = Instant::now();
        let e = &mut encoder;
        let about = "1 while this instance leads the shard.";
        let leads = of(&|row| Some(f64::from(u8::from(row.leads))));
        gauge(e, ("throughline_shard_leader", about), leads)?;
        let about = "Seconds since this instance last renewed the shard's Lease.";
        gauge(e, ("throughline_shard_lease_age_seconds", about), of(&|row| row.renewed.map(ago)))?;
        let about = "Seconds for which leader-only writes for the shard may still start if its Lease is \
                     not renewed.";
        let left = of(&|row| row.until.map(|at| at.saturating_duration_since(now).as_secs_f64()));
        gauge(e, ("throughline_shard_lease_left_seconds", about), left)?;
        let about = "Seconds for which nobody has held the shard; 0 while somebody does.";
        let unheld = of(&|row| row.unheld.map(|since| since.map_or(0.0, ago)));
        gauge(e, ("throughline_shard_unheld_seconds", about), unheld)?;
        let mut not_live = of(&|row| row.leads.then_some(0.0));
        for (cluster, seconds) in self.watches.upstreams_not_live() {
            let shard = shards.of(cluster.as_str());
            if let Some((_, longest)) = not_live.iter_mut().find(|(led, _)| *led == shard) {
                *longest = longest.max(seconds);
            }
        }
        let about = "Seconds for which the watch of an upstream of the shard, which this instance \
                     leads, has not been live: the longest.";
        gauge(e, ("throughline_shard_not_live_seconds", about), not_live)?;
        let about = "How often another instance was seen to hold the shard than before.";
        let mut metric =
            e.encode_descriptor("throughline_shard_moves", about, None, MetricType::Counter)?;
        for (shard, row) in &rows {
            let labels = [("shard", shard.to_string())];
            ConstCounter::new(row.moves).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::data::ids::Kind;
    use crate::metrics::Format;

    fn four() -> (Metrics, Shards) {
        let (metrics, shards) = (Metrics::new(), Shards::try_from(4).unwrap());
        metrics.set_shards(shards);
        (metrics, shards)
    }

    fn shown(metrics: &Metrics) -> Vec<String> {
        let text = metrics.text(None, Format::Plain);
        let of_shards = |line: &&str| line.starts_with("throughline_shard");
        text.lines().filter(of_shards).map(str::to_owned).collect()
    }

    #[test]
    fn one_shard_has_no_series() {
        let metrics = Metrics::new();
        metrics.set_shards(Shards::ONE);
        metrics.set_shard_holder(Shard::FIRST, "pod-a");
        metrics.set_shard_unheld(Shard::FIRST, None);
        assert_eq!(shown(&metrics), [""; 0]);
        assert_eq!(metrics.shard_holders(), []);
    }

    #[test]
    fn an_instance_leads_while_it_leads_any_shard() {
        let (metrics, _) = four();
        let master = || {
            let text = metrics.text(None, Format::Plain);
            let value = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(name)).unwrap();
                line.rsplit(' ').next().unwrap().to_owned()
            };
            (value("leader_election_master_status"), value("throughline_leadership_changes_total"))
        };
        let told = |status: &str, changes: &str| (status.to_owned(), changes.to_owned());
        metrics.set_shard_leader(Shard(1), true);
        metrics.set_shard_leader(Shard(3), true);
        assert_eq!(master(), told("1", "1"));
        metrics.set_shard_leader(Shard(1), false);
        assert_eq!(master(), told("1", "1"));
        metrics.set_shard_leader(Shard(3), false);
        assert_eq!(master(), told("0", "2"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_move_is_a_holder_that_is_not_the_former_one() {
        let (metrics, _) = four();
        let moves = |shard: u16| {
            let series = format!("throughline_shard_moves_total{{shard=\"{shard}\"}} ");
            let lines = shown(&metrics);
            lines.iter().find_map(|l| l.strip_prefix(&series)).unwrap().parse::<u64>().unwrap()
        };
        metrics.set_shard_holder(Shard(2), "pod-a");
        tokio::time::advance(Duration::from_secs(7)).await;
        let holder = &metrics.shard_holders()[2];
        assert_eq!((holder.holder.as_deref(), holder.held_ms), (Some("pod-a"), Some(7_000)));
        assert_eq!(moves(2), 0);
        // Released, and taken again by the same instance.
        metrics.set_shard_holder(Shard(2), "");
        assert_eq!(metrics.shard_holders()[2].holder, None);
        metrics.set_shard_holder(Shard(2), "pod-a");
        assert_eq!(moves(2), 0);
        metrics.set_shard_holder(Shard(2), "pod-b");
        metrics.set_shard_holder(Shard(2), "pod-a");
        assert_eq!((moves(2), moves(0)), (2, 0));
        // There is no such shard.
        metrics.set_shard_holder(Shard(4), "pod-a");
        assert_eq!(metrics.shard_holders().len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_without_a_holder_says_for_how_long() {
        let (metrics, _) = four();
        let unheld = || {
            let lines = shown(&metrics);
            let of = |l: &&String| l.starts_with("throughline_shard_unheld_seconds{");
            lines.iter().filter(of).cloned().collect::<Vec<_>>()
        };
        assert_eq!(unheld(), [""; 0], "unknown before the Leases were read");
        metrics.set_shard_unheld(Shard(0), None);
        metrics.set_shard_unheld(Shard(1), Some(Instant::now()));
        tokio::time::advance(Duration::from_secs(40)).await;
        let series =
            |shard, value| format!("throughline_shard_unheld_seconds{{shard=\"{shard}\"}} {value}");
        assert_eq!(unheld(), [series(0, "0.0"), series(1, "40.0")]);
        assert_eq!(metrics.shard_holders()[1].unheld_ms, Some(40_000));
    }

    #[test]
    fn a_shard_that_is_led_says_whether_its_upstreams_are_followed() {
        let (metrics, shards) = four();
        let upstream = ClusterName::from("us-east");
        let shard = shards.of("us-east");
        let led = |value: Option<f64>| {
            let name = format!("throughline_shard_not_live_seconds{{shard=\"{shard}\"}} ");
            let lines = shown(&metrics);
            let of = lines.iter().find_map(|l| l.strip_prefix(&name));
            assert_eq!(of.map(|v| v.parse::<f64>().unwrap() > 0.0), value.map(|v| v > 0.0));
        };
        let watch = metrics.watch(&upstream, Kind::Connector);
        metrics.set_upstream(&upstream);
        led(None);
        metrics.set_shard_leader(shard, true);
        std::thread::sleep(Duration::from_millis(5));
        led(Some(1.0));
        watch.list_started();
        led(Some(1.0));
        watch.list_finished(3);
        led(Some(0.0));
        watch.lost(&"dial 10.0.0.1: refused".into());
        std::thread::sleep(Duration::from_millis(5));
        led(Some(1.0));
        watch.resumed();
        led(Some(0.0));
        // A hub's or an edge's watch says nothing about a shard.
        drop(metrics.watch(&"hub".into(), Kind::Connector));
        led(Some(0.0));
        metrics.set_shard_leader(shard, false);
        led(None);
    }
}
