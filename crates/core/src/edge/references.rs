//! What a Gateway's connectors say together: what it should announce, and what the platform stamps on it.

use super::rows::{EdgeConnector, Proxy};
use crate::data::interner::{Key, Names, Sym};
use crate::data::map::Map;
use crate::data::time::UnixMillis;
use crate::status::trigger::{connector_part, digest};

/// The connectors behind a Gateway.
#[derive(Clone, Copy)]
pub(super) struct References<'m> {
    pub(super) connectors: &'m Map<Key, EdgeConnector>,
    pub(super) proxies: &'m Map<Key, Proxy>,
}

impl<'m> References<'m> {
    pub(super) fn names(self, gateway: Key) -> &'m [Sym] {
        self.proxies.get(&gateway).map_or(&[], |proxy| proxy.connectors.as_slice())
    }

    pub(super) fn keys(self, gateway: Key) -> impl Iterator<Item = Key> + 'm {
        self.names(gateway).iter().map(move |&name| Key { ns: gateway.ns, name })
    }

    /// What a Gateway should announce; `None` where its proxy references no connector.
    pub(super) fn digest(self, names: &Names, gateway: Key) -> Option<u64> {
        let connectors = self.names(gateway);
        (!connectors.is_empty()).then(|| {
            digest(connectors.iter().map(|&name| {
                let connector = self.connectors.get(&Key { ns: gateway.ns, name });
                connector.map_or_else(|| connector_part(names.text(name), false, ""), |c| c.part)
            }))
        })
    }

    /// When the liveness of one of a Gateway's connectors last changed.
    pub(super) fn changed_at(self, gateway: Key) -> Option<UnixMillis> {
        self.keys(gateway).filter_map(|key| self.connectors.get(&key)?.changed_at.get()).max()
    }

    /// When others last wrote one of a Gateway's connectors.
    pub(super) fn others_wrote_at(self, gateway: Key) -> Option<UnixMillis> {
        self.keys(gateway).filter_map(|key| self.connectors.get(&key)?.others_wrote_at.get()).max()
    }

    /// The platform's key as its extension server writes it: it knows the last connector alone.
    pub(super) fn platform_stamp(self, gateway: Key) -> Option<String> {
        let connector = self.connectors.get(&self.keys(gateway).last()?);
        Some(match connector.filter(|connector| connector.online) {
            Some(connector) => stamp_of(connector.node_id.as_deref().unwrap_or_default()),
            None => OFFLINE.to_owned(),
        })
    }

    /// A hash of [`References::platform_stamp`].
    pub(super) fn platform_stamp_hash(self, gateway: Key) -> Option<u64> {
        let connector = self.connectors.get(&self.keys(gateway).last()?);
        Some(connector.map_or_else(|| hash_stamp(Some(OFFLINE)), |connector| connector.stamp))
    }
}

/// What the platform's extension server stamps on a Gateway whose connector is offline.
pub(crate) const OFFLINE: &str = "false/";

/// What it stamps on a Gateway whose connector is online.
pub(crate) fn stamp_of(node_id: &str) -> String {
    format!("true/{node_id}")
}

pub(crate) fn hash_stamp(value: Option<&str>) -> u64 {
    value.map_or(0, |v| xxhash_rust::xxh3::xxh3_64(v.as_bytes()) | 1)
}
