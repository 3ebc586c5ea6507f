//! What is not acted on, and what is removed: the status annotation stays until it is proven that
//! upstream has nothing to say, and while too many would go.

use super::HubWrite;
use super::connector::Intent;
use super::desired::{Desired, DesiredStatus, UpstreamCase};
use super::mirror::Mirror;
use super::removals::Removal;
use crate::circuit_breaker::BreakerState;
use crate::contract::action::AbsentObjects;
use crate::contract::hold_reason::HoldReason;
use crate::data::cluster::NamespaceIdentity;
use crate::data::ids::Kind;
use crate::data::objects::UPSTREAM_STATUS;
use crate::data::time::UnixMillis;
use crate::status::digest::Digest;
use crate::write_queue::QueueKey;

impl Mirror<'_> {
    /// What upstream says is not known. The annotation stays; a stall stays open only while an
    /// upstream watch is not live, because then it may be as late as before.
    pub(super) fn leave(&mut self) {
        let Some(upstream) = self.upstream else {
            self.set_held(None);
            self.end_deferral();
            return self.end_stall();
        };
        let kinds = [Kind::Connector, Kind::Namespace];
        if kinds.into_iter().all(|kind| upstream.cluster.is_live(kind)) {
            self.end_stall();
        }
    }

    /// What upstream seems to say is not acted on. The annotation stays, and nothing is late.
    pub(super) fn hold(&mut self, reason: HoldReason, until: Option<UnixMillis>) {
        self.set_held(Some(reason));
        self.end_deferral();
        self.end_stall();
        if let Some(until) = until {
            self.look_again(until);
        }
    }

    pub(super) fn set_held(&mut self, held: Option<HoldReason>) {
        let before = std::mem::replace(&mut self.connector.held, held);
        if let Some(named) = self.connector.upstream {
            self.removals.count_hold(self.ctx, named.cluster, before, held);
        }
        if before.is_some() && held.is_none() {
            self.repair().free_since = self.ctx.now;
        }
    }

    /// Counts a removal as wanted from the moment at which upstream has nothing to say, not only when
    /// its grace period is over.
    pub(super) fn track_removal(&mut self, desired: &Desired) {
        let is_absent = self.connector.digest == Digest::ABSENT;
        let is_removal = match desired {
            Desired::Unknown => return self.track(Removal::Unknown),
            Desired::Held(..) => false,
            Desired::NotBefore(_) => true,
            Desired::Status(desired) => desired.digest == Digest::ABSENT,
        };
        self.track(match is_removal {
            true if is_absent => Removal::Done,
            true if self.is_removal_allowed() => Removal::Allowed,
            true => Removal::Wanted { is_seen: self.is_loss_seen() },
            false => Removal::No,
        });
    }

    /// Nothing is removed while the object is paused.
    pub(super) fn untrack_removal(&mut self) {
        self.track(Removal::No);
    }

    fn track(&mut self, removal: Removal) {
        if let Some(named) = self.connector.upstream {
            self.removals.track(self.ctx, named.cluster, self.at, removal);
        }
    }

    /// Whether a watch showed that upstream has nothing to say any more: that the Connector or its
    /// namespace was deleted, or that the status went.
    fn is_loss_seen(&self) -> bool {
        self.connector.namespace_deleted_at.get().is_some()
            || self.upstream.is_some_and(|upstream| upstream.connector.is_loss_seen)
    }

    /// Whether a person agreed to it.
    pub(super) fn is_removal_allowed(&self) -> bool {
        self.hub.allows_removals(self.at.key.ns)
    }

    fn breaker(&self) -> BreakerState {
        let upstream = self.upstream.map(|upstream| upstream.cluster.sym);
        upstream.map(|upstream| self.removals.breaker(upstream)).unwrap_or_default()
    }

    /// Whether too many annotations of the upstream, or of the fleet, would go.
    pub(super) fn is_removal_held(&self) -> bool {
        self.breaker().is_tripped && !self.is_removal_allowed()
    }

    /// Removes the annotation, if nothing speaks against it: the upstream has nothing to say.
    pub(super) fn remove(&mut self, mut desired: DesiredStatus) {
        self.end_deferral();
        let Some(upstream) = self.upstream else { return };
        if self.is_removal_held() {
            return self.hold(HoldReason::TooMany, None);
        }
        let is_allowed = self.is_removal_allowed();
        let grace_ms = self.ctx.settings.mirror.absent_grace_ms;
        if let Some(reset_at) = self.breaker().reset_at.filter(|_| !is_allowed) {
            // The grace period starts again when removals were too many.
            let due_at = reset_at.plus(grace_ms);
            if self.ctx.now < due_at {
                self.set_held(None);
                return self.look_again(due_at);
            }
            desired.since = desired.since.max(due_at);
        }
        let queue = if is_allowed { QueueKey::AllowedRemovals } else { QueueKey::Removals };
        let may_write = self.leads() && self.may_write_now();
        let is_admitted = may_write && self.is_admitted(queue, self.ctx.now);
        if may_write && !is_admitted && queue == QueueKey::Removals {
            let limit = self.limit_of(queue);
            if self.ctx.has_room(queue, limit) {
                // Whether it is for this one is known once all of this moment wait for it.
                return;
            }
            return self.hold(HoldReason::Budget, None);
        }
        self.set_held(None);
        self.mark_behind(desired);
        if is_admitted {
            self.write_removal(desired, upstream, queue);
        }
    }

    fn write_removal(
        &mut self,
        desired: DesiredStatus,
        upstream: UpstreamCase<'_>,
        queue: QueueKey,
    ) {
        let UpstreamCase { cluster, connector, key, .. } = upstream;
        let text = |sym| self.ctx.names.text(sym).to_owned();
        let identity = cluster.namespace_identity(&self.ctx.names, self.at.key.ns, key.ns);
        let namespace_deleted = identity != NamespaceIdentity::Agrees;
        let absent = (namespace_deleted || !connector.exists()).then(|| AbsentObjects {
            cluster: cluster.name.clone(),
            namespace: text(key.ns),
            namespace_uid: text(self.at.key.ns).strip_prefix("ns-").map(str::to_owned),
            namespace_deleted,
            kind: Kind::Connector,
            names: vec![text(key.name)],
        });
        let because = match absent {
            Some(_) => "the Connector no longer exists upstream, so the hub may not claim a status",
            None => "upstream has no status, so the hub may not claim one",
        };
        let annotation = (UPSTREAM_STATUS.to_owned(), None);
        let write = HubWrite::Status(desired.digest, desired.routing, Intent::Removal);
        self.write(queue, annotation, because.to_owned(), write, absent);
    }
}
