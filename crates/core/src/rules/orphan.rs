//! Orphans: a hub HTTPRoute is deleted when none of its parents exists upstream.
//!
//! [`plan`] keeps a route at the first step that cannot be proved, with the cause. The breakers and
//! the queue limit how many orphans are deleted.

use crate::circuit_breaker::BreakerState;
use crate::contract::action::{AbsentProject, Urgency};
use crate::contract::cause::{About, Cause, Facts, Problem};
use crate::contract::membership::SourceName;
use crate::contract::route_origin::RouteOrigin;
use crate::contract::settings::{OrphanMode, OrphanSettings};
use crate::data::ids::{ClusterName, Kind};
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::plan::{Job, Next, Turn, Write};
use crate::rules::findings::Findings;
use crate::world::absence::{AbsenceProof, Absent, Claim, NoProof, prove_absence};
use crate::world::cluster::Cluster;
use crate::world::hub::Route;
use crate::world::table::Row;
use crate::write_queue::{Due, QueueKey};
use crate::write_state::WriteState;

pub(crate) struct View<'w> {
    pub(crate) at: &'w ObjectRef,
    pub(crate) hub: &'w Cluster,
    pub(crate) row: &'w Row<Route>,
    /// The upstream that the route names, if it is in the run.
    pub(crate) upstream: Option<&'w Cluster>,
    /// Set if the upstream was a project that was deleted.
    pub(crate) deleted_project: Option<DeletedProject>,
    pub(crate) memory: &'w OrphanMemory,
    pub(crate) settings: &'w OrphanSettings,
    pub(crate) now: UnixMillis,
    /// Counts the routes that name the upstream, or the routes of all deleted projects.
    pub(crate) breaker: BreakerState,
    pub(crate) is_leader: bool,
    /// The queue that admits the delete now.
    pub(crate) admitted_by: Option<QueueKey>,
}

/// A deleted project that routes still name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeletedProject {
    pub(crate) source: SourceName,
    /// When its source first answered 404 for it.
    pub(crate) at: UnixMillis,
    pub(crate) is_deletion_seen: bool,
    /// The source currently shows every project.
    pub(crate) is_source_live: bool,
}

#[derive(Debug, Default)]
pub(crate) struct OrphanMemory {
    pub(crate) write: WriteState,
    /// Since when, without interruption, none of its parents exists.
    pub(crate) absent_since: Option<UnixMillis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A parent exists, or the route was not made from an upstream HTTPRoute.
    NotOrphan,
    Kept(Cause),
    /// None of its parents exists, but the route is kept for now. The breaker counts it.
    Absent(Cause),
    Orphan,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) verdict: Verdict,
    pub(crate) next: Next,
}

pub(crate) fn plan(view: &View<'_>) -> Plan {
    let View { settings, now, .. } = *view;
    let proof = match prove_orphan(view) {
        Ok(proof) => proof,
        Err(cause) => return Plan::keep(cause.map_or(Verdict::NotOrphan, Verdict::Kept)),
    };
    let Some(created_at) = identified_creation(view.row) else {
        return Plan::keep(Verdict::Kept(Cause::RouteNotOrphaned));
    };

    let old_at = created_at.plus(settings.min_age_ms);
    let settled_at = view.orphan_since(proof.since).plus(settings.settle_ms);
    if let Some(until) = [old_at, settled_at].into_iter().find(|until| now < *until) {
        let verdict = Verdict::Absent(Cause::RouteSettling);
        return Plan { verdict, next: Next::requeue_at(until) };
    }
    if view.breaker.is_tripped {
        return Plan::keep(Verdict::Absent(Cause::DeletesHeld));
    }
    if settings.mode != OrphanMode::Delete || !view.is_leader {
        return Plan::keep(Verdict::Orphan);
    }

    let next = Next::write_at(now, &view.memory.write, now, || {
        let queue = QueueKey::Deletes;
        let due = Due::at(now);
        Turn::in_queue(queue, due, view.admitted_by, now, || delete(view, proof))
    });
    Plan { verdict: Verdict::Orphan, next }
}

