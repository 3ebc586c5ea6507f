//! The upstreams: Connectors and Gateways as the project control planes show them, and the hub
//! objects that name them.

use std::collections::BTreeSet;

use super::clusters::Place;
use super::contract::note::{AnomalyKind, Hop, NamingProblem};
use super::data::ids::{ClusterId, Kind, ResourceVersion, Uid};
use super::data::interner::{Key, Sym};
use super::data::map::{Map, keys_where, remove_indexed};
use super::data::objects::Object;
use super::data::one_or_many::OneOrMany;
use super::data::optional_millis::OptionalMillis;
use super::data::packed::Packed;
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};
use super::machine::Machine;
use super::orphans::budget::OrphanShare;
use super::status::digest::Digest;
use super::status::go_json;
use super::status::liveness::{self, Liveness, Routing};

/// Whether an upstream Connector exists, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Presence {
    /// No list or watch has shown it.
    #[default]
    Never,
    Present,
    /// It exists; what it says can't be read.
    Unreadable,
    /// It exists, and its status can't be spelled as the annotation would: what it says is not known.
    /// Of other objects that says nothing.
    StatusUnreadable,
    /// A list did not bring it again.
    Unlisted,
    /// The watch showed that it was deleted.
    Deleted,
}

/// An upstream Connector, or the place of one that a hub Connector names.
#[derive(Default)]
pub(crate) struct UpstreamConnector {
    pub(crate) presence: Presence,
    /// The cluster was restored from an older state, and the watch has not shown it since.
    pub(crate) is_before_restore: bool,
    listed_in: u32,
    /// The status as the annotation spells it; `None` when upstream has none.
    pub(crate) text: Option<Packed>,
    pub(crate) digest: Digest,
    /// What an edge reads from that text; `None` when it does not decode.
    pub(crate) routing: Option<Routing>,
    /// The length of that text.
    pub(crate) bytes: u32,
    /// The status as upstream spells it: the same bytes mean at once that nothing changed.
    raw: Digest,
    rv: ResourceVersion,
    /// When `digest` or `exists` last changed.
    pub(crate) changed_at: UnixMillis,
    /// A watch showed that there is no status, or no Connector, any more. It is not only that a list
    /// lacks it.
    pub(crate) is_loss_seen: bool,
    /// What the status says. Only reported; no rule reads it.
    pub(crate) online: bool,
    /// The hub Connectors whose labels name it.
    pub(crate) hub_connectors: OneOrMany<Place>,
}

/// What is known of one upstream cluster, configured or only named by hub objects.
#[derive(Default)]
pub(crate) struct UpstreamState {
    /// `None` when the cluster is not configured.
    pub(crate) id: Option<ClusterId>,
    pub(crate) connectors: Map<Key, UpstreamConnector>,
    /// Gateways, with the number of the last list that brought each.
    pub(crate) gateways: Map<Key, u32>,
    /// Hub routes by the Gateway that they name, and by upstream namespace.
    pub(crate) routes_by_parent: Map<Key, BTreeSet<(ClusterId, Key)>>,
    pub(crate) routes_by_ns: Map<Sym, BTreeSet<(ClusterId, Key)>>,
    /// How many of those routes are orphans.
    pub(crate) share: OrphanShare,
    hub_connectors_by_ns: Map<Sym, BTreeSet<Place>>,
    /// How many hub Connectors that are.
    pub(crate) named: u64,
    /// When the cluster was last restored from an older state, as far as this instance saw.
    pub(crate) restored_at: OptionalMillis,
}

/// What the watch showed of an upstream Connector's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusChange {
    None,
    /// It says something else, or the Connector is new.
    Changed,
    /// It can't be spelled.
    Unreadable,
}

impl HoldsNames for UpstreamConnector {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            presence: _,
            is_before_restore: _,
            listed_in: _,
            text: _,
            digest: _,
            routing: _,
            bytes: _,
            raw: _,
            rv: _,
            changed_at: _,
            is_loss_seen: _,
            online: _,
            hub_connectors,
        } = self;
        hub_connectors.mark(used);
    }
}

impl HoldsNames for UpstreamState {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            id: _,
            connectors,
            gateways,
            routes_by_parent,
            routes_by_ns,
            share,
            hub_connectors_by_ns,
            named: _,
            restored_at: _,
        } = self;
        connectors.mark(used);
        gateways.mark(used);
        routes_by_parent.mark(used);
        routes_by_ns.mark(used);
        share.mark(used);
        hub_connectors_by_ns.mark(used);
    }
}

