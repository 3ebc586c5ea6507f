//! One edge as the search for outages tracks it: its connectors, and what Envoy was programmed with.

use std::collections::BTreeSet;

use super::{Answers, OutageKind};
use crate::core::data::ids::Kind;
use crate::core::data::interner::{Key, Names, Sym};
use crate::core::data::map::Map;
use crate::core::data::time::UnixMillis;
use crate::core::data::used_names::{HoldsNames, UsedNames};
use crate::core::status::liveness::{self, Liveness};
use crate::core::status::trigger::{NodeIds, Trigger, connector_part, digest};

/// A Connector's liveness, with a hash of the documents it was read from.
#[derive(Clone, Copy, Default)]
pub(super) struct ReportedState {
    pub(super) document_hash: u64,
    pub(super) route: RouteState,
    /// Its part of the digest in a Gateway's trigger.
    part: u64,
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
    /// Kinds whose watch is lost.
    pub(super) lost: BTreeSet<Kind>,
    /// The sum of its gateways' answers.
    pub(super) answers: Answers,
}

#[derive(Default)]
pub(super) struct TrackedGateway {
    pub(super) class: Box<str>,
    pub(super) trigger_hash: u64,
    /// What throughline's trigger announces; `None` where there is none.
    pub(super) announced: Option<u64>,
    pub(super) platform_key_hash: u64,
    /// By connector; `None` where it was not seen.
    pub(super) programmed: Vec<(Sym, Option<RouteState>)>,
    pub(super) answers: Answers,
    /// The outages that are not over: connector, kind, and since when.
    pub(super) open: Vec<(Sym, OutageKind, UnixMillis)>,
}

/// 0 stands for an absent text.
pub(super) fn hash(text: Option<&str>) -> u64 {
    text.map_or(0, |t| xxhash_rust::xxh3::xxh3_64(t.as_bytes()) | 1)
}

impl ReportedState {
    /// Reads a Connector; reuses `before` if its documents are the same.
    pub(super) fn read(
        node_ids: NodeIds,
        before: Option<Self>,
        name: &str,
        annotation: Option<&str>,
        live: Option<&str>,
    ) -> Self {
        let document_hash = hash(annotation).wrapping_mul(31).wrapping_add(hash(live));
        match before {
            Some(before) if before.document_hash == document_hash => before,
            _ => {
                let Liveness { online, node_id } = liveness::read(annotation, live);
                let node_hash = if online { hash(Some(&node_id)) } else { 0 };
                let part = node_ids.connector_part(name, online, &node_id);
                Self { document_hash, route: RouteState { online, node_hash }, part }
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
        gateway.programmed = names.map(|&name| (name, Some(route(name)))).collect();
    }

    /// A gateway is seen for the first time. Its trigger says what was announced last; without one, it
    /// counts as translated now.
    pub(super) fn translate_found(&mut self, names: &Names, key: Key) {
        self.translate(key);
        let announced = self.gateways.get(&key).and_then(|gateway| gateway.announced);
        let Some(announced) = announced.filter(|_| !self.merged && self.is_ready()) else { return };
        if self.digest(names, key).is_none_or(|current| current == announced) {
            return;
        }
        let Some(gateway) = self.gateways.get_mut(&key) else { return };
        if let [(name, programmed)] = &mut gateway.programmed[..] {
            // Of a single connector the digest says which state it was.
            let offline = digest([connector_part(names.text(*name), false, "")]);
            let online = announced != offline;
            *programmed = Some(RouteState { online, node_hash: u64::from(online) });
        } else {
            gateway.programmed.iter_mut().for_each(|(_, programmed)| *programmed = None);
        }
    }

    /// A connector changed. Where the gateway's trigger announces its new state already, the trigger's
    /// event came first.
    pub(super) fn translate_announced(&mut self, names: &Names, key: Key) {
        let announced = self.gateways.get(&key).and_then(|gateway| gateway.announced);
        if announced.is_some() && !self.merged && self.digest(names, key) == announced {
            self.translate(key);
        }
    }

    /// What the gateway's trigger should announce; `None` where its proxy references no connector.
    fn digest(&self, names: &Names, key: Key) -> Option<u64> {
        let references = self.proxies.get(&key).filter(|references| !references.is_empty())?;
        let part = |&name: &Sym| match self.connectors.get(&Key { ns: key.ns, name }) {
            Some(connector) => connector.part,
            None => connector_part(names.text(name), false, ""),
        };
        Some(digest(references.iter().map(part)))
    }

    /// Takes over what a gateway answers now. True if that changes the edge's sum.
    pub(super) fn set_answers(&mut self, key: Key, answers: Answers) -> bool {
        let Some(gateway) = self.gateways.get_mut(&key) else { return false };
        let before = std::mem::replace(&mut gateway.answers, answers);
        self.answers += answers;
        self.answers -= before;
        before != answers
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

/// The digest in throughline's own trigger; `None` for another value.
pub(super) fn announced(trigger: Option<&str>) -> Option<u64> {
    Some(Trigger::parse(trigger?)?.digest)
}

impl HoldsNames for TrackedEdge {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            merged: _,
            listed: _,
            connectors,
            proxies,
            referrers,
            gateways,
            lost: _,
            answers: _,
        } = self;
        connectors.keys().for_each(|key| key.mark(used));
        for (key, names) in proxies.iter().chain(referrers) {
            key.mark(used);
            names.mark(used);
        }
        for (key, gateway) in gateways {
            key.mark(used);
            gateway.programmed.iter().for_each(|(name, _)| name.mark(used));
            gateway.open.iter().for_each(|(name, ..)| name.mark(used));
        }
    }
}
