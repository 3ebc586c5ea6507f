//! The Lease API, and the way to it: requests and answers take time, are lost, or come late.

use std::collections::BTreeMap;

use throughline::leader::election::{LeaseRecord, LeaseRequest, LeaseResponse};

/// A small generator: the same history for the same seed.
pub struct Draw(pub u64);

impl Draw {
    /// From `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (self.0 >> 33) % (most - least + 1)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.between(0, 99) < percent
    }
}

#[derive(Clone, Debug)]
pub enum Ask {
    Lease(usize, LeaseRequest),
    /// All Leases.
    List,
    /// The instance writes its own Lease, with this `renewTime`.
    Announce(String),
}

/// All Leases: of the shards, and the members' holders and `renewTime`s.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    pub shards: Vec<Option<(LeaseRecord, String)>>,
    pub members: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub enum Answer {
    Lease(LeaseResponse),
    List(Leases),
    Announced,
}

/// A request on its way, and then its answer. Times are real ones.
struct Message {
    id: u64,
    slot: usize,
    identity: String,
    ask: Ask,
    /// `None` once it was carried out.
    arrives_at: Option<u64>,
    /// How long the answer takes; `None` where it is lost.
    answer_takes: Option<u64>,
    answer: Option<(u64, Answer)>,
}

/// The longest way of a request, and of an answer, where nothing goes wrong.
pub const WAY_MS: u64 = 40;

#[derive(Default)]
pub struct Api {
    pub leases: Leases,
    messages: Vec<Message>,
    sent: u64,
    versions: u64,
    /// How many of a hundred requests have a bad way.
    pub bad: u64,
    /// Until when a slot's requests and answers are lost.
    pub cut_until: Vec<u64>,
}

impl Api {
    pub fn send(&mut self, now: u64, draw: &mut Draw, slot: usize, me: &str, ask: Ask) -> u64 {
        let (mut way, mut answer_takes) =
            (Some(draw.between(1, WAY_MS)), Some(draw.between(1, WAY_MS)));
        if draw.percent(self.bad) {
            match draw.between(0, 3) {
                0 => way = None,
                1 => answer_takes = None,
                2 => way = Some(draw.between(1, 3_000)),
                // Long after nobody waits for it any more.
                _ => way = Some(draw.between(2_000, 25_000)),
            }
        }
        self.sent += 1;
        if let Some(way) = way {
            self.messages.push(Message {
                id: self.sent,
                slot,
                identity: me.to_owned(),
                ask,
                arrives_at: Some(now + way),
                answer_takes,
                answer: None,
            });
        }
        self.sent
    }

    /// When the next message arrives.
    pub fn next_at(&self) -> Option<u64> {
        let at = |m: &Message| m.arrives_at.or(m.answer.as_ref().map(|(at, _)| *at));
        self.messages.iter().filter_map(at).min()
    }

    /// Whatever is late is lost.
    pub fn calm_down(&mut self, now: u64) {
        self.bad = 0;
        self.cut_until.fill(0);
        self.messages.retain(|m| m.arrives_at.is_none_or(|at| at <= now + WAY_MS));
    }

    /// Carries out the requests that have arrived by `now`, and returns the answers that have: their slot,
    /// number and content.
    pub fn run(&mut self, now: u64) -> Vec<(usize, u64, Answer)> {
        let mut messages = std::mem::take(&mut self.messages);
        let mut answers = Vec::new();
        messages.retain_mut(|message| {
            let is_cut = now < self.cut_until[message.slot];
            if message.arrives_at.is_some_and(|at| at <= now) {
                message.arrives_at = None;
                if is_cut {
                    return false;
                }
                let answer = self.carry_out(&message.identity, &message.ask);
                message.answer = message.answer_takes.map(|takes| (now + takes, answer));
                return message.answer.is_some();
            }
            match message.answer.take_if(|(at, _)| *at <= now) {
                None => true,
                Some((_, answer)) => {
                    if !is_cut {
                        answers.push((message.slot, message.id, answer));
                    }
                    false
                }
            }
        });
        self.messages.append(&mut messages);
        answers
    }

    fn new_version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    /// Somebody writes a shard's Lease.
    pub fn write(&mut self, shard: usize, record: LeaseRecord) -> LeaseResponse {
        let version = self.new_version();
        self.leases.shards[shard] = Some((record.clone(), version.clone()));
        LeaseResponse::Current(record, version)
    }

    fn carry_out(&mut self, identity: &str, ask: &Ask) -> Answer {
        let (shard, request) = match ask {
            Ask::List => return Answer::List(self.leases.clone()),
            Ask::Announce(renew_time) => {
                self.leases.members.insert(identity.to_owned(), renew_time.clone());
                return Answer::Announced;
            }
            Ask::Lease(shard, request) => (*shard, request),
        };
        Answer::Lease(match (request, &self.leases.shards[shard]) {
            (LeaseRequest::Get, None) => LeaseResponse::NotFound,
            (LeaseRequest::Get, Some((record, version))) => {
                LeaseResponse::Current(record.clone(), version.clone())
            }
            (LeaseRequest::Create(record), None) => self.write(shard, record.clone()),
            (LeaseRequest::Update(record, version), Some((_, current))) if version == current => {
                self.write(shard, record.clone())
            }
            (LeaseRequest::Update(..), None) => LeaseResponse::NotFound,
            (LeaseRequest::Create(_) | LeaseRequest::Update(..), _) => LeaseResponse::Conflict,
        })
    }
}
