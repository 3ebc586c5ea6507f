//! A stand-in for Karmada between hub and edge. It copies spec, labels and annotations of Connectors
//! in order, a little later; intermediate values may be skipped, and the status is never copied. With a
//! rate it takes one changed object at a time, first in, first out, as Karmada does whose client has a
//! limit; one that changes again while it waits keeps its place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::follow::{Task, WatchUpdate, follow};
use super::objects::key;
use super::rest::{CONNECTORS, NAMESPACES, Rest};

type Key = (String, String);

/// Copies Connectors until it is dropped.
pub(crate) struct Carrier {
    state: Arc<State>,
    _tasks: [Task; 2],
}

#[derive(Default)]
struct State {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    /// The hub's Connectors, which Karmada calls templates.
    templates: BTreeMap<Key, Value>,
    /// The annotation keys that were carried: a key removed at the hub is removed at the edge.
    carried: BTreeMap<Key, BTreeSet<String>>,
    /// Changed objects that were not taken yet.
    due: BTreeSet<Key>,
    /// The same in the order in which they changed.
    order: VecDeque<Key>,
    /// How many objects it takes in a second.
    rate: Option<u32>,
    stopped: bool,
    /// Changes are dropped instead of carried.
    stuck: bool,
    delay: Duration,
    done: u64,
}

impl Carrier {
    pub(crate) fn start(hub: Rest, edge: Rest) -> Self {
        let state = Arc::new(State::default());
        state.inner.lock().unwrap().delay = Duration::from_millis(20);
        let seen = state.clone();
        let watching = follow(hub, CONNECTORS, move |event| seen.see(event));
        let carrying = Task::spawn(carry(state.clone(), edge));
        Self { state, _tasks: [watching, carrying] }
    }

    /// Carries nothing until `resume`, which then carries what changed meanwhile.
    pub(crate) fn pause(&self) {
        self.state.inner.lock().unwrap().stopped = true;
    }

    pub(crate) fn resume(&self) {
        self.state.inner.lock().unwrap().stopped = false;
        self.state.changed.notify_one();
    }

    /// While stuck, it drops changes at the hub, as Karmada does while it backs off after an outage
    /// of the edge. The next change of an object after that carries the object as it is then.
    pub(crate) fn set_stuck(&self, stuck: bool) {
        self.state.inner.lock().unwrap().stuck = stuck;
    }

    /// Sets the delay between a change at the hub and the write at the edge.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state.inner.lock().unwrap().delay = delay;
    }

    /// Limits the changed objects that it takes in a second from now on; `None` lifts the limit.
    pub(crate) fn set_rate(&self, per_second: Option<u32>) {
        self.state.inner.lock().unwrap().rate = per_second;
    }

    /// The number of changed objects that it has not taken yet.
    pub(crate) fn waiting_count(&self) -> usize {
        self.state.inner.lock().unwrap().due.len()
    }

    /// The number of objects written to the edge so far.
    pub(crate) fn carried_count(&self) -> u64 {
        self.state.inner.lock().unwrap().done
    }
}

impl State {
    fn see(&self, event: WatchUpdate) {
        let mut inner = self.inner.lock().unwrap();
        match event {
            WatchUpdate::Listed(objects) => {
                let listed: BTreeMap<_, _> = objects.into_iter().map(|o| (key(&o), o)).collect();
                let gone: Vec<_> = inner.templates.keys().cloned().collect();
                for key in gone.into_iter().filter(|key| !listed.contains_key(key)) {
                    inner.take(key, None);
                }
                for (key, object) in listed {
                    inner.take(key, Some(object));
                }
            }
            WatchUpdate::Applied(object) => inner.take(key(&object), Some(object)),
            WatchUpdate::Deleted(object) => inner.take(key(&object), None),
        }
        drop(inner);
        self.changed.notify_one();
    }
}

impl Inner {
    fn take(&mut self, key: Key, object: Option<Value>) {
        let carried = |object: &Value| {
            let meta = &object["metadata"];
            [&object["spec"], &meta["labels"], &meta["annotations"], &meta["uid"]].map(Clone::clone)
        };
        let before = self.templates.get(&key).map(carried);
        if before == object.as_ref().map(carried) {
            return;
        }
        match object {
            Some(object) => self.templates.insert(key.clone(), object),
            None => self.templates.remove(&key),
        };
        if !self.stuck {
            self.push(key);
        }
    }

