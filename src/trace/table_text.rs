//! Prints the status table: rows, and above all what they have in common.

use std::io::{self, Write};

use super::text::{hop_name, next_attempt, source_text};
use super::{HopCause, Snapshot, StatusCounts, StatusRow, banners};
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::core::view::phase::Phase;
use crate::report::ReportOptions;
use crate::report::style::{Style, TextWriter, count, duration, moment};

const COLUMNS: [&str; 7] =
    ["UPSTREAM", "CONNECTOR", "HUB / EDGE", "LIVENESS", "PHASE", "FOR", "ANNOUNCED"];

/// The cells of a row, in the order of [`COLUMNS`].
fn cells(row: &StatusRow, at: UnixMillis) -> [String; 7] {
    let upstream = row.upstream.as_ref().map_or("-", |upstream| upstream.cluster.as_str());
    let name = row.upstream.as_ref().map(|up| &up.object).or(row.hub_key.as_ref());
    let name_or_count = |clusters: &[ClusterName], one: &str| match clusters {
        [] => "-".to_owned(),
        [cluster] => cluster.to_string(),
        more => count(more.len(), one),
    };
    let clusters =
        format!("{} / {}", name_or_count(&row.hubs, "hub"), name_or_count(&row.edges, "edge"));
    let online = match row.online {
        Some(true) => "online",
        Some(false) => "offline",
        None => "?",
    };
    let more = if row.at_least { "> " } else { "" };
    [
        upstream.to_owned(),
        name.map_or("-".to_owned(), ToString::to_string),
        clusters,
        online.to_owned(),
        row.phase.as_str().to_owned(),
        row.since_ms.map_or("-".to_owned(), |since| format!("{more}{}", duration(at.since(since)))),
        announced(row),
    ]
}

/// Pads the cells of each column to the widest. They are not wrapped, so that a name stays whole for
/// `grep` and for copying.
pub(super) fn align<const N: usize>(rows: &mut [[String; N]]) {
    for i in 0..N {
        let width = rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        for row in &mut *rows {
            row[i] = format!("{:width$}", row[i]);
        }
    }
}

/// `2/2` where the gateways announce the present truth, `2/2 stale` where they announce another or
/// nobody knows, `?/2` where they cannot be seen.
fn announced(row: &StatusRow) -> String {
    let StatusRow { announced, gateways, .. } = row;
    match row {
        StatusRow { gateways_unknown: true, .. } => format!("?/{gateways}"),
        StatusRow { stale: true, .. } => format!("{announced}/{gateways} stale"),
        _ => format!("{announced}/{gateways}"),
    }
}

/// Writes rows as a table, with the cause under each row that is stuck, unless a banner tells it. The
/// rows are those of `snapshot`; `head` adds the names of the columns.
///
/// # Errors
/// Those of `out`.
pub fn rows(
    snapshot: &Snapshot,
    rows: &[StatusRow],
    head: bool,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    let head_cells = COLUMNS.map(str::to_owned);
    let row_cells = rows.iter().map(|row| cells(row, snapshot.view.at_ms));
    let mut table: Vec<_> = std::iter::once(head_cells).chain(row_cells).collect();
    align(&mut table);
    // A line is one word: the writer breaks none of it.
    let line = |cells: &[String; 7]| cells.join("  ").trim_end().replace(' ', "\u{a0}");
    let lines: Vec<_> = table.iter().map(line).collect();
    if head {
        writer.put(0, 4, &[(Style::Bold, &lines[0])])?;
    }
    for (row, line) in rows.iter().zip(&lines[1..]) {
        let style = if row.state.is_right() { Style::Plain } else { row.state.style() };
        writer.put(0, 4, &[(style, line)])?;
        let hop = row.stuck.as_ref().or(row.unknown.as_ref());
        if let Some(hop) = hop.filter(|hop| !hop.cause.is_some_and(HopCause::is_told_once)) {
            let head = format!("{} ({}): ", hop_name(hop.hop), hop.cluster);
            let next = next_attempt(hop.next_attempt_ms, snapshot.view.at_ms);
            let why = format!("{}{next}", hop.why);
            writer.put(4, 6, &[(Style::Bold, &head), (Style::Plain, &why)])?;
        }
    }
    writer.finish()
}

/// Writes how many connectors there are, how many are stuck, unknown and pending; and a banner for
/// each cause.
///
/// # Errors
/// Those of `out`.
pub fn summary(
    snapshot: &Snapshot,
    rows: &[StatusRow],
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    let counts = StatusCounts::of(rows);
    let at = format!("{} UTC, {}", moment(snapshot.view.at_ms), source_text(snapshot.source));
    let style = match counts {
        StatusCounts { stuck: 1.., .. } => Style::Red,
        StatusCounts { unknown: 1.., .. } => Style::Yellow,
        _ => Style::Green,
    };
    // Always said are those of which 0 is good news.
    let numbers = [
        (counts.stuck, "stuck", true),
        (counts.unknown, "unknown", false),
        (counts.pending, "pending", true),
        (counts.deferred, "deferred", false),
        (counts.of_phase(Phase::Unreplicated), "unreplicated", false),
        (counts.of_phase(Phase::Unconfigured), "unconfigured", false),
    ];
    let said = numbers.into_iter().filter(|(n, _, always)| *always || *n > 0);
    let said = said.map(|(n, what, _)| format!("{n} {what}"));
    let connectors = std::iter::once(count(counts.connectors, "connector"));
    let text = connectors.chain(said).collect::<Vec<_>>().join(", ");
    writer.put(0, 2, &[(style, &text), (Style::Dim, "  "), (Style::Dim, &at)])?;
    for banner in banners(snapshot, rows) {
        writer.put(0, 2, &[(Style::Yellow, &banner.what)])?;
        if let Some(remedy) = &banner.remedy {
            writer.put(2, 4, &[(Style::Plain, "→ "), (Style::Plain, remedy)])?;
        }
    }
    writer.finish()
}
