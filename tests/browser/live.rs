//! The live page in a real headless Chromium, while the fleet that it shows changes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde_json::json;
use throughline::admin;
use throughline::config::StateAccess;
use throughline::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::driver::Browser;
use crate::live_fleet::{LiveFleet, now_ms};
use crate::logs::EVIL;
use crate::{DOWN, END, ENTER, ESCAPE, FOCUSED, HOME, PANEL, ROWS, audit};

/// The admin port with a fleet behind it.
struct Served {
    runtime: Runtime,
    address: SocketAddr,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Served {
    fn new(fleet: &LiveFleet) -> Self {
        let runtime = Runtime::new().unwrap();
        let mut served = Self { runtime, address: ([127, 0, 0, 1], 0).into(), running: None };
        served.start(fleet);
        served
    }

    /// On the same port as before.
    fn start(&mut self, fleet: &LiveFleet) {
        let listener = self.runtime.block_on(TcpListener::bind(self.address)).unwrap();
        self.address = listener.local_addr().unwrap();
        let (queries, asked) = mpsc::channel(4);
        self.runtime.spawn(fleet.clone().answer(asked));
        let (stop, stopped) = oneshot::channel();
        let until = async { drop(stopped.await) };
        let metrics = Arc::new(Metrics::new());
        let serving = admin::serve(listener, StateAccess::Loopback, metrics, queries, until);
        self.running = Some((stop, self.runtime.spawn(serving)));
    }

    fn stop(&mut self) {
        let (stop, served) = self.running.take().unwrap();
        stop.send(()).unwrap();
        self.runtime.block_on(served).unwrap();
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn shots() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn shoot(browser: &Browser, name: &str, (width, height): (u32, u32)) {
    fs::write(shots().join(format!("{name}.png")), browser.screenshot(width, height)).unwrap();
}

const FIRST: &str = "document.querySelector('.row[aria-posinset=\"1\"] .name')?.textContent";
const TITLE: &str = "byId('title').textContent";

#[test]
#[ignore = "needs Chromium: make browser"]
fn a_changing_fleet_can_be_followed_with_pointer_and_keyboard() {
    let fleet = LiveFleet::of(8);
    fleet.flip(3, false, 3);
    let served = Served::new(&fleet);
    let browser = Browser::start();
    browser.open(&served.url());
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
    browser.assert_shows("byId('problems').innerText", &parts);
    let states = browser.assert_shows("byId('states').innerText", &["stuck", "ok"]);
    assert!(states.starts_with('1'), "{states}");
    let row = "document.querySelector('.row').textContent";
    let parts = ["stuck for", "2/2 announced, stale", "carried (edge-1): not carried: edge-1 does"];
    browser.assert_shows(row, &parts);
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
    browser.assert_is(&format!("{FOCUSED}.getAttribute('aria-expanded')"), "true");
    browser.until("location.hash === '#connector=ns-shop%2Fconn-6'");
    browser.until("document.querySelectorAll('.row.on .sub').length === 4");

    // It is mended while somebody looks: row, problem and panel follow, and the focus stays.
    fleet.flip(6, false, 3);
    browser.until("byId('panel-body').innerText.includes('Every hop agrees')");
    browser.until("byId('problems').hidden && byId('title').textContent.includes('none stuck')");
    let focused = format!("{FOCUSED}.textContent");
    browser.assert_is(&focused, "shop/conn-6");
    let is_open = "fleet.rows.get('ns-shop/conn-6').lanes.find((l) => l.hop === 'carried')
        .problems[0].ended_ms === null";
    browser.assert_is(is_open, "false");

    // Keys move, the filter and the states narrow.
    browser.press(&[DOWN]);
    browser.assert_is(&focused, "shop/conn-7");
    browser.press(&[END, HOME]);
    browser.assert_is(&focused, "shop/conn-1");
    browser.press(&[ESCAPE]);
    browser.until("byId('panel-title').textContent === 'Nothing selected' && location.hash === ''");
    let shown = |text: &str| browser.until(&format!("byId('shown').textContent === '{text}'"));
    let clear = "byId('filter').value = ''; byId('filter').dispatchEvent(new Event('input'))";
    browser.press(&["/", "c", "o", "n", "n", "-", "2"]);
    shown("1 of 8 connectors");
    browser.js(clear);
    shown("8 connectors");
    browser.press(&["o", "f", "f", "l", "i", "n", "e"]);
    shown("2 of 8 connectors");
    browser.js(clear);
    fleet.flip(4, false, 1);
    browser.until("document.querySelector('#states [data-state=pending]')");
    browser.point("#states [data-state=pending]", true);
    shown("1 of 8 connectors");
    browser.point("#states [data-state=pending]", true);
    shown("8 connectors");
    // A connector that goes takes its row with it.
    fleet.change(|fleet| drop(fleet["connectors"].as_array_mut().unwrap().remove(7)));
    browser.until("document.querySelectorAll('.row').length === 7");
    // What keeps a connector from being ok has a line, open problem or not; what needs nobody has none.
    fleet.change(|fleet| {
        let connector = &mut fleet["connectors"][1];
        connector["state"] = json!("held");
        connector["hops"][2]["state"] = json!("held");
        connector["hops"][2]["cause"] = json!("not_placed");
        connector["hops"][2]["message"] = json!("No edge has the Connector ns-shop/conn-2.");
        fleet["problems"] = json!([{
            "cause": "deferred", "severity": "info", "cluster": "up", "sinceMs": 1, "count": 1, "objects": [],
            "message": "ns-shop/conn-1 changed in what does not route.", "error": null, "remedy": "None needed.",
        }]);
    });
    browser.until("byId('problems').innerText.includes('not placed')");
    let parts = ["No edge has the Connector ns-shop/conn-2."];
    let problems = browser.assert_shows("byId('problems').innerText", &parts);
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
    browser.assert_quiet(&served.url());
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn a_page_without_its_server_says_so_and_since_when_and_comes_back() {
    let fleet = LiveFleet::of(3);
    let mut served = Served::new(&fleet);
    let browser = Browser::start();
    browser.open(&format!("{}#connector=ns-shop%2Fconn-2", served.url()));
    // A link opens its connector.
    browser.until("byId('panel-body').innerText.includes('Every hop agrees')");
    browser.assert_is("byId('lost').hidden", "true");
    served.stop();
    browser.until("document.body.classList.contains('stale') && !byId('lost').hidden");
    browser.assert_shows("byId('lost').textContent", &["Nothing since", "as it was then"]);
    browser.assert_shows("byId('when').textContent", &["as of", "ago"]);
    browser.assert_is("document.title", "no connection · throughline live");
    // Time goes on, and the lanes do not.
    browser.until("document.querySelector('.row line.end')");
    fleet.stall(1);
    browser.assert_shows(TITLE, &["At ", "3 connectors, none stuck"]);
    served.start(&fleet);
    browser.until("!document.body.classList.contains('stale') && byId('lost').hidden");
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
    let served = Served::new(&fleet);
    let browser = Browser::start();
    browser.open(&served.url());
    browser.until("document.querySelectorAll('.row').length === 2 && !byId('problems').hidden");
    browser.js("document.querySelector('.row .name').click()");
    browser.until("byId('panel-body').innerText.includes('What to do')");
    browser.assert_shows("document.body.innerText", &[EVIL]);
    browser.assert_is("document.querySelectorAll('img, iframe, [onerror]').length", "0");
    browser.assert_is("document.scripts.length + typeof hacked", "1undefined");
    browser.assert_quiet(&served.url());
    browser.assert_policy();
}

#[test]
#[ignore = "needs Chromium: make browser"]
fn the_live_page_is_readable_in_light_and_in_dark() {
    let fleet = LiveFleet::of(40);
    for i in [3, 9, 17] {
        fleet.stall(i);
    }
    let now = now_ms();
    for (seconds, online) in [(48, false), (31, true), (9, false)] {
        fleet.flip_at(now - seconds * 1_000, 5, online, 3);
    }
    fleet.flip(6, false, 1);
    fleet.flip(7, false, 2);
    fleet.change(|fleet| {
        fleet["problems"] = json!([{
            "cause": "permission_missing", "severity": "error", "cluster": "up", "sinceMs": now - 60_000, "count": 1,
            "objects": [], "message": "up does not allow throughline to list HTTPRoute objects.", "error": "403 Forbidden",
            "remedy": "As an administrator: `at up: kubectl create clusterrole throughline-list --verb=list \
                       --resource=httproutes.gateway.networking.k8s.io`",
        }, {
            "cause": "paused", "severity": "info", "cluster": "hub", "sinceMs": now - 60_000, "count": 2,
            "objects": [], "message": "Connector ns-shop/conn-11 and 1 more in hub is paused by annotation.",
            "error": null, "remedy": "`at hub: kubectl -n ns-shop annotate connector conn-11 throughline.datumapis.com/paused-`",
        }]);
        for (i, state) in [(10, "held"), (20, "unknown")] {
            fleet["connectors"][i]["state"] = json!(state);
            fleet["connectors"][i]["hops"][1]["state"] = json!(state);
        }
    });
    let mut served = Served::new(&fleet);
    let browser = Browser::start();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.open(&served.url());
        browser.until("document.querySelectorAll('.row').length > 5");
        browser.js("document.querySelector('.row .name').click()");
        browser.until("byId('panel-body').innerText.includes('What to do')");
        shoot(&browser, &format!("live-{scheme}"), (1280, 800));
        audit(&browser, &format!("live, {scheme}"));
    }
    served.stop();
    browser.until("document.body.classList.contains('stale')");
    shoot(&browser, "live-stale-dark", (1280, 800));
    audit(&browser, "live, dark, without its server");
    browser.prefer("light");
    browser.until("document.getAnimations().length === 0");
    shoot(&browser, "live-stale-light", (1280, 800));
    audit(&browser, "live, light, without its server");
}

/// Only the rows in view have elements, and the keyboard reaches the others.
#[test]
#[ignore = "needs Chromium: make browser"]
fn five_thousand_connectors_stay_responsive() {
    let fleet = LiveFleet::of(5_000);
    let served = Served::new(&fleet);
    let browser = Browser::start();
    browser.open(&served.url());
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
    browser.assert_is(&format!("{FOCUSED}.textContent"), "shop/conn-999");
    browser.assert_is(&format!("{ROWS} < 40"), "true");
    browser.assert_quiet(&served.url());
}

/// A program that ends with its test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The real program on clusters in memory, from the start of an incident to its end.
#[test]
#[ignore = "needs Chromium: make browser"]
fn a_real_run_is_shown_while_it_goes_on() {
    let browser = Browser::start();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live-demo");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let demo = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(["demo", "--linger", "--longest-pause", "3s"])
        .env("TMPDIR", &folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut demo = Running(demo.unwrap());
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("live page")).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    browser.open(&url);
    browser.until("document.querySelectorAll('.row').length === 2");
    // The incident ends, and the page with it at what is true then.
    lines.find(|line| line.contains(&url) && line.contains("keeps running")).unwrap();
    browser.until("byId('title').textContent === '2 connectors, none stuck'");
    browser.until("Math.max(...[...fleet.rows.values()].map((r) => r.lanes.find((l) => l.hop === 'announced').changes.length)) > 1");
    browser.js("document.querySelectorAll('.row .name').forEach((name) => name.click())");
    browser.until("byId('panel-body').innerText.includes('Every hop agrees')");
    shoot(&browser, "live-demo", (1440, 700));
    assert!(demo.0.try_wait().unwrap().is_none(), "it lingers");
    let pid = rustix::process::Pid::from_child(&demo.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<_> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("converged: ")), "{rest:#?}");
    assert_eq!(demo.0.wait().unwrap().code(), Some(0), "{rest:#?}");
    let mut errors = String::new();
    demo.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "left behind in {}", folder.display());
    browser.until("!byId('lost').hidden");
}
