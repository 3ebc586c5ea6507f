//! Plays the recorded changes into the clusters in real time, with long pauses shortened, and drives
//! the carrier between hub and edges.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::clusters::DemoClusters;
use super::recording::DemoLog;
use crate::clock::Clock;
use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::data::ids::{Kind, Role};
use crate::core::data::objects::Object;
use crate::core::data::time::UnixMillis;
use crate::replay::overlay::Overlay;
use crate::report::{Notice, duration};
use throughline_sim::SimClusters;
use throughline_sim::signal;

/// The delay from hub to edge, as measured on an idle Karmada.
const CARRIER_DELAY_MS: u64 = 50;

/// The simulated clusters and the recorded changes that remain.
pub(super) struct Player {
    pub(super) sim: Arc<Mutex<SimClusters>>,
    clock: Clock,
    overlay: Overlay,
    clusters: Vec<ClusterSpec>,
    remaining: VecDeque<Event>,
    longest_pause_ms: u64,
    /// The recorded time of the last change.
    last_recorded_at: UnixMillis,
    /// When the last change was played.
    last_played_at: Instant,
    /// The changes of each hub, which may concern the carrier.
    hub_changes: Vec<signal::Receiver<()>>,
}

/// Whether an event is not played because the run follows every cluster of the recording from start to
/// end.
fn is_membership(kind: &EventKind) -> bool {
    matches!(kind, EventKind::ClusterAdded { .. } | EventKind::ClusterRemoved { .. })
}

impl Player {
    /// Fills the clusters with the recording's initial state.
    pub(super) fn new(log: &mut DemoLog, clock: Clock, longest_pause_ms: u64) -> Self {
        let clusters = log.replay.clusters.clone();
        let mut sim = SimClusters::new(&clusters, CARRIER_DELAY_MS);
        let mut overlay = Overlay::default();
        let mut events = VecDeque::from(std::mem::take(&mut log.events));
        // By whole seconds, because API servers store whole seconds.
        let seconds = |at: UnixMillis| at.0.cast_signed() / 1000;
        let shift_ms = (seconds(clock.now()) - seconds(log.replay.first_at)) * 1000;
        for event in &mut events {
            shift_times(&mut event.kind, shift_ms);
        }
        let mut last_recorded_at = log.replay.first_at;
        for event in events.drain(..log.initial_count.min(events.len())) {
            last_recorded_at = event.at;
            if !is_membership(&event.kind) {
                overlay.apply(&mut sim, Event { at: clock.now(), ..event });
            }
        }
        // Drops the events before the first watch; the run lists the initial state itself.
        while sim.poll_event().is_some() {}
        Self {
            sim: Arc::new(Mutex::new(sim)),
            clock,
            overlay,
            clusters,
            remaining: events,
            longest_pause_ms,
            last_recorded_at,
            last_played_at: Instant::now(),
            hub_changes: Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SimClusters> {
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the clock of the recording. The clusters must already be served.
    pub(super) fn start(&mut self) {
        self.last_played_at = Instant::now();
        let hub_changes = {
            let sim = self.lock();
            let hubs = sim.with_role(Role::Hub);
            hubs.filter_map(|hub| sim.subscribe(hub)).collect()
        };
        self.hub_changes = hub_changes;
    }

    /// Whether everything has been played.
    pub(super) fn is_finished(&self) -> bool {
        self.remaining.is_empty()
    }

    /// The recording's pause before the next change.
    fn recorded_pause_ms(&self) -> Option<u64> {
        Some(self.remaining.front()?.at.since(self.last_recorded_at))
    }

    /// When the next change is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let waited_ms = self.recorded_pause_ms()?.min(self.longest_pause_ms);
        Some(self.last_played_at + Duration::from_millis(waited_ms))
    }

    /// What comes next, if the story needs a line about it.
    pub(super) fn announcement(&self) -> Option<String> {
        let Some(recorded_ms) = self.recorded_pause_ms() else {
            let text = "… the recording ends; waiting until everything has converged";
            return Some(text.to_owned());
        };
        if recorded_ms <= self.longest_pause_ms {
            return None;
        }
        let recorded = duration(recorded_ms);
        let waited = duration(self.longest_pause_ms);
        Some(format!("… {recorded} pause in the recording, shortened to {waited}"))
    }

    /// Plays the next change and returns a line about it, if the story needs one.
    pub(super) fn play_next(&mut self, clusters: &DemoClusters) -> Option<Notice> {
        let due_at = self.next_at()?;
        let event = self.remaining.pop_front()?;
        self.last_recorded_at = event.at;
        // The due time rather than the current time, so that delays do not add up.
        self.last_played_at = due_at;
        let line = self.line_about(&event.kind);
        let watched = match &event.kind {
            EventKind::WatchLost { cluster, .. }
            | EventKind::WatchResumed { cluster, .. }
            | EventKind::ListFinished { cluster, .. } => Some(cluster.clone()),
            _ => None,
        };
        if !is_membership(&event.kind) {
            let mut sim = self.sim.lock().unwrap_or_else(PoisonError::into_inner);
            self.overlay.apply(&mut sim, Event { at: self.clock.now(), ..event });
        }
        // A cluster is down while any of its watches is lost in the recording.
        if let Some(cluster) = watched {
            clusters.set_down(&cluster, self.overlay.is_lost(&cluster));
        }
        line
    }

    /// A line about the event, unless it is a change of an upstream Connector, which the run reports
    /// itself.
    fn line_about(&self, kind: &EventKind) -> Option<Notice> {
        let (cluster, object, deleted) = match kind {
            EventKind::Applied { cluster, object } => (cluster, object, false),
            EventKind::Deleted { cluster, object } => (cluster, object, true),
            _ => return None,
        };
        let spec = self.clusters.iter().find(|spec| spec.name == *cluster)?;
        let is_upstream = spec.roles.contains(&Role::Upstream) && is_upstream_connector(object);
        (!is_upstream || deleted).then(|| Notice::RecordedChange {
            cluster: cluster.clone(),
            kind: object.kind(),
            name: object.meta.name.to_string(),
            deleted,
        })
    }

    /// When the carrier's next change is due.
    pub(super) fn carrier_due_at(&self) -> Option<Instant> {
        self.lock().next_due().map(|at| self.clock.instant(at))
    }

    /// Waits until a hub changes, which may concern the carrier.
    pub(super) async fn hub_changed(&mut self) {
        let hubs = self.hub_changes.iter_mut();
        let changes: Vec<_> = hubs.map(|hub| Box::pin(hub.changed())).collect();
        if changes.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(changes).await;
    }

    /// Applies the carrier's due changes.
    pub(super) fn advance_carrier(&self) {
        self.lock().advance(self.clock.now());
    }
}

/// Moves the times within an object to the present, so that its age stays the same.
fn shift_times(kind: &mut EventKind, by_ms: i64) {
    let (EventKind::Listed { object, .. }
    | EventKind::Applied { object, .. }
    | EventKind::Deleted { object, .. }) = kind
    else {
        return;
    };
    let meta = &mut Arc::make_mut(object).meta;
    let managed = meta.managed_fields.iter_mut().map(|field| &mut field.time);
    let own = [&mut meta.creation_timestamp, &mut meta.deletion_timestamp];
    for time in own.into_iter().chain(managed) {
        *time = time.map(|at| UnixMillis(at.0.saturating_add_signed(by_ms)));
    }
}

fn is_upstream_connector(object: &Object) -> bool {
    object.kind() == Kind::Connector && object.meta.upstream().is_err()
}
