//! Prints the shards and who holds them.

use std::io::{self, Write};

use super::{Snapshot, SnapshotSource};
use crate::core::data::time::UnixMillis;
use crate::core::view::ShardView;
use crate::report::ReportOptions;
use crate::report::style::{Style, TextWriter, count, duration};

/// The cells of a row: number, holder, since when, and what this instance does with it.
fn cells(shard: &ShardView, at: UnixMillis) -> [String; 4] {
    let (holder, since) = match (shard.unheld_since_ms, &shard.holder) {
        (Some(since), _) => ("nobody".to_owned(), Some(since)),
        (None, Some(holder)) => (holder.clone(), shard.held_since_ms),
        (None, None) => ("?".to_owned(), None),
    };
    let role = match (shard.followed_since_ms, shard.led_since_ms) {
        (_, Some(_)) => "leads",
        (Some(_), None) => "follows",
        (None, None) => "-",
    };
    let since = since.map_or("-".to_owned(), |since| duration(at.since(since)));
    [shard.shard.to_string(), holder, since, role.to_owned()]
}

/// Writes who holds each shard, where there are several; nothing otherwise.
///
/// # Errors
/// Those of `out`.
pub fn shards(snapshot: &Snapshot, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let view = &snapshot.view;
    if view.shards.is_empty() {
        return Ok(());
    }
    let mut writer = TextWriter::new(out, options);
    let is_instance = matches!(snapshot.source, SnapshotSource::State | SnapshotSource::Log);
    let columns = ["SHARD", "HOLDER", "FOR", "THIS INSTANCE"];
    let shown = if is_instance { 4 } else { 3 };
    let table: Vec<_> = view.shards.iter().map(|shard| cells(shard, view.at_ms)).collect();
    let width = |i: usize| {
        let cells = table.iter().map(|cells: &[String; 4]| cells[i].chars().count());
        cells.chain([columns[i].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 4] = std::array::from_fn(width);
    let line = |cells: [&str; 4]| {
        let padded = cells.iter().zip(widths).take(shown);
        let padded = padded.map(|(cell, width)| format!("{cell:width$}"));
        // One word, so that it is not broken between columns.
        padded.collect::<Vec<_>>().join("  ").trim_end().replace(' ', "\u{a0}")
    };
    writer.put(0, 4, &[(Style::Bold, &line(columns))])?;
    for (shard, cells) in view.shards.iter().zip(&table) {
        let style = if shard.unheld_since_ms.is_some() { Style::Red } else { Style::Plain };
        writer.put(0, 4, &[(style, &line(cells.each_ref().map(String::as_str)))])?;
    }
    let followed = view.shards.iter().filter(|shard| shard.followed_since_ms.is_some()).count();
    if is_instance && followed < view.shards.len() {
        let text = format!(
            "this instance follows {followed} of {}; connectors of the others are shown by their holders",
            count(view.shards.len(), "shard")
        );
        writer.put(0, 2, &[(Style::Dim, &text)])?;
    }
    writer.finish()
}
