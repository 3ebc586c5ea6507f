//! From a line's bytes to what it says.

use std::collections::BTreeSet;

use serde::de::IgnoredAny;
use serde_json::error::Category;

use super::line::{EventName, RawLine, Sketch, Text};
use super::{Line, Problem};
use crate::core::action::Decision;
use crate::core::event::{Event, Happened, Outcome};
use crate::core::ids::{ClusterName, Kind, Map};
use crate::core::objects::{Object, ObjectError, Wire};
use crate::core::time::UnixMillis;

/// How many characters of a bad line an error quotes.
const EXCERPT_CHARS_MAX: usize = 60;
/// How many cluster names an error lists.
const CLUSTERS_TOLD_MAX: usize = 10;

/// What earlier lines say about later ones.
#[derive(Default)]
pub(super) struct Parser {
    /// Every cluster the log named so far, so that no line allocates its name anew. Removed ones
    /// stay: events may trail the removal.
    clusters: Map<Box<str>, ClusterName>,
    latest: UnixMillis,
    backward_count: u64,
    backward_max_ms: u64,
    skipped_kinds: BTreeSet<String>,
    /// With the line each is about.
    warnings: Vec<(u64, String)>,
    /// Those of them that tell what is missing.
    gaps: Vec<(u64, String)>,
    has_gaps: bool,
}

impl Problem {
    /// What a line has that was cut short. Everything else is wrong however the line goes on.
    pub(super) fn is_torn(&self) -> bool {
        matches!(self, Problem::NotJson { .. } | Problem::NotUtf8 { .. })
    }

    pub(super) fn json(line: &str, error: &serde_json::Error) -> Self {
        let column = error.column();
        let excerpt = excerpt(line.as_bytes(), column);
        let place = format!(" at line {} column {column}", error.line());
        let text = error.to_string();
        let error = text.strip_suffix(&place).unwrap_or(&text).to_owned();
        match serde_json::from_str::<IgnoredAny>(line) {
            Ok(_) => Problem::BadMember { column, error, excerpt },
            Err(_) => Problem::NotJson { column, error, excerpt },
        }
    }

    fn missing(event: &EventName, member: &'static str) -> Self {
        Problem::Missing { line: format!("this {:?} line", event.as_str()), member }
    }
}

impl Parser {
    pub(super) fn warn(&mut self, line_number: u64, text: String) {
        self.warnings.push((line_number, text));
    }

