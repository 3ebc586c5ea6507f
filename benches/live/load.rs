//! The load: upstream statuses that change at a steady rate, and when upstream and hub showed each change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cluster::fleet::Fleet;
use crate::cluster::follow::{WatchUpdate, follow};
use crate::cluster::objects::{UPSTREAM_STATUS, annotation};
use crate::cluster::rest::CONNECTORS;
use serde_json::Value;

/// The result of one rate.
pub(crate) struct Driven {
    pub(crate) changes: usize,
    pub(crate) took: Duration,
    /// Changes that had not reached the hub when the last one was made.
    pub(crate) behind: usize,
    latencies: Vec<Duration>,
}

impl Driven {
    pub(crate) fn quantile(&self, q: f64) -> Duration {
        let last = self.latencies.len() - 1;
        self.latencies[(last as f64 * q).round() as usize]
    }
}

/// A change: the connector's name and its new node.
type Change = (String, String);

#[derive(Default)]
struct Times {
    source: HashMap<Change, Instant>,
    sink: HashMap<Change, Instant>,
}

fn node(status: &Value) -> Option<String> {
    status["connectionDetails"]["publicKey"]["id"].as_str().map(str::to_owned)
}

/// Moves connectors to new nodes, in turn, at `rate` a second, and waits until the last change arrives.
pub(crate) async fn drive(fleet: &Fleet, rate: u32, seconds: u64) -> Driven {
    let times = Arc::new(Mutex::new(Times::default()));
    let change = |object: &Value, status: &Value| {
        Some((object["metadata"]["name"].as_str()?.to_owned(), node(status)?))
    };
    let (seen, at_sink) = (times.clone(), times.clone());
    let source = follow(fleet.up.clone(), CONNECTORS, move |what| {
        if let WatchUpdate::Applied(object) = what
            && let Some(change) = change(&object, &object["status"])
        {
            seen.lock().unwrap().source.entry(change).or_insert_with(Instant::now);
        }
    });
    let sink = follow(fleet.hub.clone(), CONNECTORS, move |what| {
        if let WatchUpdate::Applied(object) = what
            && let Some(text) = annotation(&object, UPSTREAM_STATUS)
            && let Ok(status) = serde_json::from_str(text)
            && let Some(change) = change(&object, &status)
        {
            at_sink.lock().unwrap().sink.entry(change).or_insert_with(Instant::now);
        }
    });
    // By then both watches are open.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let changes = (u64::from(rate) * seconds) as usize;
    let began = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    let mut in_flight = futures::stream::FuturesUnordered::new();
    for i in 0..changes {
        ticks.tick().await;
        in_flight.push(fleet.move_node(i % fleet.spec.connectors));
        // Collects what is done; the rest continues until the next tick.
        while let Some(Some(done)) =
            futures::FutureExt::now_or_never(futures::StreamExt::next(&mut in_flight))
        {
            done.unwrap();
        }
    }
    while let Some(done) = futures::StreamExt::next(&mut in_flight).await {
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
    // The hub may skip a value that was already replaced. That does not happen while the fleet has more
    // connectors than there are changes in flight.
    assert!(latencies.len() * 100 >= changes * 99, "{} of {changes} arrived", latencies.len());
    Driven { changes, took, behind, latencies }
}
