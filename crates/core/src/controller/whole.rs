//! Problems of a cluster, an upstream or a source of clusters as a whole: what is wrong with many
//! objects for one reason is told of once.

use super::breakers::Updated;
use super::problems::Finder;
use super::state::Controller;
use crate::cause::{About, Cause, Facts, Problem, Request};
use crate::circuit_breaker::BreakerKey;
use crate::contract::error_cause::RequestFailure;
use crate::contract::membership::DiscoveryProblem;
use crate::contract::note::{NamedUpstream, NamingProblem, NoteKind};
use crate::data::ids::{ClusterName, Kind, ObjectKey};
use crate::data::name::NamespacedName;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::subject::Subject;
use crate::world::absence::uid_of;
use crate::world::change::Report;

pub(super) fn on_watch_lost(
    c: &mut Controller,
    cluster: &ClusterName,
    kind: Kind,
    error: &RequestFailure,
) {
    let Some(id) = c.world.id_of(cluster) else { return };
    let about = About { kind: Some(kind), ..About::cluster(cluster) };
    let problem = Problem::new(Cause::of_request(error.cause, Request::Read), about, c.now);
    let facts = Facts { verb: Some("list and watch".into()), ..Facts::default() };
    let known = Facts::of_refusal(error);
    let facts = Facts { verb: known.verb.clone().or(facts.verb), ..known };
    c.notes.found(&Finder::Watch(id, kind), vec![Problem { facts, ..problem }]);

    // Nobody knows any longer whether these are late.
    let unknown = c.notes.problems().subjects_in(cluster);
    c.dirty.extend(unknown);
}

/// A watch is live: what it shows can be read, and may be late from now on.
pub(super) fn on_cluster_answers(c: &mut Controller, id: ClusterId, kind: Kind) {
    let Controller { world, notes, memory, dirty, .. } = c;
    notes.found(&Finder::Watch(id, kind), Vec::new());
    let Some(cluster) = world.clusters.get(&id) else { return };

    let is_readable = |name: &NamespacedName| {
        let connector = cluster.upstream_connectors.get(name).filter(|_| kind == Kind::Connector);
        !cluster.watch(kind).unreadable.contains(name)
            && !connector.is_some_and(|row| row.seen.is_unreadable)
    };
    notes.forget(|finder| match finder {
        Finder::Object(at) => at.cluster == id && at.kind == kind && is_readable(&at.name),
        _ => false,
    });
    if kind == Kind::Connector {
        dirty.extend(memory.behind_at(id));
    }
}

pub(super) fn on_report(c: &mut Controller, report: &Report) {
    match report {
        Report::UpstreamSays { .. } => {}
        Report::StatusUnreadable { cluster, connector } => {
            on_unreadable(c, cluster, Kind::Connector, connector.key());
        }
        Report::ObjectUnreadable { cluster, kind, object, .. } => {
            on_unreadable(c, cluster, *kind, object.clone());
        }
        Report::Restored { cluster } => {
            let mut problem = problem_of(c, Cause::UpstreamRestored, cluster);
            problem.facts.upstream = Some(cluster.clone());
            found(c, cluster, problem);
        }
    }
}

fn on_unreadable(c: &mut Controller, cluster: &ClusterName, kind: Kind, object: ObjectKey) {
    let Some(id) = c.world.id_of(cluster) else { return };
    let at = ObjectRef { cluster: id, kind, name: NamespacedName::from(&object) };
    let problem =
        Problem::new(Cause::ObjectUnreadable, About::object(cluster, kind, object), c.now);
    c.notes.found(&Finder::Object(at), vec![problem]);
}

/// A breaker that is tripped holds what would go.
pub(super) fn on_breaker_updated(c: &mut Controller, updated: &Updated) {
    let hub = c.world.hubs().next().map(|hub| hub.name.clone());
    let of_hub = || hub.clone().unwrap_or_else(|| "".into());
    let (cause, cluster, upstream) = match &updated.key {
        BreakerKey::Removals(upstream) => (Cause::RemovalsHeld, upstream.clone(), upstream.clone()),
        BreakerKey::FleetRemovals => (Cause::RemovalsHeld, of_hub(), "the fleet".into()),
        BreakerKey::Orphans(upstream) => (Cause::DeletesHeld, upstream.clone(), upstream.clone()),
        BreakerKey::DeletedProjects => (Cause::DeletesHeld, of_hub(), "deleted projects".into()),
    };
    let finder = Finder::Whole(cluster.clone(), cause);
    let Some(held) = &updated.held else { return c.notes.found(&finder, Vec::new()) };

    let part = usize::try_from(updated.count).unwrap_or(usize::MAX);
    let about = About {
        kind: Some(held.kind),
        object: Some(held.name.key()),
        more: part.saturating_sub(1),
        ..About::cluster(&cluster)
    };
    let facts = Facts {
        upstream: Some(upstream),
        hub,
        part,
        whole: usize::try_from(updated.population).unwrap_or(usize::MAX),
        ..Facts::default()
    };
    c.notes.found(&finder, vec![Problem { facts, ..Problem::new(cause, about, c.now) }]);
}