/// Finds problems of one route. Too many orphans are reported as one problem elsewhere.
pub(crate) fn find(view: &View<'_>, verdict: Verdict) -> Findings {
    let mut found = Findings::default();
    // Repeated conflicts mean that the live check before each delete disagrees with the watches.
    let failure = view.memory.write.failure().filter(|failure| failure.is_repeated);
    if let Some(failure) = failure.filter(|_| verdict == Verdict::Orphan) {
        found.push_failure(failure, "delete", &view.about(), view.now);
        return found;
    }

    let (cause, limit_ms) = match verdict {
        Verdict::Absent(Cause::RouteSettling) => (Cause::RouteSettling, Some(view.settling_ms())),
        Verdict::Kept(Cause::Paused) => (Cause::Paused, None),
        // Otherwise the leader deletes it.
        Verdict::Orphan if view.settings.mode != OrphanMode::Delete => (Cause::Orphaned, None),
        _ => return found,
    };
    found.push(view.problem(cause, limit_ms));
    found
}

impl Plan {
    fn keep(verdict: Verdict) -> Self {
        Self { verdict, next: Next::AWAIT_CHANGE }
    }
}

impl View<'_> {
    /// The upstream that the route names; `None` if the route cannot be an orphan.
    pub(crate) fn named(&self) -> Option<&ClusterName> {
        self.row.seen.upstream()
    }

    /// Time without evidence does not count, and the period starts again when the breaker resets.
    fn orphan_since(&self, proven_since: UnixMillis) -> UnixMillis {
        let since = self.memory.absent_since.unwrap_or(self.now);
        since.max(proven_since).max(self.breaker.reset_at.unwrap_or_default())
    }

    /// How long an orphan waits in all if no evidence is lost. Each plan computes the same value,
    /// so an open problem is not opened again.
    fn settling_ms(&self) -> u64 {
        let since = self.memory.absent_since.unwrap_or(self.now);
        let old_at = self.row.seen.created_at.unwrap_or_default().plus(self.settings.min_age_ms);
        old_at.since(since).max(self.settings.settle_ms)
    }

    fn about(&self) -> About {
        About::object(&self.hub.name, Kind::HttpRoute, self.at.name.clone())
    }

    /// A problem of the route, with this cause.
    pub(crate) fn problem(&self, cause: Cause, limit_ms: Option<u64>) -> Problem {
        let is_of_namespace = matches!(cause, Cause::NamespaceMissing | Cause::NamespaceMismatch);
        let parents = self.row.seen.parents.as_ref().ok().filter(|_| is_of_namespace);
        let facts = Facts {
            upstream: self.named().cloned(),
            what: parents.map(|parents| parents.namespace.clone()),
            limit_ms,
            ..Facts::default()
        };
        Problem { facts, ..Problem::new(cause, self.about(), self.now) }
    }
}

impl Verdict {
    /// Whether, by the lists, none of the route's parents exists.
    pub(crate) fn is_absent(self) -> bool {
        matches!(self, Self::Absent(_) | Self::Orphan)
    }
}

impl OrphanMemory {
    pub(crate) fn on_verdict(&mut self, verdict: Verdict, now: UnixMillis) {
        let since = self.absent_since.unwrap_or(now);
        self.absent_since = verdict.is_absent().then_some(since);
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.absent_since.is_none() && self.write.is_idle()
    }
}

/// `Err(Some(cause))`: the route is kept. `Err(None)`: it is no orphan.
fn prove_orphan(view: &View<'_>) -> Result<AbsenceProof, Option<Cause>> {
    let parents = view.row.seen.parents.as_ref().map_err(|cause| *cause)?;

    match (view.upstream, view.deleted_project) {
        (Some(upstream), _) => prove_parents_absent(view, upstream, parents),
        (None, Some(project)) => prove_project_absent(view, project, parents),
        (None, None) => Err(Some(Cause::UpstreamUnknown)),
    }
}

