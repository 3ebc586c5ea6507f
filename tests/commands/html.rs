//! The HTML report, as far as it can be tested without a browser; `tests/browser` uses one.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use expect_test::expect_file;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::logs;
use crate::program::{fixture, run};

/// As it was built into the page, which an update of the file changes only in the next build.
const POLICY: &str = include_str!("../../src/report/html/policy");

fn temporary(name: &str) -> String {
    format!("{}/html-{name}.jsonl", env!("CARGO_TARGET_TMPDIR"))
}

/// The incident, of a connector of this name.
fn written(name: &str, connector: &str) -> String {
    let path = temporary(name);
    fs::write(&path, logs::incident_of(connector)).unwrap();
    path
}

fn report_of(output: &str, log: &str, more: &[&str]) -> String {
    let (code, report, err) = run(&[&["replay", "--output", output, log], more].concat());
    assert_eq!(code, 0, "{err}");
    report
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split_once(from).unwrap().1.split_once(to).unwrap().0
}

fn data(page: &str) -> &str {
    between(page, "<script type=\"application/json\" id=\"data\">", "</script>")
}

/// A page without its data, which is the same for all logs.
fn frame(page: &str) -> String {
    page.replace(data(page), "")
}

#[test]
fn the_policy_allows_only_the_pages_own_style_and_script() {
    let page = report_of("html", &fixture("incident-503"), &[]);
    let hash = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
    let style = hash(between(&page, "<style>", "</style>"));
    let script = hash(between(&page, "<script>", "</script>"));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    assert!(page.contains(&format!("content=\"{POLICY}\"")));
    assert!(frame(&page).len() < 120_000, "{} bytes before anything happened", frame(&page).len());
    expect_file!["../../src/report/html/policy"].assert_eq(&policy);
}

#[test]
fn the_page_holds_the_json_report_without_annotations() {
    let log = fixture("careless-platform");
    let acted = temporary("acted");
    let mut modes = Vec::new();
    report_of("json", &log, &["--save", &acted]);
    for log in [&log, &acted] {
        let mut report: Value = serde_json::from_str(&report_of("json", log, &[])).unwrap();
        for action in report["actions"].as_array_mut().unwrap() {
            let action = action.as_object_mut().unwrap();
            assert!(action.insert("precondition".into(), json!({})).is_some());
            assert_eq!(action.remove("annotations").is_some(), action["type"] != "delete");
        }
        let page = report_of("html", log, &[]);
        let mut shown: Value = serde_json::from_str(data(&page)).unwrap();
        let picture = shown.as_object_mut().unwrap().remove("picture").unwrap();
        assert_eq!(shown, report);
        let hops = report["connectors"].as_array().unwrap().iter();
        let hops: usize = hops.map(|of| of["hops"].as_array().unwrap().len()).sum();
        let entries = hops + report["actions"].as_array().unwrap().len();
        assert!(data(&page).len() < 500 * entries, "{} of {entries}", data(&page).len());
        assert!(!page.contains("upstream-status\":"), "an annotation is in the page");
        modes.push(shown["mode"].clone());
        // Every action belongs to an entry of a story.
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
fn the_page_has_the_sentences_of_the_text_report() {
    let log = fixture("incident-503");
    let page: Value = serde_json::from_str(data(&report_of("html", &log, &[]))).unwrap();
    let picture = &page["picture"];
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = flat(&report_of("text", &log, &[]));
    let lines = |name: &str| picture[name].as_array().unwrap().clone();
    let mut sentences: Vec<_> = lines("head").into_iter().chain(lines("summary")).collect();
    assert!(sentences.len() > 10, "{sentences:?}");
    for part in picture["connectors"].as_array().unwrap() {
        sentences.extend(part["story"].as_array().unwrap().iter().map(|row| row["text"].clone()));
    }
    for line in sentences {
        let line = flat(line.as_str().unwrap());
        assert!(text.contains(&line), "{line:?} is not in: {text}");
    }
    let only = report_of("html", &log, &["--connector", "default/office"]);
    let only: Value = serde_json::from_str(data(&only)).unwrap();
    let shown = only["picture"]["connectors"].as_array().unwrap();
    assert!(shown.len() == 1 && shown[0]["key"] == "default/office", "{shown:?}");
    let figure = &picture["connectors"][0]["figures"][0];
    assert_eq!(
        (figure["symptom"].as_str(), figure["recorded"]["text"].as_str()),
        (Some("503"), Some("52.2\u{a0}s"))
    );
}

/// `U+202E` makes what follows it read backwards, and an escape moves a terminal's cursor.
#[test]
fn no_report_turns_the_direction_of_text() {
    const STEERING: &str = "lab\u{202e}\x1b[2J\rc";
    let log = written("steering", STEERING);
    let saved = temporary("saved");
    let [text, json, page] = ["text", "json", "html"].map(|output| report_of(output, &log, &[]));
    report_of("text", &log, &["--save", &saved]);
    // The verdict quotes the first action that the log lacks.
    let lines = fs::read_to_string(&saved).unwrap();
    let lines: Vec<_> = lines.lines().filter(|line| !line.contains("\"id\":1,")).collect();
    fs::write(&saved, lines.join("\n")).unwrap();
    let (code, out, err) = run(&["replay", "--output", "text", &saved]);
    assert_eq!(code, 1);
    let verdict = out + &err;
    for report in [&text, &json, &page, &verdict] {
        let steers = |c: char| c == '\u{202e}' || c.is_control() && c != '\n';
        assert!(!report.contains(steers), "{report}");
    }
    let name = |json: &str| {
        let report: Value = serde_json::from_str(json).unwrap();
        report["connectors"][0]["upstream"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(&json), STEERING, "JSON says the same");
    assert!(name(data(&page)).starts_with(r"lab\u{202e}"), "a page shows the escape");

    // Markup in names stays inside the data.
    let plain = report_of("html", &fixture("incident-503"), &[]);
    let page = report_of("html", &written("evil", logs::EVIL), &[]);
    assert!(!data(&page).contains('<'), "a tag can begin in the data");
    assert_eq!(frame(&page), frame(&plain), "a name is outside the data");
    assert_eq!(name(data(&page)), logs::EVIL);
}
