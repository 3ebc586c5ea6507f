//! The election, a script at a time: what it is told, and what it asks for and allows.

use super::*;

const RULES: Rules =
    Rules { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
const GATE: u64 = 8_636;

fn record(holder: &str, lease_ms: u64, transitions: u32, renewed: &str) -> Record {
    Record { holder: holder.into(), lease_ms, transitions, renewed: renewed.into() }
}

fn is(record: &Record, version: &str) -> Answer {
    Answer::Is(record.clone(), version.into())
}

fn me() -> Election {
    Election::new("me".into(), RULES)
}

/// An election that has just read `found`, at 1,000; and what it asks next, as `t1`.
fn reads(found: Answer) -> (Election, Option<Request>) {
    let mut election = me();
    assert_eq!(election.begin(1_000, "t0"), Some(Request::Get));
    let next = election.answered(&Request::Get, found, 1_000, "t1");
    (election, next)
}

/// One that leads, by a renewal that was sent at 1,000 and answered at 1,500, as version 2.
fn leads() -> Election {
    let (mut election, next) = reads(is(&record("", 1_000, 4, "t"), "1"));
    let mine = record("me", 15_000, 5, "t1");
    assert_eq!(next, Some(Request::Update(mine.clone(), "1".into())));
    assert_eq!(election.answered(&next.unwrap(), is(&mine, "2"), 1_500, "-"), None);
    election
}

#[test]
fn the_gate_leaves_room_for_other_clocks_and_for_a_write() {
    assert_eq!(RULES.gate_ms(), GATE);
    assert_eq!(Rules { write_ms: 0, ..RULES }.gate_ms(), 10_000);
    assert_eq!(Rules { write_ms: 60_000, ..RULES }.gate_ms(), 0);
    assert!(RULES.try_ms() * 4 <= RULES.gate_ms());
}

#[test]
fn attempts_keep_their_pace_and_one_that_hung_is_soon_followed() {
    assert_eq!(RULES.next_attempt(1_000, 1_050), 3_000);
    assert_eq!(RULES.next_attempt(1_000, 5_000), 5_200);
}

#[test]
fn a_claim_counts_from_when_the_renewal_was_sent_and_ends_by_itself() {
    let election = leads();
    assert_eq!(election.gate(1_500), Some(1_000 + GATE));
    assert_eq!(election.gate(999 + GATE), Some(1_000 + GATE));
    assert_eq!(election.gate(1_000 + GATE), None);
    assert!(election.holds(10_999) && !election.holds(11_000));
}

#[test]
fn a_renewal_moves_the_gate_and_keeps_the_transitions() {
    let mut election = leads();
    let mine = record("me", 15_000, 5, "t2");
    let update = election.begin(3_000, "t2").unwrap();
    assert_eq!(update, Request::Update(mine.clone(), "2".into()));
    election.answered(&update, is(&mine, "3"), 3_100, "-");
    assert_eq!(election.gate(3_100), Some(3_000 + GATE));
}

#[test]
fn anothers_record_is_free_a_lease_after_it_last_changed_here() {
    let other = record("other", 15_000, 1, "1999-01-01T00:00:00.000000Z");
    let (mut election, next) = reads(is(&other, "1"));
    assert_eq!(next, None);
    // An annotation changes the version, and nothing else.
    for (now, version) in [(9_000, "1"), (16_000, "2")] {
        assert_eq!(election.begin(now, "-"), Some(Request::Get));
        assert_eq!(election.answered(&Request::Get, is(&other, version), now, "-"), None);
    }
    election.begin(16_001, "-");
    let next = election.answered(&Request::Get, is(&other, "2"), 16_001, "t2");
    let mine = record("me", 15_000, 2, "t2");
    assert_eq!(next, Some(Request::Update(mine.clone(), "2".into())));
    election.answered(&next.unwrap(), is(&mine, "3"), 16_050, "-");
    assert_eq!(election.gate(16_050), Some(16_001 + GATE));
}

#[test]
fn a_longer_lease_of_anothers_is_waited_for_and_a_renewal_starts_it_anew() {
    let (mut election, _) = reads(is(&record("other", 60_000, 1, "a"), "1"));
    let renewed = record("other", 15_000, 1, "b");
    election.answered(&Request::Get, is(&renewed, "2"), 20_000, "-");
    // It may have been edited by hand: its holder still goes by the longer one.
    for (now, free) in [(79_999, false), (80_000, false), (80_001, true)] {
        let next = election.answered(&Request::Get, is(&renewed, "2"), now, "-");
        assert_eq!(next.is_some(), free, "at {now}");
    }
}

#[test]
fn a_lease_that_is_free_by_hand_is_taken_and_led_by_a_lease_later() {
    let found = [
        is(&record("", 15_000, 1, "a"), "1"),
        is(&record("me", 15_000, 1, "a"), "1"),
        // Its duration alone does not make it released.
        is(&record("", 0, 1, "a"), "1"),
    ];
    for found in found {
        let (mut election, next) = reads(found);
        let Some(Request::Update(mine, _)) = next.clone() else { panic!("{next:?}") };
        election.answered(&next.unwrap(), is(&mine, "2"), 1_200, "-");
        assert_eq!((election.holds(1_200), election.gate(1_200)), (true, None));
        let mut version = 2;
        for sent in (3_000..15_900).step_by(2_000) {
            let update = election.begin(sent, &format!("r{sent}")).unwrap();
            let Request::Update(mine, _) = &update else { panic!("{update:?}") };
            version += 1;
            election.answered(&update, is(mine, &version.to_string()), sent, "-");
        }
        assert_eq!((election.gate(15_999), election.gate(16_000)), (None, Some(15_000 + GATE)));
    }
}

#[test]
fn a_created_lease_is_led_by_a_lease_after_it_was_seen_to_be_there() {
    let (mut election, next) = reads(Answer::Missing);
    let mine = record("me", 15_000, 0, "t1");
    assert_eq!(next, Some(Request::Create(mine.clone())));
    election.answered(&next.unwrap(), is(&mine, "1"), 2_500, "-");
    assert_eq!(election.leads_from(), Some(17_500));
}

#[test]
fn a_lease_that_was_not_led_by_yet_is_no_freer_after_its_claim_was_over() {
    let (mut election, next) = reads(Answer::Missing);
    let mine = record("me", 15_000, 0, "t1");
    election.answered(&next.unwrap(), is(&mine, "1"), 1_000, "-");
    let update = election.begin(12_000, "t2").unwrap();
    election.answered(&update, is(&record("me", 15_000, 0, "t2"), "2"), 12_000, "-");
    assert_eq!((election.gate(15_999), election.gate(16_000)), (None, Some(12_000 + GATE)));
}

#[test]
fn a_lost_answer_is_found_again_and_counts_from_its_sending() {
    let mut election = leads();
    let update = election.begin(3_000, "t2").unwrap();
    assert_eq!(election.answered(&update, Answer::Failed, 5_000, "-"), None);
    assert_eq!(election.begin(5_200, "-"), Some(Request::Get));
    let next =
        election.answered(&Request::Get, is(&record("me", 15_000, 5, "t2"), "3"), 5_250, "t3");
    assert_eq!(election.gate(5_250), Some(3_000 + GATE));
    assert_eq!(next, Some(Request::Update(record("me", 15_000, 5, "t3"), "3".into())));
}

#[test]
fn a_record_with_the_own_name_that_it_did_not_write_is_not_its_own() {
    let mut election = leads();
    let update = election.begin(3_000, "t2").unwrap();
    assert_eq!(election.answered(&update, Answer::Conflict, 3_010, "-"), Some(Request::Get));
    let next =
        election.answered(&Request::Get, is(&record("me", 15_000, 5, "x"), "9"), 3_020, "t3");
    assert_eq!(election.gate(3_020), None);
    assert!(matches!(next, Some(Request::Update(..))));
    assert!(!election.is_mine());
}

#[test]
fn a_takeover_closes_the_gate_when_it_is_seen() {
    let mut election = leads();
    let update = election.begin(3_000, "t2").unwrap();
    election.answered(&update, Answer::Conflict, 3_010, "-");
    let other = record("other", 15_000, 6, "x");
    assert_eq!(election.answered(&Request::Get, is(&other, "9"), 3_020, "-"), None);
    assert_eq!((election.gate(3_020), election.record()), (None, Some(&other)));
}

#[test]
fn an_attempt_ends_whatever_comes_back() {
    for answer in [Answer::Conflict, Answer::Missing, Answer::Failed] {
        let mut election = leads();
        let (mut next, mut asked) = (election.begin(3_000, "a"), 0);
        while let Some(request) = next {
            asked += 1;
            let answer = match request {
                Request::Get => is(&record("", 1_000, 5, "x"), "9"),
                _ => answer.clone(),
            };
            next = election.answered(&request, answer, 3_000, "b");
        }
        assert!(asked <= 3, "{answer:?}: {asked}");
    }
}

#[test]
fn what_is_left_is_released_as_client_go_does_and_closed_before() {
    let mut election = leads();
    election.leave();
    assert_eq!(election.gate(1_500), None);
    let released = record("", 1_000, 5, "t9");
    let update = election.begin(2_000, "t9").unwrap();
    assert_eq!(update, Request::Update(released.clone(), "2".into()));
    election.answered(&update, is(&released, "3"), 2_000, "-");
    assert_eq!((election.is_mine(), election.begin(2_100, "-")), (false, None));
}

#[test]
fn a_release_that_met_a_conflict_looks_and_releases_what_is_its_own() {
    let mut election = leads();
    election.leave();
    let update = election.begin(2_000, "t9").unwrap();
    assert_eq!(election.answered(&update, Answer::Conflict, 2_000, "-"), Some(Request::Get));
    let annotated = is(&record("me", 15_000, 5, "t1"), "3");
    let next = election.answered(&Request::Get, annotated, 2_000, "t10");
    assert_eq!(next, Some(Request::Update(record("", 1_000, 5, "t10"), "3".into())));
    let taken = is(&record("other", 15_000, 6, "x"), "4");
    assert_eq!(election.answered(&Request::Get, taken, 2_000, "-"), None);
    assert!(!election.is_mine());
}

#[test]
fn a_lease_that_is_not_led_by_yet_is_left_to_run_out() {
    let (mut election, next) = reads(Answer::Missing);
    election.answered(&next.unwrap(), is(&record("me", 15_000, 0, "t1"), "1"), 1_000, "-");
    election.leave();
    assert_eq!(election.begin(2_000, "-"), None);
}
