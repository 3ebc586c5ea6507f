//! Metrics of the process, read from `/proc` at each scrape; absent on systems other than Linux.

use std::fs;
use std::sync::LazyLock;

use prometheus_client::registry::Registry;

use super::text::{counters, gauges};

/// Ticks a second in `/proc`: `USER_HZ` is 100 on all supported architectures.
const TICKS_PER_SECOND: f64 = 100.0;

/// Read once: the kernel computes it from a clock that may be set.
static STARTED_AT: LazyLock<Option<f64>> =
    LazyLock::new(|| Some(labelled("/proc/stat", "btime ")? as f64 + stat(22)? / TICKS_PER_SECOND));

pub(super) fn scrape(scrape: &mut Registry) {
    let one = |value: Option<f64>| value.map(|value| (Vec::new(), value));
    let help = "CPU time in seconds, user and system";
    scrape.register("process_cpu_seconds", help, counters(one(cpu_seconds())));
    let help = "Start time in seconds since 1970";
    scrape.register("process_start_time_seconds", help, gauges(one(*STARTED_AT)));
    let help = "Resident memory in bytes";
    scrape.register("process_resident_memory_bytes", help, gauges(one(resident_bytes())));
    scrape.register("process_open_fds", "Open file descriptors", gauges(one(open_fds())));
    let help = "Maximum number of open file descriptors";
    scrape.register("process_max_fds", help, gauges(one(max_fds().map(|most| most as f64))));
}

/// A field of `/proc/self/stat`, by its number in proc(5).
fn stat(field: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the command, may hold spaces and parentheses.
    let (_, from_third) = stat.rsplit_once(") ")?;
    from_third.split_whitespace().nth(field - 3)?.parse().ok()
}

/// The first word of a line in a file, after its label.
fn labelled(file: &str, label: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(label))?;
    value.split_whitespace().next()?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    Some((stat(14)? + stat(15)?) / TICKS_PER_SECOND)
}

fn resident_bytes() -> Option<f64> {
    Some(labelled("/proc/self/status", "VmRSS:")? as f64 * 1024.0)
}

fn open_fds() -> Option<f64> {
    // Minus the descriptor that reading the directory opens.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

/// The process's limit of descriptors; `None` if it is unlimited or unknown.
pub(crate) fn max_fds() -> Option<u64> {
    labelled("/proc/self/limits", "Max open files")
}
