//! What the machine knows, for `status`, `trace` and `/state`. No rule reads it.
//!
//! `build` makes a [`View`] of the world, the memory and the verdicts of the rules. Nothing is kept
//! for it: each view costs as much as everything that there is.

pub mod involved_object;
pub mod phase;

mod build;
mod connector;
mod edges;
mod hubs;
mod orphans;
mod unpaired;
mod upstream;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::phase::{AnnotationState, AnnouncementState, Phase, Phases};
use crate::contract::error_cause::{ErrorCause, RequestFailure};
use crate::contract::hold_reason::HoldReason;
use crate::contract::note::Hop;
use crate::contract::touches_waiting::TouchesWaiting;
use crate::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use crate::data::time::UnixMillis;
use crate::status::liveness;
pub use crate::world::cluster::WatchState;
use crate::world::edge::Stamp;
use crate::write_state::WriteState;

/// Everything that the machine knows at one moment. The same state gives the same view: lists are
/// sorted. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// The machine's clock, which is the time of the last event. A running instance sets it to the
    /// time of the request.
    pub at_ms: UnixMillis,
    /// Whether this instance may mirror, nudge and delete.
    pub leads: bool,
    /// The holder of the Lease. The machine does not know it; the shell adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// While this instance waits before it may lead by a Lease that it created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_wait: Option<LeaseWaitView>,
    /// How many actions have no outcome yet.
    pub in_flight: usize,
    pub clusters: Vec<ClusterView>,
    /// How many connectors are in each phase.
    pub phases: Phases,
    /// Sorted by their upstream names, then by their names at hub and edges.
    pub connectors: Vec<ConnectorView>,
    /// Gateways and HTTPProxies at the edges that have no counterpart.
    #[serde(default, rename = "loose")]
    pub unpaired: Vec<UnpairedView>,
    pub orphans: Vec<OrphanView>,
    /// Deleted projects that hub objects name, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<GoneView>,
}

/// A project that does not exist any longer, and that hub objects still name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoneView {
    pub cluster: ClusterName,
    /// Since when a live GET of its name is known to answer 404.
    pub since_ms: UnixMillis,
    /// How many hub Connectors name it.
    pub connectors: u64,
    /// How many hub HTTPRoutes name it; none where routes are not watched.
    pub routes: u64,
}

/// A Gateway at an edge that announces no connector, or an HTTPProxy that references a Connector
/// that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnpairedView {
    pub cluster: ClusterName,
    /// Namespace and name, which a Gateway and its HTTPProxy share.
    #[serde(flatten)]
    pub object: ObjectKey,
    /// Whether a Gateway of this name exists.
    pub gateway: bool,
    /// Whether an HTTPProxy of this name exists.
    pub proxy: bool,
    /// The Connectors that the HTTPProxy references and that do not exist.
    pub missing: Vec<String>,
}

/// An orphaned hub HTTPRoute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrphanView {
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub route: ObjectKey,
    /// Since when it has been an orphan without a break.
    pub since_ms: Option<UnixMillis>,
    pub in_flight: Option<ActionId>,
    /// Why the last attempt to delete it failed.
    pub error: Option<String>,
    /// When the next attempt may come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<UnixMillis>,
}

/// The wait of an instance that created the Lease, because there was none. A Lease that never was
/// looks like one that was deleted under a holder that still writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseWaitView {
    pub until_ms: UnixMillis,
    /// How long it lasts in all.
    pub wait_ms: u64,
}

impl std::fmt::Display for LeaseWaitView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let wait_s = self.wait_ms.div_ceil(1_000);
        write!(f, "waiting up to {wait_s} s for a Lease that was not there")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    pub name: ClusterName,
    pub roles: Vec<Role>,
    /// By kind; `never` also for kinds that are not watched in this cluster.
    pub watches: BTreeMap<Kind, WatchState>,
    /// Since when each live watch has been live.
    #[serde(default)]
    pub live_since_ms: BTreeMap<Kind, UnixMillis>,
    /// Since when each watch that was live is not. A shell that knows when the watch last brought
    /// anything says that instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_since_ms: BTreeMap<Kind, UnixMillis>,
    /// When each watch last brought anything, bookmarks included. The machine does not know it; the
    /// shell adds it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub received_at_ms: BTreeMap<Kind, UnixMillis>,
    /// The error of each lost watch. The machine does not know it; the shell adds it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<Kind, String>,
    /// How many objects exist that can't be read, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unreadable: BTreeMap<Kind, usize>,
    /// Touches of an edge that are due and wait, because it takes no more at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub touches_waiting: Option<TouchesWaiting>,
    /// The causes of `errors`. A `/state` of an older version has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<Kind, ErrorCause>,
}

