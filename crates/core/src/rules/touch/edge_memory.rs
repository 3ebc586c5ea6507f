//! The state that all touches of an edge share.

use std::collections::BTreeSet;

use crate::data::name::NamespacedName;
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

/// How many touches of an edge are due and wait, and the rate at which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TouchesWaiting {
    /// One per Gateway; 0 once none waits.
    pub(crate) touches: u64,
    pub(crate) per_second: u32,
}

impl TouchesWaiting {
    /// How many seconds these touches take if no more are added.
    pub(crate) fn seconds(self) -> u64 {
        self.touches.div_ceil(u64::from(self.per_second).max(1))
    }
}

/// The last report of touches that wait for the edge's rate limit.
#[derive(Debug, Default)]
pub(crate) struct WaitingReport {
    /// The last number reported; 0 while the queue is short.
    reported: u64,
    /// When to count them again.
    count_at: UnixMillis,
    activity: Activity,
}

/// What happened to the queue of touches in this step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Activity {
    #[default]
    None,
    Planned,
    /// A touch is due: it is sent now, or waits.
    Due,
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
    /// Takes the plan of a target. `is_due`: its touch is sent now, or waits for the edge's limit.
    pub(crate) fn on_planned(&mut self, is_due: bool) {
        let activity = if is_due { Activity::Due } else { Activity::Planned };
        self.activity = self.activity.max(activity);
    }

    /// The queue as a whole is reported, so a single touch in it is not.
    pub(crate) fn is_reported(&self) -> bool {
        self.reported > 0
    }

    /// Returns a report if the queue became long, doubled or halved since the last report, or is
    /// empty again. Counts at most once a second.
    pub(crate) fn news(
        &mut self,
        queue: Option<&WriteQueue>,
        per_second: u32,
        now: UnixMillis,
    ) -> Option<TouchesWaiting> {
        let activity = std::mem::take(&mut self.activity);
        let is_waiting = || queue.is_some_and(|queue| queue.is_waiting(now));
        if activity >= Activity::Planned && self.reported > 0 && !is_waiting() {
            self.reported = 0;
            return Some(TouchesWaiting { touches: 0, per_second });
        }
        if activity < Activity::Due || now < self.count_at {
            return None;
        }

        self.count_at = now.plus(COUNT_EVERY_MS);
        let waiting = touches_waiting(queue, per_second, now)?;
        let is_news = waiting.touches >= self.reported * 2 || waiting.touches <= self.reported / 2;
        if is_news {
            self.reported = waiting.touches;
        }
        is_news.then_some(waiting)
    }
}

/// The touches of an edge that are due and wait; `None` if they take less than a second.
pub(crate) fn touches_waiting(
    queue: Option<&WriteQueue>,
    per_second: u32,
    now: UnixMillis,
) -> Option<TouchesWaiting> {
    many_waiting(count(queue, now), per_second)
}

fn count(queue: Option<&WriteQueue>, now: UnixMillis) -> u64 {
    queue.map_or(0, |queue| queue.waiting(now) as u64)
}

fn many_waiting(touches: u64, per_second: u32) -> Option<TouchesWaiting> {
    (touches > per_second.into()).then_some(TouchesWaiting { touches, per_second })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ids::Kind;
    use crate::data::object_ref::{ClusterId, ObjectRef};
    use crate::rate_limit::Rate;
    use crate::subject::{Subject, Target};
    use crate::write_queue::{Due, QueueLimit};

    #[test]
    fn touches_that_wait_are_reported_when_they_are_many_and_when_none_is_left() {
        let now = UnixMillis(1_000_000);
        let mut queue = WriteQueue::new(QueueLimit::of(Rate::UNLIMITED));
        let subject = |n: u32| {
            let name = NamespacedName::new("ns", &n.to_string());
            let at = ObjectRef { cluster: ClusterId(1), kind: Kind::Gateway, name };
            Subject::Target(Target::Gateway(at))
        };
        (0..100).for_each(|n| queue.insert(&subject(n), Due::at(now), now));
        let mut report = WaitingReport::default();
        let mut news = |queue: &WriteQueue, now| {
            report.on_planned(true);
            report.news(Some(queue), 50, now).map(|waiting| waiting.touches)
        };

        assert_eq!(news(&queue, now), Some(100));
        assert_eq!(news(&queue, now.plus(1_000)), None, "no more than before");
        while queue.admit(now).is_some() {}
        assert_eq!(news(&queue, now.plus(1_001)), Some(0));
        assert_eq!(news(&queue, now.plus(9_000)), None);
    }
}
