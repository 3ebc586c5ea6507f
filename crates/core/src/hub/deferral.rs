//! Deferral: a difference that routes nothing waits, so that it never stands before one that does.
//!
//! Nothing at an edge reads more of the annotation than its routing: online or not, and the node. So
//! a mirror has one of two classes. It is *routing* when an edge would read something else from the new
//! annotation than from the present one, or when the annotation appears or vanishes: it is written at
//! once. Any other is *deferrable*. An annotation that does not decode may route in any way: what stands
//! there, or is to stand there, is then written at once.
//!
//! A deferrable difference is due `mirror.deferMs` after it began, or after the last mirror of the
//! Connector succeeded, whichever is later. Further changes of that kind do not move this time: ten of them
//! within it are one write, and one a second is a write every `mirror.deferMs`. A routing mirror takes it
//! along, because each mirror carries the whole status. What is due waits for the hub's budget,
//! longest first: `mirror.deferrablePerSecond`, twice as many at once, and no more than that without an
//! outcome, so that a hub that answers slowly is not given ever more of them.
//!
//! A new leader has followed what its predecessor left to do since it saw it. An instance that starts
//! sees every difference for the first time: what routes goes first there, too.

use std::collections::BTreeSet;

use super::desired::DesiredStatus;
use super::fit::Fitted;
use super::mirror::Mirror;
use super::{HubConnector, HubWrite};
use crate::clusters::Place;
use crate::context::Context;
use crate::contract::note::{Hop, NoteKind, StallCause};
use crate::contract::settings::{DEFER_MS_MIN, MirrorSettings};
use crate::data::ids::{ClusterId, ClusterName, Kind};
use crate::data::interner::Key;
use crate::data::time::UnixMillis;
use crate::data::turns::Turns;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::machine::Machine;
use crate::status::digest::Digest;
use crate::timers::Due;

/// The deferred mirrors of one hub, and their budget.
#[derive(Default)]
pub(super) struct Deferrals {
    /// Those that only wait for the budget, and since when they are deferred.
    due: BTreeSet<(UnixMillis, Key)>,
    turns: Turns,
    /// Whose turn it is.
    turn: Option<Key>,
    /// Those without an outcome.
    in_flight: BTreeSet<Key>,
}

/// The budget of one hub.
#[derive(Clone, Copy)]
struct Budget {
    every_ms: u64,
    at_once: u64,
}

impl Budget {
    /// `None`: without limit.
    fn of(settings: &MirrorSettings) -> Option<Self> {
        let per_second = u64::from(settings.deferrable_per_second);
        let every_ms = 1_000_u64.checked_div(per_second)?;
        // Rounded up, so that it is never more than was asked for.
        let every_ms = every_ms + u64::from(every_ms * per_second < 1_000);
        Some(Self { every_ms, at_once: 2 * per_second })
    }
}

impl HoldsNames for Deferrals {
    fn mark(&self, used: &mut UsedNames) {
        let Self { due, turns: _, turn, in_flight } = self;
        due.iter().for_each(|(_, key)| key.mark(used));
        turn.mark(used);
        in_flight.mark(used);
    }
}

impl Deferrals {
    /// Gives the turn to the one that waits longest. Otherwise returns when to ask again; never while
    /// nothing waits, or until one of those in flight ends.
    fn give_turn(&mut self, now: UnixMillis, settings: &MirrorSettings) -> Result<Key, UnixMillis> {
        if let Some(Budget { every_ms, at_once }) = Budget::of(settings) {
            if self.due.is_empty() || self.in_flight.len() as u64 >= at_once {
                return Err(UnixMillis::NEVER);
            }
            let next_at = self.turns.next(now, every_ms, at_once);
            if next_at > now {
                return Err(next_at);
            }
        }
        let (_, key) = self.due.pop_first().ok_or(UnixMillis::NEVER)?;
        self.turn = Some(key);
        Ok(key)
    }

    /// A mirror is written on its turn.
    fn started(&mut self, key: Key, now: UnixMillis, settings: &MirrorSettings) {
        if let Some(Budget { every_ms, .. }) = Budget::of(settings) {
            self.turns.take(now, every_ms);
        }
        self.in_flight.insert(key);
    }

    /// A hub Connector is gone, or is another object. Returns whether others may take its place.
    fn forget(&mut self, key: Key, deferred_since: Option<UnixMillis>) -> bool {
        if let Some(since) = deferred_since {
            self.due.remove(&(since, key));
        }
        self.ended(key)
    }

