//! From a change upstream to the gateway's trigger: when upstream showed each move of a connector to
//! another node, and when its gateway announced that move or a later one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::Value;
use throughline::core::status::trigger::{Trigger, connector_part, digest};

use crate::cluster::fleet::Fleet;
use crate::cluster::follow::{Task, WatchUpdate, follow};
use crate::cluster::objects::{TRIGGER, annotation, node_id};
use crate::cluster::rest::{CONNECTORS, GATEWAYS, RequestError};

/// The digest of a gateway with this one connector, online on this node.
pub(crate) fn announced_digest(connector: &str, node_id: &str) -> u64 {
    digest([connector_part(connector, true, node_id)])
}

/// How long the moves took, sorted.
pub(crate) struct Latencies {
    sorted: Vec<Duration>,
}

impl Latencies {
    pub(crate) fn merge(parts: Vec<Self>) -> Self {
        let mut sorted: Vec<_> = parts.into_iter().flat_map(|part| part.sorted).collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    pub(crate) fn ms(&self, q: f64) -> f64 {
        let last = self.sorted.len() - 1;
        self.sorted[(last as f64 * q).round() as usize].as_secs_f64() * 1e3
    }
}

/// One move of a connector.
#[derive(Clone, Copy, Default)]
struct Move {
    source: Option<Instant>,
    /// When its own value was announced: none when a later move overtook it.
    sink: Option<Instant>,
}

/// The moves of each connector in order, found by the node and by the trigger's digest.
#[derive(Default)]
struct Moves {
    of_connector: HashMap<usize, Vec<Move>>,
    by_node: HashMap<String, (usize, usize)>,
    by_digest: HashMap<u64, (usize, usize)>,
    /// When each gateway first had a trigger, by name.
    first_triggers: HashMap<String, Instant>,
}

/// Follows upstream and edge until dropped.
pub(crate) struct Announcements {
    moves: Arc<Mutex<Moves>>,
    _watches: [Task; 2],
}

impl Announcements {
    pub(crate) async fn follow(fleet: &Fleet) -> Self {
        let moves = Arc::new(Mutex::new(Moves::default()));
        let (at_source, at_sink) = (moves.clone(), moves.clone());
        let source = follow(fleet.up.clone(), CONNECTORS, move |update| {
            if let WatchUpdate::Applied(object) = update {
                at_source.lock().unwrap().seen_upstream(&object, Instant::now());
            }
        });
        let sink = follow(fleet.edge.clone(), GATEWAYS, move |update| {
            if let WatchUpdate::Applied(object) = update {
                at_sink.lock().unwrap().seen_at_edge(&object, Instant::now());
            }
        });
        // By then both watches are open.
        tokio::time::sleep(Duration::from_secs(2)).await;
        Self { moves, _watches: [source, sink] }
    }

    fn lock(&self) -> MutexGuard<'_, Moves> {
        self.moves.lock().unwrap()
    }

    /// Moves connectors, one each `interval`, and waits until the last move is announced. `pick` names
    /// the connector of each, and `is_enough` says when to stop.
    pub(crate) async fn drive(
        &self,
        fleet: &Fleet,
        interval: Duration,
        pick: impl Fn(usize) -> usize,
        mut is_enough: impl FnMut(usize) -> bool,
    ) -> Latencies {
        self.lock().forget();
        let mut ticks = tokio::time::interval(interval);
        let mut in_flight = futures::stream::FuturesUnordered::new();
        let mut moves = 0;
        while !is_enough(moves) {
            tokio::select! {
                Some(written) = in_flight.next() => Result::<(), RequestError>::unwrap(written),
                _ = ticks.tick() => {
                    let i = pick(moves);
                    let node = fleet.node(i) + 100_000;
                    self.lock().expect(i, &fleet.hub_key(i).1, node);
                    in_flight.push(fleet.set(i, true, node));
                    moves += 1;
                }
            }
        }
        while let Some(written) = in_flight.next().await {
            written.unwrap();
        }
        let until = Instant::now() + Duration::from_secs(60);
        while !self.lock().is_announced() {
            assert!(Instant::now() < until, "a move is not announced after a minute");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let sorted = self.lock().latencies();
        assert_eq!(sorted.len(), moves, "moves that both watches showed");
        Latencies { sorted }
    }

    /// When each gateway that had none first had a trigger, in order.
    pub(crate) fn first_triggers(&self) -> Vec<Instant> {
        let mut times: Vec<_> = self.lock().first_triggers.values().copied().collect();
        times.sort_unstable();
        times
    }

    pub(crate) fn first_trigger_count(&self) -> usize {
        self.lock().first_triggers.len()
    }
}

impl Moves {
    fn forget(&mut self) {
        self.of_connector.clear();
        self.by_node.clear();
        self.by_digest.clear();
    }

    fn expect(&mut self, i: usize, name: &str, node: u32) {
        let of_connector = self.of_connector.entry(i).or_default();
        let step = of_connector.len();
        of_connector.push(Move::default());
        let node = node_id(node);
        self.by_digest.insert(announced_digest(name, &node), (i, step));
        self.by_node.insert(node, (i, step));
    }

    fn seen_upstream(&mut self, object: &Value, now: Instant) {
        let node = object["status"]["connectionDetails"]["publicKey"]["id"].as_str();
        if let Some((i, step)) = node.and_then(|node| self.by_node.get(node)) {
            self.of_connector.get_mut(i).unwrap()[*step].source.get_or_insert(now);
        }
    }

    fn seen_at_edge(&mut self, object: &Value, now: Instant) {
        let Some(trigger) = annotation(object, TRIGGER).and_then(Trigger::parse) else { return };
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.first_triggers.entry(name).or_insert(now);
        if let Some((i, step)) = self.by_digest.get(&trigger.digest) {
            self.of_connector.get_mut(i).unwrap()[*step].sink.get_or_insert(now);
        }
    }

    /// Whether the last move of every connector is announced.
    fn is_announced(&self) -> bool {
        self.of_connector.values().all(|moves| moves.last().is_some_and(|last| last.sink.is_some()))
    }

    /// From each move upstream to the announcement of it, or of the first later one.
    fn latencies(&self) -> Vec<Duration> {
        let mut latencies = Vec::new();
        for moves in self.of_connector.values() {
            let mut announced = None;
            for step in moves.iter().rev() {
                announced = step.sink.or(announced);
                if let (Some(source), Some(sink)) = (step.source, announced) {
                    latencies.push(sink.saturating_duration_since(source));
                }
            }
        }
        latencies.sort_unstable();
        latencies
    }
}
