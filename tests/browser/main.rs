//! The HTML report in a real headless Chromium: `make browser`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod driver;
mod live;
#[path = "../support/live_fleet.rs"]
mod live_fleet;
mod logs;

use std::fs;
use std::path::Path;
use std::process::Command;

use driver::Browser;

const DOWN: &str = "\u{e015}";
const RIGHT: &str = "\u{e014}";
const LEFT: &str = "\u{e012}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const TAB: &str = "\u{e004}";
const END: &str = "\u{e010}";
const HOME: &str = "\u{e011}";

const TEMP: &str = env!("CARGO_TARGET_TMPDIR");
const PANEL: &str = "byId('panel').innerText";
const FOCUSED: &str = "document.activeElement.textContent";
const IS_EXPANDED: &str = "document.activeElement.getAttribute('aria-expanded')";
const ROWS: &str = "document.querySelectorAll('.row').length";

/// Replays a log into a page; returns its address.
fn page(log: &Path) -> String {
    let mut replay = Command::new(env!("CARGO_BIN_EXE_throughline"));
    let made = replay.args(["replay", "--output", "html"]).arg(log).output().unwrap();
    assert!(made.stderr.is_empty(), "{}", String::from_utf8_lossy(&made.stderr));
    let page = Path::new(TEMP).join(log.file_stem().unwrap()).with_extension("html");
    fs::write(&page, made.stdout).unwrap();
    format!("file://{}", page.display())
}

fn recording(name: &str) -> String {
    page(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.jsonl")))
}

fn written(name: &str, log: &str) -> String {
    let path = Path::new(TEMP).join(format!("{name}.jsonl"));
    fs::write(&path, log).unwrap();
    page(&path)
}

/// Marks are pointed at, reached with keys and linked to; they differ in shape, and a badge counts what is in
/// one place by kind.
#[test]
#[ignore = "needs Chromium: make browser"]
fn an_incident_can_be_read_with_pointer_and_keyboard() {
    let url = recording("incident-503");
    let browser = Browser::at(&url);
    browser.assert_is("document.querySelector('h1').textContent", "incident-503.jsonl");
    browser.assert_is(ROWS, "2");
    browser.assert_shows("byId('cards').innerText", &["52.2 s", "120 ms", "converged"]);
    let mark = "document.querySelector('.mark .badge').parentElement";
    let label = format!("{mark}.getAttribute('aria-label')");
    browser.assert_shows(&label, &["1 × goes offline, 1 × mirror, "]);
    browser.assert_is(&format!("{mark}.querySelectorAll('.g').length"), "3");
    browser.assert_is("axis.querySelector('.end-label').textContent", "end of the recording");
    browser.assert_shows("byId('legend').innerText", &["end of the recording", "for each kind"]);
    browser.js(
        "const outline = (item) => glyph({ actions: [], outcome: 'applied', ...item })
             .map((shape) => ['d', 'x', 'r', 'rx', 'width'].map((name) => shape.getAttribute(name)).join()).join(';');
         const kinds = ['mirror', 'touch', 'confirm', 'nudge', 'delete', 'began', 'ended', 'carried'];
         window.shapes = [...kinds.map((kind) => outline({ kind })), outline({ kind: 'upstream', online: true }),
             outline({ kind: 'upstream', online: false })]",
    );
    browser.assert_is("new Set(shapes).size === shapes.length && shapes.length", "10");

    browser.point(".mark", false);
    browser.until("!byId('tip').hidden");
    browser.assert_shows("byId('tip').innerText", &["offline upstream", "hub annotation written"]);

    // Tab reaches the timeline, arrow keys move within it.
    browser.js("byId('fit').focus()");
    browser.press(&[TAB]);
    browser.assert_is(FOCUSED, "home-lab");
    browser.press(&[RIGHT, RIGHT]);
    browser.until("document.activeElement.closest('.mark') && !byId('tip').hidden");
    browser.assert_shows("byId('tip').innerText", &["hub annotation written", "1 × goes online"]);
    let parts = ["home-lab", "goes online upstream", "Hops at this moment", "+14.226 s"];
    let first = browser.assert_shows(PANEL, &parts);
    browser.until("location.hash.includes('connector=default%2Fhome-lab&t=')");
    let link = browser.text("location.href");
    browser.press(&[RIGHT]);
    assert_ne!(browser.assert_shows(PANEL, &["gateways touched"]), first);
    browser.press(&[LEFT]);
    browser.assert_is(PANEL, &first);
    browser.press(&[DOWN, ENTER]);
    browser.until("document.activeElement.textContent === 'office'");
    browser.assert_is(IS_EXPANDED, "true");
    browser.press(&[ESCAPE]);
    browser.until("location.hash === '' && byId('tip').hidden");

    // `+` zooms in, `0` shows everything again.
    browser.point(".mark", true);
    browser.press(&["+"; 7]);
    browser.until("state.view.to - state.view.from < 4000");
    browser.press(&["0"]);
    browser.until("state.view.to - state.view.from > 60000");

    // A link selects its moment. An unknown name and an invalid time are not errors.
    browser.open(&link);
    browser.assert_is(PANEL, &first);
    browser.until("document.querySelector('.row.on .cursor')");
    for hash in ["connector=nobody&t=1", "connector=home-lab&t=soon", "%%%", "connector=office"] {
        browser.open(&format!("{url}#{hash}"));
        browser.assert_is(ROWS, "2");
    }
    browser.assert_quiet();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn the_filter_narrows_rows_and_text() {
    let browser = Browser::at(&recording("careless-platform"));
    // A folded row shows the outage that users had for longest, dead tunnel or 503.
    browser.js(
        "window.wrong = rows.filter((row) => row.figures.length).filter((row) => {
             const ms = (symptom) => row.figures.filter((f) => f.symptom === symptom).reduce((sum, f) => sum + (f.recorded?.ms ?? 0), 0);
             const expected = ms('dead tunnel') > ms('503') ? 'dead tunnel' : '503';
             return !subtitle(row).replace('STALLED · ', '').startsWith(expected);
         }).map(subtitle)",
    );
    browser.assert_is("rows.filter((row) => row.figures.length).length > 3 && wrong.join()", "");
    let dead = "subtitle({ story: [1], figures: [{ symptom: '503', recorded: { ms: 5 } }, { symptom: 'dead tunnel', recorded: { ms: 9000 }, replayed: { ms: 85 } }] })";
    browser.assert_is(dead, "dead tunnel 9.00 s → 85 ms");

    let table = "document.querySelectorAll('#table tbody tr').length";
    browser.assert_is(table, "8");
    browser.press(&["/", "S", "h", "o", "p", "/", "c", " ", "n", "-", "2"]);
    browser.until("byId('shown').textContent === '1 of 8 connectors'");
    browser.until("document.querySelectorAll('.row').length === 1");
    browser.assert_is("document.querySelector('.row .name').textContent", "shop/conn-2");
    browser.assert_is(table, "1");
    browser.press(&["x"]);
    browser.until("!byId('nothing').hidden && !document.querySelector('.row')");
    browser.js("byId('filter').value = ''; byId('filter').dispatchEvent(new Event('input'))");
    browser.until("byId('shown').textContent === '8 connectors'");
    // From the text to the timeline.
    browser.js("document.querySelector('#table button').click()");
    let name = browser.text("document.querySelector('#table button').textContent");
    browser.assert_is("byId('panel-title').textContent", &name);
    // A whole story as text.
    browser.js("document.querySelector('.story summary').click()");
    browser.until("document.querySelector('.story ol')");
    let entries = browser.text("document.querySelectorAll('.story ol li').length");
    let summary = "document.querySelector('.story summary').textContent";
    browser.assert_shows(summary, &[&format!("{entries} entries")]);
    // Printing draws every row.
    browser.js("dispatchEvent(new Event('beforeprint'))");
    browser.assert_is(ROWS, "9");
    let drawn = browser.text("axis.getAttribute('width')");
    browser.js("dispatchEvent(new Event('afterprint'))");
    assert_ne!(browser.text("axis.getAttribute('width')"), drawn);
    browser.assert_quiet();
}

