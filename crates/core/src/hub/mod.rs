//! The hub: its Connectors and HTTPRoutes as its own watches show them, and the links between a
//! hub Connector and the upstream Connector that its labels name.

mod carry;
mod connector;
mod deferral;
mod desired;
mod fit;
mod hold;
mod limits;
mod mirror;
mod outcome;
mod pause;
pub(crate) mod removals;
pub(crate) mod retries;

use std::collections::BTreeSet;

pub(crate) use connector::{HubConnector, HubWrite, Repair, UpstreamRef};
pub(crate) use desired::{Desired, UpstreamCase};
use limits::Carrier;
use mirror::Mirror;

use self::retries::Retries;
use super::clusters::Place;
use super::context::{Context, WriteTarget};
use super::contract::note::{NamingProblem, NoteKind};
use super::data::ids::{ClusterId, Kind, ResourceVersion, Uid};
use super::data::interner::{Key, Sym};
use super::data::map::{Map, keys_where, sorted_keys};
use super::data::objects::{Object, UPSTREAM_STATUS};
use super::data::optional_millis::OptionalMillis;
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};
use super::machine::Machine;
use super::orphans::route::Route;
use super::rate_limit::RateLimiter;
use super::status::digest::Digest;
use super::status::liveness::{self, Liveness};
use super::timers::Due;
use super::write_queue::QueueKey;

/// What is known of one hub.
#[derive(Default)]
pub(crate) struct HubState {
    pub(crate) connectors: Map<Key, HubConnector>,
    /// Connectors that are behind, here or at an edge.
    pub(super) unsettled: BTreeSet<Key>,
    carrier: Carrier,
    pub(crate) retries: Retries,
    pub(crate) routes: Map<Key, Route>,
    /// Routes that are orphans by all evidence.
    pub(crate) orphans: BTreeSet<Key>,
}

impl HoldsNames for HubState {
    fn mark(&self, used: &mut UsedNames) {
        let Self { connectors, unsettled, carrier, retries, routes, orphans } = self;
        retries.mark(used);
        carrier.mark(used);
        connectors.mark(used);
        unsettled.mark(used);
        routes.mark(used);
        orphans.mark(used);
    }
}

impl HubState {
    /// A list brought an object again that can't be read: it is not missing.
    pub(crate) fn listed_again(&mut self, kind: Kind, key: Key, list: u32) {
        match kind {
            Kind::Connector => {
                if let Some(connector) = self.connectors.get_mut(&key) {
                    connector.listed_in = list;
                }
            }
            Kind::HttpRoute => {
                if let Some(route) = self.routes.get_mut(&key) {
                    route.listed_in = list;
                }
            }
            Kind::Gateway | Kind::HttpProxy | Kind::Namespace => {}
        }
    }

    /// What the finished list number `list` of a kind did not bring again.
    pub(crate) fn missing_from_list(&self, kind: Kind, list: u32, gone: &mut BTreeSet<Key>) {
        if kind == Kind::Connector {
            gone.extend(keys_where(&self.connectors, |c| c.listed_in != list));
        } else if kind == Kind::HttpRoute {
            gone.extend(keys_where(&self.routes, |r| r.listed_in != list));
        }
    }
}

