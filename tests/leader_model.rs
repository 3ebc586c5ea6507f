//! Leadership, explored: no two replicas ever write what only the leader may, and wherever faults
//! stop, somebody leads soon after. The election is the real one; see `leader_model/world.rs` for
//! what is around it.
//!
//! Wrong is, in any state: a replica's gate is open while another's is, or while a write that
//! another let through may still land within the time that a write may take; a frozen process's
//! late write changes what a later leader has written; nobody leads within two leases of calm.
//!
//! Pauses of any length, lost requests and lost answers may happen at any time and any number of
//! times. Rarer faults happen at most once or twice in one history, and each exploration has some
//! of them, which keeps it small enough for every run of the tests. Two replicas are explored to
//! the last state, three for a number of steps. `THROUGHLINE_MODEL=full` explores farther.

#![allow(missing_docs, unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

#[path = "leader_model/breaks.rs"]
mod breaks;
#[path = "support/explore.rs"]
mod explore;
#[path = "leader_model/steady.rs"]
mod steady;
#[path = "leader_model/steps.rs"]
mod steps;
#[path = "leader_model/world.rs"]
mod world;

use breaks::Break;
use explore::explore;
use world::{Fault, Setup};

/// To the last state.
const ALL: usize = usize::MAX;

fn setup(clocks: &[u64]) -> Setup {
    let clocks = clocks.to_vec();
    Setup { clocks, faults: (0, &[]), slow: false, led: false, freezes: false, broken: None }
}

fn two() -> Setup {
    setup(&[10, 11])
}

/// Nothing is wrong in any of at least so many states.
#[track_caller]
fn is_right(name: &str, setup: &Setup, steps: usize, states_min: usize) {
    let explored = explore(setup, steps);
    println!("{name}: {} states, {} steps deep", explored.states, explored.depth);
    assert_eq!(explored.wrong.unwrap_or_default(), "", "{name}");
    assert!(explored.states >= states_min, "{name}: only {} states", explored.states);
}

/// The rule is broken, and that is found.
#[track_caller]
fn is_found(broken: Break, setup: Setup, wrong: &str) {
    let explored = explore(&Setup { broken: Some(broken), ..setup }, ALL);
    let found = explored.wrong.expect("nothing was found");
    let first = found.lines().next().unwrap();
    println!("{broken:?}: after {} states: {first}", explored.states);
    assert!(found.contains(wrong), "{found}");
}

const TWO_WRITERS: &str = "may write, and a write of";
const NOBODY_LEADS: &str = "not well after";

#[test]
fn two_replicas_with_slow_answers() {
    is_right("slow answers", &Setup { slow: true, ..two() }, ALL, 40_000);
}

#[test]
fn two_replicas_and_hands() {
    let setup = Setup { faults: (1, &[Fault::Hand]), ..two() };
    is_right("a Lease deleted, edited, annotated", &setup, ALL, 180_000);
}

#[test]
fn two_replicas_that_crash_and_end() {
    let setup = Setup { faults: (1, &[Fault::Process]), ..two() };
    is_right("a process that dies or ends", &setup, ALL, 100_000);
}

#[test]
fn two_replicas_and_late_requests() {
    let setup = Setup { faults: (1, &[Fault::Late]), ..two() };
    is_right("a request that lands late", &setup, ALL, 70_000);
}

#[test]
fn two_replicas_that_freeze_before_a_write() {
    is_right("frozen writes", &Setup { freezes: true, ..two() }, ALL, 75_000);
}

#[test]
fn three_replicas() {
    let setup = Setup { led: true, ..setup(&[10, 11, 10]) };
    is_right("three replicas", &setup, 11, 30_000);
}

/// Minutes, and better in a release build: `THROUGHLINE_MODEL=full`.
#[test]
fn farther() {
    if std::env::var("THROUGHLINE_MODEL").as_deref() != Ok("full") {
        println!("THROUGHLINE_MODEL is not full: not explored farther");
        return;
    }
    let kinds: &[Fault] = &[Fault::Hand, Fault::Process, Fault::Late];
    let slow = Setup { slow: true, faults: (1, kinds), ..two() };
    is_right("slow answers and any one fault", &slow, ALL, 1_000_000);
    is_right("any two faults", &Setup { faults: (2, kinds), ..two() }, 14, 1_000_000);
    let three = Setup { led: true, faults: (1, kinds), ..setup(&[10, 11, 10]) };
    is_right("three replicas and any one fault", &three, 12, 1_000_000);
}

#[test]
fn broken_gives_up() {
    is_found(Break::GivesUp, two(), NOBODY_LEADS);
}

#[test]
fn broken_exits_on_loss() {
    is_found(Break::ExitsOnLoss, two(), NOBODY_LEADS);
}

#[test]
fn broken_work_is_not_started_again() {
    is_found(Break::WorkNotStartedAgain, two(), NOBODY_LEADS);
}

#[test]
fn broken_timestamps_are_trusted() {
    is_found(Break::TimestampsTrusted, two(), TWO_WRITERS);
}

#[test]
fn broken_claim_never_ends() {
    is_found(Break::ClaimNeverEnds, two(), TWO_WRITERS);
}

#[test]
fn broken_claim_counts_from_the_answer() {
    is_found(Break::ClaimFromAnswer, Setup { slow: true, ..two() }, TWO_WRITERS);
}

#[test]
fn broken_gate_leaves_no_room_for_a_write() {
    is_found(Break::GateIsTheLease, two(), TWO_WRITERS);
}

#[test]
fn broken_clocks_are_taken_to_agree() {
    is_found(Break::ClocksAgree, two(), TWO_WRITERS);
}

#[test]
fn broken_a_deleted_lease_is_led_by_at_once() {
    is_found(Break::LeadsAtOnce, Setup { faults: (1, &[Fault::Hand]), ..two() }, TWO_WRITERS);
}

#[test]
fn broken_released_before_work_has_ended() {
    is_found(Break::ReleasedAtWork, Setup { faults: (1, &[Fault::Process]), ..two() }, TWO_WRITERS);
}

#[test]
fn broken_released_before_it_was_led_by() {
    let faults: (u8, &[Fault]) = (2, &[Fault::Hand, Fault::Process]);
    let setup = Setup { faults, led: true, ..setup(&[10, 11, 10]) };
    is_found(Break::ReleasedUnled, setup, TWO_WRITERS);
}

#[test]
fn broken_versions_are_ignored() {
    is_found(Break::VersionIgnored, Setup { faults: (1, &[Fault::Late]), ..two() }, TWO_WRITERS);
}

#[test]
fn broken_gate_is_asked_when_work_is_queued_only() {
    is_found(Break::GateAtQueueOnly, two(), TWO_WRITERS);
}

#[test]
fn broken_writes_have_no_precondition() {
    let wrong = "a late write changed";
    is_found(Break::NoFence, Setup { freezes: true, ..two() }, wrong);
}
