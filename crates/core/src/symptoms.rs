//! The answers that users get: whether each Gateway's Envoy is programmed with the status that
//! upstream has for its connectors.
//!
//! Envoy is not watched. Its state is assumed to be that of the edge's Connectors when Envoy
//! Gateway last translated the Gateway: when the Gateway appeared, when its HTTPProxy referenced
//! other connectors, when its trigger was written, and when the Connectors became what its trigger
//! announces. The delay of the extension server is not included.
//!
//! Symptoms do not influence any write.

use std::collections::BTreeMap;

use crate::contract::event::Event;
use crate::contract::note::{Note, NoteKind};
use crate::contract::settings::Settings;
use crate::contract::symptom::{Answers, Symptom, SymptomChange};
use crate::data::ids::{ClusterName, Kind, NamespacedName, Role};
use crate::data::map::Map;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::status::trigger::{NodeIds, connector_part, digest};
use crate::subject::Subject;
use crate::world::change::EdgeChange;
use crate::world::cluster::Cluster;
use crate::world::edge::{Gateway, Stamp};
use crate::world::edge_tables::EdgeTables;
use crate::world::upstream::UpstreamConnector;
use crate::world::{Change, World};

#[derive(Debug, Default)]
pub(crate) struct Symptoms {
    edges: BTreeMap<ClusterId, Edge>,
    /// Gateways to compare again in this step, with the strongest change of each.
    due: BTreeMap<ObjectRef, Happened>,
    /// Of the current step.
    notes: Vec<NoteKind>,
    /// Edges whose answers changed since the last poll; `None`: the edge left.
    changed: BTreeMap<ClusterName, Option<Answers>>,
    is_edge_alone: bool,
    /// For recordings: a change of the platform's key counts as a translation. Envoy Gateway
    /// ignores the key, but operators wrote it as a workaround.
    platform_key_heals: bool,
}

#[derive(Debug, Default)]
struct Edge {
    gateways: Map<NamespacedName, Service>,
    answers: Answers,
}

#[derive(Debug, Default)]
struct Service {
    /// The state that Envoy is programmed with, by connector; `None` if unknown.
    programmed: Box<[(NamespacedName, Option<Stamp>)]>,
    open: Vec<(NamespacedName, Symptom)>,
    answers: Answers,
}

/// What happened to a Gateway. Of several changes in one step, the later variant counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happened {
    /// Its connectors, or the statuses that these have upstream, may be others.
    Served,
    /// The platform's own key was written or removed.
    Stamped,
    /// The trigger was written.
    Triggered,
    /// It is new, or another one has its name.
    Appeared,
}

/// The status of a connector upstream.
struct Reported {
    /// The last state seen.
    stamp: Stamp,
    /// The watch of upstream's Connectors is live.
    is_seen: bool,
}

/// Handlers.
impl Symptoms {
    pub(crate) fn on_change(&mut self, world: &World, change: &Change) {
        match change {
            Change::Edge(change) => self.on_edge_change(change),
            Change::Changed(Subject::HubConnector(at))
            | Change::Gone(Subject::HubConnector(at)) => {
                self.connector_changed(world, &at.name);
            }
            Change::EvidenceLost { upstream } => {
                for at in world.links.linked_in(upstream, None) {
                    self.connector_changed(world, &at.name);
                }
            }
            Change::ClusterAnswers { id, kind: Kind::Connector, .. }
                if world.hubs().any(|hub| hub.id == *id) =>
            {
                self.all_changed(world);
                self.answers_changed(world, *id);
            }
            Change::ClusterAnswers { id, .. } | Change::WatchLost { id, .. } => {
                self.answers_changed(world, *id);
            }
            Change::ClusterLeft { id, name } => self.on_left(*id, name),
            _ => {}
        }
    }

    fn on_edge_change(&mut self, change: &EdgeChange) {
        let (gateway, happened) = match change {
            EdgeChange::Served { gateway } => (gateway, Happened::Served),
            EdgeChange::StampChanged { gateway } if self.platform_key_heals => {
                (gateway, Happened::Stamped)
            }
            EdgeChange::TriggerChanged { gateway } => (gateway, Happened::Triggered),
            EdgeChange::GatewayAppeared { gateway, .. } => (gateway, Happened::Appeared),
            _ => return,
        };
        self.happened(gateway.clone(), happened);
    }

    /// throughline wrote another trigger. The watch shows it again later, which is no further
    /// change.
    pub(crate) fn on_written(&mut self, gateway: ObjectRef) {
        self.happened(gateway, Happened::Triggered);
    }

    fn happened(&mut self, gateway: ObjectRef, happened: Happened) {
        let strongest = self.due.entry(gateway).or_insert(happened);
        *strongest = happened.max(*strongest);
    }

