//! How a run ends: everything becomes right, stays so, and nothing is left over.

use std::collections::BTreeSet;
use std::time::Duration;

use throughline::core::contract::action::Action;
use throughline::core::contract::cause::{Cause, Problem};
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::Role;
use tokio::time::Instant;

use crate::discovery::{Discovery, STRANGER};
use crate::instance::Instance;
use crate::plan::Report;
use crate::stage::Stage;

/// Nothing is written for so long before the end.
pub(crate) const QUIET_FOR: Duration = Duration::from_secs(30);
/// An action has its outcome so long after it was decided and the last fault is over: requests that hang
/// time out, and the attempts that follow succeed.
const OUTCOME_WITHIN: Duration = Duration::from_secs(15);
/// An instance may hold so many times what one holds that has just started, and so much more: maps do not
/// give back their room, and a leader knows more than one that waits.
const HELD_TIMES: f64 = 2.0;
const HELD_MORE: i64 = 64 * 1024;

/// Everything is right so long after the last fault: a lease, a retry, a list, the first confirmation.
const RIGHT_WITHIN: Duration = Duration::from_secs(60);
/// A cluster that was made again three times within a minute joins again only when that minute is over.
const JOINED_WITHIN: Duration = Duration::from_secs(60);
/// An instance that starts has listed everything after this.
const LISTS_WITHIN: Duration = Duration::from_secs(20);
/// What begins in runs without faults, too: agents roam, and that is deferred.
const OF_ANY_RUN: [Cause; 1] = [Cause::Deferred];
/// Whoever creates the Lease waits for its duration first: meanwhile nothing is mirrored.
const MIRRORS_WITHIN: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default)]
pub(crate) struct AtRest {
    pub(crate) deviations: Vec<String>,
    pub(crate) last_write: Option<Duration>,
    /// Watches that no instance needs, what is wrong as an instance says, and instances that have ended
    /// though nobody stopped them.
    pub(crate) left: Vec<String>,
    /// Actions without an outcome, and for how long they could have had one.
    pub(crate) open: Vec<(Duration, String)>,
}

impl AtRest {
    pub(crate) fn late_outcomes(&self) -> Vec<String> {
        let late = self.open.iter().filter(|(open, _)| *open > OUTCOME_WITHIN);
        late.map(|(open, what)| format!("{what} has no outcome after {} s", open.as_secs()))
            .collect()
    }

    /// What must not be so at the end. `quiet_for`: for so long nothing was to be written.
    pub(crate) fn broken(&self, quiet_for: Duration) -> Vec<String> {
        let last_write = self.last_write.filter(|ago| *ago < quiet_for);
        let deviations = self.deviations.iter().map(|what| format!("right at first, later {what}"));
        deviations
            .chain(last_write.map(|ago| format!("a write {} s before the end", ago.as_secs())))
            .chain(self.left.iter().cloned())
            .chain(self.open.iter().map(|(_, what)| format!("{what} has no outcome")))
            .collect()
    }
}

/// What an instance holds in memory at rest, beside what one holds that has just started in the same world.
pub(crate) fn grown(name: &str, held: i64, fresh: i64) -> Option<String> {
    let most = HELD_TIMES * fresh as f64 + HELD_MORE as f64;
    (held as f64 > most)
        .then(|| format!("{name} holds {held} bytes at rest; one that has just started {fresh}"))
}

fn brief(action: &Action) -> String {
    format!("{} {} in {}", action.verb.as_str(), action.object, action.cluster)
}

impl Stage {
    pub(crate) fn broke(&self, what: impl IntoIterator<Item = String>) {
        self.ledger.lock().unwrap().oracle.broken.extend(what);
    }

    pub(crate) fn is_broken(&self) -> bool {
        !self.ledger.lock().unwrap().oracle.broken.is_empty()
    }

    /// Judges the world at rest. `since`: nothing has failed since then.
    fn rest(&self, since: Instant) -> AtRest {
        let (mut left, mut open) = (self.watches_left(), Vec::new());
        for (n, instance) in self.instances.iter().enumerate() {
            let tape = instance.tape.lock().unwrap();
            let lasting = tape.problems.values().filter(|problem| !self.may_stay(problem));
            left.extend(lasting.map(|problem| format!("still wrong: {}", problem.sentence())));
            left.extend(instance.has_ended().then(|| format!("instance {n} ended by itself")));
            let open_for = |at: &Instant| at.max(&since).elapsed();
            open.extend(tape.open.values().map(|(at, action)| (open_for(at), brief(action))));
        }
        let mut deviations = self.world.deviations();
        if self.config.orphans.mode == OrphanMode::Delete {
            deviations.extend(self.world.orphans_left(&self.held_upstreams));
        }
        AtRest {
            deviations,
            last_write: self.ledger.lock().unwrap().oracle.last_write.map(|at| at.elapsed()),
            left,
            open,
        }
    }

    /// The servers with more watches than the instances need.
    fn watches_left(&self) -> Vec<String> {
        let (settings, instances) = (self.config.settings(), self.instances.len());
        let is_discovered = self.plan.discovery == Discovery::Secrets;
        let servers = self.servers.iter().zip(&self.specs);
        let watches = servers.map(|(server, spec)| (spec, server.load().watches));
        let left = watches.filter(|(spec, watches)| {
            let of_source = usize::from(spec.roles.contains(&Role::Hub) && is_discovered);
            *watches > instances * (settings.kinds_watched(&spec.roles).len() + of_source)
        });
        left.map(|(spec, watches)| format!("{}: {watches} watches are left", spec.name)).collect()
    }

    async fn half_a_second(&mut self, since: Instant) -> AtRest {
        self.pass(Duration::from_millis(500)).await;
        let rest = self.rest(since);
        self.broke(rest.late_outcomes());
        rest
    }

