//! The model: instances that elect a leader by the real [`Election`], an API server, and everything
//! that can go wrong between them.
//!
//! One step of time is 10 units of a slow clock and 11 of a fast one. Between two steps anything may
//! happen in any order, or nothing: a pause, a frozen process, an API server that is down and a slow
//! response need no step of their own, because nothing ever *has* to happen. Time has no end: times
//! are kept as distances from now, and everything longer ago than a lease duration counts as one, so
//! that the model can be explored to the last state.
//!
//! Two things are simpler than in reality. Reading is instantaneous: a decision on what was read is
//! always tied to its resourceVersion. And a request that arrives late has timed out before.

use throughline::leader::election::{Election, LeaseRecord, LeaseRequest, LeaseResponse, Timings};

/// Every instance's clock shows this; the times that it remembers are relative to it.
pub const NOW: u64 = 1_000;
/// The longest that a write may take after its last check of the gate: a step of a slow clock.
pub const WRITE: u64 = 10;
/// A lease of a little more than three steps. The gate stays open for 29 - 10 units, nearly two steps.
pub const TIMINGS: Timings =
    Timings { lease_ms: 32, renew_deadline_ms: 20, retry_ms: 10, write_ms: WRITE };
/// A name that is not used yet.
pub const NEW: &str = "new";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterModel {
    /// The Lease and its resourceVersion.
    pub lease: Option<(LeaseRecord, String)>,
    pub instances: Vec<Instance>,
    /// Faults that may still happen.
    pub faults: u8,
    /// A late write changed something that a later leader had written.
    pub overwrote: bool,
    /// A late write has put a value in the place of a later leader's that was the one it was decided
    /// on. No leader has put it right yet.
    pub undone: bool,
}

/// A process, and the requests that it has sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Its identity; after a restart it has another.
    pub me: String,
    pub election: Election,
    /// A write to the Lease that was carried out, and its response, which has not arrived yet.
    pub call: Option<(LeaseRequest, LeaseResponse)>,
    /// A write to the Lease that it no longer waits for, and that was not carried out yet.
    pub in_transit: Option<LeaseRequest>,
    /// The last moment at which its gate was open, by its own clock: a write may be in flight for
    /// [`WRITE`] after it.
    pub open_until: Option<u64>,
    /// A write that passed the gate and was frozen.
    pub frozen: Option<FrozenWrite>,
    /// It is resigning, and will stop.
    pub resigns: bool,
    /// Only with a broken rule: it has stopped, or its work has.
    pub ended: bool,
    /// Only with a broken rule: when the last renewal's response arrived.
    pub renewed_response_at: Option<u64>,
}

/// The fate of the object while a write to it was frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrozenWrite {
    /// Nobody has written since.
    Current,
    /// Another leader has.
    Overtaken,
    /// Other leaders have, and the annotation has the value again that the write was decided on.
    Repeated,
}

/// A step of the model: what happens, and to which instance.
pub type Step = (&'static str, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Somebody deletes or edits the Lease.
    Edit,
    /// A process dies and another one starts, or it resigns and stops.
    Process,
    /// A write to the Lease is carried out long after it timed out.
    Late,
    /// An instance stands down, or takes part again.
    StandsDown,
}

/// A rule of the election that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenRule {
    /// The process exits when it loses the Lease.
    ExitsOnLoss,
    /// The instance gives up after one failed renewal.
    GivesUp,
    /// It trusts the Lease's timestamps, with a clock that is ahead.
    TimestampsTrusted,
    /// Only a response ends the tenure.
    TenureNeverEnds,
    /// The tenure counts from the renewal's response.
    TenureFromResponse,
    /// The gate leaves no room for the longest write.
    GateIsTheLease,
    /// Other clocks are assumed to run at the same speed.
    ClocksAgree,
    /// A Lease that was deleted or edited is led at once.
    LeadsAtOnce,
    /// The Lease is released before the leader's writes have ended.
    ReleasedWhileWriting,
    /// A Lease that is not led yet is released, so that the next holder leads at once.
    ReleasedBeforeLeading,
    /// Updates ignore the resourceVersion.
    VersionIgnored,
    /// The gate is checked when a write is queued, and not when it is sent.
    GateAtQueueOnly,
    /// Writes to objects have no precondition.
    NoFence,
    /// A leader does not look at what it wrote before.
    NotPutRight,
    /// Work that failed once is not started again.
    WorkNotStartedAgain,
}

