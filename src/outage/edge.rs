//! One edge as the search for outages tracks it: its connectors, and what Envoy was programmed with.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answers, OutageKind};
use crate::core::data::ids::Kind;
use crate::core::data::name::NamespacedName;
use crate::core::data::time::UnixMillis;
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
    pub(super) connectors: BTreeMap<NamespacedName, ReportedState>,
    /// The connectors that a proxy references.
    pub(super) proxies: BTreeMap<NamespacedName, Vec<NamespacedName>>,
    /// The proxies that reference a connector; never an empty list.
    pub(super) referrers: BTreeMap<NamespacedName, Vec<NamespacedName>>,
    /// A gateway has the name of its proxy.
    pub(super) gateways: BTreeMap<NamespacedName, TrackedGateway>,
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
    pub(super) programmed: Vec<(NamespacedName, Option<RouteState>)>,
    pub(super) answers: Answers,
    /// The outages that are not over: connector, kind, and since when.
    pub(super) open: Vec<(NamespacedName, OutageKind, UnixMillis)>,
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

    /// Whether it has the connector or a proxy that references it.
    pub(super) fn knows(&self, connector: &NamespacedName) -> bool {
        self.connectors.contains_key(connector) || self.referrers.contains_key(connector)
    }

    pub(super) fn gateway_names(&self) -> Vec<NamespacedName> {
        self.gateways.keys().cloned().collect()
    }

    /// Envoy Gateway translates a gateway: its routes take the current state of their connectors.
    pub(super) fn translate(&mut self, key: &NamespacedName) {
        if !self.is_ready() {
            return;
        }
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        let route = |connector| {
            self.connectors.get(connector).map_or(RouteState::default(), |state| state.route)
        };
        let connectors = self.proxies.get(key).into_iter().flatten();
        gateway.programmed = connectors.map(|c| (c.clone(), Some(route(c)))).collect();
    }

    /// A gateway is seen for the first time. Its trigger says what was announced last; without one, it
    /// counts as translated now.
    pub(super) fn translate_found(&mut self, key: &NamespacedName) {
        self.translate(key);
        let announced = self.gateways.get(key).and_then(|gateway| gateway.announced);
        let Some(announced) = announced.filter(|_| !self.merged && self.is_ready()) else { return };
        if self.digest(key).is_none_or(|current| current == announced) {
            return;
        }
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        if let [(connector, programmed)] = &mut gateway.programmed[..] {
            // Of a single connector the digest says which state it was.
            let offline = digest([connector_part(connector.name(), false, "")]);
            let online = announced != offline;
            *programmed = Some(RouteState { online, node_hash: u64::from(online) });
        } else {
            gateway.programmed.iter_mut().for_each(|(_, programmed)| *programmed = None);
        }
    }

    /// A connector changed. Where the gateway's trigger announces its new state already, the trigger's
    /// event came first.
    pub(super) fn translate_announced(&mut self, key: &NamespacedName) {
        let announced = self.gateways.get(key).and_then(|gateway| gateway.announced);
        if announced.is_some() && !self.merged && self.digest(key) == announced {
            self.translate(key);
        }
    }

    /// What the gateway's trigger should announce; `None` where its proxy references no connector.
    fn digest(&self, key: &NamespacedName) -> Option<u64> {
        let references = self.proxies.get(key).filter(|references| !references.is_empty())?;
        let part = |connector: &NamespacedName| match self.connectors.get(connector) {
            Some(state) => state.part,
            None => connector_part(connector.name(), false, ""),
        };
        Some(digest(references.iter().map(part)))
    }

    /// Takes over what a gateway answers now. True if that changes the edge's sum.
    pub(super) fn set_answers(&mut self, key: &NamespacedName, answers: Answers) -> bool {
        let Some(gateway) = self.gateways.get_mut(key) else { return false };
        let before = std::mem::replace(&mut gateway.answers, answers);
        self.answers += answers;
        self.answers -= before;
        before != answers
    }

    pub(super) fn set_proxy(&mut self, proxy: &NamespacedName, connectors: Vec<NamespacedName>) {
        self.remove_proxy(proxy);
        for connector in &connectors {
            self.referrers.entry(connector.clone()).or_default().push(proxy.clone());
        }
        self.proxies.insert(proxy.clone(), connectors);
    }

    pub(super) fn remove_proxy(&mut self, proxy: &NamespacedName) {
        for connector in self.proxies.remove(proxy).into_iter().flatten() {
            let Some(referrers) = self.referrers.get_mut(&connector) else { continue };
            referrers.retain(|referrer| referrer != proxy);
            if referrers.is_empty() {
                self.referrers.remove(&connector);
            }
        }
    }
}

/// The digest in throughline's own trigger; `None` for another value.
pub(super) fn announced(trigger: Option<&str>) -> Option<u64> {
    Some(Trigger::parse(trigger?)?.digest)
}
