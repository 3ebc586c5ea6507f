//! Inputs that are far too long, too deep or too well compressed end in a clear error, and cost little
//! memory.

use std::fmt::Debug;
use std::io::{Cursor, Read};

use throughline::client::KubeconfigText;
use throughline::config::ConfigSource;
use throughline::core::data::ids::Kind;
use throughline::core::status::go_json::{canonical, reduce};
use throughline::core::status::liveness::decode;
use throughline::core::view::fleet::Fleet;
use throughline::event_log::LogReader;
use throughline::event_log::redact::Redactor;
use throughline::leader::lease;
use throughline::watch::page::PageParser;
use throughline::watch::wire;

use crate::read_log::gzip;
use crate::{ALONE, MIB, growth, reset_peak};

const HEADER: &str =
    r#"{"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}"#;

/// How deep the inputs are nested.
const LEVELS: usize = 100_000;

/// Reads a log to its end: its error, and the number of warnings.
fn read(input: impl Read + Send + 'static) -> (Option<String>, usize) {
    let mut reader = match LogReader::decompressing("x.jsonl", input) {
        Ok(reader) => reader,
        Err(error) => return (Some(error.to_string()), 0),
    };
    let mut warnings = 0;
    loop {
        let line = reader.next_line();
        warnings += reader.warnings().len();
        match line {
            Ok(Some(_)) => {}
            Ok(None) => return (None, warnings),
            Err(error) => return (Some(error.to_string()), warnings),
        }
    }
}

/// Reading ends with an error for line 2 and takes little memory.
fn assert_too_long(what: &str, input: impl Read + Send + 'static) {
    let before = reset_peak();
    let error = read(input).0.unwrap();
    let growth = growth(before);
    assert!(error.starts_with("x.jsonl:2: the line is longer than 67108864 bytes"), "{error}");
    assert!(growth < 160 * MIB, "{} MiB for {what}", growth / MIB);
}

/// A line of a log with these fields.
fn line(fields: &str) -> String {
    format!("{{\"at_ms\":1763715600000,{fields}}}\n")
}

