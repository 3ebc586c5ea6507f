//! One instance: the real elections and the real share, and around them what `board.rs`, `seat.rs`,
//! `candidate.rs` and `shards.rs` of `src/leader` do. Times are milliseconds of its own clock.

mod sharing;

use throughline::core::data::shard::{Shard, ShardSet, Shards};
use throughline::leader::election::{Election, LeaseRecord, LeaseRequest, LeaseResponse, Timings};
use throughline::leader::share::Share;

use super::api::{Answer, Api, Ask, Draw};
use super::breaks::BrokenRule;

pub const TIMINGS: Timings =
    Timings { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
const RELEASE_ATTEMPTS: usize = 4;

/// A clock that counts `percent` milliseconds while 100 pass.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub percent: u64,
}

impl Clock {
    pub fn shows(&self, real: u64) -> u64 {
        real * self.percent / 100
    }

    /// The first moment at which it shows `local`.
    pub fn real(&self, local: u64) -> u64 {
        (local * 100).div_ceil(self.percent)
    }
}

/// What an instance has to act with.
pub struct Hands<'a> {
    pub now: u64,
    pub api: &'a mut Api,
    pub draw: &'a mut Draw,
}

/// A request without an answer yet, and until when it waits.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    id: u64,
    until: u64,
}

#[derive(Clone, Debug)]
enum Doing {
    Pauses {
        until: u64,
    },
    Asks {
        request: LeaseRequest,
        awaited: Awaited,
    },
    /// For a look that began after so many.
    WaitsForLook {
        after: u64,
    },
    /// It gives the shard up, and its last writes end.
    EndsWrites {
        until: u64,
    },
}

/// The election of one shard.
pub struct Seat {
    pub election: Election,
    doing: Doing,
    began: u64,
    failed: bool,
    /// Attempts to release the Lease that are left, while it is given up.
    release_attempts: Option<usize>,
    /// Only with a broken rule: the election before it resigned.
    kept: Option<Election>,
}

#[derive(Clone, Debug)]
struct Shown {
    record: LeaseRecord,
    version: String,
    since: u64,
}

pub struct Instance {
    pub me: String,
    pub clock: Clock,
    pub slot: usize,
    share: Share,
    owned: ShardSet,
    shown: Vec<Option<Shown>>,
    pub seats: Vec<Seat>,
    looks: u64,
    look_began: u64,
    next_look_at: u64,
    listing: Option<Awaited>,
    announcing: Option<Awaited>,
    announced_at: Option<u64>,
    renewals: u64,
    broken: Option<BrokenRule>,
    pub gave_up_at: Option<u64>,
    /// Something that must not be, and that only the instance can see.
    pub wrong: Option<String>,
}

impl Instance {
    pub fn new(
        me: String,
        slot: usize,
        now: u64,
        setup: (Shards, Clock, Option<BrokenRule>),
    ) -> Self {
        let (shards, clock, broken) = setup;
        let seat = |_| Seat {
            election: Election::new(me.clone(), TIMINGS),
            doing: Doing::Pauses { until: now },
            began: now,
            failed: false,
            release_attempts: None,
            kept: None,
        };
        Self {
            slot,
            clock,
            share: Share::new(me.clone(), shards, TIMINGS.lease_ms),
            owned: ShardSet::default(),
            shown: vec![None; shards.count()],
            seats: shards.all().map(seat).collect(),
            looks: 0,
            look_began: now,
            next_look_at: now,
            listing: None,
            announcing: None,
            announced_at: None,
            renewals: 0,
            broken,
            gave_up_at: None,
            wrong: None,
            me,
        }
    }

    fn breaks(&self, rule: BrokenRule) -> bool {
        self.broken == Some(rule)
    }

    /// Until when it may send writes for a shard.
    pub fn gate(&self, now: u64, shard: usize) -> Option<u64> {
        if self.breaks(BrokenRule::OneGate) {
            return self.seats.iter().filter_map(|seat| seat.election.gate(now)).max();
        }
        self.seats[shard].election.gate(now)
    }

    /// When something happens without an answer.
    pub fn next_at(&self, now: u64) -> u64 {
        let seats = self.seats.iter().flat_map(|seat| {
            let due = match &seat.doing {
                Doing::Pauses { until } | Doing::EndsWrites { until } => Some(*until),
                Doing::Asks { awaited, .. } => Some(awaited.until),
                Doing::WaitsForLook { .. } => None,
            };
            let opens = seat.election.leads_from().filter(|at| *at > now);
            let closes = seat.election.gate(now);
            [due, opens, closes].into_iter().flatten()
        });
        let looks = self.listing.or(self.announcing).map_or(self.next_look_at, |a| a.until);
        seats.chain([looks]).min().unwrap_or(u64::MAX)
    }

    fn send(&mut self, hands: &mut Hands<'_>, ask: Ask) -> Awaited {
        let real = self.clock.real(hands.now);
        let id = hands.api.send(real, hands.draw, self.slot, &self.me, ask);
        Awaited { id, until: hands.now + TIMINGS.request_ms() }
    }

    fn renew_time(&mut self) -> String {
        self.renewals += 1;
        format!("{} of {}", self.renewals, self.me)
    }

