//! Notes: what the machine reports besides its actions.

use serde::Serialize;

use crate::cause::Problem;
use crate::contract::error_cause::ErrorCause;
use crate::contract::hold_reason::HoldReason;
use crate::contract::keep_reason::KeepReason;
use crate::contract::membership::{DiscoveryProblem, SourceName};
use crate::contract::touches_waiting::TouchesWaiting;
use crate::data::closed_list::closed_list;
use crate::data::ids::{ClusterName, ObjectKey};
use crate::data::time::UnixMillis;

/// The hops of a status change, in order. In prose they are upstream → mirrored → carried →
/// announced; version 1 of the event log fixes the names of the last two as `arrived` and `touched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Hop {
    /// The status changed upstream.
    Upstream,
    /// The hub's annotation equals the upstream status.
    Mirrored,
    /// The edge's annotation equals the hub's.
    Arrived,
    /// Every gateway of that edge that routes to the connector announces it.
    Touched,
}

/// A report that asks for no write. Notes leave the machine in the order in which they arose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    #[serde(rename = "at_ms")]
    pub at: UnixMillis,
    #[serde(flatten)]
    pub kind: NoteKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum NoteKind {
    /// Something is wrong with a subject. For one that is open already: its facts have changed.
    Began(Problem),
    /// It is no longer so: the subject is right again, gone, or its cluster left.
    Ended(Problem),
    /// A connector passed a hop.
    HopPassed {
        /// The cluster in which the hop ends.
        cluster: ClusterName,
        /// The connector's name in that cluster.
        connector: ObjectKey,
        hop: Hop,
        /// The liveness that was passed on.
        online: bool,
        /// How long the hop took, as this machine saw it: `Mirrored` counts from the upstream
        /// change, `Arrived` from the mirrored annotation, `Touched` from the arrival. `None` when
        /// the machine did not see the hop begin: the value came with a list, or another writer
        /// made the change.
        #[serde(skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
    /// What a hub's annotation differs in routes nothing, so its mirror waits; or no longer.
    Deferred {
        /// The hub.
        cluster: ClusterName,
        /// The connector's name there.
        connector: ObjectKey,
        deferred: bool,
    },
    /// A hop is late.
    Stalled(Stall),
    StallEnded(Stall),
    Anomaly(Anomaly),
    /// The verdict on a route that is an orphan, or would be but for one reason, has changed.
    Orphan {
        /// The hub.
        cluster: ClusterName,
        route: ObjectKey,
        /// `None`: only the mode or missing leadership keeps it.
        kept: Option<KeepReason>,
    },
    /// A route whose verdict was reported no longer exists at its hub, or another one has its name.
    OrphanGone {
        /// The hub.
        cluster: ClusterName,
        route: ObjectKey,
    },
    /// Status annotations are left as they are although upstream seems to say otherwise, or no longer.
    Held {
        /// The upstream cluster.
        cluster: ClusterName,
        reason: HoldReason,
        /// How many hub Connectors this concerns; 0 when it is over.
        held: u64,
        /// How many hub Connectors name the cluster.
        named: u64,
    },
    /// So many routes of an upstream cluster are orphans that none is deleted, or no longer.
    DeletesHeld {
        /// The upstream cluster.
        cluster: ClusterName,
        held: bool,
        /// How many of its routes are orphans.
        orphans: u64,
        /// How many routes it has.
        routes: u64,
    },
    /// So many touches of an edge are due that they take more than a second, or no longer.
    TouchesWaiting {
        cluster: ClusterName,
        #[serde(flatten)]
        waiting: TouchesWaiting,
    },
    /// What a discovery says of some clusters is not acted on.
    Discovery {
        source: SourceName,
        problem: DiscoveryProblem,
        /// How many clusters this concerns; 0 when it is over.
        clusters: u64,
        /// How many clusters the source offers.
        of: u64,
        detail: String,
    },
    /// Hub Connectors and upstreams do not find each other by name, or do so again.
    Naming {
        problem: NamingProblem,
        /// It is no longer so.
        over: bool,
        /// Those that it concerns from now on, or no longer. One mistake may concern many.
        upstreams: Vec<NamedUpstream>,
        /// The clusters that may be meant instead: upstreams of this run that no hub Connector names.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        unnamed: Vec<ClusterName>,
    },
    /// Hub objects name a project that was deleted: it can still serve traffic.
    ClusterGone {
        /// The upstream cluster.
        cluster: ClusterName,
        /// How many hub Connectors name it; 0, as `routes`, when it is over.
        connectors: u64,
        /// How many hub HTTPRoutes name it.
        routes: u64,
    },
}

/// How the names of upstreams and those in hub labels do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NamingProblem {
    /// Hub Connectors name it, and it is not a cluster of this run.
    Unconfigured,
    /// It has Connectors, and no hub Connector names it.
    Unreplicated,
}

