//! Pictures of a replay: a story for a person, JSON for programs, a page for a browser.
//!
//! All are linear in what was told, and built on one `index`: which note and which action is
//! about which connector.

use std::io::{self, Write};

use crate::core::ids::ObjectKey;
use crate::replay::Replay;

mod bottom;
mod check;
mod html;
mod index;
mod json;
mod live;
mod passage;
mod story;
pub(crate) mod style;
mod suffered;

pub use check::check;
pub use html::html;
pub use json::json;
pub use live::{Aside, Live};
pub use style::{count, duration};

/// How a report is written.
#[derive(Clone, Debug)]
pub struct Options {
    /// With ANSI colours; text only.
    pub color: bool,
    /// Columns to fill; text only. Long names may exceed it, and it is never less than 40.
    pub width: usize,
    /// Only this connector: its name upstream, or at hub and edges.
    pub connector: Option<ObjectKey>,
}

impl Default for Options {
    /// 100 columns without colour, all connectors.
    fn default() -> Self {
        Self { color: false, width: 100, connector: None }
    }
}

/// Writes what was replayed, or is about to be.
///
/// # Errors
/// Those of `out`.
pub fn head(replay: &Replay, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let mut page = style::Page::new(out, options);
    story::head(replay, &mut page)?;
    page.finish()
}

/// Writes what needs a person, and the bottom line: what was written, what users saw, the verdict.
///
/// # Errors
/// Those of `out`.
pub fn bottom_line(replay: &Replay, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let index = index::Index::new(replay, options.connector.as_ref());
    let mut page = style::Page::new(out, options);
    story::troubles(replay, &index, options, &mut page)?;
    bottom::line(replay, &index, options, &mut page)?;
    page.finish()
}

/// Writes the replay as a story: what was replayed, each connector's way through the hops with
/// what was written and why, what needs a person, and the bottom line.
///
/// Times of day are UTC; offsets count from the first line of the log. Long stories are
/// abridged, unless `options.connector` asks for one. Control characters of the log never reach
/// the terminal.
///
/// # Errors
/// Those of `out`.
pub fn text(replay: &Replay, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let index = index::Index::new(replay, options.connector.as_ref());
    let mut page = style::Page::new(out, options);
    story::head(replay, &mut page)?;
    story::connectors(replay, &index, options, &mut page)?;
    story::troubles(replay, &index, options, &mut page)?;
    bottom::line(replay, &index, options, &mut page)?;
    page.finish()
}
