//! Every setting that can change a decision. An event log has them in its header, so that it
//! replays to the same actions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::data::ids::{ClusterName, Kind, Role};
use crate::data::shard::Shard;

/// A shorter delay would let one Connector exceed the rate limit of its mirrors.
pub const DEFER_MS_MIN: u64 = 200;

/// The machine's settings. Durations are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Settings {
    pub mirror: MirrorSettings,
    pub touch: TouchSettings,
    pub orphans: OrphanSettings,
    #[serde(rename = "stall")]
    pub late: LateSettings,
    pub retry: RetrySettings,
    /// The part of the fleet that this instance keeps.
    #[serde(skip_serializing_if = "Shard::is_whole")]
    pub shard: Shard,
}

/// Writes to the hub: the status annotation and the nudge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MirrorSettings {
    pub enabled: bool,
    /// The limit for all annotations of one object together; the API server's is 256 KiB.
    pub annotation_limit_bytes: usize,
    /// How long a difference that does not affect routing is deferred, counted from its start or
    /// from the last mirror, whichever is later. 0 defers nothing; 1 to [`DEFER_MS_MIN`] are
    /// equivalent.
    pub defer_ms: u64,
    /// The rate of deferred mirrors at the hub, with a burst of twice that. 0: no limit.
    pub deferrable_per_second: u32,
    /// How long a hub Connector may outlive its upstream Connector before its annotation is
    /// removed. The platform's replicator usually deletes the hub Connector within this time.
    pub absent_grace_ms: u64,
    /// The largest share of annotations, of one upstream or of all, that may be removed within ten
    /// minutes because upstream has no status. Above it, none is removed.
    pub max_share: Fraction,
    /// `max_share` applies to at least this many annotations. With fewer, none is removed if all
    /// would be, two or more, and no watch saw any of the losses.
    pub share_from: u32,
    /// How many removals may be decided in any 60 seconds, over all upstreams: a burst of half of
    /// them, then the other half spread over each minute. A removal that changed nothing does not
    /// count.
    pub max_removals_per_minute: u32,
    /// How long the statuses of a restored upstream are not mirrored, unless their Connector
    /// changes.
    pub restored_settle_ms: u64,
    /// This many overwrites, each within `contention_quiet_ms` of the last, count as contention.
    pub contention_count: u32,
    /// During a contention, the pause before an overwritten value is first written again; it
    /// doubles each time.
    pub contention_backoff_ms: u64,
    /// The longest such pause.
    pub contention_backoff_max_ms: u64,
    /// The contention ends after this long without an overwrite.
    pub contention_quiet_ms: u64,
    pub nudge: bool,
    /// The annotation whose change makes the carrier try again.
    pub nudge_key: String,
    /// How long a mirrored value may be missing at an edge before the first nudge; the pause
    /// doubles each time.
    pub nudge_after_ms: u64,
    /// The longest pause between nudges.
    pub nudge_max_ms: u64,
}

/// How throughline uses the platform stamp, the platform's own key on a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlatformKeyMode {
    /// A change by another writer means that the extension server's cache has the connector's
    /// change, so throughline touches the Gateway once more.
    Observe,
    /// Write it together with the trigger, for edges whose extension server does not.
    Write,
    /// Neither observe nor write it.
    Off,
}

/// Which Gateways a change of liveness touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TouchScope {
    /// Every Gateway that routes to the connector. Works at every edge.
    Gateway,
    /// One Gateway of the GatewayClass, which covers all. Only for `mergeGateways: true`.
    GatewayClass,
}

/// Writes to the edges: the trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TouchSettings {
    pub enabled: bool,
    /// The trigger annotation. Only a key that starts with `gateway.envoyproxy.io/` reaches Envoy
    /// Gateway's extension hook.
    pub key: String,
    pub platform_key: PlatformKeyMode,
    /// The delay before a touch, so that the edge's caches have the change.
    pub window_ms: u64,
    /// The burst of announcements on one object. Confirmations do not count.
    pub burst: u32,
    /// The interval between announcements after the burst. Also the shortest time between a touch
    /// of an object and its confirmation.
    pub min_interval_ms: u64,
    /// How many touches a second an edge gets, with a burst of [`BURST_SECONDS`] times that; 0
    /// lifts the limit.
    ///
    /// [`BURST_SECONDS`]: TouchSettings::BURST_SECONDS
    pub max_per_second: u32,
    /// When to confirm, counted from the touch, in ascending order.
    pub confirm_after_ms: Vec<u64>,
    /// When to confirm once more after an edge's lost watch is live again.
    pub confirm_after_outage_ms: u64,
    pub scope: TouchScope,
    /// Exceptions to `scope`, by edge.
    pub edge_scopes: BTreeMap<ClusterName, TouchScope>,
}

