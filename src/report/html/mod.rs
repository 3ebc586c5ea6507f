//! The HTML report: one page, drawn from the JSON report by its scripts.
//!
//! Everything in a log is untrusted. It enters the page in one place, as JSON with `<` escaped, and
//! the scripts show it only as text. The page's Content-Security-Policy forbids any other script or
//! style, and all network access.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde_json::Value;

use super::ReportOptions;
use super::model::{Report, Story};
use super::story_entry::{Seen, StoryEntry, story_entries};
use super::user_impact::figures;
use crate::outside_text::plain_json::PlainJson;
use crate::replay::Replay;

/// `policy` allows only the style and the scripts below, by their hashes. A test checks it;
/// `UPDATE_EXPECT=1` updates it.
const BEGIN: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta http-equiv=\"Content-Security-Policy\" content=\"",
    include_str!("policy"),
    "\">\n",
    include_str!("head.html"),
    "<style>",
    include_str!("page.css"),
    "</style>\n</head>\n",
    include_str!("body.html"),
    "<script type=\"application/json\" id=\"data\">"
);

const END: &str = concat!(
    "</script>\n<script>",
    include_str!("words.js"),
    include_str!("model.js"),
    include_str!("shapes.js"),
    include_str!("bands.js"),
    include_str!("marks.js"),
    include_str!("lanes.js"),
    include_str!("legend.js"),
    include_str!("timeline.js"),
    include_str!("keys.js"),
    include_str!("panel.js"),
    include_str!("theme.js"),
    include_str!("page.js"),
    "</script>\n</body>\n</html>\n"
);

/// Writes the replay as one self-contained HTML page.
///
/// The page contains the JSON report ([`json`](super::json())) without annotations and preconditions,
/// and a `picture` field for its scripts, whose content may change. `options.connector` restricts it as
/// in the JSON report.
///
/// # Errors
/// Those of `out`.
pub fn html(replay: &Replay, options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut report = Report::new(replay, options.connector.as_ref());
    report.actions.are_bare = true;
    let picture = Picture::new(&report)?;
    let mut out = BufWriter::new(out);
    out.write_all(BEGIN.as_bytes())?;
    let mut data = BufWriter::new(Escaped(&mut out));
    let page_data = PageData { report: &report, picture };
    serde_json::to_writer(PlainJson::for_people(&mut data), &page_data)?;
    data.flush()?;
    drop(data);
    out.write_all(END.as_bytes())?;
    out.flush()
}

/// Writes JSON so that no text can end the script element around it or open a comment: it escapes
/// `<`, which JSON has only inside strings, as `\u003c`.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (i, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if i > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[derive(Serialize)]
struct PageData<'a> {
    #[serde(flatten)]
    report: &'a Report<'a>,
    picture: Picture<'a>,
}

/// The scripts' data in addition to the report.
#[derive(Serialize)]
struct Picture<'a> {
    /// Parts of the text report: its head, and its end with the open problems and the summary. Each
    /// level of indentation is two spaces.
    head: Vec<String>,
    summary: Vec<String>,
    /// The connector that the report is restricted to.
    only: Option<String>,
    /// In the order of the report's `connectors`.
    connectors: Vec<ConnectorPart<'a>>,
    /// Entries that belong to no single connector.
    others: Vec<StoryEntry>,
}

#[derive(Serialize)]
struct ConnectorPart<'a> {
    label: &'a str,
    /// The value of `--connector` that selects it.
    key: Option<String>,
    full_name: String,
    figures: Vec<Value>,
    /// The indexes of the report's `problems` about it.
    problems: &'a [usize],
    story: Vec<StoryEntry>,
}

impl<'a> Picture<'a> {
    fn new(report: &'a Report<'_>) -> io::Result<Self> {
        let mut figures = figures(report);
        let part = |story: &'a Story<'_>| ConnectorPart {
            label: &story.label,
            key: story.key().map(ToString::to_string),
            full_name: story.full_name(),
            figures: story.hub.and_then(|key| figures.remove(key)).unwrap_or_default(),
            problems: &story.problems,
            story: story_entries(report, story, Seen::default()),
        };
        Ok(Self {
            head: lines(|out, options| super::head(report.replay, options, out))?,
            summary: lines(|out, options| super::summary_of(report, options, out))?,
            only: report.only.map(ToString::to_string),
            connectors: report.connectors.iter().map(part).collect(),
            others: story_entries(report, &report.others, Seen::default()),
        })
    }
}

/// The lines of a part of the text report, without line breaks or colour.
fn lines(
    write: impl FnOnce(&mut dyn Write, &ReportOptions) -> io::Result<()>,
) -> io::Result<Vec<String>> {
    let mut text = Vec::new();
    write(&mut text, &ReportOptions { width: usize::MAX, ..ReportOptions::default() })?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}
