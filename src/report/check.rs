//! Prints the findings of `throughline check`: each with a mark, its evidence and a remedy.

use std::io::{self, Write};

use super::ReportOptions;
use super::style::{Style, TextWriter, count, unbroken};
use crate::check::{CheckReport, Finding, Level};

/// Writes the findings and a summary line.
///
/// # Errors
/// Those of `out`.
pub fn check(report: &CheckReport, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    for finding in &report.findings {
        put_finding(&mut writer, finding)?;
    }
    writer.gap()?;
    let failed = report.count(Level::Failed);
    let warned = report.count(Level::Warning);
    let failures = if failed == 0 { "no check".to_owned() } else { count(failed, "check") };
    let summary = format!(" {failures} failed, {}", count(warned, "warning"));
    let (mark, style) = mark(if failed > 0 { Level::Failed } else { Level::Passed });
    writer.put(0, 2, &[(style, mark), (Style::Plain, &summary)])?;
    writer.finish()
}

fn mark(level: Level) -> (&'static str, Style) {
    match level {
        Level::Passed => ("√", Style::Green),
        Level::Skipped => ("-", Style::Dim),
        Level::Warning => ("‼", Style::Yellow),
        Level::Failed => ("×", Style::Red),
    }
}

/// `√ reachable hub: v1.36.4, 53 ms`, or `× leader hub: ` and the sentence, with the cause below.
fn put_finding(writer: &mut TextWriter<'_>, finding: &Finding) -> io::Result<()> {
    let Finding { check, cluster, level, cause, message, evidence, remedy } = finding;
    let (mark, style) = mark(*level);
    let cluster = cluster.as_ref().map(|cluster| format!(" {cluster}")).unwrap_or_default();
    let not_visible = if *level == Level::Skipped { "not visible: " } else { "" };
    let said = message.as_ref().unwrap_or(evidence);
    let line = format!(" {}{cluster}: {not_visible}{said}", check.as_str());
    writer.put(0, 2, &[(style, mark), (Style::Plain, &line)])?;
    if let Some(cause) = cause {
        writer.put(4, 4, &[(Style::Dim, &format!("{}: {evidence}", cause.as_str()))])?;
    }
    remedy.as_ref().map_or(Ok(()), |remedy| put_remedy(writer, remedy))
}

/// Writes the remedy, and below it each command in backticks. A command is never wrapped, so that it
/// can be pasted.
fn put_remedy(writer: &mut TextWriter<'_>, remedy: &str) -> io::Result<()> {
    let mut commands = Vec::new();
    let mut explanation = "→ ".to_owned();
    for (i, part) in remedy.split('`').enumerate() {
        let is_command = part.contains("kubectl ") || part.starts_with("throughline ");
        if i % 2 == 1 && is_command {
            commands.push(unbroken(part));
            explanation += if commands.len() > 1 { "the second" } else { "run this" };
        } else {
            explanation += part;
        }
    }
    writer.put(4, 6, &[(Style::Plain, &explanation)])?;
    commands.iter().try_for_each(|command| writer.put(8, 0, &[(Style::Plain, command)]))
}
