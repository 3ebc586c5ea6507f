//! The HTML page of a replay, as far as it can be judged without a browser (`tests/browser` has one).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "browser/logs.rs"]
mod logs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::Value;

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn fixture(name: &str) -> PathBuf {
    source(&format!("fixtures/{name}.jsonl"))
}

/// A file of this test alone.
fn written(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

fn replayed(output: &str, log: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    command.args(["replay", "--output", output]).args(more).arg(log).output().unwrap()
}

fn told(output: &str, log: &Path, more: &[&str]) -> String {
    let made = replayed(output, log, more);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split_once(from).unwrap().1.split_once(to).unwrap().0
}

fn data(page: &str) -> &str {
    between(page, "<script type=\"application/json\" id=\"data\">", "</script>")
}

/// A page without its data: what is the same in all of them.
fn frame(page: &str) -> String {
    page.replace(data(page), "")
}

#[test]
fn asks_for_nothing_and_lets_nothing_in() {
    let page = told("html", &fixture("incident-503"), &[]);
    let frame = frame(&page).replace("http://www.w3.org/2000/svg", "");
    for way_out in [
        "://",
        " src=",
        "@import",
        "url(h",
        "<link",
        "<iframe",
        "fetch(",
        "XMLHttpRequest",
        "import(",
    ] {
        assert!(!frame.contains(way_out), "{way_out}");
    }
    for href in frame.match_indices("href=\"").map(|(at, found)| &frame[at + found.len()..]) {
        assert!(href.starts_with('#'), "{}", &href[..40]);
    }
    for way_in in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "'style',",
        " style=\"",
    ] {
        assert!(!frame.contains(way_in), "{way_in}");
    }
}

/// The policy names the style and the script that are in the page.
#[test]
fn the_policy_allows_its_own_style_and_script_alone() {
    let page = told("html", &fixture("incident-503"), &[]);
    let hash = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
    let style = hash(between(&page, "<style>", "</style>"));
    let script = hash(between(&page, "<script>", "</script>"));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    let file = source("src/report/html/policy");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, &policy).unwrap();
        return;
    }
    let is = fs::read_to_string(&file).unwrap();
    assert_eq!(is, policy, "style or script changed: UPDATE_EXPECT=1 writes {}", file.display());
    assert!(page.contains(&format!("content=\"{policy}\"")));
}

#[test]
fn holds_the_json_report_without_what_was_written() {
    let log = fixture("careless-platform");
    let acted = Path::new(env!("CARGO_TARGET_TMPDIR")).join("html-acted.jsonl");
    let mut modes = Vec::new();
    told("json", &log, &["--event-log", acted.to_str().unwrap()]);
    for log in [&log, &acted] {
        let mut report: Value = serde_json::from_str(&told("json", log, &[])).unwrap();
        for action in report["actions"].as_array_mut().unwrap() {
            let action = action.as_object_mut().unwrap();
            assert!(action.remove("precondition").is_some());
            assert_eq!(action.remove("annotations").is_some(), action["type"] != "delete");
        }
        let page = told("html", log, &[]);
        let mut shown: Value = serde_json::from_str(data(&page)).unwrap();
        let picture = shown.as_object_mut().unwrap().remove("picture").unwrap();
        assert_eq!(shown, report);
        assert!(!page.contains("upstream-status\":"), "an annotation is in the page");
        modes.push(shown["mode"].clone());
        // Every action is told of, by the passages of the text report.
        let stories = picture["connectors"].as_array().unwrap().iter().map(|part| &part["story"]);
        let rows = stories.chain([&picture["others"]]).flat_map(|story| story.as_array().unwrap());
        let mut ids: Vec<_> = rows.filter_map(|row| row["actions"].as_array()).flatten().collect();
        ids.sort_by_key(|id| id.as_u64());
        ids.dedup();
        let all: Vec<_> = report["actions"].as_array().unwrap().iter().map(|a| &a["id"]).collect();
        assert_eq!(ids, all);
    }
    assert_eq!(modes, ["what-if", "verify"]);
}

#[test]
fn says_what_the_text_report_says() {
    let log = fixture("incident-503");
    let page: Value = serde_json::from_str(data(&told("html", &log, &[]))).unwrap();
    let picture = &page["picture"];
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = flat(&told("text", &log, &[]));
    let lines = |name: &str| picture[name].as_array().unwrap().clone();
    let mut said: Vec<_> = lines("head").into_iter().chain(lines("bottom")).collect();
    assert!(said.len() > 10, "{said:?}");
    for part in picture["connectors"].as_array().unwrap() {
        said.extend(part["story"].as_array().unwrap().iter().map(|row| row["text"].clone()));
    }
    for line in said {
        let line = flat(line.as_str().unwrap());
        assert!(text.contains(&line), "{line:?} is not in: {text}");
    }
    let figure = &picture["connectors"][0]["figures"][0];
    assert_eq!(
        (figure["pain"].as_str(), figure["recorded"]["words"].as_str()),
        (Some("503"), Some("52.2\u{a0}s"))
    );
}

#[test]
fn no_name_leaves_its_place() {
    let plain = told("html", &written("html-plain.jsonl", &logs::flips(2, 2, "c-")), &[]);
    let page = told("html", &written("html-evil.jsonl", &logs::flips(2, 2, logs::EVIL)), &[]);
    assert!(!data(&page).contains('<'), "a tag can begin in the data");
    let frame = frame(&page);
    assert_eq!(frame, self::frame(&plain), "a name is elsewhere in the page");
    let shown: Value = serde_json::from_str(data(&page)).unwrap();
    let name = shown["connectors"][0]["upstream"]["name"].as_str().unwrap();
    assert_eq!(name, format!("{}1", logs::EVIL));
}

/// A page of a long log can be mailed: so many bytes for each thing that happened, at most.
#[test]
fn grows_by_little() {
    let size = |times| {
        let log = written(&format!("html-{times}.jsonl"), &logs::flips(20, times, "c-"));
        let page = told("html", &log, &[]);
        let shown: Value = serde_json::from_str(data(&page)).unwrap();
        let hops = shown["connectors"].as_array().unwrap().iter();
        let hops: usize = hops.map(|c| c["hops"].as_array().unwrap().len()).sum();
        (page.len(), hops + shown["actions"].as_array().unwrap().len())
    };
    let (few, many) = (size(5), size(25));
    let each = (many.0 - few.0) / (many.1 - few.1);
    assert!(many.1 > 4 * few.1 && each < 350, "{each} bytes for each hop and action");
    let bare = frame(&told("html", &fixture("incident-503"), &[])).len();
    assert!(bare < 120_000, "{bare} bytes before anything happened");
}

#[test]
fn one_connector_where_asked_for() {
    let more = ["--connector", "shop/conn-2"];
    let page = told("html", &fixture("careless-platform"), &more);
    let shown: Value = serde_json::from_str(data(&page)).unwrap();
    assert_eq!(shown["connectors"].as_array().unwrap().len(), 1);
    assert_eq!(shown["picture"]["connectors"][0]["key"], "shop/conn-2");
    assert_eq!(shown["picture"]["only"], "shop/conn-2");
    assert_eq!(shown["picture"]["others"].as_array().unwrap().len(), 0);
}

#[test]
fn one_file_makes_one_page() {
    let log = fixture("incident-503");
    let made = replayed("html", &log, &[log.to_str().unwrap()]);
    let error = String::from_utf8(made.stderr).unwrap();
    assert_eq!(made.status.code(), Some(2), "{error}");
    assert!(made.stdout.is_empty() && error.contains("one at a time"), "{error}");
}