impl UpstreamState {
    /// Whether it is no cluster of this run, and no hub object names it.
    pub(crate) fn is_unused(&self) -> bool {
        self.id.is_none()
            && self.connectors.is_empty()
            && self.hub_connectors_by_ns.is_empty()
            && self.routes_by_ns.is_empty()
            && !self.share.breaker.state().is_tripped
    }

    /// The cluster is no longer configured. The hub objects that name it stay.
    pub(crate) fn forget(&mut self) {
        self.id = None;
        self.share.forget_state();
        self.restored_at = OptionalMillis::default();
        self.gateways.clear();
        self.connectors.retain(|_, connector| {
            let hub_connectors = std::mem::take(&mut connector.hub_connectors);
            *connector = UpstreamConnector { hub_connectors, ..UpstreamConnector::default() };
            !connector.hub_connectors.is_empty()
        });
    }

    /// Whether a hub object names it.
    pub(crate) fn is_referenced(&self) -> bool {
        self.named > 0 || self.share.routes > 0
    }

    /// Every hub Connector that names this upstream.
    pub(crate) fn hub_connectors(&self) -> BTreeSet<Place> {
        self.hub_connectors_by_ns.values().flatten().copied().collect()
    }

    /// Every hub route that names this upstream.
    pub(crate) fn hub_routes(&self) -> BTreeSet<(ClusterId, Key)> {
        self.routes_by_ns.values().flatten().copied().collect()
    }

    /// A hub Connector's labels name the Connector `key`.
    pub(crate) fn link(&mut self, key: Key, from: Place, now: UnixMillis) {
        let place = || UpstreamConnector { changed_at: now, ..UpstreamConnector::default() };
        let connector = self.connectors.entry(key).or_insert_with(place);
        if !connector.hub_connectors.as_slice().contains(&from) {
            connector.hub_connectors.push(from);
        }
        let is_new = self.hub_connectors_by_ns.entry(key.ns).or_default().insert(from);
        self.named += u64::from(is_new);
    }

    /// A hub Connector's labels no longer name the Connector `key`.
    pub(crate) fn unlink(&mut self, key: Key, from: Place) {
        if let Some(connector) = self.connectors.get_mut(&key) {
            connector.hub_connectors.retain(|place| *place != from);
            if connector.hub_connectors.is_empty() && !connector.exists() {
                self.connectors.remove(&key);
            }
        }
        if self.hub_connectors_by_ns.get(&key.ns).is_some_and(|places| places.contains(&from)) {
            self.named -= 1;
            remove_indexed(&mut self.hub_connectors_by_ns, &key.ns, &from);
        }
    }

    /// The hub Connectors that name an upstream namespace.
    pub(crate) fn hub_connectors_in(&self, ns: Sym) -> impl Iterator<Item = Place> {
        self.hub_connectors_by_ns.get(&ns).into_iter().flatten().copied()
    }

    /// The cluster was restored from an older state: what it shows may be old, and what it does not
    /// show may be lost rather than deleted.
    pub(crate) fn restored(&mut self, now: UnixMillis) {
        self.restored_at = now.into();
        for connector in self.connectors.values_mut() {
            connector.is_before_restore = true;
            connector.is_loss_seen = false;
            if connector.presence == Presence::Deleted {
                connector.presence = Presence::Unlisted;
            }
        }
    }

    /// What the finished list number `list` of a kind did not bring again.
    pub(crate) fn missing_from_list(&self, kind: Kind, list: u32, gone: &mut BTreeSet<Key>) {
        if kind == Kind::Connector {
            gone.extend(keys_where(&self.connectors, |c| c.exists() && c.listed_in != list));
        } else if kind == Kind::Gateway {
            gone.extend(keys_where(&self.gateways, |seen| *seen != list));
        }
    }
}

impl UpstreamConnector {
    pub(crate) fn exists(&self) -> bool {
        matches!(
            self.presence,
            Presence::Present | Presence::Unreadable | Presence::StatusUnreadable
        )
    }

