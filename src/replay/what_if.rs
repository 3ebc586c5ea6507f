//! What-if: the machine's actions are carried out in memory, on top of the recorded changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::sync::Arc;

use super::land::carry_out;
use super::{Options, Story, audit};
use crate::core::action::Action;
use crate::core::event::{Event, Happened};
use crate::core::ids::{ActionId, ClusterName, Key, Kind, Map, Role};
use crate::core::machine::Machine;
use crate::core::objects::{Body, Object};
use crate::core::time::UnixMillis;
use crate::event_log::{ClusterSpec, Line, LogError, Writer};
use crate::world::{Tell, World};

/// The recorded timeline, laid over a world that has moved on by our own writes.
struct Overlay {
    world: World,
    /// Hub and edge are one cluster: there is no carrier between them.
    hub_is_edge: bool,
    /// Objects as recorded, to see what a recorded change changed.
    recorded: Map<(Kind, Key), BTreeMap<ClusterName, Arc<Object>>>,
    /// Fingerprints of the values that recorded hubs ever had in an annotation: what an edge gets
    /// of these was brought by the recorded carrier, whose place the world's takes.
    hub_values: Map<Key, Vec<u64>>,
    listing: BTreeMap<(ClusterName, Kind), HashSet<Key>>,
    /// How many watches of a cluster are lost.
    lost: BTreeMap<ClusterName, BTreeSet<Kind>>,
    roles: HashMap<ClusterName, Vec<Role>>,
    /// When upstreams whose Gateways are followed were last heard of.
    heard: BTreeMap<ClusterName, UnixMillis>,
}

/// From bookmark to bookmark, as API servers send them.
const BOOKMARK_MS: u64 = 60_000;

fn fingerprint(key: &str, value: Option<&str>) -> u64 {
    let value = value.map_or(0, |v| xxhash_rust::xxh3::xxh3_64(v.as_bytes()) | 1);
    xxhash_rust::xxh3::xxh3_64(key.as_bytes()) ^ value
}

impl Overlay {
    fn new(clusters: &[ClusterSpec], carrier_delay_ms: u64) -> Self {
        let roles: HashMap<_, _> =
            clusters.iter().map(|c| (c.name.clone(), c.roles.clone())).collect();
        let three_tiers =
            roles.values().any(|r| r.contains(&Role::Edge) && !r.contains(&Role::Downstream));
        Self {
            world: World::new(clusters, carrier_delay_ms),
            hub_is_edge: !three_tiers,
            recorded: Map::default(),
            hub_values: Map::default(),
            listing: BTreeMap::new(),
            lost: BTreeMap::new(),
            roles,
            heard: BTreeMap::new(),
        }
    }

    /// When the next bookmark comes, and from where.
    fn next_bookmark(&self) -> Option<(UnixMillis, ClusterName)> {
        let due = self.heard.iter().map(|(cluster, at)| (at.plus(BOOKMARK_MS), cluster));
        due.min().map(|(at, cluster)| (at, cluster.clone()))
    }

    fn hear(&mut self, event: &Event) {
        match &event.what {
            Happened::ListFinished { cluster, kind: Kind::Gateway }
            | Happened::WatchResumed { cluster, kind: Kind::Gateway }
            | Happened::WatchHeard { cluster, kind: Kind::Gateway }
                if self.has(cluster, Role::Upstream) =>
            {
                self.heard.insert(cluster.clone(), event.at);
            }
            Happened::ListStarted { cluster, kind: Kind::Gateway }
            | Happened::WatchLost { cluster, kind: Kind::Gateway, .. }
            | Happened::ClusterRemoved { cluster } => {
                self.heard.remove(cluster);
            }
            _ => {}
        }
    }

    fn has(&self, cluster: &ClusterName, role: Role) -> bool {
        self.roles.get(cluster).is_some_and(|r| r.contains(&role))
    }

