//! Routes that are orphans, or may be.

use std::collections::BTreeMap;

use crate::contract::keep_reason::{
    KeepReason, OrphanCandidate, OrphanCounts, OrphanEvidence, text_with_times,
};
use crate::data::ids::Kind;
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::next::controller::Controller;
use crate::next::rules::orphan::{OrphanMemory, Verdict, View};
use crate::next::world::absence::{NamespaceIdentity, namespace_identity};
use crate::next::world::cluster::Cluster;
use crate::next::world::hub::Parents;

/// How many routes are orphans, or may be. Judges every route.
pub(crate) fn orphan_counts(c: &Controller, now: UnixMillis) -> OrphanCounts {
    let mut orphans = 0;
    let mut kept = BTreeMap::<_, u64>::new();
    for_each_route(c, now, |_, verdict| match verdict.keep_reason() {
        None => orphans += 1,
        Some(reason) => *kept.entry(reason).or_default() += 1,
    });

    let reasons = KeepReason::ALL.into_iter().filter(|reason| reason.is_counted());
    let count = |reason| (reason, kept.get(&reason).copied().unwrap_or_default());
    OrphanCounts { orphans, kept: reasons.map(count).collect() }
}

/// The routes that are orphans, or may be, sorted by hub, namespace and name. Judges every route.
pub(crate) fn candidates(c: &Controller, now: UnixMillis) -> Vec<OrphanCandidate> {
    let mut candidates = Vec::new();
    for_each_route(c, now, |view, verdict| {
        let kept = verdict.keep_reason();
        if kept.is_none_or(KeepReason::is_counted) {
            candidates.push(candidate(c, view, kept, now));
        }
    });
    candidates.sort_unstable_by(|a, b| (&a.cluster, &a.route).cmp(&(&b.cluster, &b.route)));
    candidates
}

fn for_each_route(c: &Controller, now: UnixMillis, mut f: impl FnMut(&View<'_>, Verdict)) {
    let at_rest = OrphanMemory::default();
    for hub in c.world.hubs() {
        for name in hub.routes.keys() {
            let at = hub.object(Kind::HttpRoute, name);
            let memory = c.memory.routes.get(&at).unwrap_or(&at_rest);
            if let Some((view, verdict)) = c.judge_route(&at, memory, now) {
                f(&view, verdict);
            }
        }
    }
}

fn candidate(
    c: &Controller,
    view: &View<'_>,
    kept: Option<KeepReason>,
    now: UnixMillis,
) -> OrphanCandidate {
    let (created_at, write) = (view.row.seen.created_at, &view.memory.write);
    let settings = &c.settings.orphans;
    let since = view.upstream.map(|upstream| orphan_since(view, upstream, now));
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

/// Since when the grace period counts.
fn orphan_since(view: &View<'_>, upstream: &Cluster, now: UnixMillis) -> UnixMillis {
    let listed_since = [Kind::Gateway, Kind::Namespace].map(|kind| upstream.listed_since(kind));
    view.orphan_since(listed_since.into_iter().flatten().max().unwrap_or_default(), now)
}

fn evidence(view: &View<'_>, parents: &Parents) -> OrphanEvidence {
    let listed = view.upstream.filter(|upstream| upstream.is_live(Kind::Gateway));
    let exists = |name| Some(listed?.upstream_gateways.get(name).is_some());
    let is_proved = |upstream: &Cluster| {
        let hub_namespace = view.at.name.namespace();
        let identity = namespace_identity(upstream, hub_namespace, &parents.namespace);
        identity == NamespaceIdentity::Agrees
    };

    OrphanEvidence {
        upstream: parents.cluster.to_string(),
        upstream_namespace: parents.namespace.to_string(),
        parents: parents.gateways.iter().map(|at| (at.name().to_owned(), exists(at))).collect(),
        namespace_proved: view.upstream.is_some_and(is_proved),
        last_activity_at: listed.and_then(|up| up.watch(Kind::Gateway).last_event_at),
        orphan_since: view.memory.absence.map(|absence| absence.since),
    }
}

/// The route of an upstream that has been an orphan for longest; where none is one, the first.
pub(crate) fn oldest_orphan(
    c: &Controller,
    routes: impl Iterator<Item = ObjectRef>,
) -> Option<ObjectRef> {
    let since = |at: &ObjectRef| {
        let absence = c.memory.routes.get(at).and_then(|memory| memory.absence);
        absence.map_or(UnixMillis::NEVER, |absence| absence.since)
    };
    routes.min_by_key(|at| (since(at), at.name.clone()))
}
