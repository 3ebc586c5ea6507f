//! How many annotations of an upstream are held, and for which reason. What holds one often holds a
//! thousand, so a reason is reported when it begins and when it ends.

use std::collections::BTreeMap;

use super::super::Controller;
use crate::contract::hold_reason::HoldReason;
use crate::contract::note::NoteKind;
use crate::data::ids::ClusterName;
use crate::data::time::UnixMillis;
use crate::next::scheduler::Timer;

/// How long the holds of one cause are counted before they are reported.
const COUNT_MS: u64 = 1_000;

/// How many annotations of one upstream are held for each reason.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    counts: BTreeMap<HoldReason, u64>,
    /// How many there were when that was last reported.
    reported: BTreeMap<HoldReason, u64>,
}

/// A reason that begins or ends is reported, once those of one cause are counted.
pub(super) fn move_hold(
    c: &mut Controller,
    upstream: &ClusterName,
    before: Option<HoldReason>,
    held: Option<HoldReason>,
    now: UnixMillis,
) {
    if before == held {
        return;
    }
    let holds = c.memory.holds.entry(upstream.clone()).or_default();
    holds.count(before, held);

    let timer = Timer::Holds(upstream.clone());
    if holds.is_news() && c.scheduler.timer(&timer).is_none() {
        c.scheduler.set_timer(timer, Some(now.plus(COUNT_MS)));
    }
}

/// Reports the reasons for which an upstream's annotations are held, each when it begins and when it
/// ends.
pub(in super::super) fn report_holds(c: &mut Controller, upstream: &ClusterName) {
    let named = c.world.counts_of(upstream).connectors;
    let Some(holds) = c.memory.holds.get_mut(upstream) else { return };

    for (reason, held) in holds.take_news() {
        let cluster = upstream.clone();
        c.notes.push(NoteKind::Held { cluster, reason, held, named });
    }
    if holds.is_empty() {
        c.memory.holds.remove(upstream);
    }
}

impl Holds {
    fn count(&mut self, before: Option<HoldReason>, held: Option<HoldReason>) {
        if let Some(before) = before.and_then(|reason| self.counts.get_mut(&reason)) {
            *before = before.saturating_sub(1);
        }
        if let Some(held) = held {
            *self.counts.entry(held).or_default() += 1;
        }
        self.counts.retain(|_, count| *count > 0);
    }

    fn is_news(&self) -> bool {
        !self.counts.keys().eq(self.reported.keys())
    }

    /// The reasons that began or ended since the last report, and how many they hold now. Who only
    /// waits for its turn needs nobody.
    fn take_news(&mut self) -> Vec<(HoldReason, u64)> {
        let before = std::mem::replace(&mut self.reported, self.counts.clone());
        let is_news = |reason: &HoldReason| {
            self.counts.contains_key(reason) != before.contains_key(reason) && !reason.is_turn()
        };
        let count = |reason| (reason, self.counts.get(&reason).copied().unwrap_or_default());
        HoldReason::ALL.into_iter().filter(is_news).map(count).collect()
    }

    fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.reported.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_news_when_it_begins_and_when_it_ends() {
        let missing = HoldReason::NamespaceMissing;
        let mut holds = Holds::default();
        holds.count(None, Some(missing));
        holds.count(None, Some(missing));
        assert!(holds.is_news());
        assert_eq!(holds.take_news(), [(missing, 2)]);

        holds.count(Some(missing), None);
        assert!(!holds.is_news(), "one is left");
        holds.count(Some(missing), Some(HoldReason::TooMany));
        assert_eq!(holds.take_news(), [(missing, 0), (HoldReason::TooMany, 1)]);
    }

    #[test]
    fn who_waits_for_his_turn_needs_nobody() {
        let mut holds = Holds::default();
        holds.count(None, Some(HoldReason::Budget));
        assert_eq!(holds.take_news(), []);

        holds.count(Some(HoldReason::Budget), None);
        holds.take_news();
        assert!(holds.is_empty());
    }
}
