//! Plays the recorded changes into the clusters, in real time but for shortened pauses, and moves
//! the carrier between hub and edges.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::clusters::Clusters;
use super::recording::Recording;
use crate::clock::Clock;
use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::objects::{Object, UPSTREAM_STATUS};
use crate::core::settings::Settings;
use crate::core::spelling;
use crate::core::time::UnixMillis;
use crate::event_log::ClusterSpec;
use crate::replay::audit;
use crate::replay::overlay::Overlay;
use crate::report::Aside;
use crate::world::World;

/// From the hub's change to the edge's, as measured on an idle carrier.
const CARRIER_DELAY_MS: u64 = 50;

/// The clusters' world and what is still to happen in it.
pub(super) struct Player {
    pub(super) world: Arc<Mutex<World>>,
    clock: Clock,
    overlay: Overlay,
    clusters: Vec<ClusterSpec>,
    to_come: VecDeque<Event>,
    longest_pause_ms: u64,
    /// The recorded time of what came last, and when it came.
    last: UnixMillis,
    last_played: Instant,
    /// Clusters that the recording can't reach now.
    down: BTreeSet<ClusterName>,
    /// The carrier has something to do when one of these moves on.
    hubs: Vec<watch::Receiver<u64>>,
}

impl Player {
    /// Lays what was there at the start.
    pub(super) fn new(recording: &mut Recording, clock: Clock, longest_pause_ms: u64) -> Self {
        let clusters = recording.replay.clusters.clone();
        let mut world = World::new(&clusters, CARRIER_DELAY_MS);
        let mut overlay = Overlay::new(&clusters);
        let mut events = VecDeque::from(std::mem::take(&mut recording.events));
        let shift = Shift { from: recording.replay.first_at, to: clock.now() };
        for event in &mut events {
            shift.event(&mut event.what);
        }
        let mut last = recording.replay.first_at;
        for event in events.drain(..recording.at_first.min(events.len())) {
            last = event.at;
            overlay.lay(&mut world, Event { at: clock.now(), ..event });
        }
        // Nobody watches yet.
        while world.poll_event().is_some() {}
        Self {
            world: Arc::new(Mutex::new(world)),
            clock,
            overlay,
            clusters,
            to_come: events,
            longest_pause_ms,
            last,
            last_played: Instant::now(),
            down: BTreeSet::new(),
            hubs: Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pauses count from now. The clusters must be served by now.
    pub(super) fn begin(&mut self) {
        self.last_played = Instant::now();
        let hubs = {
            let world = self.lock();
            let hubs = world.with_role(Role::Downstream);
            hubs.filter_map(|hub| world.subscribe(hub)).collect()
        };
        self.hubs = hubs;
    }

    /// Whether everything was played.
    pub(super) fn is_over(&self) -> bool {
        self.to_come.is_empty()
    }

    /// When the next change is due, and the pause before it if that was shortened.
    pub(super) fn next_at(&self) -> Option<(Instant, Option<Aside>)> {
        let recorded_ms = self.to_come.front()?.at.since(self.last);
        let waited_ms = recorded_ms.min(self.longest_pause_ms);
        let silence = Aside::Silence { recorded_ms, waited_ms };
        let at = self.last_played + Duration::from_millis(waited_ms);
        Some((at, (waited_ms < recorded_ms).then_some(silence)))
    }

    /// Plays the next change. What is worth telling of it.
    pub(super) fn play(&mut self, clusters: &Clusters) -> Option<Aside> {
        let (at, _) = self.next_at()?;
        let event = self.to_come.pop_front()?;
        self.last = event.at;
        // Not the time it is: a late turn must not add up.
        self.last_played = at;
        let told = self.aside(&event.what);
        let was_down = self.down.clone();
        if let Happened::WatchLost { cluster, .. } = &event.what {
            self.down.insert(cluster.clone());
        }
        let at = self.clock.now();
        let still_down = {
            let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
            self.overlay.lay(&mut world, Event { at, ..event });
            let overlay = &self.overlay;
            self.down.retain(|cluster| overlay.is_lost(cluster));
            self.down.clone()
        };
        for cluster in still_down.difference(&was_down) {
            clusters.set_up(cluster, false);
        }
        for cluster in was_down.difference(&still_down) {
            clusters.set_up(cluster, true);
        }
        told
    }

    /// Changes of upstream's connectors the machine tells of itself; of others they are told here.
    fn aside(&self, what: &Happened) -> Option<Aside> {
        let (cluster, object, deleted) = match what {
            Happened::Applied { cluster, object } => (cluster, object, false),
            Happened::Deleted { cluster, object } => (cluster, object, true),
            _ => return None,
        };
        let spec = self.clusters.iter().find(|spec| spec.name == *cluster)?;
        let is_source = spec.roles.contains(&Role::Upstream) && is_source(object);
        (!is_source || deleted).then(|| Aside::Played {
            cluster: cluster.clone(),
            kind: object.kind(),
            name: object.meta.name.to_string(),
            deleted,
        })
    }

    /// When the carrier has something to do.
    pub(super) fn carrier_at(&self) -> Option<Instant> {
        self.lock().next_due().map(|at| self.clock.instant(at))
    }

    /// Waits until a hub changes; then the carrier may have something to do.
    pub(super) async fn hub_changed(&mut self) {
        let changes: Vec<_> = self.hubs.iter_mut().map(|hub| Box::pin(hub.changed())).collect();
        if changes.is_empty() {
            return std::future::pending().await;
        }
        // A world that is gone has no hubs; then nothing is waited for any longer.
        if futures::future::select_all(changes).await.0.is_err() {
            std::future::pending().await
        }
    }

    /// The carrier does what is due.
    pub(super) fn carry(&self) {
        self.lock().advance(self.clock.now());
    }

    /// What is not as it should be; empty when everything was played and all is well.
    pub(super) fn problems(
        &self,
        settings: &Settings,
        touched: &BTreeSet<(ClusterName, ObjectKey)>,
    ) -> Vec<String> {
        let world = self.lock();
        let mut problems = audit::problems(&world, settings, touched);
        problems.extend(not_arrived(&world));
        if world.next_due().is_some() {
            problems.push("the carrier is still carrying".to_owned());
        }
        problems
    }
}

/// What the hub says and an edge's copy does not. A replay tells of it by the stall that comes of it.
fn not_arrived(world: &World) -> Vec<String> {
    let said = |object: &Object| object.meta.annotations.get(UPSTREAM_STATUS).map(str::to_owned);
    let meant = |said: &Option<String>| said.as_deref().map(spelling::spell);
    let mut problems = Vec::new();
    for hub in world.with_role(Role::Downstream) {
        for edge in world.with_role(Role::Edge).filter(|edge| *edge != hub) {
            for replica in world.objects(hub, Kind::Connector) {
                let key = replica.meta.key();
                let Some(copy) = world.get(edge, Kind::Connector, &key) else { continue };
                let (hubs, edges) = (said(replica), said(copy));
                if hubs != edges && meant(&hubs) != meant(&edges) {
                    problems.push(format!("{edge}: Connector {key} does not say what {hub} says"));
                }
            }
        }
    }
    problems
}

/// Times within objects are moved with the recording: what was young then is young now.
struct Shift {
    from: UnixMillis,
    to: UnixMillis,
}

impl Shift {
    fn event(&self, what: &mut Happened) {
        let (Happened::Listed { object, .. }
        | Happened::Applied { object, .. }
        | Happened::Deleted { object, .. }) = what
        else {
            return;
        };
        let meta = &mut Arc::make_mut(object).meta;
        let managed = meta.managed_fields.iter_mut().map(|field| &mut field.time);
        let own = [&mut meta.creation_timestamp, &mut meta.deletion_timestamp];
        for time in own.into_iter().chain(managed) {
            *time = time.map(|at| self.time(at));
        }
    }

    /// Whole seconds stay whole seconds, as API servers have them.
    fn time(&self, at: UnixMillis) -> UnixMillis {
        let (from, to) = (self.from.0 / 1000, self.to.0 / 1000);
        UnixMillis(at.0.saturating_add(to * 1000).saturating_sub(from * 1000))
    }
}

fn is_source(object: &Object) -> bool {
    object.kind() == Kind::Connector && object.meta.upstream().is_none()
}
