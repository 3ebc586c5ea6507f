//! Faults: what they do, and what ends them.

use std::fmt;
use std::time::Duration;

use throughline::core::data::ids::Kind;
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, ServerMode};
use tokio::time::Instant;

use crate::computer::Disk;
use crate::fault_kind::FaultKind;
use crate::network::LinkState;
use crate::random::Random;
use crate::stage::Stage;

pub(crate) type End = Box<dyn FnOnce(&mut Stage)>;

/// A fault that lasts.
pub(crate) struct ActiveFault {
    pub(crate) kind: FaultKind,
    pub(crate) ends_at: Instant,
    pub(crate) end: End,
}

/// What a fault may hit. All of it is drawn for each fault, whatever its kind.
#[derive(Clone, Copy)]
struct Target {
    server: usize,
    instance: usize,
    client: u32,
    connector: usize,
    edge: usize,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, instance, connector, edge, .. } = self;
        write!(f, "server {server}, instance {instance}, connector {connector}, edge {edge}")
    }
}

const READS: [ApiVerb; 3] = [ApiVerb::Get, ApiVerb::List, ApiVerb::Watch];
const WRITES: [ApiVerb; 4] = [ApiVerb::Create, ApiVerb::Update, ApiVerb::Patch, ApiVerb::Delete];
const CODES: [u16; 7] = [401, 403, 410, 429, 500, 503, 504];

impl Stage {
    /// Draws a fault of this kind, and begins it.
    pub(crate) async fn inject(&mut self, kind: FaultKind, random: &mut Random) {
        // Some outlast a lease.
        let most_ms = *random.pick(&[12_000, 12_000, 12_000, 30_000]);
        let lasts = Duration::from_millis(random.between(100, most_ms));
        let server = random.below(self.servers.len());
        let instance = random.below(self.instances.len());
        let connector = random.below(self.world.connectors.len());
        let edge = random.below(self.world.names.edges.len());
        let client = self.client(instance);
        let target = Target { server, instance, client, connector, edge };
        let mut what = format!("fault: {kind:?} ({target})");
        if !self.strikes(kind, target, random).await
            && let Some((lasts, end)) = self.begins(kind, target, lasts, random)
        {
            what += &format!(" for {} ms", lasts.as_millis());
            self.active.push(ActiveFault { kind, ends_at: Instant::now() + lasts, end });
        }
        self.ledger.lock().unwrap().line(&what);
    }

