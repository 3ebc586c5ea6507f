//! `throughline demo`: plays a log into in-memory clusters and runs the controller against them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use throughline::core::contract::event::Outcome;
use throughline::demo::{DemoOptions, run};
use throughline::replay::{ActionRecord, ReplayMode};
use tokio::sync::watch;

use crate::program::{fixture, program};
use crate::temp_folder::temp_folder;

/// The program, with an empty folder of this test as its folder for temporary files.
fn demo(test: &str) -> (Command, PathBuf) {
    let folder = temp_folder(test);
    let mut command = program();
    command.arg("demo").env("TMPDIR", &folder);
    (command, folder)
}

/// Plays the built-in incident. The gateway `wiki` of the connector `office` is not concerned and must
/// not be touched.
#[test]
fn the_incident_heals_live_and_other_objects_are_never_written() {
    let (mut command, folder) = demo("incident");
    command.args(["--longest-pause", "300ms", "--output", "json"]);
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

/// Each recording with the writes that it needs, and parts of the story in their order.
#[tokio::test]
async fn recordings_converge_without_needless_writes() {
    let carried = "not served: HTTPRoute in hub, Namespace in hub, Gateway in project-a … offline at the edge (edge-1)";
    let outage = "cluster_unavailable: The API server of edge does not answer … cluster_unavailable ended after";
    for (name, verbs, parts) in [
        ("two-clusters-ready-flips", "mirror touch", "offline upstream … announces … Summary"),
        ("three-tiers-through-the-carrier", "mirror touch", carried),
        // The recorded outage takes the cluster down.
        ("edge-watch-lost-and-back", "", outage),
        // The recording ends with an overwritten edge Connector: the demo does not end before its repair.
        ("member-copy-tampered-is-nudged", "touch nudge", ""),
        ("settled-world-restart-writes-nothing", "touch", "liveness changed at the edge"),
    ] {
        let options = DemoOptions {
            log: Some(fixture(name)),
            longest_pause_ms: 200,
            ..DemoOptions::default()
        };
        let (_go_on, stop) = watch::channel(false);
        let mut shown = Vec::new();
        let replay = run(&options, stop, &mut shown).await.unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(replay.is_good(), "{name}: {:#?}\n{shown}", replay.problems);
        assert_eq!((replay.mode, replay.needless_writes()), (ReplayMode::Live, 0), "{shown}");
        let is_applied =
            |done: &ActionRecord| matches!(done.finished, Some((_, Outcome::Applied { .. })));
        assert!(replay.actions.iter().all(is_applied), "{name}: {:#?}", replay.actions);
        assert!(replay.replayed.iter().all(|outage| outage.until.is_some()), "{name}: {shown}");
        let done: Vec<_> = replay.actions.iter().map(|d| d.decision.action.verb.as_str()).collect();
        assert!(verbs.split_whitespace().all(|verb| done.contains(&verb)), "{name}: {done:?}");
        let parts = parts.split(" … ").chain(["converged: "]);
        parts.fold(&*shown, |rest, part| {
            rest.split_once(part).unwrap_or_else(|| panic!("{part}: {shown}")).1
        });
        let is_entry = |line: &&str| line.trim_start().starts_with('+');
        let entries: Vec<_> = shown.lines().filter(is_entry).collect();
        let distinct = entries.iter().collect::<BTreeSet<_>>().len();
        assert!(distinct > 1 && distinct == entries.len(), "{name}: one comes twice: {shown}");
        // What the recording lacks is no problem, and a pipe has no colours.
        let bad = ["kind_not_served", "watches of ", "\x1b"];
        assert!(!bad.iter().any(|text| shown.contains(text)), "{name}: {shown}");
        if name.starts_with("settled") {
            let patches: u64 = replay.requests.iter().filter(|r| r.writes).map(|r| r.count).sum();
            assert_eq!((replay.actions.len(), patches), (1, 1), "one touch: {shown}");
        }
    }
}

#[test]
fn an_interrupt_ends_the_demo_cleanly() {
    let (mut command, folder) = demo("interrupted");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
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
