//! The first line of a log.

use std::collections::BTreeSet;

use super::line::{HeaderSketch, RawHeader};
use super::parse::{excerpt, text};
use super::{Header, Part, Problem, VERSION};

/// Reads the first line. What it is comes before what is wrong with it: a file of another sort or
/// of another version must not be told about its members.
pub(super) fn read_header(line: &[u8]) -> Result<(Header, Option<Part>), Problem> {
    let line = text(line)?;
    let other = |hint| Problem::NotAHeader { excerpt: excerpt(line.as_bytes(), 1), hint };
    let sketch: HeaderSketch<'_> = match serde_json::from_str(line) {
        Ok(sketch) if line.starts_with('{') => sketch,
        _ if line == "{" => {
            return Err(other("; this looks like indented JSON: put each object on one line"));
        }
        Err(error) if line.starts_with("{\"log\":\"throughline\"") => {
            return Err(Problem::json(line, &error));
        }
        _ => return Err(other("")),
    };
    if sketch.log.is_none_or(|log| log.get() != "\"throughline\"") {
        return Err(other(if sketch.at_ms.is_some() {
            "; this looks like a log that lost its header: put one before this line"
        } else if sketch.object.is_some() || sketch.kind.is_some() {
            "; this looks like what kubectl get --watch prints: put a header first, and make each \
             object {\"at_ms\":…,\"event\":\"applied\",\"cluster\":\"up\",\"object\":{…}}"
        } else {
            ""
        }));
    }
    let version = sketch.version.map_or("null", |version| version.get());
    if version != VERSION.to_string() {
        return Err(Problem::Version { version: excerpt(version.as_bytes(), 1) });
    }
    let raw: RawHeader = serde_json::from_str(line).map_err(|e| Problem::Header(e.to_string()))?;
    let clusters = raw.clusters.unwrap_or_default();
    let wrong = |text: String| Err(Problem::Header(text));
    if clusters.is_empty() {
        return wrong("\"clusters\" is missing or empty; name at least one".into());
    }
    let mut names = BTreeSet::new();
    for cluster in &clusters {
        let name = cluster.name.as_str();
        if name.is_empty() {
            return wrong("a cluster has an empty name; name each".into());
        }
        if !names.insert(name) {
            return wrong(format!("cluster {name:?} stands there twice; name each once"));
        }
        if cluster.roles.is_empty() {
            return wrong(format!(
                "cluster {name:?} has no roles; give upstream, downstream, edge or several"
            ));
        }
    }
    let part = raw.part.zip(raw.started_ms);
    let part = part.map(|(number, started)| Part { number, started });
    Ok((Header { clusters, settings: raw.settings, recorded: raw.recorded }, part))
}
