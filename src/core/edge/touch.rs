//! The touch rule: a Gateway's trigger announces the liveness of its connectors at the edge.
//!
//! Every write uses a value that the object never had, because Envoy Gateway does not translate
//! the same configuration twice. A touch waits until the edge's caches have the change; later it
//! is confirmed with new values, in case a cache was late.

use crate::core::contention::ContentionLimits;
use crate::core::context::{Context, WriteRequest, WriteTarget};
use crate::core::contract::action::{Action, Precondition, Urgency, Verb};
use crate::core::contract::event::Outcome;
use crate::core::contract::settings::PlatformKeyMode;
use crate::core::data::cluster::ClusterState;
use crate::core::data::ids::{ActionId, ClusterId, Kind};
use crate::core::data::interner::Key;
use crate::core::data::objects::PLATFORM_KEY;
use crate::core::data::time::UnixMillis;
use crate::core::edge::Edge;
use crate::core::edge::gateway_class::ClassMembers;
use crate::core::edge::references::References;
use crate::core::edge::tables::{EdgeGateway, EdgeState, ObservedGateway};
use crate::core::edge::touch_state::{
    PendingChange, TouchCause, TouchQueue, TouchState, TouchTarget, TriggerWrite,
};
use crate::core::flight::{WritePauses as _, WriteResult};
use crate::core::status::trigger::Trigger;

