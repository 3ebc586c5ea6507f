//! The targets of an edge that are to be written: in which order, and how many at a time.

use std::collections::BTreeSet;

use crate::contract::settings::TouchSettings;
use crate::contract::touches_waiting::TouchesWaiting;
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::edge::touch_state::TouchTarget;

/// Which touches go first while an edge takes no more: the first is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TouchRank {
    /// Something changed, so requests may go wrong until it is announced.
    Change,
    /// It repeats the announcement of a change, in case a cache was late.
    Confirmation,
    /// Nothing is known to have changed: throughline has just started, the Gateway is new, or a watch
    /// was lost. And what confirms such a touch.
    Unverified,
}

impl TouchRank {
    const ALL: [Self; 3] = [Self::Change, Self::Confirmation, Self::Unverified];
}

/// When a target is to be written, and how urgent that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TouchTime {
    pub(super) rank: TouchRank,
    pub(crate) at: UnixMillis,
}

type Targets = BTreeSet<(UnixMillis, TouchTarget)>;

/// The targets that are to be written, by rank and time.
#[derive(Default)]
pub(super) struct TouchQueue {
    /// In the order of [`TouchRank::ALL`].
    targets: [Targets; 3],
    pace: EdgePace,
    /// How many changes went ahead of others that were due.
    overtaken: u32,
    /// The number that waited when it was last reported; 0 while none does for long.
    reported: u64,
    /// When they are counted again for the next report.
    count_at: UnixMillis,
    /// How many waited, and when that was counted.
    counted: Option<(UnixMillis, u64)>,
}

/// While less urgent touches are due, one in so many is among them.
const SHARE_OF_OTHERS: u32 = 16;

/// A count of those that wait is used for so long.
const COUNT_EVERY_MS: u64 = 1_000;

impl HoldsNames for TouchQueue {
    fn mark(&self, used: &mut UsedNames) {
        let Self { targets, pace: _, overtaken: _, reported: _, count_at: _, counted: _ } = self;
        targets.iter().for_each(|targets| targets.mark(used));
    }
}

impl TouchQueue {
    fn targets(&self, rank: TouchRank) -> &Targets {
        &self.targets[rank as usize]
    }

    fn targets_mut(&mut self, rank: TouchRank) -> &mut Targets {
        &mut self.targets[rank as usize]
    }

    /// Moves a target from one time to another; `None` stands for "not in the queue".
    pub(super) fn reschedule(
        &mut self,
        target: TouchTarget,
        from: Option<TouchTime>,
        to: Option<TouchTime>,
    ) {
        if from == to {
            return;
        }
        if let Some(time) = from {
            let was_queued = self.targets_mut(time.rank).remove(&(time.at, target));
            debug_assert!(was_queued, "{target:?} was scheduled but not in the queue");
        }
        if let Some(time) = to {
            let is_first = self.targets_mut(time.rank).insert((time.at, target));
            debug_assert!(is_first, "{target:?} was in the queue but not scheduled");
        }
    }

    pub(super) fn contains(&self, time: TouchTime, target: TouchTarget) -> bool {
        self.targets(time.rank).contains(&(time.at, target))
    }

    /// Takes the targets that are due, as many as the edge takes: one bundle. Confirmations that
    /// would follow within the window go along, so that they don't cost translations of their own.
    pub(super) fn take_bundle(
        &mut self,
        now: UnixMillis,
        settings: &TouchSettings,
    ) -> Vec<TouchTarget> {
        let mut bundle = Vec::new();
        while let Some((rank, at, target)) = self.next(now, settings) {
            if !self.pace.has_room(now, self.counts_as(rank), settings.max_per_second) {
                break;
            }
            self.pace.take(settings.max_per_second);
            self.targets_mut(rank).remove(&(at, target));
            let others_wait = self.first_of_others().is_some_and(|(_, at, _)| at <= now);
            self.overtaken = match rank {
                TouchRank::Change if others_wait => self.overtaken + 1,
                _ => 0,
            };
            bundle.push(target);
        }
        bundle
    }

    /// So many changes went ahead that one of the others is next.
    fn share_is_due(&self) -> bool {
        self.overtaken >= SHARE_OF_OTHERS - 1
    }

    /// The rank by which the pace has room for it.
    fn counts_as(&self, rank: TouchRank) -> TouchRank {
        if self.share_is_due() { TouchRank::Change } else { rank }
    }

    /// The target that goes next.
    fn next(
        &self,
        now: UnixMillis,
        settings: &TouchSettings,
    ) -> Option<(TouchRank, UnixMillis, TouchTarget)> {
        let first = |rank: TouchRank, until: UnixMillis| {
            let (at, target) = self.targets(rank).first().copied()?;
            (at <= until).then_some((rank, at, target))
        };
        if self.share_is_due()
            && let Some(other) = self.first_of_others().filter(|(_, at, _)| *at <= now)
        {
            return Some(other);
        }
        first(TouchRank::Change, now)
            .or_else(|| first(TouchRank::Confirmation, now.plus(settings.window_ms)))
            .or_else(|| first(TouchRank::Unverified, now))
    }

