//! Who mirrors and deletes: election on a Lease. This is the shell of [`election`]: clock, timers,
//! requests, and what is told of it. It never ends the process, and never gives up.

pub mod election;
pub mod lease;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use crate::clock::until;
use crate::core::event::Happened;
use crate::gate::GateKeeper;
use crate::metrics::Metrics;
use election::{Answer, Election, Rules};
use lease::{Api, RenewTimes};

/// Failed attempts of one that does not lead are this many pauses apart at most.
const PAUSES_MAX: u64 = 4;
/// Tries to release the Lease.
const RELEASES_MAX: usize = 4;

/// Takes part in an election for as long as it lives.
#[derive(Debug)]
pub struct Leader {
    leave: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl Leader {
    /// Takes part from now on, as `me`: a name that nobody else ever has (see [`identity`]).
    /// `events` gets a [`Happened::LeadershipAcquired`] or [`Happened::LeadershipLost`] at each
    /// change, also when the claim ends by time alone.
    pub fn start<A: Api + 'static>(
        api: A,
        me: String,
        rules: Rules,
        keeper: GateKeeper,
        events: mpsc::UnboundedSender<Happened>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (leave, left) = oneshot::channel();
        info!(identity = me, "taking part in the election");
        let candidate = Candidate {
            election: Election::new(me.clone(), rules),
            me,
            rules,
            keeper,
            events,
            metrics,
            times: RenewTimes::default(),
            open_until: None,
            holder: String::new(),
            trouble: None,
            failures: 0,
            untold: Vec::new(),
        };
        let mut task = JoinSet::new();
        task.spawn(candidate.run(api, left));
        Self { leave, task }
    }

    /// Closes the gate and gives the Lease up, so that another replica can lead at once. All
    /// leader-only work must have ended; where it has not, drop this instead: the gate closes, and
    /// the Lease runs out.
    pub async fn release(mut self, within: Duration) {
        // Where nobody hears it, it is over already.
        let _ = self.leave.send(());
        if timeout(within, self.task.join_next()).await.is_err() {
            warn!("the Lease could not be released in time, and runs out by itself");
        }
    }
}

/// A name for this process and no other: the pod's, or host's, and something random.
pub fn identity() -> String {
    let read = |file| std::fs::read_to_string(file).ok();
    let host = std::env::var("HOSTNAME").ok().or_else(|| read("/etc/hostname"));
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| "throughline".to_owned());
    let (a, b) = (random(), random());
    let (c, d, e) = (a >> 16 & 0xffff, a & 0xffff, b & 0xffff_ffff_ffff);
    format!("{host}_{:08x}-{c:04x}-{d:04x}-{:04x}-{e:012x}", a >> 32, b >> 48)
}

/// Not for secrets: the standard library's hasher is seeded by the system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

struct Candidate {
    election: Election,
    me: String,
    rules: Rules,
    keeper: GateKeeper,
    events: mpsc::UnboundedSender<Happened>,
    metrics: Arc<Metrics>,
    times: RenewTimes,
    /// What was told: leading, until then.
    open_until: Option<u64>,
    /// Who held it, as was told.
    holder: String,
    /// Why attempts fail, as was told.
    trouble: Option<String>,
    /// Attempts that failed in a row.
    failures: u64,
    /// What is to be left as Kubernetes Events.
    untold: Vec<&'static str>,
}