/// What to do with orphaned routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrphanMode {
    /// Do not look for them.
    Off,
    /// Find and report them, but delete none.
    Report,
    /// Delete them.
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OrphanSettings {
    pub mode: OrphanMode,
    /// The age below which a route is never an orphan.
    pub min_age_ms: u64,
    /// How long a route must be an orphan, without interruption, before it is deleted.
    pub settle_ms: u64,
    /// How old the last event of the upstream Gateway watch may be; a bookmark counts.
    pub fresh_ms: u64,
    /// How many deletes may be decided in any 60 seconds, spread like removals.
    pub max_per_minute: u32,
    /// While a larger share of an upstream cluster's routes are orphans, none of them is deleted.
    pub max_share: Fraction,
    /// `max_share` applies to clusters with at least this many routes.
    pub share_from: u32,
    /// Whether to delete the routes of deleted projects as well. Their Gateways cannot be looked up
    /// any more; the deletion of the project is the proof instead.
    pub deleted_projects: bool,
}

/// A fraction from 0 to 1, stored in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction(u16);

impl Fraction {
    /// Values above 1000 count as 1000.
    pub const fn per_mille(thousandths: u16) -> Self {
        Self(if thousandths > 1_000 { 1_000 } else { thousandths })
    }

    pub(crate) const fn thousandths(self) -> u16 {
        self.0
    }
}

impl std::fmt::Display for Fraction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 10.0)
    }
}

impl Serialize for Fraction {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1_000.0)
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if !(0.0..=1.0).contains(&share) {
            let error = format!("invalid value: {share}, expected a number from 0 to 1");
            return Err(serde::de::Error::custom(error));
        }
        // At most 1000, so the cast cannot truncate.
        Ok(Self((share * 1_000.0).round() as u16))
    }
}

/// How long each hop may take before it is late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LateSettings {
    /// Upstream → mirrored.
    pub mirrored_ms: u64,
    /// Mirrored → carried.
    #[serde(rename = "arrivedMs")]
    pub carried_ms: u64,
    /// Carried → announced.
    #[serde(rename = "touchedMs")]
    pub announced_ms: u64,
}

/// When failed writes are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RetrySettings {
    /// The first pause; it doubles each time.
    pub first_ms: u64,
    /// The longest pause, and the one after the API server refused a write.
    pub max_ms: u64,
}

impl Default for MirrorSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            annotation_limit_bytes: 256 * 1024,
            defer_ms: 5_000,
            deferrable_per_second: 8,
            absent_grace_ms: 5_000,
            max_share: Fraction::per_mille(300),
            share_from: 10,
            max_removals_per_minute: 10,
            restored_settle_ms: 300_000,
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
            burst: 4,
            min_interval_ms: 1_000,
            max_per_second: 50,
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
            max_per_minute: 10,
            max_share: Fraction::per_mille(300),
            share_from: 10,
            deleted_projects: false,
        }
    }
}

impl Default for LateSettings {
    fn default() -> Self {
        Self { mirrored_ms: 5_000, carried_ms: 10_000, announced_ms: 5_000 }
    }
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { first_ms: 1_000, max_ms: 30_000 }
    }
}

impl Settings {
    /// The kinds to watch in a cluster with these roles.
    pub fn kinds_watched(&self, roles: &[Role]) -> Vec<Kind> {
        let orphans = self.orphans.mode != OrphanMode::Off;
        let is_watched = |kind: &Kind| {
            roles.iter().any(|role| {
                role.liveness_kinds().contains(kind)
                    || (orphans && role.orphan_kinds().contains(kind))
            })
        };
        Kind::ALL.into_iter().filter(is_watched).collect()
    }
}

impl TouchSettings {
    /// The burst of an edge that was at rest, in seconds of its rate.
    pub const BURST_SECONDS: u32 = 4;

    pub fn scope_of(&self, edge: &ClusterName) -> TouchScope {
        self.edge_scopes.get(edge).copied().unwrap_or(self.scope)
    }
}