impl Machine {
    pub(crate) fn hub_connector_seen(&mut self, at: Place, object: &Object, listed: bool) {
        let Self { ctx, clusters, upstreams, hubs, removals, .. } = self;
        let (Some(cluster), Some(hub)) = (clusters.get(at.cluster), hubs.get_mut(&at.cluster))
        else {
            return;
        };
        let meta = &object.meta;
        let upstream = meta.upstream().map(|(cluster, namespace, name)| {
            let key = ctx.names.key(namespace, name);
            UpstreamRef { cluster: ctx.names.intern(&cluster), key }
        });
        let connector = hub.connectors.entry(at.key).or_default();
        connector.listed_in = cluster.list(Kind::Connector);
        let (uid, rv) = (Uid::new(&meta.uid), ResourceVersion::new(&meta.resource_version));
        if !listed && uid == connector.uid && rv.is_older_than(&connector.rv) {
            return;
        }
        let is_same = uid == connector.uid;
        if !is_same {
            // Another object under the same name: what was in flight was about the old one, and so
            // was the stall.
            connector.forget_deferral(ctx, &cluster.name, at.key);
            if let Some(stall) = connector.repair.take().and_then(|repair| repair.stall) {
                ctx.note(NoteKind::StallEnded(stall));
            }
            ctx.withdraw(WriteTarget::HubConnector(at));
            connector.repeats_until = UnixMillis::default();
            connector.limiter = RateLimiter::default();
            connector.oversize_reported = false;
            connector.upstream_changed = false;
            connector.namespace_deleted_at = OptionalMillis::default();
        }
        let desired = upstream
            .and_then(|named| upstreams.get(&named.cluster)?.connectors.get(&named.key))
            .map(|connector| (connector.digest, connector.routing));
        let (desired, desired_routing) = desired.unzip();
        let observed = connector.digest;
        let annotation = meta.annotations.get(UPSTREAM_STATUS);
        connector.routing = match annotation {
            // Byte for byte what upstream says, which is decoded already.
            Some(text) if Some(Digest::of_bytes(text)) == desired => desired_routing.flatten(),
            text => text.and_then(liveness::decode).as_ref().map(Liveness::routing),
        };
        let likely = [observed, desired.unwrap_or_default()];
        let own_bytes = annotation.map_or(0, |text| UPSTREAM_STATUS.len() + text.len());
        let other_bytes = meta.annotations.bytes() - own_bytes;
        let nudge = meta.annotations.get(&ctx.settings.mirror.nudge_key);
        connector.uid = uid;
        connector.rv = rv;
        connector.digest = annotation.map_or(Digest::ABSENT, |text| Digest::of(text, likely));
        connector.other_bytes = u32::try_from(other_bytes).unwrap_or(u32::MAX);
        connector.nudge = nudge.and_then(|n| n.parse().ok()).unwrap_or(0);
        let was_paused = std::mem::replace(&mut connector.is_paused, meta.is_paused());
        let is_resumed = was_paused && !connector.is_paused;
        let annotated_before = connector.annotated_of(observed);
        let linked = std::mem::replace(&mut connector.upstream, upstream);
        let annotated = connector.annotated_of(connector.digest);
        // While the rest is deferred, the annotation still routes as it should.
        let is_deferred =
            connector.deferred_since().is_some() && !connector.is_writing(connector.digest);
        let is_overwritten = is_same
            && !connector.is_paused
            && connector.mirrored_at.is_some()
            && connector.digest != observed
            && (Some(observed) == desired || (is_deferred && Some(connector.digest) != desired));
        if linked != upstream {
            if let Some(named) = linked {
                removals.forget(ctx, named.cluster, at, connector.held.take());
            }
            if linked.map(|named| named.cluster) != upstream.map(|named| named.cluster) {
                // A namespace of the former upstream says nothing about the present one.
                connector.namespace_deleted_at = OptionalMillis::default();
            }
            relink(ctx, upstreams, at, linked, upstream);
        }
        removals.count_annotated(ctx, annotated_before, annotated);
        let Some(mut mirror) = self.mirror(at) else { return };
        mirror.object_changed(annotation);
        if is_overwritten {
            mirror.overwritten(meta.overwritten_by(annotation.is_some()));
        }
        if is_resumed {
            mirror.resumed();
        }
        mirror.evaluate();
    }

    pub(crate) fn evaluate_hub_connector(&mut self, at: Place) {
        // A timer or a link may outlive the connector.
        if let Some(mut mirror) = self.mirror(at) {
            mirror.evaluate();
        }
    }

    /// A queue has room for a write to a hub Connector.
    pub(crate) fn evaluate_admitted(&mut self, at: Place, queue: QueueKey) {
        if let Some(mut mirror) = self.mirror(at) {
            mirror.admitted_by = Some(queue);
            mirror.evaluate();
        }
    }

    /// Upstream now says something else: a pause about the old value is over.
    pub(crate) fn desired_status_changed(&mut self, at: Place) {
        if let Some(mut mirror) = self.mirror(at) {
            mirror.desired_changed();
            mirror.evaluate();
        }
    }

    /// What should stand in a hub Connector's status annotation.
    pub(crate) fn desired(&self, at: Place, connector: &HubConnector) -> Desired {
        let named = connector.upstream;
        let upstream =
            named.and_then(|named| UpstreamCase::find(&self.upstreams, &self.clusters, named));
        match (upstream, self.clusters.get(at.cluster)) {
            (Some(upstream), Some(hub)) => upstream.desired(&self.ctx, hub, at, connector),
            _ => Desired::Unknown,
        }
    }

