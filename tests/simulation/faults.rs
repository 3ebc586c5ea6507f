//! Faults: what they do, and what ends them.

use std::time::Duration;

use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::sim::apiserver::{ApiVerb, Fault, Resource, ServerMode};

use crate::network::LinkState;
use crate::random::Random;
use crate::stage::Stage;
use crate::world::TRIGGER;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    LinkSlow,
    LinkBlocked,
    RequestsLost,
    AnswersLost,
    ConnectionsReset,
    AnswerCutInside,
    ServerHangs,
    ServerDown,
    ServerSlow,
    RequestsRefused,
    WriteAnswersHidden,
    RequestsHang,
    WatchesCut,
    HistoryCompacted,
    KindNotServed,
    InstanceKilled,
    InstanceStopped,
    InstanceFrozen,
    WallClockJumps,
    LeaseDeleted,
    LeaseEdited,
    ReplicatorWrites,
    ReplicatorWritesOldStatus,
    TriggerOverwritten,
    EdgeAnnotationOverwritten,
    CarrierStuck,
    ExtensionServerLags,
    ConnectorMadeAgain,
    GatewayMadeAgain,
    UpstreamLeaves,
    UpstreamRestored,
    EdgeRestored,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 32] = [
        Self::LinkSlow,
        Self::LinkBlocked,
        Self::RequestsLost,
        Self::AnswersLost,
        Self::ConnectionsReset,
        Self::AnswerCutInside,
        Self::ServerHangs,
        Self::ServerDown,
        Self::ServerSlow,
        Self::RequestsRefused,
        Self::WriteAnswersHidden,
        Self::RequestsHang,
        Self::WatchesCut,
        Self::HistoryCompacted,
        Self::KindNotServed,
        Self::InstanceKilled,
        Self::InstanceStopped,
        Self::InstanceFrozen,
        Self::WallClockJumps,
        Self::LeaseDeleted,
        Self::LeaseEdited,
        Self::ReplicatorWrites,
        Self::ReplicatorWritesOldStatus,
        Self::TriggerOverwritten,
        Self::EdgeAnnotationOverwritten,
        Self::CarrierStuck,
        Self::ExtensionServerLags,
        Self::ConnectorMadeAgain,
        Self::GatewayMadeAgain,
        Self::UpstreamLeaves,
        Self::UpstreamRestored,
        Self::EdgeRestored,
    ];
}

/// How a fault ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Link(u32, usize),
    Mode(usize),
    Latency(usize),
    Faults(usize),
    Served(usize, Resource),
    Restart(usize),
    Thaw(usize),
    Lag(usize),
    Rejoin,
    /// The agents of an upstream report their state again.
    Report(usize),
}

const WRITES: [ApiVerb; 4] = [ApiVerb::Create, ApiVerb::Update, ApiVerb::Patch, ApiVerb::Delete];
const CODES: [u16; 7] = [401, 403, 410, 429, 500, 503, 504];

