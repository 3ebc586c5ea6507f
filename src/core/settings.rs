//! Every setting that changes a decision. They travel in the event log's header, so that a log
//! replays to the same actions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::ClusterName;

/// Settings of the machine. Durations are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Settings {
    /// The mirror and the nudge.
    pub mirror: MirrorSettings,
    /// The touch.
    pub touch: TouchSettings,
    /// Orphaned routes.
    pub orphans: OrphanSettings,
    /// When a hop that does not come is a stall.
    pub stall: StallSettings,
    /// How failed writes are tried again.
    pub retry: RetrySettings,
}

/// The mirror hub-side: annotation, nudge, contention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MirrorSettings {
    /// Mirror at all.
    pub enabled: bool,
    /// Annotations on one object may total this many bytes (the API server's limit).
    pub annotation_limit_bytes: usize,
    /// How long a replica may outlive its upstream Connector before its annotation is removed:
    /// the platform's replicator usually deletes the replica within this time.
    pub absent_grace_ms: u64,
    /// Spoiled this often, each time within `contention_quiet_ms`, is a contention.
    pub contention_count: u32,
    /// The first pause before a spoiled value is written again once it is a contention; doubles.
    pub contention_backoff_ms: u64,
    /// The longest such pause.
    pub contention_backoff_max_ms: u64,
    /// Nobody spoiled it for so long: the contention is over.
    pub contention_quiet_ms: u64,
    /// Nudge at all.
    pub nudge: bool,
    /// The annotation whose change makes the carrier try again.
    pub nudge_key: String,
    /// The first nudge comes so long after a mirrored value did not arrive; the pause doubles.
    pub nudge_after_ms: u64,
    /// The longest pause between nudges.
    pub nudge_max_ms: u64,
}

/// How the platform's own key on a Gateway is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlatformKeyMode {
    /// Somebody else's write of it is a sign that the extension server's cache has the change.
    Observe,
    /// Written together with the trigger, for edges whose extension server does not; no sign.
    Write,
    /// Neither looked at nor written.
    Off,
}

/// What one touch covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TouchScope {
    /// Every gateway concerned is touched. Always right.
    Gateway,
    /// One gateway of the GatewayClass is touched for all; for `mergeGateways: true` only.
    GatewayClass,
}

/// The touch edge-side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TouchSettings {
    /// Touch at all.
    pub enabled: bool,
    /// The trigger annotation; only `gateway.envoyproxy.io/…` reaches Envoy Gateway's hook.
    pub key: String,
    /// The platform's own key.
    pub platform_key: PlatformKeyMode,
    /// So long a change settles in the edge's caches before the touch.
    pub window_ms: u64,
    /// At most one touch an object in this time.
    pub min_interval_ms: u64,
    /// Confirmations, counted from the touch, in rising order.
    pub confirm_after_ms: Vec<u64>,
    /// One more confirmation so long after an edge's lost watch is back.
    pub confirm_after_outage_ms: u64,
    /// What one touch covers.
    pub scope: TouchScope,
    /// The scope of single edges, where it differs.
    pub edge_scopes: BTreeMap<ClusterName, TouchScope>,
}

/// What becomes of orphaned routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrphanMode {
    /// Not looked for.
    Off,
    /// Looked for and told.
    Report,
    /// Deleted.
    Delete,
}

/// Orphaned routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OrphanSettings {
    /// What becomes of them.
    pub mode: OrphanMode,
    /// A younger route is never an orphan.
    pub min_age_ms: u64,
    /// So long a route must have been an orphan without a break.
    pub settle_ms: u64,
    /// Upstream's Gateways must have been heard of, if only by a bookmark, within this time.
    pub fresh_ms: u64,
    /// So many deletes may be decided within a minute.
    pub max_per_minute: u32,
    /// When a larger share of an upstream cluster's routes are orphans, none of them is deleted.
    pub max_share: Share,
    /// The share counts when the cluster has more routes than this.
    pub share_from: u32,
}

/// A share of a whole, from 0 to 1, kept in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u16);

impl Share {
    /// So many thousandths; more than 1000 are the whole.
    pub const fn per_mille(thousandths: u16) -> Self {
        Self(if thousandths > 1_000 { 1_000 } else { thousandths })
    }

    /// Whether `part` of `whole` is more than this share.
    pub fn is_exceeded(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 1_000 > u128::from(whole) * u128::from(self.0)
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 10.0)
    }
}

impl Serialize for Share {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1_000.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if !(0.0..=1.0).contains(&share) {
            let error = format!("invalid value: {share}, expected a number from 0 to 1");
            return Err(serde::de::Error::custom(error));
        }
        // In range, and so is what it is rounded to.
        Ok(Self((share * 1_000.0).round() as u16))
    }
}

/// Deadlines of the hops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StallSettings {
    /// Upstream → mirrored.
    pub mirrored_ms: u64,
    /// Mirrored → arrived.
    pub arrived_ms: u64,
    /// Arrived → touched.
    pub touched_ms: u64,
}

/// How failed writes are tried again; the executor's own quick retries come before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetrySettings {
    /// The first pause; doubles.
    pub first_ms: u64,
    /// The longest pause.
    pub max_ms: u64,
    /// The pause after a refusal.
    pub refused_ms: u64,
    /// An action whose outcome did not come in this time counts as lost.
    pub outcome_timeout_ms: u64,
}

impl Default for MirrorSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            annotation_limit_bytes: 256 * 1024,
            absent_grace_ms: 5_000,
            contention_count: 3,
            contention_backoff_ms: 1_000,
            contention_backoff_max_ms: 60_000,
            contention_quiet_ms: 120_000,
            nudge: true,
            nudge_key: "networking.datumapis.com/upstream-status-nudge".into(),
            nudge_after_ms: 10_000,
            nudge_max_ms: 900_000,
        }
    }
}

impl Default for TouchSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            key: "gateway.envoyproxy.io/connector-liveness".into(),
            platform_key: PlatformKeyMode::Observe,
            window_ms: 100,
            min_interval_ms: 1_000,
            confirm_after_ms: vec![5_000, 60_000],
            confirm_after_outage_ms: 180_000,
            scope: TouchScope::Gateway,
            edge_scopes: BTreeMap::new(),
        }
    }
}

impl Default for OrphanSettings {
    fn default() -> Self {
        Self {
            mode: OrphanMode::Report,
            min_age_ms: 300_000,
            settle_ms: 30_000,
            fresh_ms: 180_000,
            max_per_minute: 20,
            max_share: Share::per_mille(300),
            share_from: 10,
        }
    }
}

impl Default for StallSettings {
    fn default() -> Self {
        Self { mirrored_ms: 5_000, arrived_ms: 10_000, touched_ms: 5_000 }
    }
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { first_ms: 1_000, max_ms: 60_000, refused_ms: 300_000, outcome_timeout_ms: 60_000 }
    }
}

impl MirrorSettings {
    /// A contention is told when it becomes one, and then ever more rarely while it goes on.
    pub(crate) fn contention_is_told(&self, spoils: u32) -> bool {
        spoils == self.contention_count
            || (spoils > self.contention_count && spoils.is_power_of_two())
    }
}

impl TouchSettings {
    /// The scope at one edge.
    pub fn scope_of(&self, edge: &ClusterName) -> TouchScope {
        self.edge_scopes.get(edge).copied().unwrap_or(self.scope)
    }
}
