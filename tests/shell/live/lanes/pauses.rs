//! Actions that pause between two attempts.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_action_that_pauses_takes_no_room_and_keeps_its_object() {
    let config = ExecutorConstants { parallel: 1, ..ExecutorConstants::default() };
    let mut bench = bench(config, false);
    let server = bench.servers[WELL].clone();
    server.log.lock().unwrap().errors = vec![(StatusCode::TOO_MANY_REQUESTS, Some(2))];
    for name in ["a", "b", "c"] {
        bench.submit(WELL, name);
    }
    bench.run_for(Duration::from_secs(1)).await;
    assert_eq!(bench.outcomes(), [(2, "applied", 1), (3, "applied", 1)]);
    assert_eq!((bench.executor.queued(), bench.executor.in_flight()), (0, 1));
    bench.run_for(Duration::from_secs(2)).await;
    assert_eq!(bench.outcomes()[2..], [(1, "applied", 2)]);
    assert_eq!(server.names(), ["a", "b", "c", "a"]);
    assert!(bench.finished[2].0.took >= Duration::from_secs(2), "pauses count");
}

/// Otherwise an action of which attempts fail would have no outcome for as long as others come.
#[tokio::test(start_paused = true)]
async fn after_its_pause_an_action_goes_before_those_that_were_not_tried() {
    let config = ExecutorConstants { parallel: 1, ..ExecutorConstants::default() };
    let mut bench = bench(config, false);
    let server = bench.servers[WELL].clone();
    server.log.lock().unwrap().errors = vec![(StatusCode::TOO_MANY_REQUESTS, Some(1))];
    bench.submit(WELL, "tried");
    bench.submit_many(WELL, 100);
    let is_over = |bench: &Bench| bench.finished.iter().any(|(f, _)| f.attempts == 2);
    bench.until(Duration::from_secs(60), is_over).await;
    let took = bench.finished.last().unwrap().0.took;
    assert!(took <= Duration::from_secs(1) + RESPONSE * 4, "{took:?}");
    assert!(bench.executor.queued() > 40, "the others are over");
}

/// The newest decision is sent; the one that paused had an attempt, and says how it ended.
#[tokio::test(start_paused = true)]
async fn a_newer_action_replaces_one_that_pauses() {
    let mut bench = bench(ExecutorConstants::default(), false);
    let server = bench.servers[WELL].clone();
    server.log.lock().unwrap().errors = vec![(StatusCode::TOO_MANY_REQUESTS, Some(2))];
    bench.submit(WELL, "a");
    bench.run_for(Duration::from_secs(1)).await;
    bench.submit(WELL, "a");
    bench.run_for(Duration::from_secs(10)).await;
    assert_eq!(bench.outcomes(), [(1, "failed", 1), (2, "applied", 1)]);
    assert_eq!((server.names().len(), bench.executor.in_flight()), (2, 0));
}

/// At the end of a run nothing is tried again, and no outcome is lost.
#[tokio::test(start_paused = true)]
async fn dropping_what_is_queued_ends_what_pauses_with_its_failure() {
    let config = ExecutorConstants { parallel: 1, ..ExecutorConstants::default() };
    let mut bench = bench(config, false);
    let server = bench.servers[WELL].clone();
    server.log.lock().unwrap().errors = vec![(StatusCode::TOO_MANY_REQUESTS, Some(2))];
    bench.submit(WELL, "a");
    bench.run_for(RESPONSE * 2).await;
    for name in ["b", "c", "d"] {
        bench.submit(WELL, name);
    }
    assert_eq!((bench.executor.queued(), bench.executor.in_flight()), (2, 2));
    assert_eq!(bench.executor.drop_queued(), 2);
    assert_eq!((bench.executor.queued(), bench.executor.in_flight()), (0, 1));
    bench.until(Duration::from_secs(60), |bench| !bench.executor.is_busy()).await;
    assert_eq!(bench.outcomes(), [(1, "failed", 1), (2, "applied", 1)]);
    assert_eq!(server.names(), ["a", "b"]);
}
