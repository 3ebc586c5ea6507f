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
//! last state, three for a number of steps.

mod cluster_model;
mod explore;
mod steps;

use cluster_model::FrozenWrite::{Overtaken, Repeated};
use cluster_model::{BrokenRule, Fault, Setup};
use explore::explore;

/// Explore to the last state.
const ALL: usize = usize::MAX;

fn two() -> Setup {
    Setup { clocks: vec![10, 11], ..Setup::default() }
}

fn two_with(faults_max: u8, faults: &'static [Fault]) -> Setup {
    Setup { faults: (faults_max, faults), ..two() }
}

fn three_with(faults_max: u8, faults: &'static [Fault]) -> Setup {
    let faults = (faults_max, faults);
    Setup { clocks: vec![10, 11, 10], faults, has_leader: true, ..Setup::default() }
}

/// Asserts that no state is wrong, and that there are at least `states_min`.
#[track_caller]
fn assert_holds(setup: &Setup, steps: usize, states_min: usize) {
    let (states, wrong) = explore(setup, steps);
    println!("{states} states");
    assert_eq!(wrong.unwrap_or_default(), "");
    assert!(states >= states_min, "only {states} states");
}

const TWO_WRITERS: &str = "may write, and a write of";
const NOBODY_LEADS: &str = "not right after";
const LATE_WRITE: &str = "a late write changed";

#[test]
fn two_instances_with_slow_responses() {
    assert_holds(&Setup { slow: true, ..two() }, ALL, 40_000);
}

#[test]
fn two_instances_while_somebody_edits_the_lease() {
    assert_holds(&two_with(1, &[Fault::Edit]), ALL, 170_000);
}

#[test]
fn two_instances_that_crash_or_stop() {
    assert_holds(&two_with(1, &[Fault::Process]), ALL, 100_000);
}

#[test]
fn two_instances_that_stand_down_and_take_part_again() {
    assert_holds(&two_with(2, &[Fault::StandsDown]), ALL, 100_000);
}

#[test]
fn two_instances_with_late_requests() {
    assert_holds(&two_with(1, &[Fault::Late]), ALL, 70_000);
}

/// A write that asks for the annotation may undo what a later leader wrote, if that leader came back to
/// the old value. Then some leader puts it right.
#[test]
fn two_instances_that_freeze_before_a_write() {
    assert_holds(&Setup { overtaken: &[Overtaken, Repeated], ..two() }, ALL, 150_000);
}

#[test]
fn three_instances() {
    assert_holds(&three_with(0, &[]), 11, 30_000);
}

/// Without any one of its rules, the election has a wrong state.
#[test]
fn each_broken_rule_is_found() {
    use BrokenRule::*;
    let slow = Setup { slow: true, ..two() };
    let freezes = Setup { overtaken: &[Overtaken], ..two() };
    let by_annotation = Setup { overtaken: &[Overtaken, Repeated], ..two() };
    for (broken, setup, wrong) in [
        (GivesUp, two(), NOBODY_LEADS),
        (ExitsOnLoss, two(), NOBODY_LEADS),
        (WorkNotStartedAgain, two(), NOBODY_LEADS),
        (TimestampsTrusted, two(), TWO_WRITERS),
        (TenureNeverEnds, two(), TWO_WRITERS),
        (TenureFromResponse, slow, TWO_WRITERS),
        (GateIsTheLease, two(), TWO_WRITERS),
        (ClocksAgree, two(), TWO_WRITERS),
        (LeadsAtOnce, two_with(1, &[Fault::Edit]), TWO_WRITERS),
        (ReleasedWhileWriting, two_with(1, &[Fault::Process]), TWO_WRITERS),
        (ReleasedBeforeLeading, three_with(2, &[Fault::Edit, Fault::Process]), TWO_WRITERS),
        (VersionIgnored, two_with(1, &[Fault::Late]), TWO_WRITERS),
        (GateAtQueueOnly, two(), TWO_WRITERS),
        (NoFence, freezes, LATE_WRITE),
        (NoFence, by_annotation.clone(), LATE_WRITE),
        (NotPutRight, by_annotation, NOBODY_LEADS),
    ] {
        let (states, found) = explore(&Setup { broken: Some(broken), ..setup }, ALL);
        let found = found.unwrap_or_else(|| panic!("{broken:?} is not found"));
        let first = found.lines().next().unwrap();
        println!("{broken:?}: after {states} states: {first}");
        assert!(found.contains(wrong), "{broken:?}: {found}");
    }
}
