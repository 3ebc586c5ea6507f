//! The members of a line: read in one pass, whatever their order, and written in a fixed order.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{ClusterSpec, LogPart, VERSION};
use crate::core::contract::action::Action;
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::event::{EventKind, EventName, Outcome, OutcomeName};
use crate::core::contract::membership::{JoinRule, OfferState, OfferStateName, SourceName};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use crate::core::data::objects::{Object, WireObject};
use crate::core::data::shard::Shard;
use crate::core::data::time::UnixMillis;

/// Text that borrows from the line unless it contains escapes. An `Option<Cow<str>>` would always
/// copy: serde borrows only for a bare `Cow` member.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct BorrowedStr<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The name of the `event` line that says how many lines the log lacks. No machine ever sees it.
pub(super) const LOG_GAP: &str = "log_gap";

/// Every name that the `event` member may have in version 1.
pub const EVENT_NAMES: [&str; EventName::ALL.len() + 1] = {
    let mut names = [LOG_GAP; EventName::ALL.len() + 1];
    let mut i = 0;
    while i < EventName::ALL.len() {
        names[i] = EventName::ALL[i].as_str();
        i += 1;
    }
    names
};

/// Every name that the `outcome` member of an `action_finished` line may have.
pub const OUTCOME_NAMES: [&str; OutcomeName::ALL.len()] = {
    let mut names = [""; OutcomeName::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = OutcomeName::ALL[i].as_str();
        i += 1;
    }
    names
};

/// The `event` member.
#[derive(Debug)]
pub(super) enum EventMember {
    Event(EventName),
    LogGap,
    Unknown(String),
}

impl EventMember {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Event(name) => name.as_str(),
            Self::LogGap => LOG_GAP,
            Self::Unknown(name) => name,
        }
    }
}

impl<'de> Deserialize<'de> for EventMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = EventMember;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an event")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<EventMember, E> {
                Ok(match EventName::parse(name) {
                    Some(name) => EventMember::Event(name),
                    None if name == LOG_GAP => EventMember::LogGap,
                    None => EventMember::Unknown(name.to_owned()),
                })
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// Every member that a line may have. All are optional, because the event decides which ones a line
/// needs, and so that a missing one gets a better error than serde's.
#[derive(Debug, Deserialize)]
pub(super) struct RawLine<'a> {
    /// Only headers have it.
    pub(super) log: Option<IgnoredAny>,
    pub(super) at_ms: Option<u64>,
    pub(super) event: Option<EventMember>,
    #[serde(borrow)]
    pub(super) cluster: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<BorrowedStr<'a>>,
    pub(super) object: Option<WireObject>,
    /// Of an object that can't be read.
    #[serde(borrow)]
    pub(super) namespace: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<BorrowedStr<'a>>,
    /// Why a request failed; logs written before it was added have none.
    pub(super) cause: Option<ErrorCause>,
    pub(super) id: Option<ActionId>,
    #[serde(borrow)]
    pub(super) outcome: Option<BorrowedStr<'a>>,
    #[serde(borrow, rename = "resourceVersion")]
    pub(super) resource_version: Option<BorrowedStr<'a>>,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) wait_ms: Option<u64>,
    #[serde(default)]
    pub(super) shard: Shard,
    /// After a delete: the whole object as it was read just before.
    #[serde(borrow)]
    pub(super) deleted: Option<&'a RawValue>,
    pub(super) roles: Option<Vec<Role>>,
    pub(super) source: Option<SourceName>,
    pub(super) join: Option<JoinRule>,
    #[serde(borrow)]
    pub(super) uid: Option<BorrowedStr<'a>>,
    pub(super) state: Option<OfferStateName>,
    /// Boxed, because most lines have none and every line is moved.
    pub(super) settings: Option<Box<Settings>>,
    /// In a `log_gap` line: how many lines the log lacks.
    pub(super) lines: Option<u64>,
    /// Boxed, because most lines have none and every line is moved.
    pub(super) action: Option<Box<Action>>,
    #[serde(borrow)]
    pub(super) because: Option<BorrowedStr<'a>>,
}

/// The part of an unreadable line that shows whether it matters: an object of a kind that throughline
/// does not use may have a `spec.rules` or a `spec.parentRefs` of another shape.
#[derive(Debug, Deserialize)]
pub(super) struct PartialLine<'a> {
    pub(super) at_ms: Option<u64>,
    #[serde(borrow)]
    pub(super) cluster: Option<BorrowedStr<'a>>,
    pub(super) event: Option<EventMember>,
    #[serde(borrow)]
    pub(super) object: Option<PartialObject<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartialObject<'a> {
    #[serde(borrow)]
    api_version: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    kind: Option<BorrowedStr<'a>>,
}

impl PartialObject<'_> {
    /// The object, reduced to its kind.
    pub(super) fn into_wire(self) -> Option<WireObject> {
        let text = |member: Option<BorrowedStr<'_>>| member.map(|text| text.0.into_owned());
        let (version, kind) = (text(self.api_version), text(self.kind));
        serde_json::from_value(serde_json::json!({"apiVersion": version, "kind": kind?})).ok()
    }
}

/// The part of the first line that shows whether it is a header, and if not, what it may be.
#[derive(Debug, Deserialize)]
pub(super) struct PartialHeader<'a> {
    #[serde(borrow)]
    pub(super) log: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) version: Option<&'a RawValue>,
    pub(super) at_ms: Option<IgnoredAny>,
    pub(super) object: Option<IgnoredAny>,
    pub(super) kind: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RawHeader {
    pub(super) clusters: Option<Vec<ClusterSpec>>,
    pub(super) settings: Option<Settings>,
    #[serde(default)]
    pub(super) recorded: bool,
    pub(super) part: Option<u64>,
    pub(super) started_ms: Option<UnixMillis>,
}

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
    pub(super) fn new(header: &'a super::Header, part: Option<LogPart>) -> Self {
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
    object: Option<&'a Object>,
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
    deleted: Option<&'a RawValue>,
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
            deleted: None,
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
                    Outcome::Applied { resource_version, deleted } => EventOut {
                        resource_version: resource_version.as_deref(),
                        deleted: deleted.as_deref().and_then(|o| serde_json::from_str(o).ok()),
                        ..line
                    },
                    Outcome::Refused { error } | Outcome::Conflict { error } => failed(line, error),
                    Outcome::Unanswered { error, deleted } => EventOut {
                        deleted: deleted.as_deref().and_then(|o| serde_json::from_str(o).ok()),
                        ..failed(line, error)
                    },
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
            | EventKind::RetryRequested
            | EventKind::TimedOut
            | EventKind::RecordingEnded => bare,
        }
    }
}
