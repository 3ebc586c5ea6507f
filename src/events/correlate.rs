//! Decides which Events are created, counted, combined or dropped, as client-go's `EventCorrelator`
//! does (`tools/record/events_cache.go`), with its numbers.
//!
//! - An equal Event is not created again: its `count` goes up.
//! - Events that differ in their message alone are combined into one from the tenth within ten
//!   minutes on.
//! - An object gets 25 Events of a type in a row, then one in five minutes.
//!
//! Pure, except that the caller numbers the Events.

use std::collections::BTreeSet;

use super::lru::Lru;
use super::object::{EventReport, EventWrite, ObjectReference, Severity, event_name};
use crate::core::data::time::UnixMillis;

/// The number of entries in each cache.
const CACHE_ENTRIES_MAX: usize = 4096;
const COMBINE_FROM: usize = 10;
const COMBINE_WITHIN_MS: u64 = 600_000;
const COMBINED_PREFIX: &str = "(combined from similar events): ";
const BURST: u64 = 25;
const REFILL_MS: u64 = 300_000;

/// The object, without its resourceVersion, and the Event's type: what the rate limit counts by.
type ObjectAndSeverity = (ObjectReference, Severity);

/// Events that are similar: they differ in their message alone.
type SimilarityKey = (ObjectAndSeverity, &'static str);

/// Events that are equal. Without a message: the one that combines similar Events.
type EqualityKey = (ObjectAndSeverity, &'static str, Option<String>);

#[derive(Debug)]
struct SimilarEvents {
    messages: BTreeSet<String>,
    last_at: UnixMillis,
}

#[derive(Debug)]
struct KnownEvent {
    name: String,
    first_at: UnixMillis,
    count: u32,
}

/// A token bucket in milliseconds: an Event takes [`REFILL_MS`], and time gives it back.
#[derive(Debug)]
struct RateLimit {
    left_ms: u64,
    at: UnixMillis,
}

/// Remembers the Events of one cluster.
#[derive(Debug)]
pub struct Correlator {
    similar: Lru<SimilarityKey, SimilarEvents>,
    known: Lru<EqualityKey, Option<KnownEvent>>,
    limits: Lru<ObjectAndSeverity, RateLimit>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            similar: Lru::new(CACHE_ENTRIES_MAX),
            known: Lru::new(CACHE_ENTRIES_MAX),
            limits: Lru::new(CACHE_ENTRIES_MAX),
        }
    }
}

impl Correlator {
    /// What to send for a report; `None` when the object's rate limit is reached. `number` names an
    /// Event that has to be created, and must be new.
    pub fn correlate(&mut self, mut report: EventReport, number: u64) -> Option<EventWrite> {
        let object = ObjectReference { resource_version: String::new(), ..report.object.clone() };
        let source = (object, report.severity);
        let key = if self.is_combined(&source, &report) {
            report.message.insert_str(0, COMBINED_PREFIX);
            (source.clone(), report.reason, None)
        } else {
            (source.clone(), report.reason, Some(report.message.clone()))
        };
        let known = self.known.get_or(key, || None).get_or_insert_with(|| KnownEvent {
            name: event_name(&report.object, number),
            first_at: report.at,
            count: 0,
        });
        // Counted even if the limit is reached: the next Event that is sent has the full count.
        known.count = known.count.saturating_add(1);
        let (name, first_at, count) = (known.name.clone(), known.first_at, known.count);
        let is_allowed = self.is_within_limit(source, report.at);
        is_allowed.then_some(EventWrite { name, first_at, count, report })
    }

    fn is_combined(&mut self, source: &ObjectAndSeverity, report: &EventReport) -> bool {
        let new = || SimilarEvents { messages: BTreeSet::new(), last_at: report.at };
        let similar = self.similar.get_or((source.clone(), report.reason), new);
        if report.at.since(similar.last_at) > COMBINE_WITHIN_MS {
            similar.messages.clear();
        }
        similar.last_at = report.at;
        if similar.messages.len() + 1 < COMBINE_FROM {
            similar.messages.insert(report.message.clone());
            return false;
        }
        // client-go forgets any one of the ten messages. Here it is always the new one, so that
        // Events that were sent on their own stay on their own.
        !similar.messages.contains(&report.message)
    }

    fn is_within_limit(&mut self, source: ObjectAndSeverity, now: UnixMillis) -> bool {
        let full = BURST * REFILL_MS;
        let limit = self.limits.get_or(source, || RateLimit { left_ms: full, at: now });
        limit.left_ms = limit.left_ms.saturating_add(now.since(limit.at)).min(full);
        limit.at = limit.at.max(now);
        let left_ms = limit.left_ms.checked_sub(REFILL_MS);
        limit.left_ms = left_ms.unwrap_or(limit.left_ms);
        left_ms.is_some()
    }
}
