//! Takes what the watches of an edge show into its tables, and passes on what follows from it.

use std::collections::hash_map::Entry;

use crate::clusters::Place;
use crate::contract::note::{Hop, NoteKind};
use crate::contract::settings::PlatformKeyMode;
use crate::data::cluster::WatchState;
use crate::data::ids::{ClusterId, Kind, ResourceVersion, Role, Uid};
use crate::data::interner::Key;
use crate::data::map::sorted_keys;
use crate::data::objects::{Object, UPSTREAM_STATUS};
use crate::data::time::UnixMillis;
use crate::edge::Edge;
use crate::edge::pending::TouchCause;
use crate::edge::references::{OFFLINE, hash_stamp, stamp_of};
use crate::edge::rows::EdgeConnector;
use crate::machine::Machine;
use crate::status::digest::Digest;
use crate::status::liveness::{self, Liveness};
use crate::timers::Due;

/// What this instance knows of an edge Connector's hub Connector.
#[derive(Clone, Copy)]
enum AtHub {
    /// It watches no hub.
    NotWatched,
    NoConnector,
    Annotation(Digest),
}

impl Machine {
    pub(crate) fn edge_connector_seen(
        &mut self,
        id: ClusterId,
        key: Key,
        object: &Object,
        listed: bool,
    ) {
        let at_hub = self.at_hub(key);
        if let Some(mut edge) = self.edge(id)
            && edge.connector_seen(key, object, listed, at_hub)
            && let AtHub::Annotation(_) = at_hub
        {
            self.evaluate_at_other_hubs(id, key);
        }
    }

    fn at_hub(&self, key: Key) -> AtHub {
        if self.hubs.is_empty() {
            return AtHub::NotWatched;
        }
        let annotation = self.hubs.values().find_map(|hub| Some(hub.connectors.get(&key)?.digest));
        annotation.map_or(AtHub::NoConnector, AtHub::Annotation)
    }

    /// Evaluates the hub Connector that an edge Connector comes from. Where the hub is the edge
    /// itself, both are one object.
    fn evaluate_at_other_hubs(&mut self, edge: ClusterId, key: Key) {
        let hub =
            self.hubs.iter().find(|(id, hub)| **id != edge && hub.connectors.contains_key(&key));
        if let Some((&hub, _)) = hub {
            self.evaluate_hub_connector(Place { cluster: hub, key });
        }
    }

    pub(crate) fn edge_connector_gone(&mut self, id: ClusterId, key: Key) {
        if self.edge(id).is_some_and(|mut edge| edge.connector_gone(key)) {
            self.evaluate_at_other_hubs(id, key);
        }
    }

    /// The edge is no longer configured: nothing waits for its Connectors any more.
    pub(crate) fn forget_edge(&mut self, id: ClusterId) {
        let Some(mut edge) = self.edges.remove(&id) else { return };
        self.ctx.timers.clear(Due::Outage(id));
        for key in sorted_keys(&edge.connectors) {
            self.ctx.timers.clear(Due::Announce(id, key));
            if let Some(stall) = edge.connectors.remove(&key).and_then(|c| c.touch_stall) {
                self.ctx.note(NoteKind::StallEnded(*stall));
            }
            self.evaluate_at_other_hubs(id, key);
        }
    }

    pub(crate) fn proxy_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        if let Some(mut edge) = self.edge(id) {
            edge.proxy_seen(key, object, listed);
        }
    }

    pub(crate) fn proxy_gone(&mut self, id: ClusterId, key: Key) {
        if let Some(mut edge) = self.edge(id) {
            edge.set_proxy(key, None);
        }
    }

    pub(crate) fn gateway_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        if let Some(mut edge) = self.edge(id) {
            edge.gateway_seen(key, object, listed);
        }
    }

    pub(crate) fn gateway_gone(&mut self, id: ClusterId, key: Key) {
        if let Some(mut edge) = self.edge(id) {
            edge.gateway_gone(key);
        }
    }

    /// A list of the edge is complete.
    pub(crate) fn edge_listed(&mut self, id: ClusterId, kind: Kind) {
        let Some(mut edge) = self.edge(id) else { return };
        edge.listed();
        if kind == Kind::Connector {
            for key in sorted_keys(&edge.state.connectors) {
                self.evaluate_at_other_hubs(id, key);
            }
        }
    }

    pub(crate) fn edge_watch_lost(&mut self, id: ClusterId, kind: Kind) {
        if let Some(mut edge) = self.edge(id) {
            edge.watch_lost(kind);
        }
    }
}

