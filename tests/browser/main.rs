//! The HTML report in a real headless Chromium: `make browser`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::expect_used, reason = "a test may panic")]

mod driver;
mod live;
#[path = "../support/live_fleet.rs"]
mod live_fleet;
mod logs;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use driver::Browser;
use serde_json::json;

const DOWN: &str = "\u{e015}";
const RIGHT: &str = "\u{e014}";
const LEFT: &str = "\u{e012}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const TAB: &str = "\u{e004}";

/// Replays a log into a page, and returns its address.
fn page(log: &Path, name: &str) -> String {
    let made = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(["replay", "--output", "html"])
        .arg(log)
        .output()
        .unwrap();
    assert!(made.stderr.is_empty(), "{}", String::from_utf8_lossy(&made.stderr));
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html"));
    fs::write(&page, made.stdout).unwrap();
    format!("file://{}", page.display())
}

fn recording(name: &str) -> String {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.jsonl"));
    page(&log, name)
}

fn written(log: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.jsonl"));
    fs::write(&path, log).unwrap();
    page(&path, name)
}

fn audit(browser: &Browser, of: &str) {
    browser.until("document.getAnimations().length === 0");
    let wrong = browser.js(include_str!("audit.js"));
    assert_eq!(wrong, json!([]), "{of}: {wrong:#}");
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn an_incident_can_be_read_with_pointer_and_keyboard() {
    let browser = Browser::start();
    browser.open(&recording("incident-503"));
    assert_eq!(browser.text("document.querySelector('h1').textContent"), "incident-503.jsonl");
    assert_eq!(browser.text("document.querySelectorAll('.row').length"), "2");
    let cards = browser.text("byId('cards').innerText");
    for part in ["52.2 s", "120 ms", "converged"] {
        assert!(cards.contains(part), "{part}: {cards}");
    }

    browser.point(".mark", false);
    browser.until("!byId('tip').hidden");
    let tip = browser.text("byId('tip').innerText");
    assert!(tip.contains("offline upstream") && tip.contains("hub annotation written"), "{tip}");

    // Tab reaches the timeline, arrow keys move within it.
    browser.js("byId('fit').focus()");
    browser.press(&[TAB]);
    assert_eq!(browser.text("document.activeElement.textContent"), "home-lab");
    browser.press(&[RIGHT, RIGHT]);
    browser.until("document.activeElement.closest('.mark') && !byId('tip').hidden");
    let tip = browser.text("byId('tip').innerText");
    assert!(tip.contains("hub annotation written") && tip.contains("1 × goes online"), "{tip}");
    let first = browser.text("byId('panel').innerText");
    for part in ["home-lab", "goes online upstream", "Hops at this moment", "+14.226 s"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    browser.until("location.hash.includes('connector=default%2Fhome-lab&t=')");
    browser.press(&[RIGHT]);
    let second = browser.text("byId('panel').innerText");
    assert!(second.contains("gateways touched") && second != first, "{second}");
    browser.press(&[LEFT]);
    assert_eq!(browser.text("byId('panel').innerText"), first);
    browser.press(&[DOWN, ENTER]);
    browser.until("document.activeElement.textContent === 'office'");
    assert_eq!(browser.text("document.activeElement.getAttribute('aria-expanded')"), "true");
    browser.press(&[ESCAPE]);
    browser.until("location.hash === '' && byId('tip').hidden");

    // `+` zooms in, `0` shows everything again.
    let marks = "document.querySelectorAll('.mark').length";
    let before: u32 = browser.text(marks).parse().unwrap();
    browser.point(".mark", true);
    browser.press(&["+", "+", "+", "+", "+", "+", "+"]);
    browser.until("state.view.to - state.view.from < 4000");
    browser.press(&["0"]);
    browser.until("state.view.to - state.view.from > 60000");
    assert!(before > 5, "{before} marks");
    browser.assert_quiet();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn a_link_selects_its_moment() {
    let browser = Browser::start();
    let url = recording("incident-503");
    browser.open(&url);
    browser.point(".mark", true);
    browser.until("location.hash !== ''");
    let (link, panel) = (browser.text("location.href"), browser.text("byId('panel').innerText"));
    assert!(panel.contains("is offline upstream"), "{panel}");
    browser.open(&link);
    assert_eq!(browser.text("byId('panel').innerText"), panel);
    browser.until("document.querySelector('.row.on .cursor')");
    // An unknown name and an invalid time are not errors.
    for hash in ["#connector=nobody&t=1", "#connector=home-lab&t=soon", "#%%%", "#connector=office"]
    {
        browser.open(&format!("{url}{hash}"));
        assert_eq!(browser.text("document.querySelectorAll('.row').length"), "2", "{hash}");
    }
    browser.assert_quiet();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn the_filter_narrows_rows_and_text() {
    let browser = Browser::start();
    browser.open(&recording("careless-platform"));
    assert_eq!(browser.text("document.querySelectorAll('#table tbody tr').length"), "8");
    browser.press(&["/", "S", "h", "o", "p", "/", "c", " ", "n", "-", "2"]);
    browser.until("byId('shown').textContent === '1 of 8 connectors'");
    browser.until("document.querySelectorAll('.row').length === 1");
    assert_eq!(browser.text("document.querySelector('.row .name').textContent"), "shop/conn-2");
    assert_eq!(browser.text("document.querySelectorAll('#table tbody tr').length"), "1");
    browser.press(&["x"]);
    browser.until("!byId('nothing').hidden && !document.querySelector('.row')");
    browser.js("byId('filter').value = ''; byId('filter').dispatchEvent(new Event('input'))");
    browser.until("byId('shown').textContent === '8 connectors'");
    // From the text to the timeline.
    browser.js("document.querySelector('#table button').click()");
    let panel = browser.text("byId('panel-title').textContent");
    assert_eq!(panel, browser.text("document.querySelector('#table button').textContent"));
    // A whole story as text.
    browser.js("document.querySelector('.story summary').click()");
    browser.until("document.querySelector('.story ol')");
    let entries = browser.text("document.querySelectorAll('.story ol li').length");
    assert!(
        browser
            .text("document.querySelector('.story summary').textContent")
            .contains(&format!("{entries} entries"))
    );
    // Printing draws every row.
    browser.js("dispatchEvent(new Event('beforeprint'))");
    assert_eq!(browser.text("document.querySelectorAll('.row').length"), "9");
    let drawn = browser.text("axis.getAttribute('width')");
    browser.js("dispatchEvent(new Event('afterprint'))");
    assert_ne!(browser.text("axis.getAttribute('width')"), drawn);
    browser.assert_quiet();
}

/// A log written by throughline has one lane of what users saw, with nothing to compare.
#[test]
#[ignore = "needs Chromium: make browser"]
fn a_verify_shows_users_without_a_comparison() {
    let browser = Browser::start();
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/careless-platform.jsonl");
    let acted = Path::new(env!("CARGO_TARGET_TMPDIR")).join("acted.jsonl");
    let made = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(["replay", "--output", "json", "--save"])
        .args([&acted, &log])
        .output()
        .unwrap();
    assert!(made.status.success());
    browser.open(&page(&acted, "acted"));
    let text = browser.text("document.body.innerText");
    assert!(text.contains("verified") && text.contains("users · edge-1"), "{text}");
    assert!(!text.contains("with throughline") && !text.contains("null"), "{text}");
    browser.point(".row .mark", true);
    browser.until("location.hash !== ''");
    let panel = browser.text("byId('panel').innerText");
    assert!(panel.contains("Hops at this moment") && !panel.contains("null"), "{panel}");
    audit(&browser, "verify");
    browser.assert_quiet();
}

/// Problems and failures have their own marks, and unknown figures are not shown as none.
#[test]
#[ignore = "needs Chromium: make browser"]
fn problems_and_failures_are_shown_and_unknown_is_not_none() {
    let browser = Browser::start();
    browser.open(&recording("hub-out-of-reach-write-is-retried"));
    let cards = browser.text("byId('cards').innerText");
    assert!(cards.contains("the log has no edge cluster") && !cards.contains("none"), "{cards}");
    assert_eq!(browser.text("document.querySelectorAll('.row .over').length"), "4");
    browser.until("document.querySelector('.row rect.problem')");
    browser.js("goTo(rows[0], 1)");
    let panel = browser.text("byId('panel').innerText");
    assert!(panel.contains("failed: the cluster is unreachable"), "{panel}");
    let key = "Array.from(byId('legend').children, (item) => item.textContent).join(';')";
    let legend = browser.text(key);
    assert!(legend.contains("failed") && legend.contains("problem ended"), "{legend}");
    audit(&browser, "troubles");
    browser.assert_quiet();
}

/// A badge counts what is in one place by kind; shapes differ without colours; the end of the recording has
/// its name; a folded row shows the outage that users had for longest.
#[test]
#[ignore = "needs Chromium: make browser"]
fn marks_and_rows_say_what_they_stand_for() {
    let browser = Browser::start();
    browser.open(&recording("incident-503"));
    let label = "document.querySelector('.mark .badge').parentElement.getAttribute('aria-label')";
    let label = browser.text(label);
    assert!(label.contains("1 × goes offline, 1 × mirror, "), "{label}");
    let shown =
        "document.querySelector('.mark .badge').parentElement.querySelectorAll('.g').length";
    assert_eq!(browser.text(shown), "3", "a shape for each kind");
    assert_eq!(
        browser.text("axis.querySelector('.end-label').textContent"),
        "end of the recording"
    );
    let legend = browser.text("byId('legend').innerText");
    assert!(
        legend.contains("end of the recording") && legend.contains("for each kind"),
        "{legend}"
    );
    // Of what differs in meaning the outlines differ, not only the colours.
    let shapes = browser.js(
        "const outline = (item) => glyph({ actions: [], outcome: 'applied', ...item })
             .map((shape) => ['d', 'x', 'r', 'rx', 'width'].map((name) => shape.getAttribute(name)).join()).join(';');
         const kinds = ['mirror', 'touch', 'confirm', 'nudge', 'delete', 'began', 'ended', 'carried'];
         return [...kinds.map((kind) => outline({ kind })), outline({ kind: 'upstream', online: true }), outline({ kind: 'upstream', online: false })]",
    );
    let mut shapes: Vec<_> =
        shapes.as_array().unwrap().iter().map(|shape| shape.as_str().unwrap()).collect();
    let all = shapes.len();
    shapes.sort_unstable();
    shapes.dedup();
    assert_eq!(shapes.len(), all, "{shapes:#?}");

    // Of either kind: where a dead tunnel lasted longer than the 503, it is the one that shows.
    browser.open(&recording("careless-platform"));
    let worst = browser.js(
        "return rows.filter((row) => row.figures.length).map((row) => {
             const ms = (symptom) => row.figures.filter((f) => f.symptom === symptom).reduce((sum, f) => sum + (f.recorded?.ms ?? 0), 0);
             const expected = ms('dead tunnel') > ms('503') ? 'dead tunnel' : '503';
             return [expected, subtitle(row)];
         })",
    );
    let worst = worst.as_array().unwrap();
    assert!(worst.len() > 3, "{worst:?}");
    for row in worst {
        let (expected, shown) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        assert!(shown.replace("STALLED · ", "").starts_with(expected), "{expected}: {shown}");
    }
    let dead = "subtitle({ story: [1], figures: [{ symptom: '503', recorded: { ms: 5 } }, { symptom: 'dead tunnel', recorded: { ms: 9000 }, replayed: { ms: 85 } }] })";
    assert_eq!(browser.text(dead), "dead tunnel 9.00 s → 85 ms");
    browser.assert_quiet();
}

/// A long error is cut between words, and all of it can be read.
#[test]
#[ignore = "needs Chromium: make browser"]
fn long_errors_wrap_at_words_and_fold() {
    let browser = Browser::start();
    browser.open(&recording("hub-out-of-reach-write-is-retried"));
    let reason = "the admission webhook refused the annotation because ".repeat(12);
    browser.js(&format!(
        "const failed = rows[0].story.findIndex((item) => item.outcome === 'failed');
         actionsById.get(rows[0].story[failed].actions[0]).error = {reason:?};
         goTo(rows[0], failed, true)"
    ));
    browser.until("document.querySelector('#panel .fold')");
    let folded = browser.text("document.querySelector('#panel .fold summary').textContent");
    assert!(folded.ends_with(" …") && folded.chars().count() < 250, "{folded}");
    let words: Vec<_> = reason.split(' ').collect();
    let last = folded.trim_end_matches(" …").rsplit(' ').next().unwrap();
    assert!(words.contains(&last), "cut within a word: {folded}");
    assert!(!browser.text("byId('panel').innerText").contains(&reason.trim_end()[..500]));
    browser.point("#panel .fold summary", true);
    browser.until("document.querySelector('#panel .fold').open");
    let all =
        browser.text("document.querySelector('#panel .fold').textContent.replace(/ …… /, ' ')");
    assert!(all.contains(reason.trim_end()), "{all}");
    for place in ["#panel", "#tip", "#panel .entries li > *"] {
        let wrap = browser
            .text(&format!("getComputedStyle(document.querySelector({place:?})).overflowWrap"));
        assert_eq!(wrap, "break-word", "{place}");
    }
    browser.assert_quiet();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn readable_in_light_and_in_dark() {
    let browser = Browser::start();
    let ground = "getComputedStyle(document.body).backgroundColor";
    for name in ["incident-503", "careless-platform"] {
        let url = recording(name);
        let mut grounds = Vec::new();
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            browser.open(&url);
            live::shoot(&browser, &format!("{name}-{scheme}"), (1440, 780));
            browser.js("byId('summary').open = true; document.querySelector('.story').open = true");
            browser.js("if (byId('expand').textContent === 'Collapse all') byId('expand').click();
                 byId('expand').click()");
            browser.until("document.querySelectorAll('.name[aria-expanded=true]').length > 0 && document.querySelector('.row .mark')");
            browser.point(".row .mark", true);
            browser.until("document.querySelector('.story ol') && !byId('tip').hidden");
            audit(&browser, &format!("{name}, {scheme}"));
            grounds.push(browser.text(ground));
        }
        assert_ne!(grounds[0], grounds[1]);
        browser.point("#theme", true);
        browser.until(&format!("{ground} === {:?}", grounds[0]));
        audit(&browser, &format!("{name}, light by choice"));
    }
    browser.assert_quiet();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn names_are_shown_as_text() {
    let browser = Browser::start();
    browser.open(&written(&logs::flips(2, 2, logs::EVIL), "evil"));
    assert_eq!(browser.text("document.querySelectorAll('img, iframe, [onerror]').length"), "0");
    assert_eq!(browser.text("document.scripts.length"), "2");
    assert_eq!(browser.text("typeof hacked"), "undefined");
    let name = browser.text("document.querySelector('.row .name').textContent");
    // Which of the two is first depends on who was offline for longer.
    assert!(name.starts_with(logs::EVIL), "{name}");
    browser.point(".mark", true);
    browser.until("!byId('tip').hidden");
    browser.js("document.querySelectorAll('.story').forEach((story) => { story.open = true; })");
    browser.until("document.querySelector('.story ol')");
    assert!(browser.text("byId('panel').innerText").contains(logs::EVIL));
    assert_eq!(browser.text("document.querySelectorAll('img, iframe, [onerror]').length"), "0");
    browser.assert_quiet();
    browser.assert_policy();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn five_thousand_events_stay_responsive() {
    let browser = Browser::start();
    let url = written(&logs::flips(250, 20, "c-"), "many");
    let began = Instant::now();
    browser.open(&url);
    browser.until("document.querySelector('.mark')");
    println!("opened and drawn after {:?}", began.elapsed());
    assert_eq!(browser.text("rows.filter((row) => !row.isRest).length"), "250");
    let frame = "const began = performance.now(); for (let i = 0; i < 20; i++) { zoom(i < 10 ? 0.8 : 1.25); draw(); }
                 return (performance.now() - began) / 20";
    println!("a frame of a zoom, folded: {:.1} ms", browser.js(frame).as_f64().unwrap());
    browser.point("#expand", true);
    println!("a frame of a zoom, expanded: {:.1} ms", browser.js(frame).as_f64().unwrap());
    // Only the rows in view have elements.
    let exist: u32 = browser.text("document.querySelectorAll('.row').length").parse().unwrap();
    assert!(exist < 40, "{exist} rows have elements");
    browser.js("scroller.scrollTop = 1e9");
    browser
        .until("[...document.querySelectorAll('.row')].some((row) => row.ariaPosInSet === '250')");
    assert!(browser.text("document.querySelectorAll('.row').length").parse::<u32>().unwrap() < 40);
    // The keyboard reaches rows without elements, and the end of a row.
    browser.js("scroller.scrollTop = 0");
    browser.until("document.querySelector('.row').ariaPosInSet === '1'");
    browser.js("document.querySelector('.row .name').focus()");
    browser.press(&[DOWN; 12]);
    browser.until("document.activeElement.closest('.row')?.ariaPosInSet === '13'");
    browser.press(&[RIGHT, RIGHT, "\u{e010}"]);
    browser.until("document.activeElement.matches('.mark') && state.selected.at === state.selected.row.story.at(-1).at");
    browser.assert_quiet();
}
