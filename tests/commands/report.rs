//! The text and JSON reports of a replay.

mod build;
mod json;
mod verdicts;

use serde_json::Value;
use throughline::core::contract::action::Verb;
use throughline::core::contract::cause::Hop;
use throughline::core::contract::cause::{About, Cause, Problem};
use throughline::core::contract::event::Outcome;
use throughline::core::contract::symptom::Symptom;
use throughline::core::data::ids::{Kind, ObjectKey, Role};
use throughline::replay::{ConnectorNames, Outage, Replay, ReplayMode, ReplayVerdict};
use throughline::report::{self, ReportOptions, Seen};

use build::*;

const STORY: &str = "\
incident-503.jsonl: what throughline would have done (what-if)
  168 events from 2026-11-21 09:19:32.865 to 09:20:40.865 UTC (1 min 8 s)
  clusters: project-a (upstream), edge (hub, edge)

home-lab (project-a default/home-lab)
  at the hub and the edges: ns-c8119df3/home-lab
  09:19:34.926   +2.061 s  is offline upstream
  09:19:34.926   +2.061 s  hub annotation written (edge): upstream is offline, the hub
                           annotation differs
  09:19:34.926   +2.061 s  offline at hub and edge (edge), immediately
  09:19:35.026   +2.161 s  26 gateways touched at edge (app-00 … app-25): liveness changed
                           at the edge; announces its proxy's connectors
  09:19:35.026   +2.161 s  every gateway at edge announces offline, 100 ms after upstream
  09:19:40.026   +7.161 s  26 gateways touched again at edge (app-00 … app-25): touched
                           again in case a cache missed the first one
  09:19:42.926  +10.061 s  goes online upstream
  09:19:42.926  +10.061 s  hub annotation written (edge): upstream is online, the hub
                           annotation differs
  09:19:42.926  +10.061 s  online at hub and edge (edge), immediately
  09:19:43.026  +10.161 s  26 gateways touched at edge (app-00 … app-25): liveness changed
                           at the edge; announces its proxy's connectors
  09:19:43.026  +10.161 s  every gateway at edge announces online, 100 ms after upstream
  09:19:48.026  +15.161 s  26 gateways touched again at edge (app-00 … app-25): touched
                           again in case a cache missed the first one
  – end of the recording; actions that were still due –
  09:20:43.026  +70.161 s  26 gateways touched again at edge (app-00 … app-25): touched
                           again in case a cache missed the first one

office: nothing to do, no writes

Summary
  132 actions: 2 mirrors, 130 touches (78 of them to confirm); all applied
    (each touch is confirmed 2 times, the last after 1 min; `throughline demo` confirms
    once, so it shows fewer touches)
  home-lab at edge
    503 in the recording: 52.2 s; with throughline: 100 ms (26 gateways)
      in the recording from 09:19:42.926: programmed offline; the first gateway recovered
        after 50.0 s, the last after 52.2 s
        counted as over when the platform's own key was written; Envoy Gateway 1.8 ignores
        that key, so it may have lasted longer
  converged: every hub annotation matches the upstream status, and every gateway announces
    the state at its edge
";

#[test]
fn the_incident_reads_like_a_story() {
    assert_eq!(text_with(&incident(), &ReportOptions { width: 90, ..options(None) }), STORY);
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let replay = incident();
    let plain = text(&replay);
    assert!(!plain.contains('\x1b'));
    let coloured = text_with(&replay, &ReportOptions { color: true, ..options(None) });
    has(&coloured, "\x1b[31m503 in the recording: 52.2 s\x1b[0m");
    let mut rest = coloured.as_str();
    let mut stripped = String::new();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        stripped.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    assert_eq!(stripped + rest, plain);
}

#[test]
fn no_line_is_wider_than_the_requested_width() {
    for width in [60, 80, 100] {
        let text = text_with(&incident(), &ReportOptions { width, ..options(None) });
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert_eq!(line.trim_end(), line, "spaces at the end");
        }
    }
}

#[test]
fn text_from_the_log_cannot_control_the_terminal() {
    let mut replay = incident();
    replay.warnings = vec!["line 3: \x1b[2Jtorn\r".into()];
    replay.verdict = ReplayVerdict { good: false, problems: vec!["\x1b]0;owned\x07".into()] };
    let text = text(&replay);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
    has(&text, "Warnings about the log\n  line 3: \u{fffd}[2Jtorn\u{fffd}\n");
}

#[test]
fn a_report_about_one_connector_leaves_out_the_others() {
    for name in ["default/office", "ns-c8119df3/office"] {
        let text = text_with(&incident(), &options(Some(name)));
        has(&text, "office: nothing to do, no writes");
        has(&text, "no writes for this connector");
        has_not(&text, "home-lab");
    }
    let text = text_with(&incident(), &options(Some("default/home-lab")));
    has(&text, "132 actions for this connector: 2 mirrors, 130 touches");
    has_not(&text, "office");
}

