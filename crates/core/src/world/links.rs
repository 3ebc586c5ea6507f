//! Which hub objects name which upstream objects, and how many of them there are.

use std::collections::BTreeMap;

use super::change::Change;
use super::hub::{HubConnector, UpstreamRef};
use crate::contract::route_origin::RouteOrigin;
use crate::data::ids::{ClusterName, NamespacedName};
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;

/// Hub objects by the upstream objects that they name, whether or not those exist.
#[derive(Debug, Default)]
pub(crate) struct Links {
    connectors: BTreeMap<UpstreamRef, Link>,
    /// Routes by the Gateways that they name.
    routes: BTreeMap<UpstreamRef, Vec<ObjectRef>>,
    pub(crate) counts: BTreeMap<ClusterName, HubCounts>,
}

/// The hub Connectors that name an upstream Connector. The link also records the absence of that
/// Connector, so it outlives the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Never empty.
    pub(crate) from: Vec<ObjectRef>,
    /// Valid if the upstream Connector does not exist.
    pub(crate) absent_since: UnixMillis,
    /// The watch has shown the deletion, so a restore did not cause the absence.
    pub(crate) is_deletion_seen: bool,
    /// The cluster was restored since then; lists may show old objects.
    pub(crate) is_before_restore: bool,
}

/// How many hub objects name an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HubCounts {
    pub(crate) connectors: u64,
    /// How many of the Connectors have a status annotation.
    pub(crate) annotated: u64,
    pub(crate) routes: u64,
}

/// The upstream that a hub object names, and the object's share in its counts.
type Counted<'r> = Option<(&'r ClusterName, HubCounts)>;

impl HubCounts {
    pub(crate) fn is_referenced(&self) -> bool {
        self.connectors + self.routes > 0
    }
}

/// Queries.
impl Links {
    pub(crate) fn counts_of(&self, upstream: &ClusterName) -> HubCounts {
        self.counts.get(upstream).copied().unwrap_or_default()
    }

    pub(crate) fn get(&self, to: &UpstreamRef) -> Option<&Link> {
        self.connectors.get(to)
    }

    /// The key of the table, so that equal names share one text.
    pub(super) fn key(&self, to: &UpstreamRef) -> Option<&UpstreamRef> {
        self.connectors.get_key_value(to).map(|(key, _)| key)
    }

    /// The hub Connectors that name an upstream Connector.
    pub(crate) fn linked(&self, to: &UpstreamRef) -> &[ObjectRef] {
        self.connectors.get(to).map_or(&[], |link| &link.from)
    }

    /// The hub Connectors that name a Connector of this upstream, or of one of its namespaces.
    pub(crate) fn linked_in<'l>(
        &'l self,
        upstream: &'l ClusterName,
        namespace: Option<&'l str>,
    ) -> impl Iterator<Item = &'l ObjectRef> {
        of(&self.connectors, upstream, namespace).flat_map(|(_, link)| &link.from)
    }

    /// The routes that name this upstream Gateway.
    pub(super) fn routes_of(&self, gateway: &UpstreamRef) -> &[ObjectRef] {
        self.routes.get(gateway).map_or(&[], Vec::as_slice)
    }

    /// The routes that name Gateways of this upstream, or of one of its namespaces, possibly several
    /// times.
    pub(crate) fn routes_in<'l>(
        &'l self,
        upstream: &'l ClusterName,
        namespace: Option<&'l str>,
    ) -> impl Iterator<Item = &'l ObjectRef> {
        of(&self.routes, upstream, namespace).flat_map(|(_, routes)| routes)
    }
}

/// Updates.
impl Links {
    /// A hub Connector appeared or went, or names another upstream Connector than before.
    pub(super) fn relink(
        &mut self,
        at: &ObjectRef,
        before: Option<&HubConnector>,
        after: Option<&HubConnector>,
        now: UnixMillis,
        changes: &mut Vec<Change>,
    ) {
        let [from, to] = [before, after].map(|row| row?.upstream.as_ref().ok());
        if from != to {
            if let Some(from) = from
                && let Some(link) = self.connectors.get_mut(from)
            {
                link.from.retain(|other| other != at);
                if link.from.is_empty() {
                    self.connectors.remove(from);
                }
                changes.push(Change::Unlinked { at: at.clone(), from: from.cluster.clone() });
            }
            if let Some(to) = to {
                let link = self.connectors.entry(to.clone());
                link.or_insert_with(|| Link::absent_since(now)).from.push(at.clone());
            }
        }
        self.recount(counted(before), counted(after), changes);
    }

    /// A write changed the annotation of a hub Connector.
    pub(super) fn on_mirrored(&mut self, before: &HubConnector, after: &HubConnector) {
        self.recount(counted(Some(before)), counted(Some(after)), &mut Vec::new());
    }

