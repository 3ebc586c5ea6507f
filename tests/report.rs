//! The pictures of a replay: what an on-call engineer reads, and what programs read.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "report/build.rs"]
mod build;
#[path = "report/json.rs"]
mod json;

use serde_json::Value;
use throughline::core::action::{Anomaly, AnomalyKind, Hop, Note, Noted, Stall, Verb};
use throughline::core::event::Outcome;
use throughline::core::ids::{ObjectKey, Role};
use throughline::core::keep::Keep;
use throughline::outage::{Outage, OutageKind};
use throughline::replay::{Mode, Verdict, Way};
use throughline::report::Options;

use build::*;

const STORY: &str = "\
incident-503.jsonl: what throughline would have done (what-if)
  168 events from 2026-11-21 09:19:32.865 to 09:20:40.865 UTC (1 min 8 s)
  clusters: project-a (upstream), edge (hub, edge)

home-lab (project-a default/home-lab)
  at hub and edges: ns-c8119df3/home-lab
  09:19:34.926   +2.061 s  is offline upstream
  09:19:34.926   +2.061 s  hub annotation written (edge): upstream says offline, the hub's
                           annotation says something else
  09:19:34.926   +2.061 s  offline at hub and edge (edge), at once
  09:19:35.026   +2.161 s  26 gateways touched at edge (app-00 … app-25): liveness changed
                           at the edge; announces its proxy's connectors
  09:19:35.026   +2.161 s  every gateway at edge announces offline, 100 ms after upstream
  09:19:40.026   +7.161 s  26 gateways touched again at edge (app-00 … app-25): confirmed
                           with a new value, for caches that were late
  09:19:42.926  +10.061 s  goes online upstream
  09:19:42.926  +10.061 s  hub annotation written (edge): upstream says online, the hub's
                           annotation says something else
  09:19:42.926  +10.061 s  online at hub and edge (edge), at once
  09:19:43.026  +10.161 s  26 gateways touched at edge (app-00 … app-25): liveness changed
                           at the edge; announces its proxy's connectors
  09:19:43.026  +10.161 s  every gateway at edge announces online, 100 ms after upstream
  09:19:48.026  +15.161 s  26 gateways touched again at edge (app-00 … app-25): confirmed
                           with a new value, for caches that were late
  – the recording ends; what was still due –
  09:20:43.026  +70.161 s  26 gateways touched again at edge (app-00 … app-25): confirmed
                           with a new value, for caches that were late

office: nothing to do, never written

Bottom line
  132 actions: 2 mirrors, 130 touches (78 of them to confirm); all applied
  home-lab at edge
    503 as recorded: 52.2 s; with throughline: 100 ms (26 gateways)
      recorded from 09:19:42.926: programmed offline; the first gateway right after
        50.0 s, the last after 52.2 s
        ended by the platform's own key, which Envoy Gateway 1.8 is known not to act on:
        it may well have lasted longer
  converged: every hub annotation means what upstream says, every gateway announces what
    its edge says
";

#[test]
fn the_incident_reads_like_a_story() {
    assert_eq!(text_with(&incident(), &Options { width: 90, ..options(None) }), STORY);
}

#[test]
fn colour_is_colour_alone() {
    let replay = incident();
    let plain = text(&replay);
    assert!(!plain.contains('\x1b'));
    let coloured = text_with(&replay, &Options { color: true, ..options(None) });
    has(&coloured, "\x1b[31m503 as recorded: 52.2 s\x1b[0m");
    let mut rest = coloured.as_str();
    let mut stripped = String::new();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        stripped.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    assert_eq!(stripped + rest, plain);
}

#[test]
fn no_line_is_wider_than_asked_for() {
    for width in [60, 80, 100] {
        let text = text_with(&incident(), &Options { width, ..options(None) });
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert_eq!(line.trim_end(), line, "blanks at the end");
        }
    }
}

#[test]
fn what_the_log_holds_cannot_steer_the_terminal() {
    let mut replay = incident();
    replay.warnings = vec!["line 3: \x1b[2Jtorn\r".into()];
    replay.verdict = Verdict { good: false, problems: vec!["\x1b]0;owned\x07".into()] };
    let text = text(&replay);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
    has(&text, "Warnings of the reader\n  line 3: \u{fffd}[2Jtorn\u{fffd}\n");
}

