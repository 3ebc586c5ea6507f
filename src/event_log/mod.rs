//! The event log, version 1: what entered and left the machine, one JSON object a line.
//!
//! Line 1 is the [`Header`]; each line after it is an [`Event`] or a [`Decision`], in the order in
//! which they entered or left the machine:
//!
//! ```json
//! {"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}
//! {"at_ms":1763715600000,"event":"list_started","cluster":"up","kind":"Connector"}
//! {"at_ms":1763715600004,"event":"listed","cluster":"up","object":{"kind":"Connector",…}}
//! {"at_ms":1763715602001,"action":{"id":7,"type":"mirror",…},"because":"…"}
//! ```
//!
//! [`Reader`] reads plain, gzip and zstd files; [`Writer`] writes. `object` is the Kubernetes
//! object itself, so that a saved watch stream becomes a log by wrapping each of its objects.
//!
//! A log that is rotated is a set of files: `FILE`, and before it `FILE.1`, `FILE.2` and so on. Each
//! has a header, which says the how-manieth [`Part`] it is. Opening `FILE` reads all of them.
//!
//! What the reader makes of a log that is not quite as above:
//!
//! | it meets | it |
//! |---|---|
//! | an unknown member | skips it |
//! | an unknown event, a wrong version, a missing member | refuses, see [`Problem`] |
//! | a torn last line, a compressed stream that breaks off | warns, and ends there |
//! | an object of a kind that means nothing here | warns once a kind, and skips it |
//! | a `log_gap` line, a rotated log without its beginning | warns, and keeps it for [`Reader::gaps`] |
//! | a time before that of an earlier line | warns, and takes the earlier line's time |

mod header;
mod input;
mod line;
mod parse;
mod parts;
mod read;
pub mod redact;
mod write;

use std::fmt;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::core::action::Decision;
use crate::core::event::Event;
use crate::core::ids::{ClusterName, Role};
use crate::core::objects::ObjectError;
use crate::core::settings::Settings;
use crate::core::time::UnixMillis;

pub use input::holds_outcomes;
pub use read::Reader;
pub use write::Writer;

/// The version of the log that is written, and the only one that is read.
pub const VERSION: u64 = 1;

/// A longer line, in bytes, is refused: no object is that large (etcd takes 1.5 MiB), and memory
/// stays bounded whatever the input.
pub const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A cluster as the header names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// Its name, to which each event refers.
    pub name: ClusterName,
    /// What it is to us; never empty.
    pub roles: Vec<Role>,
}

/// Line 1 of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The clusters known from the start; more may come by `cluster_added`.
    pub clusters: Vec<ClusterSpec>,
    /// The machine's settings while the log was written; `None` for a log that was recorded
    /// without throughline.
    pub settings: Option<Settings>,
    /// It was watched and nothing else: nobody acted on it, whatever the settings say.
    pub recorded: bool,
}

/// Which file of a rotated log a file is; it stands in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Counted from 1. The file with the log's latest part has the log's name, the one before it
    /// that name and `.1`, and so on.
    #[serde(rename = "part")]
    pub number: u64,
    /// When the log was started; the same in all of its parts.
    #[serde(rename = "started_ms")]
    pub started: UnixMillis,
}

/// A line after the header.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, on the stack")]
pub enum Line {
    /// What entered the machine.
    Event(Event),
    /// What left it. A replay compares it, or ignores it.
    Action(Decision),
}

/// Something odd in a log that reading went on after. Printed as `FILE:LINE: warning: TEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file's name as it was given.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: u64,
    /// What was odd, and what was done about it.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: warning: {}", self.file, self.line, self.text)
    }
}

/// Why a log can't be read. Printed as `FILE: …` or `FILE:LINE: …`.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file can't be opened.
    #[error("{file}: can't open the event log: {source}; give the path of a log, or - for stdin")]
    Open {
        /// The file's name as it was given.
        file: Arc<str>,
        /// What came back.
        source: io::Error,
    },
    /// The file can't be read further: the disk, or a compressed stream that is damaged.
    #[error(
        "{file}:{line}: can't read on: {source}; what comes before this line was read, the rest is \
         damaged or out of reach"
    )]
    Read {
        /// The file's name as it was given.
        file: Arc<str>,
        /// The line that was being read, counted from 1.
        line: u64,
        /// What came back.
        source: io::Error,
    },
    /// A line is not what the format says.
    #[error("{file}:{line}: {problem}")]
    Refused {
        /// The file's name as it was given.
        file: Arc<str>,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: Box<Problem>,
    },
}

impl LogError {
    /// What is wrong with the line, where it is a line that was refused.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            LogError::Refused { problem, .. } => Some(problem),
            LogError::Open { .. } | LogError::Read { .. } => None,
        }
    }
}

