//! Instances in an election whose API server responds, hangs, fails and loses responses. Time is paused:
//! it advances only while every task waits.

mod handover;
mod several;
mod shards;

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::{Method, Response};
use serde_json::{Value, json};
use throughline::client::ClusterClient;
use throughline::core::contract::event::{ClusterSpec, EventKind};
use throughline::core::contract::note::NoteKind;
use throughline::core::data::ids::{NamespacedName, Role};
use throughline::core::data::shard::Shard;
use throughline::events::Recorder;
use throughline::leader::election::Timings;
use throughline::leader::gate::Gate;
use throughline::leader::group::{GROUP_LABEL, Group};
use throughline::leader::lease::LeaseClient;
use throughline::leader::{LeaderElection, Listeners};
use throughline::metrics::Metrics;
use throughline::problems::Outside;
use throughline_sim::SimClusters;
use throughline_sim::apiserver::{Resource, SimApiServer};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{client, configured};
use crate::log::Log;
use crate::sim_apiserver::{answer, body_of};

const TIMINGS: Timings =
    Timings { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
const LEASE: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(2);

/// The Lease of a single instance.
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/tl";

#[derive(Clone, Copy, Default)]
enum Behaviour {
    #[default]
    Responds,
    /// Responds after so many milliseconds.
    Slow(u64),
    Hangs,
    /// Carries a write out after so many milliseconds, and never responds to it.
    Lands(u64),
    Fails,
    /// Answers every write with a conflict.
    Conflicts,
}

/// The API server, as one client reaches it.
#[derive(Clone)]
struct Api {
    server: Arc<SimApiServer>,
    behaviour: Arc<Mutex<Behaviour>>,
    /// A write was carried out.
    written: Arc<Notify>,
}

impl Api {
    fn new() -> Self {
        let hub = ClusterSpec { name: "hub".into(), roles: vec![Role::Hub] };
        let sim = Arc::new(Mutex::new(SimClusters::new(std::slice::from_ref(&hub), 0)));
        let (address, settings) = (([0, 0, 0, 0], 0).into(), Default::default());
        let server = SimApiServer::start_without_listener(sim, hub.name, address, settings);
        Self { server: Arc::new(server), behaviour: Arc::default(), written: Arc::default() }
    }

    fn released() -> Self {
        let api = Self::new();
        api.put("tl", json!({"spec": {"leaseDurationSeconds": 1}}));
        api
    }

    /// The same server, as another client reaches it.
    fn of_another(&self) -> Self {
        let server = self.server.clone();
        Self { server, behaviour: Arc::default(), written: Arc::default() }
    }

    fn client(&self) -> kube::Client {
        let api = self.clone();
        let answer = move |request| api.clone().answer(request);
        kube::Client::new(Router::new().fallback(answer), "default")
    }

    /// From now on it behaves so.
    fn behaves(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    async fn answer(self, request: Request) -> Response<Body> {
        let is_write = *request.method() != Method::GET;
        let behaviour = *self.behaviour.lock().unwrap();
        let code = match behaviour {
            Behaviour::Hangs => return pending().await,
            Behaviour::Lands(ms) if is_write => {
                tokio::spawn(self.carry_out(ms, request));
                return pending().await;
            }
            Behaviour::Slow(ms) => return self.carry_out(ms, request).await,
            Behaviour::Conflicts if is_write => 409,
            Behaviour::Fails => 500,
            _ => return self.carry_out(5, request).await,
        };
        Response::builder().status(code).body(Body::empty()).unwrap()
    }

    async fn carry_out(self, after_ms: u64, request: Request) -> Response<Body> {
        sleep(Duration::from_millis(after_ms)).await;
        let is_update = *request.method() == Method::PUT;
        let response = self.server.answer(request).await;
        if is_update && response.status().is_success() {
            self.written.notify_waiters();
        }
        response.map(Body::new)
    }

    /// Creates or replaces a Lease.
    fn put(&self, name: &str, lease: Value) {
        self.server.put_raw(Resource::Leases, NamespacedName::new("default", name), lease);
    }

    async fn edit(&self, spec: Value) {
        answer(&self.client(), "PATCH", PATH, &json!({ "spec": spec })).await.unwrap();
    }

    fn delete(&self) {
        self.server.remove(Resource::Leases, &NamespacedName::new("default", "tl"));
    }

    async fn get(&self, path: &str) -> Value {
        body_of(answer(&self.client(), "GET", path, &Value::Null).await.unwrap()).await.1
    }

    /// The messages of all Events.
    async fn events(&self) -> Vec<String> {
        let list = self.get("/api/v1/namespaces/default/events").await;
        let events = list["items"].as_array().unwrap().iter();
        events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    }
}

struct Instance {
    election: LeaderElection,
    metrics: Arc<Metrics>,
    gate: Gate,
    events: mpsc::UnboundedReceiver<EventKind>,
    /// That nobody leads.
    unled: mpsc::UnboundedReceiver<NoteKind>,
    /// That nobody leads another shard.
    unheld: mpsc::UnboundedReceiver<NoteKind>,
    api: Api,
}

fn instance(name: &str, api: &Api) -> Instance {
    instance_of(name, api, Shard::WHOLE, TIMINGS)
}

fn instance_of(name: &str, api: &Api, shard: Shard, timings: Timings) -> Instance {
    let cluster = |name: &str, role| client(configured(name, &[role], None));
    let clusters =
        [cluster("up", Role::Upstream), cluster("hub", Role::Hub), cluster("edge", Role::Edge)];
    let (gate, keeper) = Gate::closed();
    let (changes, events) = mpsc::unbounded_channel();
    let metrics = Arc::new(Metrics::new());
    let (identity, orphans) = (name.to_owned(), "report only");
    let ((led, unled), (held, unheld)) = (Outside::channel(), Outside::channel());
    let (usable, clusters) = (Outside::default(), clusters.into_iter().collect());
    let listeners =
        Listeners { events: changes, usable, led, held, metrics: metrics.clone(), clusters };
    let group = Group::new("tl", shard);
    let api = api.of_another();
    let hub = ClusterClient::with_client("hub".into(), api.client(), metrics.clone());
    let (hub, patience) = (Arc::new(hub), Duration::from_millis(timings.request_ms()));
    let (recorder, mut workers) = Recorder::start(vec![hub.clone()], 30, metrics.clone());
    workers.detach_all();
    let lease = LeaseClient::new(hub, None, &group, patience, Some(recorder));
    let election =
        LeaderElection::start(lease, identity, group, timings, keeper, orphans, listeners);
    Instance { election, metrics, gate, events, unled, unheld, api }
}

/// An instance that leads a released Lease at once, and its API server.
async fn leader() -> (Api, Instance) {
    let api = Api::released();
    let mut one = instance("one", &api);
    one.becomes(true, Duration::from_millis(100)).await;
    (api, one)
}

impl Instance {
    /// Waits until it starts or stops leading, and returns how long that took.
    async fn becomes(&mut self, leads: bool, within: Duration) -> Duration {
        let since = Instant::now();
        let change = async {
            loop {
                match self.events.recv().await {
                    Some(EventKind::LeadershipPending { .. }) => {}
                    Some(EventKind::LeadershipAcquired) => return true,
                    Some(EventKind::LeadershipLost) => return false,
                    event => panic!("{event:?}"),
                }
            }
        };
        let change = timeout(within, change).await.expect("a change in time");
        assert_eq!((change, self.gate.is_open()), (leads, leads), "leads, gate");
        since.elapsed()
    }

    /// Asserts that nothing changes for `long`.
    async fn stays(&mut self, long: Duration) {
        let event = timeout(long, self.events.recv()).await;
        assert!(event.is_err(), "{event:?}");
    }
}

/// Also that it is over, when somebody else takes the Lease meanwhile. Another instance is named only where
/// the Lease names one.
#[tokio::test(start_paused = true)]
async fn the_wait_for_a_lease_that_was_not_there_is_reported_once() {
    let (log, _guard) = Log::capture();
    let api = Api::new();
    let mut one = instance("one", &api);
    let first = one.events.recv().await;
    let Some(EventKind::LeadershipPending { wait_ms, .. }) = first else { panic!("{first:?}") };
    assert!(Duration::from_millis(wait_ms).abs_diff(LEASE) < Duration::from_millis(100));
    let after = one.becomes(true, LEASE + RETRY).await;
    assert!(after.abs_diff(LEASE) < Duration::from_millis(100), "{after:?}");
    assert_eq!(api.get(PATH).await["spec"]["holderIdentity"], "one");
    let said = log.text();
    for part in ["waiting up to 15 s for a Lease that was not there", "became leader"] {
        assert_eq!(said.matches(part).count(), 1, "{said}");
    }
    assert!(!said.contains("another instance"), "{said}");

    let api = Api::new();
    let mut two = instance("two", &api);
    let first = two.events.recv().await;
    assert!(matches!(first, Some(EventKind::LeadershipPending { .. })), "{first:?}");
    api.edit(json!({"holderIdentity": "somebody"})).await;
    let then = timeout(2 * RETRY, two.events.recv()).await;
    assert!(matches!(then, Ok(Some(EventKind::LeadershipLost))), "{then:?}");
    let then = two.events.recv().await;
    assert!(matches!(then, Some(EventKind::LeadershipAcquired)), "{then:?}");
    let said = log.text();
    let named: Vec<_> = said.lines().filter(|line| line.contains("another instance")).collect();
    let [named] = named[..] else { panic!("{said}") };
    assert!(named.contains("another instance holds the Lease") && named.contains("somebody"));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_or_fails_closes_the_gate_in_time_however_often() {
    let (_, mut one) = leader().await;
    for behaviour in [Behaviour::Hangs, Behaviour::Fails, Behaviour::Conflicts, Behaviour::Hangs] {
        sleep(Duration::from_secs(7)).await;
        one.api.behaves(behaviour);
        let gate = Duration::from_millis(TIMINGS.gate_ms());
        let after = one.becomes(false, gate + Duration::from_millis(5)).await;
        assert!(after > gate - RETRY - Duration::from_millis(50), "{after:?}");
        // For hours, without another event.
        one.stays(Duration::from_secs(4 * 3600)).await;
        one.api.behaves(Behaviour::Responds);
        one.becomes(true, 8 * RETRY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_and_slow_responses_do_not_lose_the_lease() {
    let (_, mut one) = leader().await;
    for _ in 0..5 {
        one.api.behaves(Behaviour::Lands(0));
        one.stays(Duration::from_millis(TIMINGS.request_ms())).await;
        one.api.behaves(Behaviour::Slow(1_500));
        one.stays(Duration::from_secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_or_edited_is_led_again_a_lease_duration_later() {
    for is_deleted in [true, false] {
        let (api, mut one) = leader().await;
        match is_deleted {
            true => api.delete(),
            false => api.edit(json!({"holderIdentity": "somebody"})).await,
        }
        one.becomes(false, 2 * RETRY).await;
        let after = one.becomes(true, 2 * LEASE).await;
        assert!((LEASE - RETRY..LEASE + RETRY).contains(&after), "{after:?}");
        let events = ["one became leader", "one stopped leading", "one became leader"];
        sleep(RETRY).await;
        assert_eq!(api.events().await, events);
    }
}