    /// The one that has waited longest of those that are no changes.
    fn first_of_others(&self) -> Option<(TouchRank, UnixMillis, TouchTarget)> {
        [TouchRank::Confirmation, TouchRank::Unverified]
            .into_iter()
            .filter_map(|rank| {
                let (at, target) = self.targets(rank).first().copied()?;
                Some((rank, at, target))
            })
            .min_by_key(|(_, at, _)| *at)
    }

    /// A target of a bundle had nothing to write after all.
    pub(super) fn give_back(&mut self, settings: &TouchSettings) {
        self.pace.give_back(settings.max_per_second);
    }

    /// When the next bundle is due.
    pub(super) fn next_at(&self, now: UnixMillis, settings: &TouchSettings) -> Option<UnixMillis> {
        let next_at = |rank| {
            let &(at, _) = self.targets(rank).first()?;
            Some(at.max(self.pace.room_at(now, self.counts_as(rank), settings.max_per_second)))
        };
        TouchRank::ALL.into_iter().filter_map(next_at).min()
    }

    /// The touches that are due and wait, because the edge takes no more; `None` below a second's worth.
    pub(super) fn waiting(
        &self,
        now: UnixMillis,
        settings: &TouchSettings,
    ) -> Option<TouchesWaiting> {
        long_enough(self.count(now), settings)
    }

    /// The same, as it was within the last second: many may ask at once.
    pub(super) fn waiting_lately(
        &mut self,
        now: UnixMillis,
        settings: &TouchSettings,
    ) -> Option<TouchesWaiting> {
        let lately = self.counted.filter(|(at, _)| now.since(*at) < COUNT_EVERY_MS);
        let (at, touches) = lately.unwrap_or_else(|| (now, self.count(now)));
        self.counted = Some((at, touches));
        long_enough(touches, settings)
    }

    fn count(&self, now: UnixMillis) -> u64 {
        let due = |targets: &Targets| targets.iter().take_while(|(at, _)| *at <= now).count();
        self.targets.iter().map(due).sum::<usize>() as u64
    }

    /// Whether to report that no touch waits any longer.
    pub(super) fn report_end(&mut self, now: UnixMillis) -> bool {
        let is_due = |targets: &Targets| targets.first().is_some_and(|(at, _)| *at <= now);
        let is_over = self.reported > 0 && !self.targets.iter().any(is_due);
        if is_over {
            self.reported = 0;
        }
        is_over
    }

    /// What there is to report of the touches that wait after a bundle: that there are many, or twice or
    /// half as many as at the last report. They are counted once a second.
    pub(super) fn report(
        &mut self,
        now: UnixMillis,
        settings: &TouchSettings,
    ) -> Option<TouchesWaiting> {
        if now < self.count_at {
            return None;
        }
        self.count_at = now.plus(COUNT_EVERY_MS);
        let waiting = self.waiting(now, settings)?;
        let is_news = waiting.touches >= self.reported * 2 || waiting.touches <= self.reported / 2;
        if is_news {
            self.reported = waiting.touches;
        }
        is_news.then_some(waiting)
    }
}

fn long_enough(touches: u64, settings: &TouchSettings) -> Option<TouchesWaiting> {
    let per_second = settings.max_per_second;
    (touches > per_second.into()).then_some(TouchesWaiting { touches, per_second })
}

/// How many touches an edge takes. One that was at rest takes some seconds' worth at once; touches that
/// announce no change leave half of that to those that do.
#[derive(Default)]
struct EdgePace {
    /// Thousandths of a touch that the edge took ahead of its pace.
    ahead: u64,
    counted_at: UnixMillis,
}

const TOUCH: u64 = 1_000;

impl EdgePace {
    fn limit(rank: TouchRank, per_second: u32) -> u64 {
        let burst = u64::from(per_second) * u64::from(TouchSettings::BURST_SECONDS) * TOUCH;
        match rank {
            TouchRank::Change => burst,
            TouchRank::Confirmation | TouchRank::Unverified => burst / 2,
        }
    }

    /// A thousandth of a touch for each millisecond and touch a second.
    fn ahead_at(&self, now: UnixMillis, per_second: u32) -> u64 {
        let passed = now.since(self.counted_at).saturating_mul(per_second.into());
        self.ahead.saturating_sub(passed).min(Self::limit(TouchRank::Change, per_second))
    }

    fn has_room(&mut self, now: UnixMillis, rank: TouchRank, per_second: u32) -> bool {
        self.ahead = self.ahead_at(now, per_second);
        self.counted_at = now;
        per_second == 0 || self.ahead + TOUCH <= Self::limit(rank, per_second)
    }

    fn room_at(&self, now: UnixMillis, rank: TouchRank, per_second: u32) -> UnixMillis {
        if per_second == 0 {
            return UnixMillis(0);
        }
        let ahead = self.ahead_at(now, per_second) + TOUCH;
        let over = ahead.saturating_sub(Self::limit(rank, per_second));
        if over == 0 { UnixMillis(0) } else { now.plus(over.div_ceil(per_second.into())) }
    }

    fn take(&mut self, per_second: u32) {
        if per_second > 0 {
            self.ahead += TOUCH;
        }
    }

    fn give_back(&mut self, per_second: u32) {
        if per_second > 0 {
            self.ahead = self.ahead.saturating_sub(TOUCH);
        }
    }
}
