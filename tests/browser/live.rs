//! The live page in a real headless Chromium, while the fleet that it shows changes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use throughline::admin;
use throughline::config::StateAccess;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use crate::driver::Browser;
use crate::live_fleet::{LiveFleet, now_ms};
use crate::logs::EVIL;
use crate::{DOWN, END, ENTER, ESCAPE, FOCUSED, HOME, IS_EXPANDED, PANEL, ROWS, TEMP};

/// The admin port with a fleet behind it, until the runtime is dropped; and the page's address.
fn serve(fleet: &LiveFleet, address: &str) -> (Runtime, String) {
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (queries, asked) = mpsc::channel(4);
    runtime.spawn(fleet.clone().answer(asked));
    let metrics = Arc::default();
    let (never, stop) = watch::channel(false);
    runtime.spawn(async move {
        admin::serve(listener, StateAccess::Loopback, metrics, queries, stop).await;
        drop(never);
    });
    (runtime, url)
}

const ANY_PORT: &str = "127.0.0.1:0";

const FIRST: &str = "document.querySelector('.row[aria-posinset=\"1\"] .name')?.textContent";
const TITLE: &str = "byId('title').textContent";
const PROBLEMS: &str = "byId('problems').innerText";
const IS_STALE: &str = "document.body.classList.contains('stale')";
const AGREES: &str = "byId('panel-body').innerText.includes('Every hop agrees')";

