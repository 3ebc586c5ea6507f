//! Prints the shards and who holds them.

use std::io::{self, Write};

use super::table_text::lines;
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
    let lines = lines(&columns[..shown], table.iter().map(|cells| &cells[..shown]));
    writer.put(0, 4, &[(Style::Bold, &lines[0])])?;
    for (shard, line) in view.shards.iter().zip(&lines[1..]) {
        let style = if shard.unheld_since_ms.is_some() { Style::Red } else { Style::Plain };
        writer.put(0, 4, &[(style, line)])?;
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
