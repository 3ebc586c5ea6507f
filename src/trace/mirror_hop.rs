//! The hop from upstream to the hub: whether the hub Connector has the upstream status.

use super::diagnose::{Case, Diagnosis, liveness_text, upstream_liveness};
use super::{HopState, HopTrace, LastWriter, SnapshotSource, mirror_remedy, remedy};
use crate::core::contract::hold_reason::HoldReason;
use crate::core::contract::note::Hop;
use crate::core::data::ids::{Kind, Role};
use crate::core::view::{AnnotationState, ClusterView, HubView, LivenessView};

impl Case<'_> {
    pub(super) fn mirrored_hops(&self) -> Vec<HopTrace> {
        if !self.connector.hubs.is_empty() {
            return self.connector.hubs.iter().map(|hub| self.mirrored_hop(hub)).collect();
        }
        let without_connector = |cluster: &ClusterView| {
            let mut hop = HopTrace::new(Hop::Mirrored, &cluster.name, self.hub_key());
            hop.expected = self.expected_at_hub();
            let late = self.upstream_since().is_none_or(|at| self.is_late(Hop::Mirrored, at));
            let state = if late { HopState::Wrong } else { HopState::Pending };
            let not_live = self.watch_not_live(&cluster.name, &[Kind::Connector]);
            let upstream = self.connector.upstream.as_ref().map(|u| &u.object);
            hop.set_diagnosis(
                &self.snapshot.access,
                Some(not_live.unwrap_or_else(|| {
                    mirror_remedy::unreplicated(state, &cluster.name, upstream)
                })),
            );
            hop
        };
        self.clusters_with(Role::Hub).map(without_connector).collect()
    }

    fn expected_at_hub(&self) -> String {
        let up = self.connector.upstream.as_ref().filter(|up| up.exists);
        liveness_text(up.map(upstream_liveness).as_ref())
    }

    fn mirrored_hop(&self, hub: &HubView) -> HopTrace {
        let mut hop = HopTrace::new(Hop::Mirrored, &hub.cluster, self.hub_key());
        let writer = self.writer(&hub.cluster, Kind::Connector, self.hub_key());
        hop.says = if hub.annotated { self.hub_says(hub) } else { None };
        hop.expected = self.expected_at_hub();
        let diagnosis = match hub.annotation {
            AnnotationState::Right => None,
            AnnotationState::Off => Some(remedy::rule_disabled("mirror.enabled")),
            AnnotationState::Unknown | AnnotationState::Unconfigured => {
                Some(self.mirror_unknown(hub))
            }
            AnnotationState::Held => Some(self.mirror_held(hub)),
            AnnotationState::Deferred => Some(self.mirror_deferred(hub)),
            AnnotationState::Paused => {
                Some(remedy::paused(&hub.cluster, Kind::Connector, self.hub_key()))
            }
            AnnotationState::Wrong => Some(self.mirror_wrong(hub, writer)),
        };
        (hop.since_ms, hop.at_least) =
            self.since(&hub.cluster, Kind::Connector, hub.right_since_ms, writer);
        hop.writer = writer.cloned();
        hop.writer_at_least = self.is_nudged(&hub.cluster, Kind::Connector)
            && writer.is_some_and(LastWriter::is_throughline);
        hop.set_diagnosis(&self.snapshot.access, diagnosis);
        hop.set_next_attempt(&hub.writes);
        if hub.annotated && hop.says.is_none() {
            hop.why = format!("{} (only a digest of its annotation is kept)", hop.why);
        }
        hop
    }

    /// What the hub's annotation says: as it was read, or as the machine infers it.
    pub(super) fn hub_says(&self, hub: &HubView) -> Option<LivenessView> {
        let read = || self.snapshot.managed_fields.annotation(&hub.cluster, self.hub_key()?);
        read().or(hub.says.as_ref()).cloned()
    }

    fn mirror_unknown(&self, hub: &HubView) -> Diagnosis {
        if let Some(not_live) = self.watch_not_live(&hub.cluster, &[Kind::Connector]) {
            return not_live;
        }
        let Some(up) = &self.connector.upstream else {
            return remedy::no_labels(&hub.cluster, self.hub_key());
        };
        if self.cluster(&up.cluster).is_none() {
            return remedy::upstream_not_configured(&up.cluster);
        }
        let not_live = self.watch_not_live(&up.cluster, &[Kind::Connector, Kind::Namespace]);
        not_live.unwrap_or_else(|| remedy::no_labels(&hub.cluster, self.hub_key()))
    }

    fn mirror_held(&self, hub: &HubView) -> Diagnosis {
        let reason = hub.hold.as_ref().map(|hold| hold.reason);
        let upstream = self.connector.upstream.as_ref();
        match (reason, upstream) {
            (Some(HoldReason::NamespaceDiffers), Some(up)) => {
                mirror_remedy::identity(&hub.cluster, self.hub_key(), up)
            }
            (Some(reason), Some(up)) => mirror_remedy::held(&up.cluster, reason),
            _ => self.mirror_unknown(hub),
        }
    }

    fn mirror_deferred(&self, hub: &HubView) -> Diagnosis {
        let waited_ms = hub.deferred_since_ms.map_or(0, |at| self.snapshot.view.at_ms.since(at));
        match &hub.writes.error {
            Some(error) => {
                remedy::write_fails(HopState::Deferred, &hub.cluster, Kind::Connector, error)
            }
            None => mirror_remedy::deferred(&hub.cluster, waited_ms),
        }
    }

    fn mirror_wrong(&self, hub: &HubView, writer: Option<&LastWriter>) -> Diagnosis {
        let (source, hub_key) = (self.snapshot.source, self.hub_key());
        let changed = self.upstream_since();
        let other = writer.filter(|w| !w.is_throughline());
        let overwrite = other.filter(|w| w.of_field && changed.is_some_and(|at| w.at_ms > at));
        let since = changed.max(overwrite.map(|w| w.at_ms));
        let state = self.lateness(Hop::Mirrored, &hub.cluster, since);
        if let Some(error) = &hub.writes.error {
            return remedy::write_fails(state, &hub.cluster, Kind::Connector, error);
        }
        if hub.overwrites > 0 || overwrite.is_some() {
            let paused = hub.writes.not_before_ms.is_some();
            let state = if paused { HopState::Wrong } else { state };
            return mirror_remedy::contention(state, hub, hub_key, other);
        }
        let view = &self.snapshot.view;
        let holder = view.holder.as_deref();
        if let Some(wait) = &view.lease_wait {
            return mirror_remedy::waiting_for_lease(state, &hub.cluster, wait);
        }
        match source {
            SnapshotSource::State | SnapshotSource::Log if !view.leads => {
                mirror_remedy::not_leading(state, &hub.cluster, holder)
            }
            _ if hub.writes.in_flight.is_some() => {
                mirror_remedy::mirror_in_flight(state, &hub.cluster)
            }
            _ => mirror_remedy::not_mirrored(state, source, &hub.cluster, hub_key, holder),
        }
    }
}
