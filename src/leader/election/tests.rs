//! Scripts of requests and responses, with the requests and the gate of the election.

use super::*;

const TIMINGS: Timings =
    Timings { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
const GATE: u64 = 8_636;

fn record(holder: &str, lease_ms: u64, transitions: u32, renew_time: &str) -> LeaseRecord {
    LeaseRecord { holder: holder.into(), lease_ms, transitions, renew_time: renew_time.into() }
}

fn current(record: &LeaseRecord, version: &str) -> LeaseResponse {
    LeaseResponse::Current(record.clone(), version.into())
}

fn election() -> Election {
    Election::new("me".into(), TIMINGS)
}

/// An election that read `found` at 1,000, and its next request, with renewTime `t1`.
fn after_reading(found: LeaseResponse) -> (Election, Option<LeaseRequest>) {
    let mut election = election();
    assert_eq!(election.begin_attempt(1_000, "t0"), Some(LeaseRequest::Get));
    let next = election.handle_response(&LeaseRequest::Get, found, 1_000, "t1");
    (election, next)
}

/// A leader whose renewal was sent at 1,000 and answered at 1,500, as version 2.
fn leader() -> Election {
    let (mut election, next) = after_reading(current(&record("", 1_000, 4, "t"), "1"));
    let mine = record("me", 15_000, 5, "t1");
    assert_eq!(next, Some(LeaseRequest::Update(mine.clone(), "1".into())));
    assert_eq!(election.handle_response(&next.unwrap(), current(&mine, "2"), 1_500, "-"), None);
    election
}

#[test]
fn the_gate_leaves_room_for_other_clocks_and_for_a_write() {
    assert_eq!(TIMINGS.gate_ms(), GATE);
    assert_eq!(Timings { write_ms: 0, ..TIMINGS }.gate_ms(), 10_000);
    assert_eq!(Timings { write_ms: 60_000, ..TIMINGS }.gate_ms(), 0);
    assert!(TIMINGS.request_ms() * 4 <= TIMINGS.gate_ms());
}

#[test]
fn attempts_keep_their_pace_and_follow_soon_after_one_that_hung() {
    assert_eq!(TIMINGS.next_attempt(1_000, 1_050), 3_000);
    assert_eq!(TIMINGS.next_attempt(1_000, 5_000), 5_200);
}

#[test]
fn a_tenure_counts_from_when_the_renewal_was_sent_and_ends_without_a_response() {
    let election = leader();
    assert_eq!(election.gate(1_500), Some(1_000 + GATE));
    assert_eq!(election.gate(999 + GATE), Some(1_000 + GATE));
    assert_eq!(election.gate(1_000 + GATE), None);
    assert!(election.is_holder(10_999) && !election.is_holder(11_000));
}

#[test]
fn a_renewal_moves_the_gate_and_keeps_the_transitions() {
    let mut election = leader();
    let mine = record("me", 15_000, 5, "t2");
    let update = election.begin_attempt(3_000, "t2").unwrap();
    assert_eq!(update, LeaseRequest::Update(mine.clone(), "2".into()));
    election.handle_response(&update, current(&mine, "3"), 3_100, "-");
    assert_eq!(election.gate(3_100), Some(3_000 + GATE));
}

#[test]
fn anothers_lease_expires_a_duration_after_this_instance_saw_it_change() {
    let other = record("other", 15_000, 1, "1999-01-01T00:00:00.000000Z");
    let (mut election, next) = after_reading(current(&other, "1"));
    assert_eq!(next, None);
    // An annotation changes only the version.
    for (now, version) in [(9_000, "1"), (16_000, "2")] {
        assert_eq!(election.begin_attempt(now, "-"), Some(LeaseRequest::Get));
        assert_eq!(
            election.handle_response(&LeaseRequest::Get, current(&other, version), now, "-"),
            None
        );
    }
    election.begin_attempt(16_001, "-");
    let next = election.handle_response(&LeaseRequest::Get, current(&other, "2"), 16_001, "t2");
    let mine = record("me", 15_000, 2, "t2");
    assert_eq!(next, Some(LeaseRequest::Update(mine.clone(), "2".into())));
    election.handle_response(&next.unwrap(), current(&mine, "3"), 16_050, "-");
    assert_eq!(election.gate(16_050), Some(16_001 + GATE));
}

#[test]
fn anothers_longer_lease_is_waited_for_and_a_renewal_restarts_it() {
    let (mut election, _) = after_reading(current(&record("other", 60_000, 1, "a"), "1"));
    let renewed = record("other", 15_000, 1, "b");
    election.handle_response(&LeaseRequest::Get, current(&renewed, "2"), 20_000, "-");
    // A person may have edited it: its holder still uses the longer duration.
    for (now, free) in [(79_999, false), (80_000, false), (80_001, true)] {
        let next = election.handle_response(&LeaseRequest::Get, current(&renewed, "2"), now, "-");
        assert_eq!(next.is_some(), free, "at {now}");
    }
}

#[test]
fn a_lease_freed_by_an_edit_is_acquired_at_once_but_led_a_duration_later() {
    let found = [
        current(&record("", 15_000, 1, "a"), "1"),
        // Only the duration that client-go writes marks it as released.
        current(&record("", 0, 1, "a"), "1"),
    ];
    for found in found {
        let (mut election, next) = after_reading(found);
        let Some(LeaseRequest::Update(mine, _)) = next.clone() else { panic!("{next:?}") };
        election.handle_response(&next.unwrap(), current(&mine, "2"), 1_200, "-");
        assert_eq!((election.is_holder(1_200), election.gate(1_200)), (true, None));
        let mut version = 2;
        for sent in (3_000..15_900).step_by(2_000) {
            let update = election.begin_attempt(sent, &format!("r{sent}")).unwrap();
            let LeaseRequest::Update(mine, _) = &update else { panic!("{update:?}") };
            version += 1;
            election.handle_response(&update, current(mine, &version.to_string()), sent, "-");
        }
        assert_eq!((election.gate(15_999), election.gate(16_000)), (None, Some(15_000 + GATE)));
    }
}

#[test]
fn a_created_lease_is_led_a_duration_after_it_was_first_seen() {
    let (mut election, next) = after_reading(LeaseResponse::NotFound);
    let mine = record("me", 15_000, 0, "t1");
    assert_eq!(next, Some(LeaseRequest::Create(mine.clone())));
    election.handle_response(&next.unwrap(), current(&mine, "1"), 2_500, "-");
    assert_eq!(election.leads_from(), Some(17_500));
}

#[test]
fn a_lease_not_led_yet_may_not_be_led_earlier_after_its_tenure_ended() {
    let (mut election, next) = after_reading(LeaseResponse::NotFound);
    let mine = record("me", 15_000, 0, "t1");
    election.handle_response(&next.unwrap(), current(&mine, "1"), 1_000, "-");
    let update = election.begin_attempt(12_000, "t2").unwrap();
    election.handle_response(&update, current(&record("me", 15_000, 0, "t2"), "2"), 12_000, "-");
    assert_eq!((election.gate(15_999), election.gate(16_000)), (None, Some(12_000 + GATE)));
}

#[test]
fn a_write_whose_response_was_lost_counts_from_when_it_was_sent() {
    let mut election = leader();
    let update = election.begin_attempt(3_000, "t2").unwrap();
    assert_eq!(election.handle_response(&update, LeaseResponse::Failed, 5_000, "-"), None);
    assert_eq!(election.begin_attempt(5_200, "-"), Some(LeaseRequest::Get));
    let next = election.handle_response(
        &LeaseRequest::Get,
        current(&record("me", 15_000, 5, "t2"), "3"),
        5_250,
        "t3",
    );
    assert_eq!(election.gate(5_250), Some(3_000 + GATE));
    assert_eq!(next, Some(LeaseRequest::Update(record("me", 15_000, 5, "t3"), "3".into())));
}

#[test]
fn a_record_with_its_identity_that_it_did_not_write_is_not_its_own() {
    let mut election = leader();
    let update = election.begin_attempt(3_000, "t2").unwrap();
    assert_eq!(
        election.handle_response(&update, LeaseResponse::Conflict, 3_010, "-"),
        Some(LeaseRequest::Get)
    );
    let next = election.handle_response(
        &LeaseRequest::Get,
        current(&record("me", 15_000, 5, "x"), "9"),
        3_020,
        "t3",
    );
    assert_eq!(election.gate(3_020), None);
    // A copy of this process may have written it, and would renew it before the deadline.
    assert_eq!(next, None);
    assert!(!election.owns_lease());
    let free_from = 3_020 + 10_000 + 1;
    assert_eq!(election.free_from(), Some(free_from));
    assert_eq!(election.begin_attempt(free_from, "t3"), Some(LeaseRequest::Get));
    let same = current(&record("me", 15_000, 5, "x"), "9");
    let next = election.handle_response(&LeaseRequest::Get, same, free_from, "t3").unwrap();
    let taken = record("me", 15_000, 5, "t3");
    assert_eq!(next, LeaseRequest::Update(taken.clone(), "9".into()));
    election.handle_response(&next, current(&taken, "10"), free_from + 10, "-");
    assert_eq!((election.gate(free_from + 10), election.leads_from()), (None, Some(18_020)));
}

#[test]
fn a_takeover_closes_the_gate_once_seen() {
    let mut election = leader();
    let update = election.begin_attempt(3_000, "t2").unwrap();
    election.handle_response(&update, LeaseResponse::Conflict, 3_010, "-");
    let other = record("other", 15_000, 6, "x");
    assert_eq!(
        election.handle_response(&LeaseRequest::Get, current(&other, "9"), 3_020, "-"),
        None
    );
    assert_eq!((election.gate(3_020), election.record()), (None, Some(&other)));
}

#[test]
fn an_attempt_ends_whatever_the_response() {
    for response in [LeaseResponse::Conflict, LeaseResponse::NotFound, LeaseResponse::Failed] {
        let mut election = leader();
        let mut next = election.begin_attempt(3_000, "a");
        let mut requests = 0;
        while let Some(request) = next {
            requests += 1;
            let answer = match request {
                LeaseRequest::Get => current(&record("", 1_000, 5, "x"), "9"),
                _ => response.clone(),
            };
            next = election.handle_response(&request, answer, 3_000, "b");
        }
        assert!(requests <= 3, "{response:?}: {requests}");
    }
}

#[test]
fn resigning_closes_the_gate_and_releases_the_lease_as_client_go_does() {
    let mut election = leader();
    election.resign();
    assert_eq!(election.gate(1_500), None);
    let released = record("", 1_000, 5, "t9");
    let update = election.begin_attempt(2_000, "t9").unwrap();
    assert_eq!(update, LeaseRequest::Update(released.clone(), "2".into()));
    election.handle_response(&update, current(&released, "3"), 2_000, "-");
    assert_eq!((election.owns_lease(), election.begin_attempt(2_100, "-")), (false, None));
}

#[test]
fn a_release_that_conflicts_reads_the_lease_and_releases_it_if_it_is_its_own() {
    let mut election = leader();
    election.resign();
    let update = election.begin_attempt(2_000, "t9").unwrap();
    assert_eq!(
        election.handle_response(&update, LeaseResponse::Conflict, 2_000, "-"),
        Some(LeaseRequest::Get)
    );
    let annotated = current(&record("me", 15_000, 5, "t1"), "3");
    let next = election.handle_response(&LeaseRequest::Get, annotated, 2_000, "t10");
    assert_eq!(next, Some(LeaseRequest::Update(record("", 1_000, 5, "t10"), "3".into())));
    let taken = current(&record("other", 15_000, 6, "x"), "4");
    assert_eq!(election.handle_response(&LeaseRequest::Get, taken, 2_000, "-"), None);
    assert!(!election.owns_lease());
}

#[test]
fn a_lease_not_led_yet_is_left_to_expire() {
    let (mut election, next) = after_reading(LeaseResponse::NotFound);
    election.handle_response(
        &next.unwrap(),
        current(&record("me", 15_000, 0, "t1"), "1"),
        1_000,
        "-",
    );
    election.resign();
    assert_eq!(election.begin_attempt(2_000, "-"), None);
}
