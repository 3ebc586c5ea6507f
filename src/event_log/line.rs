//! The form of one line after the header, for reading and writing, and its conversion from and to an
//! event.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LineError;
use super::clusters::NamedClusters;
use crate::core::contract::action::{Action, Decision};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::event::{Event, EventKind, EventName, Outcome, OutcomeName};
use crate::core::contract::membership::{JoinRule, OfferState, OfferStateName, SourceName};
use crate::core::data::ids::{ActionId, ClusterName, Kind, NamespacedName, Role};
use crate::core::data::objects::{Object, ObjectError, WireObject};
use crate::core::data::time::UnixMillis;

/// The members of a line, in the order of writing. All are optional: the event determines which it
/// needs, and our error about a missing one is better than serde's.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    /// Only headers have it.
    #[serde(skip_serializing)]
    pub(super) log: Option<IgnoredAny>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_ms: Option<UnixMillis>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<SourceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    join: Option<JoinRule>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    uid: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    roles: Option<Cow<'a, [Role]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<OfferStateName>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    kind: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<LineObject>,
    /// Set for an unreadable object.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    namespace: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<ActionId>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    outcome: Option<Text<'a>>,
    #[serde(borrow, rename = "resourceVersion", skip_serializing_if = "Option::is_none")]
    resource_version: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Text<'a>>,
    /// Why a request failed; absent from older logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<ErrorCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    /// In a `log_gap` line: the number of missing lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<Cow<'a, Action>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) because: Option<Text<'a>>,
}

/// Text that borrows from the line unless it contains escapes. An `Option<Cow<str>>` would always
/// copy: serde borrows only for a bare `Cow` member.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

fn owned(text: Option<Text<'_>>) -> String {
    text.map_or_else(String::new, |text| text.0.into_owned())
}

/// An object, or why it can't be used.
#[derive(Debug)]
pub(super) struct LineObject(pub(super) Result<Arc<Object>, ObjectError>);

impl Serialize for LineObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LineObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(WireObject::deserialize(deserializer)?.try_into().map(Arc::new)))
    }
}

/// The name of the `event` line with the number of missing lines. It never enters a machine.
pub(super) const LOG_GAP: &str = "log_gap";

/// Events of version 1 that only earlier releases' machines have. Their lines are skipped, and a verify
/// stops comparing at the first.
pub(super) const RETIRED_EVENTS: [&str; 6] = [
    "retry_requested",
    "settings_changed",
    "shard_followed",
    "shard_left",
    "lease_api_lost",
    "lease_api_reachable",
];

/// Every valid name of the `event` member in version 1.
pub fn event_names() -> Vec<&'static str> {
    let names = EventName::ALL.into_iter().map(EventName::as_str);
    names.chain(RETIRED_EVENTS).chain([LOG_GAP]).collect()
}

/// Every valid name of the `outcome` member of an `action_finished` line.
pub fn outcome_names() -> Vec<&'static str> {
    OutcomeName::ALL.into_iter().map(OutcomeName::as_str).collect()
}

impl<'a> Line<'a> {
    /// The line with the number of missing lines.
    pub(super) fn gap(at: UnixMillis, lines: u64) -> Self {
        let event = Some(LOG_GAP.into());
        Line { at_ms: Some(at), event, lines: Some(lines), ..Line::default() }
    }

    fn at(&mut self, cluster: &'a ClusterName) {
        self.cluster = Some(cluster.as_str().into());
    }

    fn watch(&mut self, cluster: &'a ClusterName, kind: Kind) {
        self.at(cluster);
        self.kind = Some(kind.as_str().into());
    }

    fn failed(&mut self, failure: &'a RequestFailure) {
        self.error = Some((&*failure.text).into());
        self.cause = Some(failure.cause).filter(|cause| *cause != ErrorCause::Other);
    }
}

