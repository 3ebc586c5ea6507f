//! The rules of the election, without clock or I/O: the requests to the Lease API, the meaning of its
//! responses, and the time until which this instance may act as leader.
//!
//! Times are milliseconds of the process's monotonic clock. No decision uses the timestamps in the
//! Lease: they are for people and other tools, and distinguish one renewal from another.
//!
//! | rule | what would go wrong without it |
//! |---|---|
//! | another instance's Lease expires when it has not *changed* for its duration, by our clock | clocks that differ make two leaders |
//! | our own tenure counts from when the renewal was *sent* | after a slow response it outlasts what others observed |
//! | our own tenure ends without any response | a renewal that hangs leaves a leader that others have replaced |
//! | the gate closes before any other instance's tenure can begin: [`Timings::gate_ms`] | a write takes effect after another instance leads |
//! | a Lease in this instance's name that it did not write is taken back after the renew deadline, and led after a full duration | another instance takes it after an edit, or two processes with one identity take it from each other forever |
//! | a Lease that is free but neither expired nor released (deleted, edited) is acquired at once, but its new holder leads only after a full lease duration | the former holder has not noticed yet |
//! | an instance that stands down lets its Lease expire | the next holder would lead while its last writes are under way |
//! | a Lease whose holder does not lead yet is never released | the next holder would lead at once, while a former leader may still write |
//! | every update carries the resourceVersion that it was decided on | two updates both succeed |
//!
//! Two edits can't be detected: a Lease restored byte for byte to an earlier record of its holder, and
//! a Lease edited into the form of a released one.

mod timings;

pub use timings::Timings;

/// The part of a Lease's spec that the election reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// Empty if the Lease has no holder.
    pub holder: String,
    /// The lease duration that its holder wrote.
    pub lease_ms: u64,
    /// How often the holder changed.
    pub transitions: u32,
    /// The text of `renewTime`. Only compared for equality.
    pub renew_time: String,
}

/// The duration of a released Lease, as client-go writes it.
const RELEASED_MS: u64 = 1_000;

/// The longest lease that may be configured. It limits how long a former record's duration counts.
pub const LEASE_MAX_MS: u64 = 600_000;

/// The number of unanswered writes to remember. Forgetting one is safe, but slower.
const UNANSWERED_MAX: usize = 2;

impl LeaseRecord {
    /// The record of a Lease that its holder releases.
    fn released(transitions: u32, renew_time: String) -> Self {
        Self { holder: String::new(), lease_ms: RELEASED_MS, transitions, renew_time }
    }

    /// Whether its holder released it, after its last write had ended.
    pub fn is_released(&self) -> bool {
        self.holder.is_empty() && self.lease_ms == RELEASED_MS
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseRequest {
    Get,
    Create(LeaseRecord),
    /// Replaces the Lease if it still has this resourceVersion.
    Update(LeaseRecord, String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseResponse {
    /// The Lease and its resourceVersion, as read or as written.
    Current(LeaseRecord, String),
    /// The Lease does not exist.
    NotFound,
    /// Another client changed or created it first.
    Conflict,
    /// Refused, failed or not answered in time: the Lease's state is unknown.
    Failed,
}

/// The Lease as last observed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ObservedLease {
    record: LeaseRecord,
    version: String,
    /// When it expires if it does not change.
    expires_at: u64,
    /// Set while the record is the one that this instance wrote.
    tenure: Option<Tenure>,
    /// A request failed since, so the Lease may have changed.
    is_stale: bool,
}

/// This instance's hold on the Lease. It may be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tenure {
    /// When the last renewal known to have succeeded was sent.
    renewed_at: u64,
    /// The former holder may still write before this time.
    leads_from: u64,
}

/// A write without a response so far, or whose response was lost: the API server may have carried it
/// out, or may still do so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UnansweredWrite {
    renew_time: String,
    sent_at: u64,
    /// `None` for a create: a lease duration after the Lease is first observed. A create succeeds
    /// whenever no Lease exists, so nothing ties it to the time of the decision.
    leads_from: Option<u64>,
}

/// The election from the view of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    identity: String,
    timings: Timings,
    observed: Option<ObservedLease>,
    unanswered: Vec<UnansweredWrite>,
    /// Whether the current attempt has read the Lease.
    has_read: bool,
    is_resigning: bool,
    is_standing_down: bool,
}

impl Election {
    /// No two instances may ever have the same `identity`, nor may an instance before and after a
    /// restart.
    pub fn new(identity: String, timings: Timings) -> Self {
        Self {
            identity,
            timings,
            observed: None,
            unanswered: Vec::new(),
            has_read: false,
            is_resigning: false,
            is_standing_down: false,
        }
    }

