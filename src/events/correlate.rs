//! Which Events are sent, and which are counted, combined or left out: as client-go's
//! `EventCorrelator` does it (`tools/record/events_cache.go`), with its numbers.
//!
//! - An equal Event is not created again: its `count` goes up.
//! - The tenth Event within ten minutes that differs from nine others in its message alone, and each
//!   further one, are combined into one.
//! - An object gets 25 Events of a type in a row, and then one in five minutes.
//!
//! Pure but for the names of Events, which the caller numbers.

use std::collections::BTreeSet;

use super::lru::Lru;
use super::object::{Reference, Report, Sending, Severity, name};
use crate::core::time::UnixMillis;

/// Entries of each cache.
const CACHE: usize = 4096;
const COMBINE_FROM: usize = 10;
const COMBINE_WITHIN_MS: u64 = 600_000;
const COMBINED: &str = "(combined from similar events): ";
const BURST: u64 = 25;
const REFILL_MS: u64 = 300_000;

/// Of one object, without its resourceVersion, and of one type.
type Source = (Reference, Severity);

/// Those that differ in their message alone; and one of them, or what combines them.
type Key = (Source, &'static str, Option<String>);

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last_at: UnixMillis,
}

#[derive(Debug)]
struct Known {
    name: String,
    first_at: UnixMillis,
    count: u32,
}

/// What an object may still have: an Event takes [`REFILL_MS`] of it, time gives it back.
#[derive(Debug)]
struct Bucket {
    left_ms: u64,
    at: UnixMillis,
}

/// Remembers what was sent to one cluster.
#[derive(Debug)]
pub struct Correlator {
    similar: Lru<(Source, &'static str), Similar>,
    known: Lru<Key, Option<Known>>,
    buckets: Lru<Source, Bucket>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self { similar: Lru::new(CACHE), known: Lru::new(CACHE), buckets: Lru::new(CACHE) }
    }
}

impl Correlator {
    /// What to send for a report; `None` when the object had its share. `number` names an Event that has
    /// to be created, and must never have been given before.
    pub fn correlate(&mut self, mut report: Report, number: u64) -> Option<Sending> {
        let about = Reference { resource_version: String::new(), ..report.about.clone() };
        let source = (about, report.severity);
        let key = if self.is_one_of_many(&source, &report) {
            report.message.insert_str(0, COMBINED);
            (source.clone(), report.reason, None)
        } else {
            (source.clone(), report.reason, Some(report.message.clone()))
        };
        let known = self.known.get_or(key, || None).get_or_insert_with(|| Known {
            name: name(&report.about, number),
            first_at: report.at,
            count: 0,
        });
        known.count = known.count.saturating_add(1);
        let (name, first_at, count) = (known.name.clone(), known.first_at, known.count);
        // Counted even so: the next one that is sent says how many there were.
        let may = self.has_its_share_left(source, report.at);
        may.then_some(Sending { name, first_at, count, report })
    }

    fn is_one_of_many(&mut self, source: &Source, report: &Report) -> bool {
        let new = || Similar { messages: BTreeSet::new(), last_at: report.at };
        let similar = self.similar.get_or((source.clone(), report.reason), new);
        if report.at.since(similar.last_at) > COMBINE_WITHIN_MS {
            similar.messages.clear();
        }
        similar.last_at = report.at;
        if similar.messages.len() + 1 < COMBINE_FROM {
            similar.messages.insert(report.message.clone());
            return false;
        }
        // client-go drops any one of the ten: here it is the new one, so that those that were sent alone
        // stay alone.
        !similar.messages.contains(&report.message)
    }

    fn has_its_share_left(&mut self, source: Source, now: UnixMillis) -> bool {
        let full = BURST * REFILL_MS;
        let bucket = self.buckets.get_or(source, || Bucket { left_ms: full, at: now });
        bucket.left_ms = bucket.left_ms.saturating_add(now.since(bucket.at)).min(full);
        bucket.at = bucket.at.max(now);
        let left_ms = bucket.left_ms.checked_sub(REFILL_MS);
        bucket.left_ms = left_ms.unwrap_or(bucket.left_ms);
        left_ms.is_some()
    }
}
