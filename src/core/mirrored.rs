//! What becomes of a mirror: its outcome, and other writers that spoil it.

use super::action::AnomalyKind;
use super::event::Outcome;
use super::flight::{Landed, doubled};
use super::ids::{ActionId, ClusterId, Key, ResourceVersion};
use super::machine::Machine;
use super::objects::UPSTREAM_STATUS;
use super::settings::MirrorSettings;

impl Machine {
    /// Another writer changed what was right.
    pub(crate) fn replica_spoiled(&mut self, id: ClusterId, key: Key) {
        let now = self.desk.now;
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let settings = &self.desk.settings.mirror;
        let trouble = replica.trouble.get_or_insert_default();
        if now.since(trouble.spoiled_at) > settings.contention_quiet_ms {
            trouble.spoils = 0;
        }
        trouble.spoils += 1;
        trouble.spoiled_at = now;
        if trouble.spoils < settings.contention_count {
            return;
        }
        let pause_ms = contention_pause(settings, trouble.spoils);
        trouble.flight.pause_until(now.plus(pause_ms));
        let (spoils, told) = (trouble.spoils, settings.contention_is_told(trouble.spoils));
        if let Some(cluster) = self.cluster(id).map(|c| c.name.clone())
            && told
        {
            let detail = format!(
                "another writer keeps changing {UPSTREAM_STATUS} ({spoils} times by now); \
                 the right value is written again after a pause of {pause_ms} ms"
            );
            self.desk.anomaly(AnomalyKind::Contention, &cluster, Some(key), detail);
        }
    }

    pub(crate) fn replica_written(
        &mut self,
        id: ClusterId,
        key: Key,
        action: ActionId,
        outcome: &Outcome,
    ) {
        let now = self.desk.now;
        let retry = self.desk.settings.retry;
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let Some(trouble) = replica.trouble.as_deref_mut() else { return };
        if trouble.flight.in_flight != Some(action) {
            return;
        }
        let landed = trouble.flight.land(now, outcome, &retry);
        let (writing, seen_since) = (trouble.writing.take(), trouble.seen_since);
        match (&landed, writing) {
            (Landed::Yes, writing) => {
                let rv = match outcome {
                    Outcome::Applied { resource_version: Some(rv), .. } => ResourceVersion::new(rv),
                    _ => ResourceVersion::Absent,
                };
                // The watch may have shown this write, and even a later one, before its outcome.
                if replica.rv.is_older_than(&rv) {
                    replica.rv = rv;
                    replica.meaning = writing.unwrap_or(replica.meaning);
                } else if rv == ResourceVersion::Absent && !seen_since {
                    replica.meaning = writing.unwrap_or(replica.meaning);
                } else if rv == ResourceVersion::Absent
                    && writing.is_some_and(|w| w != replica.meaning)
                {
                    // Which of the two came first is not known: let the watch catch up.
                    trouble.flight.pause_until(now.plus(retry.first_ms));
                }
                if writing.is_none() {
                    self.nudged(id, key);
                }
            }
            (Landed::Refused, _) => {
                let error = trouble.flight.error.clone().unwrap_or_default();
                if let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) {
                    let detail = format!(
                        "the API server refuses the write: {error}; it is tried again in {} s, or \
                         when upstream changes",
                        retry.refused_ms / 1000
                    );
                    self.desk.anomaly(AnomalyKind::Refused, &cluster, Some(key), detail);
                }
            }
            // What it conflicts with was seen before its outcome: nothing to wait for.
            (Landed::No, _) if seen_since => trouble.flight.seen(),
            (Landed::No, _) => {}
        }
        self.evaluate_replica(id, key);
    }
}

fn contention_pause(settings: &MirrorSettings, spoils: u32) -> u64 {
    let times = spoils - settings.contention_count;
    doubled(settings.contention_backoff_ms, times, settings.contention_backoff_max_ms)
}