#[test]
fn one_connector_alone() {
    for name in ["default/office", "ns-c8119df3/office"] {
        let text = text_with(&incident(), &options(Some(name)));
        has(&text, "office: nothing to do, never written");
        has(&text, "nothing written for this connector");
        has_not(&text, "home-lab");
    }
    let text = text_with(&incident(), &options(Some("default/home-lab")));
    has(&text, "132 actions for this connector: 2 mirrors, 130 touches");
    has_not(&text, "office");
    let text = text_with(&incident(), &options(Some("default/attic")));
    has(&text, "default/attic: no such connector in this log");
}

#[test]
fn a_long_story_is_abridged_unless_asked_for() {
    let mut script = Script(incident());
    for n in 3..40 {
        script.flip(u64::from(n) * 10_000, n % 2 == 0, n);
    }
    // 39 flips of six passages, and the last confirmation; 40 are told.
    let lines = |text: &str| text.lines().filter(|line| line.starts_with("  09:")).count();
    let short = text(&script.0);
    assert_eq!(lines(&short), 40);
    has(&short, "… 195 more (--connector default/home-lab tells all)");
    let long = text_with(&script.0, &options(Some("default/home-lab")));
    assert_eq!(lines(&long), 235);
    has_not(&long, "more");
}

#[test]
fn of_many_connectors_the_worst_are_told() {
    let mut replay = incident();
    for n in 0..40_u64 {
        let name = format!("c-{n:02}");
        replay.notes.push(hop(20_000 + n, Hop::Upstream, &name, false));
        replay.ways.push(way(&name));
        let until = 20_000 + n * 100;
        replay.recorded.push(outage(&name, OutageKind::StaleOnline, 20_000, None, Some(until)));
        replay.ways.push(way(&format!("quiet-{n:02}")));
    }
    let elsewhere = outage("c-39", OutageKind::Offline, 67_000, None, None);
    replay.recorded.push(Outage { edge: "edge-2".into(), ..elsewhere.clone() });
    replay.recorded.push(Outage { edge: "edge-3".into(), ..elsewhere });
    let text = text(&replay);
    has(&text, "home-lab (project-a default/home-lab)\n");
    has(&text, "c-39 (project-a default/c-39), never written\n");
    has_not(&text, "c-16 (project-a");
    has(&text, "… 17 more connectors with less to tell");
    has(&text, "quiet-08: nothing to do, never written\n… 31 more connectors: nothing to do");
    has(
        &text,
        "503 as recorded: at least 54.2 s added up over 3 spans of 2 connectors, 2 not over at the end\n",
    );
    has(&text, "dead tunnel as recorded: 1 min 18 s added up over 40 spans of 40 connectors\n");
    has(&text, "dead tunnel with throughline: none\n    c-39 at edge: as recorded: 3.90 s");
    has(&text, "… 35 shorter\n");
    has(&text, "1 span of the recorded: ended by the platform's own key");
}

fn stall(hop: Hop, since: u64) -> Stall {
    Stall {
        cluster: "edge".into(),
        connector: replica("home-lab"),
        hop,
        since: at(since),
        reason: "writes to the hub fail: 503".into(),
    }
}

#[test]
fn stalls_are_told_with_their_end_or_as_open() {
    let mut replay = incident();
    let (over, open) = (stall(Hop::Mirrored, 20_000), stall(Hop::Touched, 40_000));
    replay.notes.push(Note { at: at(25_000), what: Noted::Stalled(over.clone()) });
    replay.notes.push(Note { at: at(32_500), what: Noted::StallEnded(over) });
    replay.notes.push(Note { at: at(45_000), what: Noted::Stalled(open) });
    let text = text(&replay);
    has(
        &text,
        "09:19:57.865  +25.000 s  STALLED not mirrored at the hub (edge), waited for since 09:19:52.865: writes to the hub fail: 503\n",
    );
    has(
        &text,
        "09:20:05.365  +32.500 s  stall over after 12.5 s (not mirrored at the hub (edge))\n",
    );
    has(
        &text,
        "\nStalled at the end\n  home-lab not announced by every gateway at edge, for 30.2 s since \
         09:20:12.865: writes to the hub fail: 503\n",
    );
    let json = json(&replay, None);
    assert_eq!(json["stalls"].as_array().unwrap().len(), 2);
    assert_eq!(json["stalls"][0]["ended_at_ms"], START + 32_500);
    assert_eq!(json["stalls"][0]["reported_at_ms"], START + 25_000);
    assert_eq!(json["stalls"][1]["ended_at_ms"], Value::Null);
    assert_eq!(json["stalls"][1]["connector"], "ns-c8119df3/home-lab");
    assert_eq!(json["stalls"][1]["hop"], "touched");
}

