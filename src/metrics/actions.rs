//! Counts of actions: what waits, what is under way, how it ends.

use std::time::Duration;

use super::counts::{QUEUE, by, lane};
use super::{Metrics, set};
use crate::core::contract::action::{Action, Verb};
use crate::core::contract::event::Outcome;
use crate::core::data::ids::{ClusterName, Kind};

impl Metrics {
    pub fn action_queued(&self, verb: Verb) {
        self.instruments.queue_adds.get_or_create(&[QUEUE, by(verb)]).inc();
    }

    /// An action left the queue for its attempt.
    pub fn action_started(&self, verb: Verb, waited: Duration) {
        self.instruments
            .queue_waited
            .get_or_create(&[QUEUE, by(verb)])
            .observe(waited.as_secs_f64());
    }

    /// `took` is how long the attempt took; zero when there was none.
    pub fn action_finished(&self, action: &Action, outcome: &Outcome, took: Duration) {
        let verb = action.verb;
        let labels = [("verb", verb.as_str()), ("outcome", outcome.name())];
        self.instruments.actions.get_or_create(&labels).inc();
        let result = match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged | Outcome::NotFound => Some("success"),
            Outcome::Conflict { .. } => Some("requeue"),
            Outcome::Refused { .. } | Outcome::Failed { .. } | Outcome::Unanswered { .. } => {
                Some("error")
            }
            // Never sent.
            Outcome::Superseded | Outcome::Dropped | Outcome::DryRun => None,
        };
        if let Some(result) = result {
            self.instruments.reconciles.get_or_create(&[by(verb), ("result", result)]).inc();
        }
        if result == Some("error") {
            self.instruments.reconcile_errors.get_or_create(&[by(verb)]).inc();
        }
        if took > Duration::ZERO {
            let seconds = took.as_secs_f64();
            self.instruments.reconcile_time.get_or_create(&[by(verb)]).observe(seconds);
            self.instruments.queue_worked.get_or_create(&[QUEUE, by(verb)]).observe(seconds);
        }
    }

    /// Counts a mirror that routed nothing.
    pub fn deferred_mirror_finished(&self, outcome: &Outcome) {
        self.instruments.mirrors_deferred.get_or_create(&[("outcome", outcome.name())]).inc();
    }

    pub fn set_queue(&self, queued: usize, in_flight: usize) {
        set(&self.instruments.queue_depth.get_or_create(&[QUEUE]), queued);
        set(&self.instruments.in_flight, in_flight);
    }

    /// The writes of one kind to one cluster: how many wait for their turn, and whether they time out.
    pub fn set_lane(&self, cluster: &ClusterName, kind: Kind, waiting: usize, is_hung: bool) {
        let labels = lane(cluster, kind);
        set(&self.instruments.writes_waiting.get_or_create(&labels), waiting);
        self.instruments.writes_hung.get_or_create(&labels).set(i64::from(is_hung));
    }
}
