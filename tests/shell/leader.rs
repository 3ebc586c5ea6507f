//! Instances in an election whose Lease API responds, hangs, fails and loses responses. Time is paused:
//! it advances only while every task waits.

mod handover;
mod several;
mod shards;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline::core::contract::cause::About;
use throughline::core::contract::error_cause::{ErrorCause, RequestFailure};
use throughline::core::contract::event::EventKind;
use throughline::core::contract::note::NoteKind;
use throughline::core::data::ids::Role;
use throughline::core::data::shard::Shard;
use throughline::leader::election::{LeaseRecord, LeaseRequest, LeaseResponse, Timings};
use throughline::leader::gate::Gate;
use throughline::leader::group::Group;
use throughline::leader::lease::LeaseApi;
use throughline::leader::{LeaderElection, Listeners};
use throughline::metrics::Metrics;
use throughline::problems::Outside;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{client, configured};
use crate::log::Log;

const TIMINGS: Timings =
    Timings { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
const LEASE: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(2);

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

#[derive(Default)]
struct Server {
    leases: BTreeMap<String, StoredLease>,
    version: u64,
    /// How it behaves towards the instances of a Lease.
    behaviours: BTreeMap<String, Behaviour>,
    events: Vec<String>,
    /// How often the group was listed.
    lists: usize,
}

#[derive(Clone, Default)]
struct StoredLease {
    record: LeaseRecord,
    version: String,
    is_labelled: bool,
}

/// An API server, as one instance uses it.
#[derive(Clone)]
struct FakeApi {
    server: Arc<Mutex<Server>>,
    /// The instance's Lease.
    name: String,
    label: Option<bool>,
}

impl FakeApi {
    /// As a single instance uses it.
    fn new() -> Self {
        Self { server: Arc::default(), name: "tl".to_owned(), label: None }
    }

    /// As an instance of a shard uses it.
    fn of(&self, group: &Group) -> Self {
        let label = group.is_shared().then_some(true);
        Self { server: self.server.clone(), name: group.own_lease(), label }
    }

    /// From now on it behaves so towards this instance.
    fn behaviour(&self, behaviour: Behaviour) {
        self.server.lock().unwrap().behaviours.insert(self.name.clone(), behaviour);
    }

    fn towards(&self) -> Behaviour {
        self.server.lock().unwrap().behaviours.get(&self.name).copied().unwrap_or_default()
    }

    fn edit(&self, edit: impl FnOnce(&mut LeaseRecord)) {
        let mut record = self.lease().record;
        edit(&mut record);
        self.write(&record, None);
    }

    fn released() -> Self {
        let api = Self::new();
        api.edit(|record| record.lease_ms = 1_000);
        api
    }

    fn delete(&self) {
        self.server.lock().unwrap().leases.remove(&self.name);
    }

    fn lease(&self) -> StoredLease {
        self.server.lock().unwrap().leases.get(&self.name).cloned().unwrap_or_default()
    }

    /// Waits until the Lease is written again.
    async fn is_written(&self) {
        let before = self.lease().version;
        while self.lease().version == before {
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn write(&self, record: &LeaseRecord, label: Option<bool>) -> LeaseResponse {
        let mut server = self.server.lock().unwrap();
        server.version += 1;
        let version = server.version.to_string();
        let lease = server.leases.entry(self.name.clone()).or_default();
        let is_labelled = label.unwrap_or(lease.is_labelled);
        *lease = StoredLease { record: record.clone(), version: version.clone(), is_labelled };
        LeaseResponse::Current(record.clone(), version)
    }

    fn carry_out(&self, request: &LeaseRequest) -> LeaseResponse {
        let stored = self.server.lock().unwrap().leases.get(&self.name).cloned();
        match (request, stored) {
            (LeaseRequest::Get, None) => LeaseResponse::NotFound,
            (LeaseRequest::Get, Some(lease)) => LeaseResponse::Current(lease.record, lease.version),
            _ if matches!(self.towards(), Behaviour::Conflicts) => LeaseResponse::Conflict,
            (LeaseRequest::Create(record), None) => self.write(record, self.label),
            (LeaseRequest::Update(record, version), Some(lease)) if *version == lease.version => {
                self.write(record, self.label)
            }
            _ => LeaseResponse::Conflict,
        }
    }
}

impl LeaseApi for FakeApi {
    async fn send(&mut self, request: &LeaseRequest) -> (LeaseResponse, Option<RequestFailure>) {
        let gives_up = sleep(Duration::from_millis(TIMINGS.request_ms()));
        match self.towards() {
            Behaviour::Fails => {}
            Behaviour::Hangs => gives_up.await,
            Behaviour::Lands(ms) if *request != LeaseRequest::Get => {
                let (api, request) = (self.clone(), request.clone());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(ms)).await;
                    api.carry_out(&request);
                });
                gives_up.await;
            }
            behaviour => {
                let ms = if let Behaviour::Slow(ms) = behaviour { ms } else { 5 };
                sleep(Duration::from_millis(ms)).await;
                return (self.carry_out(request), None);
            }
        }
        (LeaseResponse::Failed, Some(RequestFailure::new(ErrorCause::Other, "no answer")))
    }

    async fn list_group(&mut self) -> Result<Vec<(String, LeaseRecord)>, RequestFailure> {
        sleep(Duration::from_millis(5)).await;
        let behaviour = self.towards();
        let mut server = self.server.lock().unwrap();
        server.lists += 1;
        if !matches!(behaviour, Behaviour::Responds) {
            return Err(RequestFailure::new(ErrorCause::Other, "500 InternalError"));
        }
        let labelled = server.leases.iter().filter(|(_, lease)| lease.is_labelled);
        Ok(labelled.map(|(name, lease)| (name.clone(), lease.record.clone())).collect())
    }

    fn is_labelled(&self) -> bool {
        self.lease().is_labelled
    }

    fn take_label_off(&mut self) {
        self.label = Some(false);
    }

    fn about(&self) -> About {
        About::cluster(&"hub".into())
    }

    fn post_event(&self, message: String) {
        self.server.lock().unwrap().events.push(message);
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
    api: FakeApi,
}

fn instance(name: &str, api: &FakeApi) -> Instance {
    instance_of(name, api, Shard::WHOLE, TIMINGS)
}

fn instance_of(name: &str, api: &FakeApi, shard: Shard, timings: Timings) -> Instance {
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
    let api = api.of(&group);
    let election =
        LeaderElection::start(api.clone(), identity, group, timings, keeper, orphans, listeners);
    Instance { election, metrics, gate, events, unled, unheld, api }
}

/// An instance that leads a released Lease at once, and its API server.
async fn leader() -> (FakeApi, Instance) {
    let api = FakeApi::released();
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
    let api = FakeApi::new();
    let mut one = instance("one", &api);
    let first = one.events.recv().await;
    let Some(EventKind::LeadershipPending { wait_ms, .. }) = first else { panic!("{first:?}") };
    assert!(Duration::from_millis(wait_ms).abs_diff(LEASE) < Duration::from_millis(100));
    let after = one.becomes(true, LEASE + RETRY).await;
    assert!(after.abs_diff(LEASE) < Duration::from_millis(100), "{after:?}");
    assert_eq!(api.lease().record.holder, "one");
    let said = log.text();
    for part in ["waiting up to 15 s for a Lease that was not there", "became leader"] {
        assert_eq!(said.matches(part).count(), 1, "{said}");
    }
    assert!(!said.contains("another instance"), "{said}");

    let api = FakeApi::new();
    let mut two = instance("two", &api);
    let first = two.events.recv().await;
    assert!(matches!(first, Some(EventKind::LeadershipPending { .. })), "{first:?}");
    api.edit(|record| record.holder = "somebody".to_owned());
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
    let (api, mut one) = leader().await;
    for behaviour in [Behaviour::Hangs, Behaviour::Fails, Behaviour::Conflicts, Behaviour::Hangs] {
        sleep(Duration::from_secs(7)).await;
        api.behaviour(behaviour);
        let gate = Duration::from_millis(TIMINGS.gate_ms());
        let after = one.becomes(false, gate + Duration::from_millis(5)).await;
        assert!(after > gate - RETRY - Duration::from_millis(50), "{after:?}");
        // For hours, without another event.
        one.stays(Duration::from_secs(4 * 3600)).await;
        api.behaviour(Behaviour::Responds);
        one.becomes(true, 8 * RETRY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_and_slow_responses_do_not_lose_the_lease() {
    let (api, mut one) = leader().await;
    for _ in 0..5 {
        api.behaviour(Behaviour::Lands(0));
        one.stays(Duration::from_millis(TIMINGS.request_ms())).await;
        api.behaviour(Behaviour::Slow(1_500));
        one.stays(Duration::from_secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_or_edited_is_led_again_a_lease_duration_later() {
    let give_away: fn(&FakeApi) = |api| api.edit(|record| record.holder = "somebody".to_owned());
    for edit in [FakeApi::delete, give_away] {
        let (api, mut one) = leader().await;
        edit(&api);
        one.becomes(false, 2 * RETRY).await;
        let after = one.becomes(true, 2 * LEASE).await;
        assert!((LEASE - RETRY..LEASE + RETRY).contains(&after), "{after:?}");
        let events = ["one became leader", "one stopped leading", "one became leader"];
        assert_eq!(api.server.lock().unwrap().events, events);
    }
}
