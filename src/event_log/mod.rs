//! The event log, version 1: the machine's events and actions, one JSON object a line.
//!
//! Line 1 is the [`Header`]. Each later line is an [`Event`] or a [`Decision`], in the order in which
//! they entered or left the machine:
//!
//! ```json
//! {"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}
//! {"at_ms":1763715600000,"event":"list_started","cluster":"up","kind":"Connector"}
//! {"at_ms":1763715600004,"event":"listed","cluster":"up","object":{"kind":"Connector",…}}
//! {"at_ms":1763715602001,"action":{"id":7,"type":"mirror",…},"because":"…"}
//! ```
//!
//! [`LogReader`] reads plain and gzip files; [`LogWriter`] writes. `object` is the Kubernetes
//! object itself, so wrapping each object of a saved watch stream makes it an event log.
//!
//! A rotated log is a set of files: `FILE`, preceded by `FILE.1`, `FILE.2` and so on. The header of
//! each file gives its [`LogPart`]. Opening `FILE` reads them all.
//!
//! How the reader treats invalid and unusual input:
//!
//! | input | reader |
//! |---|---|
//! | an unknown field | skips the field |
//! | an unknown event, a wrong version, a missing field | fails, see [`LineError`] |
//! | a truncated last line or compressed stream | warns and ends there |
//! | an object of a kind that throughline does not use | warns once per kind and skips it |
//! | a retired event, which the machine no longer has | warns once of a gap, and skips the line |
//! | a `log_gap` line, a rotated log whose oldest part is missing | warns of a gap |
//! | a time earlier than that of a previous line | warns and uses the previous line's time |
//! | a time before 2000 or after 2200, or ten years from the line before | fails |

mod clusters;
pub mod export;
mod header;
mod input;
mod line;
mod line_text;
mod parse;
mod read;
pub mod redact;
mod withheld;
mod write;

use std::fmt;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::core::contract::action::Decision;
use crate::core::contract::event::{ClusterSpec, Event};
use crate::core::contract::settings::Settings;
use crate::core::data::objects::ObjectError;
use crate::core::data::time::UnixMillis;
use crate::core::status::trigger::NodeIds;
use crate::outside_text::brief;

pub(crate) use header::header_line;
pub use input::holds_outcomes;
pub use line::{event_names, outcome_names};
pub(crate) use line_text::one_line;
pub use read::LogReader;
pub use write::LogWriter;

/// The version this throughline writes, and the only one it reads.
pub const VERSION: u64 = 1;

/// The release whose logs do not contain their release.
pub const FIRST_RELEASE: &str = "0.1.0";

/// Longer lines are refused. No Kubernetes object is that large (etcd accepts 1.5 MiB), and the limit
/// bounds the reader's memory for any input.
pub const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Line 1 of a log. Its members are in the order of writing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The release that wrote the log; `None`: [`FIRST_RELEASE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Box<str>>,
    /// The clusters known from the start; `cluster_added` lines may add more.
    pub clusters: Vec<ClusterSpec>,
    /// The machine's settings while the log was written; `None` if another tool wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// The log comes from `throughline record`: nothing acted on it, whatever its settings.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
    /// Whether node ids, addresses and keys are replaced. Older logs do not have this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redacted: Option<bool>,
}

impl Header {
    /// The form of the log's node ids. A log without the field counts as redacted.
    pub fn node_ids(&self) -> NodeIds {
        if self.redacted == Some(false) { NodeIds::Real } else { NodeIds::Redacted }
    }
}

/// The position of a file in a rotated log. It is part of the file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogPart {
    /// Counted from 1. The latest part has the log's name, the one before it that name and `.1`, and so
    /// on.
    #[serde(rename = "part")]
    pub number: u64,
    /// When the log was started; the same in all parts.
    #[serde(rename = "started_ms")]
    pub started: UnixMillis,
}

/// A line after the header.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, on the stack")]
pub enum LogEntry {
    /// Entered the machine.
    Event(Event),
    /// Left the machine. A verify compares it, a what-if ignores it.
    Action(Decision),
    /// An event that the machine no longer has. Later actions in the log may differ from the machine's
    /// decisions.
    Retired,
}

/// A warning that did not stop the reader. Printed as `FILE:LINE: warning: TEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file's name as the user gave it.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u64,
    pub text: String,
    /// Events are missing: lines that could not be written, parts of a rotated log, or the first event
    /// that is retired. Actions after it may differ from the machine's decisions.
    pub is_gap: bool,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: warning: {}", self.file, self.line, self.text)
    }
}