fn prove_parents_absent(
    view: &View<'_>,
    upstream: &Cluster,
    parents: &RouteOrigin,
) -> Result<AbsenceProof, Option<Cause>> {
    if upstream.restored_at.is_some() {
        return Err(Some(Cause::UpstreamRestored));
    }
    let is_listed = view.hub.is_live(Kind::HttpRoute)
        && upstream.shows_absence(Kind::Gateway)
        && upstream.shows_absence(Kind::Namespace);
    if !is_listed {
        return Err(Some(Cause::RouteUnproven));
    }
    let hub_namespace = view.at.name.namespace();
    if !view.hub.is_hub_namespace(hub_namespace) {
        return Err(Some(Cause::NamespaceMismatch));
    }

    let claim = Claim {
        hub_namespace,
        namespace: &parents.namespace,
        // A deleted namespace proves nothing here: the Gateways must be missing from an existing
        // one.
        namespace_deleted_at: None,
        kind: Kind::Gateway,
        names: parents.gateways.iter().map(|gateway| gateway.name().into()).collect(),
        absent_since: None,
        exists: parents.gateways.iter().any(|at| upstream.upstream_gateways.contains(at)),
        is_deletion_seen: false,
        max_age_ms: Some(view.settings.fresh_ms),
    };
    prove_absence(upstream, claim, view.now).map_err(cause_without)
}

/// The control plane of a deleted project proves nothing any more, so the root must show the
/// deletion.
fn prove_project_absent(
    view: &View<'_>,
    project: DeletedProject,
    parents: &RouteOrigin,
) -> Result<AbsenceProof, Option<Cause>> {
    if !view.settings.deleted_projects || !project.is_deletion_seen {
        return Err(Some(Cause::ProjectMissing));
    }
    if !view.hub.is_live(Kind::HttpRoute) || !project.is_source_live {
        return Err(Some(Cause::RouteUnproven));
    }
    if !view.hub.is_hub_namespace(view.at.name.namespace()) {
        return Err(Some(Cause::NamespaceMismatch));
    }

    let cluster = parents.cluster.clone();
    let absent = Absent::Project(AbsentProject { source: project.source, cluster });
    Ok(AbsenceProof { absent, since: project.at })
}

fn cause_without(no_proof: NoProof) -> Option<Cause> {
    match no_proof {
        NoProof::Restored => Some(Cause::UpstreamRestored),
        NoProof::NotListed | NoProof::Unreadable | NoProof::Stale => Some(Cause::RouteUnproven),
        NoProof::NamespaceMissing => Some(Cause::NamespaceMissing),
        NoProof::NamespaceDiffers | NoProof::NotUpstream => Some(Cause::NamespaceMismatch),
        NoProof::Exists => None,
    }
}

/// When the route was created; `None` if a delete could not name exactly this object.
fn identified_creation(row: &Row<Route>) -> Option<UnixMillis> {
    row.uid.text()?;
    row.version.text()?;
    row.seen.created_at
}

fn delete(view: &View<'_>, proof: AbsenceProof) -> Write {
    let because = because(&proof.absent);
    let mut precondition = view.row.unchanged();
    proof.absent.put_into(&mut precondition);

    Write {
        job: Job::Delete(view.at.clone()),
        annotations: Vec::new(),
        precondition,
        connectors: Vec::new(),
        urgency: Urgency::Delete,
        because,
    }
}

