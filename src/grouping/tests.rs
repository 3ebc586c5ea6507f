//! When a group is reported, and with which numbers.

use super::*;

const T0: UnixMillis = UnixMillis(1_000_000_000);

fn at(s: u64) -> UnixMillis {
    T0.plus(s * 1_000)
}

fn no_leader() -> Cause {
    Cause::Stall { cause: StallCause::NotLeading, hop: Hop::Mirrored }
}

fn carrier_behind() -> Cause {
    let cause = StallCause::NotCarried { cluster: "edge".into() };
    Cause::Stall { cause, hop: Hop::Arrived }
}

fn overwritten_by(manager: &str) -> Cause {
    Cause::Anomaly {
        kind: AnomalyKind::Contention,
        cluster: "hub".into(),
        manager: Some(manager.into()),
    }
}

fn member(n: usize) -> Member {
    ("hub".into(), ObjectKey::new("ns", format!("c-{n}")))
}

struct Bench {
    groups: Groups<usize>,
    said: Vec<String>,
}

impl Bench {
    fn new() -> Self {
        Self { groups: Groups::new(0), said: Vec::new() }
    }

    fn begin(&mut self, s: u64, cause: &Cause, n: usize) {
        self.pass_to(s);
        self.groups.begin(at(s), cause.clone(), member(n), n);
    }

    fn end(&mut self, s: u64, cause: &Cause, n: usize) {
        self.pass_to(s);
        assert_eq!(self.groups.end(at(s), cause, &member(n)), Some(n));
    }

    /// Lets time pass as the loop does: it asks only when something is due.
    fn pass_to(&mut self, s: u64) {
        while let Some(due) = self.groups.due().filter(|due| *due <= at(s)) {
            let said = &mut self.said;
            self.groups.poll(due, |cause, stage, group| {
                let cause = match cause {
                    Cause::Stall { cause, .. } => cause.as_str().to_owned(),
                    Cause::Anomaly { manager, .. } => manager.clone().unwrap_or_default().into(),
                    _ => String::new(),
                };
                let (after_s, n) = (due.since(T0) / 1_000, group.members.len());
                let total = group.total;
                said.push(format!("{after_s} s: {cause} {stage:?}, {n} now, {total} in all"));
            });
            assert!(self.groups.due().is_none_or(|next| next > due), "a timer, not a poll");
        }
    }

    /// What was said until then, and not returned before.
    fn until(&mut self, s: u64) -> Vec<String> {
        self.pass_to(s);
        std::mem::take(&mut self.said)
    }
}

#[test]
fn one_object_is_one_line_at_its_begin_and_one_at_its_end() {
    let mut bench = Bench::new();
    bench.begin(0, &carrier_behind(), 7);
    assert_eq!(bench.until(0), [""; 0]);
    assert_eq!(bench.until(900), ["1 s: not_carried Began, 1 now, 1 in all"]);
    bench.end(1_000, &carrier_behind(), 7);
    assert_eq!(bench.until(9_000), ["1001 s: not_carried Ended, 0 now, 1 in all"]);
    assert_eq!(bench.groups.due(), None);
}

#[test]
fn a_thousand_objects_of_one_cause_are_one_line_with_their_number() {
    let mut bench = Bench::new();
    for n in 0..1_000 {
        bench.begin(0, &no_leader(), n);
    }
    assert_eq!(bench.until(50), ["1 s: not_leading Began, 1000 now, 1000 in all"]);
    for n in 0..1_000 {
        bench.end(90, &no_leader(), n);
    }
    assert_eq!(bench.until(999), ["91 s: not_leading Ended, 0 now, 1000 in all"]);
}

#[test]
fn a_count_that_changes_is_one_line_a_minute() {
    let mut bench = Bench::new();
    for n in 0..150 {
        bench.begin(n as u64, &carrier_behind(), n);
    }
    assert_eq!(
        bench.until(9_000),
        [
            "1 s: not_carried Began, 1 now, 1 in all",
            "61 s: not_carried Changed, 61 now, 61 in all",
            "121 s: not_carried Changed, 121 now, 121 in all",
            "181 s: not_carried Changed, 150 now, 150 in all",
        ]
    );
}

#[test]
fn two_causes_at_once_are_told_apart() {
    let mut bench = Bench::new();
    for n in 0..3 {
        bench.begin(0, &no_leader(), n);
    }
    for n in 0..5 {
        bench.begin(0, &carrier_behind(), n);
    }
    bench.end(5, &no_leader(), 0);
    let said = bench.until(30);
    assert_eq!(said.len(), 2);
    assert!(said.contains(&"1 s: not_leading Began, 3 now, 3 in all".to_owned()), "{said:?}");
    assert!(said.contains(&"1 s: not_carried Began, 5 now, 5 in all".to_owned()), "{said:?}");
}

