//! The rules of the election, without clock and wire: what to ask the Lease API for, what its
//! answers mean, and until when this process may lead.
//!
//! Times are milliseconds of the process's own monotonic clock. Nothing is ever concluded from the
//! timestamps in the record: they are for people and other tools, and tell records apart.
//!
//! | rule | what would go wrong without it |
//! |---|---|
//! | another's claim ends when the record has not *changed* for its lease duration, by the own clock | clocks apart make two leaders |
//! | the own claim counts from when the renewal was *sent* | a slow answer makes it outlast what others saw |
//! | the own claim ends by itself | a hanging renewal leaves a leader that others have replaced |
//! | the gate closes earlier than the claim of any other can begin: [`Rules::gate_ms`] | a write lands after somebody else leads |
//! | a Lease that is free but neither expired nor released (deleted, edited) is taken at once, and led by only a lease after it was seen so | its former holder has not noticed yet |
//! | a Lease that is not led by yet is not released either | so might the next one's not have |
//! | every update carries the version it was decided on | two updates both count |
//!
//! What can't be told apart: a Lease that somebody puts back, to the byte, to what its holder wrote
//! before, and one that somebody gives the form of a released one.

/// The election's timings, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// A record that did not change for so long is free.
    pub lease_ms: u64,
    /// A claim that was not renewed for so long is over.
    pub renew_deadline_ms: u64,
    /// The pause from the beginning of one attempt to that of the next.
    pub retry_ms: u64,
    /// The longest that one write may take from its last look at the gate.
    pub write_ms: u64,
}

/// Tries that fit between a renewal and the end of the gate.
const TRIES: u64 = 4;

impl Rules {
    /// How long after a renewal was sent the gate stays open. Another replica's clock may run
    /// faster by a tenth, so its lease is over after ten elevenths of ours; and a write that was
    /// let through must have ended by then. Zero when the timings leave no room for any.
    pub fn gate_ms(&self) -> u64 {
        (self.lease_ms * 10 / 11).saturating_sub(self.write_ms).min(self.renew_deadline_ms)
    }

    /// How long one request may take: several fit into what a renewal is good for, so that one
    /// that hangs does not lose the Lease.
    pub fn try_ms(&self) -> u64 {
        (self.gate_ms() / TRIES).max(1)
    }

    /// When the next attempt is due, after one that began at `began` and ended at `ended`.
    pub fn next_attempt(&self, began: u64, ended: u64) -> u64 {
        // One that hung has used its pause up, but for a breath.
        (began + self.retry_ms).max(ended + self.retry_ms / 10)
    }
}

/// What the election reads and writes of a Lease's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who holds it; empty when nobody does.
    pub holder: String,
    /// For how long, as the holder says.
    pub lease_ms: u64,
    /// How often it went from one holder to another.
    pub transitions: u32,
    /// The `renewTime` as it is spelled: tells two renewals apart, and nothing else.
    pub renewed: String,
}

/// A released Lease says that it lasts for so long, as client-go writes it.
const RELEASED_MS: u64 = 1_000;

/// The longest lease that may be configured. It bounds how long the word of a former record counts.
pub const LEASE_MAX_MS: u64 = 600_000;

/// Writes whose answers were lost, that are remembered. Forgetting one is safe, and slower.
const UNANSWERED: usize = 2;

impl Record {
    /// Its holder gave it up after its work had ended.
    pub fn is_released(&self) -> bool {
        self.holder.is_empty() && self.lease_ms == RELEASED_MS
    }
}

/// What to ask the Lease API for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Read the Lease.
    Get,
    /// Create it.
    Create(Record),
    /// Replace it, if it still has this resourceVersion.
    Update(Record, String),
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The Lease as it is now, with its resourceVersion: read, or written as asked.
    Is(Record, String),
    /// There is none.
    Missing,
    /// It was changed, or created, by somebody else meanwhile.
    Conflict,
    /// Nobody knows: refused, failed, no answer in time.
    Failed,
}

/// The record as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    record: Record,
    version: String,
    /// From when on it is free, if it does not change until then.
    free_at: u64,
    /// It is what this process wrote, and nobody else since.
    claim: Option<Claim>,
    /// It may have changed: a request went wrong since.
    stale: bool,
}

