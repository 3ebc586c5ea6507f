//! Problems of a cluster, an upstream or a source of clusters as a whole. A cause that concerns
//! many objects is reported once.

use super::breakers::Updated;
use super::notes::Finder;
use super::state::Machine;
use crate::circuit_breaker::BreakerKey;
use crate::contract::cause::{About, Cause, Facts, Problem};
use crate::contract::error_cause::RequestFailure;
use crate::data::ids::{ClusterName, Kind, NamespacedName};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::upstream_selector;
use crate::data::time::UnixMillis;
use crate::rules::naming::{self, Verdict};
use crate::subject::Subject;

pub(super) fn on_watch_lost(
    m: &mut Machine,
    id: ClusterId,
    cluster: &ClusterName,
    kind: Kind,
    error: &RequestFailure,
) {
    let about = About { kind: Some(kind), ..About::cluster(cluster) };
    let problem = Problem::new(Cause::of_read(error.cause), about, m.now);
    let mut facts = Facts::of_refusal(error);
    facts.verb.get_or_insert("list,watch".into());
    m.notes.found(&Finder::Watch(id, kind), [Problem { facts, ..problem }]);

    // It is now unknown whether these are late.
    let unknown = m.notes.subjects_in(cluster);
    m.dirty.extend(unknown);
}

/// A watch is live, so what it shows can be read.
pub(super) fn on_cluster_answers(m: &mut Machine, id: ClusterId, kind: Kind) {
    let Machine { world, notes, .. } = m;
    notes.found(&Finder::Watch(id, kind), None);
    let cluster = &world.clusters[&id];

    let is_readable = |name: &NamespacedName| {
        let connector = cluster.upstream_connectors.get(name).filter(|_| kind == Kind::Connector);
        !cluster.watch(kind).unreadable.contains(name)
            && !connector.is_some_and(|row| row.seen.is_unreadable)
    };
    notes.forget(|finder| match finder {
        Finder::Object(at) => at.cluster == id && at.kind == kind && is_readable(&at.name),
        _ => false,
    });
}

pub(super) fn on_restored(m: &mut Machine, upstream: &ClusterName) {
    let about = first_naming(m, upstream);
    let problem = of_upstream(upstream, Cause::UpstreamRestored, about, m.now);
    found(m, upstream, problem);
}

pub(super) fn on_unreadable(m: &mut Machine, at: &ObjectRef) {
    let about = About::object(&m.world.name_of(at.cluster), at.kind, at.name.clone());
    let problem = Problem::new(Cause::ObjectUnreadable, about, m.now);
    m.notes.found(&Finder::Object(at.clone()), [problem]);
}

/// Reports what a tripped breaker holds. While the evidence is missing, an open problem stays.
pub(super) fn on_breaker_updated(m: &mut Machine, updated: &Updated) {
    let hub = m.world.hubs().next().map(|hub| hub.name.clone());
    let of_hub = || hub.clone().unwrap_or_else(|| "".into());
    let (cause, cluster, upstream) = match &updated.key {
        BreakerKey::Removals(upstream) => (Cause::RemovalsHeld, upstream.clone(), upstream.clone()),
        BreakerKey::FleetRemovals => (Cause::RemovalsHeld, of_hub(), "the fleet".into()),
        BreakerKey::Orphans(upstream) => (Cause::DeletesHeld, upstream.clone(), upstream.clone()),
        BreakerKey::DeletedProjects => (Cause::DeletesHeld, of_hub(), "deleted projects".into()),
    };
    let finder = Finder::Breaker(updated.key.clone());
    if !updated.is_tripped || m.breakers.is_said_by_upstreams(&updated.key) {
        return m.notes.found(&finder, None);
    }
    let Some((held, more)) = &updated.wanted else { return };

    let about = About::object(&cluster, held.kind, held.name.clone());
    let about = About { more: *more, whole: Some(upstream.as_str().into()), ..about };
    let facts = Facts {
        what: (upstream == cluster).then(|| upstream_selector(&upstream).into()),
        upstream: Some(upstream),
        hub,
        part: usize::try_from(updated.count).unwrap_or(usize::MAX),
        whole: usize::try_from(updated.population).unwrap_or(usize::MAX),
        ..Facts::default()
    };
    m.notes.found(&finder, [Problem { facts, ..Problem::new(cause, about, m.now) }]);
}