/// Why a log can't be read. Printed as `FILE: …` or `FILE:LINE: …`; `file` is the name as the user
/// gave it, and `line` counts from 1. The text includes the cause, so no variant has a `source`.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "{file}: can't open the event log: {error}; give the path to a log file, or - for stdin"
    )]
    Open { file: Arc<str>, error: io::Error },
    /// The disk failed, or a compressed stream is damaged.
    #[error(
        "{file}:{line}: can't read further: {error}; the file is damaged or out of reach from \
         this line on"
    )]
    Read { file: Arc<str>, line: u64, error: io::Error },
    #[error("{file}:{line}: {}", brief(&error.to_string()))]
    BadLine { file: Arc<str>, line: u64, error: Box<LineError> },
}

/// Quoted in errors.
const HEADER_EXAMPLE: &str =
    r#"{"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}"#;

/// An error in the content of a line. Columns count bytes from 1; excerpts are short and printable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("the log is empty; its first line must be a header such as {HEADER_EXAMPLE}")]
    Empty,
    #[error(
        "not a throughline event log: the first line must be a header such as {HEADER_EXAMPLE}, \
         but it is `{excerpt}`{hint}"
    )]
    NotAHeader {
        excerpt: String,
        /// A guess at the file's format, with a remedy; may be empty.
        hint: &'static str,
    },
    #[error(
        "the log has version {version}, but this throughline reads only version {VERSION}; use \
         the release that wrote the log"
    )]
    Version {
        /// As written in the header; `null` if it has none.
        version: String,
    },
    #[error("invalid header: {0}")]
    Header(String),
    #[error(
        "column {column}: invalid JSON: {error}, near `{excerpt}`; each line must be one JSON \
         object"
    )]
    NotJson { column: usize, error: String, excerpt: String },
    #[error("the line is JSON, but not an object: `{excerpt}`; each line must be one JSON object")]
    NotAnObject { excerpt: String },
    #[error("column {column}: not UTF-8, near `{excerpt}`; the log must be UTF-8 text")]
    NotUtf8 { column: usize, excerpt: String },
    #[error(
        "the line is longer than {LINE_BYTES_MAX} bytes; check that this is an event log with one \
         JSON object per line"
    )]
    TooLong,
    /// A field with a wrong type or value.
    #[error("column {column}: invalid field: {error}, near `{excerpt}`")]
    BadMember { column: usize, error: String, excerpt: String },
    /// No clock showed this time: such a step would take a replay through centuries of deadlines.
    #[error("column {column}: at_ms is {at_ms}, {defect}; correct it, or leave the line out")]
    BadTime { column: usize, at_ms: u64, defect: String },
    #[error("{line} has no {member:?} field; add it")]
    Missing {
        /// E.g. `this "listed" line`.
        line: String,
        member: &'static str,
    },
    #[error(
        "a second header; if several logs were concatenated, split them and read one at a time"
    )]
    SecondHeader,
    #[error("the line has both \"event\" and \"action\"; split it into two lines")]
    EventAndAction,
    /// The name is not one of [`event_names`].
    #[error("unknown event {name:?}; the events of version {VERSION} are {}", event_names().join(", "))]
    UnknownEvent { name: String },
    #[error("unknown outcome {name:?}; expected one of {}", outcome_names().join(", "))]
    UnknownOutcome { name: String },
    /// Neither the header nor a `cluster_added` line names the cluster.
    #[error(
        "unknown cluster {cluster:?}; the log declares {known}; add it to the header's clusters, \
         or put a \"cluster_added\" line before this one"
    )]
    UnknownCluster {
        cluster: String,
        /// The declared clusters, as a list for people.
        known: String,
    },
    #[error(
        "{source}; the log must hold complete objects: apiVersion, kind, metadata, spec, status"
    )]
    BadObject { source: ObjectError },
    #[error("cluster {cluster:?} has no roles; give it upstream, hub or edge")]
    NoRoles { cluster: String },
}
