//! What API servers answer: watches, pages of lists, objects.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use throughline::client::CallError;
use throughline::core::data::ids::Kind;
use throughline::core::data::objects::{Object, WireObject, null_as_empty};
use throughline::watch::page::{PageMeta, PageParser};
use throughline::watch::wire::{self, Lines, NoObject, WatchEventType};

use super::{check_length, piece_sizes};

/// A kind, each for some inputs.
fn kind_for(data: &[u8]) -> Kind {
    Kind::ALL[data.len() % Kind::ALL.len()]
}

/// The text of an error as the machine and the event log get it. It may quote an API server, character
/// by character: whoever shows it escapes them.
fn failure(error: &CallError) -> String {
    let text = error.failure().to_string();
    check_length(&text);
    text
}

fn no_object(error: NoObject) -> String {
    match error {
        NoObject::OtherType(error) => failure(&error),
        NoObject::Unreadable(key, error) => format!("{key}: {}", failure(&error)),
    }
}

/// An event of a watch, as text.
fn event(line: &[u8], kind: Kind) -> Result<String, String> {
    let event = wire::watch_event(line).map_err(|error| failure(&error))?;
    let text = event.object.get();
    let read = match event.event_type {
        WatchEventType::Bookmark => wire::check_type(text, kind)
            .and_then(|()| wire::version(text))
            .map_err(|error| failure(&error))?,
        WatchEventType::Error => failure(&wire::status(text)),
        _ => {
            let object = wire::object(text, kind);
            object.map_or_else(no_object, |object| serde_json::to_string(&object).unwrap())
        }
    };
    Ok(format!("{:?} {read}", event.event_type))
}

fn events(data: &[u8], piece_bytes: usize) -> Vec<Result<String, String>> {
    let kind = kind_for(data);
    let mut lines = Lines::default();
    let mut seen = Vec::new();
    for piece in data.chunks(piece_bytes) {
        lines.push(piece);
        loop {
            match lines.next_line() {
                Ok(Some(line)) => seen.push(event(line, kind)),
                Ok(None) => break,
                Err(error) => {
                    seen.push(Err(failure(&error)));
                    return seen;
                }
            }
        }
    }
    seen
}

/// A watch gives the same events wherever its bytes are cut.
pub(super) fn watch_stream(data: &[u8]) {
    let whole = events(data, usize::MAX);
    for size in piece_sizes(data) {
        assert_eq!(events(data, size), whole);
    }
}

/// A page of a list, parsed as a whole. (A field that is there twice is refused there, too.)
#[derive(Deserialize)]
struct WholePage<'d> {
    metadata: PageMeta,
    #[serde(borrow, deserialize_with = "null_as_empty")]
    items: Vec<&'d RawValue>,
}

fn whole_page(data: &[u8]) -> Option<(Vec<String>, PageMeta)> {
    // serde would also read the fields from a list, without their names.
    if !data.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let WholePage { metadata, items } = serde_json::from_slice(data).ok()?;
    let items = items.into_iter().map(|item| item.get().to_owned()).collect();
    (!metadata.resource_version.is_empty()).then_some((items, metadata))
}

fn page(data: &[u8], piece_bytes: usize) -> Result<(Vec<String>, PageMeta), String> {
    let mut parser = PageParser::default();
    let mut items = Vec::new();
    let mut read = || {
        for piece in data.chunks(piece_bytes) {
            parser.push(piece)?;
            while let Some(range) = parser.advance()? {
                let text = parser.item(range)?;
                let _: Result<Object, NoObject> = wire::item(text, kind_for(data))?;
                let _: IgnoredAny = serde_json::from_str(text)
                    .map_err(|error| CallError::Unreadable(error.to_string()))?;
                items.push(text.to_owned());
            }
        }
        parser.finish()
    };
    let metadata = read().map_err(|error: CallError| failure(&error))?;
    Ok((items, metadata))
}

/// Wherever a page is cut, it gives the items that parsing it as a whole gives, or is refused where that is.
pub(super) fn list_page(data: &[u8]) {
    list_page_in(data, piece_sizes(data).into_iter().chain([usize::MAX]));
}

/// As [`list_page`], cut into pieces of these sizes. Returns whether the page is accepted.
pub(crate) fn list_page_in(data: &[u8], sizes: impl IntoIterator<Item = usize>) -> bool {
    let whole = whole_page(data);
    for size in sizes {
        assert_eq!(page(data, size).ok(), whole, "in pieces of {size}");
    }
    whole.is_some()
}

/// An object of any kind can be written, and reads as the same.
pub(super) fn object(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = wire::version(text).map_err(|error| failure(&error));
    let error = wire::status(text);
    failure(&error);
    let _ = (
        error.cause().class(),
        error.retry_after(),
        error.is_absence_of(Kind::Gateway.resource(), "g"),
    );
    for kind in Kind::ALL {
        let object = match wire::object(text, kind) {
            Ok(object) => object,
            Err(error) => {
                no_object(error);
                continue;
            }
        };
        assert_eq!(object.kind(), kind);
        let written = serde_json::to_string(&object).unwrap();
        let again: WireObject = serde_json::from_str(&written).unwrap();
        let again = Object::try_from(again).unwrap_or_else(|e| panic!("{e}: {written}"));
        assert_eq!(serde_json::to_string(&again).unwrap(), written);
        assert_eq!(again.meta, object.meta, "{written}");
        let _ = (object.meta.upstream(), object.meta.is_hub_namespace());
        let _ = (object.meta.others_wrote_at(), object.meta.we_wrote_at());
        let _ = (object.meta.overwritten_by(true), object.meta.overwritten_by(false));
    }
}
