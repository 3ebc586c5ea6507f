//! A connector at an edge, and the Gateways that announce it there.

use super::fleet::LivenessView;
use super::hubs::{HubAt, next_attempt, write_evidence};
use super::judged::{HopAt, Judged};
use crate::contract::cause::{Cause, Hop, Problem, State};
use crate::controller::Finder;
use crate::data::ids::{Kind, NamespacedName, Role};
use crate::machine::Machine;
use crate::rules::touch::{self, TouchMemory};
use crate::subject::{Subject, Target};
use crate::world::cluster::Cluster;
use crate::world::edge::EdgeConnector;
use crate::write_queue::QueueKey;

pub(super) struct EdgeAt<'m> {
    m: &'m Machine,
    pub(super) cluster: &'m Cluster,
    name: &'m NamespacedName,
    pub(super) row: &'m EdgeConnector,
    gateways: Vec<GatewayAt<'m>>,
}

/// A Gateway, or the name of one that does not exist.
struct GatewayAt<'m> {
    m: &'m Machine,
    cluster: &'m Cluster,
    name: &'m NamespacedName,
    /// The target that announces its connectors.
    target: Option<Target>,
    memory: Option<&'m TouchMemory>,
}

impl<'m> EdgeAt<'m> {
    /// The edge Connectors of a name, by edge.
    pub(super) fn all(m: &'m Machine, name: &NamespacedName) -> Vec<Self> {
        let edges = m.world.edges();
        let edges = edges.filter(|edge| edge.is_hub_namespace(name.namespace()));
        edges.filter_map(|cluster| Self::find(m, cluster, name)).collect()
    }

    fn find(m: &'m Machine, cluster: &'m Cluster, name: &NamespacedName) -> Option<Self> {
        let name = cluster.edge.connectors.key(name)?;
        let row = cluster.edge.connectors.seen(name)?;
        let gateways = cluster.edge.gateways_of(name).iter();
        let gateways = gateways.map(|gateway| GatewayAt::new(m, cluster, gateway)).collect();
        Some(Self { m, cluster, name, row, gateways })
    }

    pub(super) fn says(&self) -> LivenessView {
        LivenessView::new(self.row.stamp)
    }

    pub(super) fn judged(&self, hub: Option<&HubAt<'m>>) -> Judged<'m> {
        let m = self.m;
        // If no known hub has the Connector, a hub that is not watched may have it, or one whose
        // object cannot be decoded.
        let is_needed = hub.is_none() && m.world.settings.mirror.enabled;
        let hubs = || m.world.hubs().filter(|_| is_needed);
        let mut compared =
            std::iter::once(self.cluster).chain(hub.map(|hub| hub.cluster)).chain(hubs());
        let not_live = |cluster| Judged::not_live(m, cluster, &[Kind::Connector]);
        let unreadable = || hubs().find_map(|hub| Judged::unreadable(m, hub, self.name));
        if let Some(unknown) = compared.find_map(not_live).or_else(unreadable) {
            return unknown;
        }
        match hub {
            // Where the hub is the edge itself, both are one object.
            Some(hub)
                if hub.cluster.id != self.cluster.id && hub.digest() != self.row.annotation =>
            {
                hub.not_carried(self.cluster).unwrap_or(Judged::state(State::Pending))
            }
            _ => Judged::ok(),
        }
    }

    pub(super) fn hop(&self, hub: Option<&HubAt<'m>>, expected: Option<LivenessView>) -> HopAt<'m> {
        let judged = self.judged(hub);
        let out_of_sync_since =
            hub.and_then(|hub| hub.memory?.hop.out_of_sync_since(self.cluster.id));
        let since = match judged.state {
            State::Unknown => judged.unknown_since,
            State::Ok => self.row.changed_at,
            _ => out_of_sync_since,
        };
        let late_hub = hub.filter(|_| matches!(judged.state, State::Pending | State::Stuck));
        let object = Some(self.name.clone());
        HopAt {
            says: Some(self.says()),
            expected,
            since,
            next_attempt: late_hub.and_then(HubAt::next_attempt),
            evidence: late_hub.map(HubAt::carried_evidence).unwrap_or_default(),
            ..HopAt::new(Hop::Carried, self.cluster, Kind::Connector, object, judged)
        }
    }

    /// The hops of its Gateways, or one hop if there are none.
    pub(super) fn announced_hops(&self) -> Vec<HopAt<'m>> {
        match self.gateways.is_empty() {
            true => vec![self.unreferenced_hop()],
            false => self.gateways.iter().map(|gateway| gateway.hop(self.says())).collect(),
        }
    }

    /// The worst of its Gateways.
    pub(super) fn announced_state(&self) -> State {
        let states = self.gateways.iter().map(|gateway| gateway.judged().state);
        states.max().unwrap_or_else(|| no_gateway(self.m, self.cluster).state)
    }

    /// The hop of a connector that no HTTPProxy references.
    fn unreferenced_hop(&self) -> HopAt<'m> {
        let unknown = Judged::not_live(self.m, self.cluster, Role::Edge.liveness_kinds());
        let judged = no_gateway(self.m, self.cluster);
        HopAt {
            expected: Some(self.says()),
            since: unknown.and_then(|unknown| unknown.unknown_since),
            ..HopAt::new(Hop::Announced, self.cluster, Kind::Gateway, None, judged)
        }
    }
}

