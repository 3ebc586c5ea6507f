//! The state that all touches of an edge share.

use std::collections::BTreeSet;

use crate::data::ids::NamespacedName;
use crate::data::time::UnixMillis;
use crate::write_queue::WriteQueue;

/// A count of the waiting touches is reused for this long.
const COUNT_EVERY_MS: u64 = 1_000;

#[derive(Debug, Default)]
pub(crate) struct EdgeMemory {
    /// Starts of outages. What was announced around them is confirmed once more, some minutes after
    /// their end. At most two: the next one due, and the first after it. A later outage must not
    /// postpone the first: a proxy that cuts watches every minute would postpone it for ever.
    pub(crate) outages: Vec<UnixMillis>,
    /// Connectors that waited for a paused Gateway. Their latency is not reported.
    pub(crate) have_paused: BTreeSet<NamespacedName>,
    pub(crate) report: WaitingReport,
}

/// The last report of touches that wait for the edge's rate limit.
#[derive(Debug, Default)]
pub(crate) struct WaitingReport {
    /// The last number reported; 0 while the queue is short.
    reported: u64,
    /// When to count them again.
    count_at: UnixMillis,
    /// A touch was due in this step: it is sent now, or waits.
    pub(crate) is_due: bool,
}

impl EdgeMemory {
    /// Records an outage whose lists are complete again. Returns whether its confirmation is to be
    /// scheduled now.
    pub(crate) fn on_outage(&mut self, since: UnixMillis) -> bool {
        if self.outages.len() < 2 {
            self.outages.push(since);
        }
        self.outages.len() == 1
    }
}

impl WaitingReport {
    /// The queue as a whole is reported, so a single touch in it is not.
    pub(crate) fn is_reported(&self) -> bool {
        self.reported > 0
    }

    /// Returns how many touches are due and wait, one for each Gateway, if the queue became long,
    /// doubled or halved since the last report, or is empty again. Counts at most once a second.
    pub(crate) fn news(
        &mut self,
        queue: Option<&WriteQueue>,
        per_second: u32,
        now: UnixMillis,
    ) -> Option<u64> {
        let is_due = std::mem::take(&mut self.is_due);
        if self.reported > 0 && !queue.is_some_and(|queue| queue.is_waiting(now)) {
            self.reported = 0;
            return Some(0);
        }
        if !is_due || now < self.count_at {
            return None;
        }

        self.count_at = now.plus(COUNT_EVERY_MS);
        let waiting = queue.map_or(0, |queue| queue.waiting(now) as u64);
        let has_doubled_or_halved = waiting >= self.reported * 2 || waiting <= self.reported / 2;
        if waiting <= per_second.into() || !has_doubled_or_halved {
            return None;
        }

        self.reported = waiting;
        Some(waiting)
    }
}
