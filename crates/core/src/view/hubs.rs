//! A connector at a hub: what its annotation says, and what is written.

use super::phase::AnnotationState;
use super::{HoldView, HubView, LivenessView, UpstreamView, WritesView, upstream};
use crate::contract::cause::Problem;
use crate::contract::hold_reason::HoldReason;
use crate::controller::{Controller, HubMemory};
use crate::data::ids::Kind;
use crate::data::name::NamespacedName;
use crate::data::time::UnixMillis;
use crate::rules::mirror::{self, MirrorMemory, Place, Verdict};
use crate::status::digest::Digest;
use crate::subject::Subject;
use crate::world::cluster::Cluster;
use crate::world::edge::EdgeConnector;
use crate::world::hub::HubConnector;
use crate::world::upstream::UpstreamConnector;
use crate::write_state::Contention;

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
    problems: &'c [Problem],
}

impl<'c> HubAt<'c> {
    /// The hub Connectors of a name, by hub.
    pub(super) fn all(c: &'c Controller, name: &NamespacedName) -> Vec<Self> {
        let hubs = c.world.hubs();
        let hubs = hubs.filter(|hub| hub.is_hub_namespace(name.namespace()));
        hubs.filter_map(|hub| Self::find(c, hub, name)).collect()
    }

    fn find(c: &'c Controller, cluster: &'c Cluster, name: &NamespacedName) -> Option<Self> {
        let Controller { world, memory, breakers, leadership, settings, .. } = c;
        let at = cluster.object(Kind::Connector, name);
        let row = &cluster.hub_connectors.get(name)?.seen;
        let upstream = row.upstream.as_ref().and_then(|to| world.upstream_named(&to.cluster));

        let memory = memory.hub.get(&at).map(Box::as_ref);
        let at_rest = MirrorMemory::default();
        let mirror = memory.map_or(&at_rest, |memory| &memory.mirror);
        let place = Place::find(world, &at)?;
        let breaker = place.named().map(|upstream| breakers.removals_of(upstream));
        let view = mirror::View::new(place, mirror, settings, leadership.is_leader, c.now);
        let view = mirror::View { breaker: breaker.unwrap_or_default(), ..view };
        let verdict = mirror::plan(&view).verdict;

        let changed_at = place.upstream.map(|upstream| upstream.changed_at());
        let annotation = annotation(row, upstream, verdict);
        let held = verdict.hold_reason().filter(|_| annotation == AnnotationState::Held);
        let problems = c.notes.of_subject(&Subject::HubConnector(at));
        Some(Self { cluster, row, memory, upstream, changed_at, annotation, held, problems })
    }

    pub(super) fn problems(&self) -> &'c [Problem] {
        self.problems
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

    pub(super) fn upstream_view(&self, c: &Controller) -> Option<UpstreamView> {
        let named = self.row.upstream.as_ref()?;
        Some(upstream::view(c, &named.cluster, &named.name, self.connector()))
    }

    /// `at_edges`: the Connector as the edges have it.
    pub(super) fn view<'e>(
        &self,
        c: &Controller,
        at_edges: impl Iterator<Item = &'e EdgeConnector>,
    ) -> HubView {
        let while_it_is = |state: AnnotationState, at: Option<UnixMillis>| {
            at.filter(|_| self.annotation == state)
        };
        let hold = |reason: HoldReason| HoldView { reason, message: reason.text().to_owned() };
        let mirror = self.memory.map(|memory| &memory.mirror);
        let settings = &c.settings.mirror;

        HubView {
            cluster: self.cluster.name.clone(),
            annotation: self.annotation,
            hold: self.held.map(hold),
            annotated: self.digest().is_some(),
            says: self.says(at_edges),
            wrong_since_ms: while_it_is(AnnotationState::Wrong, self.wrong_since()),
            right_since_ms: while_it_is(AnnotationState::Right, self.right_since()),
            deferred_since_ms: while_it_is(
                AnnotationState::Deferred,
                mirror.and_then(|mirror| mirror.deferred_since),
            ),
            writes: WritesView::of(mirror.map(|mirror| &mirror.write), c.now),
            overwrites: self.contention().map_or(0, Contention::overwrites),
            nudges: self.memory.map_or(0, |memory| memory.nudge.nudges(settings, c.now)),
        }
    }

    fn contention(&self) -> Option<&'c Contention> {
        self.memory?.mirror.write.contention()
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
    fn says<'e>(
        &self,
        mut at_edges: impl Iterator<Item = &'e EdgeConnector>,
    ) -> Option<LivenessView> {
        let digest = self.digest()?;
        if matches!(self.annotation, AnnotationState::Right | AnnotationState::Deferred) {
            let said = self.connector()?.said.as_ref();
            return Some(LivenessView::of(said.map(|status| status.text.text()).as_deref()));
        }

        let same = at_edges.find(|row| row.annotation == Some(digest))?;
        Some(LivenessView::new(same.is_online, same.stamp))
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