#[test]
fn what_begins_again_at_once_has_not_ended() {
    let mut bench = Bench::new();
    bench.begin(0, &carrier_behind(), 1);
    bench.until(9);
    bench.groups.end(at(10), &carrier_behind(), &member(1));
    bench.groups.begin(at(10).plus(999), carrier_behind(), member(1), 1);
    assert_eq!(bench.until(60), [""; 0]);
}

#[test]
fn a_problem_shorter_than_the_gathering_has_both_its_lines() {
    let mut bench = Bench::new();
    bench.begin(0, &carrier_behind(), 1);
    bench.end(0, &carrier_behind(), 1);
    assert_eq!(
        bench.until(60),
        ["1 s: not_carried Began, 0 now, 1 in all", "1 s: not_carried Ended, 0 now, 1 in all"]
    );
}

#[test]
fn occurrences_are_counted_by_the_minute_and_have_no_end() {
    let mut bench = Bench::new();
    for s in 0..100 {
        bench.pass_to(s);
        bench.groups.happen(at(s), overwritten_by("kubectl"), member(s as usize % 4), 0);
    }
    assert_eq!(
        bench.until(9_000),
        [
            "1 s: kubectl Began, 1 now, 1 in all",
            "61 s: kubectl Changed, 4 now, 60 in all",
            "121 s: kubectl Changed, 4 now, 39 in all",
        ]
    );
    assert_eq!(bench.groups.due(), None);
}

/// As Events about single objects need it.
#[test]
fn while_they_are_few_each_is_reported_soon() {
    let mut bench = Bench { groups: Groups::new(5), said: Vec::new() };
    for n in 0..7 {
        bench.begin(10 * n as u64, &carrier_behind(), n);
    }
    assert_eq!(
        bench.until(9_000),
        [
            "1 s: not_carried Began, 1 now, 1 in all",
            "11 s: not_carried Changed, 2 now, 2 in all",
            "21 s: not_carried Changed, 3 now, 3 in all",
            "31 s: not_carried Changed, 4 now, 4 in all",
            "41 s: not_carried Changed, 5 now, 5 in all",
            "101 s: not_carried Changed, 7 now, 7 in all",
        ]
    );
}

#[test]
fn a_write_that_fails_is_reported_at_once_and_its_like_once_a_minute() {
    let mut groups = Groups::new(0);
    let refused = || Cause::Write {
        cluster: "hub".into(),
        verb: Verb::Mirror,
        error: ErrorCause::Forbidden,
        is_refused: true,
    };
    assert!(groups.happen_again(at(0), refused(), member(0), 0));
    for n in 1..500 {
        assert!(!groups.happen_again(at(0), refused(), member(n), n));
    }
    assert_eq!(groups.due(), Some(at(60)));
    let mut counts = Vec::new();
    groups.poll(at(60), |_, stage, group| counts.push((stage, group.total)));
    assert_eq!(counts, [(Stage::Changed, 499)]);
    groups.poll(at(120), |_, stage, group| counts.push((stage, group.total)));
    assert_eq!((counts.len(), groups.due()), (1, None));
}

#[test]
fn objects_of_a_cluster_that_left_leave_their_groups_without_a_word() {
    let mut bench = Bench::new();
    for n in 0..3 {
        bench.begin(0, &no_leader(), n);
    }
    let elsewhere = ("edge".into(), ObjectKey::new("ns", "c"));
    bench.groups.begin(at(0), carrier_behind(), elsewhere.clone(), 1);
    bench.groups.begin(at(0), carrier_behind(), member(7), 7);
    let gone = Cause::ClusterGone { upstream: "hub".into() };
    bench.groups.begin(at(0), gone.clone(), member(8), 8);
    assert_eq!(bench.until(2).len(), 3);
    bench.groups.forget(&"hub".into());
    assert!(!bench.groups.contains(&no_leader()));
    assert!(bench.groups.contains(&carrier_behind()) && bench.groups.contains(&gone));
    assert_eq!(bench.until(300), [""; 0]);
    assert_eq!(bench.groups.end(at(301), &carrier_behind(), &elsewhere), Some(1));
    assert_eq!(bench.until(400), ["302 s: not_carried Ended, 0 now, 2 in all"]);
}
