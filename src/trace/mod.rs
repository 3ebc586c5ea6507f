//! Where a connector's liveness is stuck: what each hop says, who wrote it, what it should say, the
//! first hop that disagrees, why, and what to do about it.
//!
//! A [`Snapshot`] comes from the clusters ([`live`]), from a running instance ([`state`]) or from an
//! event log ([`log`]). [`diagnose()`] turns it into a [`Trace`] and is pure; [`text`] prints traces.

mod access;
mod banner;
mod diagnose;
mod edge_hops;
mod edge_remedy;
mod find;
pub mod live;
pub mod log;
mod managed_fields;
mod mirror_hop;
mod mirror_remedy;
mod phase;
mod remedy;
pub mod state;
mod table;
mod table_text;
pub mod text;

use serde::Serialize;

use crate::core::contract::note::Hop;
use crate::core::contract::settings::{OrphanMode, Settings, StallSettings};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::core::view::phase::Phase;
use crate::core::view::{LivenessView, View};

pub use access::ClusterAccess;
pub use banner::{Banner, banners};
pub use diagnose::diagnose;
pub use find::{NotFound, trace_connector, trace_gateway};
pub use managed_fields::{LastWriter, ManagedFieldsIndex};
pub use table::{StatusCounts, StatusRow, status_rows};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotSource {
    /// The clusters, watched by this process, which writes nothing.
    Live,
    /// `GET /state` of a running instance.
    State,
    /// The event log of a run, at some moment.
    Log,
    /// An event log recorded while throughline was not writing, at some moment.
    Recording,
}

/// Everything known at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub source: SnapshotSource,
    pub view: View,
    /// How long a hop may take, judged by the time of the last write. `None` where the view's own
    /// stalls decide: a running instance and a log have seen the changes themselves.
    pub stall_limits: Option<StallSettings>,
    pub managed_fields: ManagedFieldsIndex,
    /// For the commands in remedies.
    pub access: ClusterAccess,
}

impl Snapshot {
    /// What a running instance says of itself. How its clusters are reached from here is not known.
    pub fn of_instance(view: View) -> Self {
        Self {
            source: SnapshotSource::State,
            view,
            stall_limits: None,
            managed_fields: ManagedFieldsIndex::default(),
            access: ClusterAccess::default(),
        }
    }
}

/// The worst first: the order decides which of several clusters at one hop is shown as the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HopState {
    /// It disagrees with the hop before it and is late.
    Wrong,
    /// It cannot be compared.
    Unknown,
    /// It disagrees with the hop before it and is not late yet.
    Pending,
    /// It routes as the hop before it; the rest of the status follows.
    Deferred,
    /// It agrees with the hop before it.
    Ok,
}

impl HopState {
    /// Whether everything that routes is as it should be.
    pub fn is_right(self) -> bool {
        matches!(self, HopState::Ok | HopState::Deferred)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            HopState::Wrong => "wrong",
            HopState::Unknown => "unknown",
            HopState::Pending => "pending",
            HopState::Deferred => "deferred",
            HopState::Ok => "ok",
        }
    }
}

/// Why a hop is not ok. Reports in JSON carry these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HopCause {
    #[serde(rename = "unseen")]
    WatchNotLive,
    /// The upstream cluster is not configured here.
    #[serde(rename = "notConfigured")]
    UpstreamNotConfigured,
    /// The hub Connector's labels name no upstream Connector.
    NoLabels,
    /// Labels and namespace contradict each other, or the namespace is not known.
    Identity,
    /// What upstream seems to say is not proven, or not acted on.
    Held,
    /// No hub has a Connector for the upstream one.
    Unreplicated,
    #[serde(rename = "off")]
    RuleDisabled,
    NotLeading,
    /// The instance waits before it may lead by a Lease that it created.
    WaitingForLease,
    /// The API server refuses the write.
    Refused,
    /// The write fails, and may succeed later.
    Failing,
    /// Another writer changes the value.
    Contention,
    /// What routes is mirrored; the rest waits.
    Deferred,
    /// A person has paused the object by annotation.
    Paused,
    #[serde(rename = "underWay")]
    WriteInFlight,
    NotWritten,
    NotCarried,
    #[serde(rename = "noCopy")]
    NoEdgeConnector,
    /// No HTTPProxy references the connector.
    NotReferenced,
    /// The HTTPProxy has no Gateway.
    NoGateway,
    /// The HTTPProxy references a Connector that does not exist.
    NoConnector,
}

