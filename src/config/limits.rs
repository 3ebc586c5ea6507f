//! Numbers that are too small, too large, or inconsistent with each other.

use super::validate::Validator;
use crate::core::contract::settings::{DEFER_MS_MIN, DEFERRABLE_PER_SECOND_MAX, MirrorSettings};

/// API servers send a bookmark about once a minute, with jitter; between bookmarks an idle watch is
/// silent.
const BOOKMARK_MS: u64 = 90_000;

impl Validator<'_> {
    pub(super) fn minimums(&mut self) {
        let c = self.config;
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let least: &[(&str, u64, u64)] = &[
            ("watch.pageSize", c.watch.page_size.into(), 1),
            ("watch.timeoutMs", c.watch.timeout_ms, 1),
            ("watch.silentAfterMs", c.watch.silent_after_ms, 1_000),
            ("watch.backoffFirstMs", c.watch.backoff_first_ms, 1),
            ("watch.queue", count(c.watch.queue), 1),
            ("executor.parallel", count(c.executor.parallel), 1),
            ("executor.timeoutMs", c.executor.timeout_ms, 1),
            ("executor.tries", count(c.executor.tries), 1),
            ("executor.backoffFirstMs", c.executor.backoff_first_ms, 1),
            ("eventLog.maxBytes", c.event_log.max_bytes, 1),
            ("eventLog.keepDays", c.event_log.keep_days.into(), 1),
            ("events.maxPerMinute", c.events.max_per_minute.into(), 1),
            ("mirror.annotationLimitBytes", count(c.mirror.annotation_limit_bytes), 1),
            ("mirror.contentionCount", c.mirror.contention_count.into(), 1),
            ("mirror.contentionBackoffMs", c.mirror.contention_backoff_ms, 1),
            ("mirror.contentionQuietMs", c.mirror.contention_quiet_ms, 1),
            ("mirror.nudgeAfterMs", c.mirror.nudge_after_ms, 1),
            ("touch.burst", c.touch.burst.into(), 1),
            ("touch.minIntervalMs", c.touch.min_interval_ms, 1),
            ("stall.mirroredMs", c.stall.mirrored_ms, 1_000),
            ("stall.deferredMs", c.stall.deferred_ms, 1_000),
            ("stall.arrivedMs", c.stall.arrived_ms, 1_000),
            ("stall.touchedMs", c.stall.touched_ms, 1_000),
            ("retry.firstMs", c.retry.first_ms, 1),
            ("retry.refusedMs", c.retry.refused_ms, 1),
            ("retry.outcomeTimeoutMs", c.retry.outcome_timeout_ms, 1),
            ("orphans.minAgeMs", c.orphans.min_age_ms, 1),
            ("orphans.freshMs", c.orphans.fresh_ms, 1_000),
        ];
        for &(key, value, least) in least {
            if value < least {
                self.error(key, format!("found {value}; accepted: {least} or more"));
            }
        }
        if c.orphans.fresh_ms < BOOKMARK_MS {
            let message = format!(
                "found {}; API servers send a bookmark about every {BOOKMARK_MS} ms, so between \
                 bookmarks every orphan would be kept",
                c.orphans.fresh_ms
            );
            self.warning("orphans.freshMs", message);
        }
        if c.executor.queue.is_some() {
            let message = "has no effect: each cluster has a queue of its own, which holds at most \
                           one action for each object; remove the key";
            self.warning("executor.queue", message);
        }
        let defer_ms = c.mirror.defer_ms;
        if defer_ms > 0 && defer_ms < DEFER_MS_MIN {
            let message = format!("found {defer_ms}; accepted: 0, or {DEFER_MS_MIN} or more");
            self.error("mirror.deferMs", message);
        }
        let per_second = c.mirror.deferrable_per_second;
        if per_second > DEFERRABLE_PER_SECOND_MAX {
            let message = format!(
                "found {per_second}; accepted: 0 (no limit) to {DEFERRABLE_PER_SECOND_MAX}"
            );
            self.error("mirror.deferrablePerSecond", message);
        }
        let limit = c.mirror.annotation_limit_bytes;
        let most = MirrorSettings::default().annotation_limit_bytes;
        if limit > most {
            let message = format!("found {limit}; API servers accept at most {most}");
            self.warning("mirror.annotationLimitBytes", message);
        }
    }

    pub(super) fn related_times(&mut self) {
        let c = self.config;
        let pairs = [
            (
                "watch.backoffFirstMs",
                c.watch.backoff_first_ms,
                "watch.backoffMaxMs",
                c.watch.backoff_max_ms,
            ),
            (
                "executor.backoffFirstMs",
                c.executor.backoff_first_ms,
                "executor.backoffMaxMs",
                c.executor.backoff_max_ms,
            ),
            (
                "mirror.contentionBackoffMs",
                c.mirror.contention_backoff_ms,
                "mirror.contentionBackoffMaxMs",
                c.mirror.contention_backoff_max_ms,
            ),
            (
                "mirror.nudgeAfterMs",
                c.mirror.nudge_after_ms,
                "mirror.nudgeMaxMs",
                c.mirror.nudge_max_ms,
            ),
            ("retry.firstMs", c.retry.first_ms, "retry.maxMs", c.retry.max_ms),
            ("mirror.deferMs", c.mirror.defer_ms, "stall.deferredMs", c.stall.deferred_ms),
        ];
        for (first_key, first, max_key, max) in pairs {
            if first > max && self.is_usable(first_key) && self.is_usable(max_key) {
                // Report the key that was set explicitly.
                if self.merged.origin(first_key).is_none() {
                    self.error(
                        max_key,
                        format!("found {max}; accepted: {first_key} ({first}) or more"),
                    );
                } else {
                    self.error(
                        first_key,
                        format!("found {first}; accepted: {max_key} ({max}) or less"),
                    );
                }
            }
        }
        let confirm = &c.touch.confirm_after_ms;
        if !confirm.is_sorted_by(|a, b| a < b) {
            let message =
                format!("found {confirm:?}; accepted: increasing times, counted from the touch");
            self.error("touch.confirmAfterMs", message);
        }
        let tries = u64::try_from(c.executor.tries).unwrap_or(u64::MAX);
        let longest = c.executor.timeout_ms.saturating_add(c.executor.backoff_max_ms);
        let longest = longest.saturating_mul(tries);
        if longest >= c.retry.outcome_timeout_ms && self.is_usable("executor") {
            let message = format!(
                "found {}, but the attempts of one action may take {longest} (executor.tries × \
                 (timeoutMs + backoffMaxMs)): a slow write would count as lost",
                c.retry.outcome_timeout_ms
            );
            self.warning("retry.outcomeTimeoutMs", message);
        }
    }
}
