//! Where a connector's liveness is stuck: each hop with what it says, who wrote it, what should be
//! there, the first hop that disagrees, why, and what to do.
//!
//! A [`Snapshot`] comes from the clusters ([`live`]), from a running instance ([`state`]) or from an
//! event log ([`log`]). [`diagnose()`] makes a [`Trace`] of it and is pure; [`text`] prints one.

mod diagnose;
mod find;
pub mod live;
pub mod log;
mod remedy;
pub mod state;
mod table;
pub mod text;
mod touched;
mod witness;

use serde::Serialize;

use crate::core::action::Hop;
use crate::core::ids::{ClusterName, Kind, ObjectKey};
use crate::core::phase::Phase;
use crate::core::settings::{Settings, StallSettings};
use crate::core::time::UnixMillis;
use crate::core::view::{SaysView, View};

pub use diagnose::diagnose;
pub use find::{Found, NotFound, connector, gateway};
pub use table::{Row, table};
pub use witness::{Witness, Writer};

/// Where a snapshot comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The clusters, looked at by this process, which writes nothing.
    Live,
    /// A running instance.
    State,
    /// The event log of a run, at a moment.
    Log,
    /// An event log that was recorded without throughline, at a moment.
    Recording,
}

/// What is known at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Where it comes from.
    pub source: Source,
    /// What the machine believes.
    pub view: View,
    /// When a hop that does not come is late, where the moment of the last write tells; a running
    /// instance tells of its stalls itself.
    pub late: Option<StallSettings>,
    /// What objects tell beside what the machine keeps.
    pub witness: Witness,
}

/// How a hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It disagrees, and should not any longer.
    Wrong,
    /// That can't be told.
    Unknown,
    /// It disagrees, and is not late yet.
    Pending,
    /// It agrees with the hop before it.
    Ok,
}

impl State {
    /// The state as it is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Wrong => "wrong",
            State::Unknown => "unknown",
            State::Pending => "pending",
            State::Ok => "ok",
        }
    }
}

/// Why a hop is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// A watch that shows it is not live.
    Unseen,
    /// The upstream cluster is not configured here.
    NotConfigured,
    /// The replica's labels name no upstream Connector.
    NoLabels,
    /// The replica's labels and namespace disagree.
    Identity,
    /// No hub has a replica.
    Unreplicated,
    /// The rule is switched off.
    Off,
    /// This process does not lead.
    NotLeading,
    /// The API server refuses the write.
    Refused,
    /// The write fails.
    Failing,
    /// Another writer changes it.
    Contention,
    /// A write is under way, or due.
    UnderWay,
    /// Nobody has written it.
    NotWritten,
    /// The carrier has not brought it.
    NotCarried,
    /// No edge has a copy.
    NoCopy,
    /// No HTTPProxy references the connector.
    NotReferenced,
    /// There is no Gateway of the HTTPProxy's name.
    NoGateway,
    /// The HTTPProxy references a Connector that is not there.
    NoConnector,
}

impl Cause {
    /// Nothing is stuck there: nothing is to be done.
    pub fn is_idle(self) -> bool {
        matches!(self, Cause::NotReferenced | Cause::NoGateway | Cause::Off)
    }
}

/// One hop of a connector's way, in one cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HopTrace {
    /// Which hop.
    pub hop: Hop,
    /// Where it ends.
    pub cluster: ClusterName,
    /// The object that shows it.
    pub kind: Kind,
    /// Its namespace and name there; `None` where it is not known.
    pub object: Option<ObjectKey>,
    /// How it is.
    pub state: State,
    /// What it says; `None` where that is not known, or nothing is said.
    pub says: Option<SaysView>,
    /// Of a Gateway: the trigger it carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Since when it says so.
    pub since_ms: Option<UnixMillis>,
    /// It may have said so before.
    pub at_least: bool,
    /// Who wrote it last, where that is known.
    pub writer: Option<Writer>,
    /// What it should say.
    pub expected: String,
    /// Why it is not as it should be.
    pub cause: Option<Cause>,
    /// The same, in words; empty when it is.
    pub why: String,
    /// What to do about it.
    pub remedies: Vec<String>,
}

/// One connector's way.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// Where it comes from.
    pub source: Source,
    /// The moment it is about.
    pub at_ms: UnixMillis,
    /// Its cluster, namespace and name upstream, where they are known.
    pub upstream: Option<Place>,
    /// Its namespace and name at hub and edges, where it has any.
    pub replica: Option<ObjectKey>,
    /// The first hop that is not done, in one word.
    pub phase: Phase,
    /// How the whole is: as its first hop that disagrees.
    pub state: State,
    /// Which of `hops` that is.
    pub first: Option<usize>,
    /// The hops, in their order.
    pub hops: Vec<HopTrace>,
    /// What else a person should know.
    pub notes: Vec<String>,
}

/// An object's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The cluster.
    pub cluster: ClusterName,
    /// Namespace and name.
    #[serde(flatten)]
    pub object: ObjectKey,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}", self.object, self.cluster)
    }
}

impl Trace {
    /// The first hop that disagrees.
    pub fn first(&self) -> Option<&HopTrace> {
        self.hops.get(self.first?)
    }

    /// Finds the first hop that disagrees: in the order of hops, and of one hop the worst.
    fn judge(&mut self) {
        let hops = &self.hops;
        let wrong = (0..hops.len()).filter(|&i| hops[i].state != State::Ok);
        self.first = wrong.min_by_key(|&i| (hops[i].hop, hops[i].state, i));
        self.state = self.first().map_or(State::Ok, |hop| hop.state);
    }
}

/// Ten years, in milliseconds.
const NEVER_MS: u64 = 315_000_000_000;

/// The settings of a machine that looks and never acts: without leadership nothing is mirrored, and
/// no window ever closes.
fn looking(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.orphans.mode = crate::core::settings::OrphanMode::Off;
    settings.mirror.nudge = false;
    settings.touch.window_ms = NEVER_MS;
    settings.touch.confirm_after_ms.clear();
    settings.touch.confirm_after_outage_ms = NEVER_MS;
    settings
}