impl HopCause {
    /// Nothing is stuck: nobody uses this hop, or it is switched off.
    pub fn is_idle(self) -> bool {
        matches!(self, HopCause::NotReferenced | HopCause::NoGateway | HopCause::RuleDisabled)
    }

    fn is_missing_connector(self) -> bool {
        use HopCause::{NoConnector, NoEdgeConnector, Unreplicated};
        matches!(self, Unreplicated | NoEdgeConnector | NoConnector)
    }
}

/// One hop of a connector, in one cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HopTrace {
    pub hop: Hop,
    /// The cluster in which the hop ends.
    pub cluster: ClusterName,
    /// The kind of the object that shows the hop.
    pub kind: Kind,
    pub object: Option<ObjectKey>,
    pub state: HopState,
    /// What the object says; `None` where it says nothing, or that is not known.
    pub says: Option<LivenessView>,
    /// The trigger annotation, of a Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Since when it says so.
    pub since_ms: Option<UnixMillis>,
    /// It may have said so for longer.
    pub at_least: bool,
    pub writer: Option<LastWriter>,
    /// The writer's last write may have been a nudge: it wrote what the hop shows then or earlier.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub writer_at_least: bool,
    /// What the object should say.
    pub expected: String,
    pub cause: Option<HopCause>,
    /// The cause in words; empty when the hop is ok.
    pub why: String,
    /// Set when a write failed: when the next attempt is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_ms: Option<UnixMillis>,
    /// What to do. Of each remedy the first line says what for; further lines are commands to paste.
    pub remedies: Vec<String>,
}

impl HopTrace {
    /// What is deferred holds up nothing, so it comes after all others.
    fn order(&self) -> (bool, Hop, HopState) {
        (self.state == HopState::Deferred, self.hop, self.state)
    }
}

/// All hops of one connector.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    pub source: SnapshotSource,
    pub at_ms: UnixMillis,
    pub upstream: Option<UpstreamRef>,
    /// Its namespace and name at the hub and the edges.
    #[serde(rename = "replica")]
    pub hub_key: Option<ObjectKey>,
    pub phase: Phase,
    /// The state of the first hop that disagrees.
    pub state: HopState,
    /// The index of that hop.
    pub first: Option<usize>,
    pub hops: Vec<HopTrace>,
    /// What else a person should know.
    pub notes: Vec<String>,
    /// Commands that print the Kubernetes Events about its Connector in each tier, as in `remedies`.
    pub events: Vec<String>,
}

/// An upstream Connector: its cluster, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UpstreamRef {
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub object: ObjectKey,
}

impl std::fmt::Display for UpstreamRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}", self.object, self.cluster)
    }
}

impl Trace {
    /// The first hop that disagrees.
    pub fn first(&self) -> Option<&HopTrace> {
        self.hops.get(self.first?)
    }

    /// Sets `first` and `state`: the earliest hop that is not ok, and of its clusters the worst. One that
    /// is deferred comes after all others.
    fn set_first(&mut self) {
        let hops = &self.hops;
        let not_ok = (0..hops.len()).filter(|&i| hops[i].state != HopState::Ok);
        self.first = not_ok.min_by_key(|&i| (hops[i].order(), i));
        self.state = self.first().map_or(HopState::Ok, |hop| hop.state);
    }
}

const TEN_YEARS_MS: u64 = 315_000_000_000;

/// Settings under which a machine observes and never acts. Without leadership it mirrors nothing;
/// touches wait for a window that never closes.
fn read_only_settings(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.orphans.mode = OrphanMode::Off;
    settings.mirror.nudge = false;
    settings.touch.window_ms = TEN_YEARS_MS;
    settings.touch.confirm_after_ms.clear();
    settings.touch.confirm_after_outage_ms = TEN_YEARS_MS;
    settings
}
