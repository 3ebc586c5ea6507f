//! `throughline demo`: plays a log into in-memory clusters and runs the controller against them.

use std::fs;
use std::io::{BufRead, BufReader};
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
    let mut command = crate::program::program();
    command.env("TMPDIR", &folder);
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
    (replay, String::from_utf8(shown).unwrap())
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

/// Each recording with the writes that it needs and parts of the story, in their order.
#[tokio::test]
async fn recordings_converge_without_needless_writes() {
    type Recording<'a> = (&'a str, &'a [Verb], &'a [&'a str]);
    let recordings: [Recording<'_>; 5] = [
        (
            "two-clusters-ready-flips",
            &[Verb::Mirror, Verb::Touch],
            &["offline upstream", "hub annotation written", "announces", "Summary"],
        ),
        (
            "three-tiers-through-the-carrier",
            &[Verb::Mirror, Verb::Touch],
            &[
                "not served: HTTPRoute in hub, Namespace in hub, Gateway in project-a",
                "offline at the edge (edge-1)",
            ],
        ),
        // The recorded outage takes the cluster down.
        (
            "edge-watch-lost-and-back",
            &[],
            &[
                "cluster_unavailable: The API server of edge does not answer",
                "cluster_unavailable ended after",
            ],
        ),
        // The recording ends with an overwritten edge Connector: the demo does not end before its repair.
        ("member-copy-tampered-is-nudged", &[Verb::Touch, Verb::Nudge], &[]),
        ("settled-world-restart-writes-nothing", &[Verb::Touch], &["liveness changed at the edge"]),
    ];
    for (name, verbs, parts) in recordings {
        let (replay, shown) = played(name).await;
        assert!(replay.verdict.good, "{name}: {:#?}\n{shown}", replay.verdict.problems);
        assert_eq!((replay.mode, replay.needless_writes()), (ReplayMode::Live, 0), "{shown}");
        for done in &replay.actions {
            let applied = matches!(done.finished, Some((_, Outcome::Applied { .. })));
            assert!(applied, "{name}: {done:#?}");
        }
        assert!(replay.replayed.iter().all(|outage| outage.until.is_some()), "{name}: {shown}");
        let done: Vec<_> = replay.actions.iter().map(|d| d.decision.action.verb).collect();
        assert!(verbs.iter().all(|verb| done.contains(verb)), "{name}: {done:?}");
        let mut rest = shown.as_str();
        for part in parts.iter().chain(&["converged: "]) {
            let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("{part}: {shown}"));
            rest = after;
        }
        // What the recording lacks is no problem, and a pipe has no colours.
        let is_bad = |text: &&str| shown.contains(*text);
        let bad = ["kind_not_served", "watches of ", "\x1b"].into_iter().find(is_bad);
        assert_eq!(bad, None, "{name}: {shown}");
        if name.starts_with("settled") {
            let patches: u64 = replay.requests.iter().filter(|r| r.writes).map(|r| r.count).sum();
            assert_eq!((replay.actions.len(), patches), (1, 1), "one touch: {shown}");
        }
    }
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
