//! A connector at an edge, and the Gateways that announce it there.

use super::phase::AnnouncementState;
use super::{GatewayView, WritesView};
use crate::contract::cause::Problem;
use crate::controller::Controller;
use crate::data::ids::Kind;
use crate::data::name::NamespacedName;
use crate::data::time::UnixMillis;
use crate::rules::touch::{self, TouchMemory};
use crate::subject::{Subject, Target};
use crate::world::cluster::Cluster;
use crate::world::edge::EdgeConnector;
use crate::write_queue::QueueKey;

pub(super) struct EdgeAt<'c> {
    pub(super) cluster: &'c Cluster,
    pub(super) row: &'c EdgeConnector,
    pub(super) gateways: Vec<GatewayAt<'c>>,
}

/// A Gateway, or the name of one that does not exist.
pub(super) struct GatewayAt<'c> {
    cluster: &'c Cluster,
    name: &'c NamespacedName,
    /// What announces its connectors.
    target: Option<Target>,
    memory: Option<&'c TouchMemory>,
    pub(super) announcement: AnnouncementState,
    /// A person has paused the Gateway that carries its trigger.
    pub(super) is_target_paused: bool,
}

impl<'c> EdgeAt<'c> {
    /// The edge Connectors of a name, by edge.
    pub(super) fn all(c: &'c Controller, name: &NamespacedName) -> Vec<Self> {
        let edges = c.world.edges();
        let edges = edges.filter(|edge| edge.is_hub_namespace(name.namespace()));
        edges.filter_map(|cluster| Self::find(c, cluster, name)).collect()
    }

    fn find(c: &'c Controller, cluster: &'c Cluster, name: &NamespacedName) -> Option<Self> {
        let row = &cluster.edge.connectors.get(name)?.seen;
        let gateways = cluster.edge.gateways_of(name).iter();
        Some(Self {
            cluster,
            row,
            gateways: gateways.map(|gateway| GatewayAt::new(c, cluster, gateway)).collect(),
        })
    }

    /// Sorted by name.
    pub(super) fn gateway_views(&self, c: &Controller) -> Vec<GatewayView> {
        let gateways = self.gateways.iter().map(|gateway| gateway.view(c));
        let mut gateways: Vec<_> = gateways.collect();
        gateways.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        gateways
    }
}

impl<'c> GatewayAt<'c> {
    fn new(c: &'c Controller, cluster: &'c Cluster, name: &'c NamespacedName) -> Self {
        let target = cluster.edge.target_of(&cluster.object(Kind::Gateway, name));
        let touch = target.as_ref().and_then(|target| view_of(c, target));
        let memory = target.as_ref().and_then(|of| c.memory.targets.get(of));
        let memory = memory.map(Box::as_ref);

        let is_target_paused = touch.as_ref().is_some_and(|touch| touch.is_paused());
        let is_announced = touch.as_ref().zip(memory).is_some_and(|(touch, memory)| {
            let announced = memory.announced_digest(touch.trigger());
            !memory.is_pending() && touch.desired.is_some() && announced == touch.desired
        });
        let is_known =
            cluster.edge.ready_since.is_some() && cluster.is_hub_namespace(name.namespace());
        let announcement = match target {
            _ if !c.settings.touch.enabled => AnnouncementState::Off,
            None => AnnouncementState::NoGateway,
            Some(_) if !is_known => AnnouncementState::Unknown,
            Some(_) if is_announced => AnnouncementState::Announced,
            Some(_) if is_target_paused => AnnouncementState::Paused,
            Some(_) => AnnouncementState::Pending,
        };
        Self { cluster, name, target, memory, announcement, is_target_paused }
    }

    fn view(&self, c: &Controller) -> GatewayView {
        let touch = self.target.as_ref().and_then(|target| view_of(c, target));
        let carrier = touch.as_ref().map(|touch| touch.gateway);
        let row = self.cluster.edge.gateways.get(self.name);

        GatewayView {
            name: self.name.name().to_owned(),
            announcement: self.announcement,
            trigger: touch.and_then(|touch| touch.trigger()).map(|trigger| trigger.to_string()),
            announced_on: carrier.filter(|name| *name != self.name).map(NamespacedName::key),
            paused: self.is_target_paused || row.is_some_and(|row| row.seen.is_paused),
            announced_at_ms: self.memory.and_then(TouchMemory::unconfirmed_since),
            due_at_ms: self.due_at(c),
            writes: WritesView::of(self.memory.map(|memory| &memory.write), c.now),
        }
    }

    /// What is wrong with what announces its connectors.
    pub(super) fn problems(&self, c: &'c Controller) -> &'c [Problem] {
        let target = self.target.clone().map(Subject::Target);
        target.map_or(&[], |target| c.notes.of_subject(&target))
    }

    /// When the next touch is due.
    fn due_at(&self, c: &Controller) -> Option<UnixMillis> {
        let target = self.target.clone()?;
        let queue = c.scheduler.queue(QueueKey::Touches(self.cluster.id))?;
        Some(queue.due_of(&Subject::Target(target))?.at)
    }
}

fn view_of<'c>(c: &'c Controller, target: &'c Target) -> Option<touch::View<'c>> {
    touch::view(&c.world, target, &c.settings, c.now)
}
