//! The touch rule: a Gateway's trigger announces the liveness of its connectors at the edge.
//!
//! Every write uses a value that the object never had, because Envoy Gateway does not translate
//! the same configuration twice. A touch waits until the edge's caches have the change: until a stamp
//! shows it, else for a window. Later it is confirmed with new values, in case a cache was late.

use crate::contention::ContentionLimits;
use crate::context::{Context, WriteTarget};
use crate::data::cluster::ClusterState;
use crate::data::ids::ClusterId;
use crate::data::interner::Key;
use crate::data::time::UnixMillis;
use crate::edge::Edge;
use crate::edge::gateway_class::ClassMembers;
use crate::edge::pending::{PendingChange, Subject, TouchCause};
use crate::edge::references::References;
use crate::edge::rows::{EdgeGateway, ObservedGateway};
use crate::edge::tables::EdgeState;
use crate::edge::touch_queue::queue_limit;
use crate::edge::touch_state::{TouchState, TouchTarget};
use crate::rate_limit::Rate;
use crate::status::trigger::{Trigger, is_later_n, later_n};
use crate::write_queue::{Due, QueueKey, Rank};

/// A class is announced five times a second at most, never two at once.
const CLASS_RATE: Rate = Rate::every_ms(200, 1);

/// A target and everything the touch rule reads, looked up once.
pub(super) struct Touching<'m> {
    pub(super) edge: ClusterId,
    pub(super) cluster: &'m ClusterState,
    is_ready: bool,
    pub(super) target: TouchTarget,
    /// The Gateway that carries the target's trigger.
    pub(super) gateway: Key,
    pub(super) observed: &'m ObservedGateway,
    /// What the trigger should announce; `None` while no connector is referenced.
    desired: Option<u64>,
    pub(super) references: References<'m>,
    /// The Gateways of a class.
    pub(super) members: Option<&'m ClassMembers>,
    pub(super) state: &'m mut TouchState,
    pub(super) ctx: &'m mut Context,
}