    /// A mirror has its outcome, or nobody waits for it any longer. Returns whether others wait.
    pub(super) fn ended(&mut self, key: Key) -> bool {
        self.in_flight.remove(&key) && !self.due.is_empty()
    }
}

impl HubConnector {
    /// It is gone, or is another object: whoever waits takes its place.
    pub(super) fn leave_deferrals(&self, queue: &mut Deferrals, ctx: &mut Context, at: Place) {
        if queue.forget(at.key, self.deferred_since()) {
            ctx.timers.no_later(Due::Deferred(at.cluster), ctx.now);
        }
    }

    /// Nothing is deferred any longer. Returns whether anything was.
    pub(super) fn forget_deferral(
        &mut self,
        ctx: &mut Context,
        hub: &ClusterName,
        key: Key,
    ) -> bool {
        let repair = self.repair.as_mut();
        let was_deferred = repair.and_then(|repair| repair.deferred_since.take()).is_some();
        if was_deferred {
            let (cluster, connector) = (hub.clone(), ctx.names.object_key(key));
            ctx.note(NoteKind::Deferred { cluster, connector, deferred: false });
        }
        was_deferred
    }

    /// Since when the annotation differs from what upstream says in what routes nothing.
    pub(crate) fn deferred_since(&self) -> Option<UnixMillis> {
        self.repair.as_ref()?.deferred_since.get()
    }

    /// Whether a write in flight makes this of the annotation.
    pub(super) fn is_writing(&self, digest: Digest) -> bool {
        let writing = self.repair.as_ref().and_then(|repair| repair.flight.writing());
        matches!(writing, Some(HubWrite::Status(written, _)) if *written == digest)
    }
}

impl Mirror<'_> {
    /// Whether an edge reads the same from the desired annotation as from the present one.
    pub(super) fn is_deferrable(&self, desired: &DesiredStatus) -> bool {
        let connector = &*self.connector;
        self.ctx.settings.mirror.defer_ms > 0
            && connector.digest != Digest::ABSENT
            && desired.digest != Digest::ABSENT
            && desired.routing.is_some()
            && desired.routing == connector.routing
    }

    /// The annotation differs in what routes nothing: writes it when that is due.
    pub(super) fn defer(&mut self, desired: DesiredStatus, fitted: Fitted) {
        let now = self.ctx.now;
        let since = self.deferred_since().unwrap_or(now);
        if self.deferred_since().is_none() {
            self.repair().deferred_since = since.into();
            let cluster = self.hub.name.clone();
            let connector = self.ctx.names.object_key(self.at.key);
            self.ctx.note(NoteKind::Deferred { cluster, connector, deferred: true });
            // What was late was another difference.
            self.end_stall_of(|stall| stall.hop == Hop::Mirrored);
        }
        self.mark_deferred(desired, since);
        let has_turn = self.pace.deferrals.turn.take_if(|key| *key == self.at.key).is_some();
        if !self.leads() {
            return;
        }
        // These mirrors take no turn from those that route, so they keep the same pace by themselves.
        let wait_ms = self.ctx.settings.mirror.defer_ms.max(DEFER_MS_MIN);
        let due_at = since.plus(wait_ms);
        if now < due_at {
            return self.look_again(due_at);
        }
        if !self.may_write_now() || !self.may_mirror_again() {
            return;
        }
        if has_turn {
            self.pace.deferrals.started(self.at.key, now, &self.ctx.settings.mirror);
            return self.write_deferrable(desired, fitted, now.since(since) / 1_000);
        }
        self.pace.deferrals.due.insert((since, self.at.key));
        self.schedule_deferrals();
    }

    /// The hub's annotation routes as upstream says, and differs in the rest.
    fn mark_deferred(&mut self, desired: DesiredStatus, since: UnixMillis) {
        self.note_upstream_change(desired);
        // The edges still come to say what the hub says.
        let mirrored_at = self.routes_right(desired, true);
        self.unsettled.insert(self.at.key);
        let present = DesiredStatus { digest: self.connector.digest, ..desired };
        if self.is_carried(present, mirrored_at) {
            let free_since = self.repair().free_since;
            let since = since.max(self.hub.live_since(Kind::Connector)).max(free_since);
            self.expect(Hop::Mirrored, since, self.hub);
        }
    }

    pub(super) fn deferred_since(&self) -> Option<UnixMillis> {
        self.connector.deferred_since()
    }

    /// This Connector waits for no turn until it is found to be due again.
    pub(super) fn leave_queue(&mut self) {
        if let Some(since) = self.deferred_since() {
            self.pace.deferrals.due.remove(&(since, self.at.key));
        }
    }

    /// Nothing is deferred any longer. Returns whether anything was.
    pub(super) fn end_deferral(&mut self) -> bool {
        let key = self.at.key;
        let was_deferred = self.connector.forget_deferral(self.ctx, &self.hub.name, key);
        if was_deferred {
            self.end_stall_of(|stall| matches!(stall.cause, StallCause::Deferred { .. }));
        }
        was_deferred
    }

    /// Nobody waits any longer for the outcome of a deferred mirror.
    pub(super) fn deferred_mirror_ended(&mut self) {
        if self.pace.deferrals.ended(self.at.key) {
            self.schedule_deferrals();
        }
    }

    fn schedule_deferrals(&mut self) {
        self.ctx.timers.no_later(Due::Deferred(self.at.cluster), self.ctx.now);
    }
}

