//! The model: replicas that elect a leader by the real [`Election`], an API server, and whatever
//! can go wrong between them.
//!
//! One step of time is 10 units of a slow clock and 11 of a fast one. Between two steps anything
//! may happen in any order, or not at all: a pause, a frozen process, an API server that is down
//! and a slow answer need no step of their own, because nothing ever *has* to happen. There is no
//! end of time: times are kept as distances from now, and what is longer ago than a lease is told
//! as one, so that all there is can be explored to the last state.
//!
//! Two things are simpler than the world. Reading is instantaneous: what was read is only ever
//! acted on by a write that is tied to it. And a request that arrives late has timed out before.

use throughline::leader::election::{Answer, Election, Record, Request, Rules};

use super::breaks::Break;

/// Every replica's clock shows this; what it remembers is counted from here.
pub const NOW: u64 = 1_000;
/// The longest that a write may take from its last look at the gate: a step of a slow clock.
pub const WRITE: u64 = 10;
/// A lease of three steps and a bit. The gate stays open for 29 - 10 units, nearly two steps.
pub const RULES: Rules =
    Rules { lease_ms: 32, renew_deadline_ms: 20, retry_ms: 10, write_ms: WRITE };
/// A name that nothing has yet.
pub const NEW: &str = "new";

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The Lease and its resourceVersion.
    pub lease: Option<(Record, String)>,
    /// The replicas.
    pub replicas: Vec<Replica>,
    /// Faults that may still happen.
    pub faults: u8,
    /// A late write changed something that a later leader had written.
    pub overwrote: bool,
}

/// One replica: a process, and what it has sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    /// Its name; its restarted selves have others.
    pub me: String,
    /// The real thing.
    pub election: Election,
    /// A write to the Lease that landed, and the answer on its way.
    pub call: Option<(Request, Answer)>,
    /// A write to the Lease that it no longer waits for, and that has not landed yet.
    pub adrift: Option<Request>,
    /// The last moment at which its gate was open, by its own clock: a write may be on its way for
    /// [`WRITE`] from there.
    pub open_until: Option<u64>,
    /// A write that was let through and frozen; true when another leader has written since.
    pub frozen: Option<bool>,
    /// It gives the Lease up, and ends.
    pub leaves: bool,
    /// Only when broken: it ended, or its work did.
    pub ended: bool,
    /// Only when broken: when the last renewal was answered.
    pub answered_at: Option<u64>,
}

/// One thing that may happen.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "printed")]
pub enum Step {
    /// A step of time.
    Tick,
    /// A replica makes an attempt; a write of it lands, and is not answered yet.
    Attempts(usize),
    /// The same, but the write is lost on its way, or late.
    Loses(usize),
    /// The answer comes.
    Answered(usize),
    /// The answer is lost.
    TimesOut(usize),
    /// A write to the Lease lands that nobody waits for.
    LandsLate(usize),
    /// Leader-only work ends with an error.
    WorkFails(usize),
    /// A write is let through, and the process freezes before it sends it.
    Freezes(usize),
    /// The leader writes the object.
    Writes(usize),
    /// The frozen one's write lands.
    Thaws(usize),
    /// The process ends its work, and gives the Lease up.
    Leaves(usize),
    /// The process dies, and another one starts in its place.
    Restarts(usize),
    /// Somebody deletes the Lease.
    Deleted,
    /// Somebody writes another holder into it.
    Edited(String),
    /// Somebody writes an annotation.
    Annotated,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Somebody deletes or edits the Lease.
    Hand,
    /// A process dies and another one starts, or it gives the Lease up and ends.
    Process,
    /// A write to the Lease lands long after it timed out.
    Late,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Units a step, for each replica.
    pub clocks: Vec<u64>,
    /// What goes wrong besides pauses, lost requests and lost answers, and how often at most.
    pub faults: (u8, &'static [Fault]),
    /// Whether answers about writes to the Lease can be slow; when not, they come at once or never.
    pub slow: bool,
    /// Begin where the first replica leads and the others know it; where nobody does, otherwise.
    pub led: bool,
    /// Whether processes freeze between the gate and the wire.
    pub freezes: bool,
    /// The rule that is broken.
    pub broken: Option<Break>,
}

impl Setup {
    /// Whether this rule is broken.
    pub fn is(&self, broken: Break) -> bool {
        self.broken == Some(broken)
    }

    fn rules(&self) -> Rules {
        if self.is(Break::GateIsTheLease) {
            return Rules { write_ms: 0, renew_deadline_ms: RULES.lease_ms, ..RULES };
        }
        RULES
    }

    pub fn replica(&self, me: String) -> Replica {
        Replica {
            election: Election::new(me.clone(), self.rules()),
            me,
            call: None,
            adrift: None,
            open_until: None,
            frozen: None,
            leaves: false,
            ended: false,
            answered_at: None,
        }
    }

    /// Until when the replica takes its gate to be open.
    pub fn gate(&self, replica: &Replica) -> Option<u64> {
        let election = &replica.election;
        if replica.ended {
            return None;
        }
        let leads = election.leads_from().is_some_and(|from| from <= NOW);
        let gate = |from: Option<u64>, ms: u64| from.map(|from| from + ms).filter(|_| leads);
        let until = match self.broken {
            Some(Break::ClaimFromAnswer) => gate(replica.answered_at, self.rules().gate_ms()),
            Some(Break::ClaimNeverEnds) => gate(Some(NOW), 100),
            Some(Break::LeadsAtOnce) => election.renewed_at().map(|r| r + self.rules().gate_ms()),
            Some(Break::ClocksAgree) => gate(election.renewed_at(), RULES.lease_ms - WRITE - 1),
            _ => election.gate(NOW),
        };
        until.filter(|until| NOW < *until)
    }