    /// The upstream status of a connector may have changed.
    fn connector_changed(&mut self, world: &World, name: &NamespacedName) {
        for edge in world.edges() {
            for gateway in edge.edge.gateways_of(name) {
                self.happened(edge.object(Kind::Gateway, gateway), Happened::Served);
            }
        }
    }

    fn all_changed(&mut self, world: &World) {
        for edge in world.edges() {
            for gateway in edge.edge.gateways.keys() {
                self.happened(edge.object(Kind::Gateway, gateway), Happened::Served);
            }
        }
    }

    fn answers_changed(&mut self, world: &World, edge: ClusterId) {
        if let Some(cluster) = world.clusters.get(&edge).filter(|edge| edge.has(Role::Edge)) {
            let answers = self.edges.get(&edge).map_or(Answers::default(), |edge| edge.answers);
            let is_seen = cluster.edge.ready_since.is_some();
            let answers = if is_seen { answers } else { answers.all_unknown() };
            self.changed.insert(cluster.name.clone(), Some(answers));
        }
    }

    fn on_left(&mut self, id: ClusterId, name: &ClusterName) {
        self.changed.insert(name.clone(), None);
        let Some(edge) = self.edges.remove(&id) else { return };
        let mut gateways: Vec<_> = edge.gateways.into_iter().collect();
        gateways.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (gateway, service) in gateways {
            for (connector, symptom) in &service.open {
                self.notes.push(note(name, &gateway, connector, *symptom, SymptomChange::Ended));
            }
        }
    }
}

/// Updates.
impl Symptoms {
    /// Checks every Gateway with a change. Returns the symptoms that began or ended.
    pub(crate) fn update(&mut self, world: &World) -> Vec<NoteKind> {
        let is_edge_alone = world.is_edge_alone();
        if is_edge_alone != self.is_edge_alone {
            self.is_edge_alone = is_edge_alone;
            self.all_changed(world);
        }
        while let Some((gateway, happened)) = self.due.pop_first() {
            if let Some(edge) = world.clusters.get(&gateway.cluster).filter(|edge| is_listed(edge))
            {
                self.look_at(world, edge, &gateway.name, happened);
            }
        }
        std::mem::take(&mut self.notes)
    }

    /// The answers of the next edge whose answers changed; `None` for an edge that left.
    pub(crate) fn poll_answers(&mut self) -> Option<(ClusterName, Option<Answers>)> {
        self.changed.pop_first()
    }

    pub(crate) fn len(&self) -> usize {
        self.edges.values().map(|edge| edge.gateways.len()).sum()
    }

    fn look_at(
        &mut self,
        world: &World,
        cluster: &Cluster,
        name: &NamespacedName,
        happened: Happened,
    ) {
        let tables = &cluster.edge;
        let gateway = tables.gateways.seen(name);
        let edge = self.edges.entry(cluster.id).or_default();
        let known = edge.gateways.remove(name);
        let is_first = known.is_none() || happened == Happened::Appeared;
        let mut service = known.unwrap_or_default();
        match gateway {
            None => service.programmed = Box::default(),
            Some(gateway) if is_first => service.see_first(tables, name, gateway),
            Some(gateway) => {
                let is_same = service.serves(tables.connectors_of(name));
                if happened > Happened::Served || !is_same || is_announced(tables, gateway) {
                    service.translate(tables, name);
                }
                if happened == Happened::Triggered && tables.is_by_class {
                    for member in edge.translate_class(cluster, &gateway.class) {
                        self.due.entry(member).or_insert(Happened::Served);
                    }
                }
            }
        }

        let (open, answers) = service.compare(world, cluster);
        let before = std::mem::replace(&mut service.open, open);
        let ended = match happened {
            Happened::Stamped => SymptomChange::EndedByPlatformKey,
            _ => SymptomChange::Ended,
        };
        for (connector, symptom) in before.iter().filter(|old| !service.open.contains(old)) {
            self.notes.push(note(&cluster.name, name, connector, *symptom, ended));
        }
        for (connector, symptom) in service.open.iter().filter(|new| !before.contains(new)) {
            let change = SymptomChange::Began;
            self.notes.push(note(&cluster.name, name, connector, *symptom, change));
        }

        let before = std::mem::replace(&mut service.answers, answers);
        edge.answers = edge.answers.plus(answers).minus(before);
        if gateway.is_some() {
            edge.gateways.insert(name.clone(), service);
        }
        if answers != before {
            self.answers_changed(world, cluster.id);
        }
    }
}

impl Edge {
    /// The trigger of a class was written: translates all its Gateways, and returns them.
    fn translate_class(&mut self, cluster: &Cluster, class: &str) -> Vec<ObjectRef> {
        let tables = &cluster.edge;
        let members = tables.classes.get(class).into_iter().flat_map(|class| class.gateways());
        let translate = |name| {
            if let Some(service) = self.gateways.get_mut(name) {
                service.translate(tables, name);
            }
            cluster.object(Kind::Gateway, name)
        };
        members.map(translate).collect()
    }
}