/// An upstream, and how many Connectors a problem with its name concerns; none when it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedUpstream {
    pub cluster: ClusterName,
    pub connectors: u64,
}

/// A hop that is late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// The cluster in which the hop should have ended.
    pub cluster: ClusterName,
    /// The connector's name in that cluster.
    pub connector: ObjectKey,
    /// The missing hop.
    pub hop: Hop,
    /// When the hop could have started.
    #[serde(rename = "since_ms")]
    pub since: UnixMillis,
    /// The cause, as far as the machine can see it. Stalls of one cause are reported together.
    pub cause: StallCause,
    /// The cause in words.
    pub reason: String,
}

/// Why a hop is late, and in which cluster the cause lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StallCause {
    /// This instance is not the leader, and the leader has not done it either.
    NotLeading,
    WatchLost {
        cluster: ClusterName,
    },
    /// Writes fail or are refused.
    WritesFail {
        cluster: ClusterName,
        error: ErrorCause,
    },
    /// A write waits in the queue or for its answer.
    WriteInFlight {
        cluster: ClusterName,
    },
    /// Another writer keeps changing the hub's annotation.
    Overwritten {
        cluster: ClusterName,
        /// Its field manager, where `managedFields` names one.
        manager: Option<Box<str>>,
    },
    /// The hub's annotation routes as upstream says; the rest waits for the budget of deferrable
    /// writes.
    Deferred {
        cluster: ClusterName,
    },
    /// The hub's annotation is wrong for none of these reasons.
    NotMirrored {
        cluster: ClusterName,
    },
    /// The carrier is behind at this edge.
    NotCarried {
        cluster: ClusterName,
    },
    NotTouched {
        cluster: ClusterName,
    },
    /// Touches of the edge leave at a limited pace.
    TouchesWait {
        cluster: ClusterName,
    },
}

impl StallCause {
    /// The name in log lines.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotLeading => "not_leading",
            Self::WatchLost { .. } => "watch_lost",
            Self::WritesFail { .. } => "writes_fail",
            Self::WriteInFlight { .. } => "write_in_flight",
            Self::Overwritten { .. } => "overwritten",
            Self::Deferred { .. } => "deferred",
            Self::NotMirrored { .. } => "not_mirrored",
            Self::NotCarried { .. } => "not_carried",
            Self::NotTouched { .. } => "not_touched",
            Self::TouchesWait { .. } => "touches_wait",
        }
    }
}

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    pub anomaly: AnomalyKind,
    pub cluster: ClusterName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectKey>,
    /// What the machine saw, and what it did about it.
    pub detail: String,
    /// Of a contention: the other writer's field manager, where `managedFields` names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum AnomalyKind {
    /// Another writer keeps overwriting what throughline writes.
    Contention,
    /// A status too large for the annotation limit was reduced, or could not be written.
    OversizedStatus,
    /// An object exists that can't be read.
    Undecodable,
    /// An event names a cluster that was never added.
    UnknownCluster,
    /// The API server refuses a write; the next attempt is half a minute away.
    Refused,
    /// An outcome names an action that was never decided.
    UnknownAction,
    /// So many routes of an upstream cluster are orphans that none is deleted.
    TooManyOrphans,
    /// The resourceVersions of a cluster are lower than before: it was restored from an older state.
    #[strum(serialize = "went_back")]
    ResourceVersionRegressed,
    /// More clusters are configured than the machine has ids for.
    TooManyClusters,
    /// The machine reached a state that should not exist: a bug. Debug builds stop here.
    Impossible,
}

closed_list!(Hop, AnomalyKind);
