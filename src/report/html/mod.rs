//! The replay as one HTML page, drawn by scripts of its own from the JSON report.
//!
//! Whatever a log holds is untrusted. It enters the page in one place, as JSON in which `<` is
//! escaped, and the scripts show it as text only: the page's policy forbids everything else, and
//! every way to the network.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::Options;
use super::index::{Chapter, Index};
use super::json::members;
use super::passage::{Passage, passages};
use super::suffered::{Figure, figures};
use crate::core::ids::{ActionId, ObjectKey};
use crate::core::settings::Settings;
use crate::core::time::UnixMillis;
use crate::replay::Replay;

/// `policy` allows the style and the scripts below by their hashes, and nothing else; a test holds
/// it to them (`UPDATE_EXPECT=1` writes it anew).
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
    include_str!("model.js"),
    include_str!("shapes.js"),
    include_str!("lanes.js"),
    include_str!("timeline.js"),
    include_str!("keys.js"),
    include_str!("panel.js"),
    include_str!("page.js"),
    "</script>\n</body>\n</html>\n"
);

/// Writes the replay as one self-contained HTML page.
///
/// It holds the JSON report ([`json`](super::json())) without what was written into annotations, and
/// beside it a member `picture` for its own scripts, which may change. `options.connector` narrows
/// it as it does there.
///
/// # Errors
/// Those of `out`.
pub fn html(replay: &Replay, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let index = Index::new(replay, options.connector.as_ref());
    let picture = Picture::new(replay, &index, options)?;
    let mut out = BufWriter::new(out);
    out.write_all(BEGIN.as_bytes())?;
    let mut data = BufWriter::new(Escaped(&mut out));
    let mut serializer = serde_json::Serializer::new(&mut data);
    let mut map = serializer.serialize_map(None)?;
    members(replay, &index, false, &mut map)?;
    map.serialize_entry("picture", &picture)?;
    map.end()?;
    data.flush()?;
    drop(data);
    out.write_all(END.as_bytes())?;
    out.flush()
}

/// JSON in which no text can end the script element that it stands in, nor open a comment: `<`
/// occurs within its texts only, and may be spelled `\u003c` there.
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

/// What the scripts need beside the report.
#[derive(Serialize)]
struct Picture<'a> {
    /// What was replayed, what needs a person, and the bottom line, as the text report has them;
    /// a line is indented by two blanks for each level.
    head: Vec<String>,
    bottom: Vec<String>,
    /// The one connector asked for.
    only: Option<String>,
    /// As many as `connectors`, in the same order.
    connectors: Vec<ConnectorPart<'a>>,
    /// What was written for no one connector.
    others: Vec<StoryRow>,
}

#[derive(Serialize)]
struct ConnectorPart<'a> {
    label: &'a str,
    /// The name to ask for it by.
    key: Option<String>,
    place: String,
    figures: Vec<Figure<'a>>,
    story: Vec<StoryRow>,
}

/// A passage of the story.
#[derive(Serialize)]
struct StoryRow {
    at_ms: UnixMillis,
    /// `upstream`, a hop, a verb, `confirm`, `stalled` or `stall_ended`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    online: Option<bool>,
    text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<ActionId>,
}

impl<'a> Picture<'a> {
    fn new(replay: &'a Replay, index: &'a Index<'_>, options: &Options) -> io::Result<Self> {
        let mut by_connector: HashMap<&ObjectKey, Vec<Figure<'_>>> = HashMap::new();
        for figure in figures(replay, index) {
            by_connector.entry(figure.connector).or_default().push(figure);
        }
        let settings = &replay.settings;
        let part = |chapter: &'a Chapter<'_>| ConnectorPart {
            label: &chapter.label,
            key: chapter.key().map(ToString::to_string),
            place: chapter.place(),
            figures: chapter.replica.and_then(|key| by_connector.remove(key)).unwrap_or_default(),
            story: story(chapter, settings),
        };
        Ok(Self {
            head: lines(|out, options| super::head(replay, options, out), options)?,
            bottom: lines(|out, options| super::bottom_line(replay, options, out), options)?,
            only: options.connector.as_ref().map(ToString::to_string),
            connectors: index.chapters.iter().map(part).collect(),
            others: story(&index.others, settings),
        })
    }
}

/// The lines that the text report has, as long as they come.
fn lines(
    write: impl FnOnce(&mut dyn Write, &Options) -> io::Result<()>,
    options: &Options,
) -> io::Result<Vec<String>> {
    let mut text = Vec::new();
    write(&mut text, &Options { color: false, width: usize::MAX, ..options.clone() })?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

fn story(chapter: &Chapter<'_>, settings: &Settings) -> Vec<StoryRow> {
    let row = |passage: &Passage<'_>| StoryRow {
        at_ms: passage.at,
        kind: passage.kind(),
        online: passage.online(),
        text: passage.words().into_iter().map(|(_, text)| text).collect(),
        actions: passage.actions().iter().map(|done| done.decision.action.id).collect(),
    };
    passages(chapter, settings).iter().map(row).collect()
}
