use std::io;
use std::sync::Arc;

use tracing::Level;

use super::*;
use crate::core::contract::cause::Facts;
use crate::core::contract::error_cause::ErrorCause;
use crate::core::data::ids::{Kind, NamespacedName};

const START: UnixMillis = UnixMillis(1_000_000);

fn problem(cause: Cause, cluster: &str, name: Option<&str>) -> Problem {
    let object = name.map(|name| NamespacedName::new("ns", name));
    let kind = Some(Kind::Connector);
    let about = About { kind, object, ..About::cluster(&cluster.into()) };
    let facts = Facts { edge: Some(cluster.into()), ..Facts::default() };
    Problem { cause, about, since: UnixMillis(START.0 - 10_000), facts }
}

fn not_carried(name: &str) -> Problem {
    problem(Cause::NotCarried, "edge", Some(name))
}

fn unavailable(cluster: &str) -> Problem {
    let mut problem = problem(Cause::ClusterUnavailable, cluster, None);
    problem.facts.error = Some("503 https://10.0.0.7:443/x: no".into());
    problem
}

fn refused(name: &str, error: ErrorCause) -> Problem {
    let mut problem = problem(Cause::WriteRefused, "hub", Some(name));
    problem.facts.error = Some(RequestFailure::new(error, "no"));
    problem
}

/// Problems, and their reports: seconds, stage, number of groups, the first group's count and message.
#[derive(Default)]
struct Bench {
    problems: Problems,
    reported: Vec<String>,
}

impl Bench {
    /// Advances the time as the loop does.
    fn pass_to(&mut self, ms: u64) {
        while let Some(due) = self.problems.due().filter(|due| *due <= START.plus(ms)) {
            for report in self.problems.poll(due) {
                let stage = report.stage;
                let s = due.since(START) / 1_000;
                let first = &report.groups[0];
                let groups = report.groups.len();
                self.reported
                    .push(format!("{s} {stage:?} {groups} {} {}", first.count, first.message));
            }
            assert!(self.problems.due().is_none_or(|next| next > due), "a timer, not a poll");
        }
    }

    fn begin(&mut self, ms: u64, problem: Problem) {
        self.pass_to(ms);
        self.problems.begin(START.plus(ms), problem, None);
    }

    fn end(&mut self, ms: u64, problem: &Problem) {
        self.pass_to(ms);
        self.problems.end(START.plus(ms), problem);
    }
}

#[test]
fn problems_of_one_cause_are_reported_together_when_they_begin_change_and_end() {
    let mut bench = Bench::default();
    for n in 0..1_000 {
        bench.begin(n, not_carried(&format!("c-{n}")));
    }
    for n in 0..400 {
        bench.end(20_000 + n, &not_carried(&format!("c-{n}")));
    }
    for n in 400..1_000 {
        bench.end(80_000, &not_carried(&format!("c-{n}")));
    }
    bench.pass_to(3_600_000);
    let says =
        |name, more| format!("edge does not have the hub annotation of ns/{name} and {more} more.");
    assert_eq!(
        bench.reported,
        [
            format!("1 Began 1 1000 {}", says("c-0", 999)),
            // The problems of c-0 to c-399 have ended.
            format!("61 Changed 1 600 {}", says("c-400", 599)),
            format!("81 Ended 1 600 {}", says("c-400", 599)),
        ]
    );
    assert_eq!(bench.problems.open(&|_| None), []);
}

#[test]
fn what_ends_before_it_is_reported_is_not_and_one_that_returns_at_once_goes_on() {
    let mut bench = Bench::default();
    bench.begin(0, not_carried("a"));
    bench.end(900, &not_carried("a"));
    bench.begin(5_000, not_carried("a"));
    bench.end(9_000, &not_carried("a"));
    bench.begin(9_900, not_carried("a"));
    bench.pass_to(100_000);
    assert_eq!(bench.reported, ["6 Began 1 1 edge does not have the hub annotation of ns/a."]);
}

#[test]
fn new_facts_are_reported_once_and_how_many_more_objects_is_no_other_problem() {
    let mut bench = Bench::default();
    let held = |part| {
        let mut problem = problem(Cause::RemovalsHeld, "up", Some("a"));
        problem.about.more = part - 1;
        problem.facts.part = part;
        problem.facts.whole = 30;
        problem.facts.upstream = Some("up".into());
        problem
    };
    bench.begin(0, held(12));
    bench.begin(5_000, held(13));
    bench.begin(6_000, held(14));
    bench.begin(70_000, held(14));
    bench.end(80_000, &held(14));
    bench.pass_to(900_000);
    let says = |n| format!("{n} {n} of 30 Connectors of up vanished at once; annotations stay.");
    let reported = [
        format!("1 Began 1 {}", says(12)),
        format!("61 Changed 1 {}", says(14)),
        format!("81 Ended 1 {}", says(14)),
    ];
    assert_eq!(bench.reported, reported);
}