#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Units per step, for each instance.
    pub clocks: Vec<u64>,
    /// The faults besides pauses, lost requests and lost responses, and how many at most.
    pub faults: (u8, &'static [Fault]),
    /// Whether responses to writes of the Lease can be slow; if not, they come at once or never.
    pub slow: bool,
    /// Start where the first instance leads and the others know it; otherwise where nobody does.
    pub has_leader: bool,
    /// What other leaders' writes may make of a write that was frozen between the gate and the wire; no
    /// process freezes if there is nothing. `Repeated` where a write asks for the annotation that it was
    /// decided on, not for the object.
    pub overtaken: &'static [FrozenWrite],
    pub broken: Option<BrokenRule>,
}

impl Setup {
    pub fn breaks(&self, broken: BrokenRule) -> bool {
        self.broken == Some(broken)
    }

    fn timings(&self) -> Timings {
        if self.breaks(BrokenRule::GateIsTheLease) {
            return Timings { write_ms: 0, renew_deadline_ms: TIMINGS.lease_ms, ..TIMINGS };
        }
        TIMINGS
    }

    pub fn instance(&self, me: String) -> Instance {
        Instance {
            election: Election::new(me.clone(), self.timings()),
            me,
            call: None,
            in_transit: None,
            open_until: None,
            frozen: None,
            resigns: false,
            ended: false,
            renewed_response_at: None,
        }
    }

    /// Until when the instance considers its gate open.
    pub fn gate(&self, instance: &Instance) -> Option<u64> {
        let election = &instance.election;
        if instance.ended {
            return None;
        }
        let leads = election.leads_from().is_some_and(|from| from <= NOW);
        let gate = |from: Option<u64>, ms: u64| from.map(|from| from + ms).filter(|_| leads);
        let until = match self.broken {
            Some(BrokenRule::TenureFromResponse) => {
                gate(instance.renewed_response_at, self.timings().gate_ms())
            }
            Some(BrokenRule::TenureNeverEnds) => gate(Some(NOW), 100),
            Some(BrokenRule::LeadsAtOnce) => {
                election.renewed_at().map(|r| r + self.timings().gate_ms())
            }
            Some(BrokenRule::ClocksAgree) => {
                gate(election.renewed_at(), TIMINGS.lease_ms - WRITE - 1)
            }
            _ => election.gate(NOW),
        };
        until.filter(|until| NOW < *until)
    }

    /// Makes an attempt, until a write is in flight or the attempt is over.
    pub fn attempt(&self, state: &mut ClusterModel, i: usize, lost: bool) {
        let mut next = state.instances[i].election.begin_attempt(NOW, NEW);
        while let Some(request) = next.take() {
            let write = request != LeaseRequest::Get;
            if write && lost {
                self.failed(state, i, &request);
                state.instances[i].in_transit = Some(request);
                return;
            }
            let answer = self.carry_out(state, &request);
            if write && matches!(answer, LeaseResponse::Current(..)) {
                state.instances[i].call = Some((request, answer));
                return;
            }
            let election = &mut state.instances[i].election;
            next = election.handle_response(&request, answer.clone(), NOW, NEW);
            if next.is_none() && !write && self.breaks(BrokenRule::TimestampsTrusted) {
                // A clock ahead of the holder's: by the record's timestamp the Lease has expired.
                *election = election.mapped(|t| t, |t| t.min(NOW - 1), &mut str::to_owned);
                next = election.handle_response(&request, answer, NOW, NEW);
            }
        }
    }

    pub fn answer(&self, state: &mut ClusterModel, i: usize) {
        let instance = &mut state.instances[i];
        let Some((request, answer)) = instance.call.take() else { return };
        let next = instance.election.handle_response(&request, answer, NOW, NEW);
        assert_eq!(next, None);
        if self.breaks(BrokenRule::TenureFromResponse) {
            instance.renewed_response_at = Some(NOW);
        }
    }

    pub fn failed(&self, state: &mut ClusterModel, i: usize, request: &LeaseRequest) {
        let instance = &mut state.instances[i];
        instance.ended |= self.breaks(BrokenRule::GivesUp) && instance.election.is_holder(NOW);
        let next = instance.election.handle_response(request, LeaseResponse::Failed, NOW, NEW);
        assert_eq!(next, None);
    }

