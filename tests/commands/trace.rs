//! Diagnosis: for each way in which liveness can get stuck, a trace names the first hop that
//! disagrees, its cause, and a remedy.

mod absent;
mod found;

use throughline::core::contract::event::{EventKind, Outcome};
use throughline::core::contract::note::Hop;
use throughline::core::contract::settings::{Settings, StallSettings};
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::core::data::time::UnixMillis;
use throughline::core::view::View;
use throughline::report::ReportOptions;
use throughline::trace::{
    ClusterAccess, HopCause, HopState, LastWriter, ManagedFieldsIndex, Snapshot, SnapshotSource,
    Trace, status_rows, text, trace_connector, trace_gateway,
};

use crate::stage::{START, Stage, UID, status};

fn lab() -> ObjectKey {
    ObjectKey::new("default", "lab")
}

fn settled() -> Stage {
    Stage::settled(Settings::default())
}

/// A snapshot whose view was written as JSON and read back, as `/state` does it.
fn snapshot(stage: &Stage, source: SnapshotSource) -> Snapshot {
    let view = stage.machine.view();
    let json = serde_json::to_string(&view).unwrap();
    let read: View = serde_json::from_str(&json).unwrap();
    assert_eq!(read, view, "the state can be read back");
    let managed_fields = ManagedFieldsIndex::default();
    let access = ClusterAccess::default();
    Snapshot { source, view: read, stall_limits: None, managed_fields, access }
}

fn traced(snapshot: &Snapshot) -> Trace {
    let mut traces = trace_connector(snapshot, &lab(), None).unwrap();
    assert_eq!(traces.len(), 1);
    traces.remove(0)
}

fn trace(stage: &Stage) -> Trace {
    traced(&snapshot(stage, SnapshotSource::State))
}

/// The first hop that disagrees, its cluster, state and cause. Every such hop has a remedy.
#[track_caller]
fn first(trace: &Trace) -> (Hop, &str, HopState, HopCause) {
    let hop = trace.first().unwrap_or_else(|| panic!("every hop agrees: {trace:#?}"));
    assert!(!hop.why.is_empty() && !hop.remedies.is_empty(), "{hop:#?}");
    assert_eq!(trace.state, hop.state);
    (hop.hop, hop.cluster.as_str(), hop.state, hop.cause.unwrap())
}

fn states(trace: &Trace) -> Vec<(Hop, HopState)> {
    trace.hops.iter().map(|hop| (hop.hop, hop.state)).collect()
}

#[test]
fn when_every_hop_agrees_the_trace_is_ok() {
    let trace = trace(&settled());
    assert_eq!((trace.state, trace.first), (HopState::Ok, None));
    assert_eq!(states(&trace), Hop::ALL.map(|hop| (hop, HopState::Ok)));
    let node = trace.hops[0].says.as_ref().unwrap().node.clone();
    assert!(node.is_some());
    for hop in &trace.hops[..3] {
        let says = hop.says.as_ref().unwrap();
        assert_eq!((says.online, &says.node), (true, &node), "{hop:#?}");
        assert_eq!(hop.since_ms, Some(UnixMillis(START + 1)));
    }
    assert!(trace.hops[3].trigger.is_some());
    assert_eq!(trace.notes, Vec::<String>::new());
}

#[test]
fn a_hop_is_pending_until_it_is_late() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    stage.only_action();
    let (hop, at, state, cause) = {
        let trace = trace(&stage);
        let (hop, at, state, cause) = first(&trace);
        (hop, at.to_owned(), state, cause)
    };
    assert_eq!(
        (hop, &*at, state, cause),
        (Hop::Mirrored, "hub", HopState::Pending, HopCause::WriteInFlight)
    );
    stage.pass_to(606_000);
    let late = trace(&stage);
    assert_eq!(first(&late), (Hop::Mirrored, "hub", HopState::Wrong, HopCause::WriteInFlight));
    assert_eq!(late.hops[1].expected, "offline");
    let says = late.hops[1].says.as_ref().unwrap();
    assert!(says.online, "the annotation is still the one that the edge has: {says:?}");
    assert_eq!(
        late.hops[2].state,
        HopState::Ok,
        "the edge Connector agrees with the hub Connector"
    );
}