    /// Lays one recorded event over the world; what the watches show of it comes out of the world.
    fn lay(&mut self, event: Event) -> Option<Event> {
        self.world.advance(event.at);
        self.hear(&event);
        match event.what {
            Happened::Listed { cluster, object } => {
                let key = self.world.key_of(&object);
                if let Some(list) = self.listing.get_mut(&(cluster.clone(), object.kind())) {
                    list.insert(key);
                }
                self.lay_object(cluster, object, Tell::Listed);
                None
            }
            Happened::Applied { cluster, object } => {
                self.lay_object(cluster, object, Tell::Applied);
                None
            }
            Happened::Deleted { cluster, object } => {
                let place = (object.kind(), self.world.key_of(&object));
                self.world.remove(&cluster, place.0, &object.meta.key());
                self.forget(&cluster, place);
                None
            }
            Happened::ListStarted { ref cluster, kind } => {
                self.listing.insert((cluster.clone(), kind), HashSet::new());
                Some(event)
            }
            Happened::ListFinished { ref cluster, kind } => {
                let listed = self.listing.remove(&(cluster.clone(), kind)).unwrap_or_default();
                let all: Vec<_> = self.world.objects(cluster, kind).cloned().collect();
                for object in all {
                    let key = self.world.key_of(&object);
                    if !listed.contains(&key) {
                        self.world.remove(cluster, kind, &object.meta.key());
                        self.forget(cluster, (kind, key));
                    }
                }
                self.is_back(cluster, kind);
                Some(event)
            }
            Happened::WatchResumed { ref cluster, kind } => {
                self.is_back(cluster, kind);
                Some(event)
            }
            Happened::WatchLost { ref cluster, kind, .. } => {
                // In a recording a lost watch is all there is to see of an outage.
                self.lost.entry(cluster.clone()).or_default().insert(kind);
                self.world.set_reachable(cluster, false);
                Some(event)
            }
            Happened::ActionFinished { .. } | Happened::TimedOut => None,
            _ => Some(event),
        }
    }

    fn is_back(&mut self, cluster: &ClusterName, kind: Kind) {
        if let Some(lost) = self.lost.get_mut(cluster) {
            lost.remove(&kind);
            let back = lost.is_empty();
            self.world.set_reachable(cluster, back);
        }
    }

    fn forget(&mut self, cluster: &ClusterName, place: (Kind, Key)) {
        if let Some(recorded) = self.recorded.get_mut(&place) {
            recorded.remove(cluster);
        }
    }

    fn lay_object(&mut self, cluster: ClusterName, object: Arc<Object>, tell: Tell) {
        let kind = object.kind();
        let place = (kind, self.world.key_of(&object));
        let key = place.1;
        let before = self.recorded.get(&place).and_then(|r| r.get(&cluster)).cloned();
        let tiers = kind == Kind::Connector && !self.hub_is_edge;
        let is_member = tiers && self.has(&cluster, Role::Edge);
        if tiers && self.has(&cluster, Role::Downstream) {
            self.remember_hub(key, before.as_deref(), &object);
        }
        let ours = self.world.at(&cluster, kind, key);
        let diverged = match (ours, &before) {
            (Some(ours), Some(before)) => is_member || !Arc::ptr_eq(ours, before),
            (Some(_), None) => is_member,
            (None, _) => false,
        };
        let recorded = if diverged {
            match self.merge(&cluster, place, before.as_deref(), &object, is_member) {
                Some(merged) => {
                    self.world.put(&cluster, merged, "recorded", tell);
                }
                // A list brings the object whether it changed or not.
                None if tell == Tell::Listed => {
                    if let Some(ours) = self.world.at(&cluster, kind, key).cloned() {
                        self.world.put(&cluster, Object::clone(&ours), "recorded", Tell::Listed);
                    }
                }
                None => {}
            }
            Some(object)
        } else {
            // Kept as the world has it while both are the same: then one look tells.
            self.world.put(&cluster, Arc::unwrap_or_clone(object), "recorded", tell)
        };
        if let Some(recorded) = recorded {
            self.recorded.entry(place).or_default().insert(cluster, recorded);
        }
    }

