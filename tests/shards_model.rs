//! Explores shards: instances share them, and no two ever write for one. The elections and the share are
//! the real ones; `shards_model/instance.rs` does what the program does around them.
//!
//! A history is drawn from its seed: instances join, crash and start again under other identities, are
//! cut off from the Lease API, have clocks of which one runs up to a tenth faster than another, and
//! requests and answers are lost or late; somebody edits Leases. It is wrong if an instance's gate for a
//! shard is open while a write of another one may still take effect; if an instance gives two shards up
//! within a second; if a shard has no leader for too long once faults have stopped
//! ([`unled_max`](fleet::unled_max)); or if shards go on moving then, or are held unevenly.

#![allow(missing_docs, unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

#[path = "shards_model/api.rs"]
mod api;
#[path = "shards_model/breaks.rs"]
mod breaks;
#[path = "shards_model/fleet.rs"]
mod fleet;
#[path = "shards_model/instance.rs"]
mod instance;

use breaks::BrokenRule;
use fleet::{Fault, Fleet, Setup, unled_max};

const ALL: &[Fault] = &[Fault::Ways, Fault::Crash, Fault::Partition, Fault::Edit];
const UNEDITED: &[Fault] = &[Fault::Ways, Fault::Crash, Fault::Partition];

/// Two shards, three instances.
fn setup(faults: &'static [Fault]) -> Setup {
    Setup { shards: 2, instances: 3, faults, broken: None }
}

/// Asserts that no history is wrong.
#[track_caller]
fn assert_holds(name: &str, setup: Setup, seeds: u64) {
    let (mut longest, mut moves) = (0, 0);
    // `THROUGHLINE_MODEL=full`: more of them.
    let is_full = std::env::var("THROUGHLINE_MODEL").is_ok_and(|model| model == "full");
    let seeds = if is_full { 20 * seeds } else { seeds };
    for seed in 0..seeds {
        let mut fleet = Fleet::new(setup, seed);
        if let Err(wrong) = fleet.run() {
            panic!("{name}, seed {seed}: {wrong}");
        }
        longest = longest.max(fleet.unled_longest);
        moves += fleet.moves;
    }
    let bound = unled_max(setup.faults);
    println!("{name}: {seeds} histories, {moves} moves, at most {longest} of {bound} ms unled");
}

/// Asserts that some history shows the broken rule.
#[track_caller]
fn assert_detected(broken: BrokenRule, setup: Setup, wrong: &str) {
    let setup = Setup { broken: Some(broken), ..setup };
    for seed in 0..2_000 {
        let Err(found) = Fleet::new(setup, seed).run() else { continue };
        println!("{broken:?}: seed {seed}: {found}");
        if found.contains(wrong) {
            return;
        }
    }
    panic!("{broken:?} is not detected");
}

const TWO_WRITERS: &str = "a write of";
const UNEVEN: &str = "the instances hold";
const MOVES: &str = "a shard moved";

#[test]
fn three_instances_join_without_faults() {
    assert_holds("joins", setup(&[]), 150);
}

#[test]
fn three_instances_with_every_fault_but_edits() {
    assert_holds("crashes, partitions, bad ways", setup(UNEDITED), 300);
}

#[test]
fn three_instances_with_every_fault() {
    assert_holds("every fault", setup(ALL), 300);
}

#[test]
fn four_instances_share_nine_shards() {
    let setup = Setup { shards: 9, instances: 4, ..setup(ALL) };
    assert_holds("nine shards", setup, 40);
}

#[test]
fn broken_an_election_that_takes_part_again_keeps_its_tenure() {
    assert_detected(BrokenRule::RejoinKeepsTenure, setup(&[]), TWO_WRITERS);
}

#[test]
fn broken_the_quota_is_ignored() {
    assert_detected(BrokenRule::QuotaIgnored, setup(&[]), UNEVEN);
}

#[test]
fn broken_a_shard_is_released_while_its_writes_are_under_way() {
    assert_detected(BrokenRule::ReleasedWhileWriting, setup(&[]), TWO_WRITERS);
}

#[test]
fn broken_a_write_asks_whether_the_instance_leads_any_shard() {
    assert_detected(BrokenRule::OneGate, setup(&[]), TWO_WRITERS);
}

#[test]
fn broken_what_was_given_up_may_be_taken_back_at_once() {
    assert_detected(BrokenRule::TakesBack, setup(&[]), MOVES);
}

#[test]
fn broken_a_dead_member_counts_for_ever() {
    assert_detected(BrokenRule::MembersNeverDie, setup(UNEDITED), UNEVEN);
}