impl<'m> GatewayAt<'m> {
    fn new(m: &'m Machine, cluster: &'m Cluster, name: &'m NamespacedName) -> Self {
        let target = cluster.target_of(name);
        let memory = target.as_ref().and_then(|of| m.memory.targets.get(of));
        Self { m, cluster, name, target, memory: memory.map(Box::as_ref) }
    }

    fn judged(&self) -> Judged<'m> {
        let Self { m, cluster, memory, .. } = *self;
        if !m.world.settings.touch.enabled {
            return Judged::cause(State::Ok, Cause::RuleOff);
        }
        let unknown = Judged::not_live(m, cluster, Role::Edge.liveness_kinds());
        let Some(target) = &self.target else {
            let is_elsewhere =
                cluster.edge.is_touched_elsewhere && cluster.edge.gateways.get(self.name).is_some();
            return unknown.unwrap_or(match is_elsewhere {
                true => Judged::ok(),
                false => Judged::cause(State::Ok, Cause::NoGateway),
            });
        };
        let is_known =
            cluster.edge.ready_since.is_some() && cluster.is_hub_namespace(self.name.namespace());
        if !is_known {
            return unknown.unwrap_or(Judged::state(State::Unknown));
        }
        if let Some(worst) = Judged::worst(self.problems()) {
            return worst;
        }

        let touch = touch::view(&m.world, target, m.now);
        let is_announced = touch.as_ref().zip(memory).is_some_and(|(touch, memory)| {
            let announced = memory.announced_digest(touch.trigger());
            !memory.is_pending() && touch.desired.is_some() && announced == touch.desired
        });
        if is_announced {
            return Judged::ok();
        }
        let finder = Finder::Whole(cluster.name.clone(), Cause::TouchesQueued);
        let queued = m.notes.of(&finder).first().filter(|_| self.is_queued(target));
        Judged { state: State::Pending, ..queued.map_or(Judged::ok(), Judged::problem) }
    }

    /// Its touch is due and waits for the edge's rate limit.
    fn is_queued(&self, target: &Target) -> bool {
        let queue = self.m.scheduler.queue(QueueKey::Touches(self.cluster.id));
        let due = queue.and_then(|queue| queue.due_of(&Subject::Target(target.clone())));
        due.is_some_and(|due| due.at <= self.m.now)
    }

    fn hop(&self, expected: LivenessView) -> HopAt<'m> {
        let Self { m, memory, .. } = *self;
        let judged = self.judged();
        let is_ready = self.cluster.edge.ready_since.is_some();
        let is_open = is_ready && !matches!(judged.state, State::Ok | State::Held);
        let since = match judged.state {
            State::Ok => memory.and_then(TouchMemory::unconfirmed_since),
            State::Pending | State::Stuck => memory.and_then(|memory| memory.waiting_since),
            State::Unknown => judged.unknown_since,
            State::Held => None,
        };
        let write = memory.map(|memory| &memory.write).filter(|_| is_open);
        let mut evidence: Vec<_> =
            write.and_then(|write| write_evidence(write, self.problems())).into_iter().collect();
        evidence.extend(self.trigger());

        let object = Some(self.name.clone());
        HopAt {
            expected: Some(expected),
            since,
            next_attempt: write.and_then(|write| next_attempt(write, m.now)),
            evidence,
            ..HopAt::new(Hop::Announced, self.cluster, Kind::Gateway, object, judged)
        }
    }

    /// The trigger, and which Gateway carries it for the whole class.
    fn trigger(&self) -> Option<String> {
        let m = self.m;
        let touch = touch::view(&m.world, self.target.as_ref()?, m.now)?;
        let trigger = touch.trigger()?;
        match touch.gateway == self.name {
            true => Some(format!("trigger {trigger}")),
            false => Some(format!("trigger {trigger} on {} for its class", touch.gateway)),
        }
    }

    /// The problems of the target that announces its connectors.
    fn problems(&self) -> &'m [Problem] {
        let target = self.target.clone().map(Subject::Target);
        target.map_or(&[], |target| self.m.notes.of_subject(&target))
    }
}

/// The state if no Gateway announces a connector. It is unknown until the lists of the edge are
/// complete.
fn no_gateway<'m>(m: &'m Machine, cluster: &Cluster) -> Judged<'m> {
    if !m.world.settings.touch.enabled {
        return Judged::cause(State::Ok, Cause::RuleOff);
    }
    let unknown = Judged::not_live(m, cluster, Role::Edge.liveness_kinds());
    unknown.unwrap_or(Judged::cause(State::Ok, Cause::NoGateway))
}
