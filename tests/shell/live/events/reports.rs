//! What the reporter makes of the notes of a run.

use super::*;

fn stall(name: &str, ended: bool) -> Note {
    let stall = Stall {
        cluster: "one".into(),
        connector: ObjectKey::new("n", name),
        hop: Hop::Mirrored,
        since: UnixMillis(0),
        cause: StallCause::WritesFail { cluster: "one".into(), error: ErrorCause::Forbidden },
        reason: format!(
            "writes to the hub fail: webhook at https://10.0.0.7:443/x said \u{202e} {}",
            "ab".repeat(32)
        ),
    };
    Note {
        at: START,
        kind: if ended { NoteKind::StallEnded(stall) } else { NoteKind::Stalled(stall) },
    }
}

/// Calls the reporter as a run does.
fn pass_note(reporter: &mut Reporter, note: &Note, kind: Kind, name: &str) {
    reporter.on_note(note);
    let object = ObjectKey::new("n", name);
    let subject =
        InvolvedObject { cluster: "one".into(), kind, object, uid: None, resource_version: None };
    reporter.on_object_note(note, &subject);
}

/// The same note, so many seconds after the start.
fn at_second(s: u64, note: Note) -> Note {
    Note { at: START.plus(s * 1_000), ..note }
}

/// A reporter that has led for longer than it waits at first.
fn leading(bench: &Bench) -> Reporter {
    let mut reporter = Reporter::new(bench.recorder.clone(), Settings::default());
    let at = UnixMillis(START.0 - 60_000);
    reporter.on_event(&Event { at, kind: EventKind::LeadershipAcquired });
    reporter.on_due(UnixMillis(START.0 - 50_000));
    reporter
}

/// Lets time pass up to so many seconds after the start, as the loop does.
fn pass_to(reporter: &mut Reporter, s: u64) {
    while let Some(due) = reporter.due().filter(|due| *due <= START.plus(s * 1_000)) {
        reporter.on_due(due);
        assert!(reporter.due().is_none_or(|next| next > due), "a timer, not a poll");
    }
}

/// Reason and object of the Events that were posted, in order.
async fn posted(bench: &Bench) -> Vec<String> {
    let of = |e: &Value| {
        let object = &e["involvedObject"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        format!("{} {} {}", text(&e["reason"]), text(&object["kind"]), text(&object["name"]))
    };
    let mut found = events(&bench.served).await;
    // Its name ends with a number that grows.
    let number = |e: &Value| {
        let name = e["metadata"]["name"].as_str().unwrap();
        name.rsplit('.').next().unwrap().to_owned()
    };
    found.sort_by_key(number);
    found.iter().map(of).collect()
}

/// Problems that began before it led, and are not over ten seconds later. What is over is reported
/// only where the problem was.
#[tokio::test]
async fn a_new_leader_reports_problems_that_still_exist() {
    let bench = bench().await;
    let mut reporter = Reporter::new(bench.recorder.clone(), Settings::default());
    let happens = |at_s: u64, kind| Event { at: START.plus(at_s * 1000), kind };
    for name in ["a", "b"] {
        pass_note(&mut reporter, &stall(name, false), Kind::Connector, name);
    }
    assert_eq!(reporter.due(), None, "it does not lead");
    reporter.on_event(&happens(0, EventKind::LeadershipAcquired));
    pass_note(&mut reporter, &stall("a", true), Kind::Connector, "a");
    assert_eq!(reporter.due(), Some(START.plus(10_000)));
    pass_to(&mut reporter, 60);
    bench.counts("posted", 1).await;
    assert_eq!(posted(&bench).await, ["StalledMirror Connector b"]);
    // The message leaves out the webhook's address and the node id.
    let found = events(&bench.served).await;
    let message = found[0]["message"].as_str().unwrap();
    assert!(message.starts_with("upstream's status is not mirrored to the hub within 5 s: writes"));
    assert!(!message.contains("10.0.0.7") && !message.contains("abab"), "{message}");
    assert!(message.contains(r"said \u{202e} "), "nothing turns its direction: {message}");

    reporter.on_event(&happens(61, EventKind::LeadershipLost));
    pass_note(&mut reporter, &stall("b", true), Kind::Connector, "b");
    pass_to(&mut reporter, 999);
    assert_eq!((bench.counted("posted"), bench.requests(ApiVerb::Create)), (1, 1));
}

/// On each of them, as soon as they are gathered, and when each is over.
#[tokio::test]
async fn few_objects_have_an_event_each() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    for (s, name) in [(0, "a"), (0, "b"), (20, "c")] {
        pass_note(&mut reporter, &at_second(s, stall(name, false)), Kind::Connector, name);
        pass_to(&mut reporter, s + 1);
    }
    pass_note(&mut reporter, &at_second(30, stall("b", true)), Kind::Connector, "b");
    pass_to(&mut reporter, 999);
    bench.counts("posted", 4).await;
    let stalled = |name| format!("StalledMirror Connector {name}");
    let recovered = "Recovered Connector b".to_owned();
    assert_eq!(posted(&bench).await, [stalled("a"), stalled("b"), stalled("c"), recovered]);
}

