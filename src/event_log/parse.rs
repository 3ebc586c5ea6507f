//! Parses the bytes of a line into an event or an action, and collects warnings.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;
use serde_json::value::{RawValue, Value};

use super::clusters::NamedClusters;
use super::line::{LOG_GAP, Line, LineObject, NoEvent, RETIRED_EVENTS};
use super::line_text::{excerpt, not_an_object, text};
use super::withheld::ReadAnnotations;
use super::{FIRST_RELEASE, Header, LineError, LogEntry, Warning};
use crate::core::contract::action::{Decision, Urgency};
use crate::core::contract::event::{Event, EventName};
use crate::core::data::ids::Kind;
use crate::core::data::objects::ObjectError;
use crate::core::data::time::UnixMillis;
use crate::outside_text::brief;

/// A longer step from one line to the next is an error in the log.
const STEP_MAX_MS: u64 = 3_653 * 86_400_000;

/// The most warnings of one log.
const WARNINGS_MAX: usize = 1_000;

/// The most kinds reported as skipped. A Kubernetes cluster with a hundred operators has fewer.
const KINDS_MAX: usize = 500;

/// Parses lines one by one, and stores the data that later lines refer to.
#[derive(Default)]
pub(super) struct Parser {
    /// The file's name, for warnings.
    pub(super) file: Arc<str>,
    clusters: NamedClusters,
    annotations: ReadAnnotations,
    latest: UnixMillis,
    backward_count: u64,
    backward_max_ms: u64,
    skipped_kinds: BTreeSet<String>,
    pub(super) warnings: Vec<Warning>,
    /// The number of warnings so far, taken or not.
    warning_count: usize,
    /// The release in the header.
    release: Option<Box<str>>,
    /// Whether a retired event was skipped.
    has_retired: bool,
}

impl LineError {
    /// Whether a truncated line can have this error. Every other error would remain if the line
    /// continued.
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
}

