//! What enters the machine: one closed enum. Past tense: an event tells what happened.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::{ActionId, ClusterName, Kind, Role};
use super::objects::Object;
use super::time::UnixMillis;

/// Something happened at a moment. The moment is the machine's only clock.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, in milliseconds since the Unix epoch.
    pub at: UnixMillis,
    /// What.
    pub what: Happened,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Happened {
    /// A cluster was configured or discovered. Nothing is known of it yet.
    ClusterAdded {
        /// Its name.
        cluster: ClusterName,
        /// What it is to us.
        roles: Vec<Role>,
    },
    /// A cluster is gone from the configuration; all that is known of it is dropped.
    ClusterRemoved {
        /// Its name.
        cluster: ClusterName,
    },
    /// A full list began: of what was known, only what it brings again is still there at its end.
    ListStarted {
        /// Where.
        cluster: ClusterName,
        /// Of which kind.
        kind: Kind,
    },
    /// An object of a running list.
    Listed {
        /// Where.
        cluster: ClusterName,
        /// The object.
        object: Arc<Object>,
    },
    /// The list is complete, and the watch that follows it is live.
    ListFinished {
        /// Where.
        cluster: ClusterName,
        /// Of which kind.
        kind: Kind,
    },
    /// An object was created or changed.
    Applied {
        /// Where.
        cluster: ClusterName,
        /// The object as it is now.
        object: Arc<Object>,
    },
    /// An object is gone.
    Deleted {
        /// Where.
        cluster: ClusterName,
        /// The object as it last was.
        object: Arc<Object>,
    },
    /// A watch broke. What it showed is now unknown, not empty.
    WatchLost {
        /// Where.
        cluster: ClusterName,
        /// Of which kind.
        kind: Kind,
        /// What came back, for a person.
        error: String,
    },
    /// A watch that broke goes on where it was: nothing was missed, what happened meanwhile
    /// follows in order.
    WatchResumed {
        /// Where.
        cluster: ClusterName,
        /// Of which kind.
        kind: Kind,
    },
    /// Upstream's API server sent a bookmark on its watch of Gateways: what was not told has not
    /// changed. Of other watches it is not told.
    WatchHeard {
        /// Where.
        cluster: ClusterName,
        /// Of which kind.
        kind: Kind,
    },
    /// An upstream's resourceVersions are lower than they were: it was restored from an older state.
    WentBack {
        /// Where.
        cluster: ClusterName,
        /// By the watch of which kind.
        kind: Kind,
    },
    /// This process may mirror, nudge and delete.
    LeadershipAcquired,
    /// It may not any longer.
    LeadershipLost,
    /// The fate of an action.
    ActionFinished {
        /// Which action.
        id: ActionId,
        /// Its fate.
        outcome: Outcome,
    },
    /// The moment of [`poll_deadline`](super::machine::Machine::poll_deadline) came.
    TimedOut,
}

/// The fate of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Written, or deleted.
    Applied {
        /// The resourceVersion that the write made, where known.
        #[serde(default, rename = "resourceVersion", skip_serializing_if = "Option::is_none")]
        resource_version: Option<String>,
        /// Of a delete: the whole object as it was read just before, as JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deleted: Option<Box<str>>,
    },
    /// The object already was as wished.
    Unchanged,
    /// A newer action for the same target took its place before it reached the wire.
    Superseded,
    /// The API server says no, and will say so again (403, 422, an admission webhook).
    Refused {
        /// What came back.
        #[serde(default)]
        error: String,
    },
    /// It was tried and failed (a time-out, 429, 5xx), and may succeed later.
    Failed {
        /// What came back.
        #[serde(default)]
        error: String,
        /// The server's `Retry-After`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// A delete was sent, and whether it was carried out is not known: the answer did not come. The
    /// watch will tell.
    Unanswered {
        /// What came instead.
        #[serde(default)]
        error: String,
        /// The whole object as it was read just before, as JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deleted: Option<Box<str>>,
    },
    /// A precondition no longer holds (409): the decision was made on an old view.
    Conflict {
        /// What came back.
        #[serde(default)]
        error: String,
    },
    /// The object is gone (404).
    NotFound,
    /// Not tried: leadership was lost first.
    Dropped,
    /// Not tried: nothing is written in a dry run. The machine goes on as if it had been.
    DryRun,
}

impl Outcome {
    /// The outcome's name as it stands in the event log.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Applied { .. } => "applied",
            Outcome::Unchanged => "unchanged",
            Outcome::Superseded => "superseded",
            Outcome::Refused { .. } => "refused",
            Outcome::Failed { .. } => "failed",
            Outcome::Unanswered { .. } => "unanswered",
            Outcome::Conflict { .. } => "conflict",
            Outcome::NotFound => "not_found",
            Outcome::Dropped => "dropped",
            Outcome::DryRun => "dry_run",
        }
    }
}
