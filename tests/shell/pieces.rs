//! Cutting a page into items gives what parsing it as a whole gives, wherever the body is cut.

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

type Read = Result<(Vec<String>, PageMeta), String>;

fn whole(body: &[u8]) -> Read {
    let page: WholePage<'_> = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    if page.metadata.resource_version.is_empty() {
        return Err("it cannot be followed".to_owned());
    }
    Ok((page.items.iter().map(|item| item.get().to_owned()).collect(), page.metadata))
}

/// The same in pieces. Whoever decodes an item finds what is wrong within.
fn in_pieces<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> Read {
    let mut parser = PageParser::default();
    let mut items = Vec::new();
    let read = || {
        for piece in pieces {
            parser.push(piece)?;
            while let Some(range) = parser.advance()? {
                let item = parser.item(range)?;
                let _: IgnoredAny =
                    serde_json::from_str(item).map_err(|e| CallError::Unreadable(e.to_string()))?;
                items.push(item.to_owned());
            }
        }
        parser.finish()
    };
    let metadata = read().map_err(|e: CallError| e.to_string())?;
    Ok((items, metadata))
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

#[test]
fn it_does_not_matter_where_the_body_is_cut() {
    for page in PAGES {
        let body = page.as_bytes();
        let expected = whole(body).map_err(drop);
        for size in 1..=body.len() {
            assert_eq!(in_pieces(body.chunks(size)).map_err(drop), expected, "{page}, {size}");
        }
        for cut in 0..=body.len() {
            let (one, two) = body.split_at(cut);
            assert_eq!(in_pieces([one, two].into_iter()).map_err(drop), expected, "{page}, {cut}");
        }
    }
    assert_eq!(PAGES.iter().filter(|page| whole(page.as_bytes()).is_ok()).count(), 5);
}

/// Each byte left out, doubled, or changed to one that means something. The fuzz target `list_page` finds
/// no page that is refused in pieces alone.
#[test]
fn a_damaged_page_is_read_in_pieces_as_it_is_as_a_whole() {
    let (mut sound, mut broken) = (0, 0);
    let mut compare = |body: &[u8]| {
        let expected = whole(body).map_err(drop);
        let found = in_pieces(body.chunks(3)).map_err(drop);
        *if expected.is_ok() { &mut sound } else { &mut broken } += 1;
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(body));
    };
    for page in PAGES {
        for at in 0..page.len() {
            let (before, after) = (&page.as_bytes()[..at], &page.as_bytes()[at + 1..]);
            let byte = page.as_bytes()[at];
            compare(before);
            compare(&[before, after].concat());
            compare(&[before, &[byte, byte], after].concat());
            for other in b"{}[]\",:\\ 0n\x00\xff" {
                compare(&[before, &[*other], after].concat());
            }
        }
    }
    assert!(sound > 500 && broken > 5_000, "{sound} {broken}");
}

#[test]
fn an_endless_page_is_refused_and_says_why() {
    let head: &[u8] = br#"{"metadata":{"resourceVersion":"7"},"items":["#;
    let spaces: &[u8] = &[b' '; 65_536];
    let page = in_pieces(std::iter::once(head).chain(std::iter::repeat(spaces))).unwrap_err();
    assert!(page.contains("512 MiB") && page.contains("watch.pageSize"), "{page}");
}