impl Touching<'_> {
    /// Something that `gateway` has to announce changed. `is_ordered`: the watch showed it as it came.
    pub(super) fn changed(
        &mut self,
        gateway: Key,
        cause: TouchCause,
        subject: Subject,
        is_ordered: bool,
    ) {
        // Until the first look, `adopt` decides whether there is anything to announce.
        if !self.state.is_adopted || self.references.keys(gateway).next().is_none() {
            return;
        }
        let (now, n) = (self.ctx.now, self.latest_n());
        let new = PendingChange::new(now, cause, subject);
        let pending = self.state.pending.get_or_insert(new);
        if is_ordered {
            pending.add(now, cause, subject);
        } else {
            pending.add_unordered(now, cause, subject);
        }
        pending.n = n;
        self.state.flight.desired_changed();
    }

    /// The latest `n` known. A write of ours that the watch has not shown yet counts.
    pub(super) fn latest_n(&self) -> u32 {
        later_n(self.state.latest_n, self.observed.trigger.map_or(0, |trigger| trigger.n))
    }

    /// Makes the connector wait for this target. Returns whether it did not wait already.
    pub(super) fn add_waiting(&mut self, connector: Key) -> bool {
        let is_new = self.state.is_adopted && !self.state.waiting.contains(&connector);
        if is_new {
            self.state.waiting.push(connector);
        }
        is_new
    }

    /// The trigger's key on `gateway` has another value. Returns the connectors whose change that
    /// value announces.
    pub(super) fn trigger_changed(&mut self, gateway: Key) -> Vec<Key> {
        if gateway != self.gateway {
            return Vec::new();
        }
        self.state.flight.object_changed();
        self.state.changed_since_write = true;
        // Until the first look there is nothing to compare with.
        let Some(desired) = self.desired.filter(|_| self.state.is_adopted) else {
            return Vec::new();
        };
        let writing = self.state.flight.writing();
        let is_own_write = |trigger: Trigger| {
            writing.is_some_and(|write| write.gateway == gateway && write.trigger == trigger)
        };
        match self.observed.trigger {
            // The watch may show a write before its outcome comes.
            Some(trigger) if is_own_write(trigger) => Vec::new(),
            Some(trigger) if trigger.digest == desired => {
                self.announced_by_another_instance(trigger)
            }
            _ => {
                self.overwritten();
                Vec::new()
            }
        }
    }

    /// Another instance wrote the right digest. If it did so after the pending change, it has
    /// announced that change.
    fn announced_by_another_instance(&mut self, trigger: Trigger) -> Vec<Key> {
        debug_assert_eq!(Some(trigger.digest), self.desired);
        let is_confirmation = trigger.c > 0;
        if !is_confirmation && is_later_n(trigger.n, self.state.latest_n) {
            self.state.announced_at = Some(self.ctx.now);
            self.state.last_touch_at = Some(self.ctx.now);
            let pending = self.state.pending;
            self.state.is_confirmed_once = pending.is_some_and(|pending| pending.only_last);
        }
        self.state.take_over_n(Some(trigger));
        let announced = self
            .state
            .pending
            .take_if(|pending| !is_confirmation && is_later_n(trigger.n, pending.n));
        if announced.is_some() { self.state.take_waiting() } else { Vec::new() }
    }

    /// Another writer changed the trigger: it is written again, after pauses that grow while this
    /// goes on.
    fn overwritten(&mut self) {
        let now = self.ctx.now;
        if self.observed.is_paused {
            // Whoever paused it may try values of their own.
            return self.state.take_over_n(self.observed.trigger);
        }
        let (touch, mirror) = (&self.ctx.settings.touch, &self.ctx.settings.mirror);
        let limits = ContentionLimits {
            pause_from: 1,
            first_pause_ms: touch.min_interval_ms,
            max_pause_ms: mirror.contention_backoff_max_ms,
            quiet_ms: mirror.contention_quiet_ms,
        };
        let pause_ms = self.state.contention.record(now, &limits).unwrap_or_default();
        self.state.take_over_n(self.observed.trigger);
        self.state.flight.pause_until(now.plus(pause_ms));
        let pending = PendingChange::new(now, TouchCause::Overwritten, Subject::Target);
        self.state.pending.get_or_insert(pending);
        let (annotation, contention) = (touch.key.clone(), &self.state.contention);
        self.ctx.report_contention(self.cluster, self.gateway, &annotation, contention, pause_ms);
    }

    /// Compares what the target announces with what it should, and schedules the difference.
    pub(super) fn evaluate(&mut self) {
        let due = self.due();
        self.schedule(due);
    }

    fn schedule(&mut self, due: Option<Due>) {
        let target = WriteTarget::Touch(self.edge, self.target);
        let limit = queue_limit(&self.ctx.settings.touch);
        match due {
            Some(due) => self.ctx.enqueue(target, QueueKey::Touches(self.edge), due, limit),
            None => self.ctx.withdraw(target),
        }
    }

    /// When the target is to be written; `None` if it is not.
    fn due(&mut self) -> Option<Due> {
        let desired = self.desired.filter(|_| self.may_touch())?;
        if self.state.flight.is_in_flight() {
            return None;
        }
        if !self.state.is_adopted {
            self.adopt(desired);
        }
        if self.announced_digest() != Some(desired) {
            let cause = TouchCause::NotAnnounced;
            let pending = PendingChange::new(self.ctx.now, cause, Subject::Target);
            self.state.pending.get_or_insert(pending);
        }
        let (rank, at) = match &self.state.pending {
            Some(pending) => (pending.cause.rank(), pending.due_at(&self.ctx.settings.touch)),
            None => (self.confirmation_rank(), self.confirmation_due_at()?),
        };
        let not_before = self.earliest_write_at();
        let at = at.max(not_before);
        // A confirmation goes along with touches that come up to a window earlier.
        let window_ms = match rank {
            Rank::Normal => self.ctx.settings.touch.window_ms,
            Rank::Urgent | Rank::Low => 0,
        };
        let joins_from = UnixMillis(at.0.saturating_sub(window_ms)).max(not_before);
        Some(Due { rank, at, joins_from })
    }

    fn confirmation_rank(&self) -> Rank {
        if self.state.is_unverified { Rank::Low } else { Rank::Normal }
    }

    /// Touching follows the edge's own view, so that view must be complete. Of a class, the Gateway that
    /// carries the trigger is paused only if all are.
    pub(super) fn may_touch(&self) -> bool {
        let is_hub_namespace = self.cluster.is_hub_namespace(self.gateway.ns);
        let may_write = self.is_ready && !self.observed.is_paused;
        may_write && is_hub_namespace && self.ctx.settings.touch.enabled
    }

    pub(super) fn announced_digest(&self) -> Option<u64> {
        self.observed.trigger.map(|trigger| trigger.digest).or(self.state.platform_digest)
    }

    fn confirmation_due_at(&self) -> Option<UnixMillis> {
        // What only the platform's stamp announces carries no trigger to confirm.
        let next_c = self.next_c(self.observed.trigger?.c);
        if self.state.confirms_again {
            return Some(self.ctx.now);
        }
        let after_ms = *self.ctx.settings.touch.confirm_after_ms.get(next_c as usize - 1)?;
        // A trigger that another writer put back may be of any age: it is confirmed at once.
        Some(self.state.announced_at.map_or(UnixMillis(0), |at| at.plus(after_ms)))
    }

    /// The number of confirmations after the next one. Those that are left out count as made.
    pub(super) fn next_c(&self, c: u32) -> u32 {
        let last =
            u32::try_from(self.ctx.settings.touch.confirm_after_ms.len()).unwrap_or(u32::MAX);
        let next_c = c.saturating_add(1);
        if self.state.is_confirmed_once { next_c.max(last) } else { next_c }
    }

    /// Failures pause the writes. Announcements of one object have a limit. A confirmation does not
    /// count, but keeps its distance from the touch before.
    fn earliest_write_at(&self) -> UnixMillis {
        let touch = &self.ctx.settings.touch;
        let ready_at = if self.state.pending.is_some() {
            self.state.limiter.ready_at(self.announcement_rate())
        } else {
            self.state.last_touch_at.unwrap_or_default().plus(touch.min_interval_ms)
        };
        self.state.flight.not_before().max(ready_at)
    }

    /// How fast changes are announced. A class speaks for all its Gateways, so it is announced more often
    /// than one of them.
    pub(super) fn announcement_rate(&self) -> Rate {
        let touch = &self.ctx.settings.touch;
        match self.target {
            TouchTarget::Gateway(_) => {
                Rate::every_ms(touch.min_interval_ms, u64::from(touch.burst).max(1))
            }
            TouchTarget::Class(_) => CLASS_RATE,
        }
    }

    /// The queue admitted the target: writes it if it is due. What changed since it was queued counts.
    pub(super) fn write_if_due(&mut self) {
        let due = self.due();
        match (due, self.desired) {
            (Some(due), Some(desired)) if due.joins_from <= self.ctx.now => self.write(desired),
            _ => self.schedule(due),
        }
    }
}