#[test]
fn what_routes_nothing_is_deferred_and_holds_up_no_other_hop() {
    let mut stage = settled();
    let moved = status(Some("n1")).replace(r#"{"id""#, r#"{"homeRelay":"r","id""#);
    stage.upstream(Some(&moved));
    stage.pass_to(602_000);
    let deferred = trace(&stage);
    let expected = (Hop::Mirrored, "hub", HopState::Deferred, HopCause::Deferred);
    assert_eq!(first(&deferred), expected);
    let why = &deferred.hops[1].why;
    assert!(why.contains("such as an address, has been deferred for 2"), "{why}");
    assert!(deferred.hops[1].says.as_ref().unwrap().online);
    let snapshot = snapshot(&stage, SnapshotSource::State);
    let rows = status_rows(&snapshot);
    assert_eq!((rows[0].state, rows[0].stuck.is_none()), (HopState::Deferred, true));
    let written = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).unwrap()
    };
    let options = ReportOptions::default();
    let summary = written(&|out| text::summary(&snapshot, &rows, &options, out).unwrap());
    assert!(summary.starts_with("1 connector, 0 stuck, 0 pending, 1 deferred"), "{summary}");
    let lines =
        written(&|out| text::traces(std::slice::from_ref(&deferred), &options, out).unwrap());
    assert!(lines.contains("\nDeferred at mirrored (hub): "), "{lines}");
    // An edge that lacks what the hub says is the trouble, though its hop comes later.
    stage.edge(Some(&status(None)));
    let found = trace(&stage);
    assert_eq!(first(&found), (Hop::Arrived, "edge", HopState::Pending, HopCause::NotCarried));
}

#[test]
fn an_instance_that_does_not_lead_names_the_leader() {
    let mut stage = settled();
    stage.event(EventKind::LeadershipLost);
    stage.upstream(Some(&status(None)));
    stage.pass_to(606_000);
    let mut snapshot = snapshot(&stage, SnapshotSource::State);
    let trace = traced(&snapshot);
    assert_eq!(first(&trace), (Hop::Mirrored, "hub", HopState::Wrong, HopCause::NotLeading));
    assert!(trace.first().unwrap().remedies[0].contains("kubectl get lease"));
    snapshot.view.holder = Some("pod-b".to_owned());
    let trace = traced(&snapshot);
    assert!(trace.first().unwrap().why.ends_with("; pod-b is"), "{trace:#?}");
    // A live trace is never the leader, which is no cause.
    snapshot.source = SnapshotSource::Live;
    let trace = traced(&snapshot);
    assert_eq!(first(&trace).3, HopCause::NotWritten);
    assert!(trace.first().unwrap().why.contains("pod-b holds the Lease"), "{trace:#?}");
}

#[test]
fn an_instance_that_waits_for_its_first_lease_says_so() {
    let mut stage = settled();
    stage.event(EventKind::LeadershipLost);
    stage.event(EventKind::LeadershipPending { wait_ms: 15_000 });
    stage.upstream(Some(&status(None)));
    stage.pass_to(610_000);
    let trace = traced(&snapshot(&stage, SnapshotSource::State));
    let expected = (Hop::Mirrored, "hub", HopState::Pending, HopCause::WaitingForLease);
    assert_eq!(first(&trace), expected);
    let why = &trace.first().unwrap().why;
    assert!(why.starts_with("waiting up to 15 s for a Lease that was not there"), "{why}");
}

#[test]
fn a_refused_write_is_wrong_at_once_and_names_the_missing_permission() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.finish(&mirror, Outcome::Refused { error: "403 Forbidden: no".into() });
    let trace = trace(&stage);
    assert_eq!(first(&trace), (Hop::Mirrored, "hub", HopState::Wrong, HopCause::Refused));
    let hop = trace.first().unwrap();
    assert!(hop.why.contains("403 Forbidden: no"), "{hop:#?}");
    let remedy = "grant patch on connectors.networking.datumapis.com to the user or ServiceAccount";
    assert_eq!(hop.remedies, [format!("for hub: {remedy}")]);
    assert_eq!(hop.next_attempt_ms.unwrap().0, stage.now + 30_000);
    let mut out = Vec::new();
    let options = ReportOptions { width: 400, ..ReportOptions::default() };
    throughline::trace::text::traces(&[trace], &options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("403 Forbidden: no); next attempt in 30 s."), "{text}");
}

