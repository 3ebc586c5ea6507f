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
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::shard::Shard;
use throughline::fleet::ClusterTable;
use throughline::leader::election::{LeaseRecord, LeaseRequest, LeaseResponse, Timings};
use throughline::leader::gate::Gate;
use throughline::leader::group::Group;
use throughline::leader::lease::LeaseApi;
use throughline::leader::{LeaderElection, Listeners};
use throughline::metrics::Metrics;
use throughline::problems::Outside;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

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
    /// Carries requests out, and never responds.
    LosesResponses,
    Hangs,
    /// A write is carried out after so many milliseconds, when its time-out is over.
    LandsLate(u64),
    Fails,
    /// Answers every write with a conflict.
    Conflicts,
}

#[derive(Default)]
struct Server {
    leases: BTreeMap<String, StoredLease>,
    version: u64,
    behaviour: Behaviour,
    events: Vec<String>,
    /// How often the group was listed.
    lists: usize,
}

#[derive(Clone, Default)]
struct StoredLease {
    record: LeaseRecord,
    version: u64,
    is_labelled: bool,
}

impl Server {
    fn write(&mut self, name: &str, record: LeaseRecord, label: Option<bool>) -> LeaseResponse {
        self.version += 1;
        let lease = self.leases.entry(name.to_owned()).or_default();
        (lease.record, lease.version) = (record.clone(), self.version);
        lease.is_labelled = label.unwrap_or(lease.is_labelled);
        LeaseResponse::Current(record, self.version.to_string())
    }

    fn answer(&mut self, name: &str, request: &LeaseRequest, label: Option<bool>) -> LeaseResponse {
        let stored = self.leases.get(name).cloned();
        match (request, stored) {
            (LeaseRequest::Get, None) => LeaseResponse::NotFound,
            (LeaseRequest::Get, Some(lease)) => {
                LeaseResponse::Current(lease.record, lease.version.to_string())
            }
            (_, _) if matches!(self.behaviour, Behaviour::Conflicts) => LeaseResponse::Conflict,
            (LeaseRequest::Create(record), None) => self.write(name, record.clone(), label),
            (LeaseRequest::Update(record, version), Some(lease))
                if *version == lease.version.to_string() =>
            {
                self.write(name, record.clone(), label)
            }
            _ => LeaseResponse::Conflict,
        }
    }
}

/// An API server, as one instance uses it.
#[derive(Clone)]
struct FakeApi {
    server: Arc<Mutex<Server>>,
    /// The instance's Lease.
    name: String,
    label: Option<bool>,
    /// Towards this instance alone.
    own: Arc<Mutex<Option<Behaviour>>>,
}

impl Default for FakeApi {
    fn default() -> Self {
        Self { server: Arc::default(), name: "tl".to_owned(), label: None, own: Arc::default() }
    }
}

impl FakeApi {
    /// As an instance of a shard uses it.
    fn of(&self, group: &Group) -> Self {
        let label = group.is_shared().then_some(true);
        let (server, name) = (self.server.clone(), group.own_lease());
        Self { server, name, label, own: Arc::default() }
    }

    fn behaviour(&self, behaviour: Behaviour) {
        self.server.lock().unwrap().behaviour = behaviour;
    }

    fn edit(&self, edit: impl FnOnce(&mut LeaseRecord)) {
        let mut server = self.server.lock().unwrap();
        let mut record = server.leases.get(&self.name).cloned().unwrap_or_default().record;
        edit(&mut record);
        server.write(&self.name, record, None);
    }

    fn released() -> Self {
        let api = Self::default();
        api.edit(|record| record.lease_ms = 1_000);
        api
    }

    fn delete(&self) {
        self.server.lock().unwrap().leases.remove(&self.name);
    }

    fn lease(&self) -> StoredLease {
        self.server.lock().unwrap().leases.get(&self.name).cloned().unwrap_or_default()
    }

    fn holder(&self) -> String {
        self.lease().record.holder
    }
}

