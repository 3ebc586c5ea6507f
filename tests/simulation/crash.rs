//! Points at which an instance can crash: before it sends something, when it was answered and has not
//! taken the answer yet, when it takes one, and when it writes to its disk or logs a line.

use std::collections::BTreeMap;
use std::sync::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CrashPoint {
    /// Before a request, or a part of it, leaves.
    Send,
    /// A server has answered, or sent a part of a watch, and the instance does not have it yet.
    Answered,
    /// As it takes an answer, or a part of a watch.
    Take,
    /// Before a line enters its event log.
    LogLine,
    /// Before something is written to its disk.
    Disk,
}

/// Counts the points that an instance passes, and ends it at one of them.
#[derive(Default)]
pub(crate) struct CrashProbe(Mutex<State>);

#[derive(Default)]
struct State {
    is_armed: bool,
    /// The number of the point at which the instance ends.
    ends_at: Option<u64>,
    passed: u64,
    by_kind: BTreeMap<CrashPoint, u64>,
    is_dead: bool,
}

impl CrashProbe {
    /// Counts from now on.
    pub(crate) fn arm(&self, ends_at: Option<u64>) {
        let mut state = self.0.lock().unwrap();
        (state.is_armed, state.ends_at) = (true, ends_at);
    }

    pub(crate) fn disarm(&self) {
        self.0.lock().unwrap().is_armed = false;
    }

    /// Whether the instance lives on behind this point. Nothing that it does afterwards may show.
    pub(crate) fn pass(&self, point: CrashPoint) -> bool {
        let mut state = self.0.lock().unwrap();
        if state.is_armed && !state.is_dead {
            state.passed += 1;
            *state.by_kind.entry(point).or_default() += 1;
            state.is_dead = state.ends_at == Some(state.passed);
        }
        !state.is_dead
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.lock().unwrap().is_dead
    }

    pub(crate) fn passed(&self) -> BTreeMap<CrashPoint, u64> {
        self.0.lock().unwrap().by_kind.clone()
    }
}