    pub(crate) async fn becomes_right(&mut self) {
        self.note_truth();
        let began = Instant::now();
        let is_discovered = self.plan.discovery != Discovery::None;
        let within = if is_discovered { RIGHT_WITHIN + JOINED_WITHIN } else { RIGHT_WITHIN };
        while !self.is_broken() {
            let rest = self.half_a_second(began).await;
            if rest.deviations.is_empty() {
                return;
            }
            if began.elapsed() > within {
                let seconds = within.as_secs();
                self.broke([format!("not right {seconds} s after the last fault")]);
                self.broke(rest.deviations);
            }
        }
    }

    /// Lets the time pass in which everything has to stay right, and to come to rest.
    pub(crate) async fn stays_right(&mut self, confirmed_within: Duration, quiet_for: Duration) {
        let began = Instant::now();
        while began.elapsed() < confirmed_within + quiet_for && !self.is_broken() {
            self.half_a_second(began).await;
        }
        if !self.is_broken() {
            self.broke(self.rest(began).broken(quiet_for));
        }
    }

    /// Weighs each instance beside one that has just started: what it frees when it is killed.
    pub(crate) async fn weigh(&mut self) {
        if self.is_broken() {
            return;
        }
        let fresh = self.new_instance(0);
        self.pass(LISTS_WITHIN).await;
        let before: Vec<_> = self.instances.iter().map(|i| i.computer.released()).collect();
        let before_fresh = fresh.computer.released();
        self.instances.iter().for_each(Instance::kill);
        fresh.kill();
        self.pass(Duration::from_secs(1)).await;
        let fresh_held = fresh.computer.released() - before_fresh;
        for (n, (instance, before)) in self.instances.iter().zip(before).enumerate() {
            let held = instance.computer.released() - before;
            self.broke(grown(&format!("instance {n}"), held, fresh_held));
        }
        self.ended.push(fresh);
    }

    pub(crate) async fn pass(&mut self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.step().await;
        }
    }

    pub(crate) async fn ends(&mut self, within: Duration) {
        self.instances.iter().for_each(Instance::stop);
        self.pass(within).await;
        self.broke(self.unexplained());
        // What made an instance panic would make the replay of its log panic, too.
        if self.is_broken() {
            return;
        }
        let open = self.network.open_connections().into_iter();
        self.broke(open.map(|host| format!("a connection to {host} outlives all instances")));
        let (sent, hub) = (self.network.sent.lock().unwrap(), self.address_of(self.hub()));
        for (n, instance) in self.lives().enumerate() {
            self.broke(instance.verify(&format!("instance {n}")));
            let mut ledger = self.ledger.lock().unwrap();
            let tape = instance.tape.lock().unwrap();
            let client = instance.computer.client;
            for write in sent.iter().filter(|write| write.client == client && write.host == hub) {
                ledger.oracle.sent(write, &tape.leadership);
            }
            tape.done.iter().for_each(|done| ledger.oracle.done(client, done));
            tape.forgotten.iter().for_each(|action| ledger.oracle.forgotten(client, action));
            tape.lists.iter().for_each(|list| ledger.oracle.complete(client, list));
        }
    }

    /// What began, and no fault of the plan opens.
    fn unexplained(&self) -> Vec<String> {
        let faults = self.plan.faults.iter().flat_map(|kind| kind.causes()).copied();
        let explained: BTreeSet<_> = faults.flatten().chain(&OF_ANY_RUN).collect();
        let waits_until = self.ledger.lock().unwrap().started + MIRRORS_WITHIN;
        let mut found = Vec::new();
        for life in self.lives() {
            for (cause, (at, sentence)) in &life.tape.lock().unwrap().began {
                let waits = *cause == Cause::NotMirrored && *at < waits_until;
                if !explained.contains(cause) && !waits {
                    let client = life.computer.client;
                    found.push(format!("instance {client}: no fault opens {cause:?}: {sentence}"));
                }
            }
        }
        found
    }

    /// Whether a problem is true for good after the last fault.
    fn may_stay(&self, problem: &Problem) -> bool {
        let Problem { cause, about, .. } = problem;
        match cause {
            // Until a restart.
            Cause::UpstreamRestored => {
                let name = |upstream: &usize| &self.world.names.upstreams[*upstream];
                self.held_upstreams.iter().map(name).any(|name| *name == about.cluster)
            }
            Cause::Orphaned if self.config.orphans.mode == OrphanMode::Report => {
                let mut orphans = self.world.sites.iter().filter(|site| site.is_orphan());
                orphans.any(|site| about.object.as_ref() == Some(&site.route))
            }
            Cause::KubeconfigInvalid => about.cluster.as_str() == STRANGER,
            _ => false,
        }
    }

    /// Every life of every instance, those that ended first.
    pub(crate) fn lives(&self) -> impl Iterator<Item = &Instance> {
        self.ended.iter().chain(&self.instances)
    }

    pub(crate) fn report(self) -> Report {
        let mut ledger = self.ledger.lock().unwrap();
        let began = |life: &Instance| life.tape.lock().unwrap().began.keys().copied().collect();
        Report {
            plan: self.plan.clone(),
            broken: std::mem::take(&mut ledger.oracle.broken),
            trace: std::mem::take(&mut ledger.trace),
            writes: ledger.oracle.writes,
            simulated: ledger.started.elapsed(),
            injected: self.injected.clone(),
            began: self.lives().flat_map::<Vec<_>, _>(began).collect(),
            drawn: self.drawn,
            logs: self.lives().map(|life| life.tape.lock().unwrap().log().to_vec()).collect(),
        }
    }
}