    /// Looks up a hub Connector and everything its rule reads.
    fn mirror(&mut self, at: Place) -> Option<Mirror<'_>> {
        let Self { ctx, clusters, upstreams, hubs, edges, removals, .. } = self;
        let HubState { connectors, unsettled, carrier, retries, .. } = hubs.get_mut(&at.cluster)?;
        let connector = connectors.get_mut(&at.key)?;
        let upstream =
            connector.upstream.and_then(|named| UpstreamCase::find(upstreams, clusters, named));
        Some(Mirror {
            at,
            hub: clusters.get(at.cluster)?,
            connector,
            unsettled,
            carrier,
            retries,
            upstream,
            edges,
            clusters,
            removals,
            ctx,
            admitted_by: None,
            queued: None,
        })
    }

    /// The hub Connectors of a namespace whose annotation is held.
    pub(crate) fn hub_connectors_held_in(&self, id: ClusterId, ns: Sym) -> Vec<Place> {
        let connectors = self.hubs.get(&id).into_iter().flat_map(|hub| &hub.connectors);
        let held = connectors.filter(|(key, connector)| key.ns == ns && connector.held.is_some());
        let mut places: Vec<_> = held.map(|(&key, _)| Place { cluster: id, key }).collect();
        places.sort_unstable();
        places
    }

    pub(crate) fn hub_connector_gone(&mut self, at: Place) {
        let connector = self.hubs.get_mut(&at.cluster).and_then(|hub| {
            hub.unsettled.remove(&at.key);
            hub.retries.remove(at.key);
            hub.connectors.remove(&at.key)
        });
        if let Some(connector) = connector {
            self.drop_hub_connector(at, connector);
        }
    }

    fn drop_hub_connector(&mut self, at: Place, mut connector: HubConnector) {
        if let Some(hub) = self.clusters.get(at.cluster) {
            connector.forget_deferral(&mut self.ctx, &hub.name, at.key);
        }
        self.ctx.timers.clear(Due::HubConnector(at));
        self.ctx.withdraw(WriteTarget::HubConnector(at));
        let annotated = connector.annotated_of(connector.digest);
        self.removals.count_annotated(&mut self.ctx, annotated, None);
        if let Some(stall) = connector.repair.and_then(|repair| repair.stall) {
            self.ctx.note(NoteKind::StallEnded(stall));
        }
        if let Some(named) = connector.upstream {
            self.removals.forget(&mut self.ctx, named.cluster, at, connector.held);
        }
        relink(&mut self.ctx, &mut self.upstreams, at, connector.upstream, None);
    }

    /// The cluster is no longer a hub of this run.
    pub(crate) fn forget_hub(&mut self, id: ClusterId) {
        let Some(mut hub) = self.hubs.remove(&id) else { return };
        self.ctx.timers.clear(Due::Retries(id));
        for key in sorted_keys(&hub.connectors) {
            if let Some(connector) = hub.connectors.remove(&key) {
                self.drop_hub_connector(Place { cluster: id, key }, connector);
            }
        }
        for (key, route) in &hub.routes {
            self.ctx.timers.clear(Due::Route(id, *key));
            self.ctx.withdraw(WriteTarget::Route(id, *key));
            self.unlink_route(id, *key, route);
        }
    }

    /// This instance leads, or waits no longer to lead: everything that waited is due.
    pub(crate) fn evaluate_unsettled(&mut self) {
        for (cluster, connectors, routes) in self.unsettled() {
            for key in connectors {
                self.evaluate_hub_connector(Place { cluster, key });
            }
            for key in routes {
                self.evaluate_route(cluster, key);
            }
        }
    }

    /// The hub's list of Connectors is complete.
    pub(crate) fn hub_listed(&mut self, cluster: ClusterId) {
        let keys = self.hubs.get(&cluster).map(|hub| sorted_keys(&hub.connectors));
        self.ctx.schedule_naming();
        for key in keys.unwrap_or_default() {
            self.evaluate_hub_connector(Place { cluster, key });
        }
    }
}

type Upstreams = Map<Sym, super::upstream::UpstreamState>;

/// Moves a hub Connector's link from the upstream Connector that its labels named to the one that
/// they name now.
fn relink(
    ctx: &mut Context,
    upstreams: &mut Upstreams,
    at: Place,
    old: Option<UpstreamRef>,
    new: Option<UpstreamRef>,
) {
    if let Some(named) = old
        && let Some(upstream) = upstreams.get_mut(&named.cluster)
    {
        upstream.unlink(named.key, at);
        if !upstream.is_referenced() {
            ctx.reference_changed(named.cluster);
        }
        if upstream.named == 0 {
            ctx.look_at_name_again(named.cluster);
            if upstream.id.is_some() {
                ctx.look_at_name(named.cluster, NamingProblem::Unreplicated);
            }
        }
        if upstream.is_unused() {
            upstreams.remove(&named.cluster);
        }
    }
    if let Some(named) = new {
        let upstream = upstreams.entry(named.cluster).or_default();
        if !upstream.is_referenced() {
            ctx.reference_changed(named.cluster);
        }
        upstream.link(named.key, at, ctx.now);
        if upstream.named == 1 {
            ctx.look_at_name_again(named.cluster);
            if upstream.id.is_none() {
                ctx.look_at_name(named.cluster, NamingProblem::Unconfigured);
            }
        }
    }
}