    /// Takes the object as the watch shows it.
    fn observe(
        &mut self,
        object: &Object,
        list: u32,
        is_listed: bool,
        now: UnixMillis,
    ) -> StatusChange {
        self.listed_in = list;
        let rv = ResourceVersion::new(&object.meta.resource_version);
        if self.exists() && !is_listed && rv.is_older_than(&self.rv) {
            return StatusChange::None;
        }
        let before = self.presence;
        self.is_before_restore &= is_listed;
        self.rv = rv;
        let status = object.status();
        let raw = status.map_or(Digest::ABSENT, Digest::of_bytes);
        let is_read = matches!(before, Presence::Present | Presence::StatusUnreadable);
        if is_read && raw == self.raw {
            return StatusChange::None;
        }

        self.raw = raw;
        let text = status.map(go_json::canonical);
        if text == Some(None) {
            self.presence = Presence::StatusUnreadable;
            return StatusChange::Unreadable;
        }
        let text = text.flatten();
        let digest = text.as_deref().map_or(Digest::ABSENT, Digest::of_bytes);
        self.presence = Presence::Present;
        if before == Presence::Present && digest == self.digest {
            return StatusChange::None;
        }
        self.digest = digest;
        self.is_loss_seen = digest == Digest::ABSENT && !is_listed;
        let liveness = text.as_deref().and_then(liveness::decode);
        self.routing = liveness.as_ref().map(Liveness::routing);
        self.online = liveness.unwrap_or_default().online;
        self.text = text.as_deref().map(Packed::new);
        self.bytes = text.map_or(0, |text| u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.changed_at = now;
        StatusChange::Changed
    }
}

impl Machine {
    pub(crate) fn upstream_connector_seen(&mut self, at: Place, object: &Object, is_listed: bool) {
        let Some(cluster) = self.clusters.get(at.cluster) else { return };
        let Some(upstream) = self.upstreams.get_mut(&cluster.sym) else { return };
        if upstream.named == 0 && !upstream.connectors.contains_key(&at.key) {
            self.ctx.look_at_name(cluster.sym, NamingProblem::Unreplicated);
        }
        let connector = upstream.connectors.entry(at.key).or_default();
        let list = cluster.list(Kind::Connector);
        let was_before_restore = connector.is_before_restore;
        let change = connector.observe(object, list, is_listed, self.ctx.now);
        if change == StatusChange::None && connector.is_before_restore == was_before_restore {
            return;
        }
        let hub_connectors = connector.hub_connectors.as_slice().to_vec();
        if cluster.is_upstream_namespace(at.key.ns) {
            if change == StatusChange::Changed && cluster.is_live(Kind::Connector) {
                self.ctx.note_hop(&cluster.name, at.key, Hop::Upstream, connector.online, None);
            } else if change == StatusChange::Unreadable {
                let detail = "the status of a Connector can't be read: it is nested more than 128 \
                              levels deep, or has a number that is too large; the hub's annotation \
                              stays as it is";
                let (key, detail) = (Some(at.key), detail.to_owned());
                self.ctx.anomaly(AnomalyKind::Undecodable, &cluster.name, key, detail);
            }
        }
        self.desired_changed(hub_connectors);
    }

    /// The Connector exists, and what it says can't be read.
    pub(crate) fn upstream_connector_unreadable(&mut self, at: Place) {
        let Some(cluster) = self.clusters.get(at.cluster) else { return };
        let Some(upstream) = self.upstreams.get_mut(&cluster.sym) else { return };
        let connector = upstream.connectors.entry(at.key).or_default();
        connector.listed_in = cluster.list(Kind::Connector);
        connector.presence = Presence::Unreadable;
        let hub_connectors = connector.hub_connectors.as_slice().to_vec();
        self.desired_changed(hub_connectors);
    }

    /// The Connector does not exist any longer: the watch showed that it was deleted, or a list did
    /// not bring it again.
    pub(crate) fn upstream_connector_gone(&mut self, at: Place, is_deleted: bool) {
        let Some(cluster) = self.clusters.get(at.cluster) else { return };
        let Some(upstream) = self.upstreams.get_mut(&cluster.sym) else { return };
        let Some(connector) = upstream.connectors.get_mut(&at.key) else { return };
        let hub_connectors = std::mem::take(&mut connector.hub_connectors);
        let places = hub_connectors.as_slice().to_vec();
        let was_online = connector.online;
        self.ctx.look_at_name_again(cluster.sym);
        if places.is_empty() {
            upstream.connectors.remove(&at.key);
        } else {
            let presence = if is_deleted { Presence::Deleted } else { Presence::Unlisted };
            *connector = UpstreamConnector {
                presence,
                hub_connectors,
                changed_at: self.ctx.now,
                is_loss_seen: is_deleted,
                ..UpstreamConnector::default()
            };
        }
        if was_online {
            self.ctx.note_hop(&cluster.name, at.key, Hop::Upstream, false, None);
        }
        self.desired_changed(places);
    }