    fn remember_hub(&mut self, key: Key, before: Option<&Object>, object: &Object) {
        let values = self.hub_values.entry(key).or_default();
        let new = &object.meta.annotations;
        let old = before.map(|b| &b.meta.annotations);
        let changed = new.iter().filter(|(k, v)| old.and_then(|o| o.get(k)) != Some(v));
        values.extend(changed.map(|(k, v)| fingerprint(k, Some(v))));
        let gone = old.into_iter().flat_map(|o| o.iter()).filter(|(k, _)| new.get(k).is_none());
        values.extend(gone.map(|(k, _)| fingerprint(k, None)));
    }

    /// The recorded change from `before` to `object`, made to the object as it is in this world;
    /// `None` when nothing of it is left.
    fn merge(
        &self,
        cluster: &ClusterName,
        (kind, key): (Kind, Key),
        before: Option<&Object>,
        object: &Object,
        is_member: bool,
    ) -> Option<Object> {
        let ours = self.world.at(cluster, kind, key)?;
        if ours.meta.uid != object.meta.uid {
            return Some(object.clone());
        }
        let none = Default::default();
        let old = before.map_or(&none, |b| &b.meta.annotations);
        let carried = |k: &str, v: Option<&str>| {
            is_member
                && self
                    .hub_values
                    .get(&key)
                    .is_some_and(|values| values.contains(&fingerprint(k, v)))
        };
        let mut annotations = ours.meta.annotations.clone();
        let new = &object.meta.annotations;
        for (k, v) in new.iter() {
            if old.get(k) != Some(v) && !carried(k, Some(v)) {
                annotations.set(k, Some(v));
            }
        }
        for (k, _) in old.iter() {
            if new.get(k).is_none() && !carried(k, None) {
                annotations.set(k, None);
            }
        }
        let same = annotations == ours.meta.annotations
            && object.meta.labels == ours.meta.labels
            && object.meta.deletion_timestamp == ours.meta.deletion_timestamp
            && same_body(&object.body, &ours.body);
        if same {
            return None;
        }
        let mut merged = object.clone();
        merged.meta.annotations = annotations;
        Some(merged)
    }
}

fn same_body(a: &Body, b: &Body) -> bool {
    match (a, b) {
        (Body::Connector { status: a }, Body::Connector { status: b }) => {
            a.as_ref().map(|s| s.get()) == b.as_ref().map(|s| s.get())
        }
        (Body::HttpProxy { connectors: a }, Body::HttpProxy { connectors: b }) => a == b,
        (Body::Gateway { class: a }, Body::Gateway { class: b }) => a == b,
        (Body::HttpRoute { parents: a }, Body::HttpRoute { parents: b }) => a == b,
        (Body::Namespace, Body::Namespace) => true,
        _ => false,
    }
}

