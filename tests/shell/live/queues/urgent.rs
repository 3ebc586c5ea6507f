//! What leaves first while many wait.

use super::*;

/// Addresses route nothing: a fleet of agents that roam must not delay the one that goes offline.
#[tokio::test(start_paused = true)]
async fn a_flip_leaves_before_500_deferrable_writes_and_each_of_those_ends() {
    let config = ExecutorConstants { parallel: 2, ..ExecutorConstants::default() };
    let mut bench = bench(config, false);
    let hub = bench.servers[HUB].clone();
    for i in 0..502 {
        bench.submit_mirror(&format!("address-{i}"), Urgency::Deferrable);
    }
    bench.run_for(RESPONSE / 2).await;
    bench.submit_mirror("flip", Urgency::Routing);
    bench.run_for(RESPONSE).await;
    assert_eq!(hub.names()[2..3], ["flip"]);
    // So it does for a connector whose address waits near the end of the queue; that write is replaced.
    bench.submit_mirror("address-499", Urgency::Routing);
    bench.run_for(RESPONSE).await;
    let names = hub.names();
    assert!(names[4..6].contains(&"address-499".to_owned()), "{names:?}");
    bench.until(Duration::from_secs(60), |bench| bench.finished.len() == 504).await;
    let mut outcomes = bench.outcomes();
    outcomes.sort_unstable();
    let ids: Vec<_> = outcomes.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (1..=504).collect::<Vec<_>>());
    let superseded = outcomes.iter().filter(|(_, outcome)| *outcome == "superseded");
    assert_eq!(superseded.map(|(id, _)| *id).collect::<Vec<_>>(), [500]);
}