fn problem(cause: &str, severity: &str, message: &str, remedy: &str) -> Value {
    json!({
        "cause": cause, "severity": severity, "cluster": "up", "sinceMs": now_ms() - 60_000, "count": 1,
        "objects": [], "message": message, "error": "403 Forbidden", "remedy": remedy,
    })
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn a_changing_fleet_can_be_followed_with_pointer_and_keyboard() {
    let fleet = LiveFleet::of(8);
    fleet.flip(3, false, 3);
    let (_served, url) = serve(&fleet, ANY_PORT);
    let browser = Browser::at(&url);
    browser.until("document.querySelectorAll('.row').length === 8");
    browser.assert_is(TITLE, "8 connectors, none stuck");
    browser.assert_shows("byId('when').textContent", &["UTC, live"]);
    browser.assert_is(FIRST, "shop/conn-1");

    // The worst comes first by itself, with its cause, and its problem is above the rows with what to do.
    fleet.stall(6);
    browser.until(&format!("{FIRST} === 'shop/conn-6'"));
    browser.until("document.title === '1 stuck · throughline live'");
    browser.assert_is(TITLE, "8 connectors: 1 stuck");
    let parts = ["not carried", "edge-1 does not have the hub annotation", "error", "kubectl"];
    browser.assert_shows(PROBLEMS, &parts);
    let states = browser.assert_shows("byId('states').innerText", &["stuck", "ok"]);
    assert!(states.starts_with('1'), "{states}");
    let parts = ["stuck for", "2/2 announced, stale", "carried (edge-1): not carried: edge-1 does"];
    browser.assert_shows("document.querySelector('.row').textContent", &parts);
    browser.assert_is("document.querySelectorAll('.row rect.problem').length", "1");

    // Opened, it says where it is stuck and what to do.
    browser.js("document.querySelector('.row .name').focus()");
    browser.press(&[ENTER]);
    browser.until("byId('panel-body').innerText.includes('What to do')");
    let parts = [
        "shop/conn-6",
        "Stuck at carried (edge-1)",
        "not carried: edge-1 does not have",
        "mirrored (hub), offline",
        "carried (edge-1), online, expected offline, since",
        "at hub:",
        "Copy",
    ];
    browser.assert_shows(PANEL, &parts);
    let command = browser.text("document.querySelector('.command code').textContent");
    assert!(command.starts_with("kubectl -n ns-shop describe"), "{command}");
    browser.assert_is(IS_EXPANDED, "true");
    browser.until("location.hash === '#connector=ns-shop%2Fconn-6'");
    browser.until("document.querySelectorAll('.row.on .sub').length === 4");

    // It is mended while somebody looks: row, problem and panel follow, and the focus stays.
    fleet.flip(6, false, 3);
    browser.until(AGREES);
    browser.until("byId('problems').hidden && byId('title').textContent.includes('none stuck')");
    browser.assert_is(FOCUSED, "shop/conn-6");
    let is_open = "fleet.rows.get('ns-shop/conn-6').lanes.find((l) => l.hop === 'carried')
        .problems[0].ended_ms === null";
    browser.assert_is(is_open, "false");

    // Keys move, the filter and the states narrow.
    browser.press(&[DOWN]);
    browser.assert_is(FOCUSED, "shop/conn-7");
    browser.press(&[END, HOME]);
    browser.assert_is(FOCUSED, "shop/conn-1");
    browser.press(&[ESCAPE]);
    browser.until("byId('panel-title').textContent === 'Nothing selected' && location.hash === ''");
    browser.press(&["/"]);
    for (filter, shown) in [("conn-2", "1 of 8"), ("", "8"), ("offline", "2 of 8"), ("", "8")] {
        browser.js("byId('filter').value = ''; byId('filter').dispatchEvent(new Event('input'))");
        browser.press(&filter.split("").filter(|key| !key.is_empty()).collect::<Vec<_>>());
        browser.until(&format!("byId('shown').textContent === '{shown} connectors'"));
    }
    fleet.flip(4, false, 1);
    browser.until("document.querySelector('#states [data-state=pending]')");
    for shown in ["1 of 8", "8"] {
        browser.point("#states [data-state=pending]", true);
        browser.until(&format!("byId('shown').textContent === '{shown} connectors'"));
    }
    // A connector that goes takes its row with it.
    fleet.change(|fleet| drop(fleet["connectors"].as_array_mut().unwrap().remove(7)));
    browser.until("document.querySelectorAll('.row').length === 7");
    // What keeps a connector from being ok has a line, open problem or not; what needs nobody has none.
    fleet.change(|fleet| {
        fleet["connectors"][1]["state"] = json!("held");
        let hop = &mut fleet["connectors"][1]["hops"][2];
        hop["state"] = json!("held");
        hop["cause"] = json!("not_placed");
        hop["message"] = json!("No edge has the Connector ns-shop/conn-2.");
        fleet["problems"] = json!([problem("deferred", "info", "It does not route.", "None.")]);
    });
    browser.until("byId('problems').innerText.includes('not placed')");
    let parts = ["No edge has the Connector ns-shop/conn-2."];
    let problems = browser.assert_shows(PROBLEMS, &parts);
    assert!(!problems.contains("deferred"), "{problems}");
    browser.assert_is(FIRST, "shop/conn-2");
    // A stream ends now and then, and the page gets everything again: what it knows does not change.
    browser.js(
        "const again = new EventSource('changes');
         again.addEventListener('fleet', (event) => { window.again = take(JSON.parse(event.data), true).size; again.close(); });",
    );
    browser.until("window.again !== undefined");
    browser.assert_is("window.again", "0");
    browser.assert_is(is_open, "false");
    // The past of a lane is what happened, not what the page saw.
    let changes = "fleet.rows.get('ns-shop/conn-3').lanes.map((l) => l.changes.length).join()";
    browser.assert_is(changes, "2,2,2,2");
    browser.assert_quiet();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn a_page_without_its_server_says_so_and_since_when_and_comes_back() {
    let fleet = LiveFleet::of(3);
    let (served, url) = serve(&fleet, ANY_PORT);
    let browser = Browser::at(&format!("{url}#connector=ns-shop%2Fconn-2"));
    // A link opens its connector.
    browser.until(AGREES);
    browser.assert_is("byId('lost').hidden", "true");
    drop(served);
    browser.until(&format!("{IS_STALE} && !byId('lost').hidden"));
    browser.assert_shows("byId('lost').textContent", &["Nothing since", "as it was then"]);
    browser.assert_shows("byId('when').textContent", &["as of", "ago"]);
    browser.assert_is("document.title", "no connection · throughline live");
    // Time goes on, and the lanes do not.
    browser.until("document.querySelector('.row line.end')");
    fleet.stall(1);
    browser.assert_shows(TITLE, &["At ", "3 connectors, none stuck"]);
    let _served = serve(&fleet, url.split('/').nth(2).unwrap());
    browser.until(&format!("!{IS_STALE} && byId('lost').hidden"));
    browser.until("byId('title').textContent === '3 connectors: 1 stuck'");
    browser.assert_is(FIRST, "shop/conn-1");
    browser.until("!document.querySelector('.row line.end')");
    browser.assert_is("fleet.rows.get('ns-shop/conn-2').open", "true");
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn names_and_reasons_from_clusters_are_shown_as_text() {
    let fleet = LiveFleet::of(2);
    fleet.stall(1);
    fleet.change(|fleet| {
        let connector = &mut fleet["connectors"][0];
        connector["upstream"]["name"] = json!(EVIL);
        connector["name"]["name"] = json!(EVIL);
        let hop = &mut connector["hops"][2];
        for field in ["cluster", "message"] {
            hop[field] = json!(EVIL);
        }
        hop["remedy"] = json!(format!("{EVIL} `{EVIL}` `at {EVIL}: kubectl {EVIL}`"));
        hop["evidence"] = json!([EVIL]);
        hop["object"]["name"] = json!(EVIL);
        connector["hops"][4]["object"]["name"] = json!(EVIL);
        fleet["leader"] = json!({ "leads": false, "holder": EVIL });
        fleet["clusters"][1]["name"] = json!(EVIL);
    });
    let (_served, url) = serve(&fleet, ANY_PORT);
    let browser = Browser::at(&url);
    browser.until("document.querySelectorAll('.row').length === 2 && !byId('problems').hidden");
    browser.js("document.querySelector('.row .name').click()");
    browser.until("byId('panel-body').innerText.includes('What to do')");
    browser.assert_shows("document.body.innerText", &[EVIL]);
    browser.assert_harmless(1);
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn the_live_page_is_readable_in_light_and_in_dark() {
    let fleet = LiveFleet::of(40);
    for i in [3, 9, 17] {
        fleet.stall(i);
    }
    for (seconds, online) in [(48, false), (31, true), (9, false)] {
        fleet.flip_at(now_ms() - seconds * 1_000, 5, online, 3);
    }
    fleet.flip(6, false, 1);
    fleet.flip(7, false, 2);
    fleet.change(|fleet| {
        let [message, remedy] = ["up does not allow it.", "As somebody: `at up: kubectl create`"];
        let problems = [("permission_missing", "error"), ("paused", "info")];
        fleet["problems"] = problems.map(|(c, s)| problem(c, s, message, remedy)).into();
        for (i, state) in [(10, "held"), (20, "unknown")] {
            fleet["connectors"][i]["state"] = json!(state);
            fleet["connectors"][i]["hops"][1]["state"] = json!(state);
        }
    });
    let (served, url) = serve(&fleet, ANY_PORT);
    let browser = Browser::at(&url);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.open(&url);
        browser.until("document.querySelectorAll('.row').length > 5");
        browser.js("document.querySelector('.row .name').click()");
        browser.until("byId('panel-body').innerText.includes('What to do')");
        browser.audit(&format!("live, {scheme}"));
    }
    drop(served);
    browser.until(IS_STALE);
    for scheme in ["dark", "light"] {
        browser.prefer(scheme);
        browser.audit(&format!("live, {scheme}, without its server"));
    }
}

/// Only the rows in view have elements, and the keyboard reaches the others.
#[test]
#[ignore = "needs Chromium: make browser"]
fn five_thousand_connectors_stay_responsive() {
    let fleet = LiveFleet::of(5_000);
    let (_served, url) = serve(&fleet, ANY_PORT);
    let browser = Browser::at(&url);
    browser.until("document.querySelector('.row .name')");
    browser.assert_is("fleet.rows.size", "5000");
    // Changes all over the fleet arrive, and the worst is first.
    for i in (1..=5_000).step_by(100) {
        fleet.flip(i, false, 3);
    }
    fleet.stall(4_321);
    browser.until(&format!("{FIRST} === 'shop/conn-4321'"));
    browser.until("[...fleet.rows.values()].filter((row) => !row.online).length === 51");
    browser.js("document.querySelector('.row .name').focus()");
    browser.press(&[DOWN; 30]);
    browser.until("document.activeElement.closest('.row')?.ariaPosInSet === '31'");
    browser.press(&[END]);
    browser.until("document.activeElement.closest('.row')?.ariaPosInSet === '5000'");
    browser.assert_is(FOCUSED, "shop/conn-999");
    browser.assert_is(&format!("{ROWS} < 40"), "true");
    browser.assert_quiet();
}

/// The real program on clusters in memory, from the start of an incident to its end.
#[test]
#[ignore = "needs Chromium: make browser"]
fn a_real_run_is_shown_while_it_goes_on() {
    let folder = Path::new(TEMP).join("live-demo");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    // `timeout` ends what a failed test leaves. In the foreground it passes a signal on once: a second
    // one would end the demo at once.
    let mut demo = Command::new("timeout");
    demo.args(["--foreground", "300", env!("CARGO_BIN_EXE_throughline"), "demo", "--linger"]);
    demo.args(["--longest-pause", "3s"]).env("TMPDIR", &folder);
    let mut demo = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("live page")).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let browser = Browser::at(url);
    browser.until("document.querySelectorAll('.row').length === 2");
    // The incident ends, and the page with it at what is true then.
    lines.find(|line| line.contains(url) && line.contains("keeps running")).unwrap();
    browser.until("byId('title').textContent === '2 connectors, none stuck'");
    browser.until("Math.max(...[...fleet.rows.values()].map((r) => r.lanes.find((l) => l.hop === 'announced').changes.length)) > 1");
    browser.js("document.querySelectorAll('.row .name').forEach((name) => name.click())");
    browser.until(AGREES);
    assert!(demo.try_wait().unwrap().is_none(), "it lingers");
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    let rest: Vec<_> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("converged: ")), "{rest:#?}");
    let mut errors = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((demo.wait().unwrap().code(), errors.as_str()), (Some(0), ""), "{rest:#?}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "left behind in {}", folder.display());
    browser.until("!byId('lost').hidden");
}
