//! Inputs that are far too large cost little memory. What counts is the peak of the whole process, so one
//! test runs at a time, and no other test is in this program.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

mod input_limits;
mod list_memory;
#[path = "../support/read_log.rs"]
mod read_log;

use std::fs;

use tokio::sync::Mutex;

const MIB: usize = 1024 * 1024;

/// Held by the test that measures.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Returns the memory in use. The peak counts from here.
fn reset_peak() -> usize {
    // proc(5).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    memory("VmRSS")
}

/// How much more memory there was at the peak.
fn growth(before: usize) -> usize {
    memory("VmHWM").saturating_sub(before)
}

/// A line of /proc/self/status, in bytes.
fn memory(line: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}
