//! The metrics as text, in the one or the other of the two formats that scrapers read.

use prometheus_client::encoding::text::encode as open_metrics;
use prometheus_client::registry::Registry;

/// How the metrics are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which everything else reads.
    Plain,
}

impl Format {
    /// The format for an `Accept` header; plain when nothing asks for OpenMetrics.
    pub fn accepted(accept: Option<&str>) -> Self {
        let asked = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        if asked { Format::OpenMetrics } else { Format::Plain }
    }

    /// The `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub(super) fn encode(registry: &Registry, format: Format) -> String {
    let mut text = String::with_capacity(32 * 1024);
    // Writing to a String can't fail, and no collector of ours does.
    if open_metrics(&mut text, registry).is_err() {
        text.push_str("# EOF\n");
    }
    match format {
        Format::OpenMetrics => text,
        Format::Plain => plain(&text),
    }
}

/// In the plain format a counter is named as its samples are, and nothing marks the end.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len() + 1024);
    let mut help = "";
    for line in text.lines() {
        if line.starts_with("# HELP ") {
            help = line;
            continue;
        }
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let name = described.split(' ').next().unwrap_or_default();
            let total = if described.ends_with(" counter") { "_total" } else { "" };
            let about = help.strip_prefix("# HELP ").and_then(|h| h.strip_prefix(name));
            let kind = described.strip_prefix(name).unwrap_or_default();
            for part in ["# HELP ", name, total, about.unwrap_or_default(), "\n"] {
                plain.push_str(part);
            }
            for part in ["# TYPE ", name, total, kind, "\n"] {
                plain.push_str(part);
            }
        } else if !line.starts_with('#') {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}
