//! The members of a line, read in one pass and written in one order.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{ClusterSpec, Part, VERSION};
use crate::core::action::Action;
use crate::core::event::{Happened, Outcome};
use crate::core::ids::{ActionId, ClusterName, Kind, Role};
use crate::core::objects::{Object, Wire};
use crate::core::settings::Settings;
use crate::core::time::UnixMillis;

/// Text that borrows from the line where it holds no escapes. `Option<Cow<str>>` would always
/// copy: serde borrows only for a bare `Cow` member.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The `event` member.
#[derive(Debug)]
pub(super) enum EventName {
    ClusterAdded,
    ClusterRemoved,
    ListStarted,
    Listed,
    ListFinished,
    Applied,
    Deleted,
    WatchLost,
    WatchResumed,
    WatchHeard,
    WentBack,
    LeadershipAcquired,
    LeadershipLost,
    ActionFinished,
    TimedOut,
    LogGap,
    Unknown(String),
}

impl EventName {
    fn parse(name: &str) -> Self {
        match name {
            "cluster_added" => Self::ClusterAdded,
            "cluster_removed" => Self::ClusterRemoved,
            "list_started" => Self::ListStarted,
            "listed" => Self::Listed,
            "list_finished" => Self::ListFinished,
            "applied" => Self::Applied,
            "deleted" => Self::Deleted,
            "watch_lost" => Self::WatchLost,
            "watch_resumed" => Self::WatchResumed,
            "watch_heard" => Self::WatchHeard,
            "went_back" => Self::WentBack,
            "leadership_acquired" => Self::LeadershipAcquired,
            "leadership_lost" => Self::LeadershipLost,
            "action_finished" => Self::ActionFinished,
            "timed_out" => Self::TimedOut,
            "log_gap" => Self::LogGap,
            other => Self::Unknown(other.to_owned()),
        }
    }

    /// The event's name in the log.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::ClusterAdded => "cluster_added",
            Self::ClusterRemoved => "cluster_removed",
            Self::ListStarted => "list_started",
            Self::Listed => "listed",
            Self::ListFinished => "list_finished",
            Self::Applied => "applied",
            Self::Deleted => "deleted",
            Self::WatchLost => "watch_lost",
            Self::WatchResumed => "watch_resumed",
            Self::WatchHeard => "watch_heard",
            Self::WentBack => "went_back",
            Self::LeadershipAcquired => "leadership_acquired",
            Self::LeadershipLost => "leadership_lost",
            Self::ActionFinished => "action_finished",
            Self::TimedOut => "timed_out",
            Self::LogGap => "log_gap",
            Self::Unknown(name) => name,
        }
    }
}

impl<'de> Deserialize<'de> for EventName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = EventName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an event")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<EventName, E> {
                Ok(EventName::parse(name))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// Every member a line may have. All are optional: which ones a line needs depends on its event,
/// and a missing one gets a better error than serde's.
#[derive(Debug, Deserialize)]
pub(super) struct RawLine<'a> {
    /// Only a header has it.
    pub(super) log: Option<IgnoredAny>,
    pub(super) at_ms: Option<u64>,
    pub(super) event: Option<EventName>,
    #[serde(borrow)]
    pub(super) cluster: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    pub(super) object: Option<Wire>,
    #[serde(borrow)]
    pub(super) error: Option<Text<'a>>,
    pub(super) id: Option<ActionId>,
    #[serde(borrow)]
    pub(super) outcome: Option<Text<'a>>,
    #[serde(borrow, rename = "resourceVersion")]
    pub(super) resource_version: Option<Text<'a>>,
    pub(super) retry_after_ms: Option<u64>,
    /// Of a delete that was carried out: the whole object, as it was.
    #[serde(borrow)]
    pub(super) deleted: Option<&'a RawValue>,
    pub(super) roles: Option<Vec<Role>>,
    /// Of a gap: how many.
    pub(super) lines: Option<u64>,
    /// Boxed, because most lines have none and every line is moved.
    pub(super) action: Option<Box<Action>>,
    #[serde(borrow)]
    pub(super) because: Option<Text<'a>>,
}

/// Of a line that could not be read as [`RawLine`] as much as tells whether it matters: an object
/// of a foreign kind may well have a `spec.rules` or a `spec.parentRefs` of another shape.
#[derive(Debug, Deserialize)]
pub(super) struct Sketch<'a> {
    pub(super) at_ms: Option<u64>,
    #[serde(borrow)]
    pub(super) cluster: Option<Text<'a>>,
    pub(super) event: Option<EventName>,
    #[serde(borrow)]
    pub(super) object: Option<SketchedObject<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SketchedObject<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
}

impl SketchedObject<'_> {
    /// The same object with nothing but its kind.
    pub(super) fn into_wire(self) -> Option<Wire> {
        let text = |member: Option<Text<'_>>| member.map(|text| text.0.into_owned());
        let (version, kind) = (text(self.api_version), text(self.kind));
        serde_json::from_value(serde_json::json!({"apiVersion": version, "kind": kind?})).ok()
    }
}