#[test]
fn a_long_story_is_abridged_unless_the_report_is_about_it() {
    let mut script = Script(incident());
    for n in 3..40 {
        script.flip(u64::from(n) * 10_000, n % 2 == 0, n);
    }
    // 39 flips of six entries each, and the last confirmation; 40 entries are shown.
    let lines = |text: &str| text.lines().filter(|line| line.starts_with("  09:")).count();
    let short = text(&script.0);
    assert_eq!(lines(&short), 40);
    has(&short, "… 195 more (--connector default/home-lab shows all)");
    let long = text_with(&script.0, &options(Some("default/home-lab")));
    assert_eq!(lines(&long), 235);
    has_not(&long, "more");
}

#[test]
fn of_many_connectors_the_most_affected_get_a_story() {
    let mut replay = incident();
    for n in 0..40_u64 {
        let name = format!("c-{n:02}");
        replay.notes.push(hop(20_000 + n, Hop::Upstream, &name, false));
        replay.connectors.push(names(&name));
        let until = 20_000 + n * 100;
        replay.recorded.push(outage(&name, Symptom::StaleOnline, 20_000, None, Some(until)));
        replay.connectors.push(names(&format!("quiet-{n:02}")));
    }
    let elsewhere = outage("c-39", Symptom::Offline, 67_000, None, None);
    replay.recorded.push(Outage { edge: "edge-2".into(), ..elsewhere.clone() });
    replay.recorded.push(Outage { edge: "edge-3".into(), ..elsewhere });
    let text = text(&replay);
    has(&text, "home-lab (project-a default/home-lab)\n");
    has(&text, "c-39 (project-a default/c-39), no writes\n");
    has_not(&text, "c-16 (project-a");
    has(&text, "… 17 less affected connectors (--connector");
    has(&text, "quiet-08: nothing to do, no writes\n… 31 more connectors: nothing to do");
    has(
        &text,
        "503 in the recording: at least 54.2 s in total (3 outages, 2 connectors), 2 not over at the end\n",
    );
    has(&text, "dead tunnel in the recording: 1 min 18 s in total (40 outages, 40 connectors)\n");
    has(
        &text,
        "dead tunnel with throughline: none\n  c-35 at edge\n    dead tunnel in the recording: 3.50 s",
    );
    has(
        &text,
        "  c-39 at edge\n    dead tunnel in the recording: 3.90 s; with throughline: none (26",
    );
    has(&text, "\n  … 37 less affected\n");
}

#[test]
fn problems_are_entries_of_a_story_and_open_ones_stand_at_the_end() {
    let mut replay = incident();
    let mut failing = problem(Cause::WriteFailing, 20_000, Kind::Connector, "home-lab");
    began(&mut replay, 25_000, &failing);
    failing.facts.error = Some("503".into());
    began(&mut replay, 26_000, &failing);
    ended(&mut replay, 32_500, &failing);
    for app in ["app-00", "app-01", "app-02"] {
        let late = problem(Cause::NotAnnounced, 40_000, Kind::Gateway, app);
        began(&mut replay, 45_000, &late);
    }
    let text = text(&replay);
    has(
        &text,
        "09:19:57.865  +25.000 s  write_failing: Writes of Connector to edge fail: 503. Since 09:19:52.865.\n",
    );
    has(
        &text,
        "09:20:05.365  +32.500 s  write_failing ended after 12.5 s: Writes of Connector to edge fail: 503.\n",
    );
    let late = "Gateway ns-c8119df3/app-00 at unknown edge does not announce its connectors; last \
                touch: unknown what.";
    has(&text, &format!("not_announced: {late} Likewise 2 others. Since 09:20:12.865.\n"));
    has(
        &text,
        &format!(
            "\nNot over at the end\n  not_announced for 30.2 s, since 09:20:12.865: {late} Likewise 2 others.\n"
        ),
    );
    let json = json(&replay, None);
    assert_eq!(json["problems"].as_array().unwrap().len(), 4);
    assert_eq!(
        json["problems"][0],
        serde_json::json!({
            "cause": "write_failing", "severity": "error", "about": {"cluster": "edge",
                "kind": "Connector", "object": {"namespace": NS, "name": "home-lab"}, "more": 0},
            "since_ms": START + 20_000, "reported_ms": START + 25_000,
            "ended_ms": START + 32_500, "message": "Writes of Connector to edge fail: 503.",
        })
    );
    assert_eq!(json["problems"][1]["ended_ms"], Value::Null);
    assert_eq!(json["problems"][1]["hop"], "announced");
    // Version 1 of the report promises these.
    assert_eq!(json["anomalies"], serde_json::json!([json["problems"][0]]));
    assert_eq!(json["stalls"].as_array().unwrap()[..], json["problems"].as_array().unwrap()[1..]);
}

