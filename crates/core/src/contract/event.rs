//! Events: everything that enters the machine, as one closed enum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::contract::error_cause::RequestFailure;
use crate::contract::membership::{JoinRule, OfferState, SourceName};
use crate::data::closed_list::closed_list;
use crate::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use crate::data::objects::Object;
use crate::data::time::UnixMillis;

/// Something that happened, and when. The machine has no other clock.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: UnixMillis,
    pub kind: EventKind,
}

/// A cluster and what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    pub name: ClusterName,
    /// Never empty.
    pub roles: Vec<Role>,
}

impl ClusterSpec {
    /// The event that configures the cluster. For the clusters of an event log's header, the header
    /// stands for it.
    pub fn added(&self) -> EventKind {
        EventKind::ClusterAdded { cluster: self.name.clone(), roles: self.roles.clone() }
    }
}

/// What happened. [`EventName`] holds the names that the event log uses.
#[derive(Clone, Debug)]
#[derive(strum::EnumDiscriminants)]
#[strum_discriminants(
    name(EventName),
    doc = "The names of events in version 1 of the event log.",
    derive(Hash, PartialOrd, Ord),
    derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames),
    strum(serialize_all = "snake_case", const_into_str)
)]
pub enum EventKind {
    /// A cluster was configured or discovered. Nothing is known about it yet.
    ClusterAdded {
        cluster: ClusterName,
        roles: Vec<Role>,
    },
    /// A cluster left, or could not join. The machine drops everything that it knows about it.
    ClusterRemoved {
        cluster: ClusterName,
    },
    /// A full list began. Known objects that it does not contain are gone at its end.
    ListStarted {
        cluster: ClusterName,
        kind: Kind,
    },
    /// One object of the list in progress.
    Listed {
        cluster: ClusterName,
        object: Arc<Object>,
    },
    /// The list is complete, and the watch that follows it is live.
    ListFinished {
        cluster: ClusterName,
        kind: Kind,
    },
    /// An object was created or changed.
    Applied {
        cluster: ClusterName,
        object: Arc<Object>,
    },
    /// An object was deleted; this is its last state.
    Deleted {
        cluster: ClusterName,
        object: Arc<Object>,
    },
    /// An object was listed or changed whose content can't be read. It exists, so it is not absent;
    /// nothing that it could concern is decided. Its name is empty when not even that can be read.
    Unreadable {
        cluster: ClusterName,
        kind: Kind,
        object: ObjectKey,
        error: RequestFailure,
    },
    /// A watch broke. What it showed is now unknown, not absent.
    WatchLost {
        cluster: ClusterName,
        kind: Kind,
        error: RequestFailure,
    },
    /// A broken watch continues where it stopped: nothing was missed, and the changes made in the
    /// meantime follow in order.
    WatchResumed {
        cluster: ClusterName,
        kind: Kind,
    },
    /// The API server confirmed that it has sent every change so far. The shell passes on only the
    /// bookmarks that [`Kind::can_prove_absence`] asks for.
    #[strum_discriminants(strum(serialize = "watch_heard"))]
    Bookmark {
        cluster: ClusterName,
        kind: Kind,
    },
    /// The resourceVersions of an upstream cluster are lower than before: it was restored from an
    /// older state. `kind` is the watch that noticed it.
    #[strum_discriminants(strum(serialize = "went_back"))]
    ResourceVersionRegressed {
        cluster: ClusterName,
        kind: Kind,
    },
    /// This instance created the Lease, which was not there, and leads after `wait_ms` unless it
    /// loses the Lease before. Until then nobody writes, so nothing is late.
    LeadershipPending {
        wait_ms: u64,
    },
    /// This instance may now mirror, nudge and delete.
    LeadershipAcquired,
    LeadershipLost,
    ActionFinished {
        id: ActionId,
        outcome: Outcome,
    },
    /// A source began to list its clusters.
    DiscoveryStarted {
        source: SourceName,
        join: JoinRule,
    },
    /// The source shows a cluster: a new one, a changed one, or one as before. Its uid is empty
    /// where the source has none.
    ClusterOffered {
        source: SourceName,
        cluster: ClusterName,
        uid: String,
        roles: Vec<Role>,
        state: OfferState,
    },
    /// The source says that the cluster is gone: it was deleted, or lost the label that selects it.
    ClusterWithdrawn {
        source: SourceName,
        cluster: ClusterName,
        uid: String,
    },
    /// The list is complete: clusters that it does not contain are gone.
    DiscoveryFinished {
        source: SourceName,
    },
    /// The source broke. Which clusters there are is now unknown; none of them is gone.
    DiscoveryLost {
        source: SourceName,
        error: RequestFailure,
    },
    /// A broken source continues where it stopped: nothing was missed.
    DiscoveryResumed {
        source: SourceName,
    },
    /// A live GET of the Project's name answered 404, after it was seen deleted or while only hub
    /// objects name it: its API may answer under that name for ever, but nobody owns it any longer.
    ClusterGone {
        source: SourceName,
        cluster: ClusterName,
    },
    /// The time that `Machine::poll_deadline` returned has
    /// come.
    TimedOut,
    /// A recording without a machine was stopped: until now, what the watches showed last held.
    RecordingEnded,
}

/// How an action ended. [`OutcomeName`] holds the names that the event log uses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[derive(strum::EnumDiscriminants)]
#[strum_discriminants(
    name(OutcomeName),
    doc = "The names of outcomes in version 1 of the event log.",
    derive(Hash, PartialOrd, Ord),
    derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames),
    strum(serialize_all = "snake_case", const_into_str)
)]
pub enum Outcome {
    /// Written or deleted.
    Applied {
        /// The resourceVersion after the write, where known.
        resource_version: Option<String>,
    },
    /// The object already was as desired.
    Unchanged,
    /// A newer action for the same object replaced it before it was sent.
    Superseded,
    /// The API server refused, and will refuse again (403, 422, an admission webhook).
    Refused { error: RequestFailure },
    /// It failed but may succeed later (a time-out, 429, 5xx).
    Failed {
        error: RequestFailure,
        /// The server's `Retry-After`.
        retry_after_ms: Option<u64>,
    },
    /// A delete was sent, but no answer came: the object may or may not be gone. The watch will
    /// show which.
    Unanswered { error: RequestFailure },
    /// A precondition no longer holds (409): the decision was made on an old view.
    Conflict { error: RequestFailure },
    /// The object does not exist (404).
    NotFound,
    /// Not attempted: leadership was lost first, or the cluster left.
    Dropped,
    /// Not attempted: a dry run writes nothing. The machine continues as if it had been written.
    DryRun,
}

closed_list!(EventName, OutcomeName);

impl Outcome {
    /// Why it failed; `None` when it did not.
    pub fn error(&self) -> Option<&RequestFailure> {
        match self {
            Outcome::Refused { error }
            | Outcome::Failed { error, .. }
            | Outcome::Unanswered { error }
            | Outcome::Conflict { error } => Some(error),
            Outcome::Applied { .. }
            | Outcome::Unchanged
            | Outcome::Superseded
            | Outcome::NotFound
            | Outcome::Dropped
            | Outcome::DryRun => None,
        }
    }

    /// Whether it is certain that the request changed nothing.
    pub(crate) fn changed_nothing(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::NotFound | Self::Conflict { .. })
    }

    /// The outcome's name in the event log.
    pub fn name(&self) -> &'static str {
        OutcomeName::from(self).as_str()
    }
}