    /// The watch showed that a namespace was deleted: it held what its hub Connectors name, if its uid
    /// is the one in the name of their namespace.
    pub(crate) fn upstream_namespace_deleted(&mut self, id: ClusterId, ns: Sym, uid: &Uid) {
        self.set_namespace_deleted_at(id, ns, uid, self.ctx.now.into());
    }

    /// A namespace is there, perhaps again: Milo gives a project that is made again the uids of the
    /// former. What was seen of its deletion proves nothing any more.
    pub(crate) fn upstream_namespace_shown(&mut self, id: ClusterId, ns: Sym, uid: &Uid) {
        self.set_namespace_deleted_at(id, ns, uid, OptionalMillis::default());
    }

    fn set_namespace_deleted_at(
        &mut self,
        id: ClusterId,
        ns: Sym,
        uid: &Uid,
        deleted_at: OptionalMillis,
    ) {
        let Some(cluster) = self.clusters.get(id) else { return };
        let (Some(upstream), Some(uid)) = (self.upstreams.get(&cluster.sym), uid.text()) else {
            return;
        };
        let hub_ns = format!("ns-{uid}");
        for at in upstream.hub_connectors_in(ns) {
            if self.ctx.names.text(at.key.ns) == hub_ns
                && let Some(hub) = self.hubs.get_mut(&at.cluster)
                && let Some(connector) = hub.connectors.get_mut(&at.key)
            {
                connector.namespace_deleted_at = deleted_at;
            }
        }
    }

    fn desired_changed(&mut self, hub_connectors: Vec<Place>) {
        for at in hub_connectors {
            self.desired_status_changed(at);
        }
    }

    /// Evaluates the hub Connectors that name an upstream Connector.
    pub(crate) fn evaluate_hub_connectors_of(&mut self, at: Place) {
        let upstream = self.clusters.get(at.cluster).and_then(|c| self.upstreams.get(&c.sym));
        let connector = upstream.and_then(|upstream| upstream.connectors.get(&at.key));
        let places = connector.map(|connector| connector.hub_connectors.as_slice().to_vec());
        self.evaluate_hub_connectors(places.unwrap_or_default());
    }

    /// A list of the upstream is complete: from now on absence counts.
    pub(crate) fn upstream_listed(&mut self, id: ClusterId, connectors: bool) {
        let Some(sym) = self.clusters.get(id).map(|cluster| cluster.sym) else { return };
        let Some(upstream) = self.upstreams.get(&sym) else { return };
        if upstream.named == 0 && !upstream.connectors.is_empty() {
            self.ctx.look_at_name(sym, NamingProblem::Unreplicated);
        }
        let places = if connectors {
            let places = upstream.connectors.values().flat_map(|c| c.hub_connectors.as_slice());
            places.copied().collect()
        } else {
            upstream.hub_connectors()
        };
        self.evaluate_hub_connectors(places);
        self.removals.evidence_is_back(&mut self.ctx, sym);
        self.evaluate_routes_naming(sym);
    }

    /// An upstream namespace changed: hub Connectors and routes that name it are evaluated.
    pub(crate) fn evaluate_namespace(&mut self, id: ClusterId, ns: Sym) {
        let Some(cluster) = self.clusters.get(id) else { return };
        let Some(upstream) = self.upstreams.get(&cluster.sym) else { return };
        let places: Vec<_> = upstream.hub_connectors_in(ns).collect();
        let routes = upstream.routes_by_ns.get(&ns).cloned().unwrap_or_default();
        self.evaluate_hub_connectors(places);
        for (hub, key) in routes {
            self.evaluate_route(hub, key);
        }
    }

    pub(crate) fn evaluate_hub_connectors(&mut self, places: impl IntoIterator<Item = Place>) {
        for at in places {
            self.evaluate_hub_connector(at);
        }
    }
}
