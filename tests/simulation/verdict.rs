//! How a run ends: everything becomes right, stays so, and nothing is left over.

use std::time::Duration;

use throughline::core::contract::action::Action;
use throughline::core::contract::cause::Problem;
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::Role;
use tokio::time::Instant;

use crate::discovery::Discovery;
use crate::instance::Instance;
use crate::plan::Report;
use crate::rest::{AtRest, grown};
use crate::stage::Stage;

/// Everything is right so long after the last fault: a lease, a retry, a list, and the first
/// confirmation.
const RIGHT_WITHIN: Duration = Duration::from_secs(60);

/// A cluster that was made again three times within a minute joins again only when that minute is over.
const JOINED_WITHIN: Duration = Duration::from_secs(60);

/// An instance that starts has listed everything after this.
const LISTS_WITHIN: Duration = Duration::from_secs(20);

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

    /// What differs from the truth upstream, in words.
    pub(crate) fn deviations(&self) -> Vec<String> {
        let mut found = self.world.deviations();
        if self.config.orphans.mode == OrphanMode::Delete {
            found.extend(self.world.orphans_left(&self.held_upstreams));
        }
        found
    }

    /// Judges the world at rest. `since`: nothing has failed since then.
    fn rest(&self, since: Instant) -> AtRest {
        let (mut problems, mut open) = (Vec::new(), Vec::new());
        for instance in &self.instances {
            let tape = instance.tape.lock().unwrap();
            let lasting = tape.problems.values().filter(|problem| !self.may_stay(problem));
            problems.extend(lasting.map(Problem::sentence));
            let open_for = |at: &Instant| at.max(&since).elapsed();
            open.extend(tape.open.values().map(|(at, action)| (open_for(at), brief(action))));
        }
        AtRest {
            deviations: self.deviations(),
            last_write: self.ledger.lock().unwrap().oracle.last_write.map(|at| at.elapsed()),
            left: self.watches_left(),
            problems,
            open,
            ended: self.instances.iter().filter(|instance| instance.has_ended()).count(),
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
        for _ in 0..50 {
            self.step().await;
        }
        let rest = self.rest(since);
        self.broke(rest.late_outcomes());
        rest
    }

    /// Lets the time pass in which everything becomes right.
    pub(crate) async fn becomes_right(&mut self) {
        self.note_truth();
        let began = Instant::now();
        let within = match self.plan.discovery {
            Discovery::None => RIGHT_WITHIN,
            _ => RIGHT_WITHIN + JOINED_WITHIN,
        };
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

    async fn pass(&mut self, time: Duration) {
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
        for (host, count) in self.network.open_connections() {
            self.broke([format!(
                "all instances have ended, and {count} connections to {host} have not"
            )]);
        }
        let (sent, hub) = (self.network.sent(), self.address_of(self.hub()));
        for (n, instance) in self.lives().enumerate() {
            self.broke(instance.verify(&format!("instance {n}")));
            let mut ledger = self.ledger.lock().unwrap();
            let tape = instance.tape.lock().unwrap();
            let client = instance.computer.client;
            for write in sent.iter().filter(|write| write.client == client && write.host == hub) {
                ledger.oracle.sent(write, &tape.leadership);
            }
            for done in &tape.done {
                ledger.oracle.done(client, done);
            }
            for action in &tape.forgotten {
                ledger.oracle.forgotten(client, action);
            }
            for list in &tape.lists {
                ledger.oracle.complete(client, list);
            }
        }
    }

    /// Every life of every instance, those that ended first.
    pub(crate) fn lives(&self) -> impl Iterator<Item = &Instance> {
        self.ended.iter().chain(&self.instances)
    }

    pub(crate) fn report(self) -> Report {
        let mut ledger = self.ledger.lock().unwrap();
        Report {
            plan: self.plan.clone(),
            broken: std::mem::take(&mut ledger.oracle.broken),
            trace: std::mem::take(&mut ledger.trace),
            writes: ledger.oracle.writes,
            simulated: ledger.started.elapsed(),
            injected: self.injected.clone(),
            began: self.began(),
            drawn: self.drawn,
            logs: self
                .lives()
                .map(|life| std::mem::take(&mut life.tape.lock().unwrap().log))
                .collect(),
        }
    }
}
