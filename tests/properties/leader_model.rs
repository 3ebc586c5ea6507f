//! Explores leadership: no two instances ever write what only the leader may, and once faults stop,
//! some instance leads soon after. The election is the real one; `leader_model/cluster_model.rs` holds its
//! surroundings.
//!
//! A state is wrong if an instance's gate is open while another's is, or while a write that another
//! instance let through may still take effect; if a frozen process's late write changes what a later
//! leader has written, unless that leader came back to the value that the write was decided on; or if
//! within two lease durations of calm nobody leads, or such a write is not put right.
//!
//! Pauses of any length, lost requests and lost responses may happen at any time, any number of
//! times. Rarer faults happen at most once or twice in one history, and each exploration has some of
//! them, which keeps it small enough to run with every test run. Two instances are explored to the
//! last state, three for a number of steps. `THROUGHLINE_MODEL=full` explores further.

mod breaks;
mod cluster_model;
mod explore;
mod steady;
mod steps;

use breaks::BrokenRule;
use cluster_model::{Fault, Setup};
use explore::explore;

/// Explore to the last state.
const ALL: usize = usize::MAX;

fn setup(clocks: &[u64]) -> Setup {
    let clocks = clocks.to_vec();
    Setup {
        clocks,
        faults: (0, &[]),
        slow: false,
        has_leader: false,
        freezes: false,
        by_annotation: false,
        broken: None,
    }
}

fn two() -> Setup {
    setup(&[10, 11])
}

/// Asserts that no state is wrong, and that there are at least `states_min`.
#[track_caller]
fn assert_holds(name: &str, setup: &Setup, steps: usize, states_min: usize) {
    let explored = explore(setup, steps);
    println!("{name}: {} states, {} steps deep", explored.states, explored.depth);
    assert_eq!(explored.wrong.unwrap_or_default(), "", "{name}");
    assert!(explored.states >= states_min, "{name}: only {} states", explored.states);
}

/// Asserts that the exploration detects the broken rule.
#[track_caller]
fn assert_detected(broken: BrokenRule, setup: Setup, wrong: &str) {
    let explored = explore(&Setup { broken: Some(broken), ..setup }, ALL);
    let found = explored.wrong.expect("not detected");
    let first = found.lines().next().unwrap();
    println!("{broken:?}: after {} states: {first}", explored.states);
    assert!(found.contains(wrong), "{found}");
}

const TWO_WRITERS: &str = "may write, and a write of";
const NOBODY_LEADS: &str = "not right after";

#[test]
fn two_instances_with_slow_responses() {
    assert_holds("slow responses", &Setup { slow: true, ..two() }, ALL, 40_000);
}

#[test]
fn two_instances_while_somebody_edits_the_lease() {
    let setup = Setup { faults: (1, &[Fault::Edit]), ..two() };
    assert_holds("a Lease deleted, edited, annotated", &setup, ALL, 170_000);
}

#[test]
fn two_instances_that_crash_or_stop() {
    let setup = Setup { faults: (1, &[Fault::Process]), ..two() };
    assert_holds("a process that dies or stops", &setup, ALL, 100_000);
}

#[test]
fn two_instances_that_stand_down_and_take_part_again() {
    let setup = Setup { faults: (2, &[Fault::StandsDown]), ..two() };
    assert_holds("instances that stand down", &setup, ALL, 100_000);
}

#[test]
fn two_instances_with_late_requests() {
    let setup = Setup { faults: (1, &[Fault::Late]), ..two() };
    assert_holds("a request carried out late", &setup, ALL, 70_000);
}

#[test]
fn two_instances_that_freeze_before_a_write() {
    assert_holds("frozen writes", &Setup { freezes: true, ..two() }, ALL, 75_000);
}

/// Such a write may undo what a later leader wrote, if that leader came back to the old value. Then
/// some leader puts it right.
#[test]
fn two_instances_that_freeze_before_a_write_that_asks_for_the_annotation() {
    let setup = Setup { freezes: true, by_annotation: true, ..two() };
    assert_holds("frozen writes by annotation", &setup, ALL, 150_000);
}

