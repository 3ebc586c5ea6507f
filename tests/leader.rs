//! A replica in an election whose Lease API answers, hangs, refuses and lies. Time is paused: it
//! goes on only when everybody waits for it.

#![allow(missing_docs, unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline::core::event::Happened;
use throughline::gate::Gate;
use throughline::leader::Leader;
use throughline::leader::election::{Answer, Record, Request, Rules};
use throughline::leader::lease::Api;
use throughline::metrics::Metrics;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

const RULES: Rules =
    Rules { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
const LEASE: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Default)]
enum Mood {
    #[default]
    Answers,
    /// After so many milliseconds.
    Slow(u64),
    /// It lands, and the answer never comes.
    LosesAnswers,
    Hangs,
    Fails,
    /// Somebody was always faster.
    Conflicts,
}

#[derive(Default)]
struct Server {
    lease: Option<(Record, u64)>,
    version: u64,
    mood: Mood,
    asked: usize,
    told: Vec<String>,
}

impl Server {
    fn write(&mut self, record: Record) -> Answer {
        self.version += 1;
        self.lease = Some((record.clone(), self.version));
        Answer::Is(record, self.version.to_string())
    }

    fn answer(&mut self, request: &Request) -> Answer {
        match (request, self.lease.clone()) {
            (Request::Get, None) => Answer::Missing,
            (Request::Get, Some((record, version))) => Answer::Is(record, version.to_string()),
            (_, _) if matches!(self.mood, Mood::Conflicts) => Answer::Conflict,
            (Request::Create(record), None) => self.write(record.clone()),
            (Request::Update(record, version), Some((_, is))) if *version == is.to_string() => {
                self.write(record.clone())
            }
            _ => Answer::Conflict,
        }
    }
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Server>>);

impl Fake {
    fn mood(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    fn edit(&self, edit: impl FnOnce(&mut Record)) {
        let mut server = self.0.lock().unwrap();
        let mut record = server.lease.clone().unwrap_or_default().0;
        edit(&mut record);
        server.write(record);
    }

    fn released() -> Self {
        let fake = Self::default();
        fake.edit(|record| record.lease_ms = 1_000);
        fake
    }

    fn holder(&self) -> String {
        let server = self.0.lock().unwrap();
        server.lease.as_ref().map(|(record, _)| record.holder.clone()).unwrap_or_default()
    }
}

impl Api for Fake {
    async fn ask(&mut self, request: &Request) -> (Answer, Option<String>) {
        let mood = {
            let mut server = self.0.lock().unwrap();
            server.asked += 1;
            server.mood
        };
        let try_ms = Duration::from_millis(RULES.try_ms());
        let late = (Answer::Failed, Some("no answer in time".to_owned()));
        match mood {
            Mood::Hangs => {
                sleep(try_ms).await;
                return late;
            }
            Mood::Fails => return (Answer::Failed, Some("500 InternalError".to_owned())),
            Mood::LosesAnswers => {
                self.0.lock().unwrap().answer(request);
                sleep(try_ms).await;
                return late;
            }
            Mood::Slow(ms) => sleep(Duration::from_millis(ms)).await,
            Mood::Answers | Mood::Conflicts => sleep(Duration::from_millis(5)).await,
        }
        (self.0.lock().unwrap().answer(request), None)
    }