#[test]
fn writes_that_did_not_land_are_told() {
    let mut script = Script(incident());
    let failed = Outcome::Failed { error: "etcd: leader changed".into(), retry_after_ms: None };
    script.0.actions[3].finished = Some((at(2_200), failed.clone()));
    script.act(30_000, Verb::Nudge, "home-lab", "1", "it did not arrive").finished = None;
    script.act(40_000, Verb::Mirror, "home-lab", "{}", "again").finished =
        Some((at(43_000), failed));
    script.act(50_000, Verb::Delete, "route-1", "", "none of its parents exists");
    let text = text(&script.0);
    has(&text, " → 25 applied, 1 failed (first: app-02: etcd: leader changed)\n");
    has(&text, "nudged at the hub (edge): it did not arrive → unfinished\n");
    has(
        &text,
        "hub annotation written (edge): again → failed: etcd: leader changed; done 3.00 s later",
    );
    has(
        &text,
        "Written for no one connector\n  09:20:22.865  +50.000 s  route ns-c8119df3/route-1",
    );
    has(&text, "(78 of them to confirm), 1 delete; 132 applied, 2 failed, 1 unfinished\n");
}

#[test]
fn one_bundle_is_one_passage_and_two_are_two() {
    let mut script = Script(empty());
    (script.0.last_at, script.0.ended_at) = (at(20_000), at(20_000));
    script.0.ways = vec![way("home-lab")];
    for online in [true, true, false] {
        script.0.notes.push(hop(0, Hop::Upstream, "home-lab", online));
    }
    for (ms, name) in [(100, "b"), (500, "a"), (1_500, "a")] {
        script.act(ms, Verb::Touch, name, "9f2c41d07be5a630-1-0", CHANGED);
    }
    script.act(1_600, Verb::Touch, "c", "9f2c41d07be5a630-1-0", "the proxy references others");
    script.act(1_700, Verb::Touch, "c", "9f2c41d07be5a630-1-1", "the proxy references others");
    script.0.notes.push(hop(1_800, Hop::Mirrored, "home-lab", true));
    script.act(9_000, Verb::Touch, "class", "9f2c41d07be5a630-1-0", CHANGED);
    script.0.actions.last_mut().unwrap().decision.action.connectors.clear();
    let text = text(&script.0);
    has(&text, "is online upstream\n");
    has(&text, "changes upstream, still online\n");
    has(&text, "goes offline upstream\n");
    has(&text, "+0.100 s  2 gateways touched at edge (a, b) within 400 ms: liveness");
    has(&text, "+1.500 s  gateway a touched at edge: liveness");
    has(&text, "+1.600 s  gateway c touched at edge: the proxy");
    has(&text, "+1.700 s  gateway c touched again at edge: the proxy");
    // Upstream had said offline: that is not the change that came to the hub.
    has(&text, "+1.800 s  online at the hub (edge)\n");
    has(&text, "Written for no one connector\n  09:19:41.865   +9.000 s  gateway class touched");
    has(&text, "6 actions: 6 touches (1 of them to confirm); all applied\n");
    has(&text, "503 as recorded: none; with throughline: none\n");
}

