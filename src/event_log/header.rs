//! The first line of a log, in both directions.

use std::collections::BTreeSet;
use std::io;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::line_text::{excerpt, one_line, text};
use super::{Header, LineError, LogPart, VERSION};
use crate::core::data::time::UnixMillis;

/// The first line, for writing.
#[derive(Serialize)]
struct HeaderLine<'a> {
    log: &'static str,
    version: u64,
    #[serde(flatten)]
    part: Option<LogPart>,
    #[serde(flatten)]
    header: &'a Header,
}

/// The part of the first line that shows whether it is a header, or else which format it may be.
#[derive(Debug, Deserialize)]
struct PartialHeader<'a> {
    #[serde(borrow)]
    log: Option<&'a RawValue>,
    #[serde(borrow)]
    version: Option<&'a RawValue>,
    at_ms: Option<IgnoredAny>,
    object: Option<IgnoredAny>,
    kind: Option<IgnoredAny>,
}

/// The members of a [`LogPart`]. Logs of other tools have neither.
#[derive(Deserialize)]
struct PartMembers {
    part: Option<u64>,
    started_ms: Option<UnixMillis>,
}

/// The first line; of one file of a rotated log if there is a `part`.
pub(crate) fn header_line(header: &Header, part: Option<LogPart>) -> io::Result<Vec<u8>> {
    let header = HeaderLine { log: "throughline", version: VERSION, part, header };
    let mut line = serde_json::to_vec(&header)?;
    one_line(&mut line);
    Ok(line)
}

/// Reads the first line. It checks the file's type and version first: errors about fields would mislead
/// users of a file of another type or version.
pub(super) fn read_header(line: &[u8]) -> Result<(Header, Option<LogPart>), LineError> {
    let line = text(line)?;
    let other = |hint| LineError::NotAHeader { excerpt: excerpt(line.as_bytes(), 1), hint };
    let partial: PartialHeader<'_> = match serde_json::from_str(line) {
        Ok(partial) if line.starts_with('{') => partial,
        _ if line == "{" => {
            return Err(other("; this looks like indented JSON: put each object on one line"));
        }
        Err(error) if line.starts_with("{\"log\":\"throughline\"") => {
            return Err(LineError::json(line, &error));
        }
        _ => return Err(other("")),
    };
    if partial.log.is_none_or(|log| log.get() != "\"throughline\"") {
        return Err(other(if partial.at_ms.is_some() {
            "; this looks like a log without its header: put one before this line"
        } else if partial.object.is_some() || partial.kind.is_some() {
            "; this looks like what kubectl get --watch prints: put a header first, and make each \
             object {\"at_ms\":…,\"event\":\"applied\",\"cluster\":\"up\",\"object\":{…}}"
        } else {
            ""
        }));
    }
    let version = partial.version.map_or("null", |version| version.get());
    if version != VERSION.to_string() {
        return Err(LineError::Version { version: excerpt(version.as_bytes(), 1) });
    }
    let invalid = |error: serde_json::Error| LineError::Header(error.to_string());
    let header: Header = serde_json::from_str(line).map_err(invalid)?;
    let part: PartMembers = serde_json::from_str(line).map_err(invalid)?;
    let wrong = |text: String| Err(LineError::Header(text));
    if header.clusters.is_empty() {
        return wrong("\"clusters\" is missing or empty; list at least one".into());
    }
    let mut names = BTreeSet::new();
    for cluster in &header.clusters {
        let name = cluster.name.as_str();
        if name.is_empty() {
            return wrong("a cluster has an empty name; give it a name".into());
        }
        if !names.insert(name) {
            return wrong(format!("cluster {name:?} is listed twice; list each once"));
        }
        if cluster.roles.is_empty() {
            return wrong(format!("cluster {name:?} has no roles; give it upstream, hub or edge"));
        }
    }
    let part = part.part.zip(part.started_ms);
    Ok((header, part.map(|(number, started)| LogPart { number, started })))
}
