//! What concerns many connectors at once: one banner for each cause, with a count.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{HopCause, Snapshot, StatusRow};
use crate::core::contract::error_cause::ErrorCause;
use crate::core::data::ids::{ClusterName, Role};
use crate::core::data::time::UnixMillis;
use crate::core::view::phase::Phase;
use crate::core::view::{ClusterView, GoneView, WatchState};
use crate::nearest::nearest;
use crate::report::style::{count, moment, unconfigured};

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Banner {
    /// The cluster that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// Why the connectors concerned are not ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<HopCause>,
    /// In words.
    pub what: String,
    /// Since when nothing is known of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<UnixMillis>,
    /// How many rows it concerns.
    pub connectors: usize,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl HopCause {
    /// A banner names it, so that rows need not repeat it.
    pub(super) fn is_told_once(self) -> bool {
        use HopCause::{Held, UpstreamNotConfigured, WatchNotLive};
        matches!(self, WatchNotLive | UpstreamNotConfigured | Held)
    }
}

/// The causes that rows share, those that make most of them unknown first; then whatever else a person
/// should know. `rows` are those of the snapshot that are shown.
pub fn banners(snapshot: &Snapshot, rows: &[StatusRow]) -> Vec<Banner> {
    let mut all = shared_causes(snapshot, rows);
    all.extend(unread_clusters(snapshot, &all));
    all.extend(not_configured(snapshot));
    all.extend(nowhere(snapshot));
    let view = &snapshot.view;
    all.extend(view.gone.iter().map(|gone| Banner::of(Some(&gone.cluster), gone_text(gone))));
    let waiting = view.clusters.iter().filter_map(|cluster| {
        let waiting = cluster.touches_waiting?;
        Some(Banner::of(Some(&cluster.name), format!("{}: {waiting}", cluster.name)))
    });
    all.extend(waiting);
    all.extend(view.lease_wait.iter().map(|wait| Banner::of(None, wait.to_string())));
    all
}

impl Banner {
    fn of(cluster: Option<&ClusterName>, what: String) -> Self {
        let cluster = cluster.cloned();
        Self { cluster, cause: None, what, since_ms: None, connectors: 0, remedy: None }
    }
}

/// Unknown rows by cluster and cause.
fn shared_causes(snapshot: &Snapshot, rows: &[StatusRow]) -> Vec<Banner> {
    let mut causes: BTreeMap<(&ClusterName, &str), (usize, HopCause)> = BTreeMap::new();
    for row in rows {
        let Some(hop) = &row.unknown else { continue };
        let told = hop.cause.filter(|cause| cause.is_told_once());
        let Some(cause) = told.filter(|cause| *cause != HopCause::UpstreamNotConfigured) else {
            continue;
        };
        causes.entry((&hop.cluster, &hop.why)).or_insert((0, cause)).0 += 1;
    }
    let mut all: Vec<_> = causes
        .into_iter()
        .map(|((name, why), (connectors, cause))| {
            let cluster = snapshot.view.clusters.iter().find(|c| c.name == *name);
            let unread = cluster.filter(|_| cause == HopCause::WatchNotLive).and_then(unread);
            let mut banner = unread.unwrap_or_else(|| Banner::of(Some(name), why.to_owned()));
            banner.cause = Some(cause);
            banner.connectors = connectors;
            banner.what =
                format!("{name}: {}: {} unknown", banner.what, count(connectors, "connector"));
            banner
        })
        .collect();
    all.sort_by_key(|banner| std::cmp::Reverse(banner.connectors));
    all
}

/// What cannot be read in a cluster, and since when.
fn unread(cluster: &ClusterView) -> Option<Banner> {
    let lost = |state: &WatchState| *state == WatchState::Lost;
    let kinds = cluster.watches.iter().filter(|(_, state)| lost(state)).map(|(kind, _)| *kind);
    let kinds: Vec<_> = kinds.collect();
    let first = *kinds.first()?;
    let failure = cluster.failure(first);
    let same = |kind: &crate::core::data::ids::Kind| {
        let other = cluster.failure(*kind).map(|failure| failure.cause);
        other == failure.as_ref().map(|failure| failure.cause)
    };
    let names: Vec<_> =
        kinds.iter().filter(|kind| same(kind)).map(|k| super::remedy::plural(*k)).collect();
    let names = match &names[..] {
        [.., _] if names.len() > 3 => format!("{} and {} more kinds", names[0], names.len() - 1),
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    };
    let what = match &failure {
        Some(failure) if failure.cause == ErrorCause::Forbidden => {
            format!("not allowed to list {names} (403)")
        }
        Some(failure) => format!("{names} cannot be listed ({failure})"),
        None => format!("the watch of {names} is lost"),
    };
    let since = kinds.iter().filter_map(|kind| cluster.unknown_since_ms.get(kind)).min().copied();
    let what = match since {
        Some(at) => format!("{what}; unknown since {} UTC", moment(at)),
        None => what,
    };
    let remedy = failure.and_then(|failure| failure.cause.remedy("list and watch", first));
    Some(Banner { since_ms: since, remedy, ..Banner::of(Some(&cluster.name), what) })
}

/// Clusters that cannot be read although no row tells: they may hold connectors that no row shows.
fn unread_clusters(snapshot: &Snapshot, told: &[Banner]) -> Vec<Banner> {
    let told: BTreeSet<_> = told.iter().filter_map(|banner| banner.cluster.as_ref()).collect();
    let clusters = snapshot.view.clusters.iter().filter(|cluster| !told.contains(&cluster.name));
    let banner = |cluster: &ClusterView| {
        let banner = unread(cluster)?;
        let what = format!("{}: {}", cluster.name, banner.what);
        Some(Banner { what, cause: Some(HopCause::WatchNotLive), ..banner })
    };
    clusters.filter_map(banner).collect()
}

/// Upstreams that hub Connectors name and that are not clusters of this run, without the deleted
/// projects.
fn not_configured(snapshot: &Snapshot) -> Vec<Banner> {
    let mut connectors = BTreeMap::new();
    let found = snapshot.view.connectors.iter().filter(|c| c.phase == Phase::Unconfigured);
    let upstreams = found.filter_map(|connector| connector.upstream.as_ref());
    for upstream in upstreams.filter(|upstream| !upstream.gone) {
        *connectors.entry(&upstream.cluster).or_default() += 1;
    }
    let names: Vec<String> = upstream_names(snapshot).map(ToString::to_string).collect();
    let banner = |(name, connectors): (&ClusterName, usize)| {
        let near = nearest(name.as_str(), &names);
        let near = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
        let what = format!(
            "{}{near}; they stay as they are. To have them followed, add {name} to `clusters` or to \
             what discovery finds",
            unconfigured(connectors, name.as_str())
        );
        let cause = Some(HopCause::UpstreamNotConfigured);
        Banner { cause, connectors, ..Banner::of(Some(name), what) }
    };
    connectors.into_iter().map(banner).collect()
}

fn upstream_names(snapshot: &Snapshot) -> impl Iterator<Item = &ClusterName> {
    let clusters = snapshot.view.clusters.iter();
    clusters.filter(|c| c.roles.contains(&Role::Upstream)).map(|cluster| &cluster.name)
}

/// Upstreams with Connectors of which none is at a hub: most likely the names differ, or nobody
/// replicates there.
fn nowhere(snapshot: &Snapshot) -> Vec<Banner> {
    let mut by_upstream: BTreeMap<&ClusterName, (usize, bool)> = BTreeMap::new();
    for connector in &snapshot.view.connectors {
        let Some(upstream) = &connector.upstream else { continue };
        let (lone, is_somewhere) = by_upstream.entry(&upstream.cluster).or_default();
        match connector.phase {
            Phase::Unreplicated => *lone += 1,
            _ => *is_somewhere = true,
        }
    }
    let is_nowhere = |(_, (_, is_somewhere)): &(&ClusterName, (usize, bool))| !is_somewhere;
    let banner = |(name, (lone, _)): (&ClusterName, (usize, bool))| {
        let which = if lone == 1 { "it is at no hub" } else { "none of them is at a hub" };
        let what = format!("upstream {name} has {}, and {which}", count(lone, "Connector"));
        let remedy = format!(
            "check that hub Connectors name it {name} in the label \
             meta.datumapis.com/upstream-cluster-name, and that the platform's replicator runs for it"
        );
        let cause = Some(HopCause::Unreplicated);
        Banner { cause, connectors: lone, remedy: Some(remedy), ..Banner::of(Some(name), what) }
    };
    by_upstream.into_iter().filter(is_nowhere).map(banner).collect()
}

fn gone_text(gone: &GoneView) -> String {
    let number = |n, noun| count(usize::try_from(n).unwrap_or(usize::MAX), noun);
    let objects = [(gone.connectors, "hub Connector"), (gone.routes, "HTTPRoute")];
    let objects = objects.iter().filter(|(n, _)| *n > 0).map(|(n, noun)| number(*n, noun));
    let verb = if gone.connectors + gone.routes == 1 { "names" } else { "name" };
    format!(
        "{} {verb} project {}, which is deleted; a deleted project can still serve traffic. \
         `throughline orphans` lists the routes",
        objects.collect::<Vec<_>>().join(" and "),
        gone.cluster
    )
}
