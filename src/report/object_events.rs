//! Prints the Kubernetes Events about a connector's objects.

use std::io::{self, Write};

use super::ReportOptions;
use super::style::{Style, TextWriter, count, moment};
use crate::events::read::{ConnectorEvents, ObjectEvent, TierRead};

/// Writes the Events in order of time, and which clusters they come from.
///
/// # Errors
/// Those of `out`.
pub fn object_events(
    found: &ConnectorEvents,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    for event in &found.events {
        put_event(&mut writer, event)?;
    }
    if !found.events.is_empty() {
        writer.gap()?;
    }
    let number = match found.events.len() {
        0 => "no Events".to_owned(),
        n => count(n, "Event"),
    };
    let from: Vec<_> = found.read.iter().map(cluster).collect();
    let from = if from.is_empty() { "no cluster".to_owned() } else { from.join(", ") };
    let text = format!("{number}, from {from}; API servers keep Events for an hour by default");
    writer.put(0, 2, &[(Style::Bold, &text)])?;
    for tier in &found.unread {
        let why = tier.error.as_deref().unwrap_or_default();
        let head = format!("not read: {}: ", cluster(tier));
        writer.put(0, 2, &[(Style::Red, &head), (Style::Plain, why)])?;
    }
    writer.finish()
}

fn cluster(tier: &TierRead) -> String {
    format!("{} ({})", tier.cluster, tier.tier)
}

fn put_event(writer: &mut TextWriter<'_>, event: &ObjectEvent) -> io::Result<()> {
    let style = if event.severity == "Warning" { Style::Yellow } else { Style::Plain };
    let ObjectEvent { kind, namespace, name, cluster, tier, .. } = event;
    let head = format!("{}  {}  ", moment(event.at_ms), event.severity);
    let about = format!("  {kind} {namespace}/{name} at {cluster} ({tier})");
    let parts = [(Style::Dim, &*head), (style, &*event.reason), (Style::Plain, &*about)];
    writer.put(0, 4, &parts)?;
    let times = match (event.count, event.first_at_ms) {
        (2.., Some(first)) => format!("{} times since {}", event.count, moment(first)),
        (2.., None) => format!("{} times", event.count),
        _ => String::new(),
    };
    let by =
        if event.reporter.is_empty() { String::new() } else { format!("by {}", event.reporter) };
    let notes: Vec<_> = [times, by].into_iter().filter(|note| !note.is_empty()).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
    writer.put(4, 4, &[(Style::Plain, event.message.trim()), (Style::Dim, &notes)])
}
