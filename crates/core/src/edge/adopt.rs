//! The first look at a target: throughline has just started, or the Gateway is new. It decides whether
//! what the Gateway carries can be trusted, or has to be announced again.
//!
//! A Gateway that the edge's first complete list shows is trusted: a restart writes nothing. One that
//! appears later is not, whatever it carries: after an edge's etcd was emptied and restored, Envoy Gateway
//! translates it as a new one, and the extension server may not have its connectors again yet. An edge
//! that shows no Gateways once and then all of them costs a touch and its confirmations for each, at the
//! edge's pace and behind every change.

use crate::contract::settings::PlatformKeyMode;
use crate::data::ids::{Kind, Role};
use crate::data::time::UnixMillis;
use crate::edge::pending::{PendingChange, Subject, TouchCause};
use crate::edge::touch::Touching;
use crate::edge::touch_state::TouchTarget;
use crate::status::trigger::Trigger;

impl Touching<'_> {
    /// First look at a target: decides whether what its Gateway carries can be trusted.
    pub(super) fn adopt(&mut self, desired: u64) {
        debug_assert!(self.state.pending.is_none() && !self.state.flight.is_in_flight());
        let now = self.ctx.now;
        let others_wrote_at = self.others_wrote_at();
        (self.state.is_adopted, self.state.is_unverified) = (true, true);
        self.state.unproven = Some(Subject::Target);
        self.state.take_over_n(self.observed.trigger);
        let appeared_later = self.state.appeared_later;
        let cause = match self.observed.trigger {
            Some(trigger) if trigger.digest == desired && appeared_later => {
                Some(TouchCause::CameWithTrigger)
            }
            Some(trigger) if trigger.digest == desired => {
                self.state.announced_at = Some(self.found_announced_at(trigger));
                // A status does not show whether liveness changed and changed back; the times of
                // the writes do. They are whole seconds: of two in one second either may be the
                // later one, and after a confirmation none follows that would make up for it.
                let is_confirmed = trigger.c > 0;
                let we_wrote_at = self.observed.we_wrote_at.get();
                let is_outdated = we_wrote_at
                    .zip(others_wrote_at)
                    .is_some_and(|(we, they)| they > we || (they == we && is_confirmed));
                is_outdated.then_some(TouchCause::WrittenSinceTouch)
            }
            Some(_) => Some(TouchCause::LivenessChanged),
            None if !appeared_later && self.is_announced_by_platform(others_wrote_at) => {
                self.state.platform_digest = Some(desired);
                None
            }
            None => Some(TouchCause::NotAnnounced),
        };
        let only_last = cause.is_some_and(|cause| self.is_confirmed_once(cause));
        self.state.pending = cause.map(|cause| PendingChange {
            only_last,
            ..PendingChange::new(now, cause, Subject::Target)
        });
        debug_assert!(cause.is_some() || self.announced_digest() == Some(desired));
    }

    /// Whether the last confirmation alone is enough for what is found now: neither the Gateway nor a
    /// change of a connector came after the edge was listed.
    fn is_confirmed_once(&self, cause: TouchCause) -> bool {
        cause.is_first_look()
            && self.ctx.now <= self.listed_at()
            && !self.state.appeared_later
            && !self.has_changed_since_listed()
    }

    /// When a trigger found at the first look was announced, counted back from throughline's last
    /// write, so that its confirmations go on where they stopped.
    fn found_announced_at(&self, trigger: Trigger) -> UnixMillis {
        let confirm_after_ms = &self.ctx.settings.touch.confirm_after_ms;
        let last_confirmation = trigger.c.checked_sub(1).map(|last| last as usize);
        let done_ms = last_confirmation.and_then(|last| confirm_after_ms.get(last)).copied();
        let now = self.ctx.now;
        // The time is the API server's, whose clock may be ahead.
        let written_at = self.observed.we_wrote_at.get().map_or(now, |at| at.min(now));
        UnixMillis(written_at.0.saturating_sub(done_ms.unwrap_or(0)))
    }

    /// Since when every list of the edge is complete.
    fn listed_at(&self) -> UnixMillis {
        let kinds = Role::Edge.liveness_kinds().iter();
        kinds.map(|kind| self.cluster.live_since(*kind)).max().unwrap_or_default()
    }

    /// Whether the liveness of one of the target's connectors changed after the edge was listed.
    fn has_changed_since_listed(&self) -> bool {
        let live_since = self.cluster.live_since(Kind::Connector);
        let changed_since =
            |gateway| self.references.changed_at(gateway).is_some_and(|at| at > live_since);
        match self.members {
            None => changed_since(self.gateway),
            Some(members) => members.iter().any(|member| changed_since(member.key)),
        }
    }

    /// When others last wrote one of the target's connectors.
    fn others_wrote_at(&self) -> Option<UnixMillis> {
        match self.members {
            None => self.references.others_wrote_at(self.gateway),
            Some(members) => {
                let gateways = members.iter().map(|member| member.key);
                gateways.filter_map(|gateway| self.references.others_wrote_at(gateway)).max()
            }
        }
    }

    /// Whether the platform's own key shows the Gateway's last connector as it is, and no time of
    /// a write contradicts it. Where the API server gives times, only throughline's own trigger is
    /// trusted: the extension server stamps the key before Envoy Gateway translates, if it does.
    fn is_announced_by_platform(&self, others_wrote_at: Option<UnixMillis>) -> bool {
        let stamp = self.references.platform_stamp_hash(self.gateway);
        self.ctx.settings.touch.platform_key == PlatformKeyMode::Observe
            && matches!(self.target, TouchTarget::Gateway(_))
            && stamp == Some(self.observed.platform_stamp)
            && others_wrote_at.is_none()
    }
}
