//! The members of a line that is written, in their fixed order.

use serde::Serialize;

use super::line::LOG_GAP;
use super::{ClusterSpec, Header, LogPart, VERSION};
use crate::core::contract::action::Action;
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::event::{EventKind, EventName, Outcome, OutcomeName};
use crate::core::contract::membership::{JoinRule, OfferState, OfferStateName, SourceName};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use crate::core::data::objects::Object;
use crate::core::data::shard::Shard;
use crate::core::data::time::UnixMillis;

/// A header to write.
#[derive(Serialize)]
pub(super) struct HeaderOut<'a> {
    log: &'static str,
    version: u64,
    #[serde(flatten)]
    part: Option<LogPart>,
    clusters: &'a [ClusterSpec],
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'a Settings>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recorded: bool,
}

impl<'a> HeaderOut<'a> {
    pub(super) fn new(header: &'a Header, part: Option<LogPart>) -> Self {
        Self {
            log: "throughline",
            version: VERSION,
            part,
            clusters: &header.clusters,
            settings: header.settings.as_ref(),
            recorded: header.recorded,
        }
    }
}

/// A gap to write.
#[derive(Serialize)]
pub(super) struct GapOut {
    at_ms: UnixMillis,
    event: &'static str,
    lines: u64,
}

impl GapOut {
    pub(super) fn new(at_ms: UnixMillis, lines: u64) -> Self {
        Self { at_ms, event: LOG_GAP, lines }
    }
}

/// A decision to write.
#[derive(Serialize)]
pub(super) struct DecisionOut<'a> {
    pub(super) at_ms: UnixMillis,
    pub(super) action: &'a Action,
    pub(super) because: &'a str,
}

/// An event to write.
#[derive(Serialize)]
pub(super) struct EventOut<'a> {
    at_ms: UnixMillis,
    event: EventName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<SourceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    join: Option<JoinRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<&'a ClusterName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    roles: Option<&'a [Role]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<OfferStateName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<&'a Object>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    key: Option<&'a ObjectKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<ActionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeName>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "resourceVersion")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<ErrorCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    /// Left out for the first: logs of a run with one shard have none.
    #[serde(skip_serializing_if = "Shard::is_first")]
    shard: Shard,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'a Settings>,
}

fn failed<'a>(line: EventOut<'a>, failure: &'a RequestFailure) -> EventOut<'a> {
    let cause = Some(failure.cause).filter(|cause| *cause != ErrorCause::Other);
    EventOut { error: Some(&failure.text), cause, ..line }
}

impl<'a> EventOut<'a> {
    pub(super) fn new(at_ms: UnixMillis, kind: &'a EventKind) -> Self {
        let bare = EventOut {
            at_ms,
            event: EventName::from(kind),
            source: None,
            join: None,
            cluster: None,
            uid: None,
            roles: None,
            state: None,
            kind: None,
            object: None,
            key: None,
            id: None,
            outcome: None,
            resource_version: None,
            error: None,
            cause: None,
            retry_after_ms: None,
            wait_ms: None,
            shard: Shard::FIRST,
            settings: None,
        };
        match kind {
            EventKind::ClusterAdded { cluster, roles } => {
                EventOut { cluster: Some(cluster), roles: Some(roles), ..bare }
            }
            EventKind::ClusterRemoved { cluster } => EventOut { cluster: Some(cluster), ..bare },
            EventKind::ListStarted { cluster, kind }
            | EventKind::ListFinished { cluster, kind }
            | EventKind::WatchResumed { cluster, kind }
            | EventKind::Bookmark { cluster, kind }
            | EventKind::ResourceVersionRegressed { cluster, kind } => {
                EventOut { cluster: Some(cluster), kind: Some(*kind), ..bare }
            }
            EventKind::Unreadable { cluster, kind, object, error } => {
                let line = EventOut { cluster: Some(cluster), kind: Some(*kind), ..bare };
                failed(EventOut { key: Some(object), ..line }, error)
            }
            EventKind::WatchLost { cluster, kind, error } => {
                failed(EventOut { cluster: Some(cluster), kind: Some(*kind), ..bare }, error)
            }
            EventKind::Listed { cluster, object }
            | EventKind::Applied { cluster, object }
            | EventKind::Deleted { cluster, object } => {
                EventOut { cluster: Some(cluster), object: Some(object), ..bare }
            }
            EventKind::ActionFinished { id, outcome } => {
                let line =
                    EventOut { id: Some(*id), outcome: Some(OutcomeName::from(outcome)), ..bare };
                match outcome {
                    Outcome::Applied { resource_version } => {
                        EventOut { resource_version: resource_version.as_deref(), ..line }
                    }
                    Outcome::Refused { error }
                    | Outcome::Unanswered { error }
                    | Outcome::Conflict { error } => failed(line, error),
                    Outcome::Failed { error, retry_after_ms } => {
                        EventOut { retry_after_ms: *retry_after_ms, ..failed(line, error) }
                    }
                    Outcome::Unchanged
                    | Outcome::Superseded
                    | Outcome::NotFound
                    | Outcome::Dropped
                    | Outcome::DryRun => line,
                }
            }
            EventKind::LeadershipPending { wait_ms, shard } => {
                EventOut { wait_ms: Some(*wait_ms), shard: *shard, ..bare }
            }
            EventKind::LeadershipAcquired { shard }
            | EventKind::LeadershipLost { shard }
            | EventKind::ShardFollowed { shard }
            | EventKind::ShardLeft { shard } => EventOut { shard: *shard, ..bare },
            EventKind::DiscoveryStarted { source, join } => {
                EventOut { source: Some(*source), join: Some(*join), ..bare }
            }
            EventKind::ClusterOffered { source, cluster, uid, roles, state } => {
                let line = EventOut {
                    source: Some(*source),
                    cluster: Some(cluster),
                    uid: Some(uid),
                    roles: Some(roles),
                    state: Some(OfferStateName::from(state)),
                    ..bare
                };
                match state {
                    OfferState::Broken { error } => failed(line, error),
                    OfferState::Ready | OfferState::NotReady | OfferState::Deleting => line,
                }
            }
            EventKind::ClusterWithdrawn { source, cluster, uid } => {
                EventOut { source: Some(*source), cluster: Some(cluster), uid: Some(uid), ..bare }
            }
            EventKind::ClusterGone { source, cluster } => {
                EventOut { source: Some(*source), cluster: Some(cluster), ..bare }
            }
            EventKind::DiscoveryFinished { source } | EventKind::DiscoveryResumed { source } => {
                EventOut { source: Some(*source), ..bare }
            }
            EventKind::DiscoveryLost { source, error } => {
                failed(EventOut { source: Some(*source), ..bare }, error)
            }
            EventKind::SettingsChanged { settings } => {
                EventOut { settings: Some(settings), ..bare }
            }
            EventKind::LeaseApiLost
            | EventKind::LeaseApiReachable
            | EventKind::TimedOut
            | EventKind::RecordingEnded => bare,
        }
    }
}