/// A claim of this process. It may be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Claim {
    /// When the last renewal that is known to have succeeded was sent.
    renewed_at: u64,
    /// Before this the former holder may still write.
    leads_from: u64,
}

/// A write under way, or whose answer was lost: it may have landed, or land yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Try {
    renewed: String,
    sent: u64,
    /// `None`: a lease after it is first seen. That of a create, which may land whenever there is
    /// no Lease: nothing ties it to the moment in which it was decided.
    leads_from: Option<u64>,
}

/// The election as one process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    me: String,
    rules: Rules,
    seen: Option<Seen>,
    tries: Vec<Try>,
    /// This attempt has read the Lease already.
    has_read: bool,
    /// It is given up, or was.
    leaving: bool,
}

impl Election {
    /// An election in which this process is called `me`; no two processes may ever be called
    /// alike, nor one and its restarted self.
    pub fn new(me: String, rules: Rules) -> Self {
        Self { me, rules, seen: None, tries: Vec::new(), has_read: false, leaving: false }
    }

    fn claim(&self) -> Option<Claim> {
        self.seen.as_ref()?.claim.filter(|_| !self.leaving)
    }

    /// Until when leader-only work may go to the wire; `None` when it may not.
    pub fn gate(&self, now: u64) -> Option<u64> {
        let claim = self.claim().filter(|c| c.leads_from <= now)?;
        let until = claim.renewed_at + self.rules.gate_ms();
        (now < until).then_some(until)
    }

    /// Whether this process holds the Lease, as far as it knows: its claim is not over.
    pub fn holds(&self, now: u64) -> bool {
        self.claim().is_some_and(|c| now < c.renewed_at + self.rules.renew_deadline_ms)
    }

    /// From when on the Lease may be led by that this process took, whether or not its claim is
    /// over meanwhile.
    pub fn leads_from(&self) -> Option<u64> {
        self.claim().map(|c| c.leads_from)
    }

    /// When the Lease, held by another as it was last seen, is free if it does not change.
    pub fn free_from(&self) -> Option<u64> {
        // Expired is what is older than its lease, not what is as old.
        self.seen.as_ref().filter(|seen| seen.claim.is_none()).map(|seen| seen.free_at + 1)
    }

    /// When the last renewal that succeeded was sent.
    pub fn renewed_at(&self) -> Option<u64> {
        self.claim().map(|c| c.renewed_at)
    }

    /// The Lease as it was last seen; `None` when there was none.
    pub fn record(&self) -> Option<&Record> {
        self.seen.as_ref().map(|seen| &seen.record)
    }

    /// The first request of an attempt, to be sent at `now`; `renewed` is a `renewTime` that this
    /// process never wrote before. `None`: there is nothing left to give up.
    pub fn begin(&mut self, now: u64, renewed: &str) -> Option<Request> {
        self.has_read = false;
        match &self.seen {
            Some(seen) if seen.claim.is_some() && !seen.stale => self.decide(now, renewed),
            Some(seen) if seen.claim.is_none() && !seen.stale && self.leaving => None,
            _ => Some(Request::Get),
        }
    }

    /// Takes the answer to a request, which came at `now`, and gives the attempt's next one, as
    /// [`Election::begin`] does. `None`: the attempt is over. Ends after three requests at most.
    pub fn answered(
        &mut self,
        request: &Request,
        answer: Answer,
        now: u64,
        renewed: &str,
    ) -> Option<Request> {
        let is_read = *request == Request::Get;
        match answer {
            Answer::Is(record, version) => {
                self.see(record, version, now);
                self.has_read = true;
                is_read.then(|| self.decide(now, renewed))?
            }
            Answer::Missing if is_read => {
                self.seen = None;
                self.tries.clear();
                self.has_read = true;
                if self.leaving {
                    return None;
                }
                let record = self.mine(0, renewed);
                self.note(renewed, now, None);
                Some(Request::Create(record))
            }
            // It may have landed all the same: a proxy that asks twice is told of a conflict.
            Answer::Missing | Answer::Conflict | Answer::Failed => {
                if let Some(seen) = &mut self.seen {
                    seen.stale = true;
                }
                let again = answer != Answer::Failed && !is_read && !self.has_read;
                again.then_some(Request::Get)
            }
        }
    }