impl<'a> From<&'a Decision> for Line<'a> {
    fn from(decision: &'a Decision) -> Self {
        let Decision { at, action, because, .. } = decision;
        let action = Some(Cow::Borrowed(action));
        Line { at_ms: Some(*at), action, because: Some((&**because).into()), ..Line::default() }
    }
}

impl<'a> From<&'a Event> for Line<'a> {
    fn from(event: &'a Event) -> Self {
        let name = Some(EventName::from(&event.kind).as_str().into());
        let mut line = Line { at_ms: Some(event.at), event: name, ..Line::default() };
        match &event.kind {
            EventKind::ClusterAdded { cluster, roles } => {
                line.at(cluster);
                line.roles = Some(Cow::Borrowed(roles));
            }
            EventKind::ClusterRemoved { cluster } => line.at(cluster),
            EventKind::ListStarted { cluster, kind }
            | EventKind::ListFinished { cluster, kind }
            | EventKind::WatchResumed { cluster, kind }
            | EventKind::Bookmark { cluster, kind }
            | EventKind::ResourceVersionRegressed { cluster, kind } => line.watch(cluster, *kind),
            EventKind::WatchLost { cluster, kind, error } => {
                line.watch(cluster, *kind);
                line.failed(error);
            }
            EventKind::Unreadable { cluster, kind, object, error } => {
                line.watch(cluster, *kind);
                line.namespace = Some(object.namespace().into());
                line.name = Some(object.name().into());
                line.failed(error);
            }
            EventKind::Listed { cluster, object }
            | EventKind::Applied { cluster, object }
            | EventKind::Deleted { cluster, object } => {
                line.at(cluster);
                line.object = Some(LineObject(Ok(object.clone())));
            }
            EventKind::ActionFinished { id, outcome } => {
                line.id = Some(*id);
                line.outcome = Some(outcome.name().into());
                if let Some(error) = outcome.error() {
                    line.failed(error);
                }
                match outcome {
                    Outcome::Applied { resource_version } => {
                        line.resource_version = resource_version.as_deref().map(Text::from);
                    }
                    Outcome::Failed { retry_after_ms, .. } => line.retry_after_ms = *retry_after_ms,
                    _ => {}
                }
            }
            EventKind::LeadershipPending { wait_ms } => line.wait_ms = Some(*wait_ms),
            EventKind::DiscoveryStarted { source, join } => {
                line.source = Some(*source);
                line.join = Some(*join);
            }
            EventKind::ClusterOffered { source, cluster, uid, roles, state } => {
                line.source = Some(*source);
                line.at(cluster);
                line.uid = Some((&**uid).into());
                line.roles = Some(Cow::Borrowed(roles));
                line.state = Some(OfferStateName::from(state));
                if let OfferState::Broken { error } = state {
                    line.failed(error);
                }
            }
            EventKind::ClusterWithdrawn { source, cluster, uid } => {
                line.source = Some(*source);
                line.at(cluster);
                line.uid = Some((&**uid).into());
            }
            EventKind::ClusterGone { source, cluster } => {
                line.source = Some(*source);
                line.at(cluster);
            }
            EventKind::DiscoveryFinished { source } | EventKind::DiscoveryResumed { source } => {
                line.source = Some(*source);
            }
            EventKind::DiscoveryLost { source, error } => {
                line.source = Some(*source);
                line.failed(error);
            }
            EventKind::LeadershipAcquired
            | EventKind::LeadershipLost
            | EventKind::TimedOut
            | EventKind::RecordingEnded => {}
        }
        line
    }
}

/// Why a line contains no event.
pub(super) enum NoEvent {
    /// Its object is of a kind that throughline does not use.
    Foreign(ObjectError),
    Bad(LineError),
}

impl From<LineError> for NoEvent {
    fn from(error: LineError) -> Self {
        Self::Bad(error)
    }
}

impl LineError {
    pub(super) fn missing(event: &str, member: &'static str) -> Self {
        LineError::Missing { line: format!("this {event:?} line"), member }
    }
}