/// What a header looks like, for errors.
const HEADER_EXAMPLE: &str =
    r#"{"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}"#;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no line at all.
    #[error("the log is empty; its first line must be a header such as {HEADER_EXAMPLE}")]
    Empty,
    /// The first line is something else.
    #[error(
        "not a throughline event log: the first line must be a header such as {HEADER_EXAMPLE}, \
         but is `{excerpt}`{hint}"
    )]
    NotAHeader {
        /// The beginning of the line.
        excerpt: String,
        /// What it probably is, and what to do; may be empty.
        hint: &'static str,
    },
    /// A log of another version.
    #[error(
        "the log has version {version}, this throughline reads version {VERSION}; use the \
         throughline that wrote it"
    )]
    Version {
        /// The version as it stands in the header; `null` when there is none.
        version: String,
    },
    /// A header with a member that can't be used.
    #[error("the header can't be used: {0}")]
    Header(String),
    /// A line that is not JSON.
    #[error("column {column}: not JSON: {error}, near `{excerpt}`; each line must be one object")]
    NotJson {
        /// Where, in bytes, counted from 1.
        column: usize,
        /// What the parser said.
        error: String,
        /// What stands there.
        excerpt: String,
    },
    /// JSON, but not `{…}`.
    #[error("the line is not a JSON object but `{excerpt}`; each line must be one object")]
    NotAnObject {
        /// The beginning of the line.
        excerpt: String,
    },
    /// Bytes that are not UTF-8.
    #[error("column {column}: not UTF-8, near `{excerpt}`; the log must be UTF-8 text")]
    NotUtf8 {
        /// Where, in bytes, counted from 1.
        column: usize,
        /// What stands there.
        excerpt: String,
    },
    /// A line longer than [`LINE_BYTES_MAX`].
    #[error(
        "the line is longer than {LINE_BYTES_MAX} bytes; is it an event log, one object a line?"
    )]
    TooLong,
    /// A member of a wrong type or with a value that is not accepted.
    #[error("column {column}: a member can't be used: {error}, near `{excerpt}`")]
    BadMember {
        /// Where, in bytes, counted from 1.
        column: usize,
        /// What came, and what is accepted.
        error: String,
        /// What stands there.
        excerpt: String,
    },
    /// A line that lacks a member.
    #[error("{line} lacks {member:?}")]
    Missing {
        /// What the line is, e.g. `this "listed" line`.
        line: String,
        /// The member it lacks.
        member: &'static str,
    },
    /// A header that is not the first line.
    #[error("a second header: logs that were joined? read them one at a time")]
    SecondHeader,
    /// A line with both `event` and `action`.
    #[error("the line has both \"event\" and \"action\"; make it two lines")]
    EventAndAction,
    /// An event name that is not one of [`EVENT_NAMES`].
    #[error("event {name:?} is not known; version {VERSION} has {}", EVENT_NAMES.join(", "))]
    UnknownEvent {
        /// The name.
        name: String,
    },
    /// An outcome that is none.
    #[error("outcome {name:?} is not known; it is one of {}", OUTCOME_NAMES.join(", "))]
    UnknownOutcome {
        /// The name.
        name: String,
    },
    /// A cluster that neither the header nor a `cluster_added` line names.
    #[error(
        "cluster {cluster:?} is not known; the log names {known}; add it to the header's clusters, \
         or put a \"cluster_added\" line before this one"
    )]
    UnknownCluster {
        /// The cluster.
        cluster: String,
        /// Those that are known, as text.
        known: String,
    },
    /// An object that can't be used.
    #[error("{source}; a log holds whole objects: apiVersion, kind, metadata, spec, status")]
    BadObject {
        /// Why.
        source: ObjectError,
    },
    /// A `cluster_added` line without roles.
    #[error("cluster {cluster:?} has no roles; give upstream, downstream, edge or several")]
    NoRoles {
        /// The cluster.
        cluster: String,
    },
}

/// The events of version 1.
pub const EVENT_NAMES: [&str; 16] = [
    "cluster_added",
    "cluster_removed",
    "list_started",
    "listed",
    "list_finished",
    "applied",
    "deleted",
    "watch_lost",
    "watch_resumed",
    "watch_heard",
    "went_back",
    "leadership_acquired",
    "leadership_lost",
    "action_finished",
    "timed_out",
    "log_gap",
];

/// The outcomes of an `action_finished` line.
pub const OUTCOME_NAMES: [&str; 10] = [
    "applied",
    "unchanged",
    "superseded",
    "refused",
    "failed",
    "unanswered",
    "conflict",
    "not_found",
    "dropped",
    "dry_run",
];