    /// The API server carries out a request.
    pub fn carry_out(&self, state: &mut ClusterModel, request: &LeaseRequest) -> LeaseResponse {
        let stored = |record: &LeaseRecord| {
            // Nothing depends on transitions, and counting them would make endless states.
            let transitions = 0;
            (LeaseRecord { transitions, ..record.clone() }, NEW.to_owned())
        };
        match (request, &state.lease) {
            (LeaseRequest::Get, None) => return LeaseResponse::NotFound,
            (LeaseRequest::Get, Some((record, version))) => {
                return LeaseResponse::Current(record.clone(), version.clone());
            }
            (LeaseRequest::Create(record), None) => state.lease = Some(stored(record)),
            (LeaseRequest::Update(record, version), Some((_, current)))
                if version == current || self.breaks(BrokenRule::VersionIgnored) =>
            {
                state.lease = Some(stored(record));
            }
            (LeaseRequest::Create(_) | LeaseRequest::Update(..), _) => {
                return LeaseResponse::Conflict;
            }
        }
        let (record, version) = state.lease.clone().unwrap();
        LeaseResponse::Current(record, version)
    }

    pub fn tick(&self, state: &ClusterModel) -> ClusterModel {
        let mut state = self.normalised(state.clone(), &self.clocks);
        for instance in &mut state.instances {
            let lost =
                instance.election.leads_from().is_some() && !instance.election.is_holder(NOW);
            instance.ended |= lost && self.breaks(BrokenRule::ExitsOnLoss);
        }
        state
    }

    /// The same world `elapsed` later, in a normal form: names in the order of their first use, and
    /// times that can no longer matter made equal.
    pub fn normalised(&self, mut state: ClusterModel, elapsed: &[u64]) -> ClusterModel {
        let mut names: Vec<String> = Vec::new();
        let mut name = |old: &str| {
            let at = names.iter().position(|n| n == old).unwrap_or_else(|| {
                names.push(old.to_owned());
                names.len() - 1
            });
            at.to_string()
        };
        let current = state.lease.as_ref().map(|(_, version)| version.clone());
        if let Some((record, version)) = &mut state.lease {
            (*version, record.renew_time) = (name(version), name(&record.renew_time));
        }
        for (instance, elapsed) in state.instances.iter_mut().zip(elapsed) {
            // Times further back than any tenure lasts all count the same.
            let sent = |t: u64| (t - elapsed).max(NOW - self.timings().renew_deadline_ms - 2);
            let due = |t: u64| (t - elapsed).max(NOW - 1);
            if let Some(until) = self.gate(instance) {
                instance.open_until = Some(until.min(NOW + elapsed));
            }
            if self.breaks(BrokenRule::GateAtQueueOnly) && instance.open_until.is_some() {
                // A queued write may be sent at any time.
                instance.open_until = Some(NOW + elapsed);
            }
            let may_be_in_flight = |t: &u64| *t + WRITE > NOW;
            instance.open_until = instance.open_until.map(sent).filter(may_be_in_flight);
            instance.election = instance.election.mapped(sent, due, &mut name);
            instance.renewed_response_at = instance.renewed_response_at.map(sent);
            if let Some((request, answer)) = &mut instance.call {
                rename(request, &mut name);
                if let LeaseResponse::Current(record, version) = answer {
                    (*version, record.renew_time) = (name(version), name(&record.renew_time));
                }
            }
            // A resourceVersion never returns.
            if state.faults == 0
                || !self.faults.1.contains(&Fault::Late)
                || matches!(&instance.in_transit, Some(LeaseRequest::Update(_, v)) if Some(v) != current.as_ref())
            {
                instance.in_transit = None;
            }
            if let Some(request) = &mut instance.in_transit {
                rename(request, &mut name);
            }
        }
        state
    }
}

fn rename(request: &mut LeaseRequest, name: &mut impl FnMut(&str) -> String) {
    match request {
        LeaseRequest::Get => {}
        LeaseRequest::Create(record) => record.renew_time = name(&record.renew_time),
        LeaseRequest::Update(record, version) => {
            (*version, record.renew_time) = (name(version), name(&record.renew_time));
        }
    }
}