    /// Does what is due.
    pub fn run(&mut self, hands: &mut Hands<'_>) {
        let now = hands.now;
        if self.listing.is_some_and(|a| a.until <= now) {
            self.end_look(hands, None);
        }
        if self.announcing.is_some_and(|a| a.until <= now) {
            self.announcing = None;
            self.begin_look(hands);
        }
        if self.listing.is_none() && self.announcing.is_none() && self.next_look_at <= now {
            self.look_began = now;
            if self.announced_at.is_some_and(|at| now < at + TIMINGS.lease_ms / 3) {
                self.begin_look(hands);
            } else {
                let ask = Ask::Announce(self.renew_time());
                self.announcing = Some(self.send(hands, ask));
            }
        }
        for shard in 0..self.seats.len() {
            match self.seats[shard].doing.clone() {
                Doing::Pauses { until } if until <= now => self.begin_attempt(hands, shard),
                Doing::EndsWrites { until } if until <= now => self.begin_attempt(hands, shard),
                Doing::Asks { request, awaited } if awaited.until <= now => {
                    self.answered(hands, shard, &request, LeaseResponse::Failed);
                }
                _ => {}
            }
        }
    }

    /// An answer has come, unless nobody waits for it any more.
    pub fn take(&mut self, hands: &mut Hands<'_>, id: u64, answer: Answer) {
        let is = |awaited: Option<Awaited>| awaited.is_some_and(|a| a.id == id);
        match answer {
            Answer::Announced if is(self.announcing) => {
                (self.announcing, self.announced_at) = (None, Some(self.look_began));
                self.begin_look(hands);
            }
            Answer::List(leases) if is(self.listing) => self.end_look(hands, Some(leases)),
            Answer::Lease(response) => {
                for shard in 0..self.seats.len() {
                    if let Doing::Asks { request, awaited } = self.seats[shard].doing.clone()
                        && awaited.id == id
                    {
                        self.answered(hands, shard, &request, response.clone());
                    }
                }
            }
            _ => {}
        }
    }

    /// Until when the writes of a shard that is being given up may be under way; `None` where it isn't.
    pub fn writes_end(&self, shard: usize) -> Option<u64> {
        match self.seats[shard].doing {
            Doing::EndsWrites { until } if !self.breaks(BrokenRule::ReleasedWhileWriting) => {
                Some(until)
            }
            _ => None,
        }
    }

    fn begin_attempt(&mut self, hands: &mut Hands<'_>, shard: usize) {
        let renew_time = self.renew_time();
        let seat = &mut self.seats[shard];
        (seat.began, seat.failed) = (hands.now, false);
        let next = seat.election.begin_attempt(hands.now, &renew_time);
        self.go_on(hands, shard, next);
    }

    fn answered(
        &mut self,
        hands: &mut Hands<'_>,
        shard: usize,
        request: &LeaseRequest,
        response: LeaseResponse,
    ) {
        let next = self.handle(hands.now, shard, request, response);
        self.go_on(hands, shard, next);
    }

    fn handle(
        &mut self,
        now: u64,
        shard: usize,
        request: &LeaseRequest,
        response: LeaseResponse,
    ) -> Option<LeaseRequest> {
        let renew_time = self.renew_time();
        let seat = &mut self.seats[shard];
        let lost_race = response == LeaseResponse::Conflict && seat.election.owns_lease();
        seat.failed = response == LeaseResponse::Failed || lost_race;
        let next = seat.election.handle_response(request, response, now, &renew_time);
        let owns = seat.election.owns_lease();
        self.owns(shard, owns);
        next
    }

    fn go_on(&mut self, hands: &mut Hands<'_>, shard: usize, mut next: Option<LeaseRequest>) {
        let now = hands.now;
        while let Some(request) = next {
            let owns = self.seats[shard].election.owns_lease();
            if request != LeaseRequest::Get && !owns && !self.may_take(now, shard) {
                next = self.handle(now, shard, &request, LeaseResponse::Conflict);
                continue;
            }
            let is_owned = self.owned.contains(Shard(shard as u16));
            let asks = request != LeaseRequest::Get
                || is_owned
                || self.is_expired(now, shard) && self.should_take(now, shard);
            self.seats[shard].doing = if asks {
                let awaited = self.send(hands, Ask::Lease(shard, request.clone()));
                Doing::Asks { request, awaited }
            } else {
                Doing::WaitsForLook { after: self.looks }
            };
            return;
        }
        self.end_attempt(hands, shard);
    }

    fn end_attempt(&mut self, hands: &mut Hands<'_>, shard: usize) {
        let now = hands.now;
        let keeps_tenure = self.breaks(BrokenRule::RejoinKeepsTenure);
        let seat = &mut self.seats[shard];
        if let Some(left) = seat.release_attempts {
            if left > 1 && seat.election.owns_lease() {
                seat.release_attempts = Some(left - 1);
                return self.begin_attempt(hands, shard);
            }
            seat.release_attempts = None;
            match seat.kept.take() {
                Some(kept) if keeps_tenure => seat.election = kept,
                _ => seat.election.rejoin(),
            }
            seat.doing = Doing::Pauses { until: now };
            return self.owns(shard, false);
        }
        let pause = TIMINGS.next_attempt(seat.began, now) - now;
        let shorter = if seat.failed { hands.draw.between(0, pause / 5) } else { 0 };
        let free = seat.election.free_from().filter(|at| *at > now && !seat.failed);
        let until = free.unwrap_or(u64::MAX).min(now + pause - shorter);
        seat.doing = Doing::Pauses { until };
    }
}