/// Reports whether hub labels and an upstream's name match.
pub(super) fn on_named(m: &mut Machine, upstream: &ClusterName, verdict: Verdict) {
    let problem = match verdict {
        Verdict::NotFollowed => {
            let about = first_naming(m, upstream);
            let mut problem = of_upstream(upstream, Cause::UpstreamUnknown, about, m.now);
            let meant = naming::meant(&m.world, upstream);
            problem.facts.what = meant.map(|name| name.as_str().into());
            problem.facts.source = m.roster.lost_source().map(|source| source.as_str().into());
            Some(problem)
        }
        Verdict::NotReplicated => {
            let about = first_of(m, upstream);
            Some(of_upstream(upstream, Cause::NotReplicated, about, m.now))
        }
        Verdict::Fits | Verdict::Unknown => None,
    };
    let mut report = |cause| {
        let found = problem.clone().filter(|problem| problem.cause == cause);
        m.notes.found(&Finder::Whole(upstream.clone(), cause), found);
    };
    report(Cause::UpstreamUnknown);
    // Where the verdict is unknown, the upstream is in the run, and whether it has Connectors is unknown.
    if verdict != Verdict::Unknown {
        report(Cause::NotReplicated);
    }
}

/// A project was deleted, or exists again.
pub(super) fn on_project(m: &mut Machine, project: &ClusterName) {
    let deleted = m.roster.deleted_project(project).map(|deleted| deleted.at);
    let problem = deleted.map(|at| {
        let about = first_naming(m, project);
        of_upstream(project, Cause::ProjectMissing, about, at)
    });
    m.notes.found(&Finder::Whole(project.clone(), Cause::ProjectMissing), problem);
}

/// Reports a bug in throughline. The problem never ends.
pub(super) fn on_bug(m: &mut Machine, cluster: &ClusterName, detail: &str) {
    let mut problem = Problem::new(Cause::Bug, About::cluster(cluster), m.now);
    problem.facts.error = Some(detail.into());
    found(m, cluster, problem);
}

/// The cluster left, so its problems end. Those that follow from hub objects stay while there is a
/// hub.
pub(super) fn forget_cluster(m: &mut Machine, id: ClusterId, name: &ClusterName) {
    let is_of_hubs = |cause| matches!(cause, Cause::UpstreamUnknown | Cause::ProjectMissing);
    let has_hub = m.world.hubs().next().is_some();
    m.notes.forget(|finder| match finder {
        Finder::Whole(_, Cause::UpstreamUnknown | Cause::NotReplicated) if !has_hub => true,
        Finder::Whole(of, cause) => of == name && !is_of_hubs(*cause),
        Finder::Breaker(BreakerKey::Removals(of)) => of == name,
        finder => finder.is_of(id),
    });
    let elsewhere: Vec<Subject> = m.notes.subjects_in(name);
    m.dirty.extend(elsewhere);
}

fn of_upstream(upstream: &ClusterName, cause: Cause, about: About, since: UnixMillis) -> Problem {
    let mut problem = Problem::new(cause, about, since);
    problem.facts.upstream = Some(upstream.clone());
    problem
}

fn found(m: &mut Machine, cluster: &ClusterName, problem: Problem) {
    m.notes.found(&Finder::Whole(cluster.clone(), problem.cause), [problem]);
}

/// The first of the hub Connectors that name an upstream, with their number.
fn first_naming(m: &Machine, upstream: &ClusterName) -> About {
    let links = &m.world.links;
    let first = links.linked_in(upstream, None).next();
    about(upstream, first.map(|at| &at.name), links.counts_of(upstream).connectors)
}

/// The first of an upstream's Connectors, with their number.
fn first_of(m: &Machine, upstream: &ClusterName) -> About {
    let cluster = m.world.upstream_named(upstream);
    let names = cluster.into_iter().flat_map(|cluster| {
        let names = cluster.upstream_connectors.keys();
        names.filter(|name| m.world.keeps_replicas_of(cluster, name.namespace()))
    });
    let names: Vec<_> = names.collect();
    about(upstream, names.iter().min().copied(), names.len() as u64)
}

fn about(upstream: &ClusterName, first: Option<&NamespacedName>, connectors: u64) -> About {
    let of_first = |first: &NamespacedName| About::object(upstream, Kind::Connector, first.clone());
    let about = first.map_or_else(|| About::cluster(upstream), of_first);
    let more = usize::try_from(connectors.saturating_sub(1)).unwrap_or(usize::MAX);
    About { more, whole: Some(upstream.as_str().into()), ..about }
}