impl Service {
    /// Envoy Gateway translates the Gateway: its routes get the current state of their connectors.
    fn translate(&mut self, tables: &EdgeTables, name: &NamespacedName) {
        let connectors = tables.connectors_of(name).iter();
        // Only the shard that keeps the classes of this edge sees what is announced there.
        let stamp = |name| (!tables.is_touched_elsewhere).then(|| tables.stamp_of_connector(name));
        self.programmed = connectors.map(|name| (name.clone(), stamp(name))).collect();
    }

    /// The Gateway is seen for the first time. Its trigger shows what was last announced. Without a
    /// trigger, it counts as translated now, and so does a Gateway of a class: the trigger of a
    /// class does not show the state of one Gateway.
    fn see_first(&mut self, tables: &EdgeTables, name: &NamespacedName, gateway: &Gateway) {
        self.translate(tables, name);
        let announced = gateway.trigger.map(|trigger| trigger.digest);
        if tables.is_by_class || announced.is_none() || announced == gateway.desired {
            return;
        }
        let programmed = match &*self.programmed {
            // The digest of a single connector shows which state it was.
            [(connector, _)] => {
                let offline = digest([connector_part(connector.name(), false, "")]);
                Some(if announced == Some(offline) {
                    Stamp::default()
                } else {
                    Stamp::another_node()
                })
            }
            _ => None,
        };
        self.programmed.iter_mut().for_each(|(_, stamp)| *stamp = programmed);
    }

    fn serves(&self, connectors: &[NamespacedName]) -> bool {
        self.programmed.iter().map(|(name, _)| name).eq(connectors)
    }

    /// The symptoms and answers now. If the state of upstream or of Envoy is unknown, none begins,
    /// and an open symptom stays open, unless Envoy is programmed with the last known state.
    fn compare(&self, world: &World, edge: &Cluster) -> (Vec<(NamespacedName, Symptom)>, Answers) {
        let mut open = Vec::new();
        let mut answers = Answers::default();
        for (connector, programmed) in &self.programmed {
            let Some((reported, programmed)) = reported(world, edge, connector).zip(*programmed)
            else {
                open.extend(self.open.iter().filter(|(open, _)| open == connector).cloned());
                answers = answers.plus(Answers::UNKNOWN);
                continue;
            };
            let symptom = symptom(reported.stamp, programmed);
            let named = symptom.map(|symptom| (connector.clone(), symptom));
            open.extend(named.filter(|named| reported.is_seen || self.open.contains(named)));
            answers = answers.plus(match reported.is_seen {
                true => Answers::of(symptom, reported.stamp.is_online()),
                false => Answers::UNKNOWN,
            });
        }
        (open, answers)
    }
}

fn symptom(reported: Stamp, programmed: Stamp) -> Option<Symptom> {
    match (reported.is_online(), programmed.is_online()) {
        _ if reported == programmed => None,
        (true, false) => Some(Symptom::Offline),
        (true, true) => Some(Symptom::OtherNode),
        (false, _) => Some(Symptom::StaleOnline),
    }
}

/// The upstream state of an edge Connector; `None` if unknown. If no upstream is in the run, the
/// edge's own state is used.
fn reported(world: &World, edge: &Cluster, name: &NamespacedName) -> Option<Reported> {
    let own = Some(Reported { stamp: edge.edge.stamp_of_connector(name), is_seen: true });
    let Some(hub_connector) = world.hubs().find_map(|hub| hub.hub_connectors.seen(name)) else {
        let exists = edge.edge.connectors.seen(name).is_some();
        let is_nowhere =
            !exists && world.hubs().all(|hub| hub.listed_since(Kind::Connector).is_some());
        let is_own = is_nowhere || world.is_edge_alone() || edge.has(Role::Upstream);
        return own.filter(|_| is_own);
    };
    let Ok(upstream) = &hub_connector.upstream else {
        return own.filter(|_| edge.has(Role::Upstream));
    };
    let cluster = world.upstream_named(&upstream.cluster)?;
    cluster.listed_since(Kind::Connector)?;
    let row = cluster.upstream_connectors.seen(&upstream.name);
    Some(Reported {
        stamp: row.map_or_else(Stamp::default, UpstreamConnector::stamp),
        is_seen: cluster.watch(Kind::Connector).unknown_since.is_none(),
    })
}

/// Whether every list that determines what its Gateways serve was once complete.
fn is_listed(edge: &Cluster) -> bool {
    Role::Edge.liveness_kinds().iter().all(|kind| edge.listed_since(*kind).is_some())
}

