//! A preflight's findings as text: ticked, grouped, with what to do below each that is not well.

use std::io::{self, Write};

use super::Options;
use super::style::{Page, Style, count};
use crate::check::{Finding, Level, Report};

/// Writes the findings, and a closing line.
///
/// # Errors
/// Those of `out`.
pub fn check(report: &Report, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page::new(out, options);
    let mut group = "";
    for finding in &report.findings {
        if finding.group != group {
            if !group.is_empty() {
                page.gap()?;
            }
            group = &finding.group;
            page.put(0, 0, &[(Style::Bold, group)])?;
            page.put(0, 0, &[(Style::Dim, &"-".repeat(group.chars().count()))])?;
        }
        one(&mut page, finding)?;
    }
    page.gap()?;
    let (failed, warned) = (report.count(Level::Failed), report.count(Level::Warning));
    let warnings = count(warned, "warning");
    let words = match (failed, warned) {
        (0, 0) => String::new(),
        (0, _) => format!(", with {warnings}"),
        _ => format!(": {} failed, {warnings}", count(failed, "check")),
    };
    let (sign, style) = sign(if failed > 0 { Level::Failed } else { Level::Passed });
    page.put(
        0,
        0,
        &[(Style::Plain, "Status check results are "), (style, sign), (Style::Plain, &words)],
    )?;
    page.finish()
}

fn sign(level: Level) -> (&'static str, Style) {
    match level {
        Level::Passed => ("√", Style::Green),
        Level::Skipped => ("-", Style::Dim),
        Level::Warning => ("‼", Style::Yellow),
        Level::Failed => ("×", Style::Red),
    }
}

fn one(page: &mut Page<'_>, finding: &Finding) -> io::Result<()> {
    let (sign, style) = sign(finding.level);
    page.put(0, 2, &[(style, sign), (Style::Plain, &format!(" {}", finding.what))])?;
    if let Some(detail) = &finding.detail {
        page.put(4, 4, &[(Style::Dim, detail)])?;
    }
    if let Some(remedy) = &finding.remedy {
        page.put(4, 6, &[(Style::Plain, "→ "), (Style::Plain, remedy)])?;
    }
    Ok(())
}
