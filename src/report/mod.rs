//! Reports of a replay: text for people, JSON for programs, a page for a browser.
//!
//! Each takes time linear in the replay. All print `model::Report`, which groups hops, actions and
//! problems by connector: JSON is its serialization, a page embeds that, and text is a line for each
//! `story_entry::StoryEntry` and a summary. A live run prints the same entries as they happen.

use std::io::{self, Write};

use crate::core::data::ids::NamespacedName;
use crate::replay::Replay;

mod check;
mod html;
mod json;
mod live;
mod model;
mod names;
mod story;
mod story_entry;
pub(crate) mod style;
mod summary;
mod user_impact;
mod verdict;

pub use check::check;
pub use html::html;
pub use json::json;
pub use live::{Notice, news};
pub use names::require_connector;
pub use story_entry::Seen;
pub use style::{count, duration, moment};

#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Use ANSI colours; text only.
    pub color: bool,
    /// Columns to fill; text only. Long names may exceed it, and it is never less than 40.
    pub width: usize,
    /// Report only on this connector: its name upstream, or at the hub and the edges.
    pub connector: Option<NamespacedName>,
}

impl Default for ReportOptions {
    /// 100 columns without colour, all connectors.
    fn default() -> Self {
        Self { color: false, width: 100, connector: None }
    }
}

/// Writes a description of the replay, before or after it.
///
/// # Errors
/// Those of `out`.
pub fn head(replay: &Replay, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = style::TextWriter::new(out, options);
    story::head(replay, &mut writer)?;
    writer.finish()
}

/// Writes the end of the text report: the open problems, and the summary.
///
/// # Errors
/// Those of `out`.
pub fn summary(replay: &Replay, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    summary_of(&model::Report::new(replay, options.connector.as_ref()), options, out)
}

fn summary_of(
    report: &model::Report<'_>,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = style::TextWriter::new(out, options);
    story::still_open(report, &mut writer)?;
    summary::summary(report, &mut writer)?;
    writer.finish()
}

/// Writes the text report: a description of the replay, the story of each connector, the open problems,
/// and the summary (writes, outages for users, the verdict).
///
/// Times of day are UTC; offsets count from the first line of the log. Long stories are abridged unless
/// `options.connector` selects one. Control characters in the log never reach the terminal.
///
/// # Errors
/// Those of `out`.
pub fn text(replay: &Replay, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let report = model::Report::new(replay, options.connector.as_ref());
    let mut writer = style::TextWriter::new(out, options);
    story::head(replay, &mut writer)?;
    story::connectors(&report, &mut writer)?;
    writer.finish()?;
    summary_of(&report, options, out)
}
