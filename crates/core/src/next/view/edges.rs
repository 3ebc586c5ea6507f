//! A connector at an edge, and the Gateways that announce it there.

use super::build::Present;
use super::hubs::HubAt;
use super::phase::AnnouncementState;
use super::{EdgeView, GatewayView, node};
use crate::contract::note::Stall;
use crate::data::ids::Kind;
use crate::data::name::NamespacedName;
use crate::data::time::UnixMillis;
use crate::next::rules::touch;
use crate::next::subject::{Subject, Target};
use crate::next::world::cluster::Cluster;
use crate::next::world::edge::EdgeConnector;
use crate::next::write_queue::QueueKey;

pub(super) struct EdgeAt<'c> {
    pub(super) cluster: &'c Cluster,
    pub(super) row: &'c EdgeConnector,
    /// Its announcement is late.
    pub(super) stall: Option<&'c Stall>,
    pub(super) gateways: Vec<GatewayAt<'c>>,
}

/// A Gateway, or the name of one that does not exist.
pub(super) struct GatewayAt<'c> {
    cluster: &'c Cluster,
    name: &'c NamespacedName,
    /// What announces its connectors.
    target: Option<Target>,
}

impl<'c> EdgeAt<'c> {
    /// The edge Connectors of a name, by edge.
    pub(super) fn all(present: Present<'c>, name: &NamespacedName) -> Vec<Self> {
        let edges = present.c.world.edges().filter(|edge| edge.is_hub_namespace(name.namespace()));
        edges.filter_map(|cluster| Self::find(present, cluster, name)).collect()
    }

    fn find(present: Present<'c>, cluster: &'c Cluster, name: &NamespacedName) -> Option<Self> {
        let row = &cluster.edge.connectors.get(name)?.seen;
        let memory = present.c.memory.edges.get(&cluster.id);
        let waiting = memory.and_then(|edge| edge.waiting.get(name));
        let gateways = cluster.edge.gateways_of(name).iter();
        Some(Self {
            cluster,
            row,
            stall: waiting.and_then(|waiting| waiting.stall.as_deref()),
            gateways: gateways.map(|gateway| GatewayAt::new(cluster, gateway)).collect(),
        })
    }

    /// Since when it does not say what the hub says.
    pub(super) fn behind_since(&self, hubs: &[HubAt<'_>]) -> Option<UnixMillis> {
        hubs.iter().find_map(|hub| hub.memory?.hop.behind_since(self.cluster.id))
    }

    pub(super) fn view(&self, present: Present<'_>, hubs: &[HubAt<'_>]) -> EdgeView {
        let online = self.row.is_online;
        let mut gateways: Vec<_> =
            self.gateways.iter().map(|gateway| gateway.view(present)).collect();
        gateways.sort_unstable_by(|a, b| a.name.cmp(&b.name));

        EdgeView {
            cluster: self.cluster.name.clone(),
            online,
            node: node(online, self.row.stamp),
            changed_at_ms: self.row.changed_at,
            behind_since_ms: self.behind_since(hubs),
            as_hub: hubs.first().map(|hub| hub.digest() == self.row.annotation),
            gateways,
        }
    }
}

impl<'c> GatewayAt<'c> {
    fn new(cluster: &'c Cluster, name: &'c NamespacedName) -> Self {
        let target = cluster.edge.target_of(&cluster.object(Kind::Gateway, name));
        Self { cluster, name, target }
    }

    /// Whether its connectors are announced, by itself or for its class.
    pub(super) fn announcement(&self, present: Present<'_>) -> AnnouncementState {
        let edge = &self.cluster.edge;
        let is_known =
            edge.ready_since.is_some() && self.cluster.is_hub_namespace(self.name.namespace());
        match self.target {
            _ if !present.c.settings.touch.enabled => AnnouncementState::Off,
            None => AnnouncementState::NoGateway,
            Some(_) if !is_known => AnnouncementState::Unknown,
            Some(_) if self.is_announced(present) => AnnouncementState::Announced,
            Some(_) if self.is_target_paused(present) => AnnouncementState::Paused,
            Some(_) => AnnouncementState::Pending,
        }
    }

    fn is_announced(&self, present: Present<'_>) -> bool {
        let is_announced = || {
            let view = self.touch_view(present)?;
            let memory = self.memory(present).filter(|memory| !memory.is_pending())?;
            Some(view.desired.is_some() && memory.announced_digest(view.trigger()) == view.desired)
        };
        is_announced().unwrap_or(false)
    }

    /// A person has paused the Gateway that carries its trigger.
    pub(super) fn is_target_paused(&self, present: Present<'_>) -> bool {
        self.touch_view(present).is_some_and(|view| view.is_paused())
    }

    fn touch_view<'v>(&'v self, present: Present<'v>) -> Option<touch::View<'v>> {
        let Present { c, .. } = present;
        touch::view(&c.world, self.target.as_ref()?, &c.settings.touch)
    }

    fn memory<'v>(&self, present: Present<'v>) -> Option<&'v touch::TouchMemory> {
        present.c.memory.targets.get(self.target.as_ref()?).map(Box::as_ref)
    }

    /// When the next touch is due.
    fn due_at(&self, present: Present<'_>) -> Option<UnixMillis> {
        let target = self.target.clone()?;
        let queue = present.c.scheduler.queue(QueueKey::Touches(self.cluster.id))?;
        Some(queue.due_of(&Subject::Target(target))?.at)
    }

    fn view(&self, present: Present<'_>) -> GatewayView {
        let touch = self.touch_view(present);
        let memory = self.memory(present);
        let carrier = touch.as_ref().map(|touch| touch.gateway);
        let is_paused =
            self.cluster.edge.gateways.get(self.name).is_some_and(|row| row.seen.is_paused);

        GatewayView {
            name: self.name.name().to_owned(),
            announcement: self.announcement(present),
            trigger: touch.and_then(|touch| touch.trigger()).map(|trigger| trigger.to_string()),
            announced_on: carrier.filter(|name| *name != self.name).map(NamespacedName::key),
            paused: is_paused || self.is_target_paused(present),
            announced_at_ms: memory.and_then(touch::TouchMemory::unconfirmed_since),
            due_at_ms: self.due_at(present),
            writes: memory.map(|memory| present.writes(&memory.write)).unwrap_or_default(),
        }
    }
}
