//! Cutting a page into items gives what parsing it as a whole gives, wherever the body is cut. The fuzz
//! target `list_page` finds no page that is refused in pieces alone.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use throughline::client::CallError;
use throughline::core::data::objects::null_as_empty;
use throughline::watch::page::{PageMeta, PageParser};

/// A page as it is parsed from the whole body.
#[derive(Deserialize)]
struct WholePage<'a> {
    metadata: PageMeta,
    #[serde(borrow, deserialize_with = "null_as_empty")]
    items: Vec<&'a RawValue>,
}

type Read = (Vec<String>, PageMeta);

fn whole(body: &[u8]) -> Option<Read> {
    let page: WholePage<'_> = serde_json::from_slice(body).ok()?;
    let items = page.items.iter().map(|item| item.get().to_owned()).collect();
    (!page.metadata.resource_version.is_empty()).then_some((items, page.metadata))
}

/// The same in pieces. Whoever decodes an item finds what is wrong within.
fn in_pieces<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> Result<Read, CallError> {
    let mut parser = PageParser::default();
    let mut items = Vec::new();
    for piece in pieces {
        parser.push(piece)?;
        while let Some(range) = parser.advance()? {
            let item = parser.item(range)?;
            let _: IgnoredAny =
                serde_json::from_str(item).map_err(|e| CallError::Unreadable(e.to_string()))?;
            items.push(item.to_owned());
        }
    }
    Ok((items, parser.finish()?))
}

const PAGES: [&str; 9] = [
    r#"{"kind":"XList","metadata":{"resourceVersion":"7","continue":"n\"x"},"items":[{"a":1},{"b":"}]\\"}]}"#,
    r#" { "items" : [ {"a": ["\"", "{"]} , {} ] , "metadata" : {"resourceVersion":"7","x":{"y":[1,[2]]}} } "#,
    r#"{"metadata":{"resourceVersion":"7","continue":null},"items":null}"#,
    r#"{"items":[],"metadata":{"resourceVersion":"7"},"more":[{"items":[1]}],"n":-1.5e3,"t":true}"#,
    r#"{"met\u0061data":{"resourceVersion":"7"},"\u0069tems":["é\\\\\"€", 7 ,null,[[]],"" ]}"#,
    r#"{"metadata":{"resourceVersion":""},"items":[{"a":1}]}"#,
    r#"{"items":[{"a":1}],"metadata":{}}"#,
    r#"{"metadata":{"resourceVersion":"7"}}"#,
    r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1}],"items":[]}"#,
];

/// Each page in pieces of each size; and with each byte left out, doubled, or changed to one that means
/// something.
#[test]
fn a_sound_or_damaged_page_is_read_in_pieces_as_it_is_as_a_whole() {
    let (mut sound, mut broken) = (0, 0);
    let mut compare = |body: &[u8], size| {
        let expected = whole(body);
        *if expected.is_some() { &mut sound } else { &mut broken } += 1;
        let found = in_pieces(body.chunks(size)).ok();
        assert_eq!(found, expected, "{}, {size}", String::from_utf8_lossy(body));
    };
    for page in PAGES.map(str::as_bytes) {
        (1..=page.len()).for_each(|size| compare(page, size));
        for at in 0..page.len() {
            let (before, byte, after) = (&page[..at], page[at], &page[at + 1..]);
            compare(before, 3);
            compare(&[before, after].concat(), 3);
            compare(&[before, &[byte, byte], after].concat(), 3);
            for other in b"{}[]\",:\\ 0n\x00\xff" {
                compare(&[before, &[*other], after].concat(), 3);
            }
        }
    }
    assert!(sound > 900 && broken > 5_000, "{sound} {broken}");
}

#[test]
fn an_endless_page_is_refused_and_says_why() {
    let head: &[u8] = br#"{"metadata":{"resourceVersion":"7"},"items":["#;
    let spaces: &[u8] = &[b' '; 65_536];
    let page = in_pieces(std::iter::once(head).chain(std::iter::repeat(spaces))).unwrap_err();
    let page = page.to_string();
    assert!(page.contains("512 MiB") && page.contains("watch.pageSize"), "{page}");
}
