use super::*;

const LEASE: u64 = 15_000;

fn shards(count: u16) -> Shards {
    Shards::try_from(count).unwrap_or_default()
}

fn member(identity: &str, version: u64) -> (String, u64, String) {
    (identity.to_owned(), LEASE, version.to_string())
}

#[test]
fn quotas_of_all_members_add_up_and_differ_by_at_most_one() {
    for count in [1, 2, 7, 8, 16, 256] {
        for members in 1..12_usize {
            let names: Vec<_> = (0..members).map(|n| format!("m{n:02}")).collect();
            let quotas: Vec<_> = names
                .iter()
                .map(|name| {
                    let mut share = Share::new(name.clone(), shards(count), LEASE);
                    share.see_members(0, names.iter().map(|name| member(name, 1)));
                    share.quota(0, 0)
                })
                .collect();
            assert_eq!(quotas.iter().sum::<usize>(), usize::from(count));
            let (most, least) = (quotas.iter().max(), quotas.iter().min());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{quotas:?}");
        }
    }
}

#[test]
fn a_member_counts_while_its_lease_changes_and_for_give_ups_only_after_a_lease_duration() {
    let mut share = Share::new("a".to_owned(), shards(8), LEASE);
    share.see_holders(0, |_| ShardHolder::ThisInstance);
    share.see_members(0, [member("b", 1)]);
    assert_eq!((share.quota(0, 0), share.quota(0, LEASE)), (4, 8));
    share.see_members(10_000, [member("b", 2)]);
    assert_eq!(share.give_up(14_999, |_| true), None);
    assert_eq!(share.quota(15_000, LEASE), 4);
    // It is not renewed any more: dead a duration later, and new when it comes back.
    share.see_members(25_001, [member("b", 2)]);
    assert_eq!((share.quota(25_000, 0), share.quota(25_001, 0)), (4, 8));
    share.see_members(26_000, [member("b", 3)]);
    assert_eq!((share.quota(26_000, 0), share.quota(26_000, LEASE)), (4, 8));
}

/// Whose the larger shares are changes with every member, but that alone moves nothing.
#[test]
fn even_instances_move_nothing_whoever_has_the_larger_shares() {
    for (of_a, is_given_up) in [(3, false), (4, true)] {
        let mut share = Share::new("c".to_owned(), shards(8), LEASE);
        share.see_members(0, [member("a", 1), member("b", 1)]);
        share.see_members(10_000, [member("a", 2), member("b", 2)]);
        share.see_holders(10_000, |shard| match usize::from(shard.0) {
            n if n < 3 => ShardHolder::ThisInstance,
            n if n < 3 + of_a => ShardHolder::AnotherInstance("a"),
            _ => ShardHolder::AnotherInstance("b"),
        });
        assert_eq!(share.quota(LEASE, LEASE), 2);
        assert_eq!(share.give_up(LEASE, |_| true).is_some(), is_given_up, "a has {of_a}");
    }
}

#[test]
fn what_nobody_else_takes_makes_the_pauses_longer_up_to_five_minutes() {
    let mut share = Share::new("a".to_owned(), shards(8), LEASE);
    let mut pauses = Vec::new();
    let (mut last, mut out) = (None, None);
    for second in 0..20_000_u64 {
        let now = second * 1_000;
        share.see_members(now, [member("b", second)]);
        // What was given up is free for one look, and comes back.
        share.see_holders(now, |shard| {
            if out == Some(shard) { ShardHolder::Nobody } else { ShardHolder::ThisInstance }
        });
        out = share.give_up(now, |_| true);
        if out.is_some() {
            pauses.extend(last.map(|last| now - last));
            last = Some(now);
        }
    }
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert_eq!(pauses.last(), Some(&PAUSE_MAX_MS));
}

/// A small generator: the same histories in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// One instance of the history: `None` while it does not run.
struct Instance {
    share: Option<Share>,
    runs: u64,
    /// Until when its requests fail, so that its view is old.
    cut_off_until: u64,
    gave_up_at: Option<u64>,
}

const STEP: u64 = 500;
const RETRY: u64 = 2_000;

/// Leases of shards and members as the API server has them. A dead holder's expires.
struct Fleet {
    draw: Draw,
    shards: Shards,
    instances: Vec<Instance>,
    /// The holder of each shard, and when it last renewed.
    holders: Vec<Option<(usize, u64)>>,
    /// The run and the last renewal of each member Lease.
    announced: Vec<Option<(u64, u64)>>,
    releasing: Vec<(usize, Shard)>,
    moves: usize,
}

impl Fleet {
    fn new(seed: u64) -> Self {
        let mut draw = Draw(seed);
        let shards = shards(2 + draw.below(15) as u16);
        let count = 1 + draw.below(5) as usize;
        let instance = |_| Instance { share: None, runs: 0, cut_off_until: 0, gave_up_at: None };
        Self {
            draw,
            shards,
            instances: (0..count).map(instance).collect(),
            holders: vec![None; shards.count()],
            announced: vec![None; count],
            releasing: Vec::new(),
            moves: 0,
        }
    }

    fn name(i: usize, run: u64) -> String {
        format!("{}-{i}-{run}", (i as u64 * 7 + run * 5) % 11)
    }

    fn start(&mut self, i: usize) {
        let instance = &mut self.instances[i];
        instance.runs += 1;
        let name = Self::name(i, instance.runs);
        instance.share = Some(Share::new(name, self.shards, LEASE));
        instance.gave_up_at = None;
    }

