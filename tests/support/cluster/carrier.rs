//! A stand-in for Karmada between hub and edge. It copies spec, labels and annotations of Connectors
//! in the order in which they changed, a little later; intermediate values may be skipped, and the status
//! is never copied. With a rate it takes so many in a second, as Karmada does whose client has a limit;
//! one that changes again while it waits keeps its place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::follow::{Task, WatchUpdate, follow};
use super::objects::key;
use super::rest::{Answer, CONNECTORS, NAMESPACES, Rest};

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
    /// Changed objects that were not taken yet.
    due: VecDeque<Key>,
    /// Between two objects.
    pause: Duration,
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
        let carrying = Task::from_iter([carry(state.clone(), edge)]);
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

    /// Limits the changed objects that it takes in a second from now on.
    pub(crate) fn set_rate(&self, per_second: u32) {
        self.state.inner.lock().unwrap().pause = Duration::from_secs(1) / per_second;
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
                let mut gone: BTreeSet<_> = inner.templates.keys().cloned().collect();
                for object in objects {
                    gone.remove(&key(&object));
                    inner.take(key(&object), Some(object));
                }
                for key in gone {
                    inner.take(key, None);
                }
            }
            WatchUpdate::Applied(object) => inner.take(key(&object), Some(object)),
            WatchUpdate::Deleted(object) => inner.take(key(&object), None),
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// The object whose turn it is, and the time until the next turn.
    async fn next(&self) -> (Key, Duration) {
        loop {
            {
                let mut inner = self.inner.lock().unwrap();
                let key = if inner.stopped { None } else { inner.due.pop_front() };
                if let Some(key) = key {
                    return (key, inner.pause);
                }
            }
            self.changed.notified().await;
        }
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
        if !self.due.contains(&key) {
            self.due.push_back(key);
        }
    }
}

async fn carry(state: Arc<State>, edge: Rest) {
    let due = stream::unfold(Instant::now(), async |turn| {
        tokio::time::sleep_until(turn).await;
        let (key, pause) = state.next().await;
        Some((key, Instant::now().max(turn + pause)))
    });
    due.for_each_concurrent(64, async |key| {
        let delay = state.inner.lock().unwrap().delay;
        tokio::time::sleep(delay).await;
        if carry_one(&state, &edge, &key).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
            state.inner.lock().unwrap().push(key);
            state.changed.notify_one();
        }
    })
    .await;
}

async fn carry_one(state: &State, edge: &Rest, key: &Key) -> Answer<()> {
    let (namespace, name) = (key.0.as_str(), key.1.as_str());
    let template = state.inner.lock().unwrap().templates.get(key).cloned();
    let written = match &template {
        Some(template) => {
            let meta = &template["metadata"];
            let object = json!({
                "metadata": { "namespace": namespace, "name": name, "labels": meta["labels"],
                              "annotations": meta["annotations"] },
                "spec": template["spec"],
            });
            edge.apply(CONNECTORS, object, "carrier").await
        }
        None => edge.delete(CONNECTORS, namespace, name).await,
    };
    match written {
        Err(refused) if refused.code == 404 && template.is_some() => {
            edge.create(NAMESPACES, json!({ "metadata": { "name": namespace } })).await?;
            return Err(refused);
        }
        Err(refused) if refused.code != 404 => return Err(refused),
        _ => {}
    }
    let mut inner = state.inner.lock().unwrap();
    inner.done += 1;
    // What it changed to meanwhile may have been written before this.
    if !inner.stuck && inner.templates.get(key) != template.as_ref() {
        inner.push(key.clone());
        state.changed.notify_one();
    }
    Ok(())
}
