//! Which hub objects name which upstream objects, and how many of them there are.

use std::collections::BTreeMap;

use super::World;
use super::change::Change;
use super::hub::{Link, Parents, UpstreamRef};
use crate::data::ids::ClusterName;
use crate::data::name::NamespacedName;
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;

/// How many hub objects name an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HubCounts {
    pub(crate) connectors: u64,
    /// Those of the Connectors that have a status annotation.
    pub(crate) annotated: u64,
    pub(crate) routes: u64,
}

impl HubCounts {
    /// Whether a hub object names the upstream.
    pub(crate) fn is_referenced(&self) -> bool {
        self.connectors + self.routes > 0
    }
}

/// Questions.
impl World {
    pub(crate) fn counts_of(&self, upstream: &ClusterName) -> HubCounts {
        self.hub_counts.get(upstream).copied().unwrap_or_default()
    }

    /// The hub Connectors that name an upstream Connector.
    pub(crate) fn linked(&self, to: &UpstreamRef) -> &[ObjectRef] {
        self.links.get(to).map_or(&[], |link| &link.from)
    }

    /// The hub Connectors that name a Connector in this upstream namespace.
    pub(crate) fn linked_in<'w>(
        &'w self,
        cluster: &'w ClusterName,
        namespace: &'w str,
    ) -> impl Iterator<Item = &'w ObjectRef> {
        of_namespace(&self.links, cluster, namespace).flat_map(|link| &link.from)
    }

    /// The hub Connectors that name this upstream.
    pub(crate) fn linked_to<'w>(
        &'w self,
        cluster: &'w ClusterName,
    ) -> impl Iterator<Item = &'w ObjectRef> {
        of_cluster(&self.links, cluster).flat_map(|(_, link)| &link.from)
    }

    /// The routes that name this upstream Gateway.
    pub(crate) fn routes_of(&self, parent: &UpstreamRef) -> &[ObjectRef] {
        self.children.get(parent).map_or(&[], Vec::as_slice)
    }

    /// The routes that name Gateways in this upstream namespace; one may come several times.
    pub(crate) fn routes_in<'w>(
        &'w self,
        cluster: &'w ClusterName,
        namespace: &'w str,
    ) -> impl Iterator<Item = &'w ObjectRef> {
        of_namespace(&self.children, cluster, namespace).flatten()
    }

    /// The routes that name this upstream; one may come several times.
    pub(crate) fn routes_naming<'w>(
        &'w self,
        cluster: &'w ClusterName,
    ) -> impl Iterator<Item = &'w ObjectRef> {
        of_cluster(&self.children, cluster).flat_map(|(_, routes)| routes)
    }
}

fn of_cluster<'m, T>(
    map: &'m BTreeMap<UpstreamRef, T>,
    cluster: &'m ClusterName,
) -> impl Iterator<Item = (&'m UpstreamRef, &'m T)> {
    let first = UpstreamRef { cluster: cluster.clone(), name: NamespacedName::new("", "") };
    map.range(first..).take_while(move |(at, _)| at.cluster == *cluster)
}

fn of_namespace<'m, T>(
    map: &'m BTreeMap<UpstreamRef, T>,
    cluster: &'m ClusterName,
    namespace: &'m str,
) -> impl Iterator<Item = &'m T> {
    let name = NamespacedName::new(namespace, "");
    let first = UpstreamRef { cluster: cluster.clone(), name };
    let is_in = move |at: &UpstreamRef| at.cluster == *cluster && at.name.namespace() == namespace;
    map.range(first..).take_while(move |(at, _)| is_in(at)).map(|(_, of)| of)
}

/// Updates.
impl World {
    /// The labels of a hub Connector name something, or something else than before.
    pub(super) fn relink(
        &mut self,
        at: &ObjectRef,
        before: Option<&UpstreamRef>,
        after: Option<&UpstreamRef>,
        now: UnixMillis,
        changes: &mut Vec<Change>,
    ) {
        if before == after {
            return;
        }
        if let Some(named) = before {
            self.unlink(at, named);
            self.count(&named.cluster, changes, |counts| counts.connectors -= 1);
        }
        if let Some(named) = after {
            self.link(at, named, now);
            self.count(&named.cluster, changes, |counts| counts.connectors += 1);
        }
    }