impl Candidate {
    async fn run<A: Api>(mut self, mut api: A, mut left: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                // A write to the Lease that is cut off here counts as one whose answer was lost.
                () = self.take_turn(&mut api) => {}
                _ = &mut left => break,
            }
        }
        self.election.leave();
        self.publish();
        self.leave_events(&api);
        for _ in 0..RELEASES_MAX {
            self.attempt(&mut api).await;
            if !self.election.is_mine() {
                break;
            }
        }
    }

    /// An attempt, and the pause after it.
    async fn take_turn(&mut self, api: &mut impl Api) {
        let began = self.keeper.now_ms();
        self.attempt(api).await;
        let now = self.keeper.now_ms();
        let pauses = if self.election.holds(now) { 1 } else { self.failures.clamp(1, PAUSES_MAX) };
        let pause = self.rules.next_attempt(began, now).saturating_sub(now) * pauses;
        // Up to a fifth shorter, so that replicas that failed together don't come back together.
        let pause = pause - random() % (pause / 5 + 1);
        // Whoever waits for a Lease to run out is there when it does.
        let free = self.election.free_from().filter(|at| *at > now && self.failures == 0);
        let next = self.keeper.instant(free.unwrap_or(u64::MAX).min(now + pause));
        loop {
            tokio::select! {
                () = sleep_until(next) => break,
                () = until(self.turn()) => {
                    self.publish();
                    self.leave_events(api);
                }
            }
        }
    }

    fn leave_events(&mut self, api: &impl Api) {
        for told in self.untold.drain(..) {
            api.tell(format!("{} {told}", self.me));
        }
    }

    async fn attempt(&mut self, api: &mut impl Api) {
        let mut trouble = None;
        let mut next = self.election.begin(self.keeper.now_ms(), &self.times.another());
        while let Some(request) = next {
            let (answer, why) = {
                let mut ask = std::pin::pin!(api.ask(&request));
                loop {
                    tokio::select! {
                        answer = &mut ask => break answer,
                        // It hangs, and the claim is over meanwhile.
                        () = until(self.turn()) => self.publish(),
                    }
                }
            };
            // A conflict is how another's success looks, but for who holds the Lease.
            let refused = answer == Answer::Conflict && self.election.is_mine();
            trouble = (answer == Answer::Failed || refused).then(|| why.unwrap_or_default());
            let now = self.keeper.now_ms();
            next = self.election.answered(&request, answer, now, &self.times.another());
            self.publish();
            self.leave_events(api);
        }
        self.hear(trouble);
    }

    /// When the gate closes, or opens, by time alone.
    fn turn(&self) -> Option<Instant> {
        let opens = self.election.leads_from().filter(|from| *from > self.keeper.now_ms());
        Some(self.keeper.instant(self.open_until.or(opens)?))
    }

    /// Tells of what changed in an attempt: once per change, not once per try.
    fn hear(&mut self, trouble: Option<String>) {
        match (&trouble, &self.trouble) {
            (Some(error), None) => {
                warn!(error, "the election can't go on; tried again until it can");
            }
            (None, Some(_)) => info!("the election goes on"),
            _ => {}
        }
        self.failures = if trouble.is_some() { self.failures.saturating_add(1) } else { 0 };
        self.trouble = trouble;
        let holder = self.election.record().map_or("", |record| &record.holder);
        if holder != self.holder {
            if !holder.is_empty() && holder != self.me {
                info!(holder, "another replica holds the Lease");
            }
            self.metrics.lease_held_by(holder);
            self.holder = holder.to_owned();
        }
    }

    /// Opens and closes the gate, and tells of it.
    fn publish(&mut self) {
        let now = self.keeper.now_ms();
        let gate = self.election.gate(now);
        self.keeper.set(gate);
        let was_open = self.open_until.take();
        // One that was closed for a moment was closed: what was dropped then must be done again.
        let stayed_open = was_open.is_some_and(|until| now < until) && gate.is_some();
        if was_open.is_some() && !stayed_open {
            let because = self.why_lost();
            if self.election.is_leaving() {
                info!(because, "no longer the leader: mirroring and deleting have stopped");
            } else {
                warn!(because, "no longer the leader: mirroring and deleting stop");
            }
            self.untold.push("stopped leading");
            self.metrics.leader(false);
            drop(self.events.send(Happened::LeadershipLost));
        }
        if gate.is_some() && !stayed_open {
            info!("leader: mirroring and deleting start");
            self.untold.push("became leader");
            self.metrics.leader(true);
            drop(self.events.send(Happened::LeadershipAcquired));
        }
        self.open_until = gate;
        let renewed = self.election.renewed_at().map(|ms| self.keeper.instant(ms));
        self.metrics.lease(renewed, gate.map(|ms| self.keeper.instant(ms)));
    }

    fn why_lost(&self) -> String {
        match self.election.record() {
            _ if self.election.is_leaving() => "stopping".to_owned(),
            None => "the Lease was deleted".to_owned(),
            Some(record) if record.holder.is_empty() => "somebody edited the Lease".to_owned(),
            Some(record) if record.holder != self.me => format!("{} holds it", record.holder),
            Some(_) => match &self.trouble {
                Some(error) => format!("it could not be renewed: {error}"),
                None => "its renewal was not answered in time".to_owned(),
            },
        }
    }
}