    fn push(&mut self, key: Key) {
        if self.due.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    /// Takes all that is due, or with a rate the first; returns how long to wait until the next turn.
    fn take_due(&mut self) -> (Vec<Key>, Option<Duration>) {
        if self.stopped {
            return (Vec::new(), None);
        }
        let count = if self.rate.is_some() { 1 } else { self.order.len() };
        let taken: Vec<_> = self.order.drain(..count.min(self.order.len())).collect();
        for key in &taken {
            self.due.remove(key);
        }
        let pause =
            self.rate.filter(|_| !taken.is_empty()).map(|rate| Duration::from_secs(1) / rate);
        (taken, pause)
    }
}

async fn carry(state: Arc<State>, edge: Rest) {
    // Only with a rate: these wait for the delay, or for the edge, while others are taken.
    let mut on_their_way = JoinSet::new();
    loop {
        state.changed.notified().await;
        let mut turn = Instant::now();
        loop {
            let (delay, rate) = {
                let inner = state.inner.lock().unwrap();
                (inner.delay, inner.rate)
            };
            if rate.is_none() {
                tokio::time::sleep(delay).await;
            }
            let (taken, pause) = state.inner.lock().unwrap().take_due();
            let Some(pause) = pause else {
                let each = |key| carry_or_retry(&state, &edge, key);
                futures::stream::iter(taken).for_each_concurrent(32, each).await;
                break;
            };
            for key in taken {
                let (state, edge) = (state.clone(), edge.clone());
                on_their_way.spawn(async move {
                    tokio::time::sleep(delay).await;
                    carry_or_retry(&state, &edge, key).await;
                });
            }
            while on_their_way.try_join_next().is_some() {}
            turn += pause;
            tokio::time::sleep_until(turn).await;
        }
    }
}

async fn carry_or_retry(state: &State, edge: &Rest, key: Key) {
    if carry_one(state, edge, &key).await.is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
        state.inner.lock().unwrap().push(key);
        state.changed.notify_one();
    }
}

async fn carry_one(state: &State, edge: &Rest, key: &Key) -> Result<(), super::rest::RequestError> {
    let (template, before) = {
        let inner = state.inner.lock().unwrap();
        (inner.templates.get(key).cloned(), inner.carried.get(key).cloned().unwrap_or_default())
    };
    let place = (key.0.as_str(), key.1.as_str());
    let Some(template) = template else {
        state.inner.lock().unwrap().carried.remove(key);
        return match edge.delete(CONNECTORS, place.0, place.1).await {
            Err(refused) if refused.code != 404 => Err(refused),
            _ => Ok(()),
        };
    };
    let meta = &template["metadata"];
    let mut annotations = meta["annotations"].as_object().cloned().unwrap_or_default();
    let now: BTreeSet<String> = annotations.keys().cloned().collect();
    for vanished in before.difference(&now) {
        annotations.insert(vanished.clone(), Value::Null);
    }
    let spec = &template["spec"];
    let change = json!({ "metadata": { "labels": meta["labels"], "annotations": annotations }, "spec": spec });
    let mut written = edge.merge(CONNECTORS, place, &change).await.map(drop);
    if written.as_ref().is_err_and(|refused| refused.code == 404) {
        let namespace = json!({ "metadata": { "name": place.0 } });
        match edge.create(NAMESPACES, namespace).await {
            Err(refused) if refused.code != 409 => return Err(refused),
            _ => {}
        }
        annotations.retain(|_, value| !value.is_null());
        let object = json!({
            "metadata": { "namespace": place.0, "name": place.1, "labels": meta["labels"],
                          "annotations": annotations },
            "spec": spec,
        });
        written = edge.create(CONNECTORS, object).await.map(drop);
    }
    written?;
    let mut inner = state.inner.lock().unwrap();
    inner.carried.insert(key.clone(), now);
    inner.done += 1;
    Ok(())
}