    pub(super) fn take_warnings(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.warnings)
    }

    pub(super) fn take_gaps(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.gaps)
    }

    /// Warns of lines that the log should have.
    pub(super) fn gap(&mut self, line_number: u64, text: String) {
        self.has_gaps = true;
        self.gaps.push((line_number, text.clone()));
        self.warn(line_number, text);
    }

    pub(super) fn add_cluster(&mut self, cluster: &ClusterName) {
        self.clusters.insert(cluster.as_str().into(), cluster.clone());
    }

    /// Warns of what only the whole log shows.
    pub(super) fn sum_up(&mut self, line_number: u64) {
        if self.backward_count > 1 {
            let text = format!(
                "at_ms ran backwards on {} lines in all, by up to {} ms; each counts as the latest \
                 time before it",
                self.backward_count, self.backward_max_ms
            );
            self.warn(line_number, text);
        }
    }

    /// What a line says; `None` when it is about a kind that means nothing here.
    pub(super) fn parse(&mut self, line: &[u8], number: u64) -> Result<Option<Line>, Problem> {
        let line = text(line)?;
        if !line.starts_with('{') {
            return Err(not_an_object(line));
        }
        match serde_json::from_str::<RawLine<'_>>(line) {
            Ok(raw) => self.understand(raw, number),
            Err(error) => {
                if error.classify() == Category::Data && self.skip_foreign(line, number)? {
                    return Ok(None);
                }
                Err(Problem::json(line, &error))
            }
        }
    }

    fn understand(&mut self, raw: RawLine<'_>, number: u64) -> Result<Option<Line>, Problem> {
        if raw.log.is_some() {
            return Err(Problem::SecondHeader);
        }
        let event = match (raw.event, raw.action) {
            (Some(event), None) => event,
            (Some(_), Some(_)) => return Err(Problem::EventAndAction),
            (None, action) => {
                let line = if action.is_some() { "an action's line" } else { "the line" };
                let lacks = |member| Problem::Missing { line: line.to_owned(), member };
                let at_ms = raw.at_ms.ok_or_else(|| lacks("at_ms"))?;
                let action = action.ok_or_else(|| lacks("event"))?;
                let because = raw.because.map_or_else(String::new, |text| text.0.into_owned());
                let at = self.at(at_ms, number);
                return Ok(Some(Line::Action(Decision { at, action: *action, because })));
            }
        };
        let at_ms = raw.at_ms.ok_or_else(|| Problem::missing(&event, "at_ms"))?;
        let what = match event {
            EventName::Applied | EventName::Listed | EventName::Deleted => {
                let cluster = self.cluster(&event, raw.cluster)?;
                let Some(object) = self.object(&event, raw.object, number)? else {
                    return Ok(None);
                };
                match event {
                    EventName::Applied => Happened::Applied { cluster, object },
                    EventName::Listed => Happened::Listed { cluster, object },
                    _ => Happened::Deleted { cluster, object },
                }
            }
            EventName::ListStarted
            | EventName::ListFinished
            | EventName::WatchLost
            | EventName::WatchResumed
            | EventName::WatchHeard
            | EventName::WentBack => {
                let cluster = self.cluster(&event, raw.cluster)?;
                let Text(kind) = raw.kind.ok_or_else(|| Problem::missing(&event, "kind"))?;
                let Some(kind) = Kind::parse(&kind) else {
                    let text = ObjectError::UnknownKind(kind.to_string()).to_string();
                    self.skip(&text, &kind, number);
                    return Ok(None);
                };
                match event {
                    EventName::ListStarted => Happened::ListStarted { cluster, kind },
                    EventName::ListFinished => Happened::ListFinished { cluster, kind },
                    EventName::WatchResumed => Happened::WatchResumed { cluster, kind },
                    EventName::WatchHeard => Happened::WatchHeard { cluster, kind },
                    EventName::WentBack => Happened::WentBack { cluster, kind },
                    _ => {
                        let error = raw.error.map_or_else(String::new, |e| e.0.into_owned());
                        Happened::WatchLost { cluster, kind, error }
                    }
                }
            }
            EventName::ClusterAdded => {
                let name = raw.cluster.filter(|name| !name.0.is_empty());
                let Text(name) = name.ok_or_else(|| Problem::missing(&event, "cluster"))?;
                let roles = raw.roles.ok_or_else(|| Problem::missing(&event, "roles"))?;
                if roles.is_empty() {
                    return Err(Problem::NoRoles { cluster: name.into_owned() });
                }
                let cluster = self
                    .clusters
                    .entry((*name).into())
                    .or_insert_with(|| ClusterName::from(&*name))
                    .clone();
                Happened::ClusterAdded { cluster, roles }
            }
            EventName::ClusterRemoved => {
                Happened::ClusterRemoved { cluster: self.cluster(&event, raw.cluster)? }
            }
            EventName::ActionFinished => {
                let id = raw.id.ok_or_else(|| Problem::missing(&event, "id"))?;
                let Text(name) = raw.outcome.ok_or_else(|| Problem::missing(&event, "outcome"))?;
                let error = || raw.error.map_or_else(String::new, |text| text.0.into_owned());
                let resource_version = raw.resource_version.map(|text| text.0.into_owned());
                let deleted = raw.deleted.map(|object| object.get().into());
                let outcome = match &*name {
                    "applied" => Outcome::Applied { resource_version, deleted },
                    "unanswered" => Outcome::Unanswered { error: error(), deleted },
                    "unchanged" => Outcome::Unchanged,
                    "superseded" => Outcome::Superseded,
                    "refused" => Outcome::Refused { error: error() },
                    "failed" => {
                        Outcome::Failed { error: error(), retry_after_ms: raw.retry_after_ms }
                    }
                    "conflict" => Outcome::Conflict { error: error() },
                    "not_found" => Outcome::NotFound,
                    "dropped" => Outcome::Dropped,
                    "dry_run" => Outcome::DryRun,
                    _ => return Err(Problem::UnknownOutcome { name: name.into_owned() }),
                };
                Happened::ActionFinished { id, outcome }
            }
            EventName::LeadershipAcquired => Happened::LeadershipAcquired,
            EventName::LeadershipLost => Happened::LeadershipLost,
            EventName::TimedOut => Happened::TimedOut,
            EventName::LogGap => {
                let lines = raw.lines.ok_or_else(|| Problem::missing(&event, "lines"))?;
                self.at(at_ms, number);
                let lines = if lines == 1 { "a line".into() } else { format!("{lines} lines") };
                self.gap(
                    number,
                    format!(
                        "the log lacks {lines} here, which could not be written; what was decided \
                         after it may have been decided on what is missing"
                    ),
                );
                return Ok(None);
            }
            EventName::Unknown(name) => return Err(Problem::UnknownEvent { name }),
        };
        Ok(Some(Line::Event(Event { at: self.at(at_ms, number), what })))
    }

    /// The machine's clock does not run backwards, so neither does the log's.
    fn at(&mut self, at_ms: u64, line_number: u64) -> UnixMillis {
        let at = UnixMillis(at_ms);
        if at >= self.latest {
            self.latest = at;
            return at;
        }
        let back_ms = self.latest.since(at);
        self.backward_count += 1;
        self.backward_max_ms = self.backward_max_ms.max(back_ms);
        if self.backward_count == 1 {
            let text = format!(
                "at_ms runs backwards by {back_ms} ms; the line counts as of {}",
                self.latest.0
            );
            self.warn(line_number, text);
        }
        self.latest
    }

    fn cluster(
        &mut self,
        event: &EventName,
        cluster: Option<Text<'_>>,
    ) -> Result<ClusterName, Problem> {
        let Text(cluster) = cluster.ok_or_else(|| Problem::missing(event, "cluster"))?;
        if self.has_gaps && !cluster.is_empty() && !self.clusters.contains_key(&*cluster) {
            // The line that named it may well be among those that are missing.
            self.add_cluster(&ClusterName::from(&*cluster));
        }
        self.clusters.get(&*cluster).cloned().ok_or_else(|| {
            let mut known: Vec<_> = self.clusters.values().map(|c| c.as_str()).collect();
            known.sort_unstable();
            let more = known.len().saturating_sub(CLUSTERS_TOLD_MAX);
            known.truncate(CLUSTERS_TOLD_MAX);
            let mut known = known.join(", ");
            if more > 0 {
                known += &format!(" and {more} more");
            }
            Problem::UnknownCluster { cluster: cluster.into_owned(), known }
        })
    }

    fn object(
        &mut self,
        event: &EventName,
        object: Option<Wire>,
        line_number: u64,
    ) -> Result<Option<std::sync::Arc<Object>>, Problem> {
        let object = object.ok_or_else(|| Problem::missing(event, "object"))?;
        match Object::try_from(object) {
            Ok(object) => Ok(Some(std::sync::Arc::new(object))),
            Err(ObjectError::UnknownKind(kind)) => {
                // Without an apiVersion it is the kind alone.
                let name = kind.rsplit(' ').next().unwrap_or_default().to_owned();
                if name.is_empty() {
                    return Err(Problem::missing(event, "object.kind"));
                }
                let text = ObjectError::UnknownKind(kind.clone()).to_string();
                // A known name in a foreign group is a kind of its own.
                let once = if Kind::parse(&name).is_some() { kind } else { name };
                self.skip(&text, &once, line_number);
                Ok(None)
            }
            Err(source) => Err(Problem::BadObject { source }),
        }
    }

    /// Warns that a kind is skipped, once.
    fn skip(&mut self, text: &str, kind: &str, line_number: u64) {
        if !self.skipped_kinds.contains(kind) {
            self.skipped_kinds.insert(kind.to_owned());
            self.warn(line_number, format!("{text}; all its lines are skipped"));
        }
    }

    /// Whether a line that could not be read is about an object of a foreign kind: its `spec` may
    /// well have a member that is called as one of ours and looks otherwise.
    fn skip_foreign(&mut self, line: &str, number: u64) -> Result<bool, Problem> {
        let Ok(sketch) = serde_json::from_str::<Sketch<'_>>(line) else { return Ok(false) };
        let (Some(_), Some(event), Some(object)) = (sketch.at_ms, sketch.event, sketch.object)
        else {
            return Ok(false);
        };
        let is_about_object =
            matches!(event, EventName::Applied | EventName::Listed | EventName::Deleted);
        if !is_about_object || self.cluster(&event, sketch.cluster).is_err() {
            return Ok(false);
        }
        let object = self.object(&event, object.into_wire(), number);
        Ok(matches!(object, Ok(None)))
    }
}

