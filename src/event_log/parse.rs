//! From the bytes of a line to an event or an action.

use std::collections::BTreeSet;

use serde::de::IgnoredAny;
use serde_json::error::Category;

use super::line::{BorrowedStr, EventMember, LOG_GAP, PartialLine, RawLine};
use super::line_text::{excerpt, not_an_object, text};
use super::withheld::ReadAnnotations;
use super::{FIRST_RELEASE, LineError, LogEntry};
use crate::core::contract::action::{Decision, Urgency};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::event::{Event, EventKind, EventName, Outcome, OutcomeName};
use crate::core::contract::membership::{OfferState, OfferStateName};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::map::Map;
use crate::core::data::objects::{Object, ObjectError, WireObject};
use crate::core::data::time::UnixMillis;

fn failure(error: Option<BorrowedStr<'_>>, cause: Option<ErrorCause>) -> RequestFailure {
    RequestFailure::recorded(error.map_or_else(String::new, |text| text.0.into_owned()), cause)
}

/// How many cluster names an error lists.
const CLUSTERS_SHOWN_MAX: usize = 10;

/// Parses lines one by one, and remembers what later lines refer to.
#[derive(Default)]
pub(super) struct Parser {
    /// Every cluster that the log has named, so that its name is allocated once. Removed clusters
    /// stay, because events may trail the removal.
    clusters: Map<Box<str>, ClusterName>,
    pub(super) annotations: ReadAnnotations,
    pub(super) latest: UnixMillis,
    pub(super) backward_count: u64,
    pub(super) backward_max_ms: u64,
    pub(super) skipped_kinds: BTreeSet<String>,
    /// Each with its line number.
    pub(super) warnings: Vec<(u64, String)>,
    /// Those made so far, taken or not.
    pub(super) warning_count: usize,
    /// The warnings about missing lines.
    pub(super) gaps: Vec<(u64, String)>,
    pub(super) has_gaps: bool,
    /// Of the header.
    pub(super) release: Option<Box<str>>,
    /// An event that the machine no longer has was skipped.
    has_retired: bool,
}

impl LineError {
    /// Whether a line that was cut short can look like this. Every other problem would remain if the
    /// line went on.
    pub(super) fn is_torn(&self) -> bool {
        matches!(self, LineError::NotJson { .. } | LineError::NotUtf8 { .. })
    }

    pub(super) fn json(line: &str, error: &serde_json::Error) -> Self {
        let column = error.column();
        let excerpt = excerpt(line.as_bytes(), column);
        let place = format!(" at line {} column {column}", error.line());
        let text = error.to_string();
        let error = text.strip_suffix(&place).unwrap_or(&text).to_owned();
        match serde_json::from_str::<IgnoredAny>(line) {
            Ok(_) => LineError::BadMember { column, error, excerpt },
            Err(_) => LineError::NotJson { column, error, excerpt },
        }
    }

    fn missing(event: &str, member: &'static str) -> Self {
        LineError::Missing { line: format!("this {event:?} line"), member }
    }
}

impl Parser {
    pub(super) fn add_cluster(&mut self, cluster: &ClusterName) {
        self.clusters.insert(cluster.as_str().into(), cluster.clone());
    }

    /// Warns about what only the whole log shows.
    pub(super) fn add_final_warnings(&mut self, line_number: u64) {
        if self.backward_count > 1 {
            let text = format!(
                "at_ms goes back on {} lines in total, by up to {} ms; each line counts as \
                 the latest time before it",
                self.backward_count, self.backward_max_ms
            );
            self.warn(line_number, &text);
        }
    }