impl Edge<'_> {
    /// `None` where the Gateway is gone, or no Gateway of the class has a connector.
    pub(super) fn touching(&mut self, target: TouchTarget) -> Option<Touching<'_>> {
        let EdgeState { ready, connectors, proxies, gateways, classes, .. } = &mut *self.state;
        let references = References { connectors, proxies };
        let (gateway, class) = match target {
            TouchTarget::Gateway(gateway) => (gateway, None),
            TouchTarget::Class(class) => {
                let class = classes.get_mut(&class)?;
                (class.representative()?, Some(class))
            }
        };
        let found = gateways.get_mut(&gateway);
        if found.is_none() && class.is_some() {
            let detail = format!("{target:?} has a member that does not exist");
            self.ctx.impossible(&self.cluster.name, detail);
        }
        let EdgeGateway { observed, touch, .. } = found?;
        let (desired, members, touch) = match class {
            None => (references.digest(&self.ctx.names, gateway), None, touch),
            Some(class) => (class.digest(), Some(&class.members), &mut class.touch),
        };
        Some(Touching {
            edge: self.id,
            cluster: self.cluster,
            is_ready: *ready,
            target,
            gateway,
            observed,
            desired,
            references,
            members,
            state: touch.reopen(observed.trigger).open_mut()?,
            ctx: self.ctx,
        })
    }
}
