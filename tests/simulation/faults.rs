//! Faults: what they do, and what ends them.

use std::time::Duration;

use throughline::core::data::ids::Kind;
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, ServerMode};

use crate::computer::Disk;
use crate::discovery::Shown;
use crate::fault_kind::FaultKind;
use crate::network::LinkState;
use crate::random::Random;
use crate::stage::Stage;

/// How a fault ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Link(u32, usize),
    Mode(usize),
    Latency(usize),
    Faults(usize),
    Served(usize, Resource),
    Restart(usize),
    /// No touch kills any more.
    Touches,
    Thaw(usize),
    Lag(usize),
    /// The carrier takes a connector to an edge again.
    Carrier(usize, usize),
    Rejoin,
    Reads(usize),
    Bookmarks(usize),
    Pages(usize),
    Twin,
    Disk(usize),
    Etcd(usize),
    /// A parent of a site's is there again.
    Parent(usize, usize),
    /// An upstream is shown again, by what it was shown by before.
    Offer(usize),
    /// The source of the upstreams answers again.
    Source,
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
        // Some outlast a lease.
        let most_ms = *random.pick(&[12_000, 12_000, 12_000, 30_000]);
        let lasts = Duration::from_millis(random.between(100, most_ms));
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
            FaultKind::RequestsThrottled => self.throttle(server, random),
            FaultKind::WritesRepeated => self.repeat_writes(server, random),
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
            FaultKind::WatchesLate | FaultKind::ReadsStale | FaultKind::TimeTravel => {
                return Some((self.lag_reads(kind, server, random), lasts));
            }
            FaultKind::BookmarksMissing => {
                self.servers[server].set_bookmarks(false);
                // Long enough for watches to count as silent.
                return Some((End::Bookmarks(server), lasts + Duration::from_secs(20)));
            }
            FaultKind::PagesExpire => {
                self.servers[server].set_pages_expire(true);
                self.servers[server].compact();
                self.servers[server].cut_watches(None);
                return Some((End::Pages(server), lasts));
            }
            FaultKind::InstanceStartedTwice => {
                self.start_twin();
                return Some((End::Twin, lasts + Duration::from_secs(20)));
            }
            FaultKind::DiskFull => self.instances[instance].computer.set_disk(Disk::Full),
            FaultKind::DiskHangs => self.instances[instance].computer.set_disk(Disk::Hangs),
            FaultKind::InstanceKilled => {
                self.kill(instance);
                return Some((End::Restart(instance), lasts));
            }
            FaultKind::KilledAfterTouch => {
                let touches = self.ledger.lock().unwrap().touches;
                let away = Duration::from_millis(random.between(300, 4_000));
                self.killed_after = Some((touches, away));
                return Some((End::Touches, lasts));
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
                // Never the same text twice: that would bring back a record which an instance that saw
                // nothing in between takes for one that was never renewed.
                self.lease_edits += 1;
                let time = format!("1999-01-01T00:00:00.{:06}Z", self.lease_edits);
                let body = format!(r#"{{"spec":{{"renewTime":"{time}"}}}}"#);
                self.edit_lease("PATCH", &body).await;
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
                let value = random.one_in(2).then_some("not a trigger");
                self.overwrite_trigger((connector, edge), value);
                return None;
            }
            FaultKind::OldTriggerWritten => {
                self.put_old_trigger_back(connector, edge);
                return None;
            }
            FaultKind::HostileWrite => {
                self.write_hostile(connector, edge, random);
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
                self.world.stuck.push((edge, connector));
                return Some((End::Carrier(edge, connector), lasts));
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
            FaultKind::ParentGone => {
                return self.delete_parents(false, random).map(|end| (end, lasts));
            }
            FaultKind::TenantLeaves => {
                self.delete_parents(true, random);
                return None;
            }
            FaultKind::UpstreamRestored => {
                let upstream = random.below(self.world.names.upstreams.len());
                return self.restore(upstream).map(|end| (end, lasts));
            }
            FaultKind::HubRestored if self.hub_was_restored_lately() => return None,
            FaultKind::HubRestored => {
                self.restore(self.world.names.upstreams.len());
                return None;
            }
            FaultKind::EdgeRestored => {
                self.restore(self.world.names.upstreams.len() + 1 + edge);
                return None;
            }
            FaultKind::EtcdLost
                if server == self.world.names.upstreams.len() && self.hub_was_restored_lately() =>
            {
                return None;
            }
            FaultKind::OfferDeleted
            | FaultKind::OfferUnlabelled
            | FaultKind::OfferUndecodable
            | FaultKind::OfferTokenChanged => {
                return self.disturb_upstream(kind, random).map(|end| (end, lasts));
            }
            FaultKind::StrangerUndecodable => {
                self.add_stranger();
                return None;
            }
            FaultKind::SourceHangs | FaultKind::SourceExpires | FaultKind::SourceBreaksOff => {
                self.disturb_source(kind, random);
                return Some((End::Source, lasts));
            }
            FaultKind::EtcdLost => {
                return Some((self.lose_etcd(server), lasts));
            }
        }
        let end = match kind {
            FaultKind::LinkSlow
            | FaultKind::LinkBlocked
            | FaultKind::RequestsLost
            | FaultKind::AnswersLost => End::Link(client, server),
            FaultKind::ServerHangs | FaultKind::ServerDown => End::Mode(server),
            FaultKind::ServerSlow => End::Latency(server),
            FaultKind::DiskFull | FaultKind::DiskHangs => End::Disk(instance),
            _ => End::Faults(server),
        };
        Some((end, lasts))
    }

    pub(crate) async fn end(&mut self, end: End) {
        match end {
            End::Link(client, server) => self.set_link(client, server, LinkState::healthy()),
            End::Mode(server) => self.servers[server].set_mode(ServerMode::Serving),
            End::Latency(server) => self.servers[server].set_latency(Duration::ZERO),
            End::Faults(server) => self.servers[server].clear_faults(),
            End::Served(server, resource) => self.servers[server].set_served(resource, true),
            End::Restart(instance) => self.restart(instance),
            End::Touches => self.killed_after = None,
            End::Thaw(instance) => {
                self.instances[instance].computer.thaw();
                self.ledger.lock().unwrap().oracle.thawed(self.client(instance));
            }
            End::Lag(edge) => self.world.reset_cache_lag(edge),
            End::Carrier(edge, connector) => {
                let mut stuck = self.world.stuck.iter();
                let at = stuck.position(|stuck| *stuck == (edge, connector));
                self.world.stuck.remove(at.unwrap());
            }
            End::Report(upstream) => self.report_upstream(upstream),
            End::Reads(server) => self.servers[server].catch_up(),
            End::Bookmarks(server) => self.servers[server].set_bookmarks(true),
            End::Pages(server) => self.servers[server].set_pages_expire(false),
            End::Twin => self.stop_twin(),
            End::Disk(instance) => self.instances[instance].computer.set_disk(Disk::Works),
            End::Etcd(server) => self.bring_etcd_back(server),
            End::Parent(site, parent) => self.world.set_parent(site, parent, false),
            End::Offer(upstream) => self.show(upstream, Shown::Right),
            End::Source => self.calm_source(),
            End::Rejoin => self.reload_without(None).await,
        }
    }
}
