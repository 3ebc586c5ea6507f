//! The rules of the election, without clock and wire: what to ask the Lease API for, what its
//! answers mean, and until when this process may lead.
//!
//! Times are milliseconds of the process's own monotonic clock. Nothing is ever read from the
//! timestamps in the record; they are for people and other tools.
//!
//! | rule | what would go wrong without it |
//! |---|---|
//! | another's claim ends when the record has not *changed* for its lease duration, by the own clock | clocks apart make two leaders |
//! | the own claim counts from when the renewal was *sent*, and ends by itself | a hanging renewal leaves a leader that nobody follows |
//! | a write's gate closes earlier than the claim of any other can begin: see [`Rules::gate_ms`] | a write lands after somebody else leads |
//! | a record that was not released, or not expired, but is free (deleted, edited), is taken at once but led by only a lease later | its former holder has not noticed yet |
//! | every update carries the resourceVersion it was decided on | two updates both count |

/// The election's timings, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// A record that did not change for so long is free.
    pub lease_ms: u64,
    /// A claim that was not renewed for so long is over.
    pub renew_deadline_ms: u64,
    /// The pause between two attempts.
    pub retry_ms: u64,
    /// The longest that one write may take from its last look at the gate.
    pub write_ms: u64,
}

impl Rules {
    /// How long after a renewal was sent the gate stays open. Another replica's clock may run
    /// faster by a tenth, so its lease is over after ten elevenths of ours; and a write that was
    /// let through must have ended by then.
    pub fn gate_ms(&self) -> u64 {
        (self.lease_ms * 10 / 11).saturating_sub(self.write_ms).min(self.renew_deadline_ms)
    }
}

/// What the election reads and writes of a Lease's spec.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who holds it; empty when nobody does.
    pub holder: String,
    /// For how long, as the holder says.
    pub lease_ms: u64,
    /// How often it went from one holder to another.
    pub transitions: u32,
}

/// A released Lease says that it lasts for so long, as client-go writes it.
const RELEASED_MS: u64 = 1_000;

impl Record {
    /// The holder gave it up after its work had ended.
    fn is_released(&self) -> bool {
        self.holder.is_empty() && self.lease_ms <= RELEASED_MS
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
    /// `None`: the Lease does not exist.
    record: Option<Record>,
    version: String,
    /// When it was first seen so.
    since: u64,
    /// This process wrote it so.
    ours: bool,
    /// It may have changed: a request went wrong since.
    stale: bool,
}

/// A claim of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Claim {
    /// When the last renewal that succeeded was sent.
    renewed_at: u64,
    /// Before this the former holder may still write.
    leads_from: u64,
}

/// The election as one process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    me: String,
    rules: Rules,
    seen: Option<Seen>,
    claim: Option<Claim>,
    /// When the Lease that is being taken is safe to lead by, until the answer comes.
    taking_from: u64,
}

impl Election {
    /// An election in which this process is called `me`; no two processes may be called alike.
    pub fn new(me: String, rules: Rules) -> Self {
        Self { me, rules, seen: None, claim: None, taking_from: 0 }
    }

    /// Until when leader-only work may go to the wire; `None` when it may not.
    pub fn gate(&self, now: u64) -> Option<u64> {
        let claim = self.claim.filter(|c| c.leads_from <= now)?;
        let until = claim.renewed_at + self.rules.gate_ms();
        (now < until).then_some(until)
    }

    /// Whether this process holds the Lease, as far as it knows: its claim is not over.
    pub fn holds(&self, now: u64) -> bool {
        self.claim.is_some_and(|c| now < c.renewed_at + self.rules.renew_deadline_ms)
    }

    /// From when on the held Lease may be led by.
    pub fn leads_from(&self) -> Option<u64> {
        self.claim.map(|c| c.leads_from)
    }

