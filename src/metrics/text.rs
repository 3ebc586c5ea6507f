//! The metrics as text, in the two formats of scrapers.

use std::fmt;

use prometheus_client::encoding::text::encode as open_metrics;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub(super) type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, which Prometheus prefers.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which every scraper supports.
    Plain,
}

impl Format {
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub(super) fn encode(registry: &Registry, format: Format) -> String {
    let mut text = String::with_capacity(32 * 1024);
    match (open_metrics(&mut text, registry), format) {
        (Ok(()), Format::OpenMetrics) => text,
        (Ok(()), Format::Plain) => plain(&text),
        // Writing to a String does not fail.
        (Err(fmt::Error), _) => String::new(),
    }
}

/// Gauges or counters at the time of a scrape. Unlike a `Family`, they may be one series without
/// labels.
#[derive(Debug)]
pub(super) struct Samples(MetricType, Vec<(Labels, f64)>);

pub(super) fn gauges(samples: impl IntoIterator<Item = (Labels, f64)>) -> Samples {
    Samples(MetricType::Gauge, samples.into_iter().collect())
}

pub(super) fn counters(samples: impl IntoIterator<Item = (Labels, f64)>) -> Samples {
    Samples(MetricType::Counter, samples.into_iter().collect())
}

impl Samples {
    fn encode(&self, mut encoder: MetricEncoder<'_>, value: f64) -> fmt::Result {
        match self.0 {
            MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
            _ => encoder.encode_gauge(&value),
        }
    }
}

impl EncodeMetric for Samples {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match &*self.1 {
            [(labels, value)] if labels.is_empty() => self.encode(encoder, *value),
            samples => samples.iter().try_for_each(|(labels, value)| {
                self.encode(encoder.encode_family(labels)?, *value)
            }),
        }
    }

    fn metric_type(&self) -> MetricType {
        self.0
    }

    fn is_empty(&self) -> bool {
        self.1.is_empty()
    }
}

/// In contrast to OpenMetrics, the plain format gives a counter's family the name of its samples, with
/// `_total`, and has no end marker.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len() + 1024);
    let mut help = "";
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let space = if kind.ends_with(" counter") { "_total " } else { " " };
            let [help, kind] = [help, kind].map(|described| described.replacen(' ', space, 1));
            plain.extend(["# HELP ", &help, "\n# TYPE ", &kind, "\n"]);
        } else if line != "# EOF" {
            plain.extend([line, "\n"]);
        }
    }
    plain
}
