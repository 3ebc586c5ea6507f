use std::sync::Arc;

use tokio::sync::mpsc;

use super::*;
use crate::client::{ClusterClient, ConnectionSpec, Connections, Credentials, Server};
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::data::ids::{Kind, NamespacedName, Role};
use crate::core::view::involved_object::InvolvedObject;
use crate::events::sender::Sender;
use crate::metrics::Metrics;

const START: UnixMillis = UnixMillis(1_795_252_772_000);

/// A poster with its inputs, and the Events that it posts.
struct Bench {
    problems: Problems,
    poster: Poster,
    queue: mpsc::Receiver<(Arc<Sender>, Event)>,
}

fn bench() -> Bench {
    let metrics = Arc::new(Metrics::new());
    let spec = ConnectionSpec { credentials: Credentials::InCluster, server: Server::AsConfigured };
    let connections = Connections::default();
    let roles = vec![Role::Hub];
    let hub = ClusterClient::new("hub".into(), roles, spec, &connections, metrics.clone());
    let hub = Arc::new(hub);
    let (recorder, queue) = Recorder::new(vec![hub], 30, metrics);
    Bench { problems: Problems::default(), poster: Poster::new(recorder), queue }
}

/// A poster that has led for a long time.
fn leading() -> Bench {
    let mut bench = bench();
    bench.poster.on_event(UnixMillis(0), &EventKind::LeadershipAcquired);
    bench.pass_to(0);
    bench
}

fn problem(cause: Cause, cluster: &str, name: Option<&str>) -> Problem {
    let object = name.map(|name| NamespacedName::new("ns", name));
    let about = About { kind: Some(Kind::Connector), object, ..About::cluster(&cluster.into()) };
    let upstream = Some(cluster.into());
    Problem { cause, about, since: START, facts: Facts { upstream, ..Facts::default() } }
}

fn not_mirrored(name: &str) -> Problem {
    problem(Cause::NotMirrored, "hub", Some(name))
}

fn message(event: &Event) -> &str {
    event.message.as_deref().unwrap()
}

impl Bench {
    fn begin(&mut self, ms: u64, problem: &Problem) {
        self.pass_to(ms);
        let About { kind, object, .. } = problem.about.clone();
        let object = kind.zip(object).map(|(kind, object)| InvolvedObject {
            cluster: "hub".into(),
            kind,
            object,
            uid: Some("u-1".to_owned()),
        });
        self.poster.begin(problem);
        self.problems.begin(START.plus(ms), problem.clone(), object);
    }

    fn end(&mut self, ms: u64, problem: &Problem, is_object_there: bool) {
        self.pass_to(ms);
        self.poster.end(START.plus(ms), problem, is_object_there);
        self.problems.end(START.plus(ms), problem);
    }

    fn lead(&mut self, ms: u64, leads: bool) {
        self.pass_to(ms);
        let lost = EventKind::LeadershipLost;
        let kind = if leads { EventKind::LeadershipAcquired } else { lost };
        self.poster.on_event(START.plus(ms), &kind);
    }

    /// Advances the time as the loop does.
    fn pass_to(&mut self, ms: u64) {
        let due = |bench: &Self| bench.problems.due().into_iter().chain(bench.poster.due()).min();
        while let Some(at) = due(self).filter(|at| *at <= START.plus(ms)) {
            for report in self.problems.poll(at) {
                self.poster.report(at, &report);
            }
            self.poster.poll(at, &self.problems);
            assert!(due(self).is_none_or(|next| next > at), "a timer, not a poll");
        }
    }

    /// Reason, object and count of the Events that were posted since the last call.
    fn posted(&mut self, ms: u64) -> Vec<String> {
        let of = |event: Event| {
            let words = [event.type_, event.reason, event.involved_object.name].map(Option::unwrap);
            format!("{} {}", words.join(" "), event.count.unwrap())
        };
        self.events(ms).into_iter().map(of).collect()
    }

    fn events(&mut self, ms: u64) -> Vec<Event> {
        self.pass_to(ms);
        std::iter::from_fn(|| Some(self.queue.try_recv().ok()?.1)).collect()
    }
}

#[test]
fn few_objects_get_an_event_each_and_their_ends_too() {
    let mut bench = leading();
    for name in ["a", "b"] {
        bench.begin(0, &not_mirrored(name));
    }
    let began = ["Warning NotMirrored a 1", "Warning NotMirrored b 1"];
    assert_eq!(bench.posted(2_000), began);
    bench.end(5_000, &not_mirrored("a"), true);
    // Its object is deleted: no Event can be posted on it.
    bench.end(5_000, &not_mirrored("b"), false);
    assert_eq!(bench.posted(999_000), ["Normal Resolved a 1"]);
    bench.begin(1_000_000, &not_mirrored("a"));
    assert_eq!(bench.posted(1_002_000), ["Warning NotMirrored a 1"], "another problem");
}