    /// `None` for a line about a kind that throughline does not use.
    pub(super) fn parse(
        &mut self,
        line: &[u8],
        number: u64,
    ) -> Result<Option<LogEntry>, LineError> {
        let line = text(line)?;
        if !line.starts_with('{') {
            return Err(not_an_object(line));
        }
        match serde_json::from_str::<RawLine<'_>>(line) {
            Ok(raw) => {
                if let Some(at_ms) = raw.at_ms {
                    self.check_time(line, at_ms)?;
                }
                self.interpret(raw, number)
            }
            Err(error) => {
                if error.classify() == Category::Data && self.skip_foreign(line, number)? {
                    return Ok(None);
                }
                Err(LineError::json(line, &error))
            }
        }
    }

    fn interpret(&mut self, raw: RawLine<'_>, number: u64) -> Result<Option<LogEntry>, LineError> {
        if raw.log.is_some() {
            return Err(LineError::SecondHeader);
        }
        let event = match (raw.event, raw.action) {
            (Some(event), None) => event,
            (Some(_), Some(_)) => return Err(LineError::EventAndAction),
            (None, action) => {
                let line = if action.is_some() { "this action's line" } else { "the line" };
                let missing = |member| LineError::Missing { line: line.to_owned(), member };
                let at_ms = raw.at_ms.ok_or_else(|| missing("at_ms"))?;
                let action = action.ok_or_else(|| missing("event"))?;
                let because = raw.because.map_or_else(String::new, |text| text.0.into_owned());
                let at = self.at(at_ms, number);
                let urgency = Urgency::of(action.verb);
                let decision = Decision { at, action: *action, urgency, because };
                return Ok(Some(LogEntry::Action(decision)));
            }
        };
        let at_ms = raw.at_ms.ok_or_else(|| LineError::missing(event.as_str(), "at_ms"))?;
        let event = match event {
            EventMember::Event(event) => event,
            EventMember::LogGap => {
                let missing = raw.lines.ok_or_else(|| LineError::missing(LOG_GAP, "lines"))?;
                self.at(at_ms, number);
                self.log_gap(missing, number);
                return Ok(None);
            }
            EventMember::Retired(name) => {
                self.at(at_ms, number);
                self.retired(name, number);
                return Ok(Some(LogEntry::Retired));
            }
            EventMember::Unknown(name) => return Err(LineError::UnknownEvent { name }),
        };
        let lacks = |member| LineError::missing(event.as_str(), member);
        let error = || failure(raw.error, raw.cause);
        let kind = match event {
            EventName::Applied | EventName::Listed | EventName::Deleted => {
                let cluster = self.cluster(event, raw.cluster)?;
                let Some(object) = self.object(event, raw.object, number)? else {
                    return Ok(None);
                };
                match event {
                    EventName::Applied => EventKind::Applied { cluster, object },
                    EventName::Listed => EventKind::Listed { cluster, object },
                    _ => EventKind::Deleted { cluster, object },
                }
            }
            EventName::ListStarted
            | EventName::ListFinished
            | EventName::Unreadable
            | EventName::WatchLost
            | EventName::WatchResumed
            | EventName::Bookmark
            | EventName::ResourceVersionRegressed => {
                let cluster = self.cluster(event, raw.cluster)?;
                let BorrowedStr(kind) = raw.kind.ok_or_else(|| lacks("kind"))?;
                let Some(kind) = Kind::parse(&kind) else {
                    let text = ObjectError::UnknownKind(kind.to_string()).to_string();
                    self.skip(&text, &kind, number);
                    return Ok(None);
                };
                match event {
                    EventName::ListStarted => EventKind::ListStarted { cluster, kind },
                    EventName::ListFinished => EventKind::ListFinished { cluster, kind },
                    EventName::WatchResumed => EventKind::WatchResumed { cluster, kind },
                    EventName::Bookmark => EventKind::Bookmark { cluster, kind },
                    EventName::Unreadable => {
                        let text = |text: Option<BorrowedStr<'_>>| text.map(|t| t.0.into_owned());
                        let [namespace, name] = [raw.namespace, raw.name].map(text);
                        let (namespace, name) =
                            (namespace.unwrap_or_default(), name.unwrap_or_default());
                        let object = ObjectKey { namespace, name };
                        EventKind::Unreadable { cluster, kind, object, error: error() }
                    }
                    EventName::ResourceVersionRegressed => {
                        EventKind::ResourceVersionRegressed { cluster, kind }
                    }
                    _ => EventKind::WatchLost { cluster, kind, error: error() },
                }
            }
            EventName::ClusterAdded => {
                let name = raw.cluster.filter(|name| !name.0.is_empty());
                let BorrowedStr(name) = name.ok_or_else(|| lacks("cluster"))?;
                let roles = raw.roles.ok_or_else(|| lacks("roles"))?;
                if roles.is_empty() {
                    return Err(LineError::NoRoles { cluster: name.into_owned() });
                }
                let cluster = self
                    .clusters
                    .entry((*name).into())
                    .or_insert_with(|| ClusterName::from(&*name))
                    .clone();
                EventKind::ClusterAdded { cluster, roles }
            }
            EventName::ClusterRemoved => {
                EventKind::ClusterRemoved { cluster: self.cluster(event, raw.cluster)? }
            }
            EventName::ActionFinished => {
                let id = raw.id.ok_or_else(|| lacks("id"))?;
                let BorrowedStr(name) = raw.outcome.ok_or_else(|| lacks("outcome"))?;
                let Some(name) = OutcomeName::parse(&name) else {
                    return Err(LineError::UnknownOutcome { name: name.into_owned() });
                };
                let resource_version = raw.resource_version.map(|text| text.0.into_owned());
                let outcome = match name {
                    OutcomeName::Applied => Outcome::Applied { resource_version },
                    OutcomeName::Unchanged => Outcome::Unchanged,
                    OutcomeName::Superseded => Outcome::Superseded,
                    OutcomeName::Refused => Outcome::Refused { error: error() },
                    OutcomeName::Failed => {
                        Outcome::Failed { error: error(), retry_after_ms: raw.retry_after_ms }
                    }
                    OutcomeName::Unanswered => Outcome::Unanswered { error: error() },
                    OutcomeName::Conflict => Outcome::Conflict { error: error() },
                    OutcomeName::NotFound => Outcome::NotFound,
                    OutcomeName::Dropped => Outcome::Dropped,
                    OutcomeName::DryRun => Outcome::DryRun,
                };
                EventKind::ActionFinished { id, outcome }
            }
            EventName::LeadershipPending => EventKind::LeadershipPending {
                wait_ms: raw.wait_ms.ok_or_else(|| lacks("wait_ms"))?,
                shard: raw.shard,
            },
            EventName::LeadershipAcquired => EventKind::LeadershipAcquired { shard: raw.shard },
            EventName::LeadershipLost => EventKind::LeadershipLost { shard: raw.shard },
            EventName::ShardFollowed => EventKind::ShardFollowed { shard: raw.shard },
            EventName::ShardLeft => EventKind::ShardLeft { shard: raw.shard },
            EventName::LeaseApiLost => EventKind::LeaseApiLost,
            EventName::LeaseApiReachable => EventKind::LeaseApiReachable,
            EventName::DiscoveryStarted
            | EventName::DiscoveryFinished
            | EventName::DiscoveryLost
            | EventName::DiscoveryResumed
            | EventName::ClusterOffered
            | EventName::ClusterWithdrawn
            | EventName::ClusterGone => {
                let source = raw.source.ok_or_else(|| lacks("source"))?;
                let cluster = || {
                    let name = raw.cluster.filter(|name| !name.0.is_empty());
                    name.map(|BorrowedStr(name)| name).ok_or_else(|| lacks("cluster"))
                };
                let uid = raw.uid.map_or_else(String::new, |text| text.0.into_owned());
                match event {
                    EventName::DiscoveryStarted => {
                        let join = raw.join.ok_or_else(|| lacks("join"))?;
                        EventKind::DiscoveryStarted { source, join }
                    }
                    EventName::DiscoveryFinished => EventKind::DiscoveryFinished { source },
                    EventName::DiscoveryResumed => EventKind::DiscoveryResumed { source },
                    EventName::DiscoveryLost => EventKind::DiscoveryLost { source, error: error() },
                    EventName::ClusterOffered => {
                        let name = cluster()?;
                        let state = match raw.state.ok_or_else(|| lacks("state"))? {
                            OfferStateName::Ready => OfferState::Ready,
                            OfferStateName::NotReady => OfferState::NotReady,
                            OfferStateName::Deleting => OfferState::Deleting,
                            OfferStateName::Broken => OfferState::Broken { error: error() },
                        };
                        let roles = raw.roles.ok_or_else(|| lacks("roles"))?;
                        if roles.is_empty() {
                            return Err(LineError::NoRoles { cluster: name.into_owned() });
                        }
                        let cluster = ClusterName::from(&*name);
                        EventKind::ClusterOffered { source, cluster, uid, roles, state }
                    }
                    EventName::ClusterWithdrawn => {
                        let cluster = ClusterName::from(&*cluster()?);
                        EventKind::ClusterWithdrawn { source, cluster, uid }
                    }
                    _ => {
                        EventKind::ClusterGone { source, cluster: ClusterName::from(&*cluster()?) }
                    }
                }
            }
            EventName::SettingsChanged => EventKind::SettingsChanged {
                settings: raw.settings.ok_or_else(|| lacks("settings"))?,
            },
            EventName::TimedOut => EventKind::TimedOut,
            EventName::RecordingEnded => EventKind::RecordingEnded,
        };
        Ok(Some(LogEntry::Event(Event { at: self.at(at_ms, number), kind })))
    }

    /// A line that stands for lines which could not be written.
    fn log_gap(&mut self, missing: u64, line_number: u64) {
        let lines = if missing == 1 { "1 line is".into() } else { format!("{missing} lines are") };
        self.gap(
            line_number,
            &format!(
                "{lines} missing here because they could not be written; later decisions may depend \
                 on missing events"
            ),
        );
    }

    /// Warns at the first line whose event the machine no longer has.
    fn retired(&mut self, event: &str, line_number: u64) {
        if std::mem::replace(&mut self.has_retired, true) {
            return;
        }
        let release = self.release.as_deref().unwrap_or(FIRST_RELEASE);
        let text = format!(
            "throughline {release} wrote {event:?}, an event that this release does not have: such lines \
             are skipped, and from here on no action is compared"
        );
        self.missing(line_number, &text);
    }

    fn cluster(
        &mut self,
        event: EventName,
        cluster: Option<BorrowedStr<'_>>,
    ) -> Result<ClusterName, LineError> {
        let BorrowedStr(cluster) =
            cluster.ok_or_else(|| LineError::missing(event.as_str(), "cluster"))?;
        if self.has_gaps && !cluster.is_empty() && !self.clusters.contains_key(&*cluster) {
            // The line that named it may be among the missing ones.
            self.add_cluster(&ClusterName::from(&*cluster));
        }
        self.clusters.get(&*cluster).cloned().ok_or_else(|| {
            let mut known: Vec<_> = self.clusters.values().map(|c| c.as_str()).collect();
            known.sort_unstable();
            let more = known.len().saturating_sub(CLUSTERS_SHOWN_MAX);
            known.truncate(CLUSTERS_SHOWN_MAX);
            let mut known = known.join(", ");
            if more > 0 {
                known += &format!(" and {more} more");
            }
            LineError::UnknownCluster { cluster: cluster.into_owned(), known }
        })
    }

    fn object(
        &mut self,
        event: EventName,
        object: Option<WireObject>,
        line_number: u64,
    ) -> Result<Option<std::sync::Arc<Object>>, LineError> {
        let object = object.ok_or_else(|| LineError::missing(event.as_str(), "object"))?;
        match Object::try_from(object) {
            Ok(mut object) => {
                self.annotations.fill(&mut object);
                Ok(Some(std::sync::Arc::new(object)))
            }
            Err(ObjectError::UnknownKind(kind)) => {
                // `apiVersion kind`, or the kind alone where there is no apiVersion.
                let name = kind.rsplit(' ').next().unwrap_or_default().to_owned();
                if name.is_empty() {
                    return Err(LineError::missing(event.as_str(), "object.kind"));
                }
                let text = ObjectError::UnknownKind(kind.clone()).to_string();
                // A known name in another group is another kind.
                let once = if Kind::parse(&name).is_some() { kind } else { name };
                self.skip(&text, &once, line_number);
                Ok(None)
            }
            Err(source) => Err(LineError::BadObject { source }),
        }
    }

    /// Whether an unreadable line is about an object of a kind that throughline does not use: its
    /// `spec` may have a member with a name that throughline reads, but of another type.
    fn skip_foreign(&mut self, line: &str, number: u64) -> Result<bool, LineError> {
        let Ok(sketch) = serde_json::from_str::<PartialLine<'_>>(line) else { return Ok(false) };
        let (Some(_), Some(EventMember::Event(event)), Some(object)) =
            (sketch.at_ms, sketch.event, sketch.object)
        else {
            return Ok(false);
        };
        let is_about_object =
            matches!(event, EventName::Applied | EventName::Listed | EventName::Deleted);
        if !is_about_object || self.cluster(event, sketch.cluster).is_err() {
            return Ok(false);
        }
        let object = self.object(event, object.into_wire(), number);
        Ok(matches!(object, Ok(None)))
    }
}
