//! The touch rule: a Gateway's trigger announces the liveness of its connectors at the edge.
//!
//! Every write uses a value that the object never had, because Envoy Gateway does not translate
//! the same configuration twice. A touch waits until the edge's caches have the change: until a stamp
//! shows it, else for a window. Later it is confirmed with new values, in case a cache was late.

use crate::core::contention::ContentionLimits;
use crate::core::context::{Context, WriteRequest, WriteTarget};
use crate::core::contract::action::{Action, AnnotationBefore, Precondition, Urgency, Verb};
use crate::core::contract::settings::PlatformKeyMode;
use crate::core::data::cluster::ClusterState;
use crate::core::data::ids::{ActionId, ClusterId, Kind};
use crate::core::data::interner::Key;
use crate::core::data::objects::PLATFORM_KEY;
use crate::core::data::time::UnixMillis;
use crate::core::edge::Edge;
use crate::core::edge::gateway_class::ClassMembers;
use crate::core::edge::pending::{PendingChange, Subject, TouchCause};
use crate::core::edge::references::References;
use crate::core::edge::rows::{EdgeGateway, ObservedGateway};
use crate::core::edge::tables::EdgeState;
use crate::core::edge::touch_queue::{TouchQueue, TouchRank, TouchTime};
use crate::core::edge::touch_state::{TouchState, TouchTarget, TriggerWrite};
use crate::core::status::trigger::{Trigger, is_later_n, later_n};

