//! One request that hangs must not lose the Lease: the timings leave room for several tries.

use throughline::leader::election::{Answer, Election, Record, Request, Rules};

const DEFAULTS: Rules =
    Rules { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
/// How long an answer takes that does not hang.
const ANSWER_MS: u64 = 40;
/// Requests in a row that hang.
const CALLS: usize = 12;

/// Leads alone for a while; the requests from `hangs` on, so many of them, get no answer within
/// `try_ms`. Whether the gate was closed at any time after it was first open.
fn loses(rules: Rules, try_ms: u64, hangs: usize, how_many: usize) -> bool {
    let mut election = Election::new("me".to_owned(), rules);
    let mut lease: Option<(Record, u64)> = None;
    let (mut now, mut calls, mut closes, mut lost) = (1_u64, 0, None::<u64>, false);
    while calls < CALLS + 20 {
        let began = now;
        let mut next = election.begin(now, &format!("{now}-{calls}"));
        while let Some(request) = next {
            calls += 1;
            let hung = (hangs..hangs + how_many).contains(&calls);
            now += if hung { try_ms } else { ANSWER_MS };
            let answer = match (&request, &mut lease) {
                _ if hung => Answer::Failed,
                (Request::Get, None) => Answer::Missing,
                (Request::Get, Some((record, version))) => {
                    Answer::Is(record.clone(), version.to_string())
                }
                (Request::Create(record) | Request::Update(record, _), lease) => {
                    let version = lease.as_ref().map_or(1, |(_, version)| version + 1);
                    *lease = Some((record.clone(), version));
                    Answer::Is(record.clone(), version.to_string())
                }
            };
            lost |= closes.is_some_and(|closes| closes <= now);
            next = election.answered(&request, answer, now, &format!("{now}-{calls}"));
            closes = election.gate(now).or(closes);
        }
        now = rules.next_attempt(began, now);
        lost |= closes.is_some_and(|closes| closes <= now);
        closes = election.gate(now).or(closes);
    }
    assert!(closes.is_some(), "never led");
    lost
}

#[test]
fn whichever_request_hangs_and_the_next_one_too_the_lease_is_kept() {
    for hangs in 1..CALLS {
        for how_many in 0..=2 {
            let lost = loses(DEFAULTS, DEFAULTS.try_ms(), hangs, how_many);
            assert!(!lost, "lost by {how_many} requests that hang from {hangs} on");
        }
    }
}

#[test]
fn broken_one_try_may_take_as_long_as_the_renew_deadline() {
    assert!((1..CALLS).any(|hangs| loses(DEFAULTS, DEFAULTS.renew_deadline_ms, hangs, 1)));
}