impl Edge<'_> {
    /// Returns whether the object is newer than the known one.
    fn connector_seen(&mut self, key: Key, object: &Object, listed: bool, at_hub: AtHub) -> bool {
        let (is_new, connector) = match self.state.connectors.entry(key) {
            Entry::Occupied(entry) => (false, entry.into_mut()),
            Entry::Vacant(entry) => (true, entry.insert(EdgeConnector::default())),
        };
        connector.listed_in = self.cluster.list(Kind::Connector);
        let rv = ResourceVersion::new(&object.meta.resource_version);
        if !listed && rv.is_older_than(&connector.rv) {
            return false;
        }
        let is_same_version = rv == connector.rv && rv != ResourceVersion::Absent;
        connector.rv = rv;
        connector.uid = Uid::new(&object.meta.uid);
        connector.others_wrote_at = object.meta.others_wrote_at().into();
        let annotation = object.meta.annotations.get(UPSTREAM_STATUS);
        let likely = match at_hub {
            AtHub::NotWatched => None,
            AtHub::NoConnector => Some([connector.digest, Digest::default()]),
            AtHub::Annotation(digest) => Some([connector.digest, digest]),
        };
        if let Some(likely) = likely {
            connector.digest = annotation.map_or(Digest::ABSENT, |text| Digest::of(text, likely));
        }
        let Liveness { online, node_id } = liveness::read(annotation, object.status());
        let (name, node_ids) = (&object.meta.name, self.ctx.node_ids);
        let part_of = |online, node_id: &str| node_ids.connector_part(name, online, node_id);
        let part = part_of(online, &node_id);
        // A Connector that does not exist counts as offline.
        let part_before = if is_new { part_of(false, "") } else { connector.part };
        let is_changed = part != part_before;
        (connector.online, connector.part) = (online, part);
        if is_changed || is_new {
            let stamp = if online { stamp_of(&node_id) } else { OFFLINE.to_owned() };
            connector.stamp = hash_stamp(Some(&stamp));
            let writes = self.ctx.settings.touch.platform_key == PlatformKeyMode::Write;
            connector.node_id = (writes && online).then_some(node_id);
        }
        // Whatever was written while the watch was lost may have changed and changed back.
        let is_unseen = listed && self.state.blind_since.is_some() && !is_same_version && !is_new;
        if is_changed || is_unseen {
            connector.changed_at = self.ctx.now.into();
            connector.is_cached = false;
        }
        let is_hop = !matches!(at_hub, AtHub::Annotation(_)) && self.state.ready;
        if is_changed && is_hop && self.cluster.is_hub_namespace(key.ns) {
            self.ctx.note_hop(&self.cluster.name, key, Hop::Arrived, online, None);
        }
        let is_ordered = !listed && self.state.ready;
        if is_changed {
            self.connector_changed(key, TouchCause::LivenessChanged, is_ordered);
        } else if is_unseen {
            self.connector_changed(key, TouchCause::WrittenWhileWatchLost, is_ordered);
        }
        true
    }

    /// Returns whether there was such a Connector.
    fn connector_gone(&mut self, key: Key) -> bool {
        let Some(connector) = self.state.connectors.remove(&key) else { return false };
        self.ctx.timers.clear(Due::Announce(self.id, key));
        if let Some(stall) = connector.touch_stall {
            self.ctx.note(NoteKind::StallEnded(*stall));
        }
        if connector.online {
            self.connector_changed(key, TouchCause::LivenessChanged, self.state.ready);
        }
        true
    }

    /// Every Gateway that references the connector has to announce its change. `is_ordered`: the watch
    /// showed the change as it came.
    fn connector_changed(&mut self, key: Key, cause: TouchCause, is_ordered: bool) {
        let gateways: Vec<_> = self.state.gateways_of(key).collect();
        for gateway in gateways {
            self.state.update_class(&self.ctx.names, gateway);
            self.gateway_changed(gateway, cause, Some(key), is_ordered);
        }
    }

    /// A list is complete.
    fn listed(&mut self) {
        let kinds = Role::Edge.liveness_kinds();
        self.state.ready = kinds.iter().all(|kind| self.cluster.is_live(*kind));
        if !self.state.ready {
            return;
        }
        if let Some(since) = self.state.blind_since.take() {
            if self.state.unconfirmed_outage_since.is_some() {
                self.state.next_outage_since.get_or_insert(since);
            } else {
                self.outage_ended(since);
            }
        }
        for target in self.state.targets() {
            self.evaluate_target(target);
        }
    }

    /// What was announced around the outage is confirmed once more, later.
    pub(super) fn outage_ended(&mut self, since: UnixMillis) {
        self.state.unconfirmed_outage_since = Some(since);
        let at = self.ctx.now.plus(self.ctx.settings.touch.confirm_after_outage_ms);
        self.ctx.timers.no_later(Due::Outage(self.id), at);
    }

    /// A watch was lost: what it showed is unknown until it is listed again.
    fn watch_lost(&mut self, kind: Kind) {
        debug_assert_eq!(self.cluster.watch(kind), WatchState::Lost);
        let concerns_edge = match kind {
            Kind::Connector | Kind::HttpProxy | Kind::Gateway => true,
            // Elsewhere they only say what a person agreed to.
            Kind::Namespace => self.cluster.is_combined(),
            Kind::HttpRoute => false,
        };
        if concerns_edge {
            self.state.ready = false;
            // Where nothing was ever listed, nothing can have changed unseen.
            if self.cluster.live_since(kind) > UnixMillis(0) {
                self.state.blind_since.get_or_insert(self.ctx.now);
            }
        }
    }

    pub(super) fn wrong_kind(&mut self, object: &Object, expected: Kind) {
        let detail = format!("a {:?} was handled as a {expected:?}", object.kind());
        self.ctx.impossible(&self.cluster.name, detail);
    }
}