#[test]
fn not_converged_and_the_reasons() {
    let mut replay = incident();
    replay.recorded[0].until = None;
    replay.recorded[0].by_platform_key = false;
    replay.replayed[0].until = None;
    replay.replayed[0].first_right = None;
    replay.verdict = Verdict { good: false, problems: vec!["gateway app-03 is wrong".into()] };
    let object = Some(replica("home-lab"));
    let anomaly = AnomalyKind::OversizedStatus;
    let detail = "reduced".into();
    let what = Noted::Anomaly(Anomaly { anomaly, cluster: "edge".into(), object, detail });
    replay.notes.push(Note { at: at(1_000), what });
    let route = replica("old");
    let orphan = |kept| Noted::Orphan { cluster: "edge".into(), route: route.clone(), kept };
    replay.notes.push(Note { at: at(1_000), what: orphan(Some(Keep::Young)) });
    replay.notes.push(Note { at: at(2_000), what: orphan(None) });
    let text = text(&replay);
    has(&text, "  NOT converged: 1 problem\n    gateway app-03 is wrong\n");
    has_not(&text, "means what upstream says");
    has(&text, "503 as recorded: at least 57.9 s; with throughline: at least 1 min (26 gateways)");
    has(
        &text,
        "the first gateway right after 50.0 s, the last still wrong at the end of the recording, after 57.9 s\n",
    );
    has(&text, "still so at the end, after 1 min\n");
    has(&text, "Anomalies\n  09:19:33.865  oversized status, edge ns-c8119df3/home-lab: reduced\n");
    has(
        &text,
        "Orphaned routes\n  09:19:34.865  ns-c8119df3/old at edge: an orphan, not deleted\n",
    );
    has_not(&text, "it is too young");
    assert_eq!(json(&replay, None)["verdict"]["converged"], false);
    assert_eq!(json(&replay, None)["orphans"][0]["kept_because"], "it is too young");
    assert_eq!(json(&replay, None)["orphans"][0]["kept"], "young");
    assert_eq!(json(&replay, None)["anomalies"][0]["anomaly"], "oversized_status");
}

#[test]
fn verified_or_not() {
    let mut replay = incident();
    replay.mode = Mode::Verify;
    replay.replayed.clear();
    let good = text(&replay);
    has(&good, "  verified: 132 actions, the same as recorded\n");
    has(&good, "503 as recorded: 52.2 s (26 gateways)\n");
    has_not(&good, "with throughline:");
    assert_eq!(json(&replay, None)["verdict"]["verified"], true);
    assert_eq!(json(&replay, None)["verdict"].get("converged"), None);
    let problems = vec!["line 7: action 3 is missing".into(), "line 9: a value differs".into()];
    replay.verdict = Verdict { good: false, problems };
    let bad = text(&replay);
    has(&bad, "  NOT verified: 2 problems\n    line 7: action 3 is missing\n    line 9");
    has_not(&bad, "the same as recorded");
}

#[test]
fn an_edge_alone() {
    let mut script = Script(empty());
    script.0.clusters = vec![cluster("edge", &[Role::Edge])];
    script.0.ways = vec![Way { upstream: None, replica: replica("home-lab") }];
    script.act(1_000, Verb::Touch, "app-00", "9f2c41d07be5a630-1-0", CHANGED);
    script.0.notes.push(hop(1_000, Hop::Touched, "home-lab", true));
    (script.0.last_at, script.0.ended_at, script.0.events) = (at(2_000), at(2_000), 1);
    let text = text(&script.0);
    has(&text, "  1 event from 2026-11-21 09:19:32.865 to 09:19:34.865 UTC (2.00 s)\n");
    has(
        &text,
        "\n  cluster: edge (edge)\n\nhome-lab (ns-c8119df3/home-lab)\n  09:19:33.865  +1.000 s  gateway app-00 touched at edge: liveness",
    );
    has(&text, "+1.000 s  every gateway at edge announces online\n");
    has(&text, "  1 action: 1 touch; applied\n");
    has(&text, "how long users saw 503 cannot be told: the log has no upstream cluster\n");
    has(&text, "  converged: every gateway announces what its edge says\n");
    assert_eq!(json(&script.0, None)["connectors"][0]["upstream"], Value::Null);
}

#[test]
fn an_empty_log() {
    let mut replay = empty();
    (replay.first_at, replay.last_at, replay.ended_at) = Default::default();
    replay.clusters.clear();
    assert_eq!(
        text(&replay),
        "incident-503.jsonl: what throughline would have done (what-if)\n  no events\n\n\
         Bottom line\n  nothing written\n  \
         how long users saw 503 cannot be told: the log has no upstream cluster\n  \
         converged: every hub annotation means what upstream says, every gateway announces what its \
         edge says\n"
    );
    assert_eq!(json(&replay, None)["actions"], serde_json::json!([]));
}

#[test]
fn names_that_several_connectors_share_are_told_apart() {
    let mut replay = empty();
    for (cluster, namespace, to) in [("a", "x", "ns-1"), ("b", "x", "ns-2"), ("b", "y", "ns-3")] {
        let upstream = Some((cluster.to_owned(), ObjectKey::new(namespace, "lab")));
        replay.ways.push(Way { upstream, replica: ObjectKey::new(to, "lab") });
    }
    has(
        &text(&replay),
        "\na x/lab: nothing to do, never written\nb x/lab: nothing to do, never written\ny/lab: nothing",
    );
}
