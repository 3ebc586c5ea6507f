//! The mirror: a hub Connector's status annotation says what its upstream Connector's status says.
//!
//! Desired is read from the upstream Connector, observed from the hub Connector. They are compared
//! by [`Digest`], so that two ways to write the same JSON are equal.

use std::collections::{BTreeMap, BTreeSet};

use super::connector::Intent;
use super::desired::{Desired, DesiredStatus, UpstreamCase};
use super::fit::Fitted;
use super::limits::{CONNECTOR_RATE, Carrier, REPEAT_MS};
use super::removals::Removals;
use super::retries::Retries;
use super::{HubConnector, HubWrite, Repair};
use crate::clusters::{Clusters, Place};
use crate::contention::ContentionLimits;
use crate::context::{Context, WriteRequest, WriteTarget};
use crate::contract::action::{AbsentObjects, AnnotationBefore, Precondition, Verb};
use crate::contract::hold_reason::HoldReason;
use crate::contract::note::Hop;
use crate::data::cluster::ClusterState;
use crate::data::ids::{ClusterId, Kind};
use crate::data::interner::Key;
use crate::data::objects::UPSTREAM_STATUS;
use crate::data::time::UnixMillis;
use crate::edge::EdgeState;
use crate::status::digest::Digest;
use crate::status::liveness::{self, Liveness};
use crate::timers::Due;
use crate::write_queue::{self, QueueKey};

/// A hub Connector and everything that its rule reads, looked up once.
pub(crate) struct Mirror<'m> {
    pub(super) at: Place,
    pub(super) hub: &'m ClusterState,
    pub(super) connector: &'m mut HubConnector,
    pub(super) unsettled: &'m mut BTreeSet<Key>,
    pub(super) carrier: &'m mut Carrier,
    pub(super) retries: &'m mut Retries,
    pub(super) upstream: Option<UpstreamCase<'m>>,
    pub(super) edges: &'m mut BTreeMap<ClusterId, EdgeState>,
    pub(super) clusters: &'m Clusters,
    pub(super) removals: &'m mut Removals,
    pub(super) ctx: &'m mut Context,
    /// The queue that has room for this Connector.
    pub(super) admitted_by: Option<QueueKey>,
    /// What is decided waits there.
    pub(super) queued: Option<(QueueKey, write_queue::Due)>,
}

