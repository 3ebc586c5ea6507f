//! The members of a line that is read: in one pass, whatever their order.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::ClusterSpec;
use crate::core::contract::action::Action;
use crate::core::contract::error_cause::ErrorCause;
use crate::core::contract::event::{EventName, OutcomeName};
use crate::core::contract::membership::{JoinRule, OfferStateName, SourceName};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ActionId, Role};
use crate::core::data::objects::WireObject;
use crate::core::data::shard::Shard;
use crate::core::data::time::UnixMillis;

/// Text that borrows from the line unless it contains escapes. An `Option<Cow<str>>` would always
/// copy: serde borrows only for a bare `Cow` member.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct BorrowedStr<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The name of the `event` line that says how many lines the log lacks. No machine ever sees it.
pub(super) const LOG_GAP: &str = "log_gap";

/// Events of version 1 that entered the machine of an earlier release and that no machine has any
/// longer. Their lines are skipped, and a verify stops comparing at the first.
pub(super) const RETIRED_EVENTS: [&str; 1] = ["retry_requested"];

/// Every name that the `event` member may have in version 1.
pub const EVENT_NAMES: [&str; EventName::ALL.len() + RETIRED_EVENTS.len() + 1] = {
    let mut names = [LOG_GAP; EventName::ALL.len() + RETIRED_EVENTS.len() + 1];
    let mut i = 0;
    while i < EventName::ALL.len() {
        names[i] = EventName::ALL[i].as_str();
        i += 1;
    }
    let mut retired = 0;
    while retired < RETIRED_EVENTS.len() {
        names[i + retired] = RETIRED_EVENTS[retired];
        retired += 1;
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
    /// One of [`RETIRED_EVENTS`].
    Retired(&'static str),
    Unknown(String),
}

impl EventMember {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Event(name) => name.as_str(),
            Self::LogGap => LOG_GAP,
            Self::Retired(name) => name,
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
                if let Some(name) = EventName::parse(name) {
                    return Ok(EventMember::Event(name));
                }
                if name == LOG_GAP {
                    return Ok(EventMember::LogGap);
                }
                let retired = RETIRED_EVENTS.into_iter().find(|retired| *retired == name);
                let unknown = || EventMember::Unknown(name.to_owned());
                Ok(retired.map_or_else(unknown, EventMember::Retired))
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
    pub(super) release: Option<Box<str>>,
}
