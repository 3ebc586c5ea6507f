//! `throughline demo`: the real run on clusters in memory, into which a log is played.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use throughline::core::action::Verb;
use throughline::core::event::Outcome;
use throughline::demo::{self, Options};
use throughline::replay::{Mode, Replay};
use throughline::report;
use tokio::sync::watch;

/// The program, and an empty folder of the test's own as its folder for temporary files.
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

/// Plays a fixture with short pauses: what came of it, and what was shown.
async fn played(name: &str) -> (Replay, String) {
    let options = Options {
        log: Some(fixture(name)),
        longest_pause_ms: 200,
        report: Some(report::Options::default()),
        ..Options::default()
    };
    let mut shown = Vec::new();
    let (_go_on, stop) = watch::channel(false);
    let replay = demo::run(&options, stop, &mut shown).await.unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(!shown.contains('\x1b'), "{shown}");
    (replay, shown)
}

/// It converged, and nothing was written in vain.
#[track_caller]
fn all_is_well(replay: &Replay, shown: &str) {
    assert!(replay.verdict.good, "{:#?}\n{shown}", replay.verdict.problems);
    assert_eq!((replay.mode, replay.needless_writes()), (Mode::Live, 0), "{shown}");
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

/// The built-in one; `wiki` of `office` stands beside what happens and must not be touched.
#[test]
fn the_incident_heals_live_and_what_is_not_concerned_is_never_written() {
    let (mut command, folder) = program("incident");
    let kept = folder.with_extension("jsonl");
    command
        .args(["demo", "--longest-pause", "300ms", "--output", "json", "--event-log"])
        .arg(&kept);
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
    // What the API servers saw is that and nothing more.
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

    let (mut command, _) = program("incident-again");
    let output = command.arg("replay").arg(&kept).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("the same as recorded"), "{said}");
}

#[tokio::test]
async fn a_flip_is_told_as_it_crosses_the_hops() {
    let (replay, shown) = played("two-clusters-ready-flips").await;
    all_is_well(&replay, &shown);
    for told in ["offline upstream", "hub annotation written", "announces", "Bottom line"] {
        assert!(shown.contains(told), "{told}:\n{shown}");
    }
    assert_eq!(verbs(&replay)[..2], [Verb::Mirror, Verb::Touch], "{shown}");
}

#[tokio::test]
async fn three_tiers_have_a_carrier_and_what_was_not_recorded_is_not_served() {
    let (replay, shown) = played("three-tiers-through-the-carrier").await;
    all_is_well(&replay, &shown);
    assert!(shown.contains("offline at the edge (edge-1)"), "{shown}");
    assert!(shown.contains("not served: HTTPRoute in hub, Gateway in project-a"), "{shown}");
    assert!(!shown.contains("can't be watched"), "{shown}");
    let touched = replay.requests.iter().find(|r| r.writes && r.resource == "gateways").unwrap();
    assert_eq!((touched.cluster.as_str(), touched.verb), ("edge-1", "patch"));
}

#[tokio::test]
async fn a_recorded_outage_takes_the_cluster_down() {
    let (replay, shown) = played("edge-watch-lost-and-back").await;
    all_is_well(&replay, &shown);
    let (lost, back) = (shown.find("edge can't be watched"), shown.find("edge is watched again"));
    assert!(lost.is_some() && lost < back, "{shown}");
}

/// Its copy at the edge is spoiled at the end: it is not over before the nudge has mended that.
#[tokio::test]
async fn it_is_not_over_while_the_edge_does_not_say_what_the_hub_says() {
    let (replay, shown) = played("member-copy-tampered-is-nudged").await;
    all_is_well(&replay, &shown);
    assert!(verbs(&replay).contains(&Verb::Nudge), "{shown}");
    assert!(replay.replayed.iter().all(|outage| outage.until.is_some()), "{shown}");
}

#[tokio::test]
async fn a_settled_world_is_written_to_only_when_something_changes() {
    let (replay, shown) = played("settled-world-restart-writes-nothing").await;
    all_is_well(&replay, &shown);
    // The last line of the recording is a change: one touch and its confirmation.
    assert_eq!(replay.actions.len(), 2, "{shown}");
    assert_eq!(replay.actions[0].decision.because, "liveness changed at the edge");
    let patches: Vec<_> = replay.requests.iter().filter(|r| r.writes).collect();
    assert!(matches!(patches[..], [one] if (one.verb, one.count) == ("patch", 2)), "{patches:#?}");
}

#[tokio::test]
async fn stopped_is_not_converged() {
    let (_stop, stop) = watch::channel(true);
    let replay = demo::run(&Options::default(), stop, &mut Vec::new()).await.unwrap();
    assert!(!replay.verdict.good);
    assert_eq!(replay.verdict.problems[0], "it was stopped before its end");
}

#[test]
fn an_interrupt_ends_it_cleanly() {
    let (mut command, folder) = program("interrupted");
    let mut child = command.arg("demo").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("26 gateways touched at edge")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<_> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("it was stopped before its end")), "{rest:#?}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "left behind in {}", folder.display());
}

#[test]
fn what_cannot_be_played_is_bad_input() {
    for (log, told) in [
        (fixture("no-such-log"), "can't open the event log"),
        (format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR")), "Cargo.toml:1: "),
    ] {
        let output = program("bad-input").0.args(["demo", &log]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(told), "{error}");
    }
}
