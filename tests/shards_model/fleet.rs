//! Instances that share the shards, the faults that they meet, and what must hold all the time. Times are
//! milliseconds of the real clock: the slowest that an instance may have.

use std::collections::BTreeSet;

use throughline::core::data::shard::Shards;
use throughline::leader::election::LeaseRecord;

use super::api::{Api, Draw, WAY_MS};
use super::breaks::BrokenRule;
use super::instance::{Clock, Hands, Instance, TIMINGS};

/// What may go wrong in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Requests and answers are lost or late.
    Ways,
    /// A process dies, and another one starts later.
    Crash,
    /// An instance does not reach the Lease API for a while.
    Partition,
    /// Somebody deletes a Lease or writes another holder into it.
    Edit,
}

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub shards: u16,
    pub instances: usize,
    pub faults: &'static [Fault],
    pub broken: Option<BrokenRule>,
}

/// How long faults happen.
const FAULTS_MS: u64 = 120_000;
/// How long a history goes on without any.
const CALM_MS: u64 = 150_000;
/// Nothing may move in the last part of it.
const REST_MS: u64 = 60_000;
/// From the time at which a request is sent to its answer.
const CALL_MS: u64 = 2 * WAY_MS;

/// How long a shard may have no leader once faults have stopped.
///
/// The last fault may have written a Lease that nobody renews. The others see that by a look, which may
/// begin a retry period later, after one that hangs. It expires a lease duration later, and so does the
/// Lease of the member that died. They were not written at the same time, and seen by looks of which each
/// instance has its own: two more retry periods, until whoever has too few shards has asked again.
/// A Lease that somebody deleted is created at once, if its new holder has too few shards; if not, when
/// it was free for a lease duration. In both cases it is led a lease duration later.
pub fn unled_max(faults: &[Fault]) -> u64 {
    let look = TIMINGS.request_ms() + TIMINGS.retry_ms / 10 + TIMINGS.retry_ms + CALL_MS;
    let leases = if faults.contains(&Fault::Edit) { 2 } else { 1 };
    look + leases * (TIMINGS.lease_ms + TIMINGS.retry_ms) + TIMINGS.retry_ms + 3 * CALL_MS
}

/// The writes of one process for one shard.
struct Writes {
    identity: String,
    shard: usize,
    clock: Clock,
    /// Until when its gate stays open, as it was last seen; `None`: it was closed.
    open_until: Option<u64>,
    /// When the last one has ended.
    end_at: u64,
}

pub struct Fleet {
    setup: Setup,
    draw: Draw,
    now: u64,
    api: Api,
    instances: Vec<Option<Instance>>,
    /// When the next process of a slot starts.
    starts_at: Vec<u64>,
    runs: u64,
    next_fault_at: u64,
    writes: Vec<Writes>,
    /// The `renewTime`s of Leases that somebody edited.
    edited: BTreeSet<String>,
    unled_since: Vec<u64>,
    led_by: Vec<Option<usize>>,
    moved_at: u64,
    /// The longest that a shard had no leader in calm times.
    pub unled_longest: u64,
    pub moves: u64,
}

impl Fleet {
    pub fn new(setup: Setup, seed: u64) -> Self {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        draw.between(0, 1);
        let mut api = Api::default();
        let shards = usize::from(setup.shards);
        api.leases.shards = vec![None; shards];
        api.cut_until = vec![0; setup.instances];
        if setup.faults.contains(&Fault::Ways) {
            api.bad = [0, 3, 15, 40][draw.between(0, 3) as usize];
        }
        let starts_at = (0..setup.instances).map(|_| draw.between(0, 40_000)).collect();
        Self {
            setup,
            draw,
            now: 0,
            api,
            instances: (0..setup.instances).map(|_| None).collect(),
            starts_at,
            runs: 0,
            next_fault_at: 0,
            writes: Vec::new(),
            edited: BTreeSet::new(),
            unled_since: vec![0; shards],
            led_by: vec![None; shards],
            moved_at: 0,
            unled_longest: 0,
            moves: 0,
        }
    }

