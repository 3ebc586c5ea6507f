//! `throughline demo`: plays a log into in-memory clusters and runs the controller against them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use throughline::core::contract::action::Verb;
use throughline::core::contract::event::Outcome;
use throughline::demo::{self, DemoOptions};
use throughline::replay::{Replay, ReplayMode};
use throughline::report;
use tokio::sync::watch;

/// The program, with an empty folder of this test as its folder for temporary files.
fn program(test: &str) -> (Command, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo").join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    for name in ["RUST_LOG", "NO_COLOR", "KUBECONFIG", "COLUMNS"] {
        command.env_remove(name);
    }
    command.env("TMPDIR", &folder).stdin(Stdio::null());
    (command, folder)
}

fn fixture(name: &str) -> String {
    format!("{}/fixtures/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

/// Plays a fixture with short pauses; returns the report and the printed story.
async fn played(name: &str) -> (Replay, String) {
    let options = DemoOptions {
        log: Some(fixture(name)),
        longest_pause_ms: 200,
        report: Some(report::ReportOptions::default()),
        ..DemoOptions::default()
    };
    let mut shown = Vec::new();
    let (_go_on, stop) = watch::channel(false);
    let replay = demo::run(&options, stop, &mut shown).await.unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(!shown.contains('\x1b'), "{shown}");
    (replay, shown)
}

/// Asserts that the demo converged without needless writes.
#[track_caller]
fn assert_converged(replay: &Replay, shown: &str) {
    assert!(replay.verdict.good, "{:#?}\n{shown}", replay.verdict.problems);
    assert_eq!((replay.mode, replay.needless_writes()), (ReplayMode::Live, 0), "{shown}");
    assert!(shown.contains("converged: "), "{shown}");
    for done in &replay.actions {
        let applied = matches!(done.finished, Some((_, Outcome::Applied { .. })));
        assert!(applied, "{done:#?}");
    }
}

fn verbs(replay: &Replay) -> Vec<Verb> {
    let mut verbs: Vec<_> = replay.actions.iter().map(|d| d.decision.action.verb).collect();
    verbs.dedup();
    verbs
}

/// Plays the built-in incident. The gateway `wiki` of the connector `office` is not concerned and must
/// not be touched.
#[test]
fn the_incident_heals_live_and_other_objects_are_never_written() {
    let (mut command, folder) = program("incident");
    command.args(["demo", "--longest-pause", "300ms", "--output", "json"]);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{:#}", report["verdict"]);
    assert_eq!((&report["mode"], &report["verdict"]["converged"]), (&"live".into(), &true.into()));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "left behind in {}", folder.display());

    let actions = report["actions"].as_array().unwrap();
    let mirrors = actions.iter().filter(|action| action["type"] == "mirror").count();
    assert!(mirrors == 2 && actions.len() > 2 + 2 * 26, "{mirrors} of {}", actions.len());
    let concerned = |name: &str| name == "home-lab" || name.starts_with("app-");
    for action in actions {
        assert!(concerned(action["name"].as_str().unwrap()), "{action:#}");
        assert_eq!(action["outcome"], "applied", "{action:#}");
    }
    // The API servers saw these writes and no others.
    let requests = report["requests"].as_array().unwrap();
    let sum = |verb: &str| -> u64 {
        let of_verb = requests.iter().filter(|request| request["verb"] == verb);
        of_verb.map(|request| request["count"].as_u64().unwrap()).sum()
    };
    assert_eq!((sum("patch"), report["needless_writes"].as_u64()), (actions.len() as u64, Some(0)));
    let others = ["patch", "list", "watch"];
    let odd = requests.iter().find(|r| others.iter().all(|verb| r["verb"] != *verb));
    assert!(odd.is_none(), "{odd:#?}");
    assert!(report["outages"]["recorded"].as_array().unwrap().len() >= 2);
    for outage in report["outages"]["replayed"].as_array().unwrap() {
        assert_eq!((&outage["name"], outage["until_ms"].is_u64()), (&"home-lab".into(), true));
    }
}

#[tokio::test]
async fn the_story_shows_a_flip_at_each_hop() {
    let (replay, shown) = played("two-clusters-ready-flips").await;
    assert_converged(&replay, &shown);
    for line in ["offline upstream", "hub annotation written", "announces", "Summary"] {
        assert!(shown.contains(line), "{line}:\n{shown}");
    }
    assert_eq!(verbs(&replay)[..2], [Verb::Mirror, Verb::Touch], "{shown}");
}

#[tokio::test]
async fn three_tiers_have_a_carrier_and_unrecorded_kinds_are_not_served() {
    let (replay, shown) = played("three-tiers-through-the-carrier").await;
    assert_converged(&replay, &shown);
    assert!(shown.contains("offline at the edge (edge-1)"), "{shown}");
    assert!(
        shown.contains("not served: HTTPRoute in hub, Namespace in hub, Gateway in project-a"),
        "{shown}"
    );
    assert!(!shown.contains("watches of "), "{shown}");
    let touched = replay.requests.iter().find(|r| r.writes && r.resource == "gateways").unwrap();
    assert_eq!((touched.cluster.as_str(), touched.verb), ("edge-1", "patch"));
}

#[tokio::test]
async fn a_recorded_outage_takes_the_cluster_down() {
    let (replay, shown) = played("edge-watch-lost-and-back").await;
    assert_converged(&replay, &shown);
    let lost = shown.find("cluster_unavailable: The API server of edge does not answer");
    let back = shown.find("cluster_unavailable ended after");
    assert!(lost.is_some() && lost < back, "{shown}");
    assert!(!shown.contains("kind_not_served"), "what the recording lacks is no problem: {shown}");
}

/// The recording ends with an overwritten edge Connector, which a nudge repairs.
#[tokio::test]
async fn the_demo_does_not_end_while_edge_and_hub_differ() {
    let (replay, shown) = played("member-copy-tampered-is-nudged").await;
    assert_converged(&replay, &shown);
    assert!(verbs(&replay).contains(&Verb::Nudge), "{shown}");
    assert!(replay.replayed.iter().all(|outage| outage.until.is_some()), "{shown}");
}

#[tokio::test]
async fn settled_clusters_are_written_only_when_something_changes() {
    let (replay, shown) = played("settled-world-restart-writes-nothing").await;
    assert_converged(&replay, &shown);
    // The recording ends with a change: one touch.
    assert_eq!(replay.actions.len(), 1, "{shown}");
    assert_eq!(replay.actions[0].decision.because, "liveness changed at the edge");
    let patches: Vec<_> = replay.requests.iter().filter(|r| r.writes).collect();
    assert!(matches!(patches[..], [one] if (one.verb, one.count) == ("patch", 1)), "{patches:#?}");
}

#[tokio::test]
async fn a_stopped_demo_has_not_converged() {
    let (_stop, stop) = watch::channel(true);
    let replay = demo::run(&DemoOptions::default(), stop, &mut Vec::new()).await.unwrap();
    assert!(!replay.verdict.good);
    assert_eq!(replay.verdict.problems[0], "the demo was stopped before its end");
}

#[test]
fn an_interrupt_ends_the_demo_cleanly() {
    let (mut command, folder) = program("interrupted");
    let mut child = command.arg("demo").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("26 gateways touched at edge")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<_> = lines.collect();
    assert!(
        rest.iter().any(|line| line.contains("the demo was stopped before its end")),
        "{rest:#?}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "left behind in {}", folder.display());
}

#[test]
fn a_lingering_demo_keeps_its_page_up_until_an_interrupt() {
    let (mut command, folder) = program("lingering");
    command
        .args(["demo", "--linger", "--longest-pause", "200ms"])
        .arg(fixture("two-clusters-ready-flips"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("live page: ")).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    lines.find(|line| line.contains(&url) && line.contains("keeps running")).unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: {address}\r\naccept: text/html\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("throughline live"), "{page}");
    assert!(child.try_wait().unwrap().is_none(), "it stays up");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<_> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("converged: ")), "{rest:#?}");
    assert_eq!(child.wait().unwrap().code(), Some(0), "the end is as without it");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "left behind in {}", folder.display());
}

#[test]
fn a_log_that_cannot_be_played_is_bad_input() {
    for (log, message) in [
        (fixture("no-such-log"), "can't open the event log"),
        (format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR")), "Cargo.toml:1: "),
    ] {
        let output = program("bad-input").0.args(["demo", &log]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(message), "{error}");
    }
}