#[test]
fn three_instances() {
    let setup = Setup { has_leader: true, ..setup(&[10, 11, 10]) };
    assert_holds("three instances", &setup, 11, 30_000);
}

/// Minutes, and better in a release build: `THROUGHLINE_MODEL=full`.
#[test]
fn further() {
    if std::env::var("THROUGHLINE_MODEL").as_deref() != Ok("full") {
        println!("THROUGHLINE_MODEL is not full: not explored further");
        return;
    }
    let kinds: &[Fault] = &[Fault::Edit, Fault::Process, Fault::Late];
    let slow = Setup { slow: true, faults: (1, kinds), ..two() };
    assert_holds("slow responses and any one fault", &slow, ALL, 780_000);
    assert_holds("any two faults", &Setup { faults: (2, kinds), ..two() }, 12, 1_300_000);
    let three = Setup { has_leader: true, faults: (1, kinds), ..setup(&[10, 11, 10]) };
    assert_holds("three instances and any one fault", &three, 7, 85_000);
}

#[test]
fn broken_gives_up() {
    assert_detected(BrokenRule::GivesUp, two(), NOBODY_LEADS);
}

#[test]
fn broken_exits_on_loss() {
    assert_detected(BrokenRule::ExitsOnLoss, two(), NOBODY_LEADS);
}

#[test]
fn broken_work_is_not_started_again() {
    assert_detected(BrokenRule::WorkNotStartedAgain, two(), NOBODY_LEADS);
}

#[test]
fn broken_timestamps_are_trusted() {
    assert_detected(BrokenRule::TimestampsTrusted, two(), TWO_WRITERS);
}

#[test]
fn broken_tenure_never_ends() {
    assert_detected(BrokenRule::TenureNeverEnds, two(), TWO_WRITERS);
}

#[test]
fn broken_tenure_counts_from_the_response() {
    assert_detected(BrokenRule::TenureFromResponse, Setup { slow: true, ..two() }, TWO_WRITERS);
}

#[test]
fn broken_gate_leaves_no_room_for_a_write() {
    assert_detected(BrokenRule::GateIsTheLease, two(), TWO_WRITERS);
}

#[test]
fn broken_clocks_are_assumed_to_agree() {
    assert_detected(BrokenRule::ClocksAgree, two(), TWO_WRITERS);
}

#[test]
fn broken_a_deleted_lease_is_led_at_once() {
    assert_detected(
        BrokenRule::LeadsAtOnce,
        Setup { faults: (1, &[Fault::Edit]), ..two() },
        TWO_WRITERS,
    );
}

#[test]
fn broken_released_before_writes_have_ended() {
    assert_detected(
        BrokenRule::ReleasedWhileWriting,
        Setup { faults: (1, &[Fault::Process]), ..two() },
        TWO_WRITERS,
    );
}

#[test]
fn broken_released_before_it_was_led() {
    let faults: (u8, &[Fault]) = (2, &[Fault::Edit, Fault::Process]);
    let setup = Setup { faults, has_leader: true, ..setup(&[10, 11, 10]) };
    assert_detected(BrokenRule::ReleasedBeforeLeading, setup, TWO_WRITERS);
}

#[test]
fn broken_versions_are_ignored() {
    assert_detected(
        BrokenRule::VersionIgnored,
        Setup { faults: (1, &[Fault::Late]), ..two() },
        TWO_WRITERS,
    );
}

#[test]
fn broken_gate_is_checked_only_when_a_write_is_queued() {
    assert_detected(BrokenRule::GateAtQueueOnly, two(), TWO_WRITERS);
}

#[test]
fn broken_writes_have_no_precondition() {
    let wrong = "a late write changed";
    assert_detected(BrokenRule::NoFence, Setup { freezes: true, ..two() }, wrong);
    let by_annotation = Setup { freezes: true, by_annotation: true, ..two() };
    assert_detected(BrokenRule::NoFence, by_annotation, wrong);
}

#[test]
fn broken_an_old_write_is_not_put_right() {
    let setup = Setup { freezes: true, by_annotation: true, ..two() };
    assert_detected(BrokenRule::NotPutRight, setup, NOBODY_LEADS);
}