/// Replays in what-if mode; `foreign`: throughline did not write the log. Lines come from `next`; every event and action goes to `log`.
pub(super) fn run<W: Write>(
    story: &mut Story,
    options: &Options,
    foreign: bool,
    mut next: impl FnMut() -> Result<Option<Line>, LogError>,
    mut log: Option<Writer<W>>,
) -> anyhow::Result<()> {
    let mut overlay = Overlay::new(&story.replay.clusters, options.carrier_delay_ms);
    let mut machine = Machine::new(story.replay.settings.clone());
    let mut writes: BTreeMap<(UnixMillis, ActionId), Action> = BTreeMap::new();
    let mut now = UnixMillis(0);
    let mut line = next_event(&mut next)?;
    if let Some(first) = &line {
        now = first.at;
        story.begin(now);
        for cluster in story.replay.clusters.clone() {
            let what = Happened::ClusterAdded { cluster: cluster.name, roles: cluster.roles };
            machine.handle_event(&Event { at: now, what });
        }
        let lead = Event { at: now, what: Happened::LeadershipAcquired };
        feed(&mut machine, story, &mut log, &lead, &mut writes, options)?;
    }
    let mut end = UnixMillis(u64::MAX);
    loop {
        let recorded_at = line.as_ref().map(|l| l.at);
        let write_at = writes.keys().next().map(|(at, _)| *at);
        let carrier_at = overlay.world.next_due();
        let deadline = machine.poll_deadline().map(|(at, _)| at);
        let Some(at) = [recorded_at, write_at, carrier_at, deadline].into_iter().flatten().min()
        else {
            break;
        };
        if at > end {
            break;
        }
        // A log of ours tells the bookmarks of its time; otherwise they are as they would be.
        if (foreign || line.is_none())
            && let Some((heard_at, cluster)) = overlay.next_bookmark()
            && heard_at < at
            && machine.orphan_counts().is_any()
        {
            now = now.max(heard_at);
            let event =
                Event { at: now, what: Happened::WatchHeard { cluster, kind: Kind::Gateway } };
            overlay.lay(event.clone());
            feed(&mut machine, story, &mut log, &event, &mut writes, options)?;
            continue;
        }
        now = now.max(at);
        if recorded_at == Some(at) {
            let Some(event) = line.take() else { break };
            story.recorded(&event);
            if let Some(event) = overlay.lay(event) {
                feed(&mut machine, story, &mut log, &event, &mut writes, options)?;
            }
            line = next_event(&mut next)?;
            if line.is_none() {
                story.replay.last_at = now;
                end = now.plus(options.run_on_ms);
            }
        } else if write_at == Some(at) {
            overlay.world.advance(now);
            let Some(((_, id), action)) = writes.pop_first() else { break };
            let outcome = carry_out(&mut overlay.world, &action);
            drain(&mut overlay, &mut machine, story, &mut log, &mut writes, options)?;
            let event = Event { at: now, what: Happened::ActionFinished { id, outcome } };
            feed(&mut machine, story, &mut log, &event, &mut writes, options)?;
        } else if carrier_at == Some(at) {
            overlay.world.advance(now);
        } else {
            let event = Event { at: now, what: Happened::TimedOut };
            feed(&mut machine, story, &mut log, &event, &mut writes, options)?;
        }
        drain(&mut overlay, &mut machine, story, &mut log, &mut writes, options)?;
    }
    if let Some(log) = &mut log {
        log.flush()?;
    }
    story.end(now);
    let (written, settings) = (story.written(), story.replay.settings.clone());
    story.problems(audit::problems(&overlay.world, &settings, &written));
    if machine.in_flight() > 0 {
        story.problems(vec![format!("{} actions are still under way", machine.in_flight())]);
    }
    Ok(())
}

fn next_event(
    next: &mut impl FnMut() -> Result<Option<Line>, LogError>,
) -> Result<Option<Event>, LogError> {
    loop {
        match next()? {
            Some(Line::Event(event)) => return Ok(Some(event)),
            Some(Line::Action(_)) => {}
            None => return Ok(None),
        }
    }
}

/// Hands what the watches show to the machine.
fn drain<W: Write>(
    overlay: &mut Overlay,
    machine: &mut Machine,
    story: &mut Story,
    log: &mut Option<Writer<W>>,
    writes: &mut BTreeMap<(UnixMillis, ActionId), Action>,
    options: &Options,
) -> anyhow::Result<()> {
    while let Some(event) = overlay.world.poll_event() {
        feed(machine, story, log, &event, writes, options)?;
    }
    Ok(())
}

fn feed<W: Write>(
    machine: &mut Machine,
    story: &mut Story,
    log: &mut Option<Writer<W>>,
    event: &Event,
    writes: &mut BTreeMap<(UnixMillis, ActionId), Action>,
    options: &Options,
) -> anyhow::Result<()> {
    if let Some(log) = log {
        log.event(event)?;
    }
    story.replayed(event);
    machine.handle_event(event);
    while let Some(decision) = machine.poll_action() {
        if let Some(log) = log {
            log.action(&decision)?;
        }
        let at = decision.at.plus(options.write_ms);
        writes.insert((at, decision.action.id), decision.action.clone());
        story.acted(decision);
    }
    while let Some(note) = machine.poll_note() {
        story.replay.notes.push(note);
    }
    Ok(())
}
