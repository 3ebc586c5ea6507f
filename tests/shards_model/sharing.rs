//! What an instance sees of the others, and which shards it takes and gives up because of it.

use throughline::core::data::shard::Shard;
use throughline::leader::election::{LeaseRequest, LeaseResponse};
use throughline::leader::share::ShardHolder;

use super::{Doing, Hands, Instance, RELEASE_ATTEMPTS, Shown, TIMINGS};
use crate::api::{Ask, Leases};
use crate::breaks::BrokenRule;

impl Instance {
    pub(super) fn begin_look(&mut self, hands: &mut Hands<'_>) {
        self.looks += 1;
        self.listing = Some(self.send(hands, Ask::List));
    }

    pub(super) fn end_look(&mut self, hands: &mut Hands<'_>, leases: Option<Leases>) {
        let now = hands.now;
        self.listing = None;
        self.next_look_at = TIMINGS.next_attempt(self.look_began, now);
        let has_answer = leases.is_some();
        if let Some(leases) = leases {
            self.see(now, leases);
        }
        for shard in 0..self.seats.len() {
            let Doing::WaitsForLook { after } = self.seats[shard].doing else { continue };
            if self.looks <= after {
                continue;
            }
            let response = match &self.shown[shard] {
                _ if !has_answer => LeaseResponse::Failed,
                None => LeaseResponse::NotFound,
                Some(shown) => LeaseResponse::Current(shown.record.clone(), shown.version.clone()),
            };
            self.answered(hands, shard, &LeaseRequest::Get, response);
        }
        self.give_up(hands);
    }

    fn see(&mut self, now: u64, leases: Leases) {
        for (shown, lease) in self.shown.iter_mut().zip(leases.shards) {
            *shown = lease.map(|(record, version)| {
                let known = shown.as_ref().filter(|known| known.record == record);
                Shown { since: known.map_or(now, |known| known.since), record, version }
            });
        }
        let renewal = now.to_string();
        let lives = self.breaks(BrokenRule::MembersNeverDie);
        let members = leases.members.into_iter().map(|(holder, renew_time)| {
            (holder, TIMINGS.lease_ms, if lives { renewal.clone() } else { renew_time })
        });
        self.share.see_members(now, members);
        self.look_at_holders(now);
    }

    pub(super) fn is_expired(&self, now: u64, shard: usize) -> bool {
        self.shown[shard].as_ref().is_some_and(|shown| now > shown.since + TIMINGS.lease_ms)
    }

    fn look_at_holders(&mut self, now: u64) {
        let expired: Vec<_> = (0..self.shown.len()).map(|n| self.is_expired(now, n)).collect();
        let holder_of = |shard: Shard| {
            let shard_index = usize::from(shard.0);
            match &self.shown[shard_index] {
                _ if self.owned.contains(shard) => ShardHolder::ThisInstance,
                None => ShardHolder::Nobody,
                Some(shown) if shown.record.holder.is_empty() => ShardHolder::Nobody,
                Some(_) if expired[shard_index] => ShardHolder::Nobody,
                Some(shown) if shown.record.holder == self.me => ShardHolder::ThisInstance,
                Some(shown) => ShardHolder::AnotherInstance(&shown.record.holder),
            }
        };
        self.share.see_holders(now, holder_of);
    }

    pub(super) fn should_take(&mut self, now: u64, shard: usize) -> bool {
        self.look_at_holders(now);
        let shard = Shard(shard as u16);
        let is_free = self.share.unheld().any(|(free, _)| free == shard);
        self.share.should_take(now, shard)
            || is_free
                && (self.breaks(BrokenRule::QuotaIgnored) || self.breaks(BrokenRule::TakesBack))
    }

    pub(super) fn may_take(&mut self, now: u64, shard: usize) -> bool {
        let may = self.should_take(now, shard);
        if may {
            self.owned.insert(Shard(shard as u16));
            self.share.taking(Shard(shard as u16));
        }
        may
    }

    pub(super) fn owns(&mut self, shard: usize, is_owned: bool) {
        let shard = Shard(shard as u16);
        if is_owned {
            self.owned.insert(shard);
        } else if !self.owned.remove(shard) {
            return;
        }
        self.share.taken(shard, is_owned);
    }

    fn give_up(&mut self, hands: &mut Hands<'_>) {
        if self.breaks(BrokenRule::QuotaIgnored) {
            return;
        }
        let now = hands.now;
        let seats = &self.seats;
        let leads = |shard: Shard| seats[usize::from(shard.0)].election.gate(now).is_some();
        let Some(shard) = self.share.give_up(now, leads) else { return };
        if self.gave_up_at.is_some_and(|at| now < at + 1_000) {
            self.wrong = Some(format!("{} gave two shards up within a second", self.me));
        }
        self.gave_up_at = Some(now);
        // A request under way counts as unanswered.
        let ended = hands.draw.between(1, TIMINGS.write_ms);
        let is_broken = self.breaks(BrokenRule::ReleasedWhileWriting);
        let seat = &mut self.seats[usize::from(shard.0)];
        seat.kept = Some(seat.election.clone());
        seat.election.resign();
        seat.release_attempts = Some(RELEASE_ATTEMPTS);
        seat.doing = Doing::EndsWrites { until: if is_broken { now } else { now + ended } };
    }
}