    /// The same for a route.
    pub(super) fn relink_route(
        &mut self,
        at: &ObjectRef,
        before: Option<&Parents>,
        after: Option<&Parents>,
        changes: &mut Vec<Change>,
    ) {
        if before == after {
            return;
        }
        if let Some(parents) = before {
            parents.refs().for_each(|parent| self.unlink_route(at, &parent));
            self.count(&parents.cluster, changes, |counts| counts.routes -= 1);
        }
        if let Some(parents) = after {
            for parent in parents.refs() {
                let routes = self.children.entry(parent);
                routes.or_insert_with(|| Vec::with_capacity(1)).push(at.clone());
            }
            self.count(&parents.cluster, changes, |counts| counts.routes += 1);
        }
    }

    /// An annotation came or went, or its hub Connector names another upstream. Each is the
    /// upstream that the hub Connector names, if it has an annotation.
    pub(super) fn count_annotated(
        &mut self,
        before: Option<&ClusterName>,
        after: Option<&ClusterName>,
    ) {
        if before == after {
            return;
        }
        let changes = &mut Vec::new();
        if let Some(upstream) = before {
            self.count(upstream, changes, |counts| counts.annotated -= 1);
        }
        if let Some(upstream) = after {
            self.count(upstream, changes, |counts| counts.annotated += 1);
        }
    }

    fn count(
        &mut self,
        upstream: &ClusterName,
        changes: &mut Vec<Change>,
        update: impl FnOnce(&mut HubCounts),
    ) {
        let counts = self.hub_counts.entry(upstream.clone()).or_default();
        let before = *counts;
        update(counts);
        let after = *counts;

        if after == HubCounts::default() {
            self.hub_counts.remove(upstream);
        }
        if before.is_referenced() != after.is_referenced() {
            changes.push(Change::ReferenceChanged { upstream: upstream.clone() });
        }
        if (before.connectors == 0) != (after.connectors == 0) {
            changes.push(Change::NamingChanged { upstream: upstream.clone() });
        }
    }

    fn link(&mut self, at: &ObjectRef, to: &UpstreamRef, now: UnixMillis) {
        let link = self.links.entry(to.clone()).or_insert_with(|| Link::absent_since(now));
        link.from.push(at.clone());
    }

    fn unlink(&mut self, at: &ObjectRef, from: &UpstreamRef) {
        let Some(link) = self.links.get_mut(from) else { return };
        link.from.retain(|other| other != at);
        if link.from.is_empty() {
            self.links.remove(from);
        }
    }

    fn unlink_route(&mut self, at: &ObjectRef, from: &UpstreamRef) {
        let Some(routes) = self.children.get_mut(from) else { return };
        routes.retain(|other| other != at);
        if routes.is_empty() {
            self.children.remove(from);
        }
    }

    /// The upstream Connector does not exist any longer.
    pub(super) fn on_upstream_absent(
        &mut self,
        at: &UpstreamRef,
        is_deletion_seen: bool,
        now: UnixMillis,
    ) {
        if let Some(link) = self.links.get_mut(at) {
            let from = std::mem::take(&mut link.from);
            *link = Link { from, is_deletion_seen, ..Link::absent_since(now) };
        }
    }

    /// The upstream left the run. Returns the hub Connectors that name it.
    pub(super) fn forget_links_to(
        &mut self,
        cluster: &ClusterName,
        now: UnixMillis,
    ) -> Vec<ObjectRef> {
        let linked: Vec<_> = of_cluster(&self.links, cluster).map(|(to, _)| to.clone()).collect();
        for to in &linked {
            self.on_upstream_absent(to, false, now);
        }
        linked.iter().flat_map(|to| self.linked(to)).cloned().collect()
    }

    /// The upstream was restored from an older state: what it lacks may be lost, not deleted.
    pub(super) fn on_links_restored(&mut self, cluster: &ClusterName) {
        let first = UpstreamRef { cluster: cluster.clone(), name: NamespacedName::new("", "") };
        let links = self.links.range_mut(first..);
        for (_, link) in links.take_while(|(at, _)| at.cluster == *cluster) {
            link.is_deletion_seen = false;
            link.is_before_restore = true;
        }
    }
}

impl Link {
    fn absent_since(now: UnixMillis) -> Self {
        // Most have one hub Connector, so there is no room for more.
        let from = Vec::with_capacity(1);
        Self { from, absent_since: now, is_deletion_seen: false, is_before_restore: false }
    }
}
