//! Reads the first line of a log.

use std::collections::BTreeSet;

use super::line::{PartialHeader, RawHeader};
use super::line_text::{excerpt, text};
use super::{Header, LineError, LogPart, VERSION};

/// Reads the first line. It checks the file's type and version first: errors about fields would
/// mislead users of another type or version of file.
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
    let raw: RawHeader =
        serde_json::from_str(line).map_err(|e| LineError::Header(e.to_string()))?;
    let clusters = raw.clusters.unwrap_or_default();
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
    let part = raw.part.zip(raw.started_ms);
    let part = part.map(|(number, started)| LogPart { number, started });
    let RawHeader { settings, recorded, release, .. } = raw;
    Ok((Header { clusters, settings, recorded, release }, part))
}