/// One connector in all tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorView {
    /// `None` without a hub, or when the hub Connector's labels name nothing.
    pub upstream: Option<UpstreamView>,
    /// Its namespace and name at hub and edges; `None` when it is only upstream.
    #[serde(rename = "replica")]
    pub place: Option<ObjectKey>,
    /// The first hop that is not done.
    pub phase: Phase,
    pub stalls: Vec<StallView>,
    pub hubs: Vec<HubView>,
    pub edges: Vec<EdgeView>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamView {
    /// The cluster's name as the hub Connector's labels carry it.
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub object: ObjectKey,
    /// Whether the cluster is configured and has the Connector.
    pub exists: bool,
    /// The cluster was a project that was deleted: a live GET of its name answers 404.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    pub online: bool,
    /// A fingerprint of the tunnel node's id. Equal nodes have equal fingerprints in all tiers.
    pub node: Option<String>,
    /// The Ready condition's reason and message while it is not online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// When its status last changed, as this instance saw it.
    pub changed_at_ms: Option<UnixMillis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StallView {
    pub hop: Hop,
    /// The cluster in which the hop should have ended.
    pub cluster: ClusterName,
    pub since_ms: UnixMillis,
    /// Since when it counts as late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_since_ms: Option<UnixMillis>,
    /// The cause, as far as this instance could see it when the stall began.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubView {
    pub cluster: ClusterName,
    /// Whether the status annotation says what upstream says.
    pub annotation: AnnotationState,
    /// Why upstream is not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldView>,
    /// Whether there is a status annotation.
    #[serde(default)]
    pub annotated: bool,
    /// What it says. Known only when upstream or an edge says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub says: Option<LivenessView>,
    /// Since when it does not say what upstream says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong_since_ms: Option<UnixMillis>,
    /// Since when it says what upstream says.
    pub right_since_ms: Option<UnixMillis>,
    /// Since when it differs in what routes nothing, which is written later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred_since_ms: Option<UnixMillis>,
    #[serde(flatten)]
    pub writes: WritesView,
    /// How often another writer overwrote it lately.
    #[serde(rename = "spoiled")]
    pub overwrites: u32,
    /// How often the carrier was nudged lately.
    #[serde(rename = "nudged")]
    pub nudges: u32,
}

/// Why an annotation is left as it is although upstream seems to say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldView {
    pub reason: HoldReason,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivenessView {
    pub online: bool,
    /// A fingerprint of the tunnel node's id.
    pub node: Option<String>,
}

impl LivenessView {
    /// Reads a Connector's status, which is JSON text.
    pub fn of(status: Option<&str>) -> Self {
        let liveness = liveness::read(status, None);
        Self::new(liveness.online, Stamp::of(&Stamp::text(&liveness.node_id)))
    }

    /// The node's id itself is a public key and identifies a customer's device.
    fn new(online: bool, stamp: Stamp) -> Self {
        let is_named = online && stamp != Stamp::of(&Stamp::text(""));
        Self { online, node: is_named.then(|| format!("{:08x}", stamp.hash() >> 32)) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WritesView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<ActionId>,
    /// No attempt before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<UnixMillis>,
    /// Why the last attempt failed, as `error` and `cause`.
    #[serde(flatten)]
    pub error: Option<RequestFailure>,
}

impl WritesView {
    fn of(write: Option<&WriteState>, now: UnixMillis) -> Self {
        let Some(write) = write else { return Self::default() };
        Self {
            in_flight: write.action(),
            not_before_ms: write.not_before().filter(|at| *at > now),
            error: write.failure().map(|failure| failure.error.clone()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeView {
    pub cluster: ClusterName,
    /// What the edge's extension server reads from it.
    pub online: bool,
    pub node: Option<String>,
    /// When its liveness last changed, as this instance saw it.
    pub changed_at_ms: Option<UnixMillis>,
    /// Since when it does not say what the hub says; `None` when it does, or without a hub.
    pub behind_since_ms: Option<UnixMillis>,
    /// Whether it says what the hub says; `None` when no hub has it.
    pub as_hub: Option<bool>,
    /// The Gateways, in its namespace, whose HTTPProxies reference it. Sorted by name.
    pub gateways: Vec<GatewayView>,
}

/// A Gateway that announces a connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayView {
    pub name: String,
    pub announcement: AnnouncementState,
    /// The trigger, `<digest>-<writes>-<confirmations>`; `None` when throughline never wrote one.
    pub trigger: Option<String>,
    /// The Gateway that carries the trigger for the whole class, when it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announced_on: Option<ObjectKey>,
    /// A person has paused this Gateway, or the one that carries the trigger for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// When the latest announcement was made; `None` once it is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announced_at_ms: Option<UnixMillis>,
    /// When the next touch is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at_ms: Option<UnixMillis>,
    #[serde(flatten)]
    pub writes: WritesView,
}

impl ClusterView {
    /// Why the watch of a kind is lost, if that is known.
    pub fn failure(&self, kind: Kind) -> Option<RequestFailure> {
        let text = self.errors.get(&kind)?;
        Some(RequestFailure::recorded(text.as_str(), self.causes.get(&kind).copied()))
    }
}

impl View {
    /// Adds when watches last brought anything: what they showed is unknown since then.
    pub fn tell_received(
        &mut self,
        received: impl IntoIterator<Item = (ClusterName, Kind, UnixMillis)>,
    ) {
        let clusters = self.clusters.iter_mut();
        let mut clusters: BTreeMap<_, _> = clusters.map(|c| (c.name.clone(), c)).collect();
        for (name, kind, at) in received {
            let Some(cluster) = clusters.get_mut(&name) else { continue };
            cluster.received_at_ms.insert(kind, at);
            if let Some(since) = cluster.unknown_since_ms.get_mut(&kind) {
                *since = at.min(*since);
            }
        }
    }

    /// Adds the errors of lost watches.
    pub fn tell_errors(
        &mut self,
        errors: impl IntoIterator<Item = (ClusterName, Kind, RequestFailure)>,
    ) {
        for (name, kind, error) in errors {
            let mut clusters = self.clusters.iter_mut().filter(|cluster| cluster.name == name);
            let is_live =
                |cluster: &ClusterView| cluster.watches.get(&kind) == Some(&WatchState::Live);
            if let Some(cluster) = clusters.find(|cluster| !is_live(cluster)) {
                cluster.causes.insert(kind, error.cause);
                cluster.errors.insert(kind, error.text.into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
