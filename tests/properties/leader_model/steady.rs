//! One request that hangs must not lose the Lease: the timings leave room for several attempts.

use throughline::leader::election::{Election, LeaseRecord, LeaseRequest, LeaseResponse, Timings};

const DEFAULTS: Timings =
    Timings { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
/// How long a response takes unless it hangs.
const RESPONSE_MS: u64 = 40;
/// The first request that hangs is one of these.
const CALLS: usize = 12;

/// One instance leads for a while; `how_many` requests from the `hangs`-th on get no response within
/// `request_ms`. Whether the gate was closed at any time after it first opened.
fn loses(timings: Timings, request_ms: u64, hangs: usize, how_many: usize) -> bool {
    let mut election = Election::new("me".to_owned(), timings);
    let mut lease: Option<(LeaseRecord, u64)> = None;
    let (mut now, mut calls, mut closes, mut lost) = (1_u64, 0, None::<u64>, false);
    while calls < CALLS + 20 {
        let began = now;
        let mut next = election.begin_attempt(now, &format!("{now}-{calls}"));
        while let Some(request) = next {
            calls += 1;
            let hung = (hangs..hangs + how_many).contains(&calls);
            now += if hung { request_ms } else { RESPONSE_MS };
            let answer = match (&request, &mut lease) {
                _ if hung => LeaseResponse::Failed,
                (LeaseRequest::Get, None) => LeaseResponse::NotFound,
                (LeaseRequest::Get, Some((record, version))) => {
                    LeaseResponse::Current(record.clone(), version.to_string())
                }
                (LeaseRequest::Create(record) | LeaseRequest::Update(record, _), lease) => {
                    let version = lease.as_ref().map_or(1, |(_, version)| version + 1);
                    *lease = Some((record.clone(), version));
                    LeaseResponse::Current(record.clone(), version.to_string())
                }
            };
            lost |= closes.is_some_and(|closes| closes <= now);
            next = election.handle_response(&request, answer, now, &format!("{now}-{calls}"));
            closes = election.gate(now).or(closes);
        }
        now = timings.next_attempt(began, now);
        lost |= closes.is_some_and(|closes| closes <= now);
        closes = election.gate(now).or(closes);
    }
    assert!(closes.is_some(), "never led");
    lost
}

#[test]
fn two_requests_in_a_row_may_hang_without_losing_the_lease() {
    for hangs in 1..CALLS {
        for how_many in 0..=2 {
            let lost = loses(DEFAULTS, DEFAULTS.request_ms(), hangs, how_many);
            assert!(!lost, "lost by {how_many} requests that hang from {hangs} on");
        }
    }
}

#[test]
fn broken_one_request_may_take_as_long_as_the_renew_deadline() {
    assert!((1..CALLS).any(|hangs| loses(DEFAULTS, DEFAULTS.renew_deadline_ms, hangs, 1)));
}