    fn tenure(&self) -> Option<Tenure> {
        let takes_part = !self.is_resigning && !self.is_standing_down;
        self.observed.as_ref()?.tenure.filter(|_| takes_part)
    }

    /// When leader-only writes must stop; `None` if they may not be sent.
    pub fn gate(&self, now: u64) -> Option<u64> {
        let tenure = self.tenure().filter(|tenure| tenure.leads_from <= now)?;
        let until = tenure.renewed_at + self.timings.gate_ms();
        (now < until).then_some(until)
    }

    /// Whether this instance holds the Lease as far as it knows: its tenure is not over.
    pub fn is_holder(&self, now: u64) -> bool {
        self.tenure().is_some_and(|t| now < t.renewed_at + self.timings.renew_deadline_ms)
    }

    /// When this instance may start to lead by the Lease that it acquired, even if its tenure has ended
    /// since.
    pub fn leads_from(&self) -> Option<u64> {
        self.tenure().map(|tenure| tenure.leads_from)
    }

    /// When another holder's Lease may be acquired if it does not change.
    pub fn free_from(&self) -> Option<u64> {
        let others = self.observed.as_ref().filter(|observed| observed.tenure.is_none());
        others.map(|observed| self.free_after(observed) + 1)
    }

    /// The time after which a Lease that this instance did not write may be acquired: it has expired
    /// when it is older than its duration, not as old. A Lease in this instance's name was edited, and
    /// is taken back before another instance takes it; or a copy of this process wrote it, which would
    /// have renewed it by then.
    fn free_after(&self, observed: &ObservedLease) -> u64 {
        if observed.record.holder == self.identity {
            observed.expires_at - (self.timings.lease_ms - self.timings.renew_deadline_ms)
        } else {
            observed.expires_at
        }
    }

    /// When the last successful renewal was sent.
    pub fn renewed_at(&self) -> Option<u64> {
        self.tenure().map(|tenure| tenure.renewed_at)
    }

    /// The Lease as last observed; `None` if it did not exist.
    pub fn record(&self) -> Option<&LeaseRecord> {
        self.observed.as_ref().map(|observed| &observed.record)
    }

    /// The first request of an attempt, to be sent at `now`. This instance must never have written
    /// `renew_time` before. `None`: there is nothing left to release.
    pub fn begin_attempt(&mut self, now: u64, renew_time: &str) -> Option<LeaseRequest> {
        self.has_read = false;
        match &self.observed {
            Some(observed)
                if observed.tenure.is_some() && !observed.is_stale && !self.is_standing_down =>
            {
                self.decide(now, renew_time)
            }
            Some(observed)
                if observed.tenure.is_none() && !observed.is_stale && self.is_resigning =>
            {
                None
            }
            _ => Some(LeaseRequest::Get),
        }
    }

    /// Handles the response to a request, which arrived at `now`, and returns the attempt's next
    /// request, as [`Election::begin_attempt`] does. `None`: the attempt is over. An attempt takes at
    /// most three requests.
    pub fn handle_response(
        &mut self,
        request: &LeaseRequest,
        response: LeaseResponse,
        now: u64,
        renew_time: &str,
    ) -> Option<LeaseRequest> {
        let is_read = *request == LeaseRequest::Get;
        match response {
            LeaseResponse::Current(record, version) => {
                self.observe(record, version, now);
                self.has_read = true;
                is_read.then(|| self.decide(now, renew_time))?
            }
            LeaseResponse::NotFound if is_read => {
                self.observed = None;
                self.unanswered.clear();
                self.has_read = true;
                if self.is_resigning || self.is_standing_down {
                    return None;
                }
                let record = self.own_record(0, renew_time);
                self.remember_write(renew_time, now, None);
                Some(LeaseRequest::Create(record))
            }
            // The write may have been carried out nevertheless: a proxy that repeats a request gets a
            // conflict for the second one.
            LeaseResponse::NotFound | LeaseResponse::Conflict | LeaseResponse::Failed => {
                if let Some(observed) = &mut self.observed {
                    observed.is_stale = true;
                }
                let reads = response != LeaseResponse::Failed && !is_read && !self.has_read;
                reads.then_some(LeaseRequest::Get)
            }
        }
    }