fn because(absent: &Absent) -> String {
    match absent {
        Absent::Objects(objects) => format!(
            "none of its parents ({}) exists in {} of {}, whose Gateways are fully listed",
            objects.names.join(", "),
            objects.namespace,
            objects.cluster
        ),
        Absent::Project(project) => format!(
            "its project {} was deleted: the root, which shows every project, no longer has it",
            project.cluster
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ids::{NamespacedName, Role};
    use crate::data::object_ref::ClusterId;
    use crate::world::World;
    use crate::world::cluster::Namespace;
    use crate::world::fixture::{live_cluster, watched, with_uid};
    use crate::world::table::Table;

    const NOW: UnixMillis = UnixMillis(1_000_000);
    const UP: ClusterId = ClusterId(1);
    const HUB: ClusterId = ClusterId(2);

    struct Stage {
        world: World,
        at: ObjectRef,
        deleted_project: Option<DeletedProject>,
    }

    impl Stage {
        /// A route that has been an orphan for long enough.
        fn new() -> Self {
            let mut world = World::default();
            for (id, name, role) in [(UP, "up", Role::Upstream), (HUB, "hub", Role::Hub)] {
                let cluster = Cluster { roles: vec![role], ..live_cluster(id.0, name) };
                world.ids.insert(name.into(), id);
                world.clusters.insert(id, cluster);
            }
            let name = NamespacedName::new("ns-1", "app");
            let at = ObjectRef { cluster: HUB, kind: Kind::HttpRoute, name };
            let mut stage = Self { world, at, deleted_project: None };

            let namespace = NamespacedName::new("", "default");
            let sighting = with_uid("1", watched(1));
            stage.up().namespaces.put(&namespace, sighting, Namespace::default());
            stage.shows(Ok(RouteOrigin {
                cluster: "up".into(),
                namespace: "default".into(),
                gateways: [NamespacedName::new("default", "app")].into(),
            }));
            stage
        }

        fn up(&mut self) -> &mut Cluster {
            self.world.clusters.get_mut(&UP).unwrap()
        }

        fn hub(&mut self) -> &mut Cluster {
            self.world.clusters.get_mut(&HUB).unwrap()
        }

        fn shows(&mut self, parents: Result<RouteOrigin, Option<Cause>>) {
            let route = Route { created_at: Some(UnixMillis(1)), parents };
            let at = self.at.name.clone();
            self.hub().routes.put(&at, with_uid("2", watched(1)), route);
        }

        fn plan(&self) -> Plan {
            plan(&View {
                at: &self.at,
                hub: &self.world.clusters[&HUB],
                row: self.world.clusters[&HUB].routes.get(&self.at.name).unwrap(),
                upstream: self.world.upstream_named(&"up".into()),
                deleted_project: self.deleted_project,
                memory: &OrphanMemory { absent_since: Some(UnixMillis(1)), ..Default::default() },
                settings: &OrphanSettings {
                    mode: OrphanMode::Delete,
                    deleted_projects: true,
                    ..OrphanSettings::default()
                },
                now: NOW,
                breaker: BreakerState::default(),
                is_leader: true,
                admitted_by: Some(QueueKey::Deletes),
            })
        }
    }

    #[test]
    fn a_route_is_kept_at_the_first_step_that_is_not_proved() {
        assert!(Stage::new().plan().next.turn.is_some_and(|turn| turn.write.is_some()));

        type Break = fn(&mut Stage);
        let steps: [(Option<Cause>, Break); 11] = [
            (None, |s| s.shows(Err(None))),
            (Some(Cause::RouteProtected), |s| s.shows(Err(Some(Cause::RouteProtected)))),
            (Some(Cause::UpstreamUnknown), |s| _ = s.world.ids.remove("up")),
            (Some(Cause::ProjectMissing), |s| {
                s.world.ids.remove("up");
                s.deleted_project = Some(DeletedProject {
                    source: SourceName::Milo,
                    at: UnixMillis(900_000),
                    is_deletion_seen: false,
                    is_source_live: true,
                });
            }),
            (Some(Cause::UpstreamRestored), |s| s.up().restored_at = Some(NOW)),
            (Some(Cause::RouteUnproven), |s| s.up().watches[Kind::Gateway].on_lost(NOW)),
            (Some(Cause::RouteUnproven), |s| s.up().watches[Kind::Namespace].on_lost(NOW)),
            (Some(Cause::RouteUnproven), |s| s.hub().watches[Kind::HttpRoute].on_lost(NOW)),
            (Some(Cause::NamespaceMissing), |s| s.up().namespaces = Table::default()),
            (Some(Cause::RouteUnproven), |s| s.up().watches[Kind::Gateway].last_event_at = None),
            (None, |s| {
                let gateway = NamespacedName::new("default", "app");
                s.up().upstream_gateways.insert(gateway);
            }),
        ];
        for (cause, break_it) in steps {
            let mut stage = Stage::new();
            break_it(&mut stage);
            let verdict = cause.map_or(Verdict::NotOrphan, Verdict::Kept);
            assert_eq!(stage.plan(), Plan::keep(verdict));
        }
    }
}