#[test]
fn a_log_costs_no_more_memory_than_its_longest_line() {
    let _alone = ALONE.blocking_lock();
    let start = format!("{HEADER}\n{{\"at_ms\":1763715600000,\"event\":\"timed_out\",\"x\":\"");
    let long = Cursor::new(start.clone()).chain(std::io::repeat(b'x').take(100 * MIB as u64));
    assert_too_long("a line of 100 MB", long);

    // 4 GiB of one line in 20 MiB of gzip.
    let block = vec![b'x'; 16 * MIB];
    let bomb = [gzip(start.as_bytes()), gzip(&block).repeat(256)].concat();
    assert!(bomb.len() < 32 * MIB, "{}", bomb.len());
    assert_too_long("a bomb", Cursor::new(bomb));

    // Each line has something to warn of.
    let mut lines = format!("{HEADER}\n");
    for i in 0..50_000 {
        lines += &line(&format!(r#""event":"log_gap","lines":{i}"#));
        let object = format!(r#"{{"kind":"Kind{i}","metadata":{{"name":"x"}}}}"#);
        lines += &line(&format!(r#""event":"applied","cluster":"up","object":{object}"#));
    }
    let before = reset_peak();
    assert_eq!(read(Cursor::new(gzip(lines.as_bytes()))), (None, 1_000));
    let growth = growth(before);
    assert!(growth < 20 * MIB, "{} MiB for warnings", growth / MIB);
}

#[test]
fn a_name_of_megabytes_is_quoted_in_part() {
    let _alone = ALONE.blocking_lock();
    let name = "\\u001b[2J".repeat(1_000_000);
    for fields in [
        format!(r#""event":"{name}""#),
        format!(r#""event":"list_started","cluster":"{name}""#),
        format!(r#""event":"action_finished","id":1,"outcome":"{name}""#),
        format!(r#""event":"cluster_added","cluster":"u","roles":["{name}"]"#),
        format!(r#""event":"cluster_added","cluster":"{name}","roles":[]"#),
    ] {
        let (error, _) = read(Cursor::new(format!("{HEADER}\n{}", line(&fields))));
        let error = error.unwrap();
        assert!(error.len() < 4_000 && error.contains('…'), "{} bytes", error.len());
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}

/// `levels` levels of brackets with `inner` in between.
fn nested(open: &str, inner: &str, close: &str) -> String {
    open.repeat(LEVELS) + inner + &close.repeat(LEVELS)
}

#[test]
fn an_endless_page_is_refused_and_says_why() {
    let _alone = ALONE.blocking_lock();
    let before = reset_peak();
    let mut page = PageParser::default();
    page.push(br#"{"metadata":{"resourceVersion":"7"},"items":["#).unwrap();
    let error = loop {
        if let Err(error) = page.push(&[b' '; 65_536]).and_then(|()| page.advance()) {
            break error.to_string();
        }
    };
    assert!(error.contains("512 MiB") && error.contains("watch.pageSize"), "{error}");
    assert!(growth(before) < 20 * MIB, "{} MiB", growth(before) / MIB);
}

fn assert_short(error: impl Debug) {
    let error = format!("{error:?}");
    assert!(error.len() < 3_000, "{} bytes", error.len());
}

/// A stack that overflows would end the process.
#[test]
fn json_nested_100_000_deep_is_refused_or_kept_as_text() {
    let _alone = ALONE.blocking_lock();
    for deep in [nested("[", "", "]"), nested("{\"a\":", "1", "}"), "[".repeat(LEVELS)] {
        assert_eq!((canonical(&deep), reduce(&deep), decode(&deep)), (None, None, None));
        let status = format!(r#"{{"conditions":{deep},"connectionDetails":{deep},"x":{deep}}}"#);
        assert_eq!((canonical(&status), reduce(&status), decode(&status)), (None, None, None));
        assert!(!Redactor::new().status(&status).is_empty());

        assert_short(lease::read(format!(r#"{{"metadata":{deep}}}"#).as_bytes()).map(|_| ()));
        assert_short(serde_json::from_str::<Fleet>(&deep).map(|_| ()).unwrap_err());
        assert_short(
            serde_json::from_str::<Fleet>(&format!(r#"{{"clusters":{deep}}}"#)).unwrap_err(),
        );

        let mut page = PageParser::default();
        let list = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{deep}]}}"#);
        page.push(list.as_bytes()).unwrap();
        let error = page.advance().unwrap_err().to_string();
        assert!(error.contains("more than 10000 brackets deep"), "{error}");

        for field in ["metadata", "spec", "status", "x"] {
            for inner in [deep.clone(), format!(r#"{{"rules":{deep},"parentRefs":{deep}}}"#)] {
                let object =
                    format!(r#"{{"kind":"Gateway","metadata":{{"name":"g"}},"{field}":{inner}}}"#);
                for kind in [Kind::Connector, Kind::HttpProxy, Kind::Gateway, Kind::HttpRoute] {
                    assert_short(wire::object(&object, kind).map(|_| ()));
                }
                let event = format!(r#"{{"type":"ADDED","object":{object}}}"#);
                assert_short(wire::watch_event(event.as_bytes()).map(|_| ()));
            }
        }
        let managed =
            format!(r#"{{"metadata":{{"name":"c","managedFields":[{{"fieldsV1":{deep}}}]}}}}"#);
        assert_short(wire::object(&managed, Kind::Connector).map(|_| ()));

        let header = format!(r#"{{"log":"throughline","version":1,"clusters":{deep}}}"#);
        for first in [header, deep.clone()] {
            assert_short(read(Cursor::new(format!("{first}\n"))).0.unwrap());
        }
        for field in ["x", "object", "action", "settings", "deleted", "roles"] {
            let line = line(&format!(r#""event":"timed_out","{field}":{deep}"#));
            assert_short(read(Cursor::new(format!("{HEADER}\n{line}"))));
        }
    }
}

#[test]
fn yaml_that_is_nested_100_000_deep_or_made_of_aliases_or_endless_is_refused() {
    let _alone = ALONE.blocking_lock();
    let block: String = (0..3_000).map(|i| " ".repeat(i) + "a:\n").collect();
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..30 {
        let before = format!("*a{}, ", i - 1).repeat(9);
        laughs += &format!("a{i}: &a{i} [{before}]\n");
    }
    laughs += "clusters: *a29\n";
    let open = ["[", "- ", "? "].map(|open| open.repeat(LEVELS));
    let closed = [nested("[", "", "]"), nested("{a: ", "1", "}")];
    for text in open.into_iter().chain(closed).chain([block, laughs]) {
        let before = reset_peak();
        assert_short(ConfigSource::default().load_text(&text).unwrap_err().to_string());
        assert_short(KubeconfigText::parse(&text).unwrap_err());
        let growth = growth(before);
        assert!(growth < 120 * MIB, "{} MiB for {:?}", growth / MIB, &text[..20]);
    }
    let file = Some("/dev/zero".into());
    let error = ConfigSource { file, ..ConfigSource::default() }.load().unwrap_err();
    assert!(error.to_string().starts_with("/dev/zero: has more than 16 MiB"), "{error}");
}