impl Line<'_> {
    /// The event on this line.
    pub(super) fn into_event(
        mut self,
        event: EventName,
        clusters: &mut NamedClusters,
    ) -> Result<EventKind, NoEvent> {
        use {EventKind as E, EventName as N};
        let lacks = |member| LineError::missing(event.as_str(), member);
        let source = self.source.ok_or_else(|| lacks("source"));
        Ok(match event {
            N::Listed => {
                self.about_object(event, clusters, |cluster, object| E::Listed { cluster, object })?
            }
            N::Applied => self
                .about_object(event, clusters, |cluster, object| E::Applied { cluster, object })?,
            N::Deleted => self
                .about_object(event, clusters, |cluster, object| E::Deleted { cluster, object })?,
            N::ListStarted => self.about_watch(event, clusters, |cluster, kind, _| {
                E::ListStarted { cluster, kind }
            })?,
            N::ListFinished => self.about_watch(event, clusters, |cluster, kind, _| {
                E::ListFinished { cluster, kind }
            })?,
            N::WatchResumed => self.about_watch(event, clusters, |cluster, kind, _| {
                E::WatchResumed { cluster, kind }
            })?,
            N::Bookmark => {
                self.about_watch(event, clusters, |cluster, kind, _| E::Bookmark { cluster, kind })?
            }
            N::ResourceVersionRegressed => {
                self.about_watch(event, clusters, |cluster, kind, _| E::ResourceVersionRegressed {
                    cluster,
                    kind,
                })?
            }
            N::WatchLost => self.about_watch(event, clusters, |cluster, kind, line| {
                E::WatchLost { cluster, kind, error: line.failure() }
            })?,
            N::Unreadable => self.about_watch(event, clusters, |cluster, kind, mut line| {
                let object =
                    NamespacedName::new(owned(line.namespace.take()), owned(line.name.take()));
                E::Unreadable { cluster, kind, object, error: line.failure() }
            })?,
            N::ClusterAdded => {
                let cluster = clusters.add(&self.new_cluster(event)?);
                let roles = self.roles_of(event, &cluster)?;
                E::ClusterAdded { cluster, roles }
            }
            // Possibly a cluster that was offered and could not join.
            N::ClusterRemoved => {
                E::ClusterRemoved { cluster: clusters.add(&self.new_cluster(event)?) }
            }
            N::ActionFinished => {
                let id = self.id.ok_or_else(|| lacks("id"))?;
                E::ActionFinished { id, outcome: self.outcome(event)? }
            }
            N::LeadershipPending => {
                let wait_ms = self.wait_ms.ok_or_else(|| lacks("wait_ms"))?;
                E::LeadershipPending { wait_ms }
            }
            N::LeadershipAcquired => E::LeadershipAcquired,
            N::LeadershipLost => E::LeadershipLost,
            N::DiscoveryStarted => {
                let join = self.join.ok_or_else(|| lacks("join"))?;
                E::DiscoveryStarted { source: source?, join }
            }
            N::DiscoveryFinished => E::DiscoveryFinished { source: source? },
            N::DiscoveryResumed => E::DiscoveryResumed { source: source? },
            N::DiscoveryLost => E::DiscoveryLost { source: source?, error: self.failure() },
            N::ClusterOffered => {
                let source = source?;
                let cluster = ClusterName::from(&*self.new_cluster(event)?);
                let roles = self.roles_of(event, &cluster)?;
                let uid = owned(self.uid.take());
                let state = match self.state.ok_or_else(|| lacks("state"))? {
                    OfferStateName::Ready => OfferState::Ready,
                    OfferStateName::NotReady => OfferState::NotReady,
                    OfferStateName::Deleting => OfferState::Deleting,
                    OfferStateName::Broken => OfferState::Broken { error: self.failure() },
                };
                E::ClusterOffered { source, cluster, uid, roles, state }
            }
            N::ClusterWithdrawn => {
                let source = source?;
                let cluster = ClusterName::from(&*self.new_cluster(event)?);
                E::ClusterWithdrawn { source, cluster, uid: owned(self.uid) }
            }
            N::ClusterGone => {
                let source = source?;
                let cluster = ClusterName::from(&*self.new_cluster(event)?);
                E::ClusterGone { source, cluster }
            }
            N::TimedOut => E::TimedOut,
            N::RecordingEnded => E::RecordingEnded,
        })
    }

    fn about_object(
        self,
        event: EventName,
        clusters: &mut NamedClusters,
        kind: fn(ClusterName, Arc<Object>) -> EventKind,
    ) -> Result<EventKind, NoEvent> {
        let cluster = clusters.find(event, self.cluster.map(|name| name.0))?;
        let lacks = |member| LineError::missing(event.as_str(), member);
        match self.object.ok_or_else(|| lacks("object"))?.0 {
            Ok(object) => Ok(kind(cluster, object)),
            Err(ObjectError::UnknownKind(kind)) if kind.is_empty() || kind.ends_with(' ') => {
                Err(lacks("object.kind").into())
            }
            Err(error @ ObjectError::UnknownKind(_)) => Err(NoEvent::Foreign(error)),
            Err(source) => Err(LineError::BadObject { source }.into()),
        }
    }

    fn about_watch(
        mut self,
        event: EventName,
        clusters: &mut NamedClusters,
        event_kind: fn(ClusterName, Kind, Self) -> EventKind,
    ) -> Result<EventKind, NoEvent> {
        let cluster = clusters.find(event, self.cluster.take().map(|name| name.0))?;
        let kind = self.kind.take().ok_or_else(|| LineError::missing(event.as_str(), "kind"))?.0;
        let foreign = || NoEvent::Foreign(ObjectError::UnknownKind(kind.to_string()));
        Ok(event_kind(cluster, Kind::parse(&kind).ok_or_else(foreign)?, self))
    }

    /// The name of a cluster that may be new.
    fn new_cluster(&mut self, event: EventName) -> Result<String, LineError> {
        let name = Some(owned(self.cluster.take())).filter(|name| !name.is_empty());
        name.ok_or_else(|| LineError::missing(event.as_str(), "cluster"))
    }

    fn roles_of(
        &mut self,
        event: EventName,
        cluster: &ClusterName,
    ) -> Result<Vec<Role>, LineError> {
        let roles = self.roles.take().ok_or_else(|| LineError::missing(event.as_str(), "roles"))?;
        match roles.is_empty() {
            true => Err(LineError::NoRoles { cluster: cluster.as_str().to_owned() }),
            false => Ok(roles.into_owned()),
        }
    }

    fn outcome(mut self, event: EventName) -> Result<Outcome, LineError> {
        let name = self.outcome.take();
        let name = name.ok_or_else(|| LineError::missing(event.as_str(), "outcome"))?.0;
        let unknown = || LineError::UnknownOutcome { name: name.to_string() };
        Ok(match OutcomeName::parse(&name).ok_or_else(unknown)? {
            OutcomeName::Applied => {
                let resource_version = self.resource_version.map(|text| text.0.into_owned());
                Outcome::Applied { resource_version }
            }
            OutcomeName::Failed => {
                Outcome::Failed { retry_after_ms: self.retry_after_ms, error: self.failure() }
            }
            OutcomeName::Unchanged => Outcome::Unchanged,
            OutcomeName::Superseded => Outcome::Superseded,
            OutcomeName::Refused => Outcome::Refused { error: self.failure() },
            OutcomeName::Unanswered => Outcome::Unanswered { error: self.failure() },
            OutcomeName::Conflict => Outcome::Conflict { error: self.failure() },
            OutcomeName::NotFound => Outcome::NotFound,
            OutcomeName::Dropped => Outcome::Dropped,
            OutcomeName::DryRun => Outcome::DryRun,
        })
    }

    fn failure(self) -> RequestFailure {
        RequestFailure::recorded(owned(self.error), self.cause)
    }
}
