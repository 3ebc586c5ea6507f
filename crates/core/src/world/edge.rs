//! The objects of an edge: Connectors, the HTTPProxies that reference them, and the Gateways of
//! those proxies. A Gateway and its HTTPProxy have the same namespace and name.

use std::num::NonZeroU64;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::contract::settings::TouchSettings;
use crate::data::objects::{Meta, PLATFORM_KEY};
use crate::data::time::UnixMillis;
use crate::status::digest::Digest;
use crate::status::liveness::Liveness;
use crate::status::trigger::Trigger;

#[derive(Debug, Default)]
pub(crate) struct EdgeConnector {
    /// The digest of its status annotation, kept without a hub, too: one may join later.
    pub(crate) annotation: Option<Digest>,
    /// A stamp has shown that the extension server's cache has its current liveness.
    pub(crate) is_cached: bool,
    /// Its part of a Gateway's digest: name, online, node id.
    pub(crate) part: u64,
    /// The stamp that the extension server would write for it.
    pub(crate) stamp: Stamp,
    /// Kept only if throughline writes the platform's key, and while the connector is online.
    pub(crate) node_id: Option<Box<str>>,
    /// When its liveness changed, or may have changed.
    pub(crate) changed_at: Option<UnixMillis>,
    /// When another writer of its liveness last wrote it, by the API server's clock.
    pub(crate) others_wrote_at: Option<UnixMillis>,
}

#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    pub(crate) class: Arc<str>,
    pub(crate) trigger: Option<Trigger>,
    pub(crate) annotations: Annotations,
    /// The platform's stamp.
    pub(crate) stamp: Option<Stamp>,
    /// An operator has paused it.
    pub(crate) is_paused: bool,
    /// One of its `status.listeners` has `Programmed: True`. Any other Gateway may be missing from
    /// Envoy Gateway's representation, and touching it then has no effect.
    pub(crate) is_programmed: bool,
    /// How often the API server refused to write it while it carried the trigger of its class.
    pub(crate) refusals: u32,
    /// The digest of its connectors; `None` while it references none.
    pub(crate) desired: Option<u64>,
    /// When throughline last wrote it, by the API server's clock. From `managedFields`.
    pub(crate) written_at: Option<UnixMillis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Annotations {
    /// The object has none at all.
    Empty,
    Some,
    /// The trigger's key has a value that throughline did not write.
    ForeignTrigger,
}

/// The hash of a platform stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(NonZeroU64);

impl EdgeConnector {
    pub(super) fn new(liveness: Liveness, part: u64, keeps_node_id: bool) -> Self {
        let stamp = Stamp::of_liveness(&liveness);
        let node_id = Some(liveness.node_id).filter(|_| keeps_node_id && stamp.is_online());
        Self { part, stamp, node_id, ..Self::default() }
    }
}

impl Gateway {
    pub(super) fn new(
        meta: &Meta,
        class: &str,
        is_programmed: bool,
        settings: &TouchSettings,
    ) -> Self {
        let value = meta.annotations.get(&settings.key);
        let trigger = value.and_then(Trigger::parse);
        let annotations = match value {
            _ if meta.annotations.is_empty() => Annotations::Empty,
            Some(_) if trigger.is_none() => Annotations::ForeignTrigger,
            _ => Annotations::Some,
        };
        Self {
            class: class.into(),
            trigger,
            annotations,
            stamp: meta.annotations.get(PLATFORM_KEY).map(Stamp::of),
            is_paused: meta.is_paused(),
            is_programmed,
            refusals: 0,
            desired: None,
            written_at: meta.we_wrote_at(),
        }
    }

    pub(crate) fn has_foreign_trigger(&self) -> bool {
        self.annotations == Annotations::ForeignTrigger
    }

    pub(super) fn has_other_trigger(&self, before: &Self) -> bool {
        self.trigger != before.trigger || self.has_foreign_trigger() != before.has_foreign_trigger()
    }
}

impl Stamp {
    /// The extension server's stamp for a connector that is offline.
    pub(super) const OFFLINE: &str = "false/";

    pub(crate) fn text(node_id: &str) -> String {
        format!("true/{node_id}")
    }

    pub(crate) fn of(text: &str) -> Self {
        Self(NonZeroU64::MIN | xxh3_64(text.as_bytes()))
    }

    pub(crate) fn of_liveness(liveness: &Liveness) -> Self {
        match liveness.online {
            true => Self::of(&Self::text(&liveness.node_id)),
            false => Self::default(),
        }
    }

    /// The stamp of a connector that is online on an unknown node.
    pub(crate) fn another_node() -> Self {
        // No stamp has this text.
        Self::of("true")
    }

    pub(crate) fn is_online(self) -> bool {
        self != Self::default()
    }

    pub(crate) fn hash(self) -> u64 {
        self.0.get()
    }
}

/// A Connector that does not exist counts as offline.
impl Default for Stamp {
    fn default() -> Self {
        Self::of(Self::OFFLINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::table::Row;

    #[test]
    fn rows_that_an_edge_has_100_000_times_stay_small() {
        assert!(size_of::<Row<EdgeConnector>>() <= 136, "{}", size_of::<Row<EdgeConnector>>());
        assert!(size_of::<Row<Gateway>>() <= 128, "{}", size_of::<Row<Gateway>>());
    }
}
