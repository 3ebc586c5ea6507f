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

/// Between two columns.
const GAP: usize = 2;

/// The columns that hold names, which are shortened where the table is too wide, and how short they
/// may get.
const NAMES: [(usize, usize); 3] = [(0, 6), (1, 10), (2, 8)];

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

/// The start and the end of a text that is too long; that is where names differ.
fn shortened(text: &str, width: usize) -> String {
    let chars = text.chars().count();
    if chars <= width || width < 3 {
        return text.to_owned();
    }
    let (head, tail) = ((width - 1) / 2, width / 2);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(chars - tail).collect();
    format!("{start}…{end}")
}

/// Takes from the widest column of names until the table fits, if it can.
fn fit(widths: &mut [usize; 7], width: usize) {
    let taken = |widths: &[usize; 7]| widths.iter().sum::<usize>() + GAP * (COLUMNS.len() - 1);
    while taken(widths) > width {
        let long = NAMES.into_iter().filter(|(i, least)| widths[*i] > *least);
        let Some((widest, _)) = long.max_by_key(|(i, least)| widths[*i] - least) else { return };
        widths[widest] -= 1;
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
    let table: Vec<_> = rows.iter().map(|row| cells(row, snapshot.view.at_ms)).collect();
    let width = |i: usize| {
        let cells = table.iter().map(|cells| cells[i].chars().count());
        cells.chain([COLUMNS[i].len()]).max().unwrap_or(0)
    };
    let mut widths: [usize; 7] = std::array::from_fn(width);
    fit(&mut widths, options.width);
    let line = |cells: &[&str; 7]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| {
            let cell = shortened(cell, width);
            format!("{cell:width$}")
        });
        // One word, so that it is not broken between names.
        let gap = " ".repeat(GAP);
        padded.collect::<Vec<_>>().join(&gap).trim_end().replace(' ', "\u{a0}")
    };
    if head {
        writer.put(0, 4, &[(Style::Bold, &line(&COLUMNS))])?;
    }
    for (row, cells) in rows.iter().zip(&table) {
        let cells: [&str; 7] = std::array::from_fn(|i| cells[i].as_str());
        let style = if row.state.is_right() { Style::Plain } else { row.state.style() };
        writer.put(0, 4, &[(style, &line(&cells))])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_start_and_its_end() {
        assert_eq!(shortened("default/home-lab", 16), "default/home-lab");
        assert_eq!(shortened("default/home-lab", 12), "defau…me-lab");
        assert_eq!(shortened("default/home-lab", 3), "d…b");
        assert_eq!(shortened("ns-ö/ü", 5), "ns…/ü");
    }

    #[test]
    fn a_table_that_is_too_wide_takes_from_names() {
        let mut widths = [30, 60, 40, 8, 12, 13, 11];
        fit(&mut widths, 80);
        assert_eq!(widths, [6, 10, 8, 8, 12, 13, 11], "as short as names may get");
        let mut widths = [8, 60, 10, 8, 7, 6, 9];
        fit(&mut widths, 80);
        assert_eq!(widths.iter().sum::<usize>() + 12, 80);
        assert_eq!(widths[1], 20);
    }
}
