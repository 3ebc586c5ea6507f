//! Metrics of the process, read from `/proc` at each scrape; absent on systems other than Linux.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{Counter, Gauge};

use super::text::encode_family;

/// Ticks a second in `/proc`: `USER_HZ` is 100 on every architecture that throughline is built for.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub(super) struct ProcessMetrics {
    started_at: Option<f64>,
}

impl ProcessMetrics {
    pub(super) fn new() -> Self {
        Self { started_at: started_at() }
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut one = |kind, name, help, value: Option<f64>| {
            encode_family(&mut encoder, kind, (name, help), value.map(|value| (Vec::new(), value)))
        };
        one(
            Counter,
            "process_cpu_seconds",
            "CPU time in seconds, user and system.",
            cpu_seconds(),
        )?;
        let help = "Start time in seconds since 1970.";
        one(Gauge, "process_start_time_seconds", help, self.started_at)?;
        let help = "Resident memory in bytes.";
        one(Gauge, "process_resident_memory_bytes", help, resident_bytes())?;
        one(Gauge, "process_open_fds", "Open file descriptors.", open_fds())?;
        let help = "Maximum number of open file descriptors.";
        one(Gauge, "process_max_fds", help, max_fds().map(|most| most as f64))
    }
}

/// The fields of `/proc/self/stat` after the command, which may hold spaces and parentheses. The
/// first is the state, field 3 of proc(5).
fn stat() -> Option<Vec<u64>> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

fn cpu_seconds() -> Option<f64> {
    let stat = stat()?;
    let (user, system) = (*stat.get(14 - 3)?, *stat.get(15 - 3)?);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

fn started_at() -> Option<f64> {
    let ticks = *stat()?.get(22 - 3)?;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let booted_at: f64 =
        stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted_at + ticks as f64 / TICKS_PER_SECOND)
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024.0)
}

fn open_fds() -> Option<f64> {
    // Minus the descriptor that reading the directory opens.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

/// How many descriptors the process may have; `None` where that is unlimited or unknown.
pub(crate) fn max_fds() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
