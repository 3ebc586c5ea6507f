//! The load: statuses that change at a steady rate, and when source and sink showed each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cluster::fleet::Fleet;
use crate::cluster::follow::{Seen, follow};
use crate::cluster::objects::{UPSTREAM_STATUS, annotation};
use crate::cluster::rest::CONNECTORS;
use serde_json::Value;

/// What a rate came to.
pub(crate) struct Driven {
    pub(crate) changes: usize,
    pub(crate) took: Duration,
    /// Changes that had not reached the sink when the last was made.
    pub(crate) behind: usize,
    latencies: Vec<Duration>,
}

impl Driven {
    pub(crate) fn quantile(&self, q: f64) -> Duration {
        let last = self.latencies.len() - 1;
        self.latencies[(last as f64 * q).round() as usize]
    }
}

/// A change: the connector's name and the node that its status names.
type Change = (String, String);

#[derive(Default)]
struct Times {
    source: HashMap<Change, Instant>,
    sink: HashMap<Change, Instant>,
}

fn node(status: &Value) -> Option<String> {
    status["connectionDetails"]["publicKey"]["id"].as_str().map(str::to_owned)
}

/// Moves connectors to new nodes, one after the other round the fleet, at `rate` a second, and
/// waits for the last to arrive.
pub(crate) async fn drive(fleet: &Fleet, rate: u32, seconds: u64) -> Driven {
    let times = Arc::new(Mutex::new(Times::default()));
    let change = |object: &Value, status: &Value| {
        Some((object["metadata"]["name"].as_str()?.to_owned(), node(status)?))
    };
    let (seen, at_sink) = (times.clone(), times.clone());
    let source = follow(fleet.up.clone(), CONNECTORS, move |what| {
        if let Seen::Applied(object) = what
            && let Some(change) = change(&object, &object["status"])
        {
            seen.lock().unwrap().source.entry(change).or_insert_with(Instant::now);
        }
    });
    let sink = follow(fleet.hub.clone(), CONNECTORS, move |what| {
        if let Seen::Applied(object) = what
            && let Some(text) = annotation(&object, UPSTREAM_STATUS)
            && let Ok(status) = serde_json::from_str(text)
            && let Some(change) = change(&object, &status)
        {
            at_sink.lock().unwrap().sink.entry(change).or_insert_with(Instant::now);
        }
    });
    tokio::time::sleep(Duration::from_secs(2)).await; // both follow by now
    let changes = (u64::from(rate) * seconds) as usize;
    let began = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    let mut under_way = futures::stream::FuturesUnordered::new();
    for i in 0..changes {
        ticks.tick().await;
        under_way.push(fleet.move_node(i % fleet.spec.connectors));
        // What is done by now is taken out; the rest goes on while the next tick is waited for.
        while let Some(Some(done)) = futures::FutureExt::now_or_never(futures::StreamExt::next(&mut under_way)) {
            done.unwrap();
        }
    }
    while let Some(done) = futures::StreamExt::next(&mut under_way).await {
        done.unwrap();
    }
    let took = began.elapsed();
    let arrived = || times.lock().unwrap().sink.len();
    let behind = changes.saturating_sub(arrived());
    let until = Instant::now() + Duration::from_secs(60);
    while arrived() < changes && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop((source, sink));
    let times = times.lock().unwrap();
    let mut latencies: Vec<_> = times
        .source
        .iter()
        .filter_map(|(change, at)| Some(times.sink.get(change)?.saturating_duration_since(*at)))
        .collect();
    latencies.sort_unstable();
    // A sink may pass over a value that was already replaced; with a fleet larger than what is
    // under way at a time that doesn't happen.
    assert!(latencies.len() * 100 >= changes * 99, "{} of {changes} arrived", latencies.len());
    Driven { changes, took, behind, latencies }
}
