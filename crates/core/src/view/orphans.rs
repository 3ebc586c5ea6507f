//! Routes that are orphans, or may be.

use std::collections::BTreeMap;

use super::{OrphanView, WritesView};
use crate::contract::keep_reason::{
    KeepReason, OrphanCandidate, OrphanCounts, OrphanEvidence, text_with_times,
};
use crate::controller::Controller;
use crate::data::ids::Kind;
use crate::data::object_ref::ObjectRef;
use crate::machine::Machine;
use crate::rules::orphan::{OrphanMemory, Verdict, View};
use crate::world::absence::prove_namespace;
use crate::world::cluster::Cluster;
use crate::world::hub::Parents;

impl Machine {
    /// How many routes are orphans, or may be. Judges every route.
    pub fn orphan_counts(&self) -> OrphanCounts {
        let reasons = KeepReason::ALL.into_iter().filter(|reason| reason.is_counted());
        let mut orphans = 0;
        let mut kept: BTreeMap<_, _> = reasons.map(|reason| (reason, 0)).collect();
        for_each_route(&self.controller, |_, verdict| {
            let count = verdict.keep_reason().map(|reason| kept.get_mut(&reason));
            if let Some(count) = count.unwrap_or(Some(&mut orphans)) {
                *count += 1;
            }
        });
        OrphanCounts { orphans, kept: kept.into_iter().collect() }
    }

    /// The routes that are orphans, or may be, sorted by hub, namespace and name. Judges every route.
    pub fn candidates(&self) -> Vec<OrphanCandidate> {
        let mut candidates = Vec::new();
        for_each_route(&self.controller, |view, verdict| {
            let kept = verdict.keep_reason();
            if kept.is_none_or(KeepReason::is_counted) {
                candidates.push(candidate(&self.controller, view, kept));
            }
        });
        candidates.sort_unstable_by(|a, b| (&a.cluster, &a.route).cmp(&(&b.cluster, &b.route)));
        candidates
    }
}

/// The routes that were orphans by all evidence when they were last judged. One may wait for its
/// turn to be deleted.
pub(super) fn views(c: &Controller) -> Vec<OrphanView> {
    let routes = c.memory.routes.iter();
    let mut orphans: Vec<_> =
        routes.filter_map(|(at, memory)| orphan_view(c, at, memory)).collect();
    orphans.sort_unstable();
    orphans
}

fn orphan_view(c: &Controller, at: &ObjectRef, memory: &OrphanMemory) -> Option<OrphanView> {
    let since = memory.absent_since?;
    let (_, verdict) = c.judge_route(at, memory)?;
    if !matches!(verdict, Verdict::Orphan | Verdict::Absent(KeepReason::Budget)) {
        return None;
    }

    let writes = WritesView::of(Some(&memory.write), c.now);
    Some(OrphanView {
        cluster: c.world.name_of(at.cluster),
        route: at.name.key(),
        since_ms: Some(since),
        in_flight: writes.in_flight,
        error: writes.error.map(|error| error.to_string()),
        not_before_ms: writes.not_before_ms,
    })
}

fn for_each_route(c: &Controller, mut f: impl FnMut(&View<'_>, Verdict)) {
    let at_rest = OrphanMemory::default();
    for hub in c.world.hubs() {
        for name in hub.routes.keys() {
            let at = hub.object(Kind::HttpRoute, name);
            let memory = c.memory.routes.get(&at).unwrap_or(&at_rest);
            if let Some((view, verdict)) = c.judge_route(&at, memory) {
                f(&view, verdict);
            }
        }
    }
}

fn candidate(c: &Controller, view: &View<'_>, kept: Option<KeepReason>) -> OrphanCandidate {
    let now = c.now;
    let settings = &c.settings.orphans;
    let created_at = view.row.seen.created_at;
    let write = &view.memory.write;
    // The grace period counts since then.
    let since = view.upstream.map(|upstream| {
        let listed = [Kind::Gateway, Kind::Namespace].map(|kind| upstream.listed_since(kind));
        view.orphan_since(listed.into_iter().flatten().max().unwrap_or_default())
    });
    let because = |reason| text_with_times(reason, now, created_at, since, settings);

    OrphanCandidate {
        cluster: view.hub.name.clone(),
        route: view.at.name.key(),
        created_at,
        kept,
        kept_because: kept.map(because),
        evidence: view.row.seen.parents.as_ref().ok().map(|parents| evidence(view, parents)),
        in_flight: write.action(),
        error: write.failure().map(|failure| failure.error.to_string()),
    }
}

fn evidence(view: &View<'_>, parents: &Parents) -> OrphanEvidence {
    let listed = view.upstream.filter(|upstream| upstream.is_live(Kind::Gateway));
    let exists = |name| Some(listed?.upstream_gateways.contains(name));
    let is_proved = |upstream: &Cluster| {
        let hub_namespace = view.at.name.namespace();
        prove_namespace(upstream, hub_namespace, &parents.namespace).is_ok()
    };

    OrphanEvidence {
        upstream: parents.cluster.to_string(),
        upstream_namespace: parents.namespace.to_string(),
        parents: parents.gateways.iter().map(|at| (at.name().to_owned(), exists(at))).collect(),
        namespace_proved: view.upstream.is_some_and(is_proved),
        last_activity_at: listed.and_then(|up| up.watch(Kind::Gateway).last_event_at),
        orphan_since: view.memory.absent_since,
    }
}
