//! The lives of instances: who starts beside the others, who crashes, and who has to be restarted.

use std::time::Duration;

use tokio::time::Instant;

use crate::fault_kind::FaultKind;
use crate::faults::ActiveFault;
use crate::stage::Stage;

/// A crashed instance starts again after this long.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// The instance that crashes.
pub(crate) struct Crash {
    pub(crate) instance: usize,
    restarts_at: Option<Instant>,
}

impl Stage {
    /// From now on counts the crash points of an instance, which ends at one of them.
    pub(crate) fn arm(&mut self, instance: usize, ends_at: Option<u64>) {
        self.instances[instance].computer.probe.arm(ends_at);
        self.crash = Some(Crash { instance, restarts_at: None });
    }

    pub(crate) fn restart_crashed(&mut self) {
        let Some(crash) = &mut self.crash else { return };
        let instance = crash.instance;
        match crash.restarts_at {
            None if self.instances[instance].computer.probe.is_dead() => {
                crash.restarts_at = Some(Instant::now() + RESTART_AFTER);
                self.kill(instance);
            }
            Some(at) if at <= Instant::now() => {
                self.crash = None;
                self.restart(instance);
            }
            _ => {}
        }
    }

    /// Kills all instances once one has touched a Gateway, as where they share a node.
    pub(crate) fn kill_after_touch(&mut self) {
        let touches = self.ledger.lock().unwrap().touches;
        let Some((_, away)) = self.killed_after.take_if(|(before, _)| touches > *before) else {
            return;
        };
        self.note("all instances are killed");
        let (kind, ends_at) = (FaultKind::KilledAfterTouch, Instant::now() + away);
        for instance in 0..self.instances.len() {
            self.kill(instance);
            let end = Box::new(move |stage: &mut Self| stage.restart(instance));
            self.active.push(ActiveFault { kind, ends_at, end });
        }
    }

    /// See [`Histories`].
    pub(crate) fn restart_deceived(&mut self) {
        let deceived = self.ledger.lock().unwrap().histories.deceived.clone();
        for instance in 0..self.instances.len() {
            if deceived.contains(&self.client(instance)) {
                self.note(&format!("restart of instance {instance}"));
                self.restart(instance);
            }
        }
    }

    pub(crate) fn thaw(&self, instance: usize) {
        self.instances[instance].computer.thaw();
        self.ledger.lock().unwrap().oracle.thawed(self.client(instance), Instant::now());
    }

    /// An instance starts although as many run as there should be.
    pub(crate) fn start_twin(&mut self) {
        let twin = self.new_instance(0);
        self.twins.push(twin);
    }

    pub(crate) fn stop_twin(&mut self) {
        let twin = self.twins.remove(0);
        twin.stop();
        self.ended.push(twin);
    }

    /// The resourceVersion that a server had so many seconds ago.
    pub(crate) fn version_ago(&self, server: usize, seconds: usize) -> u64 {
        let at = self.versions.len().saturating_sub(1 + seconds);
        self.versions.get(at).map_or_else(|| self.servers[server].version(), |all| all[server])
    }
}