impl Stage {
    /// Begins a fault. Returns how it ends, and after how long.
    pub(crate) async fn inject(
        &mut self,
        kind: FaultKind,
        random: &mut Random,
    ) -> Option<(End, Duration)> {
        let lasts = Duration::from_millis(random.between(100, 12_000));
        let server = random.below(self.servers.len());
        let instance = random.below(self.instances.len());
        let connector = random.below(self.world.connectors.len());
        let edge = random.below(self.world.names.edges.len());
        let client = self.client(instance);
        let link = |to_server, to_client, delay_ms| LinkState { to_server, to_client, delay_ms };
        match kind {
            FaultKind::LinkSlow => {
                let most = random.between(50, 3_000);
                self.set_link(client, server, link(true, true, (most / 2, most)))
            }
            FaultKind::LinkBlocked => self.set_link(client, server, link(false, false, (0, 2))),
            FaultKind::RequestsLost => self.set_link(client, server, link(false, true, (0, 2))),
            FaultKind::AnswersLost => self.set_link(client, server, link(true, false, (0, 2))),
            FaultKind::ConnectionsReset => {
                self.cut(client, server, 0);
                return None;
            }
            FaultKind::AnswerCutInside => {
                self.cut(client, server, 1 + random.below(4_000));
                return None;
            }
            FaultKind::ServerHangs => self.servers[server].set_mode(ServerMode::Frozen),
            FaultKind::ServerDown => self.servers[server].set_mode(ServerMode::Down),
            FaultKind::ServerSlow => {
                self.servers[server].set_latency(Duration::from_millis(random.between(50, 4_000)));
            }
            FaultKind::RequestsRefused => {
                let verbs = if random.one_in(2) {
                    WRITES.to_vec()
                } else {
                    vec![ApiVerb::Get, ApiVerb::List, ApiVerb::Watch]
                };
                let code = *random.pick(&CODES);
                let retry_after_s = random.one_in(2).then(|| 1 + random.next() as u32 % 3);
                let fault = Fault { verbs, resource: None, code, retry_after_s, executes: false };
                self.servers[server].inject(&fault, 1 + random.below(20));
            }
            FaultKind::WriteAnswersHidden => {
                let code = *random.pick(&[Fault::NO_RESPONSE, 500, 504]);
                let fault = Fault::on_writes(code).but_executed();
                self.servers[server].inject(&fault, 1 + random.below(4));
            }
            FaultKind::RequestsHang => {
                let fault = Fault::on_writes(Fault::NO_RESPONSE);
                self.servers[server].inject(&fault, 1 + random.below(6));
            }
            FaultKind::WatchesCut => {
                self.servers[server].cut_watches(None);
                return None;
            }
            FaultKind::HistoryCompacted => {
                self.servers[server].compact();
                self.servers[server].cut_watches(None);
                return None;
            }
            FaultKind::KindNotServed => {
                let resource = *random.pick(&[Resource::Connectors, Resource::Gateways]);
                self.servers[server].set_served(resource, false);
                self.servers[server].cut_watches(Some(resource));
                return Some((End::Served(server, resource), lasts));
            }
            FaultKind::InstanceKilled => {
                self.kill(instance);
                return Some((End::Restart(instance), lasts));
            }
            FaultKind::InstanceStopped => {
                self.instances[instance].stop();
                return Some((End::Restart(instance), lasts.max(Duration::from_secs(11))));
            }
            FaultKind::InstanceFrozen => {
                self.instances[instance].computer.freeze();
                let lasts = lasts + Duration::from_millis(random.between(0, 25_000));
                return Some((End::Thaw(instance), lasts));
            }
            FaultKind::WallClockJumps => {
                let hours = random.between(0, 96) as i64 - 48;
                self.instances[instance].computer.set_wall_offset(hours * 3_600_000);
                return None;
            }
            FaultKind::LeaseDeleted => {
                self.edit_lease("DELETE", "").await;
                return None;
            }
            FaultKind::LeaseEdited => {
                let body = r#"{"spec":{"renewTime":"1999-01-01T00:00:00.000000Z"}}"#;
                self.edit_lease("PATCH", body).await;
                return None;
            }
            FaultKind::ReplicatorWrites => {
                self.world.replicate(connector, false);
                return None;
            }
            FaultKind::ReplicatorWritesOldStatus => {
                self.world.replicate(connector, true);
                return None;
            }
            FaultKind::TriggerOverwritten => {
                self.overwrite_trigger(connector, edge, random);
                return None;
            }
            FaultKind::EdgeAnnotationOverwritten => {
                let edge = self.world.names.edges[edge].clone();
                let key = self.world.hub_key(connector);
                let value = random.one_in(2).then_some("{}");
                self.world.annotate(&edge, Kind::Connector, &key, (UPSTREAM_STATUS, value));
                return None;
            }
            FaultKind::CarrierStuck => {
                self.world.flip(connector);
                let edge = self.world.names.edges[edge].clone();
                let key = self.world.hub_key(connector);
                self.world.lock().set_carry_stuck(&edge, &key);
                return None;
            }
            FaultKind::ExtensionServerLags => {
                // Longer than the window, and shorter than the first confirmation.
                self.world.set_cache_lag(edge, (500, random.between(600, 1_500)));
                return Some((End::Lag(edge), lasts));
            }
            FaultKind::ConnectorMadeAgain => {
                self.world.make_again(connector);
                return None;
            }
            FaultKind::GatewayMadeAgain => {
                self.world.make_gateway_again(connector, edge);
                return None;
            }
            FaultKind::UpstreamLeaves => {
                let upstream = random.below(self.world.names.upstreams.len());
                self.reload_without(Some(upstream)).await;
                return Some((End::Rejoin, lasts));
            }
            FaultKind::UpstreamRestored => {
                let upstream = random.below(self.world.names.upstreams.len());
                let backup = self.backups.get(upstream)?.clone();
                self.servers[upstream].restore(&backup);
                return Some((End::Report(upstream), lasts));
            }
            FaultKind::EdgeRestored => {
                let server = self.world.names.upstreams.len() + 1 + edge;
                let backup = self.backups.get(server)?.clone();
                self.servers[server].restore(&backup);
                self.ledger.lock().unwrap().forget_edge(&self.world.names.edges[edge]);
                return None;
            }
        }
        let end = match kind {
            FaultKind::LinkSlow
            | FaultKind::LinkBlocked
            | FaultKind::RequestsLost
            | FaultKind::AnswersLost => End::Link(client, server),
            FaultKind::ServerHangs | FaultKind::ServerDown => End::Mode(server),
            FaultKind::ServerSlow => End::Latency(server),
            _ => End::Faults(server),
        };
        Some((end, lasts))
    }

    fn overwrite_trigger(&mut self, connector: usize, edge: usize, random: &mut Random) {
        let namespace = self.world.hub_key(connector).namespace;
        let key = ObjectKey::new(namespace, &self.world.connectors[connector].gateways[0]);
        let edge = self.world.names.edges[edge].clone();
        let value = random.one_in(2).then_some("not a trigger");
        self.world.annotate(&edge, Kind::Gateway, &key, (TRIGGER, value));
        let uid = self.world.lock().get(&edge, Kind::Gateway, &key).map(|g| g.meta.uid.clone());
        self.ledger.lock().unwrap().forget_trigger(&edge, &key, &uid.unwrap_or_default());
    }

    pub(crate) async fn end(&mut self, end: End) {
        match end {
            End::Link(client, server) => self.set_link(client, server, LinkState::healthy()),
            End::Mode(server) => self.servers[server].set_mode(ServerMode::Serving),
            End::Latency(server) => self.servers[server].set_latency(Duration::ZERO),
            End::Faults(server) => self.servers[server].clear_faults(),
            End::Served(server, resource) => self.servers[server].set_served(resource, true),
            End::Restart(instance) => self.restart(instance),
            End::Thaw(instance) => self.instances[instance].computer.thaw(),
            End::Lag(edge) => self.world.reset_cache_lag(edge),
            End::Report(upstream) => self.world.report(upstream),
            End::Rejoin => self.reload_without(None).await,
        }
    }
}