/// Over before there was an Event of it: one of a few, and one of many.
#[tokio::test]
async fn nothing_recovers_without_a_warning_before_it() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    for n in 0..1_000 {
        let name = format!("c-{n}");
        pass_note(&mut reporter, &stall(&name, false), Kind::Connector, &name);
    }
    for n in 0..1_000 {
        let name = format!("c-{n}");
        pass_note(&mut reporter, &stall(&name, true), Kind::Connector, &name);
    }
    pass_to(&mut reporter, 120);
    pass_note(&mut reporter, &at_second(121, stall("a", false)), Kind::Connector, "a");
    pass_note(&mut reporter, &at_second(121, stall("a", true)), Kind::Connector, "a");
    // An end without a beginning, which a new leader's machine may see.
    pass_note(&mut reporter, &at_second(122, stall("b", true)), Kind::Connector, "b");
    pass_to(&mut reporter, 999);
    assert_eq!((bench.counted("posted"), bench.requests(ApiVerb::Create)), (0, 0));

    // The test would see one: this stall lasts.
    pass_note(&mut reporter, &at_second(1_000, stall("c", false)), Kind::Connector, "c");
    pass_to(&mut reporter, 1_100);
    pass_note(&mut reporter, &at_second(1_100, stall("c", true)), Kind::Connector, "c");
    pass_to(&mut reporter, 1_300);
    bench.counts("posted", 2).await;
    assert_eq!(posted(&bench).await, ["StalledMirror Connector c", "Recovered Connector c"]);
}

/// On the namespace that they share, or on the Lease, with their number; and once when it is over.
#[tokio::test]
async fn many_objects_have_one_event_together() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    let name = |n: usize| format!("c-{n}");
    for n in 0..1_000 {
        let note = at_second(n as u64 / 100, stall(&name(n), false));
        pass_note(&mut reporter, &note, Kind::Connector, &name(n));
        pass_to(&mut reporter, n as u64 / 100);
    }
    pass_to(&mut reporter, 300);
    for n in 0..1_000 {
        let note = at_second(300, stall(&name(n), true));
        pass_note(&mut reporter, &note, Kind::Connector, &name(n));
    }
    pass_to(&mut reporter, 999);
    bench.counts("posted", 3).await;
    let found = events(&bench.served).await;
    let messages: Vec<_> = found.iter().map(|e| e["message"].as_str().unwrap()).collect();
    assert!(messages[0].starts_with("101 Connectors: upstream's status is not mirrored to the"));
    assert!(messages[1].starts_with("1,000 Connectors: upstream's"), "{messages:?}");
    assert_eq!(messages[2], "over for 1,000 objects: it is mirrored again");
    let objects =
        ["StalledMirror Namespace n", "StalledMirror Namespace n", "Recovered Namespace n"];
    assert_eq!(posted(&bench).await, objects);
}

/// However many causes and objects there are, and a third is kept for Events about many.
#[tokio::test]
async fn no_minute_has_more_events_than_allowed() {
    let bench = bench_with(30).await;
    for n in 0..100 {
        bench.record(report(&format!("m{n}"), n));
    }
    bench.counts("posted", 20).await;
    let mut about_many = report("many", 0);
    about_many.object.name = "other".to_owned();
    assert!(bench.recorder.record(&bench.served.cluster, Scope::Many, about_many));
    bench.counts("posted", 21).await;
    assert_eq!(bench.counted("dropped"), 80);
}

/// On one route, however many are orphans; and on the same route when it is over.
#[tokio::test]
async fn held_deletes_are_reported_once() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    let held = |s: u64, held, orphans| {
        let (at, cluster) = (START.plus(s * 1_000), "up".into());
        Note { at, kind: NoteKind::DeletesHeld { cluster, held, orphans, routes: 100 } }
    };
    pass_note(&mut reporter, &held(0, true, 31), Kind::HttpRoute, "longest");
    let (cluster, route) = ("one".into(), ObjectKey::new("n", "longest"));
    let kind = NoteKind::Orphan { cluster, route, kept: Some(KeepReason::ShareExceeded) };
    pass_note(&mut reporter, &Note { at: START, kind }, Kind::HttpRoute, "longest");
    pass_to(&mut reporter, 9);
    reporter.on_note(&held(10, false, 0));
    reporter.on_note(&held(10, false, 0));
    bench.counts("posted", 2).await;
    let expected = ["DeletesHeld HTTPRoute longest", "DeletesNotHeld HTTPRoute longest"];
    assert_eq!(posted(&bench).await, expected);
    let found = events(&bench.served).await;
    assert!(found[0]["message"].as_str().unwrap().starts_with("31 of the 100 routes of upstream"));
}

