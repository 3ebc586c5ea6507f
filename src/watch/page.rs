//! One page of a list, item by item while its body arrives: of a list of 200 MiB only the current
//! object is in memory.
//!
//! [`PageParser`] cuts the items out of the JSON by quotes and brackets alone; the decoder of an item
//! finds errors inside it. So a truncated answer, or one that is no list, may be detected after some of
//! its items were sent on. That is the same as a list with a later page that fails: it proves nothing,
//! because it never finishes.

mod nesting;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::client::{CallError, ClusterClient, OBJECT_BYTES_MAX, TimedFrames};
use crate::core::data::objects::null_as_empty;
use nesting::Nesting;

/// The largest page, in bytes. 500 objects, the default `watch.pageSize`, could have 750 MiB if each
/// were as large as etcd accepts; real pages have a hundredth of that.
const PAGE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The most bytes of items before the metadata: they are kept until the metadata arrives.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How a list is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    Limited,
    /// After a later page of the last list expired. If this fails, too, the response may be too large:
    /// the next list has pages again.
    AllAtOnce,
}

/// The metadata of a page.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct PageMeta {
    /// Never empty.
    #[serde(rename = "resourceVersion", default, deserialize_with = "null_as_empty")]
    pub resource_version: String,
    /// The token of the next page; empty on the last.
    #[serde(rename = "continue", default, deserialize_with = "null_as_empty")]
    pub next: String,
}

/// The next part of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Item(Cow<'a, str>),
    /// Last, once the body has ended.
    End(PageMeta),
}

/// A page whose body is still arriving.
pub(crate) struct Page<'c> {
    frames: TimedFrames<'c>,
    parser: PageParser,
    /// Items before the metadata: without a resourceVersion they are no evidence.
    held: VecDeque<String>,
    held_bytes: usize,
    /// The metadata, once the body has ended.
    end: Option<PageMeta>,
}

impl<'c> Page<'c> {
    /// Requests a page, or a whole list. The waits for a page and for its parts take at most `timeout`
    /// together; in a whole list, which may be of any length, each.
    ///
    /// # Errors
    /// As [`ClusterClient::open`].
    pub(super) async fn open(
        cluster: &'c ClusterClient,
        request: http::Request<Vec<u8>>,
        timeout: Duration,
        pages: Pages,
    ) -> Result<Self, CallError> {
        let frames = cluster.stream(request, timeout).await?;
        Ok(Self {
            frames: if pages == Pages::AllAtOnce { frames.by_piece() } else { frames },
            parser: PageParser::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            end: None,
        })
    }

    /// The next part. Must not be called after [`Part::End`].
    ///
    /// # Errors
    /// The page broke off, is no page of a list that can be followed, or is too large.
    pub(crate) async fn next(&mut self) -> Result<Part<'_>, CallError> {
        while self.end.is_none() {
            match self.parser.advance()? {
                Some(range) if self.parser.metadata.is_none() => self.hold(range)?,
                Some(range) => return Ok(Part::Item(self.parser.item(range)?.into())),
                None => match self.frames.next().await? {
                    Some(frame) => self.parser.push(&frame)?,
                    None => self.end = Some(self.parser.finish()?),
                },
            }
        }
        if let Some(item) = self.held.pop_front() {
            return Ok(Part::Item(item.into()));
        }
        self.end.take().map(Part::End).ok_or_else(|| broken("it has ended"))
    }

    fn hold(&mut self, range: Range<usize>) -> Result<(), CallError> {
        self.held_bytes += range.len();
        if self.held_bytes > HELD_BYTES_MAX {
            let mib = HELD_BYTES_MAX >> 20;
            return Err(broken(&format!(
                "metadata that comes after more than {mib} MiB of items; API servers write it first"
            )));
        }
        self.held.push_back(self.parser.item(range)?.to_owned());
        Ok(())
    }
}

/// The parser's position in the list's object, outside its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    FirstKey,
    Key,
    Colon(Field),
    Value(Field),
    AfterValue,
    FirstItem,
    Item,
    AfterItem,
    Within(Place),
    End,
}

/// A field of the list's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Metadata,
    Items,
    Other,
}

/// The value that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Key,
    Field(Field),
    Item,
}

/// Cuts a page into its items. Pure: the caller passes the bytes.
#[derive(Debug, Default)]
pub struct PageParser {
    buffer: Vec<u8>,
    /// How much of the buffer has been read.
    read: usize,
    /// Where the current value begins in the buffer.
    value_from: usize,
    value: Nesting,
    state: State,
    metadata: Option<PageMeta>,
    has_items: bool,
    received: u64,
}

fn broken(what: &str) -> CallError {
    CallError::Unreadable(format!("a list: {what}"))
}

fn not_json(error: &serde_json::Error) -> CallError {
    broken(&error.to_string())
}

