//! Prints the findings of `throughline check`: grouped, each with a mark, its details and a remedy.

use std::io::{self, Write};

use super::ReportOptions;
use super::style::{Style, TextWriter, count};
use crate::check::{CheckReport, Finding, Level};

/// Writes the findings and a summary line.
///
/// # Errors
/// Those of `out`.
pub fn check(report: &CheckReport, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    let mut group = "";
    for finding in &report.findings {
        if finding.group != group {
            if !group.is_empty() {
                writer.gap()?;
            }
            group = &finding.group;
            writer.put(0, 0, &[(Style::Bold, group)])?;
            writer.put(0, 0, &[(Style::Dim, &"-".repeat(group.chars().count()))])?;
        }
        put_finding(&mut writer, finding)?;
    }
    writer.gap()?;
    let (failed, warned) = (report.count(Level::Failed), report.count(Level::Warning));
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

fn put_finding(writer: &mut TextWriter<'_>, finding: &Finding) -> io::Result<()> {
    let (mark, style) = mark(finding.level);
    writer.put(0, 2, &[(style, mark), (Style::Plain, &format!(" {}", finding.what))])?;
    if let Some(detail) = &finding.detail {
        writer.put(4, 4, &[(Style::Dim, detail)])?;
    }
    if let Some(remedy) = &finding.remedy {
        put_remedy(writer, 4, "→ ", remedy)?;
    }
    Ok(())
}

/// Writes a remedy: its first line is an explanation, each further line a command. A command is not
/// broken, however long it is, so that it can be pasted.
pub(crate) fn put_remedy(
    writer: &mut TextWriter<'_>,
    indent: usize,
    mark: &str,
    remedy: &str,
) -> io::Result<()> {
    let mut lines = remedy.lines();
    let explanation = lines.next().unwrap_or_default();
    writer.put(indent, indent + 2, &[(Style::Plain, mark), (Style::Plain, explanation)])?;
    for command in lines {
        writer.put(indent + 4, 0, &[(Style::Plain, &command.replace(' ', NO_BREAK_SPACE))])?;
    }
    Ok(())
}

/// [`TextWriter`] breaks lines at blanks, and prints this one as a blank.
const NO_BREAK_SPACE: &str = "\u{a0}";