    fn tell(&self, message: String) {
        self.0.lock().unwrap().told.push(message);
    }
}

fn is_acquired(event: Happened) -> bool {
    match event {
        Happened::LeadershipAcquired => true,
        Happened::LeadershipLost => false,
        other => panic!("{other:?}"),
    }
}

struct Replica {
    leader: Leader,
    gate: Gate,
    events: mpsc::UnboundedReceiver<Happened>,
}

fn replica(name: &str, fake: &Fake) -> Replica {
    let (gate, keeper) = Gate::closed();
    let (tell, events) = mpsc::unbounded_channel();
    let metrics = Arc::new(Metrics::new());
    let leader = Leader::start(fake.clone(), name.to_owned(), RULES, keeper, tell, metrics);
    Replica { leader, gate, events }
}

impl Replica {
    /// It leads, or no longer does, within this time; after how long.
    #[track_caller]
    fn becomes(
        &mut self,
        leads: bool,
        within: Duration,
    ) -> impl Future<Output = Duration> + use<'_> {
        let since = Instant::now();
        let place = std::panic::Location::caller();
        async move {
            let event = timeout(within, self.events.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("{place}: not within {within:?}"));
            assert_eq!(event.map(is_acquired), Some(leads), "{place}");
            assert_eq!(self.gate.is_open(), leads, "{place}: the gate");
            since.elapsed()
        }
    }