/// A log written by throughline has one lane of what users saw, with nothing to compare.
#[test]
#[ignore = "needs Chromium: make browser"]
fn a_verify_shows_users_without_a_comparison() {
    let acted = Path::new(TEMP).join("acted.jsonl");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_throughline"));
    replay.args(["replay", "fixtures/careless-platform.jsonl", "--save"]).arg(&acted);
    assert!(replay.output().unwrap().status.success());
    let browser = Browser::at(&page(&acted));
    browser.point(".row .mark", true);
    browser.until("location.hash !== ''");
    browser.assert_shows(PANEL, &["Hops at this moment"]);
    let text = browser.assert_shows("document.body.innerText", &["verified", "users · edge-1"]);
    assert!(!text.contains("with throughline") && !text.contains("null"), "{text}");
    browser.audit("verify");
    browser.assert_quiet();
}

/// Problems and failures have their own marks, unknown figures are not shown as none, and a long error is
/// cut between words, of which all can be read.
#[test]
#[ignore = "needs Chromium: make browser"]
fn problems_and_failures_are_shown_and_unknown_is_not_none() {
    let browser = Browser::at(&recording("hub-out-of-reach-write-is-retried"));
    let cards = browser.assert_shows("byId('cards').innerText", &["the log has no edge cluster"]);
    assert!(!cards.contains("none"), "{cards}");
    browser.assert_is("document.querySelectorAll('.row .over').length", "4");
    browser.until("document.querySelector('.row rect.problem')");
    browser.js("goTo(rows[0], 1)");
    browser.assert_shows(PANEL, &["failed: the cluster is unreachable"]);
    browser.assert_shows("byId('legend').textContent", &["failed", "problem ended"]);
    browser.audit("troubles");

    let reason = "the admission webhook refused the annotation because ".repeat(12);
    browser.js(&format!(
        "const failed = rows[0].story.findIndex((item) => item.outcome === 'failed');
         actionsById.get(rows[0].story[failed].actions[0]).error = {reason:?};
         goTo(rows[0], failed, true)"
    ));
    browser.until("document.querySelector('#panel .fold')");
    let folded = browser.text("document.querySelector('#panel .fold summary').textContent");
    assert!(folded.ends_with(" …") && folded.chars().count() < 250, "{folded}");
    let last = folded.trim_end_matches(" …").rsplit(' ').next().unwrap();
    assert!(reason.split(' ').any(|word| word == last), "cut within a word: {folded}");
    browser.point("#panel .fold summary", true);
    browser.until("document.querySelector('#panel .fold').open");
    let all = "document.querySelector('#panel .fold').textContent.replace(/ …… /, ' ')";
    browser.assert_shows(all, &[reason.trim_end()]);
    for place in ["#panel", "#tip", "#panel .entries li > *"] {
        let style = format!("getComputedStyle(document.querySelector({place:?})).overflowWrap");
        browser.assert_is(&style, "break-word");
    }
    browser.assert_quiet();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn readable_in_light_and_in_dark() {
    const GROUND: &str = "getComputedStyle(document.body).backgroundColor";
    for name in ["incident-503", "careless-platform"] {
        let url = recording(name);
        let browser = Browser::at(&url);
        let grounds = ["light", "dark"].map(|scheme| {
            browser.prefer(scheme);
            browser.open(&url);
            browser.js("byId('summary').open = true; document.querySelector('.story').open = true");
            browser.js("if (byId('expand').textContent === 'Collapse all') byId('expand').click();
                 byId('expand').click()");
            browser.until("document.querySelectorAll('.name[aria-expanded=true]').length > 0 && document.querySelector('.row .mark')");
            browser.point(".row .mark", true);
            browser.until("document.querySelector('.story ol') && !byId('tip').hidden");
            browser.audit(&format!("{name}, {scheme}"));
            browser.text(GROUND)
        });
        assert_ne!(grounds[0], grounds[1]);
        browser.point("#theme", true);
        browser.until(&format!("{GROUND} === {:?}", grounds[0]));
        browser.audit(&format!("{name}, light by choice"));
        browser.assert_quiet();
    }
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn names_are_shown_as_text() {
    let browser = Browser::at(&written("evil", &logs::incident_of(logs::EVIL)));
    browser.assert_is("document.querySelector('.row .name').textContent", logs::EVIL);
    browser.point(".mark", true);
    browser.until("!byId('tip').hidden");
    browser.js("document.querySelectorAll('.story').forEach((story) => { story.open = true; })");
    browser.until("document.querySelector('.story ol')");
    browser.assert_shows(PANEL, &[logs::EVIL]);
    browser.assert_harmless(2);
}

/// Only the rows in view have elements, and the keyboard reaches the others.
#[test]
#[ignore = "needs Chromium: make browser"]
fn five_thousand_events_stay_responsive() {
    const LISTED: &str = r#""listed","cluster":"project-a""#;
    let few = include_str!("../../fixtures/flip-while-500-addresses-wait.jsonl");
    let is_connector = |line: &&str| line.contains(LISTED) && line.contains("publicKey");
    let listed: Vec<_> = few.lines().filter(is_connector).collect();
    let flip = |i: usize| {
        let ready = if (i / listed.len()).is_multiple_of(2) { "False" } else { "True" };
        let flip = listed[i % listed.len()].replace("listed", "applied").replace("True", ready);
        let flip = flip.replace("1795334400000", &(1_795_334_500_000 + 97 * i).to_string());
        flip.replace("resourceVersion\":\"", &format!("resourceVersion\":\"{}", i + 1)) + "\n"
    };
    let many = few.to_owned() + &(0..5_000).map(flip).collect::<String>();
    let browser = Browser::at(&written("many", &many));
    browser.until("document.querySelector('.mark')");
    browser.assert_is("rows.filter((row) => !row.isRest).length", "500");
    browser.point("#expand", true);
    browser.assert_is(&format!("{ROWS} < 40"), "true");
    browser.js("scroller.scrollTop = 1e9");
    browser
        .until("[...document.querySelectorAll('.row')].some((row) => row.ariaPosInSet === '500')");
    browser.assert_is(&format!("{ROWS} < 40"), "true");
    browser.js("scroller.scrollTop = 0");
    browser.until("document.querySelector('.row').ariaPosInSet === '1'");
    browser.js("document.querySelector('.row .name').focus()");
    browser.press(&[DOWN; 12]);
    browser.until("document.activeElement.closest('.row')?.ariaPosInSet === '13'");
    browser.press(&[RIGHT, RIGHT, END]);
    browser.until("document.activeElement.matches('.mark') && state.selected.at === state.selected.row.story.findLast((item) => item.kind === 'upstream').at");
    browser.assert_quiet();
}