    /// Runs the whole history. Returns the first thing that was wrong.
    pub fn run(&mut self) -> Result<(), String> {
        let calm_from = if self.setup.faults.is_empty() { 40_000 } else { FAULTS_MS };
        while self.now < calm_from {
            self.step(calm_from)?;
        }
        self.calm_down();
        let end = calm_from + CALM_MS;
        let unled_max = unled_max(self.setup.faults);
        while self.now < end {
            self.step(end)?;
            for (shard, since) in self.unled_since.iter().enumerate() {
                let unled = self.now.saturating_sub((*since).max(calm_from));
                self.unled_longest = self.unled_longest.max(unled);
                if unled > unled_max {
                    return self.wrong(&format!("nobody has led shard {shard} for {unled} ms"));
                }
            }
        }
        self.assert_rest()
    }

    fn wrong<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("at {} ms: {what}", self.now))
    }

    fn calm_down(&mut self) {
        self.api.calm_down(self.now);
        self.next_fault_at = u64::MAX;
        // Somebody lives; not always everybody.
        let survivor = self.draw.between(0, self.setup.instances as u64 - 1) as usize;
        for slot in 0..self.setup.instances {
            if self.instances[slot].is_none() {
                let starts = slot == survivor || self.draw.percent(50);
                self.starts_at[slot] = if starts { self.now } else { u64::MAX };
            }
        }
    }

    fn assert_rest(&self) -> Result<(), String> {
        if self.now < self.moved_at + REST_MS {
            return self.wrong(&format!("a shard moved at {}", self.moved_at));
        }
        let living = (0..self.setup.instances).filter(|slot| self.instances[*slot].is_some());
        let held: Vec<_> =
            living.map(|slot| self.led_by.iter().filter(|by| **by == Some(slot)).count()).collect();
        let uneven = held.iter().max().zip(held.iter().min()).is_some_and(|(a, b)| a - b > 1);
        if uneven { self.wrong(&format!("the instances hold {held:?} shards")) } else { Ok(()) }
    }

    /// Goes on to the next moment at which something happens, `end` at most.
    fn step(&mut self, end: u64) -> Result<(), String> {
        let instances = self.instances.iter().flatten();
        let theirs = instances.map(|i| i.clock.real(i.next_at(i.clock.shows(self.now))));
        let starts = self.starts_at.iter().copied();
        let next = theirs.chain(starts).chain(self.api.next_at()).chain([self.next_fault_at, end]);
        let next = next.min().unwrap_or(end).max(self.now);
        self.pass(next);
        for (slot, id, answer) in self.api.run(next) {
            self.with(slot, |instance, hands| instance.take(hands, id, answer));
        }
        for slot in 0..self.instances.len() {
            if self.starts_at[slot] <= next {
                self.start(slot);
            }
            self.with(slot, Instance::run);
        }
        if self.next_fault_at <= next {
            self.fault();
        }
        self.look()
    }

    fn with(&mut self, slot: usize, act: impl FnOnce(&mut Instance, &mut Hands<'_>)) {
        let Some(instance) = &mut self.instances[slot] else { return };
        let now = instance.clock.shows(self.now);
        act(instance, &mut Hands { now, api: &mut self.api, draw: &mut self.draw });
    }

    fn start(&mut self, slot: usize) {
        self.starts_at[slot] = u64::MAX;
        self.runs += 1;
        let percent = [100, 105, 110][self.draw.between(0, 2) as usize];
        let clock = Clock { percent };
        // The identities of later processes come anywhere among the others.
        let me = format!("{}-{}", self.draw.between(100, 999), self.runs);
        let shards = Shards::try_from(self.setup.shards).unwrap();
        let setup = (shards, clock, self.setup.broken);
        let instance = Instance::new(me.clone(), slot, clock.shows(self.now), setup);
        self.instances[slot] = Some(instance);
        for shard in 0..shards.count() {
            let identity = me.clone();
            self.writes.push(Writes { identity, shard, clock, open_until: None, end_at: 0 });
        }
        self.with(slot, Instance::run);
    }

    /// Time passes: what was open stayed open meanwhile, unless it closed by itself.
    fn pass(&mut self, to: u64) {
        self.now = to;
        for writes in &mut self.writes {
            if let Some(until) = writes.open_until {
                let last = until.min(to);
                writes.end_at = last + (TIMINGS.write_ms * 100).div_ceil(writes.clock.percent);
            }
        }
        self.writes.retain(|writes| {
            let lives = self.instances.iter().flatten().any(|i| i.me == writes.identity);
            lives || writes.end_at > to
        });
    }

    /// Notes whose gates are open now, and whether that is right.
    fn look(&mut self) -> Result<(), String> {
        let now = self.now;
        for writes in &mut self.writes {
            let of = self.instances.iter().flatten().find(|i| i.me == writes.identity);
            let Some(instance) = of else {
                writes.open_until = None;
                continue;
            };
            let gate = instance.gate(instance.clock.shows(now), writes.shard);
            writes.open_until = gate.map(|until| instance.clock.real(until));
            if let Some(end) = instance.writes_end(writes.shard) {
                writes.end_at = writes.end_at.min(instance.clock.real(end));
            }
        }
        for open in self.writes.iter().filter(|writes| writes.open_until.is_some()) {
            let other = self.writes.iter().find(|other| {
                other.shard == open.shard
                    && other.identity != open.identity
                    && (other.open_until.is_some() || other.end_at > now)
            });
            if let Some(other) = other {
                let (one, two, shard) = (&open.identity, &other.identity, open.shard);
                let wrong = format!(
                    "{one} may write for shard {shard}, and a write of {two} may take effect"
                );
                return self.wrong(&wrong);
            }
        }
        self.look_at_moves();
        self.instances.iter().flatten().find_map(|i| i.wrong.clone()).map_or(Ok(()), Err)
    }

    fn look_at_moves(&mut self) {
        for shard in 0..self.led_by.len() {
            let leads = |i: &&Instance| i.gate(i.clock.shows(self.now), shard).is_some();
            let leader = self.instances.iter().flatten().find(leads).map(|i| i.slot);
            let Some(leader) = leader else { continue };
            self.unled_since[shard] = self.now;
            if self.led_by[shard] != Some(leader) {
                self.led_by[shard] = Some(leader);
                self.moved_at = self.now;
                self.moves += 1;
            }
        }
    }

    fn fault(&mut self) {
        self.next_fault_at = self.now + self.draw.between(200, 15_000);
        let slot = self.draw.between(0, self.setup.instances as u64 - 1) as usize;
        let faults = self.setup.faults;
        if faults.is_empty() {
            return;
        }
        match faults[self.draw.between(0, faults.len() as u64 - 1) as usize] {
            Fault::Ways => {}
            Fault::Crash => {
                if self.instances[slot].take().is_some() {
                    self.starts_at[slot] = self.now + self.draw.between(0, 30_000);
                }
            }
            Fault::Partition => {
                self.api.cut_until[slot] = self.now + self.draw.between(100, 40_000);
            }
            Fault::Edit => self.edit(),
        }
    }

    fn edit(&mut self) {
        let shard = self.draw.between(0, u64::from(self.setup.shards) - 1) as usize;
        let names: Vec<_> = self.instances.iter().flatten().map(|i| i.me.clone()).collect();
        let mut holders = vec![None, Some(String::new()), Some("somebody".to_owned())];
        holders.extend(names.into_iter().map(Some));
        let Some((record, _)) = self.api.leases.shards[shard].clone() else { return };
        match holders.swap_remove(self.draw.between(0, holders.len() as u64 - 1) as usize) {
            None => self.api.leases.shards[shard] = None,
            Some(holder) => {
                // A Lease without a holder and of one second is a released one, which no edit makes.
                let mut edited = LeaseRecord { holder, lease_ms: TIMINGS.lease_ms, ..record };
                // Nor does anybody restore what a holder wrote: nobody could tell.
                if !self.edited.insert(edited.renew_time.clone()) {
                    edited.renew_time = format!("edited at {}", self.now);
                }
                self.api.write(shard, edited);
            }
        }
    }
}
