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
//! along, because each mirror carries the whole status. What is due waits in the hub's queue
//! [`QueueKey::Deferrable`].
//!
//! A new leader has followed what its predecessor left to do since it saw it. An instance that starts
//! sees every difference for the first time: what routes goes first there, too.

use super::desired::DesiredStatus;
use super::fit::Fitted;
use super::mirror::Mirror;
use super::{HubConnector, HubWrite};
use crate::context::Context;
use crate::contract::note::{Hop, NoteKind, StallCause};
use crate::contract::settings::DEFER_MS_MIN;
use crate::data::ids::{ClusterName, Kind};
use crate::data::interner::Key;
use crate::data::time::UnixMillis;
use crate::status::digest::Digest;
use crate::write_queue::QueueKey;

impl HubConnector {
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
        matches!(writing, Some(HubWrite::Status(written, ..)) if *written == digest)
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
        if !self.leads() {
            return;
        }
        // These mirrors take no turn from those that route, so they keep the same pace by themselves.
        let wait_ms = self.ctx.settings.mirror.defer_ms.max(DEFER_MS_MIN);
        let due_at = since.plus(wait_ms);
        if now < due_at {
            return self.look_again(due_at);
        }
        let queue = QueueKey::Deferrable(self.at.cluster);
        if self.may_write_now() && self.may_mirror_again() && self.is_admitted(queue, due_at) {
            self.write_deferrable(desired, fitted, now.since(since) / 1_000);
        }
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

    /// Nothing is deferred any longer. Returns whether anything was.
    pub(super) fn end_deferral(&mut self) -> bool {
        let key = self.at.key;
        let was_deferred = self.connector.forget_deferral(self.ctx, &self.hub.name, key);
        if was_deferred {
            self.end_stall_of(|stall| matches!(stall.cause, StallCause::Deferred { .. }));
        }
        was_deferred
    }
}