impl Machine {
    /// The budget of a hub may have room. Gives a turn to each that there is room for.
    pub(crate) fn write_deferred(&mut self, cluster: ClusterId) {
        loop {
            let Self { ctx, hubs, .. } = self;
            let Some(hub) = hubs.get_mut(&cluster) else { return };
            // Whoever comes to lead looks at each that waits.
            if !ctx.leads() {
                return;
            }
            let turn = hub.pace.deferrals.give_turn(ctx.now, &ctx.settings.mirror);
            let key = match turn {
                Ok(key) => key,
                Err(at) => return ctx.timers.no_later(Due::Deferred(cluster), at),
            };
            self.evaluate_hub_connector(Place { cluster, key });
            if let Some(hub) = self.hubs.get_mut(&cluster) {
                hub.pace.deferrals.turn = None;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crate::data::interner::Names;

    fn settings(deferrable_per_second: u32) -> MirrorSettings {
        MirrorSettings { deferrable_per_second, ..MirrorSettings::default() }
    }

    fn waiting(count: usize) -> Deferrals {
        let mut names = Names::default();
        let key = |i: usize| names.key("ns", &i.to_string());
        let since = |i: usize| UnixMillis(i as u64);
        let due: Vec<_> = (0..count).map(key).collect();
        let due = due.into_iter().enumerate().rev().map(|(i, key)| (since(i), key));
        Deferrals { due: due.collect(), ..Deferrals::default() }
    }

    /// When each is written, where each is answered at once.
    fn written(deferrals: &mut Deferrals, settings: &MirrorSettings) -> Vec<(u64, Key)> {
        let (mut now, mut written) = (UnixMillis(1_000_000), Vec::new());
        loop {
            match deferrals.give_turn(now, settings) {
                Ok(key) => {
                    deferrals.started(key, now, settings);
                    deferrals.ended(key);
                    written.push((now.0 - 1_000_000, key));
                }
                Err(UnixMillis::NEVER) => return written,
                Err(at) => now = at,
            }
        }
    }

    #[test]
    fn twice_the_rate_goes_at_once_and_the_rest_evenly_longest_waiting_first() {
        for (per_second, every_ms) in [(8, 125), (3, 334), (1, 1_000), (1_000, 1)] {
            let order: Vec<_> = waiting(50).due.into_iter().map(|(_, key)| key).collect();
            let written = written(&mut waiting(50), &settings(per_second));
            assert_eq!(written.iter().map(|(_, key)| *key).collect::<Vec<_>>(), order);
            let late = |i: usize| (i as u64 + 1).saturating_sub(2 * u64::from(per_second));
            let times: Vec<_> = (0..50).map(|i| late(i) * every_ms).collect();
            assert_eq!(written.iter().map(|(at, _)| *at).collect::<Vec<_>>(), times);
        }
        assert!(written(&mut waiting(50), &settings(0)).iter().all(|(at, _)| *at == 0));
    }

    #[test]
    fn no_more_than_the_burst_is_without_an_outcome() {
        let (settings, mut deferrals) = (settings(2), waiting(10));
        let mut now = UnixMillis(1_000_000);
        let mut start = |now| {
            let key = deferrals.give_turn(now, &settings)?;
            deferrals.started(key, now, &settings);
            Ok(key)
        };
        let written: Vec<_> = (0..4).map(|_| start(now).unwrap()).collect();
        now = now.plus(60_000);
        assert_eq!(start(now), Err(UnixMillis::NEVER));
        assert!(deferrals.ended(written[0]) && !deferrals.ended(written[0]));
        assert!(deferrals.give_turn(now, &settings).is_ok());
        assert!(deferrals.forget(written[1], None), "one that is gone has no outcome, either");
    }
}
