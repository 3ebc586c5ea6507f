//! How a run ends: everything becomes right, stays so, and nothing is left over.

use std::time::Duration;

use throughline::core::contract::settings::OrphanMode;
use tokio::time::Instant;

use crate::instance::Instance;
use crate::plan::Report;
use crate::stage::Stage;

/// Everything is right so long after the last fault: a lease, a retry, a list, and the first
/// confirmation.
const RIGHT_WITHIN: Duration = Duration::from_secs(60);

impl Stage {
    pub(crate) fn broke(&self, what: String) {
        self.ledger.lock().unwrap().oracle.broken.push(what);
    }

    /// What differs from the truth upstream, in words.
    pub(crate) fn deviations(&self) -> Vec<String> {
        let mut found = self.world.deviations();
        if self.config.orphans.mode == OrphanMode::Delete {
            found.extend(self.world.orphans_left(&self.held_upstreams));
        }
        found
    }

    pub(crate) async fn becomes_right(&mut self) {
        let began = Instant::now();
        while began.elapsed() < RIGHT_WITHIN {
            for _ in 0..50 {
                self.step().await;
            }
            if self.deviations().is_empty() {
                return;
            }
        }
        let deviations = self.deviations();
        self.broke(format!("not right {} s after the last fault", RIGHT_WITHIN.as_secs()));
        deviations.into_iter().take(8).for_each(|deviation| self.broke(deviation));
    }

    pub(crate) async fn stays_right(&mut self, confirmed_within: Duration, quiet_for: Duration) {
        let began = Instant::now();
        while began.elapsed() < confirmed_within + quiet_for {
            self.step().await;
        }
        for deviation in self.deviations().into_iter().take(8) {
            self.broke(format!("right at first, and later {deviation}"));
        }
        let last = self.ledger.lock().unwrap().oracle.last_write;
        if let Some(quiet) = last.map(|last| last.elapsed()).filter(|quiet| *quiet < quiet_for) {
            self.broke(format!("a write {} s before the end", quiet.as_secs()));
        }
        let settings = self.config.settings();
        for (server, spec) in self.servers.iter().zip(&self.specs) {
            let watches = server.load().watches;
            if watches > self.instances.len() * settings.kinds_watched(&spec.roles).len() {
                self.broke(format!("{}: {watches} watches are left", spec.name));
            }
        }
        for (n, instance) in self.instances.iter().enumerate() {
            let tape = instance.tape.lock().unwrap();
            for stall in tape.stalls.iter().take(4) {
                self.broke(format!("instance {n} still reports a stall: {stall}"));
            }
            if tape.in_flight > 0 {
                self.broke(format!("instance {n} waits for {} actions", tape.in_flight));
            }
            if instance.has_ended() {
                self.broke(format!("instance {n} ended by itself"));
            }
        }
    }

    pub(crate) async fn ends(&mut self, within: Duration) {
        self.instances.iter().for_each(Instance::stop);
        let began = Instant::now();
        while began.elapsed() < within {
            self.step().await;
        }
        for (server, spec) in self.servers.iter().zip(&self.specs) {
            let load = server.load();
            if load.connections > 0 {
                self.broke(format!("{}: all instances have ended, and {load:?}", spec.name));
            }
        }
        for (n, instance) in self.lives().enumerate() {
            for problem in instance.verify(&format!("instance {n}")) {
                self.broke(format!("the event log of instance {n} does not verify: {problem}"));
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
            logs: self
                .lives()
                .map(|life| std::mem::take(&mut life.tape.lock().unwrap().log))
                .collect(),
        }
    }
}
