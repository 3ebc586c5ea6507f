//! What documents say of a connector, and what an edge's gateways were programmed with.

use std::collections::BTreeSet;

use super::OutageKind;
use crate::core::ids::{Key, Kind, Map, Sym};
use crate::core::liveness::{self, Liveness};
use crate::core::time::UnixMillis;

/// What a document says of a connector, and the document's fingerprint.
#[derive(Clone, Copy, Default)]
pub(super) struct Said {
    pub(super) document: u64,
    pub(super) shown: Shown,
}

/// A liveness, without its text.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) online: bool,
    pub(super) node: u64,
}

#[derive(Default)]
pub(super) struct EdgeView {
    pub(super) merged: bool,
    pub(super) listed: BTreeSet<Kind>,
    pub(super) connectors: Map<Key, Said>,
    pub(super) proxies: Map<Key, Vec<Sym>>,
    pub(super) referrers: Map<Key, Vec<Sym>>,
    pub(super) gateways: Map<Key, GatewayView>,
}

#[derive(Default)]
pub(super) struct GatewayView {
    pub(super) class: Box<str>,
    pub(super) trigger: u64,
    pub(super) platform: u64,
    pub(super) programmed: Vec<(Sym, Shown)>,
    pub(super) open: Vec<(Sym, OutageKind, UnixMillis)>,
}

pub(super) fn hash(text: Option<&str>) -> u64 {
    text.map_or(0, |t| xxhash_rust::xxh3::xxh3_64(t.as_bytes()) | 1)
}

impl Said {
    /// What these documents say; `before` when they are the same ones.
    pub(super) fn read(before: Option<Said>, annotation: Option<&str>, live: Option<&str>) -> Said {
        let document = hash(annotation).wrapping_mul(31).wrapping_add(hash(live));
        match before {
            Some(before) if before.document == document => before,
            _ => {
                let Liveness { online, node_id } = liveness::read(annotation, live);
                let node = if online { hash(Some(&node_id)) } else { 0 };
                Said { document, shown: Shown { online, node } }
            }
        }
    }
}

impl EdgeView {
    pub(super) fn is_ready(&self) -> bool {
        self.listed.len() == 3
    }

    pub(super) fn is_translated(&mut self, key: Key) {
        if !self.is_ready() {
            return;
        }
        let Some(gateway) = self.gateways.get_mut(&key) else { return };
        let connectors = &self.connectors;
        let shown =
            |name| connectors.get(&Key { ns: key.ns, name }).map_or(Shown::default(), |c| c.shown);
        let names = self.proxies.get(&key).into_iter().flatten();
        gateway.programmed = names.map(|&name| (name, shown(name))).collect();
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