#[test]
fn a_reason_is_the_name_of_its_cause_in_camel_case() {
    for cause in Cause::ALL {
        let lower_case = format!("{cause:?}").to_lowercase();
        assert_eq!(lower_case, cause.as_str().replace('_', ""));
    }
}

#[test]
fn a_problem_that_returns_at_once_was_not_over() {
    let mut bench = leading();
    bench.begin(0, &not_mirrored("a"));
    bench.end(5_000, &not_mirrored("a"), true);
    bench.begin(5_500, &not_mirrored("a"));
    assert_eq!(bench.posted(999_000), ["Warning NotMirrored a 1"]);
}

#[test]
fn a_thousand_connectors_with_one_cause_get_one_event_that_counts() {
    let mut bench = leading();
    let name = |n: u64| format!("c-{n:04}");
    for n in 0..1_000 {
        bench.begin(0, &not_mirrored(&name(n)));
    }
    assert_eq!(bench.posted(2_000), ["Warning NotMirrored c-0000 1"]);
    bench.begin(3_000, &not_mirrored(&name(1_000)));
    let events = bench.events(62_000);
    assert_eq!(events.len(), 1);
    assert!(events[0].count == Some(2) && message(&events[0]).contains("c-0000 and 1000 more"));
    for n in 0..=1_000 {
        bench.end(70_000, &not_mirrored(&name(n)), true);
    }
    assert_eq!(bench.posted(999_000), ["Normal Resolved c-0000 1"]);
}

#[test]
fn many_clusters_with_one_cause_get_one_event() {
    let mut bench = leading();
    for n in 0..300 {
        let name = format!("p-{n:03}");
        bench.begin(0, &problem(Cause::UpstreamUnknown, &name, Some(&name)));
    }
    let events = bench.events(60_000);
    assert_eq!(events.len(), 1, "{events:?}");
    let more = "Hub objects name upstream p-000, which is not followed. The same in 299 more clusters: \
                p-001, p-002, … Next: Add p-000";
    assert!(message(&events[0]).starts_with(more), "{events:?}");
}

#[test]
fn a_new_leader_posts_what_is_still_wrong_and_a_standby_nothing() {
    let mut bench = bench();
    for name in ["a", "b"] {
        bench.begin(0, &not_mirrored(name));
    }
    assert_eq!(bench.poster.due(), None, "it does not lead");
    bench.lead(60_000, true);
    bench.end(61_000, &not_mirrored("a"), true);
    assert_eq!(bench.events(69_000), []);
    assert_eq!(bench.posted(71_000), ["Warning NotMirrored b 1"]);
    // It leads again while the problem is open: the same Event.
    bench.lead(80_000, false);
    bench.lead(90_000, true);
    assert_eq!(bench.posted(999_000), ["Warning NotMirrored b 2"]);
    bench.lead(1_000_000, false);
    bench.end(1_001_000, &not_mirrored("b"), true);
    bench.begin(1_002_000, &not_mirrored("c"));
    assert_eq!(bench.events(1_999_000), []);
}

#[test]
fn a_problem_of_a_whole_lasts_while_another_object_becomes_the_first() {
    let mut bench = leading();
    let held = |name| {
        let mut held = problem(Cause::RemovalsHeld, "up", Some(name));
        held.about.whole = Some("up".into());
        held
    };
    bench.begin(0, &held("a"));
    bench.begin(5_000, &held("b"));
    bench.end(10_000, &held("b"), false);
    let events = ["Warning RemovalsHeld a 1", "Normal Resolved a 1"];
    assert_eq!(bench.posted(999_000), events);
}

#[test]
fn causes_without_a_place_get_no_event_and_those_of_a_source_one_on_the_lease() {
    let mut bench = leading();
    bench.begin(0, &problem(Cause::NotReplicated, "hub", Some("a")));
    bench.begin(0, &problem(Cause::DiscoveryFailing, "milo", None));
    assert_eq!(bench.events(2_000), [], "no Lease is known");
    let lease = ObjectReference { name: Some("throughline".into()), ..ObjectReference::default() };
    bench.poster.recorder.set_lease(&"hub".into(), lease);
    bench.begin(3_000, &problem(Cause::ClustersMissing, "milo", None));
    assert_eq!(bench.posted(9_000), ["Warning ClustersMissing throughline 1"]);
    bench.end(10_000, &problem(Cause::ClustersMissing, "milo", None), false);
    assert_eq!(bench.posted(19_000), ["Normal Resolved throughline 1"]);
    // It is about a Lease, which is none of the watched kinds.
    let mut unheld = problem(Cause::ShardUnheld, "hub", Some("throughline"));
    unheld.about.kind = None;
    bench.begin(20_000, &unheld);
    bench.end(25_000, &unheld, false);
    let events = ["Warning ShardUnheld throughline 1", "Normal Resolved throughline 1"];
    assert_eq!(bench.posted(29_000), events);
}