    /// Carries out a fault that is over at once. Returns false if it lasts.
    async fn strikes(&mut self, kind: FaultKind, target: Target, random: &mut Random) -> bool {
        let Target { server, instance, client, connector, edge } = target;
        match kind {
            FaultKind::ConnectionsReset => self.cut(client, server, 0),
            FaultKind::AnswerCutInside => self.cut(client, server, 1 + random.below(4_000)),
            FaultKind::WatchesCut => self.servers[server].cut_watches(None),
            FaultKind::HistoryCompacted => self.lose_history(server),
            FaultKind::WallClockJumps => {
                let hours = random.between(0, 96) as i64 - 48;
                self.instances[instance].computer.set_wall_offset(hours * 3_600_000);
            }
            FaultKind::LeaseDeleted => self.edit_lease("DELETE", "").await,
            FaultKind::LeaseEdited => {
                // Never the same text twice: that would bring back a record which an instance that saw
                // nothing in between takes for one that was never renewed.
                self.lease_edits += 1;
                let time = format!("1999-01-01T00:00:00.{:06}Z", self.lease_edits);
                let body = format!(r#"{{"spec":{{"renewTime":"{time}"}}}}"#);
                self.edit_lease("PATCH", &body).await;
            }
            FaultKind::ReplicatorWrites => self.world.replicate(connector, false),
            FaultKind::ReplicatorWritesOldStatus => self.world.replicate(connector, true),
            FaultKind::TriggerOverwritten => {
                let value = random.one_in(2).then_some("not a trigger");
                self.overwrite_trigger((connector, edge), value);
            }
            FaultKind::OldTriggerWritten => self.put_old_trigger_back(connector, edge),
            FaultKind::HostileWrite => self.write_hostile(connector, edge, random),
            FaultKind::EdgeAnnotationOverwritten => {
                let edge = self.world.names.edges[edge].clone();
                let key = self.world.hub_key(connector);
                let value = random.one_in(2).then_some("{}");
                self.world.annotate(&edge, Kind::Connector, &key, (UPSTREAM_STATUS, value));
            }
            FaultKind::ConnectorMadeAgain => self.world.make_again(connector),
            FaultKind::GatewayMadeAgain => self.world.make_gateway_again(connector, edge),
            FaultKind::TenantLeaves => self.delete_all_parents(random),
            FaultKind::HubRestored if self.hub_was_restored_lately() => {}
            FaultKind::HubRestored => _ = self.restore(self.hub()),
            FaultKind::EdgeRestored => _ = self.restore(self.hub() + 1 + edge),
            FaultKind::EtcdLost if server == self.hub() && self.hub_was_restored_lately() => {}
            FaultKind::StrangerUndecodable => self.add_stranger(),
            _ => return false,
        }
        true
    }

    /// Begins a fault. Returns how long it lasts, and what ends it; `None` if there is nothing to hit.
    fn begins(
        &mut self,
        kind: FaultKind,
        Target { server, instance, client, connector, edge }: Target,
        lasts: Duration,
        random: &mut Random,
    ) -> Option<(Duration, End)> {
        let mut lasts = lasts;
        let end: End = match kind {
            FaultKind::LinkSlow
            | FaultKind::LinkBlocked
            | FaultKind::RequestsLost
            | FaultKind::AnswersLost => {
                self.set_link(client, server, link_state(kind, random));
                Box::new(move |stage| stage.set_link(client, server, LinkState::healthy()))
            }
            FaultKind::ServerHangs | FaultKind::ServerDown => {
                let is_down = kind == FaultKind::ServerDown;
                let mode = if is_down { ServerMode::Down } else { ServerMode::Frozen };
                self.servers[server].set_mode(mode);
                Box::new(move |stage| stage.servers[server].set_mode(ServerMode::Serving))
            }
            FaultKind::ServerSlow => {
                self.servers[server].set_latency(Duration::from_millis(random.between(50, 4_000)));
                Box::new(move |stage| stage.servers[server].set_latency(Duration::ZERO))
            }
            FaultKind::RequestsRefused
            | FaultKind::RequestsThrottled
            | FaultKind::WriteAnswersHidden
            | FaultKind::RequestsHang
            | FaultKind::WritesRepeated => {
                self.spoil_requests(kind, server, random);
                Box::new(move |stage| stage.servers[server].clear_faults())
            }
            FaultKind::KindNotServed => {
                let resource = *random.pick(&[Resource::Connectors, Resource::Gateways]);
                self.servers[server].set_served(resource, false);
                self.servers[server].cut_watches(Some(resource));
                Box::new(move |stage| stage.servers[server].set_served(resource, true))
            }
            FaultKind::WatchesLate | FaultKind::ReadsStale | FaultKind::TimeTravel => {
                self.lag_reads(kind, server, random);
                Box::new(move |stage| stage.servers[server].catch_up())
            }
            FaultKind::BookmarksMissing => {
                self.servers[server].set_bookmarks(false);
                // Long enough for watches to count as silent.
                lasts += Duration::from_secs(20);
                Box::new(move |stage| stage.servers[server].set_bookmarks(true))
            }
            FaultKind::PagesExpire => {
                self.servers[server].set_pages_expire(true);
                self.lose_history(server);
                Box::new(move |stage| stage.servers[server].set_pages_expire(false))
            }
            FaultKind::InstanceStartedTwice => {
                self.start_twin();
                lasts += Duration::from_secs(20);
                Box::new(Self::stop_twin)
            }
            FaultKind::DiskFull | FaultKind::DiskHangs => {
                let is_full = kind == FaultKind::DiskFull;
                let disk = if is_full { Disk::Full } else { Disk::Hangs };
                self.instances[instance].computer.set_disk(disk);
                Box::new(move |stage| stage.instances[instance].computer.set_disk(Disk::Works))
            }
            FaultKind::InstanceKilled => {
                self.kill(instance);
                Box::new(move |stage| stage.restart(instance))
            }
            FaultKind::KilledAfterTouch => {
                let touches = self.ledger.lock().unwrap().touches;
                let away = Duration::from_millis(random.between(300, 4_000));
                self.killed_after = Some((touches, away));
                Box::new(|stage| stage.killed_after = None)
            }
            FaultKind::InstanceStopped => {
                self.instances[instance].stop();
                lasts = lasts.max(Duration::from_secs(11));
                Box::new(move |stage| stage.restart(instance))
            }
            FaultKind::InstanceFrozen => {
                self.instances[instance].computer.freeze();
                lasts += Duration::from_millis(random.between(0, 25_000));
                Box::new(move |stage| stage.thaw(instance))
            }
            FaultKind::CarrierStuck => {
                self.world.flip(connector);
                self.world.stuck.push((edge, connector));
                Box::new(move |stage| stage.world.carry_again(edge, connector))
            }
            FaultKind::ExtensionServerLags => {
                // Longer than the window, and shorter than the first confirmation.
                self.world.set_cache_lag(edge, (500, random.between(600, 1_500)));
                Box::new(move |stage| stage.world.reset_cache_lag(edge))
            }
            FaultKind::UpstreamLeaves => {
                let upstream = random.below(self.world.names.upstreams.len());
                self.reload_without(Some(upstream));
                Box::new(|stage| stage.reload_without(None))
            }
            FaultKind::ParentGone => {
                let (site, parent) = self.delete_parent(random)?;
                Box::new(move |stage| stage.world.set_parent(site, parent, false))
            }
            FaultKind::UpstreamRestored => {
                let upstream = random.below(self.world.names.upstreams.len());
                self.restore(upstream)?;
                Box::new(move |stage| stage.report_upstream(upstream))
            }
            FaultKind::OfferDeleted
            | FaultKind::OfferUnlabelled
            | FaultKind::OfferUndecodable
            | FaultKind::OfferTokenChanged => self.disturb_upstream(kind, random)?,
            FaultKind::SourceHangs | FaultKind::SourceExpires | FaultKind::SourceBreaksOff => {
                self.disturb_source(kind, random);
                Box::new(|stage| stage.calm_source())
            }
            FaultKind::EtcdLost => {
                self.lose_etcd(server);
                Box::new(move |stage| stage.bring_etcd_back(server))
            }
            _ => unreachable!("{kind:?} is over at once"),
        };
        Some((lasts, end))
    }

    /// Some of the next requests to a server fail.
    fn spoil_requests(&self, kind: FaultKind, server: usize, random: &mut Random) {
        let server = &self.servers[server];
        let refusal = |verbs, code, retry_after_s| Fault {
            verbs,
            resource: None,
            code,
            retry_after_s,
            executes: false,
        };
        match kind {
            FaultKind::RequestsRefused => {
                let verbs = if random.one_in(2) { WRITES.to_vec() } else { READS.to_vec() };
                let code = *random.pick(&CODES);
                let retry_after_s = random.one_in(2).then(|| 1 + random.next() as u32 % 3);
                server.inject(&refusal(verbs, code, retry_after_s), 1 + random.below(20));
            }
            FaultKind::RequestsThrottled => {
                let retry_after_s = random.one_in(2).then(|| 1 + random.next() as u32 % 8);
                let verbs = [READS.as_slice(), &WRITES].concat();
                server.inject(&refusal(verbs, 429, retry_after_s), 5 + random.below(40));
            }
            FaultKind::WriteAnswersHidden => {
                let code = *random.pick(&[Fault::NO_RESPONSE, 500, 504]);
                server.inject(&Fault::on_writes(code).but_executed(), 1 + random.below(4));
            }
            FaultKind::WritesRepeated => {
                let times = 1 + random.below(6);
                if random.one_in(2) {
                    server.inject(&Fault::on_writes(504).but_executed(), times);
                }
                server.repeat_writes(times, Duration::from_millis(random.between(1, 8_000)));
            }
            _ => server.inject(&Fault::on_writes(Fault::NO_RESPONSE), 1 + random.below(6)),
        }
    }

    /// Watches end, and cannot resume where they ended.
    fn lose_history(&self, server: usize) {
        self.servers[server].compact();
        self.servers[server].cut_watches(None);
    }
}

fn link_state(kind: FaultKind, random: &mut Random) -> LinkState {
    let to_server = matches!(kind, FaultKind::LinkSlow | FaultKind::AnswersLost);
    let to_client = matches!(kind, FaultKind::LinkSlow | FaultKind::RequestsLost);
    let mut state = LinkState { to_server, to_client, ..LinkState::healthy() };
    if kind == FaultKind::LinkSlow {
        let most = random.between(50, 3_000);
        state.delay_ms = (most / 2, most);
    }
    state
}