    pub fn attempt(&self, world: &mut World, i: usize, lost: bool) {
        let replica = &mut world.replicas[i];
        let request = replica.election.begin(NOW, NEW);
        self.carry_on(world, i, request, lost);
    }

    /// Goes on until a write is under way, or the attempt is over.
    fn carry_on(&self, world: &mut World, i: usize, request: Option<Request>, lost: bool) {
        let mut next = request;
        while let Some(request) = next.take() {
            let write = request != Request::Get;
            if write && lost {
                self.failed(world, i, &request);
                world.replicas[i].adrift = Some(request);
                return;
            }
            let answer = self.lands(world, &request);
            if write && matches!(answer, Answer::Is(..)) {
                world.replicas[i].call = Some((request, answer));
                return;
            }
            let election = &mut world.replicas[i].election;
            next = election.answered(&request, answer.clone(), NOW, NEW);
            if next.is_none() && !write && self.is(Break::TimestampsTrusted) {
                // A clock that is ahead of the holder's: by the record's own time it is over.
                *election = election.mapped(|t| t, |t| t.min(NOW - 1), &mut str::to_owned);
                next = election.answered(&request, answer, NOW, NEW);
            }
        }
    }

    pub fn answer(&self, world: &mut World, i: usize) {
        let replica = &mut world.replicas[i];
        let Some((request, answer)) = replica.call.take() else { return };
        let next = replica.election.answered(&request, answer, NOW, NEW);
        assert_eq!(next, None);
        if self.is(Break::ClaimFromAnswer) {
            replica.answered_at = Some(NOW);
        }
    }

    pub fn failed(&self, world: &mut World, i: usize, request: &Request) {
        let replica = &mut world.replicas[i];
        replica.ended |= self.is(Break::GivesUp) && replica.election.holds(NOW);
        let next = replica.election.answered(request, Answer::Failed, NOW, NEW);
        assert_eq!(next, None);
    }

    /// The API server carries a request out.
    pub fn lands(&self, world: &mut World, request: &Request) -> Answer {
        let stored = |record: &Record| {
            // They are counted, never judged by; they must not make endless states.
            let transitions = 0;
            (Record { transitions, ..record.clone() }, NEW.to_owned())
        };
        match (request, &world.lease) {
            (Request::Get, None) => return Answer::Missing,
            (Request::Get, Some((record, version))) => {
                return Answer::Is(record.clone(), version.clone());
            }
            (Request::Create(record), None) => world.lease = Some(stored(record)),
            (Request::Update(record, version), Some((_, current)))
                if version == current || self.is(Break::VersionIgnored) =>
            {
                world.lease = Some(stored(record));
            }
            (Request::Create(_) | Request::Update(..), _) => return Answer::Conflict,
        }
        let (record, version) = world.lease.clone().unwrap();
        Answer::Is(record, version)
    }

    pub fn tick(&self, world: &World) -> World {
        let mut world = self.told(world, &self.clocks);
        for replica in &mut world.replicas {
            let lost = replica.election.leads_from().is_some() && !replica.election.holds(NOW);
            replica.ended |= lost && self.is(Break::ExitsOnLoss);
        }
        world
    }

    /// The same world a little later, told in one way: names in the order in which they are met,
    /// and times that can no longer matter made alike.
    pub fn told(&self, old: &World, elapsed: &[u64]) -> World {
        let mut names: Vec<String> = Vec::new();
        let mut name = |old: &str| {
            let at = names.iter().position(|n| n == old).unwrap_or_else(|| {
                names.push(old.to_owned());
                names.len() - 1
            });
            at.to_string()
        };
        let mut world = old.clone();
        let current = old.lease.as_ref().map(|(_, version)| version);
        if let Some((record, version)) = &mut world.lease {
            (*version, record.renewed) = (name(version), name(&record.renewed));
        }
        for (replica, elapsed) in world.replicas.iter_mut().zip(elapsed) {
            // Nothing asks how long ago it was, once it was longer ago than any claim lasts.
            let sent = |t: u64| (t - elapsed).max(NOW - self.rules().renew_deadline_ms - 2);
            let due = |t: u64| (t - elapsed).max(NOW - 1);
            if let Some(until) = self.gate(replica) {
                replica.open_until = Some(until.min(NOW + elapsed));
            }
            if self.is(Break::GateAtQueueOnly) && replica.open_until.is_some() {
                // What was queued may be sent whenever its turn comes.
                replica.open_until = Some(NOW + elapsed);
            }
            let may_be_under_way = |t: &u64| *t + WRITE > NOW;
            replica.open_until = replica.open_until.map(sent).filter(may_be_under_way);
            replica.election = replica.election.mapped(sent, due, &mut name);
            replica.answered_at = replica.answered_at.map(sent);
            if let Some((request, answer)) = &mut replica.call {
                rename(request, &mut name);
                if let Answer::Is(record, version) = answer {
                    (*version, record.renewed) = (name(version), name(&record.renewed));
                }
            }
            // No version ever comes back.
            if world.faults == 0
                || !self.faults.1.contains(&Fault::Late)
                || matches!(&replica.adrift, Some(Request::Update(_, v)) if Some(v) != current)
            {
                replica.adrift = None;
            }
            if let Some(request) = &mut replica.adrift {
                rename(request, &mut name);
            }
        }
        world
    }
}

fn rename(request: &mut Request, name: &mut impl FnMut(&str) -> String) {
    match request {
        Request::Get => {}
        Request::Create(record) => record.renewed = name(&record.renewed),
        Request::Update(record, version) => {
            (*version, record.renewed) = (name(version), name(&record.renewed));
        }
    }
}