#[test]
fn a_failed_write_is_pending_until_it_is_late() {
    let mut stage = settled();
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.fail(mirror.action.id);
    assert_eq!(first(&trace(&stage)), (Hop::Mirrored, "hub", HopState::Pending, HopCause::Failing));
}

#[test]
fn another_writer_is_named() {
    let mut stage = settled();
    stage.hub(Some(&status(None)));
    let found = trace(&stage);
    assert_eq!(first(&found).3, HopCause::Contention);
    let mut snapshot = snapshot(&stage, SnapshotSource::State);
    let (manager, at_ms) = ("replicator".to_owned(), UnixMillis(START + 600_000));
    let writer = LastWriter { manager, at_ms, of_field: true };
    let hub_key = ObjectKey::new(format!("ns-{UID}"), "lab");
    snapshot.managed_fields.set_writer(&"hub".into(), Kind::Connector, &hub_key, writer);
    let trace = traced(&snapshot);
    let why = &trace.first().unwrap().why;
    assert!(
        why.starts_with("replicator overwrote networking.datumapis.com/upstream-status"),
        "{why}"
    );
}

#[test]
fn a_carrier_that_does_not_deliver_is_named_with_its_resourcebinding() {
    let mut stage = settled();
    let offline = status(None);
    stage.upstream(Some(&offline));
    let mirror = stage.only_action();
    stage.hub(Some(&offline));
    stage.succeed(&mirror);
    assert_eq!(
        first(&trace(&stage)),
        (Hop::Arrived, "edge", HopState::Pending, HopCause::NotCarried)
    );
    stage.pass_to(611_000);
    let nudge = stage.only_action();
    stage.succeed(&nudge);
    let mut snapshot = snapshot(&stage, SnapshotSource::State);
    let generic = traced(&snapshot);
    assert_eq!(first(&generic), (Hop::Arrived, "edge", HopState::Wrong, HopCause::NotCarried));
    let hop = generic.first().unwrap();
    assert!(hop.why.contains("(offline)") && hop.why.contains("nudged once"), "{}", hop.why);
    let words = hop.remedies.join("\n").to_lowercase();
    assert!(words.contains("the carrier that copies connectors from hub to edge"), "{words}");
    let karmadas = ["resourcebinding", "karmada", "get clusters"];
    assert!(!karmadas.iter().any(|word| words.contains(word)), "not known to be Karmada: {words}");

    // Where the hub serves Karmada's API, its objects are named.
    snapshot.access.set_karmada(&"hub".into());
    let trace = traced(&snapshot);
    let hop = trace.first().unwrap();
    let command = format!("kubectl -n ns-{UID} describe resourcebinding lab-connector");
    assert_eq!(hop.remedies[0].lines().nth(1), Some(&*command), "a command has its own line");
    let clusters = hop.remedies.iter().filter(|remedy| remedy.ends_with("\nkubectl get clusters"));
    assert_eq!(clusters.count(), 1, "{:#?}", hop.remedies);
}