/// Of the first line as much as tells whether it is a header, and what else it may be.
#[derive(Debug, Deserialize)]
pub(super) struct HeaderSketch<'a> {
    #[serde(borrow)]
    pub(super) log: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) version: Option<&'a RawValue>,
    pub(super) at_ms: Option<IgnoredAny>,
    pub(super) object: Option<IgnoredAny>,
    pub(super) kind: Option<IgnoredAny>,
}

/// A header's members.
#[derive(Debug, Deserialize)]
pub(super) struct RawHeader {
    pub(super) clusters: Option<Vec<ClusterSpec>>,
    pub(super) settings: Option<Settings>,
    #[serde(default)]
    pub(super) recorded: bool,
    pub(super) part: Option<u64>,
    pub(super) started_ms: Option<UnixMillis>,
}

/// A header on its way out.
#[derive(Serialize)]
pub(super) struct HeaderOut<'a> {
    log: &'static str,
    version: u64,
    #[serde(flatten)]
    part: Option<Part>,
    clusters: &'a [ClusterSpec],
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'a Settings>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recorded: bool,
}

impl<'a> HeaderOut<'a> {
    pub(super) fn new(header: &'a super::Header, part: Option<Part>) -> Self {
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

/// A gap on its way out.
#[derive(Serialize)]
pub(super) struct GapOut {
    pub(super) at_ms: UnixMillis,
    pub(super) event: &'static str,
    pub(super) lines: u64,
}

/// A decision on its way out.
#[derive(Serialize)]
pub(super) struct DecisionOut<'a> {
    pub(super) at_ms: UnixMillis,
    pub(super) action: &'a Action,
    pub(super) because: &'a str,
}

/// An event on its way out.
#[derive(Serialize)]
pub(super) struct EventOut<'a> {
    at_ms: UnixMillis,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ClusterName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    roles: Option<&'a [Role]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a Object>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<ActionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "resourceVersion")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<&'a RawValue>,
}

impl<'a> EventOut<'a> {
    pub(super) fn new(at_ms: UnixMillis, what: &'a Happened) -> Self {
        let bare = |event| EventOut {
            at_ms,
            event,
            cluster: None,
            roles: None,
            kind: None,
            object: None,
            id: None,
            outcome: None,
            resource_version: None,
            error: None,
            retry_after_ms: None,
            deleted: None,
        };
        let of_kind = |event, cluster, kind| EventOut {
            cluster: Some(cluster),
            kind: Some(kind),
            ..bare(event)
        };
        let of_object = |event, cluster, object| EventOut {
            cluster: Some(cluster),
            object: Some(object),
            ..bare(event)
        };
        match what {
            Happened::ClusterAdded { cluster, roles } => {
                EventOut { cluster: Some(cluster), roles: Some(roles), ..bare("cluster_added") }
            }
            Happened::ClusterRemoved { cluster } => {
                EventOut { cluster: Some(cluster), ..bare("cluster_removed") }
            }
            Happened::ListStarted { cluster, kind } => of_kind("list_started", cluster, *kind),
            Happened::Listed { cluster, object } => of_object("listed", cluster, &**object),
            Happened::ListFinished { cluster, kind } => of_kind("list_finished", cluster, *kind),
            Happened::Applied { cluster, object } => of_object("applied", cluster, &**object),
            Happened::Deleted { cluster, object } => of_object("deleted", cluster, &**object),
            Happened::WatchLost { cluster, kind, error } => {
                EventOut { error: Some(error), ..of_kind("watch_lost", cluster, *kind) }
            }
            Happened::WatchResumed { cluster, kind } => of_kind("watch_resumed", cluster, *kind),
            Happened::WatchHeard { cluster, kind } => of_kind("watch_heard", cluster, *kind),
            Happened::WentBack { cluster, kind } => of_kind("went_back", cluster, *kind),
            Happened::LeadershipAcquired => bare("leadership_acquired"),
            Happened::LeadershipLost => bare("leadership_lost"),
            Happened::ActionFinished { id, outcome } => {
                let line = EventOut {
                    id: Some(*id),
                    outcome: Some(outcome.name()),
                    ..bare("action_finished")
                };
                match outcome {
                    Outcome::Applied { resource_version, deleted } => EventOut {
                        resource_version: resource_version.as_deref(),
                        deleted: deleted.as_deref().and_then(|o| serde_json::from_str(o).ok()),
                        ..line
                    },
                    Outcome::Refused { error } | Outcome::Conflict { error } => {
                        EventOut { error: Some(error), ..line }
                    }
                    Outcome::Unanswered { error, deleted } => EventOut {
                        error: Some(error),
                        deleted: deleted.as_deref().and_then(|o| serde_json::from_str(o).ok()),
                        ..line
                    },
                    Outcome::Failed { error, retry_after_ms } => {
                        EventOut { error: Some(error), retry_after_ms: *retry_after_ms, ..line }
                    }
                    Outcome::Unchanged
                    | Outcome::Superseded
                    | Outcome::NotFound
                    | Outcome::Dropped
                    | Outcome::DryRun => line,
                }
            }
            Happened::TimedOut => bare("timed_out"),
        }
    }
}
