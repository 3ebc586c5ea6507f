//! Memory and CPU time of a process, from `/proc`.

use std::fs;

/// Resident memory, in MB of 1,000,000 bytes.
pub(crate) fn resident_mb(pid: u32) -> f64 {
    status_mb(pid, "VmRSS:")
}

/// A size in `/proc/PID/status`, in MB.
pub(crate) fn status_mb(pid: u32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(field)).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024.0 / 1e6
}

/// CPU time so far, in user and kernel mode.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    /// `CLK_TCK`, which is 100 on all common Linux platforms.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let fields: Vec<_> = rest.split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|f| f.parse::<f64>().unwrap()).sum();
    ticks / TICKS_PER_SECOND
}