#[test]
fn what_one_remedy_does_not_cure_is_reported_apart() {
    let mut bench = Bench::default();
    bench.begin(0, refused("a", ErrorCause::Forbidden));
    bench.begin(0, refused("b", ErrorCause::Invalid));
    bench.begin(100, refused("c", ErrorCause::Forbidden));
    // Another class refuses it: still the same problem.
    bench.begin(200, refused("c", ErrorCause::Invalid));
    let mut groups = bench.problems.open(&|_| None);
    groups.sort_by_key(|group| group.count);
    let names = |group: &GroupView| {
        group.objects.iter().map(|object| object.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(groups.iter().map(names).collect::<Vec<_>>(), [vec!["a"], vec!["b", "c"]]);
    bench.begin(5_000, refused("a", ErrorCause::Invalid));
    bench.pass_to(8_000);
    assert_eq!(
        (bench.reported.len(), bench.problems.open(&|_| None).len()),
        (2, 1),
        "no end: {:?}",
        bench.reported
    );
    for error in [ErrorCause::Forbidden, ErrorCause::Invalid] {
        for name in ["a", "b", "c"] {
            bench.end(9_000, &refused(name, error));
        }
    }
    assert_eq!(bench.problems.open(&|_| None), []);
}

#[test]
fn many_clusters_with_one_cause_share_a_message_even_if_they_are_lost_one_after_another() {
    let mut bench = Bench::default();
    let names: Vec<_> = (0..300).map(|n| format!("p-{n:03}")).collect();
    for (n, name) in names.iter().enumerate() {
        bench.begin(100 * n as u64, unavailable(name));
    }
    for name in &names {
        bench.end(100_000, &unavailable(name));
    }
    bench.pass_to(3_600_000);
    let few = |line: &String| line.split(' ').take(3).collect::<Vec<_>>().join(" ");
    let reported: Vec<_> = bench.reported.iter().map(few).collect();
    let first = ["1 Began 1", "1 Began 1", "1 Began 1"];
    let rest = ["11 Began 98", "21 Began 100", "31 Began 99", "101 Ended 300"];
    assert_eq!(reported, [&first[..], &rest].concat());
}

/// The log lines of these problems and of their ends.
fn lines(problems: &[Problem]) -> Vec<String> {
    let (written, writer) = io::pipe().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .with_writer(Arc::new(writer))
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let tell =
            |all: &mut Problems, at| all.poll(at).iter().for_each(|reported| log(at, reported));
        let mut all = Problems::default();
        for problem in problems {
            all.begin(START, problem.clone(), None);
        }
        tell(&mut all, START.plus(1_000));
        for problem in problems {
            all.end(START.plus(20_000), problem);
        }
        tell(&mut all, START.plus(21_000));
    });
    io::read_to_string(written).unwrap().lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn a_line_has_sentence_fields_and_remedy_and_no_address() {
    assert_eq!(
        lines(&[unavailable("hub")]),
        [
            "ERROR The API server of hub does not answer: 503 <address>: no. \
             cause=\"cluster_unavailable\" cluster=hub count=1 since=\"11s\" \
             error=\"503 <address>: no\" remedy=\"`at hub: kubectl get --raw '/readyz?verbose'`\"",
            "INFO resolved cause=\"cluster_unavailable\" cluster=hub after=\"30s\"",
        ]
    );
    let warning = lines(&[problem(Cause::LabelsMissing, "hub", Some("a"))]);
    assert!(warning[0].starts_with("WARN Hub Connector ns/a lacks the label"), "{warning:?}");
    let info = lines(&[problem(Cause::NoGateway, "edge", Some("a"))]);
    assert!(info[0].starts_with("DEBUG No Gateway at edge routes to"), "{info:?}");
    assert!(info[1].starts_with("DEBUG resolved"), "{info:?}");
}

#[test]
fn the_line_of_many_clusters_has_their_number_and_three_names() {
    let names = ["a", "b", "c", "d"].map(unavailable);
    let lines = lines(&names);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let more = "The API server of a does not answer: 503 <address>: no. The same in 3 more clusters: \
                b, c, … cause=\"cluster_unavailable\" cluster=a clusters=4 count=4";
    assert!(lines[0].contains(more), "{lines:?}");
    assert!(lines[1].ends_with("cluster=a clusters=4 after=\"30s\""), "{lines:?}");
}

#[test]
fn a_group_of_few_has_a_place_for_each_and_a_larger_one_only_its_first_for_as_long_as_it_lasts() {
    let mut problems = Problems::default();
    let places = |problems: &Problems| {
        let of = |place: &Place| place.id.object.as_ref().unwrap().name().to_owned();
        problems.open(&|_| None)[0].places.iter().map(of).collect::<Vec<_>>().join(" ")
    };
    for name in ["b", "c", "d"] {
        problems.begin(START, not_carried(name), None);
    }
    assert_eq!(places(&problems), "b c d");
    problems.begin(START, not_carried("a"), None);
    assert_eq!(places(&problems), "b");
    problems.end(START, &not_carried("b"));
    problems.begin(START, not_carried("b"), None);
    assert_eq!(places(&problems), "a");
}