/// A target and everything the touch rule reads, looked up once.
pub(super) struct Touching<'m> {
    edge: ClusterId,
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
    queue: &'m mut TouchQueue,
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
            self.state.is_confirmed_once = self.is_confirmed_once();
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
        let time = self.due();
        self.schedule(time);
    }

    fn schedule(&mut self, time: Option<TouchTime>) {
        let before = std::mem::replace(&mut self.state.scheduled, time);
        self.queue.reschedule(self.target, before, time);
        debug_assert!(time.is_none_or(|time| self.queue.contains(time, self.target)));
    }

    /// When the target is to be written; `None` if it is not.
    fn due(&mut self) -> Option<TouchTime> {
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
        Some(TouchTime { rank, at: at.max(self.earliest_write_at()) })
    }

    fn confirmation_rank(&self) -> TouchRank {
        if self.state.is_unverified { TouchRank::Unverified } else { TouchRank::Confirmation }
    }

    /// Touching follows the edge's own view, so that view must be complete. Of a class, the Gateway that
    /// carries the trigger is paused only if all are.
    fn may_touch(&self) -> bool {
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
    fn next_c(&self, c: u32) -> u32 {
        let last =
            u32::try_from(self.ctx.settings.touch.confirm_after_ms.len()).unwrap_or(u32::MAX);
        let next_c = c.saturating_add(1);
        if self.state.is_confirmed_once { next_c.max(last) } else { next_c }
    }

    /// Failures pause the writes. Announcements of one object take turns. A confirmation takes none,
    /// but keeps its distance from the touch before.
    fn earliest_write_at(&self) -> UnixMillis {
        let touch = &self.ctx.settings.touch;
        let ready_at = if self.state.pending.is_some() {
            self.state.turns.ready_at(touch.min_interval_ms, touch.burst.into())
        } else {
            self.state.last_touch_at.unwrap_or_default().plus(touch.min_interval_ms)
        };
        self.state.flight.not_before().max(ready_at)
    }

    /// Writes the target if it is due. What changed since it was scheduled counts. Returns whether it
    /// was written.
    pub(super) fn write_if_due(&mut self) -> bool {
        // The bundle took it out of the queue.
        self.state.scheduled = None;
        let time = self.due();
        let (Some(time), Some(desired)) = (time, self.desired) else {
            self.schedule(None);
            return false;
        };
        // A confirmation goes along with the bundle before it.
        let window_ms = match time.rank {
            TouchRank::Confirmation => self.ctx.settings.touch.window_ms,
            TouchRank::Change | TouchRank::Unverified => 0,
        };
        let now = self.ctx.now;
        let is_due = time.at <= now.plus(window_ms) && self.earliest_write_at() <= now;
        if is_due {
            self.write(desired);
        } else {
            self.schedule(Some(time));
        }
        is_due
    }

    fn write(&mut self, desired: u64) {
        debug_assert!(self.may_touch() && self.state.is_adopted);
        let now = self.ctx.now;
        let announced = self.observed.trigger.filter(|trigger| trigger.digest == desired);
        let confirmed = announced.filter(|_| self.state.pending.is_none());
        let c = confirmed.map_or(0, |trigger| self.next_c(trigger.c));
        let trigger = Trigger { digest: desired, n: self.state.next_n(self.observed.trigger), c };
        debug_assert_ne!(Some(trigger), self.observed.trigger, "a trigger is used twice");
        let cause = self.state.pending.map(|pending| pending.cause);
        debug_assert_eq!(cause.is_some(), confirmed.is_none());
        if cause.is_some() {
            self.state.is_confirmed_once = self.is_confirmed_once();
        }
        let because = self.because(confirmed.is_some());
        let action = self.submit(trigger, because);
        let write = TriggerWrite { gateway: self.gateway, trigger, cause };
        self.state.flight.started(action, write);
        self.state.changed_since_write = false;
        self.state.confirms_again = false;
        self.state.last_touch_at = Some(now);
        if let Some(pending) = self.state.pending.take() {
            self.state.announced_at = Some(now);
            self.state.turns.take(now, self.ctx.settings.touch.min_interval_ms);
            self.state.unproven = (!pending.is_cached).then_some(pending.subject);
            self.state.is_unverified = pending.cause.rank() == TouchRank::Unverified;
        }
    }

    /// Whether the last confirmation alone is enough for the pending announcement: it was found at the
    /// start, and neither the Gateway nor a change of a connector came after the edge was listed. The
    /// extension server's cache has had the state for at least as long as ours.
    fn is_confirmed_once(&self) -> bool {
        let is_found = self.state.pending.is_some_and(|pending| {
            pending.cause.is_first_look() && pending.first_at <= self.listed_at()
        });
        is_found && !self.state.appeared_later && !self.has_changed_since_listed()
    }

    fn because(&self, is_confirmation: bool) -> String {
        let pending = self.state.pending.map(|pending| pending.cause);
        let because = match pending {
            _ if is_confirmation && self.state.confirms_again => {
                "touched again after the edge's outage, in case a cache was back late"
            }
            _ if is_confirmation => "touched again in case a cache missed the first one",
            cause => cause.unwrap_or(TouchCause::LivenessChanged).because(),
        };
        match self.target {
            TouchTarget::Gateway(_) => because.to_owned(),
            TouchTarget::Class(_) => format!("{because}; this covers every Gateway of its class"),
        }
    }

    /// The trigger that is replaced. A touch that the network holds back, or that is sent again because
    /// its answer was lost, must not take the place of a newer one: Envoy Gateway would see a value that
    /// it has translated before. `None` where another writer's text stands there, which is not kept: then
    /// the object must not have changed at all.
    fn replaced(&self) -> Option<Box<AnnotationBefore>> {
        let key = self.ctx.settings.touch.key.clone();
        let value = self.observed.trigger.map(|trigger| trigger.to_string());
        let no_annotations = !self.observed.has_annotations;
        let before = AnnotationBefore { key, value, no_annotations };
        (!self.observed.has_foreign_value).then(|| Box::new(before))
    }

    fn submit(&mut self, trigger: Trigger, because: String) -> ActionId {
        let settings = &self.ctx.settings.touch;
        let mut annotations = vec![(settings.key.clone(), Some(trigger.to_string()))];
        if settings.platform_key == PlatformKeyMode::Write {
            let stamp = self.references.platform_stamp(self.gateway);
            annotations.push((PLATFORM_KEY.to_owned(), stamp));
        }
        let connectors: Vec<_> = match self.target {
            TouchTarget::Gateway(gateway) => self.references.keys(gateway).collect(),
            TouchTarget::Class(_) => self.state.waiting.clone(),
        };
        let connectors = connectors.into_iter().take(Action::CONNECTORS_MAX);
        let request = WriteRequest {
            target: WriteTarget::Touch(self.edge, self.target),
            verb: Verb::Touch,
            cluster: self.cluster.name.clone(),
            kind: Kind::Gateway,
            object: self.ctx.names.object_key(self.gateway),
            annotations,
            precondition: Precondition {
                uid: self.observed.uid.text(),
                resource_version: self
                    .observed
                    .rv
                    .text()
                    .filter(|_| self.observed.has_foreign_value),
                annotation: self.replaced(),
                ..Precondition::default()
            },
            connectors: connectors.map(|key| self.ctx.names.object_key(key)).collect(),
            urgency: match self.state.pending.map(|pending| pending.cause.rank()) {
                Some(TouchRank::Change) => Urgency::Routing,
                Some(TouchRank::Confirmation | TouchRank::Unverified) | None => {
                    Urgency::Confirmation
                }
            },
            because,
        };
        self.ctx.submit(request)
    }
}

impl Edge<'_> {
    /// `None` where the Gateway is gone, or no Gateway of the class has a connector.
    pub(super) fn touching(&mut self, target: TouchTarget) -> Option<Touching<'_>> {
        let EdgeState { ready, next_scope, connectors, proxies, gateways, classes, queue, .. } =
            &mut *self.state;
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
            is_ready: *ready && next_scope.is_none(),
            target,
            gateway,
            observed,
            desired,
            references,
            members,
            state: touch.reopen(observed.trigger).open_mut()?,
            queue,
            ctx: self.ctx,
        })
    }
}