impl Mirror<'_> {
    /// Decides what the Connector needs. What may not be written at once waits in its queue, and is
    /// decided again when that admits it: the last state always arrives.
    pub(super) fn evaluate(&mut self) {
        self.ctx.timers.clear(Due::HubConnector(self.at));
        self.retries.remove(self.at.key);
        self.queued = None;
        let target = WriteTarget::HubConnector(self.at);
        let waited_in = self.admitted_by.or_else(|| self.ctx.queues.queue_of(target));
        if let Some(QueueKey::Repeats(_)) = waited_in {
            // Else one that flaps on and on would pass the queue every ten seconds.
            self.connector.repeats_until = self.ctx.now.plus(REPEAT_MS);
        }

        self.compare();

        match self.queued {
            Some((queue, due)) => {
                let limit = self.limit_of(queue);
                self.ctx.enqueue(target, queue, due, limit);
            }
            None => self.ctx.withdraw(target),
        }
    }

    /// Compares observed with desired, and acts on the difference.
    fn compare(&mut self) {
        if !self.ctx.settings.mirror.enabled {
            return self.drop_claims();
        }
        if !self.hub.is_live(Kind::Connector) {
            return;
        }
        if self.connector.is_paused {
            return self.paused();
        }
        let desired = self.desired();
        self.track_removal(&desired);
        let mut desired = match desired {
            Desired::Unknown => return self.leave(),
            Desired::Held(reason, until) => return self.hold(reason, until),
            Desired::NotBefore(_) if self.is_removal_held() => {
                return self.hold(HoldReason::TooMany, None);
            }
            Desired::NotBefore(at) => {
                self.end_deferral();
                self.set_held(None);
                return self.look_again(at);
            }
            Desired::Status(desired) => desired,
        };
        let is_removal =
            desired.digest == Digest::ABSENT && self.connector.digest != Digest::ABSENT;
        if is_removal {
            return self.remove(desired);
        }
        self.set_held(None);
        let fitted = self.fit(desired.digest);
        match &fitted {
            Fitted::Whole => {}
            Fitted::Reduced(text) => {
                desired.digest = Digest::of_bytes(text);
                desired.routing = liveness::decode(text).as_ref().map(Liveness::routing);
            }
            Fitted::Nothing => (desired.digest, desired.routing) = (Digest::ABSENT, None),
        }
        if self.connector.digest == desired.digest {
            self.mirrored(desired);
        } else if self.is_deferrable(&desired) {
            self.defer(desired, fitted);
        } else {
            self.mark_behind(desired);
            let queue = self.queue_of(&desired);
            if self.leads()
                && self.may_retry()
                && self.may_write_now()
                && self.may_mirror_again()
                && self.is_admitted(queue, self.ctx.now)
            {
                self.write_status(desired, fitted, queue);
            }
        }
    }

    /// The rule does not run: nothing is held, behind or late.
    pub(super) fn drop_claims(&mut self) {
        self.set_held(None);
        self.end_deferral();
        self.end_stall();
        self.unsettled.remove(&self.at.key);
        (self.connector.mirrored_at, self.connector.upstream_changed) = (None, false);
        for edge in self.edges.values_mut() {
            if let Some(connector) = edge.connectors.get_mut(&self.at.key) {
                connector.missing_since.take();
            }
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.ctx.leads()
    }

    fn desired(&self) -> Desired {
        self.upstream.map_or(Desired::Unknown, |upstream| {
            upstream.desired(self.ctx, self.hub, self.at, self.connector)
        })
    }

    pub(super) fn look_again(&mut self, at: UnixMillis) {
        self.ctx.timers.no_later(Due::HubConnector(self.at), at);
    }

    /// The annotation is this one by now.
    pub(super) fn set_digest(&mut self, digest: Digest) {
        let before = self.connector.annotated_of(self.connector.digest);
        self.connector.digest = digest;
        let now = self.connector.annotated_of(digest);
        self.removals.count_annotated(self.ctx, before, now);
    }

    /// The annotation does not say what upstream says.
    pub(super) fn mark_behind(&mut self, desired: DesiredStatus) {
        self.end_deferral();
        self.note_upstream_change(desired);
        self.connector.mirrored_at = None;
        self.unsettled.insert(self.at.key);
        let free_since = self.repair().free_since;
        let since = desired.since.max(self.hub.live_since(Kind::Connector)).max(free_since);
        let overwritten_at = self.overwritten_at().unwrap_or(since);
        self.expect(Hop::Mirrored, since.max(overwritten_at), self.hub);
    }

    /// Notes whether the annotation is behind because upstream changed.
    pub(super) fn note_upstream_change(&mut self, desired: DesiredStatus) {
        let mirrored_at = self.connector.mirrored_at;
        let changes_now = desired.changed_at == self.ctx.now;
        if mirrored_at.is_some() || changes_now {
            let changed_since = mirrored_at.is_none_or(|at| desired.changed_at > at) || changes_now;
            self.connector.upstream_changed = desired.is_change_observed && changed_since;
        }
    }

    /// Whether nothing is in flight and no pause runs. Looks again when the pause ends.
    pub(super) fn may_write_now(&mut self) -> bool {
        let Some(repair) = &self.connector.repair else { return true };
        if repair.flight.is_free(self.ctx.now) {
            return true;
        }
        if !repair.flight.is_in_flight() {
            let not_before = repair.flight.not_before();
            self.look_again(not_before);
        }
        false
    }

    /// Whether this Connector has mirrors left. What it says meanwhile is left out, and what it says
    /// last is written when the next mirror is due.
    pub(super) fn may_mirror_again(&mut self) -> bool {
        let due_at = self.connector.limiter.ready_at(CONNECTOR_RATE);
        if due_at > self.ctx.now {
            self.look_again(due_at);
            return false;
        }
        true
    }

    /// Which queue a mirror waits in.
    fn queue_of(&self, desired: &DesiredStatus) -> QueueKey {
        let is_repeat = self.ctx.now < self.connector.repeats_until;

        match self.upstream {
            _ if self.is_contended(desired) => QueueKey::Rewrites(self.at.cluster),
            Some(upstream) if is_repeat => QueueKey::Repeats(upstream.id),
            _ => QueueKey::Immediate,
        }
    }

    /// Whether a write may start. Otherwise the Connector waits in the queue, since `at`.
    pub(super) fn is_admitted(&mut self, queue: QueueKey, at: UnixMillis) -> bool {
        let is_admitted = queue == QueueKey::Immediate || self.admitted_by == Some(queue);
        self.queued = (!is_admitted).then(|| (queue, write_queue::Due::at(at)));
        is_admitted
    }

    fn write_status(&mut self, desired: DesiredStatus, fitted: Fitted, queue: QueueKey) {
        self.connector.limiter.take(CONNECTOR_RATE, self.ctx.now);
        self.count_queued_time(queue);
        let online = self.upstream.is_some_and(|upstream| upstream.connector.online);
        let is_overwritten = self.is_overwritten(&desired);
        let observed = self.connector.digest;
        let because = match fitted {
            Fitted::Nothing => {
                "no part of upstream's status fits, and a stale one may not stay".to_owned()
            }
            _ => because(observed, online, is_overwritten),
        };
        self.write_fitted(desired, fitted, Intent::Mirror, queue, because);
    }

    /// Writes a status that routes as the annotation does; its time has come.
    pub(super) fn write_deferrable(
        &mut self,
        desired: DesiredStatus,
        fitted: Fitted,
        waited_s: u64,
    ) {
        let is_overwritten = self.is_overwritten(&desired);
        let changed = if is_overwritten {
            "another writer changed the hub's annotation"
        } else {
            "upstream's status changed"
        };
        let because = format!("{changed}, but not what routes; waited {waited_s} s");
        let queue = QueueKey::Deferrable(self.at.cluster);
        self.write_fitted(desired, fitted, Intent::Deferred, queue, because);
    }

    fn write_fitted(
        &mut self,
        desired: DesiredStatus,
        fitted: Fitted,
        intent: Intent,
        queue: QueueKey,
        because: String,
    ) {
        let text = match fitted {
            Fitted::Nothing => None,
            Fitted::Reduced(text) => Some(text),
            Fitted::Whole => self.upstream.and_then(|upstream| upstream.text()),
        };
        let annotation = (UPSTREAM_STATUS.to_owned(), text);
        let write = HubWrite::Status(desired.digest, desired.routing, intent);
        self.write(queue, annotation, because, write, None);
    }

    pub(super) fn write(
        &mut self,
        queue: QueueKey,
        annotation: (String, Option<String>),
        because: String,
        write: HubWrite,
        absent: Option<AbsentObjects>,
    ) {
        let verb = write.verb();
        let object = self.ctx.names.object_key(self.at.key);
        let precondition = Precondition { absent, ..self.precondition(verb) };
        let guards_annotation = precondition.annotation.is_some();
        let action = self.ctx.submit(WriteRequest {
            target: WriteTarget::HubConnector(self.at),
            verb,
            cluster: self.hub.name.clone(),
            kind: Kind::Connector,
            connectors: vec![object.clone()],
            object,
            annotations: vec![annotation],
            precondition,
            queue,
            urgency: write.urgency(),
            because,
        });
        self.queued = None;
        let repair = self.repair();
        repair.changed_since_write = false;
        repair.guards_annotation = guards_annotation;
        repair.flight.started(action, write);
    }

    /// What must still hold when the object is written: that it has not changed, or, while others
    /// change it faster than a write takes, that the annotation has not.
    fn precondition(&self, verb: Verb) -> Precondition {
        let uid = self.connector.uid.text();
        let starving = self
            .connector
            .repair
            .as_deref()
            .filter(|repair| verb == Verb::Mirror && repair.flight.is_starving());
        if let Some(observed) = starving.and_then(|repair| repair.observed_text.as_ref()) {
            let value = observed.as_deref().map(str::to_owned);
            let before =
                AnnotationBefore { key: UPSTREAM_STATUS.to_owned(), value, no_annotations: false };
            let annotation = Some(Box::new(before));
            return Precondition { uid, annotation, ..Precondition::default() };
        }
        Precondition { uid, resource_version: self.connector.rv.text(), ..Precondition::default() }
    }

    /// The watch showed the object in a new version, with this status annotation.
    pub(super) fn object_changed(&mut self, annotation: Option<&str>) {
        if let Some(repair) = &mut self.connector.repair {
            repair.flight.object_changed();
            repair.changed_since_write = true;
            repair.observed_text =
                repair.flight.is_conflicting().then(|| annotation.map(Box::from));
        }
    }

    pub(super) fn desired_changed(&mut self) {
        if let Some(repair) = &mut self.connector.repair {
            repair.flight.desired_changed();
        }
    }

    /// Another writer changed an annotation that was as desired.
    pub(super) fn overwritten(&mut self, manager: Option<&str>) {
        let settings = &self.ctx.settings.mirror;
        let limits = ContentionLimits {
            pause_from: settings.contention_count,
            first_pause_ms: settings.contention_backoff_ms,
            max_pause_ms: settings.contention_backoff_max_ms,
            quiet_ms: settings.contention_quiet_ms,
        };
        let now = self.ctx.now;
        let repair = self.connector.repair.get_or_insert_default();
        repair.contention.set_manager(manager);
        let Some(pause_ms) = repair.contention.record(now, &limits) else { return };
        repair.flight.pause_until(now.plus(pause_ms));
        let contention = &repair.contention;
        self.ctx.report_contention(self.hub, self.at.key, UPSTREAM_STATUS, contention, pause_ms);
    }

    pub(super) fn repair(&mut self) -> &mut Repair {
        self.connector.repair.get_or_insert_default()
    }

    fn overwritten_at(&self) -> Option<UnixMillis> {
        self.connector.repair.as_ref()?.contention.last_at()
    }

    /// Whether another writer changed the annotation after upstream last changed.
    fn is_overwritten(&self, desired: &DesiredStatus) -> bool {
        self.overwritten_at().is_some_and(|at| at > desired.since)
    }

    /// Whether another writer did so again and again. A writer that contends for one value often
    /// contends for a whole fleet's.
    fn is_contended(&self, desired: &DesiredStatus) -> bool {
        let repair = self.connector.repair.as_ref();
        let overwrites = repair.map_or(0, |repair| repair.contention.overwrites());
        self.is_overwritten(desired) && overwrites >= self.ctx.settings.mirror.contention_count
    }

    /// The time that a rewrite waits for its queue, beyond its own pause, is not quiet.
    fn count_queued_time(&mut self, queue: QueueKey) {
        if let QueueKey::Rewrites(_) = queue
            && let Some(repair) = &mut self.connector.repair
        {
            let paused_until = repair.flight.not_before();
            let since = repair.contention.last_at().unwrap_or_default().max(paused_until);
            repair.contention.queued(self.ctx.now.since(since));
        }
    }
}

fn because(observed: Digest, online: bool, is_overwritten: bool) -> String {
    let says = if online { "online" } else { "offline" };
    if is_overwritten {
        format!("another writer changed the hub's annotation; upstream says {says}")
    } else if observed == Digest::ABSENT {
        format!("upstream says {says}, the hub has no annotation")
    } else {
        format!("upstream says {says}, the hub's annotation says something else")
    }
}
