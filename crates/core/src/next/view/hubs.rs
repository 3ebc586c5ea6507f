//! A connector at a hub: what its annotation says, and what is written.

use super::build::Present;
use super::connector::upstream_view;
use super::edges::EdgeAt;
use super::phase::AnnotationState;
use super::{HoldView, HubView, LivenessView, UpstreamView, node};
use crate::contract::hold_reason::HoldReason;
use crate::data::ids::Kind;
use crate::data::name::NamespacedName;
use crate::data::time::UnixMillis;
use crate::next::controller::HubMemory;
use crate::next::rules::mirror::{self, Verdict};
use crate::next::world::cluster::Cluster;
use crate::next::world::hub::HubConnector;
use crate::next::world::upstream::UpstreamConnector;
use crate::next::write_state::Contention;
use crate::status::digest::Digest;

pub(super) struct HubAt<'c> {
    pub(super) cluster: &'c Cluster,
    row: &'c HubConnector,
    /// `None`: it is at rest.
    pub(super) memory: Option<&'c HubMemory>,
    /// The cluster that its labels name, while that is in the run.
    upstream: Option<&'c Cluster>,
    /// When upstream came to say what it says, or to be absent.
    changed_at: Option<UnixMillis>,
    pub(super) annotation: AnnotationState,
    held: Option<HoldReason>,
}

impl<'c> HubAt<'c> {
    /// The hub Connectors of a name, by hub.
    pub(super) fn all(present: Present<'c>, name: &NamespacedName) -> Vec<Self> {
        let hubs = present.c.world.hubs().filter(|hub| hub.is_hub_namespace(name.namespace()));
        hubs.filter_map(|hub| Self::find(present, hub, name)).collect()
    }

    fn find(present: Present<'c>, cluster: &'c Cluster, name: &NamespacedName) -> Option<Self> {
        let at = cluster.object(Kind::Connector, name);
        let row = &cluster.hub_connectors.get(name)?.seen;
        let upstream = row.upstream.as_ref();
        let upstream = upstream.and_then(|named| present.c.world.upstream_named(&named.cluster));

        let memory = present.c.memory.hub.get(&at).map(Box::as_ref);
        let at_rest = mirror::MirrorMemory::default();
        let mirror = memory.map_or(&at_rest, |memory| &memory.mirror);
        let place = mirror::Place::find(&present.c.world, &at)?;
        let breaker = place.named().map(|upstream| present.c.breakers.removals_of(upstream));
        let view = place.view(mirror, present.c.leadership.is_leader);
        let view = mirror::View { breaker: breaker.unwrap_or_default(), ..view };
        let verdict = mirror::plan(&view, &present.c.settings, present.now).verdict;

        let changed_at = view.upstream.map(|upstream| upstream.changed_at());
        let annotation = annotation(row, upstream, verdict);
        let held = verdict.hold_reason();
        Some(Self { cluster, row, memory, upstream, changed_at, annotation, held })
    }

    pub(super) fn digest(&self) -> Option<Digest> {
        self.row.annotation.map(|annotation| annotation.all)
    }

    /// Whether upstream says that it is online; `None` while its cluster is not in the run.
    pub(super) fn is_online(&self) -> Option<bool> {
        self.upstream?;
        Some(self.connector().is_some_and(UpstreamConnector::was_online))
    }

    fn connector(&self) -> Option<&'c UpstreamConnector> {
        let named = self.row.upstream.as_ref()?;
        Some(&self.upstream?.upstream_connectors.get(&named.name)?.seen)
    }

    pub(super) fn upstream_view(&self, present: Present<'_>) -> Option<UpstreamView> {
        let named = self.row.upstream.as_ref()?;
        Some(upstream_view(present, &named.cluster, &named.name, self.connector()))
    }

    pub(super) fn view(&self, present: Present<'_>, edges: &[EdgeAt<'_>]) -> HubView {
        let while_it_is = |state: AnnotationState, at: Option<UnixMillis>| {
            at.filter(|_| self.annotation == state)
        };
        let mirror = self.memory.map(|memory| &memory.mirror);
        let writes = mirror.map(|mirror| present.writes(&mirror.write));
        let deferred_since = mirror.and_then(|mirror| mirror.deferred_since);
        let nudges =
            |memory: &HubMemory| memory.nudge.nudges(&present.c.settings.mirror, present.now);

        HubView {
            cluster: self.cluster.name.clone(),
            annotation: self.annotation,
            hold: self.hold(),
            annotated: self.digest().is_some(),
            says: self.says(edges),
            wrong_since_ms: while_it_is(AnnotationState::Wrong, self.wrong_since()),
            right_since_ms: while_it_is(AnnotationState::Right, self.right_since()),
            deferred_since_ms: while_it_is(AnnotationState::Deferred, deferred_since),
            writes: writes.unwrap_or_default(),
            overwrites: self.contention().map_or(0, Contention::overwrites),
            nudges: self.memory.map_or(0, nudges),
        }
    }

    fn contention(&self) -> Option<&'c Contention> {
        self.memory?.mirror.write.contention()
    }

    fn hold(&self) -> Option<HoldView> {
        let reason = self.held.filter(|_| self.annotation == AnnotationState::Held)?;
        Some(HoldView { reason, message: reason.text().to_owned() })
    }

    /// Since upstream changed, or since another writer changed the annotation later.
    fn wrong_since(&self) -> Option<UnixMillis> {
        self.changed_at.max(self.contention().map(Contention::last_at))
    }

    /// What is at rest has no memory: it has been right at least since all was listed and upstream
    /// last changed.
    fn right_since(&self) -> Option<UnixMillis> {
        let seen = self.memory.and_then(|memory| memory.mirror.sync.right_since());
        seen.or_else(|| {
            let live_since = [self.cluster, self.upstream?].map(|c| c.live_since(Kind::Connector));
            live_since.into_iter().chain([self.changed_at]).flatten().max()
        })
    }

    /// What the annotation says. Only its digest is kept, so this is known where upstream or an edge
    /// says the same.
    fn says(&self, edges: &[EdgeAt<'_>]) -> Option<LivenessView> {
        let digest = self.digest()?;
        if matches!(self.annotation, AnnotationState::Right | AnnotationState::Deferred) {
            let said = self.connector()?.said();
            return Some(LivenessView::of(said.map(|status| status.text.text()).as_deref()));
        }

        let same = edges.iter().find(|edge| edge.row.annotation == Some(digest))?;
        let online = same.row.is_online;
        Some(LivenessView { online, node: node(online, same.row.stamp) })
    }
}

fn annotation(row: &HubConnector, upstream: Option<&Cluster>, verdict: Verdict) -> AnnotationState {
    let is_configured = row.upstream.is_none() || upstream.is_some();
    match verdict {
        Verdict::Disabled => AnnotationState::Off,
        Verdict::HubNotLive => AnnotationState::Unknown,
        _ if !is_configured => AnnotationState::Unconfigured,
        Verdict::Paused => AnnotationState::Paused,
        Verdict::UpstreamNotLive | Verdict::UpstreamNotConfigured => AnnotationState::Unknown,
        Verdict::Held(_) | Verdict::RemovalHeld(..) => AnnotationState::Held,
        Verdict::AbsenceGrace(_) | Verdict::RemovalDue { .. } | Verdict::OutOfSync { .. } => {
            AnnotationState::Wrong
        }
        Verdict::Deferred { .. } => AnnotationState::Deferred,
        Verdict::BothAbsent | Verdict::InSync => AnnotationState::Right,
    }
}