    /// Nothing changes for so long.
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
async fn a_released_lease_is_led_by_at_once() {
    let fake = Fake::released();
    let mut one = replica("one", &fake);
    assert!(one.becomes(true, RETRY).await < Duration::from_millis(100));
    assert_eq!(fake.holder(), "one");
    one.stays(Duration::from_secs(3600)).await;
    assert!(one.gate.is_open());
    assert_eq!(fake.0.lock().unwrap().told, ["one became leader"]);
}

#[tokio::test(start_paused = true)]
async fn where_there_was_no_lease_it_waits_one_out() {
    let fake = Fake::default();
    let mut one = replica("one", &fake);
    let after = one.becomes(true, 2 * LEASE).await;
    assert!((LEASE..LEASE + RETRY).contains(&after), "{after:?}");
    assert_eq!(fake.holder(), "one");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_ends_the_claim_in_time_however_often() {
    let fake = Fake::released();
    let mut one = replica("one", &fake);
    one.becomes(true, RETRY).await;
    for mood in [Mood::Hangs, Mood::Fails, Mood::Conflicts, Mood::Hangs] {
        sleep(Duration::from_secs(7)).await;
        fake.mood(mood);
        let gate = Duration::from_millis(RULES.gate_ms());
        let after = one.becomes(false, gate + Duration::from_millis(5)).await;
        assert!(after > gate - RETRY - Duration::from_millis(50), "{after:?}");
        // For hours; nobody is told of it again.
        one.stays(Duration::from_secs(4 * 3600)).await;
        fake.mood(Mood::Answers);
        one.becomes(true, 8 * RETRY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_slow_ones_do_not_lose_the_lease() {
    let fake = Fake::released();
    let mut one = replica("one", &fake);
    one.becomes(true, RETRY).await;
    for _ in 0..5 {
        fake.mood(Mood::LosesAnswers);
        one.stays(Duration::from_millis(RULES.try_ms())).await;
        fake.mood(Mood::Slow(1_500));
        one.stays(Duration::from_secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_lost_and_led_by_a_lease_later() {
    let fake = Fake::released();
    let mut one = replica("one", &fake);
    one.becomes(true, RETRY).await;
    fake.0.lock().unwrap().lease = None;
    one.becomes(false, RETRY + RETRY).await;
    let after = one.becomes(true, 2 * LEASE).await;
    assert!(after > LEASE - RETRY, "{after:?}");
    assert_eq!(
        fake.0.lock().unwrap().told,
        ["one became leader", "one stopped leading", "one became leader"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_hand_gave_to_another_is_waited_for() {
    let fake = Fake::released();
    let mut one = replica("one", &fake);
    one.becomes(true, RETRY).await;
    fake.edit(|record| record.holder = "somebody".to_owned());
    one.becomes(false, RETRY + RETRY).await;
    let after = one.becomes(true, 2 * LEASE).await;
    assert!((LEASE - RETRY..LEASE + RETRY).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_annotation_and_a_clock_that_is_off_change_nothing() {
    let fake = Fake::released();
    let mut one = replica("one", &fake);
    one.becomes(true, RETRY).await;
    for _ in 0..10 {
        fake.edit(|_| {});
        one.stays(Duration::from_secs(5)).await;
    }
    // Another replica's record, from a year ago by its own clock: not free before a lease is over.
    let fake = Fake::default();
    fake.edit(|record| {
        *record = Record {
            holder: "another".to_owned(),
            lease_ms: 15_000,
            transitions: 7,
            renewed: "2001-01-01T00:00:00.000000Z".to_owned(),
        };
    });
    let mut two = replica("two", &fake);
    let after = two.becomes(true, 2 * LEASE).await;
    assert!((LEASE..LEASE + RETRY).contains(&after), "{after:?}");
    assert_eq!(fake.0.lock().unwrap().lease.as_ref().unwrap().0.transitions, 8);
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_hands_over_within_a_retry_period_and_a_crash_within_a_lease_and_one() {
    let fake = Fake::released();
    let mut one = replica("one", &fake);
    one.becomes(true, RETRY).await;
    let mut two = replica("two", &fake);
    two.stays(Duration::from_secs(61)).await;
    let since = Instant::now();
    one.leader.release(RETRY).await;
    assert!(!one.gate.is_open());
    assert_eq!(one.events.recv().await.map(is_acquired), Some(false));
    two.becomes(true, RETRY).await;
    assert!(since.elapsed() <= RETRY, "{:?}", since.elapsed());

    let mut three = replica("three", &fake);
    three.stays(Duration::from_secs(61)).await;
    drop(two.leader);
    // Who was dropped closes its gate at once.
    tokio::task::yield_now().await;
    assert!(!two.gate.is_open());
    let after = three.becomes(true, LEASE + RETRY).await;
    assert!(after > LEASE - RETRY, "{after:?}");
}

/// However the attempts of the two fall: counted from the crash, of which nobody hears.
#[tokio::test(start_paused = true)]
async fn a_crash_is_made_up_for_within_a_lease_and_a_retry_period() {
    for round in 0..200 {
        let fake = Fake::released();
        let mut one = replica("one", &fake);
        one.becomes(true, RETRY).await;
        let mut two = replica("two", &fake);
        two.stays(Duration::from_secs(20) + Duration::from_millis(round * 37)).await;
        let renewals = || fake.0.lock().unwrap().version;
        let before = renewals();
        while renewals() == before {
            sleep(Duration::from_millis(1)).await;
        }
        drop(one.leader);
        let after = two.becomes(true, LEASE + 2 * RETRY).await;
        // Each of the timers on the way rounds up to a millisecond.
        let timers = Duration::from_millis(5);
        assert!(after <= LEASE + RETRY + timers, "{after:?} in round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn three_replicas_through_all_moods_never_open_two_gates() {
    let fake = Fake::released();
    let mut replicas = ["one", "two", "three"].map(|name| replica(name, &fake));
    let moods = [
        Mood::Answers,
        Mood::Fails,
        Mood::Slow(2_100),
        Mood::LosesAnswers,
        Mood::Hangs,
        Mood::Answers,
        Mood::Conflicts,
    ];
    let mut led = 0;
    for step in 0..20_000_usize {
        if step % 400 == 0 {
            fake.mood(moods[step / 400 % moods.len()]);
        }
        if step % 1_300 == 7 {
            fake.0.lock().unwrap().lease = None;
        }
        sleep(Duration::from_millis(100)).await;
        let open = replicas.iter().filter(|replica| replica.gate.is_open()).count();
        assert!(open <= 1, "{open} gates are open at step {step}");
        led += open;
    }
    assert!(led > 5_000, "led in {led} of 20000 steps only");
    // Each hears of its own changes by turns.
    for replica in &mut replicas {
        let mut leads = false;
        while let Ok(event) = replica.events.try_recv() {
            assert_eq!(is_acquired(event), !leads);
            leads = !leads;
        }
    }
}