    fn stop(&mut self, i: usize) {
        self.instances[i].share = None;
        self.releasing.retain(|(by, _)| *by != i);
        // The next process in its place is another one: the old one's Leases expire.
        for holder in self.holders.iter_mut().flatten().filter(|(by, _)| *by == i) {
            holder.0 = usize::MAX;
        }
    }

    /// Something happens to an instance.
    fn disturb(&mut self, now: u64) {
        let i = self.draw.below(self.instances.len() as u64) as usize;
        match (self.draw.below(3), self.instances[i].share.is_some()) {
            (0, true) => self.stop(i),
            (1, true) => self.instances[i].cut_off_until = now + self.draw.below(2 * LEASE),
            (_, false) => self.start(i),
            _ => {}
        }
    }

    fn step(&mut self, now: u64) {
        for (_, shard) in std::mem::take(&mut self.releasing) {
            self.holders[usize::from(shard.0)] = None;
        }
        for holder in &mut self.holders {
            *holder = holder.filter(|(_, renewed_at)| now <= renewed_at + LEASE);
        }
        for i in 0..self.instances.len() {
            let cut_off = now < self.instances[i].cut_off_until;
            let is_due = (now / STEP + i as u64).is_multiple_of(RETRY / STEP);
            if !cut_off && is_due {
                self.attempt(i, now);
            }
        }
    }

    fn attempt(&mut self, i: usize, now: u64) {
        let runs = self.instances.iter().map(|instance| instance.runs).enumerate();
        let names: Vec<_> = runs.map(|(i, run)| Self::name(i, run)).collect();
        let instance = &mut self.instances[i];
        let Some(share) = &mut instance.share else { return };
        self.announced[i] = Some((instance.runs, now));
        let members = self.announced.iter().enumerate().filter_map(|(i, announced)| {
            announced.map(|(run, at)| (Self::name(i, run), LEASE, at.to_string()))
        });
        share.see_members(now, members);
        for (holder, renewed_at) in self.holders.iter_mut().flatten() {
            if *holder == i {
                *renewed_at = now;
            }
        }
        let see_holders = |share: &mut Share, holders: &[Option<(usize, u64)>]| {
            share.see_holders(now, |shard| match holders[usize::from(shard.0)] {
                None => ShardHolder::Nobody,
                Some((holder, _)) if holder == i => ShardHolder::ThisInstance,
                Some((holder, _)) => {
                    ShardHolder::AnotherInstance(names.get(holder).map_or("gone", String::as_str))
                }
            });
        };
        see_holders(share, &self.holders);
        for shard in self.shards.all() {
            if share.should_take(now, shard) {
                assert_eq!(self.holders[usize::from(shard.0)], None);
                self.holders[usize::from(shard.0)] = Some((i, now));
                self.moves += 1;
                see_holders(share, &self.holders);
            }
        }
        if let Some(shard) = share.give_up(now, |_| true) {
            assert!(instance.gave_up_at.is_none_or(|at| now >= at + 1_000), "two in a second");
            instance.gave_up_at = Some(now);
            self.releasing.push((i, shard));
        }
    }

    /// How many shards each instance that runs holds.
    fn held(&self) -> Vec<usize> {
        let runs = |i: &usize| self.instances[*i].share.is_some();
        let held = |i| self.holders.iter().flatten().filter(|(holder, _)| *holder == i).count();
        (0..self.instances.len()).filter(runs).map(held).collect()
    }
}

/// From any start, with instances that come, die, return and are cut off: then calm.
#[test]
fn in_the_end_every_shard_is_held_evenly_and_none_moves_any_more() {
    let mut uneven_before = 0;
    for seed in 0..400 {
        let mut fleet = Fleet::new(seed);
        let mut now = 0;
        for _ in 0..fleet.draw.below(600) {
            if fleet.draw.below(20) == 0 {
                fleet.disturb(now);
            }
            fleet.step(now);
            now += STEP;
        }
        if fleet.held().is_empty() {
            fleet.start(0);
        }
        let held = fleet.held();
        uneven_before += usize::from(held.iter().max() > held.iter().min());
        fleet.instances.iter_mut().for_each(|instance| instance.cut_off_until = 0);

        // Within two lease durations and two attempts every shard is held, whatever the quotas.
        let until = now + 2 * LEASE + 2 * RETRY;
        fleet.moves = 0;
        while now < until {
            fleet.step(now);
            now += STEP;
        }
        assert!(fleet.holders.iter().filter(|holder| holder.is_none()).count() <= 1, "seed {seed}");
        let until = now + 600_000;
        while now < until {
            fleet.step(now);
            now += STEP;
        }
        let held = fleet.held();
        assert_eq!(held.iter().sum::<usize>(), fleet.shards.count(), "seed {seed}: {held:?}");
        let (most, least) = (held.iter().max(), held.iter().min());
        assert!(most.zip(least).is_some_and(|(m, l)| m - l <= 1), "seed {seed}: {held:?}");
        // Each shard is taken after a death, and moves at most once more to become even.
        let bound = 2 * fleet.shards.count();
        assert!(fleet.moves <= bound, "seed {seed}: {} moves, {held:?}", fleet.moves);
        fleet.moves = 0;
        for _ in 0..1_000 {
            fleet.step(now);
            now += STEP;
        }
        assert_eq!(fleet.moves, 0, "seed {seed}");
    }
    assert!(uneven_before > 50, "only {uneven_before} histories left anything to even out");
}