/// A target and everything the touch rule reads, looked up once.
pub(super) struct Touching<'m> {
    edge: ClusterId,
    cluster: &'m ClusterState,
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
    /// Something that `gateway` has to announce changed.
    pub(super) fn changed(&mut self, gateway: Key, cause: TouchCause) {
        // Until the first look, `adopt` decides whether there is anything to announce.
        if !self.state.is_adopted || self.references.keys(gateway).next().is_none() {
            return;
        }
        let now = self.ctx.now;
        let pending = self.state.pending.get_or_insert_with(|| PendingChange::new(now, cause));
        (pending.last_at, pending.cause) = (now, cause);
        // A write of ours that the watch has not shown yet is older than this change, too.
        let observed_n = self.observed.trigger.map_or(0, |trigger| trigger.n);
        pending.n = observed_n.max(self.state.highest_n);
        self.state.flight.desired_changed();
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
        // Until the first look there is nothing to compare with.
        let Some(desired) = self.desired.filter(|_| self.state.is_adopted) else {
            return Vec::new();
        };
        let writing = self.state.flight.writing();
        let is_own_write = |trigger| writing == Some(&TriggerWrite { gateway, trigger });
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
        if !is_confirmation && trigger.n > self.state.highest_n {
            self.state.announced_at = Some(self.ctx.now);
            self.state.last_touch_at = Some(self.ctx.now);
        }
        self.state.raise_highest_n(Some(trigger));
        let announced =
            self.state.pending.take_if(|pending| !is_confirmation && trigger.n > pending.n);
        if announced.is_some() { self.state.take_waiting() } else { Vec::new() }
    }

    /// Another writer changed the trigger: it is written again, after pauses that grow while this
    /// goes on.
    fn overwritten(&mut self) {
        let now = self.ctx.now;
        let (touch, mirror) = (&self.ctx.settings.touch, &self.ctx.settings.mirror);
        let limits = ContentionLimits {
            pause_from: 1,
            first_pause_ms: touch.min_interval_ms,
            max_pause_ms: mirror.contention_backoff_max_ms,
            quiet_ms: mirror.contention_quiet_ms,
        };
        let pause_ms = self.state.contention.record(now, &limits).unwrap_or_default();
        self.state.raise_highest_n(self.observed.trigger);
        self.state.flight.pause_until(now.plus(pause_ms));
        self.state.pending.get_or_insert(PendingChange::new(now, TouchCause::Overwritten));
        let (annotation, contention) = (touch.key.clone(), &self.state.contention);
        self.ctx.report_contention(self.cluster, self.gateway, &annotation, contention, pause_ms);
    }

    /// Compares what the target announces with what it should, and schedules the difference.
    pub(super) fn evaluate(&mut self) {
        let at = self.due_at();
        self.schedule(at);
    }

    fn schedule(&mut self, at: Option<UnixMillis>) {
        let before = std::mem::replace(&mut self.state.scheduled, at);
        self.queue.reschedule(self.target, before, at);
        debug_assert!(at.is_none_or(|at| self.queue.contains(at, self.target)));
    }

    /// When the target is to be written; `None` if it is not.
    fn due_at(&mut self) -> Option<UnixMillis> {
        let desired = self.desired.filter(|_| self.may_touch())?;
        if self.state.flight.is_in_flight() {
            return None;
        }
        if !self.state.is_adopted {
            self.adopt(desired);
        }
        if self.announced_digest() != Some(desired) {
            let pending = PendingChange::new(self.ctx.now, TouchCause::NotAnnounced);
            self.state.pending.get_or_insert(pending);
        }
        let at = match &self.state.pending {
            Some(pending) => pending.due_at(&self.ctx.settings.touch),
            None => self.confirmation_due_at()?,
        };
        Some(at.max(self.earliest_write_at()))
    }

    /// Touching follows the edge's own view, so that view must be complete.
    fn may_touch(&self) -> bool {
        let is_hub_namespace = self.cluster.is_hub_namespace(self.gateway.ns);
        self.is_ready && is_hub_namespace && self.ctx.settings.touch.enabled
    }

    pub(super) fn announced_digest(&self) -> Option<u64> {
        self.observed.trigger.map(|trigger| trigger.digest).or(self.state.platform_digest)
    }

    fn confirmation_due_at(&self) -> Option<UnixMillis> {
        // What only the platform's stamp announces carries no trigger to confirm.
        let done = self.observed.trigger?.c;
        if self.state.confirms_again {
            return Some(self.ctx.now);
        }
        let after_ms = *self.ctx.settings.touch.confirm_after_ms.get(done as usize)?;
        // A trigger that another writer put back may be of any age: it is confirmed at once.
        Some(self.state.announced_at.map_or(UnixMillis(0), |at| at.plus(after_ms)))
    }

    /// Failures pause the writes, and two writes of one object keep an interval.
    fn earliest_write_at(&self) -> UnixMillis {
        let interval_ms = self.ctx.settings.touch.min_interval_ms;
        let last_touch_at = self.state.last_touch_at;
        self.state.flight.not_before().max(last_touch_at.unwrap_or_default().plus(interval_ms))
    }

    /// Writes the target if it is due. What changed since it was scheduled counts.
    pub(super) fn write_if_due(&mut self) {
        // The bundle took it out of the queue.
        self.state.scheduled = None;
        match (self.due_at(), self.desired) {
            (Some(at), Some(desired)) if at <= self.ctx.now => self.write(desired),
            (at, _) => self.schedule(at),
        }
    }

    fn write(&mut self, desired: u64) {
        debug_assert!(self.may_touch() && self.state.is_adopted);
        let now = self.ctx.now;
        let announced = self.observed.trigger.filter(|trigger| trigger.digest == desired);
        let confirmed = announced.filter(|_| self.state.pending.is_none());
        let trigger = Trigger {
            digest: desired,
            n: self.next_n(),
            c: confirmed.map_or(0, |trigger| trigger.c.saturating_add(1)),
        };
        debug_assert_ne!(Some(trigger), self.observed.trigger, "a trigger is used twice");
        let because = self.because(confirmed.is_some());
        let action = self.submit(trigger, because);
        self.state.flight.started(action, TriggerWrite { gateway: self.gateway, trigger });
        self.state.pending = None;
        self.state.confirms_again = false;
        self.state.last_touch_at = Some(now);
        if confirmed.is_none() {
            self.state.announced_at = Some(now);
        }
    }

    fn next_n(&mut self) -> u32 {
        self.state.raise_highest_n(self.observed.trigger);
        let before = self.state.highest_n;
        // Anybody can write a trigger with the highest number there is; after it comes 0.
        self.state.highest_n = before.wrapping_add(1);
        debug_assert!(self.state.highest_n > before || before == u32::MAX);
        self.state.highest_n
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
            precondition: Precondition { uid: self.observed.uid.text(), ..Precondition::default() },
            connectors: connectors.map(|key| self.ctx.names.object_key(key)).collect(),
            urgency: if trigger.c == 0 { Urgency::Routing } else { Urgency::Confirmation },
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

    pub(super) fn touch_finished(
        &mut self,
        target: TouchTarget,
        action: ActionId,
        outcome: &Outcome,
    ) {
        let now = self.ctx.now;
        let retry = self.ctx.settings.retry;
        let write_target = WriteTarget::Touch(self.id, target);
        // The Gateway may be gone, or another one may have its name.
        let Some(touch) = self.state.open_touch_mut(target) else { return };
        let finished = touch.flight.finished(action, now, outcome, &retry);
        let Some((result, TriggerWrite { gateway, trigger })) = finished else { return };
        match result {
            WriteResult::Written => {
                touch.platform_digest = None;
                let is_latest = touch.pending.is_none();
                let announced = if is_latest { touch.take_waiting() } else { Vec::new() };
                if let Some(class) = self.state.class_mut(target) {
                    class.representative_written();
                }
                self.trigger_written(gateway, trigger);
                self.announced(announced);
            }
            WriteResult::NotWritten | WriteResult::Refused | WriteResult::RefusedAgain => {
                // The API server may have applied it all the same; the next value is new in any
                // case. A confirmation that failed is still due, as a confirmation.
                if trigger.c == 0 && touch.is_adopted {
                    touch
                        .pending
                        .get_or_insert(PendingChange::new(now, TouchCause::LivenessChanged));
                }
                let error = touch.flight.error.clone().unwrap_or_default();
                let is_replaced =
                    is_about_object(outcome) && self.replace_representative(target, gateway);
                if result == WriteResult::Refused {
                    let next = match is_replaced {
                        true => "another Gateway of its class is written instead".to_owned(),
                        false => {
                            self.ctx.next_attempt(write_target) + ", or when a connector changes"
                        }
                    };
                    self.ctx.report_refused(self.cluster, gateway, Verb::Touch, &error, &next);
                }
            }
        }
        self.evaluate_target(target);
    }

    /// One Gateway of a class can't be written: another one is to carry the trigger. Returns whether
    /// it is written at once.
    fn replace_representative(&mut self, target: TouchTarget, gateway: Key) -> bool {
        let Some(class) = self.state.class_mut(target) else { return false };
        let is_replaced = class.representative_refused(gateway);
        if is_replaced && let Some(touch) = class.touch.open_mut() {
            touch.flight.end_failure_pause();
        }
        is_replaced
    }

    /// The API server has stored a trigger.
    fn trigger_written(&mut self, gateway: Key, trigger: Trigger) {
        // The watch may have shown a later one already.
        if let Some(found) = self.state.gateways.get_mut(&gateway)
            && found.observed.trigger.is_none_or(|seen| trigger.n > seen.n)
        {
            found.observed.trigger = Some(trigger);
        }
        // A Gateway that carries the trigger comes first in its class.
        self.state.update_class(&self.ctx.names, gateway);
    }
}

/// Whether a write failed in a way that may be about its object alone.
fn is_about_object(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused { .. } | Outcome::NotFound)
}