#[test]
fn what_concerns_no_connector_has_a_story_of_its_own() {
    let mut replay = incident();
    let route = problem(Cause::Orphaned, 1_000, Kind::HttpRoute, "old");
    began(&mut replay, 1_000, &route);
    let lost = Problem::new(Cause::CredentialsRejected, About::cluster(&"edge".into()), at(2_000));
    began(&mut replay, 2_000, &lost);
    let shown = text(&replay);
    has(&shown, "\nNot tied to one connector\n  09:19:33.865   +1.000 s  orphaned: All parent");
    has(
        &shown,
        "\nNot over at the end\n  credentials_rejected for 1 min 8 s, since 09:19:34.865: ",
    );

    // What is wrong with many is no one connector's story.
    let mut unknown = problem(Cause::UpstreamUnknown, 3_000, Kind::Connector, "home-lab");
    unknown.about.more = 2;
    began(&mut replay, 3_000, &unknown);
    let title = "+3.000 s  upstream_unknown: ";
    let shown = text(&replay);
    assert!(shown.find(title) > shown.find("Not tied to one connector"), "{shown}");

    // Whoever asks about one connector wants to know of its clusters, too.
    let of_one = text_with(&replay, &options(Some("default/home-lab")));
    has(&of_one, "\nNot over at the end\n  credentials_rejected for");
    has_not(&of_one, "orphaned");
}

#[test]
fn failed_and_unfinished_writes_are_reported() {
    let mut script = Script(incident());
    let failed = Outcome::Failed { error: "etcd: leader changed".into(), retry_after_ms: None };
    script.0.actions[3].finished = Some((at(2_200), failed.clone()));
    script.act(30_000, Verb::Nudge, "home-lab", "1", "the edge still has the old value").finished =
        None;
    script.act(40_000, Verb::Mirror, "home-lab", "{}", "again").finished =
        Some((at(43_000), failed));
    script.act(50_000, Verb::Delete, "route-1", "", "none of its parents exists");
    let text = text(&script.0);
    has(&text, " → 25 applied, 1 failed (first: app-02: etcd: leader changed)\n");
    has(&text, "nudged at the hub (edge): the edge still has the old value → unfinished\n");
    has(&text, "hub annotation written (edge): again → failed: etcd: leader changed; took 3.00 s");
    has(&text, "Not tied to one connector\n  09:20:22.865  +50.000 s  route ns-c8119df3/route-1");
    has(&text, "(78 of them to confirm), 1 delete; 132 applied, 2 failed, 1 unfinished\n");
}

#[test]
fn touches_of_one_bundle_share_an_entry() {
    let mut script = Script(empty());
    (script.0.last_at, script.0.ended_at) = (at(20_000), at(20_000));
    script.0.connectors = vec![names("home-lab")];
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
    has(&text, "status changes upstream, still online\n");
    has(&text, "goes offline upstream\n");
    has(&text, "+0.100 s  2 gateways touched at edge (a, b) within 400 ms: liveness");
    has(&text, "+1.500 s  gateway a touched at edge: liveness");
    has(&text, "+1.600 s  gateway c touched at edge: the proxy");
    has(&text, "+1.700 s  gateway c touched again at edge: the proxy");
    // Upstream was offline by then, so this is not the change that reached the hub: no delay.
    has(&text, "+1.800 s  online at the hub (edge)\n");
    has(&text, "Not tied to one connector\n  09:19:41.865   +9.000 s  gateway class touched");
    has(&text, "6 actions: 6 touches (1 of them to confirm); all applied\n");
    has(&text, "503 in the recording: none; with throughline: none\n");
}

#[test]
fn connectors_with_the_same_name_get_distinct_labels() {
    let mut replay = empty();
    for (cluster, namespace, to) in [("a", "x", "ns-1"), ("b", "x", "ns-2"), ("b", "y", "ns-3")] {
        let upstream = Some((cluster.to_owned(), ObjectKey::new(namespace, "lab")));
        replay.connectors.push(ConnectorNames { upstream, hub: ObjectKey::new(to, "lab") });
    }
    has(
        &text(&replay),
        "\na x/lab: nothing to do, no writes\nb x/lab: nothing to do, no writes\ny/lab: nothing",
    );
}

#[test]
fn a_live_run_prints_each_entry_once_and_in_the_words_of_its_report() {
    let mut script = Script(incident());
    let printed = |replay: &Replay, seen: Seen| {
        let mut out = Vec::new();
        report::news(replay, seen, &[], at(0), &options(None), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let first = printed(&script.0, Seen::default());
    has(&first, "  +2.061 s  home-lab  is offline upstream\n");
    let whole = text(&script.0);
    for line in first.lines() {
        let words = line.split_once("home-lab  ").unwrap().1;
        has(&whole, words);
    }
    let seen = Seen::all_of(&script.0);
    assert_eq!(printed(&script.0, seen), "");
    // The state before is known from what was printed.
    script.0.notes.push(hop(80_000, Hop::Upstream, "home-lab", false));
    script.act(80_010, Verb::Mirror, "home-lab", "{}", "upstream is offline").finished = None;
    let lines = [
        " +80.000 s  home-lab  goes offline upstream\n",
        " +80.010 s  home-lab  hub annotation written (edge): upstream is offline → unfinished\n",
    ];
    assert_eq!(printed(&script.0, seen), lines.concat());
}