impl LeaseApi for FakeApi {
    async fn send(&mut self, request: &LeaseRequest) -> (LeaseResponse, Option<RequestFailure>) {
        let own = { *self.own.lock().unwrap() };
        let behaviour = own.unwrap_or_else(|| self.server.lock().unwrap().behaviour);
        let request_time = Duration::from_millis(TIMINGS.request_ms());
        let failed =
            |cause, text: &str| (LeaseResponse::Failed, Some(RequestFailure::new(cause, text)));
        let timed_out = failed(ErrorCause::TimedOut, "no response in time");
        match behaviour {
            Behaviour::Hangs => {
                sleep(request_time).await;
                return timed_out;
            }
            Behaviour::LandsLate(ms) if *request != LeaseRequest::Get => {
                let (api, request) = (self.clone(), request.clone());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(ms)).await;
                    api.server.lock().unwrap().answer(&api.name, &request, api.label);
                });
                sleep(request_time).await;
                return timed_out;
            }
            Behaviour::Fails => {
                return failed(ErrorCause::Other, "500 InternalError");
            }
            Behaviour::LosesResponses => {
                self.server.lock().unwrap().answer(&self.name, request, self.label);
                sleep(request_time).await;
                return timed_out;
            }
            Behaviour::Slow(ms) => sleep(Duration::from_millis(ms)).await,
            _ => sleep(Duration::from_millis(5)).await,
        }
        (self.server.lock().unwrap().answer(&self.name, request, self.label), None)
    }

    async fn list_group(&mut self) -> Result<Vec<(String, LeaseRecord)>, RequestFailure> {
        sleep(Duration::from_millis(5)).await;
        let own = { *self.own.lock().unwrap() };
        let mut server = self.server.lock().unwrap();
        server.lists += 1;
        if !matches!(own.unwrap_or(server.behaviour), Behaviour::Responds) {
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

fn is_acquired(event: EventKind) -> bool {
    match event {
        EventKind::LeadershipAcquired => true,
        EventKind::LeadershipLost => false,
        other => panic!("{other:?}"),
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
    instance_of(name, api, Shard::WHOLE, &ClusterTable::default())
}

fn instance_of(name: &str, api: &FakeApi, shard: Shard, clusters: &ClusterTable) -> Instance {
    instance_with(name, api, shard, clusters, TIMINGS)
}

fn instance_with(
    name: &str,
    api: &FakeApi,
    shard: Shard,
    clusters: &ClusterTable,
    timings: Timings,
) -> Instance {
    let (gate, keeper) = Gate::closed();
    let (changes, events) = mpsc::unbounded_channel();
    let metrics = Arc::new(Metrics::new());
    let (identity, orphans) = (name.to_owned(), OrphanMode::Report);
    let ((led, unled), (held, unheld)) = (Outside::channel(), Outside::channel());
    let (usable, clusters) = (Outside::default(), clusters.clone());
    let listeners =
        Listeners { events: changes, usable, led, held, metrics: metrics.clone(), clusters };
    let group = Group::new("tl", shard);
    let api = api.of(&group);
    let election =
        LeaderElection::start(api.clone(), identity, group, timings, keeper, orphans, listeners);
    Instance { election, metrics, gate, events, unled, unheld, api }
}

/// An instance that leads, and its API server.
async fn leader(name: &str) -> (FakeApi, Instance) {
    let api = FakeApi::released();
    let mut one = instance(name, &api);
    one.becomes(true, RETRY).await;
    (api, one)
}

impl Instance {
    /// Waits until it starts or stops leading, and returns how long that took.
    #[track_caller]
    fn becomes(
        &mut self,
        leads: bool,
        within: Duration,
    ) -> impl Future<Output = Duration> + use<'_> {
        let since = Instant::now();
        let place = std::panic::Location::caller();
        async move {
            let next = async {
                loop {
                    match self.events.recv().await {
                        Some(EventKind::LeadershipPending { .. }) => {}
                        event => return event,
                    }
                }
            };
            let event = timeout(within, next).await;
            let event = event.unwrap_or_else(|_| panic!("{place}: not within {within:?}"));
            assert_eq!(event.map(is_acquired), Some(leads), "{place}");
            assert_eq!(self.gate.is_open(), leads, "{place}: the gate");
            since.elapsed()
        }
    }

    /// Asserts that nothing changes for `long`.
    #[track_caller]
    fn stays(&mut self, long: Duration) -> impl Future<Output = ()> + use<'_> {
        let place = std::panic::Location::caller();
        async move {
            let event = timeout(long, self.events.recv()).await;
            assert!(event.is_err(), "{place}: {event:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_led_at_once() {
    let api = FakeApi::released();
    let mut one = instance("one", &api);
    assert!(one.becomes(true, RETRY).await < Duration::from_millis(100));
    assert_eq!(api.holder(), "one");
    one.stays(Duration::from_secs(3600)).await;
    assert!(one.gate.is_open());
    assert_eq!(api.server.lock().unwrap().events, ["one became leader"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_it_leads_only_after_a_lease_duration() {
    let api = FakeApi::default();
    let mut one = instance("one", &api);
    let after = one.becomes(true, 2 * LEASE).await;
    assert!((LEASE..LEASE + RETRY).contains(&after), "{after:?}");
    assert_eq!(api.holder(), "one");
}

/// The wait for a Lease that was not there is reported when it begins, once; and that it is over
/// when somebody else takes the Lease meanwhile. Waiting for another instance's Lease is none. Another
/// instance is named only where the Lease names one.
#[tokio::test(start_paused = true)]
async fn the_wait_for_a_lease_that_was_not_there_is_reported_once() {
    let log = Log::default();
    let _guard = log.capture();
    let api = FakeApi::default();
    let mut one = instance("one", &api);
    let first = one.events.recv().await;
    let Some(EventKind::LeadershipPending { wait_ms, .. }) = first else { panic!("{first:?}") };
    assert!(Duration::from_millis(wait_ms).abs_diff(LEASE) < Duration::from_millis(100));
    let then = one.events.recv().await;
    assert!(matches!(then, Some(EventKind::LeadershipAcquired)), "{then:?}");
    let said = log.text();
    for part in ["waiting up to 15 s for a Lease that was not there", "became leader"] {
        assert_eq!(said.matches(part).count(), 1, "{said}");
    }
    assert!(!said.contains("another instance"), "{said}");

    let api = FakeApi::default();
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
    let (api, mut one) = leader("one").await;
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
    let (api, mut one) = leader("one").await;
    for _ in 0..5 {
        api.behaviour(Behaviour::LosesResponses);
        one.stays(Duration::from_millis(TIMINGS.request_ms())).await;
        api.behaviour(Behaviour::Slow(1_500));
        one.stays(Duration::from_secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_lost_and_led_again_a_lease_duration_later() {
    let (api, mut one) = leader("one").await;
    api.delete();
    one.becomes(false, RETRY + RETRY).await;
    let after = one.becomes(true, 2 * LEASE).await;
    assert!(after > LEASE - RETRY, "{after:?}");
    assert_eq!(
        api.server.lock().unwrap().events,
        ["one became leader", "one stopped leading", "one became leader"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_gave_to_another_holder_is_waited_for() {
    let (api, mut one) = leader("one").await;
    api.edit(|record| record.holder = "somebody".to_owned());
    one.becomes(false, RETRY + RETRY).await;
    let after = one.becomes(true, 2 * LEASE).await;
    assert!((LEASE - RETRY..LEASE + RETRY).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_annotation_or_a_wrong_clock_changes_nothing() {
    let (api, mut one) = leader("one").await;
    for _ in 0..10 {
        api.edit(|_| {});
        one.stays(Duration::from_secs(5)).await;
    }
    // A record that is years old by its own timestamp does not expire before a lease duration.
    let api = FakeApi::default();
    api.edit(|record| {
        *record = LeaseRecord {
            holder: "another".to_owned(),
            lease_ms: 15_000,
            transitions: 7,
            renew_time: "2001-01-01T00:00:00.000000Z".to_owned(),
        };
    });
    let mut two = instance("two", &api);
    let after = two.becomes(true, 2 * LEASE).await;
    assert!((LEASE..LEASE + RETRY).contains(&after), "{after:?}");
    assert_eq!(api.lease().record.transitions, 8);
}