/// Whether the trigger announces the current state of the connectors. Watches of two kinds have no
/// common order, so the trigger of another instance may be seen before the change that it
/// announces.
fn is_announced(tables: &EdgeTables, gateway: &Gateway) -> bool {
    if !tables.is_by_class {
        let announced = gateway.trigger.map(|trigger| trigger.digest);
        return announced.is_some() && announced == gateway.desired;
    }
    let Some(class) = tables.classes.get(&gateway.class) else { return false };
    let carrier = class.carrier().and_then(|carrier| tables.gateways.seen(carrier));
    let trigger = carrier.and_then(|carrier| carrier.trigger);
    trigger.is_some_and(|trigger| trigger.digest == class.digest())
}

fn note(
    edge: &ClusterName,
    gateway: &NamespacedName,
    connector: &NamespacedName,
    symptom: Symptom,
    change: SymptomChange,
) -> NoteKind {
    NoteKind::Symptom {
        edge: edge.clone(),
        gateway: gateway.clone(),
        connector: connector.clone(),
        symptom,
        change,
    }
}

/// Derives from a recording what users saw. It decides nothing.
pub struct Bystander {
    world: World,
    symptoms: Symptoms,
    now: UnixMillis,
}

impl Bystander {
    /// Starts without clusters. Events add them.
    pub fn new(settings: &Settings, node_ids: NodeIds) -> Self {
        let world = World::new(settings.clone(), node_ids);
        let symptoms = Symptoms { platform_key_heals: true, ..Symptoms::default() };
        Self { world, symptoms, now: UnixMillis(0) }
    }

    /// Takes the recording's next event. Returns the symptoms that began or ended.
    pub fn observe(&mut self, event: &Event) -> impl Iterator<Item = Note> + use<> {
        self.now = self.now.max(event.at);
        let changes = self.world.observe(&event.kind, self.now).unwrap_or_default();
        changes.iter().for_each(|change| self.symptoms.on_change(&self.world, change));
        let at = self.now;
        self.symptoms.update(&self.world).into_iter().map(move |kind| Note { at, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::settings::TouchScope;
    use crate::data::objects::PLATFORM_KEY;
    use crate::data::shard::Shard;
    use crate::world::fixture::{Builder, Stage, connector, gateway, proxy};

    const ONLINE: &str = r#"{"conditions":[{"status":"True","type":"Ready"}],
        "connectionDetails":{"publicKey":{"id":"n1"},"type":"PublicKey"}}"#;

    #[test]
    fn an_outage_in_a_recording_ends_when_the_platform_key_is_removed() {
        let mut symptoms = Symptoms { platform_key_heals: true, ..Symptoms::default() };
        let mut stage = Stage::new(&Settings::default());
        stage.add("edge", &[Role::Edge]);
        let mut changes_of = |object: Builder| -> Vec<_> {
            let changes = stage.shows("edge", object);
            changes.iter().for_each(|change| symptoms.on_change(&stage.world, change));
            let notes = symptoms.update(&stage.world).into_iter();
            let change = |note| match note {
                NoteKind::Symptom { change, .. } => Some(change),
                _ => None,
            };
            notes.filter_map(change).collect()
        };

        changes_of(connector("ns", "lab", 1));
        changes_of(proxy("ns", "app", 2, &["lab"]));
        changes_of(gateway("ns", "app", 3, "edge").annotation(PLATFORM_KEY, "false/"));
        let online = connector("ns", "lab", 4).status(Some(ONLINE));
        assert_eq!(changes_of(online), [SymptomChange::Began]);
        let without_key = gateway("ns", "app", 5, "edge");
        assert_eq!(changes_of(without_key), [SymptomChange::EndedByPlatformKey]);
    }

    #[test]
    fn what_an_edge_serves_that_another_shard_touches_is_unknown() {
        let mut shards = [0, 1].map(|index| Shard { index, of: 2 }).into_iter();
        let shard = shards.find(|shard| !shard.owns("edge")).unwrap();
        let mut namespaces = ["a", "b", "c", "d", "e", "f"].into_iter();
        let namespace = namespaces.find(|namespace| shard.owns(namespace)).unwrap();
        let mut settings = Settings { shard, ..Settings::default() };
        settings.touch.scope = TouchScope::GatewayClass;

        let mut symptoms = Symptoms::default();
        let mut stage = Stage::new(&settings);
        stage.add("edge", &[Role::Edge]);
        for object in [
            connector(namespace, "lab", 1),
            proxy(namespace, "app", 2, &["lab"]),
            gateway(namespace, "app", 3, "edge"),
            connector(namespace, "lab", 4).status(Some(ONLINE)),
        ] {
            let changes = stage.shows("edge", object);
            changes.iter().for_each(|change| symptoms.on_change(&stage.world, change));
            assert_eq!(symptoms.update(&stage.world), []);
        }
        assert_eq!(symptoms.poll_answers(), Some(("edge".into(), Some(Answers::UNKNOWN))));
    }
}
