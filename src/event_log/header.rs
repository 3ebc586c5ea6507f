//! The first line of a log, in both directions.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::line_text::{excerpt, text};
use super::{Header, LineError, LogPart, VERSION};
use crate::core::contract::event::ClusterSpec;
use crate::core::contract::settings::Settings;
use crate::core::data::time::UnixMillis;

/// The members of a header, in the order of writing.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HeaderLine<'a> {
    #[serde(skip_deserializing)]
    log: &'static str,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_ms: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<Cow<'a, str>>,
    clusters: Cow<'a, [ClusterSpec]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<Cow<'a, Settings>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recorded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    redacted: Option<bool>,
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

impl<'a> HeaderLine<'a> {
    pub(super) fn new(header: &'a Header, part: Option<LogPart>) -> Self {
        Self {
            log: "throughline",
            version: VERSION,
            part: part.map(|part| part.number),
            started_ms: part.map(|part| part.started),
            release: header.release.as_deref().map(Cow::Borrowed),
            clusters: Cow::Borrowed(&header.clusters),
            settings: header.settings.as_ref().map(Cow::Borrowed),
            recorded: header.recorded,
            redacted: header.redacted,
        }
    }
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
    let read: HeaderLine<'_> =
        serde_json::from_str(line).map_err(|e| LineError::Header(e.to_string()))?;
    let clusters = read.clusters.into_owned();
    let wrong = |text: String| Err(LineError::Header(text));
    if clusters.is_empty() {
        return wrong("\"clusters\" is missing or empty; list at least one".into());
    }
    let mut names = BTreeSet::new();
    for cluster in &clusters {
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
    let part = read.part.zip(read.started_ms);
    let part = part.map(|(number, started)| LogPart { number, started });
    let header = Header {
        clusters,
        settings: read.settings.map(Cow::into_owned),
        recorded: read.recorded,
        release: read.release.map(|release| release.into()),
        redacted: read.redacted,
    };
    Ok((header, part))
}