impl Parser {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.into(), ..Self::default() }
    }

    pub(super) fn begin(&mut self, header: &Header) {
        self.annotations = ReadAnnotations::of(header);
        self.release.clone_from(&header.release);
        self.add_clusters(header);
    }

    pub(super) fn add_clusters(&mut self, header: &Header) {
        for cluster in &header.clusters {
            self.clusters.add(cluster.name.as_str());
        }
    }

    /// `None` for a line without an entry: about a kind that throughline does not use, or a gap.
    pub(super) fn parse(
        &mut self,
        line: &[u8],
        number: u64,
    ) -> Result<Option<LogEntry>, LineError> {
        let text = text(line)?;
        if !text.starts_with('{') {
            return Err(not_an_object(text));
        }
        match serde_json::from_str::<Line<'_>>(text) {
            Ok(line) => {
                if let Some(at) = line.at_ms {
                    self.check_time(text, at)?;
                }
                self.entry(line, number)
            }
            Err(error) => {
                let is_foreign = error.classify() == Category::Data
                    && self.without_content(text, number).is_some_and(|entry| entry.is_none());
                if is_foreign { Ok(None) } else { Err(LineError::json(text, &error)) }
            }
        }
    }

    /// Parses an unreadable line again without the content of its object. The object may be of a kind
    /// that throughline does not use, with a member of a known name but another type.
    fn without_content(&mut self, text: &str, number: u64) -> Option<Option<LogEntry>> {
        let mut line: Value = serde_json::from_str(text).ok()?;
        line.get("at_ms")?;
        let object = line.get_mut("object")?.as_object_mut()?;
        object.retain(|member, _| ["apiVersion", "kind"].contains(&member.as_str()));
        self.entry(Line::deserialize(&line).ok()?, number).ok()
    }

    fn entry(&mut self, mut line: Line<'_>, number: u64) -> Result<Option<LogEntry>, LineError> {
        if line.log.is_some() {
            return Err(LineError::SecondHeader);
        }
        let (event, action) = match (line.event.take(), line.action.take()) {
            (Some(_), Some(_)) => return Err(LineError::EventAndAction),
            (event, action) => (event, action),
        };
        let Some(event) = event else {
            let what = if action.is_some() { "this action's line" } else { "the line" };
            let missing = |member| LineError::Missing { line: what.to_owned(), member };
            let at = line.at_ms.ok_or_else(|| missing("at_ms"))?;
            let action = action.ok_or_else(|| missing("event"))?.into_owned();
            let because = line.because.map_or_else(String::new, |text| text.0.into_owned());
            let at = self.at(at, number);
            let urgency = Urgency::of(action.verb);
            return Ok(Some(LogEntry::Action(Decision { at, action, urgency, because })));
        };
        let at = line.at_ms.ok_or_else(|| LineError::missing(&event.0, "at_ms"))?;
        let Some(name) = EventName::parse(&event.0) else {
            return self.no_event(&event.0, at, line.lines, number);
        };
        if let Some(LineObject(Ok(object))) = &mut line.object {
            // No other reference exists yet, so nothing is copied.
            self.annotations.fill(Arc::make_mut(object));
        }
        match line.into_event(name, &mut self.clusters) {
            Ok(kind) => Ok(Some(LogEntry::Event(Event { at: self.at(at, number), kind }))),
            Err(NoEvent::Bad(error)) => Err(error),
            Err(NoEvent::Foreign(error)) => {
                self.skip(&error, number);
                Ok(None)
            }
        }
    }

    /// Handles a line whose event does not enter a machine.
    fn no_event(
        &mut self,
        event: &str,
        at: UnixMillis,
        lines: Option<u64>,
        number: u64,
    ) -> Result<Option<LogEntry>, LineError> {
        if event == LOG_GAP {
            let lines = lines.ok_or_else(|| LineError::missing(LOG_GAP, "lines"))?;
            self.at(at, number);
            let lines = if lines == 1 { "1 line is".into() } else { format!("{lines} lines are") };
            let text = format!(
                "{lines} missing here because they could not be written; later decisions may depend \
                 on missing events"
            );
            self.gap(number, &text);
            return Ok(None);
        }
        if !RETIRED_EVENTS.contains(&event) {
            return Err(LineError::UnknownEvent { name: event.to_owned() });
        }
        self.at(at, number);
        if !std::mem::replace(&mut self.has_retired, true) {
            let release = self.release.as_deref().unwrap_or(FIRST_RELEASE);
            let text = format!(
                "throughline {release} wrote {event:?}, an event that this release does not have: such \
                 lines are skipped, and from here on no action is compared"
            );
            self.add_warning(number, &text, true);
        }
        Ok(Some(LogEntry::Retired))
    }

    /// Refuses a time that no clock can have shown.
    fn check_time(&self, line: &str, at: UnixMillis) -> Result<(), LineError> {
        let step_ms = at.since(self.latest).max(self.latest.since(at));
        let defect = if at < UnixMillis::EARLIEST {
            "before the year 2000".to_owned()
        } else if at > UnixMillis::LATEST {
            "after the year 2199".to_owned()
        } else if self.latest > UnixMillis(0) && step_ms > STEP_MAX_MS {
            format!("more than ten years from {}, the latest time before it", self.latest.0)
        } else {
            return Ok(());
        };
        Err(LineError::BadTime { column: column_of_time(line), at_ms: at.0, defect })
    }

    /// The machine's clock never runs backwards, so the log's must not either.
    fn at(&mut self, at: UnixMillis, line_number: u64) -> UnixMillis {
        if at >= self.latest {
            self.latest = at;
            return at;
        }
        let back_ms = self.latest.since(at);
        self.backward_count += 1;
        self.backward_max_ms = self.backward_max_ms.max(back_ms);
        if self.backward_count == 1 {
            let text = format!(
                "at_ms goes back by {back_ms} ms; the line counts as {}, the latest time before it",
                self.latest.0
            );
            self.warn(line_number, &text);
        }
        self.latest
    }

    /// Warns about problems that only the whole log shows.
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

    pub(super) fn warn(&mut self, line_number: u64, text: &str) {
        self.add_warning(line_number, text, false);
    }

    /// Warns about missing lines.
    pub(super) fn gap(&mut self, line_number: u64, text: &str) {
        self.clusters.has_gaps = true;
        self.add_warning(line_number, text, true);
    }

    fn add_warning(&mut self, line: u64, text: &str, is_gap: bool) {
        self.warning_count += 1;
        let text = if self.warning_count < WARNINGS_MAX {
            brief(text).into_owned()
        } else if self.warning_count == WARNINGS_MAX {
            format!("there are more than {WARNINGS_MAX} warnings; no more are shown")
        } else {
            return;
        };
        self.warnings.push(Warning { file: self.file.clone(), line, text, is_gap });
    }

    /// Warns once that a kind is skipped.
    fn skip(&mut self, error: &ObjectError, line_number: u64) {
        let ObjectError::UnknownKind(kind) = error else { return };
        let name = kind.rsplit(' ').next().unwrap_or_default();
        // A known name in another group is another kind.
        let kind = brief(if Kind::parse(name).is_some() { kind } else { name });
        if self.skipped_kinds.len() < KINDS_MAX && !self.skipped_kinds.contains(&*kind) {
            self.skipped_kinds.insert(kind.into_owned());
            let text = error.to_string();
            self.warn(line_number, &format!("{}; skipping all its lines", brief(&text)));
        }
    }
}

/// The column of the value of `at_ms`; 1 if it is not found.
fn column_of_time(line: &str) -> usize {
    #[derive(Deserialize)]
    struct Time<'a> {
        #[serde(borrow)]
        at_ms: &'a RawValue,
    }
    let column = serde_json::from_str::<Time<'_>>(line)
        .map(|time| (time.at_ms.get().as_ptr() as usize).wrapping_sub(line.as_ptr() as usize) + 1);
    column.unwrap_or(1)
}