/// A line without its end, without blanks around it, and the first without its byte order mark.
pub(super) fn content(line: &[u8], line_number: u64) -> &[u8] {
    let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
        Some(rest) if line_number == 1 => rest,
        _ => line,
    };
    line.trim_ascii()
}

pub(super) fn text(line: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(line).map_err(|error| {
        let column = error.valid_up_to() + 1;
        Problem::NotUtf8 { column, excerpt: excerpt(line, column) }
    })
}

fn not_an_object(line: &str) -> Problem {
    match serde_json::from_str::<IgnoredAny>(line) {
        Ok(_) => Problem::NotAnObject { excerpt: excerpt(line.as_bytes(), 1) },
        Err(error) => Problem::json(line, &error),
    }
}

/// What stands around a column (in bytes, from 1), short and printable.
pub(super) fn excerpt(line: &[u8], column: usize) -> String {
    let mut start = 0;
    if line.len() > EXCERPT_CHARS_MAX {
        start = column.min(line.len()).saturating_sub(EXCERPT_CHARS_MAX / 2);
        // Not in the middle of a character, which has at most four bytes.
        let is_inside = |at: usize| line.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
        start -= (0..4.min(start + 1)).find(|back| !is_inside(start - back)).unwrap_or(0);
    }
    let end = line.len().min(start + 4 * EXCERPT_CHARS_MAX);
    String::from_utf8_lossy(&line[start..end])
        .chars()
        .take(EXCERPT_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