    /// The write that follows from the Lease as last observed.
    fn decide(&mut self, now: u64, renew_time: &str) -> Option<LeaseRequest> {
        let observed = self.observed.as_ref()?;
        let old = &observed.record;
        let version = observed.version.clone();
        if self.is_resigning {
            let tenure = observed.tenure.filter(|tenure| tenure.leads_from <= now);
            let released = LeaseRecord::released(old.transitions, renew_time.to_owned());
            return tenure.map(|_| LeaseRequest::Update(released, version));
        }
        if self.is_standing_down {
            return None;
        }
        let leads_from = match observed.tenure {
            Some(tenure) => tenure.leads_from,
            None if old.is_released() => now,
            None if old.holder.is_empty() => observed.expires_at,
            None if now > self.free_after(observed) => observed.expires_at,
            None => return None,
        };
        let transitions = old.transitions.saturating_add(u32::from(old.holder != self.identity));
        self.remember_write(renew_time, now, Some(leads_from));
        Some(LeaseRequest::Update(self.own_record(transitions, renew_time), version))
    }

    fn own_record(&self, transitions: u32, renew_time: &str) -> LeaseRecord {
        LeaseRecord {
            holder: self.identity.clone(),
            lease_ms: self.timings.lease_ms,
            transitions,
            renew_time: renew_time.to_owned(),
        }
    }

    fn remember_write(&mut self, renew_time: &str, sent_at: u64, leads_from: Option<u64>) {
        if self.unanswered.len() == UNANSWERED_MAX {
            self.unanswered.remove(0);
        }
        let renew_time = renew_time.to_owned();
        self.unanswered.push(UnansweredWrite { renew_time, sent_at, leads_from });
    }

    fn observe(&mut self, record: LeaseRecord, version: String, now: u64) {
        if let Some(observed) = &mut self.observed
            && observed.record == record
        {
            if observed.version != version {
                // Labels or annotations changed: writes based on the old version can no longer succeed.
                self.unanswered.clear();
            }
            observed.version = version;
            observed.is_stale = false;
            return;
        }
        // Each update required the version that it replaced. So if one was carried out, no other client
        // wrote between the record known before and this one.
        let own_write = self
            .unanswered
            .iter()
            .find(|write| record.holder == self.identity && write.renew_time == record.renew_time);
        let duration =
            |record: &LeaseRecord| if record.is_released() { 0 } else { record.lease_ms };
        let former = self.observed.as_ref().map_or(0, |o| duration(&o.record).min(LEASE_MAX_MS));
        let lease_ms = self.timings.lease_ms.max(duration(&record)).max(former);
        let expires_at = now.saturating_add(lease_ms);
        let tenure = own_write.map(|write| Tenure {
            renewed_at: write.sent_at,
            leads_from: write.leads_from.unwrap_or(expires_at),
        });
        self.unanswered.clear();
        self.observed =
            Some(ObservedLease { record, version, expires_at, tenure, is_stale: false });
    }

    /// Resigns: the gate is closed from now on, and further attempts release the Lease if this instance
    /// holds it. The leader's writes must have ended before the next attempt.
    pub fn resign(&mut self) {
        self.is_resigning = true;
    }

    /// Takes part again, once the Lease is given back.
    pub fn rejoin(&mut self) {
        self.is_resigning = false;
    }

    /// Whether [`Election::resign`] was called.
    pub fn is_resigning(&self) -> bool {
        self.is_resigning
    }

    /// Stands down, or stops doing so. While it stands down, the gate is closed and this instance
    /// neither renews nor acquires the Lease, so that the Lease expires as if this instance had died:
    /// its writes in flight end before another instance may lead.
    pub fn set_standing_down(&mut self, stands_down: bool) {
        self.is_standing_down = stands_down;
    }

    pub fn is_standing_down(&self) -> bool {
        self.is_standing_down
    }

    /// Whether this instance wrote the Lease as last observed, even if its tenure is over.
    pub fn owns_lease(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| observed.tenure.is_some())
    }

    /// The same election with another clock and other names: `past` maps the times of past events,
    /// `due` the times from which something may happen, `rename` every resourceVersion and `renewTime`.
    /// The model checker uses it to merge states that behave alike; otherwise their number would be
    /// infinite.
    #[must_use]
    pub fn mapped(
        &self,
        past: impl Fn(u64) -> u64,
        due: impl Fn(u64) -> u64,
        rename: &mut impl FnMut(&str) -> String,
    ) -> Self {
        let mut mapped = self.clone();
        if let Some(observed) = &mut mapped.observed {
            observed.version = rename(&observed.version);
            observed.record.renew_time = rename(&observed.record.renew_time);
            observed.expires_at = due(observed.expires_at);
            if let Some(tenure) = &mut observed.tenure {
                tenure.renewed_at = past(tenure.renewed_at);
                tenure.leads_from = due(tenure.leads_from);
            }
        }
        for write in &mut mapped.unanswered {
            write.renew_time = rename(&write.renew_time);
            write.sent_at = past(write.sent_at);
            write.leads_from = write.leads_from.map(&due);
        }
        mapped
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests;
