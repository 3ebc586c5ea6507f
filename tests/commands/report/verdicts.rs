//! Verdicts: what failed, what a verify compares, and logs that hold little.

use super::*;

#[test]
fn a_failed_verdict_lists_its_problems() {
    let mut replay = incident();
    replay.recorded[0].until = None;
    replay.recorded[0].by_platform_key = false;
    replay.replayed[0].until = None;
    replay.replayed[0].first_recovered = None;
    replay.verdict =
        ReplayVerdict { good: false, problems: vec!["gateway app-03 is wrong".into()] };
    let text = text(&replay);
    has(&text, "  NOT converged: 1 problem\n    gateway app-03 is wrong\n");
    has_not(&text, "matches the upstream status");
    has(
        &text,
        "503 in the recording: at least 57.9 s; with throughline: at least 1 min (26 gateways)",
    );
    has(
        &text,
        "the first gateway recovered after 50.0 s, the last was still wrong at the end of the recording, after 57.9 s\n",
    );
    has(&text, "still wrong at the end, after 1 min\n");
    assert_eq!(json(&replay, None)["verdict"]["converged"], false);
}

#[test]
fn a_verify_compares_actions_with_the_log() {
    let mut replay = incident();
    replay.mode = ReplayMode::Verify;
    replay.replayed.clear();
    let good = text(&replay);
    has(&good, "  verified: 132 actions, all equal to those in the log\n");
    has(&good, "503 in the recording: 52.2 s (26 gateways)\n");
    has_not(&good, "with throughline:");
    assert_eq!(json(&replay, None)["verdict"]["verified"], true);
    assert_eq!(json(&replay, None)["verdict"].get("converged"), None);
    let problems = vec!["line 7: action 3 is missing".into(), "line 9: a value differs".into()];
    replay.verdict = ReplayVerdict { good: false, problems };
    let bad = text(&replay);
    has(&bad, "  NOT verified: 2 problems\n    line 7: action 3 is missing\n    line 9");
    has_not(&bad, "all equal to");
}

/// A log verifies whether or not all was well at its end: the verdict says both.
#[test]
fn a_good_verdict_stands_beside_what_is_still_wrong() {
    let mut replay = incident();
    replay.mode = ReplayMode::Verify;
    replay.replayed.clear();
    assert_eq!(json(&replay, None)["verdict"]["still_wrong"], serde_json::json!([]));
    replay.recorded[0].until = None;
    let text = text(&replay);
    has(
        &text,
        "  verified; 1 connector was still down at the end: 132 actions, all equal to those in the log\n",
    );
    let wrong = |what: &str, text: &str| serde_json::json!([{ "what": what, "connectors": 1, "text": text }]);
    let expected = wrong("down", "1 connector was still down at the end");
    assert_eq!(json(&replay, None)["verdict"]["still_wrong"], expected);
    replay.recorded[0].symptom = Symptom::StaleOnline;
    let expected =
        wrong("dead_tunnel", "users of 1 connector were still sent to a dead tunnel at the end");
    assert_eq!(json(&replay, None)["verdict"]["still_wrong"], expected);

    // A hop that is late without an outage that the log shows.
    replay.recorded.clear();
    began(&mut replay, 60_000, &problem(Cause::NotAnnounced, 55_000, Kind::Gateway, "app-00"));
    let expected = wrong("stuck", "1 connector was still stuck before a hop at the end");
    assert_eq!(json(&replay, None)["verdict"]["still_wrong"], expected);

    // In a what-if it is the replayed timeline that counts.
    replay.mode = ReplayMode::WhatIf;
    assert_eq!(json(&replay, None)["verdict"]["still_wrong"], serde_json::json!([]));
}

/// Of a connector whose upstream is not in the log, nobody knows what was right.
#[test]
fn a_connector_without_its_upstream_is_unknown() {
    let mut replay = empty();
    replay.connectors = vec![names("home-lab"), names("stranger")];
    has_not(&text(&replay), "unknown");
    replay.connectors[1].upstream.as_mut().unwrap().0 = "project-b".into();
    let unknown = "  time with 503: unknown for 1 connector whose upstream the log lacks\n";
    has(&text(&replay), unknown);
}

#[test]
fn an_edge_alone() {
    let mut script = Script(empty());
    script.0.clusters = vec![cluster("edge", &[Role::Edge])];
    script.0.connectors = vec![ConnectorNames { upstream: None, hub: hub_key("home-lab") }];
    script.act(1_000, Verb::Touch, "app-00", "9f2c41d07be5a630-1-0", CHANGED);
    script.0.notes.push(hop(1_000, Hop::Announced, "home-lab", true));
    (script.0.last_at, script.0.ended_at, script.0.events) = (at(2_000), at(2_000), 1);
    let text = text(&script.0);
    has(&text, "  1 event from 2026-11-21 09:19:32.865 to 09:19:34.865 UTC (2.00 s)\n");
    has(
        &text,
        "\n  cluster: edge (edge)\n\nhome-lab (ns-c8119df3/home-lab)\n  09:19:33.865  +1.000 s  gateway app-00 touched at edge: liveness",
    );
    has(&text, "+1.000 s  every gateway at edge announces online\n");
    has(&text, "  1 action: 1 touch; applied\n");
    has(&text, "time with 503: unknown, because the log has no upstream cluster\n");
    has(&text, "  converged: every gateway announces the state at its edge\n");
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
         Summary\n  no writes\n  \
         time with 503: unknown, because the log has no upstream cluster\n  \
         converged: every hub annotation matches the upstream status, and every gateway announces \
         the state at its edge\n"
    );
    assert_eq!(json(&replay, None)["actions"], serde_json::json!([]));
}