    /// Who holds the Lease, as it was last seen.
    pub fn holder(&self) -> Option<&str> {
        let record = self.seen.as_ref()?.record.as_ref()?;
        Some(&record.holder).filter(|h| !h.is_empty()).map(String::as_str)
    }

    /// The next request of an attempt, at `now`; `None`: nothing to do until the next attempt.
    /// `fresh`: the record was just read.
    pub fn request(&mut self, now: u64, fresh: bool) -> Option<Request> {
        if !self.holds(now) {
            self.claim = None;
        }
        let Some(seen) = &self.seen else { return Some(Request::Get) };
        let Some(record) = &seen.record else {
            if !fresh {
                return Some(Request::Get);
            }
            // It may have been deleted under a holder that has not noticed yet.
            self.taking_from = seen.since + self.rules.lease_ms;
            return Some(Request::Create(self.record(0)));
        };
        if self.claim.is_some() && record.holder == self.me && !seen.stale {
            return Some(Request::Update(self.record(record.transitions), seen.version.clone()));
        }
        if !fresh {
            return Some(Request::Get);
        }
        let expired_at = seen.since + record.lease_ms.max(self.rules.lease_ms);
        let is_free = record.holder.is_empty() || record.holder == self.me;
        if !is_free && now <= expired_at {
            return None;
        }
        self.taking_from = if record.is_released() || seen.ours { now } else { expired_at };
        let transitions = record.transitions + u32::from(record.holder != self.me);
        Some(Request::Update(self.record(transitions), seen.version.clone()))
    }

    fn record(&self, transitions: u32) -> Record {
        Record { holder: self.me.clone(), lease_ms: self.rules.lease_ms, transitions }
    }

    /// Takes the answer to a request that was sent at `sent`, and came at `now`. Whether to go on
    /// with this attempt at once.
    pub fn answered(&mut self, request: &Request, answer: Answer, sent: u64, now: u64) -> bool {
        let wrote = !matches!(request, Request::Get);
        match answer {
            Answer::Is(record, version) if wrote => {
                let leads_from = self.claim.map_or(self.taking_from, |c| c.leads_from);
                self.claim = Some(Claim { renewed_at: sent, leads_from });
                self.see(Some(record), version, now, true);
                false
            }
            Answer::Is(record, version) => {
                match &mut self.seen {
                    Some(seen) if seen.version == version => seen.stale = false,
                    seen => {
                        // An answer that was lost may have been that of our own renewal. But a
                        // Lease that went to somebody and came back is not the one we held.
                        let before = seen.as_ref().and_then(|s| s.record.as_ref());
                        if before != Some(&record) || record.holder != self.me {
                            self.claim = None;
                        }
                        self.see(Some(record), version, now, false);
                    }
                }
                true
            }
            Answer::Missing => {
                self.claim = None;
                match &mut self.seen {
                    Some(seen) if seen.record.is_none() => seen.stale = false,
                    _ => self.see(None, String::new(), now, false),
                }
                !wrote
            }
            // Somebody wrote meanwhile, or the request may have landed all the same: look.
            Answer::Conflict | Answer::Failed => {
                if let Some(seen) = &mut self.seen {
                    seen.stale = true;
                }
                answer == Answer::Conflict
            }
        }
    }

    fn see(&mut self, record: Option<Record>, version: String, since: u64, ours: bool) {
        self.seen = Some(Seen { record, version, since, ours, stale: false });
    }

    /// Gives the Lease up; the leader's own work must have ended. `None` when it is not held.
    pub fn release(&mut self, now: u64) -> Option<Request> {
        let held = self.holds(now);
        self.claim = None;
        let seen = self.seen.as_ref().filter(|_| held)?;
        let record = seen.record.as_ref().filter(|r| r.holder == self.me)?;
        let released = Record {
            holder: String::new(),
            lease_ms: RELEASED_MS,
            transitions: record.transitions,
        };
        Some(Request::Update(released, seen.version.clone()))
    }
}
