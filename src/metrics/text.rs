//! The metrics as text, in either of the two formats that scrapers read.

use std::fmt;

use prometheus_client::encoding::text::encode as open_metrics;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

pub(super) type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, which Prometheus prefers.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which every scraper reads.
    Plain,
}

impl Format {
    /// The format for an `Accept` header; plain unless it lists OpenMetrics.
    pub fn accepted(accept: Option<&str>) -> Self {
        let open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        if open { Format::OpenMetrics } else { Format::Plain }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Encodes a family of counters or gauges with its name and its help; nothing if it has no sample.
pub(super) fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    kind: MetricType,
    (name, help): (&str, &str),
    samples: impl IntoIterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    let Some((labels, value)) = samples.peek() else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    if labels.is_empty() {
        return encode_sample(family, kind, *value);
    }
    for (labels, value) in samples {
        encode_sample(family.encode_family(&labels)?, kind, value)?;
    }
    Ok(())
}

fn encode_sample(encoder: MetricEncoder<'_>, kind: MetricType, value: f64) -> fmt::Result {
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(encoder),
        _ => ConstGauge::new(value).encode(encoder),
    }
}

pub(super) fn encode(registry: &Registry, format: Format) -> String {
    let mut text = String::with_capacity(32 * 1024);
    // Neither writing to a String nor our collectors fail.
    if open_metrics(&mut text, registry).is_err() {
        text.push_str("# EOF\n");
    }
    match format {
        Format::OpenMetrics => text,
        Format::Plain => plain(&text),
    }
}

/// Unlike OpenMetrics, the plain format gives a counter's family the name of its samples, with
/// `_total`, and has no end marker.
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
