//! How fast an edge is touched, and the report of the touches that wait because it takes no more.

use crate::context::Context;
use crate::contract::settings::TouchSettings;
use crate::contract::touches_waiting::TouchesWaiting;
use crate::data::ids::ClusterId;
use crate::data::time::UnixMillis;
use crate::rate_limit::Rate;
use crate::write_queue::{QueueKey, QueueLimit};

/// An edge that was at rest takes some seconds' worth at once. Touches that announce no change leave half
/// of that to those that do.
pub(super) fn queue_limit(settings: &TouchSettings) -> QueueLimit {
    let per_second = settings.max_per_second;
    let at_once = per_second.saturating_mul(TouchSettings::BURST_SECONDS);
    QueueLimit {
        low_rank_rate: Rate::per_second(per_second, at_once / 2),
        ..QueueLimit::of(Rate::per_second(per_second, at_once))
    }
}

/// A count of the touches that wait is used for so long.
const COUNT_EVERY_MS: u64 = 1_000;

impl Context {
    /// The touches of an edge that are due and wait; `None` below a second's worth.
    pub(crate) fn touches_waiting(&self, edge: ClusterId) -> Option<TouchesWaiting> {
        self.long_enough(self.touches_due(edge))
    }

    fn touches_due(&self, edge: ClusterId) -> u64 {
        self.queues.waiting(QueueKey::Touches(edge), self.now) as u64
    }

    fn long_enough(&self, touches: u64) -> Option<TouchesWaiting> {
        let per_second = self.settings.touch.max_per_second;
        (touches > per_second.into()).then_some(TouchesWaiting { touches, per_second })
    }
}

/// What was reported of the touches that wait at one edge.
#[derive(Default)]
pub(super) struct WaitingReport {
    /// The number that waited when it was last reported; 0 while none does for long.
    reported: u64,
    /// When they are counted again for the next report.
    count_at: UnixMillis,
    /// How many waited, and when that was counted.
    counted: Option<(UnixMillis, u64)>,
}

impl WaitingReport {
    /// The touches that wait, as it was within the last second: many may ask at once.
    pub(super) fn waiting_lately(
        &mut self,
        ctx: &Context,
        edge: ClusterId,
    ) -> Option<TouchesWaiting> {
        let lately = self.counted.filter(|(at, _)| ctx.now.since(*at) < COUNT_EVERY_MS);
        let (at, touches) = lately.unwrap_or_else(|| (ctx.now, ctx.touches_due(edge)));
        self.counted = Some((at, touches));
        ctx.long_enough(touches)
    }

    /// Whether to report that no touch waits any longer.
    pub(super) fn has_ended(&mut self, ctx: &Context, edge: ClusterId) -> bool {
        let is_waiting = || ctx.queues.is_waiting(QueueKey::Touches(edge), ctx.now);
        let is_over = self.reported > 0 && !is_waiting();
        if is_over {
            self.reported = 0;
        }
        is_over
    }

    /// What there is to report of the touches that wait after a bundle: that there are many, or twice or
    /// half as many as at the last report. They are counted once a second.
    pub(super) fn news(&mut self, ctx: &Context, edge: ClusterId) -> Option<TouchesWaiting> {
        if ctx.now < self.count_at {
            return None;
        }
        self.count_at = ctx.now.plus(COUNT_EVERY_MS);
        let waiting = ctx.touches_waiting(edge)?;
        let is_news = waiting.touches >= self.reported * 2 || waiting.touches <= self.reported / 2;
        if is_news {
            self.reported = waiting.touches;
        }
        is_news.then_some(waiting)
    }
}
