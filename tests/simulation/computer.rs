//! The computer of an instance: a clock at its own rate, a wall clock that jumps, random numbers from
//! the seed, and a process that can be frozen and killed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use throughline::environment::{Connected, Environment};
use tokio::time::Instant;

use crate::crash_points::CrashProbe;
use crate::network::Network;
use crate::random::Random;

/// 2026-11-22 00:00 UTC, in seconds.
const EPOCH_S: u64 = 1_795_305_600;

#[derive(Debug, Default, PartialEq, Eq)]
enum Process {
    #[default]
    Runs,
    Frozen,
    Killed,
}

pub(crate) struct Computer {
    pub(crate) client: u32,
    /// How much faster its clock runs, in thousandths; may be negative.
    rate: i64,
    started: Instant,
    network: Option<Network>,
    pub(crate) probe: Arc<CrashProbe>,
    state: Mutex<State>,
    released: AtomicI64,
    /// How many of its tasks are being dropped, one within the other.
    depth: AtomicU32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Disk {
    #[default]
    Works,
    Full,
    Hangs,
}

#[derive(Default)]
struct State {
    disk: Disk,
    files: BTreeMap<PathBuf, Vec<u8>>,
    disk_wakers: Vec<Waker>,
    random: Random,
    wall_offset_ms: i64,
    process: Process,
    wakers: Vec<Waker>,
}

impl Computer {
    pub(crate) fn new(client: u32, rate: i64, random: Random, network: Option<Network>) -> Self {
        let state = Mutex::new(State { random, ..State::default() });
        let (started, probe) = (Instant::now(), Arc::default());
        let (released, depth) = (AtomicI64::new(0), AtomicU32::new(0));
        Self { client, rate, started, network, probe, state, released, depth }
    }

    /// The bytes that were freed so far when the instance's tasks were dropped.
    pub(crate) fn released(&self) -> i64 {
        self.released.load(Ordering::Relaxed)
    }

    pub(crate) fn set_wall_offset(&self, ms: i64) {
        self.state.lock().unwrap().wall_offset_ms = ms;
    }

    pub(crate) fn set_disk(&self, disk: Disk) {
        let mut state = self.state.lock().unwrap();
        state.disk = disk;
        state.disk_wakers.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn file(&self, path: &str) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        state.files.get(Path::new(path)).cloned().unwrap_or_default()
    }

    pub(crate) fn freeze(&self) {
        self.state.lock().unwrap().process = Process::Frozen;
    }

    pub(crate) fn thaw(&self) {
        let mut state = self.state.lock().unwrap();
        if state.process == Process::Frozen {
            state.process = Process::Runs;
        }
        state.wakers.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn kill(&self) {
        self.state.lock().unwrap().process = Process::Killed;
        if let Some(network) = &self.network {
            network.cut_client(self.client);
        }
    }

    /// How many times a second of its clock fits into 1,000 seconds.
    fn times(&self) -> u128 {
        u128::try_from(1_000 + self.rate).unwrap()
    }
}

fn duration(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Environment for Computer {
    fn wall_clock(&self) -> Duration {
        let now = Duration::from_secs(EPOCH_S) + self.counts(self.started.elapsed());
        let offset_ms = self.state.lock().unwrap().wall_offset_ms;
        let offset = Duration::from_millis(offset_ms.unsigned_abs());
        if offset_ms < 0 { now.saturating_sub(offset) } else { now + offset }
    }

    fn counts(&self, elapsed: Duration) -> Duration {
        duration(elapsed.as_nanos() * self.times() / 1_000)
    }

    fn takes(&self, time: Duration) -> Duration {
        duration((time.as_nanos() * 1_000).div_ceil(self.times()))
    }

    fn random(&self) -> u64 {
        self.state.lock().unwrap().random.next()
    }

    fn connect(&self, host: &str, _: u16) -> BoxFuture<'static, io::Result<Box<dyn Connected>>> {
        match &self.network {
            Some(network) => network.connect(self.client, host, self.probe.clone()),
            None => Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) }),
        }
    }

    fn append(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.disk == Disk::Full || !self.probe.pass() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.files.entry(file.to_owned()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn poll_disk(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock().unwrap();
        if state.disk != Disk::Hangs {
            return Poll::Ready(());
        }
        state.disk_wakers.push(cx.waker().clone());
        Poll::Pending
    }

    fn poll_runs(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock().unwrap();
        match state.process {
            Process::Runs => return Poll::Ready(()),
            Process::Frozen => state.wakers.push(cx.waker().clone()),
            Process::Killed => {}
        }
        Poll::Pending
    }

    fn release(&self, drop_it: &mut dyn FnMut()) {
        // A task may hold another one; the outer one counts for both.
        if self.depth.fetch_add(1, Ordering::Relaxed) == 0 {
            let freed = allocation_counter::measure(drop_it);
            self.released.fetch_sub(freed.bytes_current, Ordering::Relaxed);
        } else {
            drop_it();
        }
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }
}
