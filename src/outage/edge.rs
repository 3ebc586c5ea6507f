//! One edge as the search for outages tracks it: its connectors, and what Envoy was programmed with.

use std::collections::BTreeSet;

use super::OutageKind;
use crate::core::data::ids::Kind;
use crate::core::data::interner::{Key, Sym};
use crate::core::data::map::Map;
use crate::core::data::time::UnixMillis;
use crate::core::status::liveness::{self, Liveness};

/// A Connector's liveness, with a hash of the documents it was read from.
#[derive(Clone, Copy, Default)]
pub(super) struct ReportedState {
    pub(super) document_hash: u64,
    pub(super) route: RouteState,
}

/// What a route depends on: a liveness with its node id hashed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RouteState {
    pub(super) online: bool,
    pub(super) node_hash: u64,
}

#[derive(Default)]
pub(super) struct TrackedEdge {
    /// All gateways of a class share one configuration (`mergeGateways`).
    pub(super) merged: bool,
    pub(super) listed: BTreeSet<Kind>,
    pub(super) connectors: Map<Key, ReportedState>,
    pub(super) proxies: Map<Key, Vec<Sym>>,
    /// The proxies that reference a connector.
    pub(super) referrers: Map<Key, Vec<Sym>>,
    pub(super) gateways: Map<Key, TrackedGateway>,
}

#[derive(Default)]
pub(super) struct TrackedGateway {
    pub(super) class: Box<str>,
    pub(super) trigger_hash: u64,
    pub(super) platform_key_hash: u64,
    /// By connector.
    pub(super) programmed: Vec<(Sym, RouteState)>,
    /// The outages that are not over: connector, kind, and since when.
    pub(super) open: Vec<(Sym, OutageKind, UnixMillis)>,
}

/// 0 stands for an absent text.
pub(super) fn hash(text: Option<&str>) -> u64 {
    text.map_or(0, |t| xxhash_rust::xxh3::xxh3_64(t.as_bytes()) | 1)
}

impl ReportedState {
    /// Reads a Connector; reuses `before` if its documents are the same.
    pub(super) fn read(before: Option<Self>, annotation: Option<&str>, live: Option<&str>) -> Self {
        let document_hash = hash(annotation).wrapping_mul(31).wrapping_add(hash(live));
        match before {
            Some(before) if before.document_hash == document_hash => before,
            _ => {
                let Liveness { online, node_id } = liveness::read(annotation, live);
                let node_hash = if online { hash(Some(&node_id)) } else { 0 };
                Self { document_hash, route: RouteState { online, node_hash } }
            }
        }
    }
}

impl TrackedEdge {
    /// Connectors, proxies and gateways have all been listed.
    pub(super) fn is_ready(&self) -> bool {
        self.listed.len() == 3
    }

    /// Envoy Gateway translates a gateway: its routes take the current state of their connectors.
    pub(super) fn translate(&mut self, key: Key) {
        if !self.is_ready() {
            return;
        }
        let Some(gateway) = self.gateways.get_mut(&key) else { return };
        let connectors = &self.connectors;
        let route = |name| {
            connectors.get(&Key { ns: key.ns, name }).map_or(RouteState::default(), |c| c.route)
        };
        let names = self.proxies.get(&key).into_iter().flatten();
        gateway.programmed = names.map(|&name| (name, route(name))).collect();
    }

    pub(super) fn set_proxy(&mut self, key: Key, connectors: Vec<Sym>) {
        for &name in self.proxies.get(&key).into_iter().flatten() {
            if let Some(proxies) = self.referrers.get_mut(&Key { ns: key.ns, name }) {
                proxies.retain(|proxy| *proxy != key.name);
            }
        }
        for &name in &connectors {
            self.referrers.entry(Key { ns: key.ns, name }).or_default().push(key.name);
        }
        self.proxies.insert(key, connectors);
    }
}