/// Its problems are not over; nobody knows of them any longer.
#[tokio::test]
async fn nothing_is_reported_of_a_cluster_that_left() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    let names: Vec<_> = (0..10).map(|n| format!("c-{n}")).collect();
    let stalls = |reporter: &mut Reporter, s: u64, ended| {
        for name in &names {
            pass_note(reporter, &at_second(s, stall(name, ended)), Kind::Connector, name);
        }
    };
    stalls(&mut reporter, 0, false);
    pass_to(&mut reporter, 5);
    let left = EventKind::ClusterRemoved { cluster: "one".into() };
    reporter.on_event(&Event { at: START.plus(6_000), kind: left });
    stalls(&mut reporter, 6, true);
    pass_to(&mut reporter, 120);
    // It joins again, and has the same problem.
    stalls(&mut reporter, 121, false);
    pass_to(&mut reporter, 125);
    stalls(&mut reporter, 126, true);
    pass_to(&mut reporter, 999);
    bench.counts("posted", 3).await;
    // The API server counts the same Event twice.
    assert_eq!(posted(&bench).await, ["StalledMirror Namespace n", "Recovered Namespace n"]);
}

/// What a standby has seen come and go is nothing to report, nor to keep.
#[tokio::test]
async fn a_standby_keeps_and_posts_nothing_of_what_is_gone() {
    let bench = bench().await;
    let mut reporter = Reporter::new(bench.recorder.clone(), Settings::default());
    let size = |reporter: &Reporter| format!("{reporter:?}").len();
    let empty = size(&reporter);
    for n in 0..20_000 {
        let (cluster, route) = (ClusterName::from("one"), ObjectKey::new("n", format!("r-{n}")));
        let (hub, gone) = (cluster.clone(), route.clone());
        let orphan = NoteKind::Orphan { cluster: hub, route: gone, kept: None };
        pass_note(&mut reporter, &Note { at: START, kind: orphan }, Kind::HttpRoute, &route.name);
        let anomaly = Anomaly {
            anomaly: AnomalyKind::Contention,
            cluster: cluster.clone(),
            object: Some(route.clone()),
            detail: String::new(),
            manager: Some(format!("m-{n}").into()),
        };
        let anomaly = Note { at: START, kind: NoteKind::Anomaly(anomaly) };
        pass_note(&mut reporter, &anomaly, Kind::HttpRoute, &route.name);
        // The object of this note does not exist any longer.
        reporter.on_note(&Note { at: START, kind: NoteKind::OrphanGone { cluster, route } });
    }
    // The last problem that ended, and no more.
    assert!(size(&reporter) < empty + 1_000, "{} and {empty}", size(&reporter));
    reporter.on_event(&Event { at: START, kind: EventKind::LeadershipAcquired });
    pass_note(&mut reporter, &at_second(1, stall("a", false)), Kind::Connector, "a");
    pass_to(&mut reporter, 999);
    bench.counts("posted", 1).await;
    assert_eq!(posted(&bench).await, ["StalledMirror Connector a"]);
}

/// A leader that lost its Lease is a standby again.
#[tokio::test]
async fn what_happened_before_leadership_was_lost_is_not_posted_later() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    let size = |reporter: &Reporter| format!("{reporter:?}").len();
    let before = size(&reporter);
    let anomaly = Anomaly {
        anomaly: AnomalyKind::Contention,
        cluster: "one".into(),
        object: Some(ObjectKey::new("n", "a")),
        detail: String::new(),
        manager: None,
    };
    let anomaly = Note { at: START, kind: NoteKind::Anomaly(anomaly) };
    pass_note(&mut reporter, &anomaly, Kind::Connector, "a");
    assert!(size(&reporter) > before);
    for (s, kind) in [(0, EventKind::LeadershipLost), (600, EventKind::LeadershipAcquired)] {
        reporter.on_event(&Event { at: START.plus(s * 1_000), kind });
    }
    pass_note(&mut reporter, &at_second(601, stall("b", false)), Kind::Connector, "b");
    pass_to(&mut reporter, 999);
    bench.counts("posted", 1).await;
    assert_eq!(posted(&bench).await, ["StalledMirror Connector b"]);
}