pub(super) fn on_naming_note(c: &mut Controller, note: &NoteKind) {
    let NoteKind::Naming { problem, over, upstreams, unnamed } = note else { return };
    for NamedUpstream { cluster, connectors } in upstreams {
        let cause = match problem {
            NamingProblem::Unconfigured => Cause::UpstreamUnknown,
            NamingProblem::Unreplicated => Cause::NotReplicated,
        };
        let finder = Finder::Whole(cluster.clone(), cause);
        if *over {
            c.notes.found(&finder, Vec::new());
            continue;
        }

        let mut problem = match problem {
            NamingProblem::Unconfigured => problem_of(c, cause, cluster),
            NamingProblem::Unreplicated => not_replicated(c, cluster),
        };
        problem.about.more = usize::try_from(connectors.saturating_sub(1)).unwrap_or(usize::MAX);
        problem.facts.upstream = Some(cluster.clone());
        problem.facts.what = meant(c, cluster, unnamed).map(|name| name.as_str().into());
        c.notes.found(&finder, vec![problem]);
    }
}

/// About an upstream, and its first Connector.
fn not_replicated(c: &Controller, upstream: &ClusterName) -> Problem {
    let cluster = c.world.upstream_named(upstream);
    let names = cluster.into_iter().flat_map(|cluster| cluster.upstream_connectors.keys());
    let about = match names.min() {
        Some(first) => About::object(upstream, Kind::Connector, first.key()),
        None => About::cluster(upstream),
    };
    Problem::new(Cause::NotReplicated, about, c.now)
}

/// The upstream that hub Connectors call by another name: one of its namespaces has the uid of theirs.
fn meant<'n>(
    c: &Controller,
    called: &ClusterName,
    unnamed: &'n [ClusterName],
) -> Option<&'n ClusterName> {
    let uid = uid_of(c.world.links.linked_to(called).next()?.name.namespace())?;
    unnamed.iter().find(|name| {
        let namespaces = c.world.upstream_named(name).map(|upstream| &upstream.namespaces);
        let mut rows = namespaces.into_iter().flat_map(|table| table.iter());
        rows.any(|(_, row)| row.uid.text().as_deref() == Some(uid))
    })
}

pub(super) fn on_roster_note(c: &mut Controller, note: &NoteKind) {
    match note {
        NoteKind::ClusterGone { cluster, connectors, routes } => {
            let finder = Finder::Whole(cluster.clone(), Cause::ProjectMissing);
            if connectors + routes == 0 {
                return c.notes.found(&finder, Vec::new());
            }
            let mut problem = problem_of(c, Cause::ProjectMissing, cluster);
            problem.facts.upstream = Some(cluster.clone());
            c.notes.found(&finder, vec![problem]);
        }
        NoteKind::Discovery { source, problem, clusters, of, detail } => {
            let cluster = ClusterName::from(source.as_str());
            let cause = match problem {
                DiscoveryProblem::Lost => Cause::DiscoveryFailing,
                DiscoveryProblem::TooManyMissing => Cause::ClustersMissing,
                DiscoveryProblem::Broken => Cause::KubeconfigInvalid,
                DiscoveryProblem::NameTaken => Cause::ClusterNameTaken,
            };
            let finder = Finder::Whole(cluster.clone(), cause);
            if *clusters == 0 {
                return c.notes.found(&finder, Vec::new());
            }
            let mut problem = Problem::new(cause, About::cluster(&cluster), c.now);
            problem.facts.source = Some(source.as_str().into());
            problem.facts.error = Some(detail.as_str().into());
            problem.facts.part = usize::try_from(*clusters).unwrap_or(usize::MAX);
            problem.facts.whole = usize::try_from(*of).unwrap_or(usize::MAX);
            c.notes.found(&finder, vec![problem]);
        }
        _ => {}
    }
}

/// The program itself is wrong. It does not end.
pub(super) fn on_bug(c: &mut Controller, detail: &str) {
    let nowhere = ClusterName::from("");
    let mut problem = Problem::new(Cause::Bug, About::cluster(&nowhere), c.now);
    problem.facts.error = Some(detail.into());
    found(c, &nowhere, problem);
}

/// The cluster left: nothing is known of it. What hub objects say of it is still true.
pub(super) fn forget_cluster(c: &mut Controller, id: ClusterId, name: &ClusterName) {
    let is_of_hubs = |cause| matches!(cause, Cause::UpstreamUnknown | Cause::ProjectMissing);
    c.notes.forget(|finder| match finder {
        Finder::Whole(of, cause) => of == name && !is_of_hubs(*cause),
        finder => finder.is_of(id),
    });
    let elsewhere: Vec<Subject> = c.notes.problems().subjects_in(name);
    c.dirty.extend(elsewhere);
}

fn found(c: &mut Controller, cluster: &ClusterName, problem: Problem) {
    c.notes.found(&Finder::Whole(cluster.clone(), problem.cause), vec![problem]);
}

/// About an upstream, and the first hub Connector that names it.
fn problem_of(c: &Controller, cause: Cause, upstream: &ClusterName) -> Problem {
    let first = c.world.links.linked_to(upstream).next();
    let about = match first {
        Some(first) => About::object(upstream, Kind::Connector, first.name.key()),
        None => About::cluster(upstream),
    };
    Problem::new(cause, about, c.now)
}