    /// A route appeared or went, or names other Gateways than before.
    pub(super) fn relink_route(
        &mut self,
        at: &ObjectRef,
        before: Option<&RouteOrigin>,
        after: Option<&RouteOrigin>,
        changes: &mut Vec<Change>,
    ) {
        if before == after {
            return;
        }

        for gateway in before.into_iter().flat_map(refs) {
            let Some(routes) = self.routes.get_mut(&gateway) else { continue };
            routes.retain(|other| other != at);
            if routes.is_empty() {
                self.routes.remove(&gateway);
            }
        }
        for gateway in after.into_iter().flat_map(refs) {
            let routes = self.routes.entry(gateway);
            routes.or_insert_with(|| Vec::with_capacity(1)).push(at.clone());
        }
        let route = HubCounts { routes: 1, ..HubCounts::default() };
        let [before, after] = [before, after].map(|parents| Some((&parents?.cluster, route)));
        self.recount(before, after, changes);
    }

    /// Adds first, so that no upstream loses its last reference to get it back.
    fn recount(&mut self, before: Counted<'_>, after: Counted<'_>, changes: &mut Vec<Change>) {
        if before == after {
            return;
        }
        let none = HubCounts::default();
        if let Some((upstream, share)) = after {
            self.count(upstream, share, none, changes);
        }
        if let Some((upstream, share)) = before {
            self.count(upstream, none, share, changes);
        }
    }

    fn count(
        &mut self,
        upstream: &ClusterName,
        plus: HubCounts,
        minus: HubCounts,
        changes: &mut Vec<Change>,
    ) {
        let before = self.counts_of(upstream);
        let after = HubCounts {
            connectors: before.connectors + plus.connectors - minus.connectors,
            annotated: before.annotated + plus.annotated - minus.annotated,
            routes: before.routes + plus.routes - minus.routes,
        };

        match after == HubCounts::default() {
            true => self.counts.remove(upstream),
            false => self.counts.insert(upstream.clone(), after),
        };
        if before.is_referenced() != after.is_referenced() {
            changes.push(Change::ReferenceChanged { upstream: upstream.clone() });
        }
        if (before.connectors == 0) != (after.connectors == 0) {
            changes.push(Change::NamingChanged { upstream: upstream.clone() });
        }
    }

    /// The upstream Connector no longer exists.
    pub(super) fn on_absent(&mut self, at: &UpstreamRef, is_deletion_seen: bool, now: UnixMillis) {
        if let Some(link) = self.connectors.get_mut(at) {
            link.on_absent(is_deletion_seen, now);
        }
    }

    /// The upstream left the run. Returns the hub Connectors that name it.
    pub(super) fn on_upstream_left(
        &mut self,
        upstream: &ClusterName,
        now: UnixMillis,
    ) -> Vec<ObjectRef> {
        self.links_to(upstream).for_each(|link| link.on_absent(false, now));
        self.linked_in(upstream, None).cloned().collect()
    }

    /// The upstream was restored from an older state: what it lacks may be lost, not deleted.
    pub(super) fn on_restored(&mut self, upstream: &ClusterName) {
        for link in self.links_to(upstream) {
            link.is_deletion_seen = false;
            link.is_before_restore = true;
        }
    }

    fn links_to(&mut self, upstream: &ClusterName) -> impl Iterator<Item = &mut Link> {
        let links = self.connectors.range_mut(first_of(upstream, "")..);
        links.take_while(|(to, _)| to.cluster == *upstream).map(|(_, link)| link)
    }
}

/// The entries of an upstream, or of one of its namespaces.
fn of<'m, T>(
    map: &'m BTreeMap<UpstreamRef, T>,
    upstream: &'m ClusterName,
    namespace: Option<&'m str>,
) -> impl Iterator<Item = (&'m UpstreamRef, &'m T)> {
    let is_in = move |to: &UpstreamRef| {
        let is_in_namespace = |namespace| to.name.namespace() == namespace;
        to.cluster == *upstream && namespace.is_none_or(is_in_namespace)
    };
    let first = first_of(upstream, namespace.unwrap_or_default());
    map.range(first..).take_while(move |(to, _)| is_in(to))
}

fn first_of(upstream: &ClusterName, namespace: &str) -> UpstreamRef {
    UpstreamRef { cluster: upstream.clone(), name: NamespacedName::new(namespace, "") }
}

fn refs(parents: &RouteOrigin) -> impl Iterator<Item = UpstreamRef> {
    let at = |name: &NamespacedName| UpstreamRef {
        cluster: parents.cluster.clone(),
        name: name.clone(),
    };
    parents.gateways.iter().map(at)
}

fn counted(row: Option<&HubConnector>) -> Counted<'_> {
    let row = row?;
    let annotated = u64::from(row.annotation.is_some());
    Some((row.cluster()?, HubCounts { connectors: 1, annotated, routes: 0 }))
}

impl Link {
    fn absent_since(now: UnixMillis) -> Self {
        // Most links have one hub Connector, so a larger capacity would be wasted.
        let from = Vec::with_capacity(1);
        Self { from, absent_since: now, is_deletion_seen: false, is_before_restore: false }
    }

    fn on_absent(&mut self, is_deletion_seen: bool, now: UnixMillis) {
        self.absent_since = now;
        self.is_deletion_seen = is_deletion_seen;
        self.is_before_restore = false;
    }
}