#[test]
fn a_trace_says_how_to_read_the_events_of_each_tier() {
    let mut stage = settled();
    let command = |cluster: &str, namespace: &str| {
        format!("at {cluster}:\nkubectl -n {namespace} events --for connectors/lab")
    };
    let hub_namespace = format!("ns-{UID}");
    let commands =
        [command("up", "default"), command("hub", &hub_namespace), command("edge", &hub_namespace)];
    assert_eq!(trace(&stage).events, commands);
    let log = snapshot(&stage, SnapshotSource::Log);
    assert!(traced(&log).events.is_empty(), "API servers have forgotten them");
    // Also at an edge whose Connector is missing, and only where something is wrong are they printed.
    let printed = |stage: &Stage| {
        let mut out = Vec::new();
        text::traces(&[trace(stage)], &ReportOptions::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        commands.iter().filter(|command| text.contains(&command.replace('\n', "\n      "))).count()
    };
    assert_eq!(printed(&stage), 0);
    stage.upstream(Some(&status(None)));
    assert_eq!(printed(&stage), 3);
}

#[test]
fn a_hop_whose_watch_is_not_live_is_unknown_with_the_error_and_a_remedy() {
    for (cluster, kind, hop) in [
        ("up", "Connector", Hop::Upstream),
        ("hub", "Connector", Hop::Mirrored),
        ("edge", "Connector", Hop::Arrived),
        ("edge", "HTTPProxy", Hop::Touched),
        ("edge", "Gateway", Hop::Touched),
    ] {
        let mut stage = settled();
        stage.lost(cluster, kind);
        let mut snapshot = snapshot(&stage, SnapshotSource::State);
        assert_eq!(
            first(&traced(&snapshot)),
            (hop, cluster, HopState::Unknown, HopCause::WatchNotLive)
        );
        let kind = Kind::parse(kind).unwrap();
        let error = "403 Forbidden: may not".to_owned();
        snapshot.view.tell_errors([(cluster.into(), kind, error.into())]);
        let trace = traced(&snapshot);
        let hop = trace.first().unwrap();
        assert!(hop.why.starts_with("not allowed to list "), "{}", hop.why);
        let since = " (403 Forbidden: may not); unknown since 2026-11-21 09:29:32.000 UTC";
        assert!(hop.why.ends_with(since), "{}", hop.why);
        let remedy = format!("for {cluster}: grant list and watch on ");
        assert!(hop.remedies[0].starts_with(&remedy), "{hop:#?}");
    }
}

#[test]
fn a_touch_that_is_refused_or_late_is_the_gateways_hop() {
    let mut stage = settled();
    let offline = status(None);
    for step in [Stage::upstream, Stage::hub, Stage::edge] {
        step(&mut stage, Some(&offline));
    }
    stage.actions();
    assert_eq!(
        first(&trace(&stage)),
        (Hop::Touched, "edge", HopState::Pending, HopCause::WriteInFlight)
    );
    stage.pass_to(600_100);
    let touch = stage.only_action();
    stage.finish(&touch, Outcome::Refused { error: "403 Forbidden: no".into() });
    let found = trace(&stage);
    assert_eq!(first(&found), (Hop::Touched, "edge", HopState::Wrong, HopCause::Refused));
    let hop = found.first().unwrap();
    assert_eq!(hop.object.as_ref().unwrap().name, "app");
    assert!(hop.remedies[0].starts_with("for edge: grant patch on gateways."), "{hop:#?}");
    assert_eq!(hop.expected, "announces offline");
    let app = ObjectKey::new(format!("ns-{UID}"), "app");
    let snapshot = snapshot(&stage, SnapshotSource::State);
    let by_gateway = trace_gateway(&snapshot, &app, None).unwrap();
    assert_eq!(first(&by_gateway[0]), (Hop::Touched, "edge", HopState::Wrong, HopCause::Refused));
}

/// A live trace saw no change happen, so the times of the last writes decide what is late.
#[test]
fn a_live_trace_judges_lateness_by_the_times_of_writes() {
    let mut stage = settled();
    stage.event(EventKind::LeadershipLost);
    stage.upstream(Some(&status(None)));
    let at = |written: u64| {
        let mut snapshot = snapshot(&stage, SnapshotSource::Live);
        let view = &mut snapshot.view;
        for cluster in &mut view.clusters {
            cluster
                .live_since_ms
                .values_mut()
                .for_each(|since| *since = UnixMillis(START + 600_000));
        }
        view.connectors[0].stalls.clear();
        snapshot.stall_limits = Some(StallSettings::default());
        let (manager, of_field) = ("agent".to_owned(), true);
        let at_ms = UnixMillis(START + written);
        let writer = LastWriter { manager, at_ms, of_field };
        snapshot.managed_fields.set_writer(&"up".into(), Kind::Connector, &lab(), writer);
        traced(&snapshot)
    };
    assert_eq!(
        first(&at(598_000)),
        (Hop::Mirrored, "hub", HopState::Pending, HopCause::NotWritten)
    );
    assert_eq!(first(&at(500_000)), (Hop::Mirrored, "hub", HopState::Wrong, HopCause::NotWritten));
    assert_eq!(at(500_000).hops[0].since_ms, Some(UnixMillis(START + 500_000)));
}
