//! Events: everything that enters the machine, in one closed enum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::contract::error_cause::{ErrorCause, RequestFailure};
use crate::contract::membership::{JoinRule, OfferState, SourceName};
use crate::data::closed_list::closed_list;
use crate::data::ids::{ActionId, ClusterName, Kind, NamespacedName, Role};
use crate::data::objects::Object;
use crate::data::time::UnixMillis;

/// An event and its time. The machine has no other clock.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: UnixMillis,
    pub kind: EventKind,
}

/// A cluster and its roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    pub name: ClusterName,
    /// Never empty.
    pub roles: Vec<Role>,
}

impl ClusterSpec {
    /// The event that adds the cluster. For the clusters in its header, an event log has no such
    /// line.
    pub fn added(&self) -> EventKind {
        EventKind::ClusterAdded { cluster: self.name.clone(), roles: self.roles.clone() }
    }
}

/// The kinds of events. [`EventName`] has their names in the event log.
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
    /// A cluster left, or failed to join. The machine drops everything that it knows about it.
    ClusterRemoved {
        cluster: ClusterName,
    },
    /// A full list started. Known objects that it lacks are gone at its end.
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
    /// An object was listed or changed, but its content cannot be read. It exists, so it is not
    /// absent, and nothing is decided that could concern it. The name is empty if it cannot be
    /// read, either.
    Unreadable {
        cluster: ClusterName,
        kind: Kind,
        object: NamespacedName,
        error: RequestFailure,
    },
    /// A watch broke. Its objects are now unknown, not absent.
    WatchLost {
        cluster: ClusterName,
        kind: Kind,
        error: RequestFailure,
    },
    /// A broken watch resumed where it stopped: no event was missed, and the changes made meanwhile
    /// came before this.
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
    /// The resourceVersions of an upstream cluster went backwards: it was restored from an older
    /// state. `kind` is the kind whose watch noticed it.
    #[strum_discriminants(strum(serialize = "went_back"))]
    ResourceVersionRegressed {
        cluster: ClusterName,
        kind: Kind,
    },
    /// This instance created the missing Lease, and leads after `wait_ms` unless it loses the Lease
    /// first. Until then no instance may write, so nothing is late.
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
    /// A source started to list its clusters.
    DiscoveryStarted {
        source: SourceName,
        join: JoinRule,
    },
    /// The source shows a cluster: new, changed, or unchanged. The uid is empty if the source has
    /// none.
    ClusterOffered {
        source: SourceName,
        cluster: ClusterName,
        uid: String,
        roles: Vec<Role>,
        state: OfferState,
    },
    /// The source reports that the cluster is gone: it was deleted, or lost the label that selects
    /// it.
    ClusterWithdrawn {
        source: SourceName,
        cluster: ClusterName,
        uid: String,
    },
    /// The list is complete: clusters that it lacks are gone.
    DiscoveryFinished {
        source: SourceName,
    },
    /// The watch of the source broke. Its clusters are now unknown, not gone.
    DiscoveryLost {
        source: SourceName,
        error: RequestFailure,
    },
    /// A broken source resumed where it stopped: no event was missed.
    DiscoveryResumed {
        source: SourceName,
    },
    /// A live GET of the Project's name answered 404, after its deletion was seen or while only hub
    /// objects name it. The Project's API may still answer, but the Project no longer exists.
    ClusterGone {
        source: SourceName,
        cluster: ClusterName,
    },
    /// The time that `Machine::poll_deadline` returned has come.
    TimedOut,
    /// The end of a recording without a machine: the last state of the watches held until now.
    RecordingEnded,
}

/// How an action ended. [`OutcomeName`] has the names in the event log.
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
        /// The resourceVersion after the write, if known.
        resource_version: Option<String>,
    },
    /// The object already was as desired.
    Unchanged,
    /// Not sent: a newer action for the same object replaced it.
    Superseded,
    /// The API server refused it, and will refuse it again (403, 422, an admission webhook).
    Refused { error: RequestFailure },
    /// It failed but may succeed later (a time-out, 429, 5xx).
    Failed {
        error: RequestFailure,
        /// The server's `Retry-After`.
        retry_after_ms: Option<u64>,
    },
    /// A delete was sent, but no answer came. The watch will show whether the object is gone.
    Unanswered { error: RequestFailure },
    /// A precondition no longer holds (409): the decision was based on an old state.
    Conflict { error: RequestFailure },
    /// The object does not exist (404).
    NotFound,
    /// Not sent: leadership was lost first, or the cluster left.
    Dropped,
    /// Not sent: a dry run writes nothing. The machine continues as if it had been written.
    DryRun,
}

closed_list!(EventName, OutcomeName);

impl Outcome {
    /// The error of a failed request; `None` otherwise.
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

    /// Whether the action certainly changed nothing. A delete that was sent and not answered is
    /// unanswered, so one that failed with a time-out was still asking for its proof. Its other
    /// failures count nevertheless: they come at once, and so would the next attempts.
    pub(crate) fn changed_nothing(&self, is_delete: bool) -> bool {
        match self {
            Self::Refused { .. }
            | Self::NotFound
            | Self::Conflict { .. }
            | Self::Superseded
            | Self::Dropped => true,
            Self::Failed { .. } => is_delete && self.is_time_out(),
            Self::Applied { .. } | Self::Unchanged | Self::Unanswered { .. } | Self::DryRun => {
                false
            }
        }
    }

    /// Whether no answer came in time.
    pub(crate) fn is_time_out(&self) -> bool {
        self.error().is_some_and(|error| error.cause == ErrorCause::TimedOut)
    }

    /// The outcome's name in the event log.
    pub fn name(&self) -> &'static str {
        OutcomeName::from(self).as_str()
    }
}