impl PageParser {
    /// # Errors
    /// The page is too large.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), CallError> {
        self.received += chunk.len() as u64;
        if self.received > PAGE_BYTES_MAX {
            let mib = PAGE_BYTES_MAX >> 20;
            return Err(broken(&format!(
                "an answer of more than {mib} MiB; look for objects that are far too large, or lower \
                 watch.pageSize if this was one page"
            )));
        }
        let is_within = matches!(self.state, State::Within(_));
        let done = if is_within { self.value_from } else { self.read };
        self.buffer.drain(..done);
        self.read -= done;
        self.value_from = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > 64 * 1024 {
            // One large object must not keep its memory while thousands of small ones follow.
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    /// Reads to the end of the next item and returns its range in the buffer; `None` until more bytes
    /// arrive.
    pub fn advance(&mut self) -> Result<Option<Range<usize>>, CallError> {
        while self.read < self.buffer.len() {
            if let State::Within(place) = self.state {
                let is_complete = self.value.read(&self.buffer, &mut self.read)?;
                if self.read - self.value_from > OBJECT_BYTES_MAX {
                    let mib = OBJECT_BYTES_MAX >> 20;
                    return Err(broken(&format!(
                        "an object of more than {mib} MiB, which no API server stores"
                    )));
                }
                if !is_complete {
                    return Ok(None);
                }
                let range = self.value_from..self.read;
                self.complete(place, range.clone())?;
                if place == Place::Item {
                    return Ok(Some(range));
                }
                continue;
            }
            let byte = self.buffer[self.read];
            if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                self.read += 1;
                continue;
            }
            self.state = match (self.state, byte) {
                (State::Start, b'{') => State::FirstKey,
                (State::FirstKey | State::AfterValue, b'}') => State::End,
                (State::FirstKey | State::Key, b'"') => self.begin(Place::Key),
                (State::Colon(field), b':') => State::Value(field),
                (State::Value(Field::Items), b'[') => {
                    self.items_begin()?;
                    State::FirstItem
                }
                (State::Value(field), _) => self.begin(Place::Field(field)),
                (State::AfterValue, b',') => State::Key,
                (State::FirstItem | State::AfterItem, b']') => State::AfterValue,
                (State::FirstItem | State::Item, _) => self.begin(Place::Item),
                (State::AfterItem, b',') => State::Item,
                _ => return Err(broken("the answer is not the JSON of a list")),
            };
            if !matches!(self.state, State::Within(_)) {
                self.read += 1;
            }
        }
        Ok(None)
    }

    fn begin(&mut self, place: Place) -> State {
        self.value_from = self.read;
        self.value = Nesting::default();
        State::Within(place)
    }

    /// Handles a value that is read to its end.
    fn complete(&mut self, place: Place, range: Range<usize>) -> Result<(), CallError> {
        let value = &self.buffer[range];
        self.state = match place {
            Place::Item => State::AfterItem,
            Place::Key => {
                let key: String = serde_json::from_slice(value).map_err(|e| not_json(&e))?;
                State::Colon(match &*key {
                    "metadata" if self.metadata.is_none() => Field::Metadata,
                    "items" if !self.has_items => Field::Items,
                    "metadata" | "items" => {
                        return Err(broken(&format!("{key} is there twice")));
                    }
                    _ => Field::Other,
                })
            }
            Place::Field(Field::Other) => {
                let _: IgnoredAny = serde_json::from_slice(value).map_err(|e| not_json(&e))?;
                State::AfterValue
            }
            Place::Field(Field::Metadata) => {
                self.metadata = Some(serde_json::from_slice(value).map_err(|e| not_json(&e))?);
                State::AfterValue
            }
            // Go writes `null` for an empty list.
            Place::Field(Field::Items) if value == b"null" => {
                self.items_begin()?;
                State::AfterValue
            }
            Place::Field(Field::Items) => return Err(broken("its items are no list")),
        };
        Ok(())
    }

    fn items_begin(&mut self) -> Result<(), CallError> {
        self.has_items = true;
        self.metadata.as_ref().map_or(Ok(()), |metadata| followable(&metadata.resource_version))
    }

    pub fn item(&self, range: Range<usize>) -> Result<&str, CallError> {
        std::str::from_utf8(&self.buffer[range]).map_err(|_| broken("it is not UTF-8"))
    }

    /// Handles the end of the body.
    pub fn finish(&mut self) -> Result<PageMeta, CallError> {
        if self.state != State::End {
            return Err(broken("it broke off"));
        }
        if !self.has_items {
            return Err(broken("it has no items"));
        }
        let metadata = self.metadata.take().ok_or_else(|| broken("it has no metadata"))?;
        followable(&metadata.resource_version)?;
        Ok(metadata)
    }
}

/// Requires a resourceVersion: without one a watch would begin anywhere, and changes between list and
/// watch would be missed.
pub(super) fn followable(resource_version: &str) -> Result<(), CallError> {
    if resource_version.is_empty() {
        let error = "a list without metadata.resourceVersion cannot be followed; whatever answers \
                     there is no Kubernetes API server, or something between changes its answers";
        return Err(CallError::Unreadable(error.to_owned()));
    }
    Ok(())
}
