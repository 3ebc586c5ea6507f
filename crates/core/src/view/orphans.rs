//! Routes that are orphans or may become orphans.

use serde::{Deserialize, Serialize};

use crate::circuit_breaker::BreakerKey;
use crate::contract::cause::{Cause, Problem};
use crate::contract::route_origin::RouteOrigin;
use crate::controller::{Finder, judge_route, shown_verdict};
use crate::data::ids::{ActionId, ClusterName, Kind, NamespacedName};
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::machine::Machine;
use crate::rules::orphan::{OrphanMemory, Plan, Verdict, View};
use crate::world::absence::prove_namespace;
use crate::world::cluster::Cluster;

/// The limit in the text for an orphan in the queue: when it is admitted is unknown.
const TURN_MS: u64 = 60_000;

/// An orphaned hub HTTPRoute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrphanView {
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub route: NamespacedName,
    /// Since when, without interruption, it has been an orphan.
    pub since_ms: Option<UnixMillis>,
    pub in_flight: Option<ActionId>,
    /// Why the last attempt to delete it failed.
    pub error: Option<String>,
    /// When the next attempt is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<UnixMillis>,
}

/// A route that is an orphan or may become one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrphanCandidate {
    /// The hub.
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub route: NamespacedName,
    #[serde(rename = "created_ms", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<UnixMillis>,
    /// Why it is kept; `None` if it may be deleted.
    pub kept: Option<Cause>,
    /// The same as a sentence.
    pub kept_because: Option<String>,
    /// The facts from its labels and parentRefs; `None` if they cannot be used.
    #[serde(flatten)]
    pub evidence: Option<OrphanEvidence>,
    /// The delete in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<ActionId>,
    /// Why the last delete failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The facts behind a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrphanEvidence {
    /// The upstream cluster that the route's labels name.
    pub upstream: String,
    pub upstream_namespace: String,
    /// The Gateways that the route names as parents, and whether each exists; `None` while the
    /// upstream Gateways are not fully listed.
    pub parents: Vec<(String, Option<bool>)>,
    /// Whether the uid of the upstream namespace is the one in the name of the route's namespace.
    pub namespace_proved: bool,
    /// The last event of the upstream Gateway watch, while that is live.
    #[serde(rename = "heard_ms", skip_serializing_if = "Option::is_none")]
    pub last_activity_at: Option<UnixMillis>,
    /// Since when the route has been an orphan without interruption.
    #[serde(rename = "orphan_since_ms", skip_serializing_if = "Option::is_none")]
    pub orphan_since: Option<UnixMillis>,
}

impl Machine {
    /// The routes that are orphans or may become orphans, sorted by hub, namespace and name. Judges
    /// every route.
    pub fn candidates(&self) -> Vec<OrphanCandidate> {
        let at_rest = OrphanMemory::default();
        let mut candidates = Vec::new();
        for hub in self.world.hubs() {
            for name in hub.routes.keys() {
                let at = hub.object(Kind::HttpRoute, name);
                let memory = self.memory.routes.get(&at).unwrap_or(&at_rest);
                let judged = judge_route(self, &at, memory);
                candidates.extend(judged.and_then(|(view, plan)| candidate(self, &view, &plan)));
            }
        }
        candidates.sort_unstable_by(|a, b| (&a.cluster, &a.route).cmp(&(&b.cluster, &b.route)));
        candidates
    }
}

/// The routes that were orphans by all evidence at their last plan, including those that wait in
/// the queue.
pub(super) fn views(m: &Machine) -> Vec<OrphanView> {
    let routes = m.memory.routes.iter();
    let mut orphans: Vec<_> =
        routes.filter_map(|(at, memory)| orphan_view(m, at, memory)).collect();
    orphans.sort_unstable();
    orphans
}

fn orphan_view(m: &Machine, at: &ObjectRef, memory: &OrphanMemory) -> Option<OrphanView> {
    let since = memory.absent_since?;
    let (_, plan) = judge_route(m, at, memory)?;
    if plan.verdict != Verdict::Orphan {
        return None;
    }

    let write = &memory.write;
    Some(OrphanView {
        cluster: m.world.name_of(at.cluster),
        route: at.name.clone(),
        since_ms: Some(since),
        in_flight: write.action(),
        error: write.failure().map(|failure| failure.error.to_string()),
        not_before_ms: write.not_before().filter(|at| *at > m.now),
    })
}

/// `None`: it is no orphan.
fn candidate(m: &Machine, view: &View<'_>, plan: &Plan) -> Option<OrphanCandidate> {
    let kept = match shown_verdict(m, view.at, plan.verdict) {
        Verdict::NotOrphan => return None,
        Verdict::Kept(cause) | Verdict::Absent(cause) => Some(cause),
        Verdict::Orphan => None,
    };
    let write = &view.memory.write;
    Some(OrphanCandidate {
        cluster: view.hub.name.clone(),
        route: view.at.name.clone(),
        created_at: view.row.seen.created_at,
        kept,
        kept_because: kept.map(|cause| because(m, view, plan, cause)),
        evidence: view.row.seen.parents.as_ref().ok().map(|parents| evidence(view, parents)),
        in_flight: write.action(),
        error: write.failure().map(|failure| failure.error.to_string()),
    })
}

/// A problem of the upstream as a whole has more facts than one of the route.
fn because(m: &Machine, view: &View<'_>, plan: &Plan, cause: Cause) -> String {
    let upstream = view.upstream.map(|upstream| upstream.name.clone());
    let wider = match cause {
        Cause::DeletesHeld => {
            let key = upstream.map_or(BreakerKey::DeletedProjects, BreakerKey::Orphans);
            m.notes.of(&Finder::Breaker(key)).first()
        }
        cause => view.named().and_then(|named| m.notes.of_whole(named, &[cause])),
    };
    let limit_ms = plan.next.requeue_at.map_or(TURN_MS, |at| at.since(m.now));
    let of_route = || view.problem(cause, Some(limit_ms)).sentence();
    wider.map_or_else(of_route, Problem::sentence)
}

fn evidence(view: &View<'_>, parents: &RouteOrigin) -> OrphanEvidence {
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