    /// What to do about the record as it is.
    fn decide(&mut self, now: u64, renewed: &str) -> Option<Request> {
        let seen = self.seen.as_ref()?;
        let (old, version) = (&seen.record, seen.version.clone());
        if self.leaving {
            let claim = seen.claim.filter(|c| c.leads_from <= now);
            let released = Record {
                holder: String::new(),
                lease_ms: RELEASED_MS,
                transitions: old.transitions,
                renewed: renewed.to_owned(),
            };
            return claim.map(|_| Request::Update(released, version));
        }
        let leads_from = match seen.claim {
            Some(claim) => claim.leads_from,
            None if old.is_released() => now,
            None if old.holder.is_empty() || old.holder == self.me => seen.free_at,
            None if now > seen.free_at => seen.free_at,
            None => return None,
        };
        let transitions = old.transitions.saturating_add(u32::from(old.holder != self.me));
        self.note(renewed, now, Some(leads_from));
        Some(Request::Update(self.mine(transitions, renewed), version))
    }

    fn mine(&self, transitions: u32, renewed: &str) -> Record {
        let renewed = renewed.to_owned();
        Record { holder: self.me.clone(), lease_ms: self.rules.lease_ms, transitions, renewed }
    }

    fn note(&mut self, renewed: &str, sent: u64, leads_from: Option<u64>) {
        if self.tries.len() == UNANSWERED {
            self.tries.remove(0);
        }
        self.tries.push(Try { renewed: renewed.to_owned(), sent, leads_from });
    }

    fn see(&mut self, record: Record, version: String, now: u64) {
        if let Some(seen) = &mut self.seen
            && seen.record == record
        {
            if seen.version != version {
                // Labels, annotations. What was decided on the old version can't land any more.
                self.tries.clear();
            }
            (seen.version, seen.stale) = (version, false);
            return;
        }
        // Each update of ours was tied to the version that it replaced, so if it is there, nobody
        // else wrote between what we knew and it.
        let ours =
            self.tries.iter().find(|t| record.holder == self.me && t.renewed == record.renewed);
        let word = |record: &Record| if record.is_released() { 0 } else { record.lease_ms };
        let former = self.seen.as_ref().map_or(0, |seen| word(&seen.record).min(LEASE_MAX_MS));
        let lease_ms = self.rules.lease_ms.max(word(&record)).max(former);
        let free_at = now.saturating_add(lease_ms);
        let claim = ours.map(|ours| Claim {
            renewed_at: ours.sent,
            leads_from: ours.leads_from.unwrap_or(free_at),
        });
        self.tries.clear();
        self.seen = Some(Seen { record, version, free_at, claim, stale: false });
    }

    /// Gives the Lease up: the gate is closed from now on, and attempts release what they find to
    /// be held. The leader's own work must have ended before the next attempt.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Whether it is given up, or was.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether the Lease, as it was last seen, is this process's, be its claim over or not.
    pub fn is_mine(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.claim.is_some())
    }

    /// The same election by another clock and with other names: `sent` maps the times at which
    /// something was, `due` those from which on something may be, `name` every resourceVersion and
    /// `renewTime`. What behaves alike becomes alike this way, without which nobody could explore
    /// all there is.
    #[must_use]
    pub fn mapped(
        &self,
        sent: impl Fn(u64) -> u64,
        due: impl Fn(u64) -> u64,
        name: &mut impl FnMut(&str) -> String,
    ) -> Self {
        let mut mapped = self.clone();
        if let Some(seen) = &mut mapped.seen {
            seen.version = name(&seen.version);
            seen.record.renewed = name(&seen.record.renewed);
            seen.free_at = due(seen.free_at);
            if let Some(claim) = &mut seen.claim {
                claim.renewed_at = sent(claim.renewed_at);
                claim.leads_from = due(claim.leads_from);
            }
        }
        for one in &mut mapped.tries {
            one.renewed = name(&one.renewed);
            one.sent = sent(one.sent);
            one.leads_from = one.leads_from.map(&due);
        }
        mapped
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests;
