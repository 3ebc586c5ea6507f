//! Faults: what they do, and what ends them.

use std::collections::BTreeSet;
use std::time::Duration;

use throughline::core::data::ids::Kind;
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, ServerMode, SimApiServer};
use tokio::time::Instant;

use crate::computer::Disk;
use crate::discovery::Shown;
use crate::extension_server::CACHE_LAG_MS;
use crate::fault_kind::FaultKind;
use crate::instance::Instance;
use crate::network::LinkState;
use crate::random::Random;
use crate::stage::Stage;
use crate::world::{NUDGE, TRIGGER};

pub(crate) struct ActiveFault {
    pub(crate) kind: FaultKind,
    pub(crate) ends_at: Instant,
    pub(crate) end: Box<dyn FnOnce(&mut Stage)>,
}

const READS: [ApiVerb; 3] = [ApiVerb::Get, ApiVerb::List, ApiVerb::Watch];
const CODES: [u16; 7] = [401, 403, 410, 429, 500, 503, 504];
/// How much longer a fault lasts that shows only after a while.
const LONGER: Duration = Duration::from_secs(20);

impl Stage {
    /// Draws a fault, and begins it.
    pub(crate) async fn inject(&mut self) {
        let kind = *self.faults.pick(&self.plan.faults);
        let random = &mut self.faults.fork();
        self.drawn += 1;
        if self.plan.without.contains(&self.drawn) {
            return;
        }
        *self.injected.entry(kind).or_default() += 1;
        // Some outlast a lease.
        let most_ms = *random.pick(&[12_000, 12_000, 12_000, 30_000]);
        let lasts = Duration::from_millis(random.between(100, most_ms));
        // Drawn for each fault, whatever its kind.
        let server = random.below(self.servers.len());
        let instance = random.below(self.instances.len());
        let connector = random.below(self.world.connectors.len());
        let edge = random.below(self.world.names.edges.len());
        let (fault, host) = ((kind, lasts), self.servers[server].clone());
        let link = (self.client(instance), self.address_of(server));
        self.note(&format!(
            "fault: {kind:?} (server {server}, instance {instance}, connector {connector}, edge {edge})"
        ));
        match kind {
            FaultKind::LinkSlow
            | FaultKind::LinkBlocked
            | FaultKind::RequestsLost
            | FaultKind::AnswersLost => {
                let to_server = matches!(kind, FaultKind::LinkSlow | FaultKind::AnswersLost);
                let to_client = matches!(kind, FaultKind::LinkSlow | FaultKind::RequestsLost);
                let mut state = LinkState { to_server, to_client, ..LinkState::healthy() };
                if kind == FaultKind::LinkSlow {
                    let most = random.between(50, 3_000);
                    state.delay_ms = (most / 2, most);
                }
                self.network.set(&link, state);
                let end = move |stage: &mut Self| stage.network.set(&link, LinkState::healthy());
                self.until(kind, lasts, end);
            }
            FaultKind::ConnectionsReset => self.network.cut(&link, 0),
            FaultKind::AnswerCutInside => self.network.cut(&link, 1 + random.below(4_000)),
            FaultKind::ServerHangs | FaultKind::ServerDown => {
                let is_down = kind == FaultKind::ServerDown;
                host.set_mode(if is_down { ServerMode::Down } else { ServerMode::Frozen });
                self.until(kind, lasts, move |_| host.set_mode(ServerMode::Serving));
            }
            FaultKind::ServerSlow => {
                host.set_latency(Duration::from_millis(random.between(50, 4_000)));
                self.until(kind, lasts, move |_| host.set_latency(Duration::ZERO));
            }
            FaultKind::RequestsRefused => {
                let hits_writes = random.one_in(2);
                let mut refusal = Fault::on_writes(*random.pick(&CODES));
                if !hits_writes {
                    refusal.verbs = READS.to_vec();
                }
                refusal.retry_after_s = random.one_in(2).then(|| 1 + random.next() as u32 % 3);
                host.inject(&refusal, 1 + random.below(20));
                self.until(kind, lasts, move |_| host.clear_faults());
            }
            FaultKind::RequestsThrottled => {
                let mut refusal = Fault::on_writes(429);
                refusal.verbs.extend(READS);
                refusal.retry_after_s = random.one_in(2).then(|| 1 + random.next() as u32 % 8);
                host.inject(&refusal, 5 + random.below(40));
                self.until(kind, lasts, move |_| host.clear_faults());
            }
            FaultKind::WriteAnswersHidden => {
                let code = *random.pick(&[Fault::NO_RESPONSE, 500, 504]);
                host.inject(&Fault::on_writes(code).but_executed(), 1 + random.below(4));
                self.until(kind, lasts, move |_| host.clear_faults());
            }
            FaultKind::RequestsHang => {
                host.inject(&Fault::on_writes(Fault::NO_RESPONSE), 1 + random.below(6));
                self.until(kind, lasts, move |_| host.clear_faults());
            }
            FaultKind::WritesRepeated => {
                let times = 1 + random.below(6);
                if random.one_in(2) {
                    host.inject(&Fault::on_writes(504).but_executed(), times);
                }
                host.repeat_writes(times, Duration::from_millis(random.between(1, 8_000)));
                self.until(kind, lasts, move |_| host.clear_faults());
            }
            FaultKind::WatchesCut => host.cut_watches(None),
            FaultKind::HistoryCompacted => lose_history(&host),
            FaultKind::KindNotServed => {
                let resource = *random.pick(&[Resource::Connectors, Resource::Gateways]);
                host.set_served(resource, false);
                host.cut_watches(Some(resource));
                self.until(kind, lasts, move |_| host.set_served(resource, true));
            }
            FaultKind::WatchesLate | FaultKind::ReadsStale | FaultKind::TimeTravel => {
                self.lag_reads(kind, server, random);
                self.until(kind, lasts, move |_| host.catch_up());
            }
            FaultKind::BookmarksMissing => {
                host.set_bookmarks(false);
                self.until(kind, lasts + LONGER, move |_| host.set_bookmarks(true));
            }
            FaultKind::PagesExpire => {
                host.set_pages_expire(true);
                lose_history(&host);
                self.until(kind, lasts, move |_| host.set_pages_expire(false));
            }
            FaultKind::InstanceKilled => {
                self.instances[instance].kill();
                self.until(kind, lasts, move |stage| stage.restart(instance));
            }
            FaultKind::KilledAfterTouch => {
                let touches = self.ledger.lock().unwrap().touches;
                let away = Duration::from_millis(random.between(300, 4_000));
                self.killed_after = Some((touches, away));
                self.until(kind, lasts, |stage| stage.killed_after = None);
            }
            FaultKind::InstanceStopped => {
                self.instances[instance].stop();
                let lasts = lasts.max(Duration::from_secs(11));
                self.until(kind, lasts, move |stage| stage.restart(instance));
            }
            FaultKind::InstanceFrozen => {
                self.instances[instance].computer.freeze();
                let client = self.client(instance);
                self.ledger.lock().unwrap().oracle.frozen(client, Instant::now());
                let lasts = lasts + Duration::from_millis(random.between(0, 25_000));
                self.until(kind, lasts, move |stage| {
                    stage.instances[instance].computer.thaw();
                    stage.ledger.lock().unwrap().oracle.thawed(client, Instant::now());
                });
            }
            FaultKind::InstanceStartedTwice => {
                let twin = self.new_instance(0);
                self.until(kind, lasts + LONGER, |stage| {
                    twin.stop();
                    stage.ended.push(twin);
                });
            }
            FaultKind::WallClockJumps => {
                let hours = random.between(0, 96) as i64 - 48;
                self.instances[instance].computer.set_wall_offset(hours * 3_600_000);
            }
            FaultKind::DiskFull | FaultKind::DiskHangs => {
                let disk = if kind == FaultKind::DiskFull { Disk::Full } else { Disk::Hangs };
                self.instances[instance].computer.set_disk(disk);
                self.until(kind, lasts, move |stage| {
                    stage.instances[instance].computer.set_disk(Disk::Works);
                });
            }
            FaultKind::LeaseDeleted => self.edit_lease("DELETE", "").await,
            FaultKind::LeaseEdited => {
                // Never the same text twice: that would bring back a record which an instance that saw
                // nothing in between takes for one that was never renewed.
                let time = format!("1999-01-01T00:00:00.{:06}Z", self.drawn);
                let body = format!(r#"{{"spec":{{"renewTime":"{time}"}}}}"#);
                self.edit_lease("PATCH", &body).await;
            }
            FaultKind::ReplicatorWrites => self.world.replicate(connector, false),
            FaultKind::ReplicatorWritesOldStatus => self.world.replicate(connector, true),
            FaultKind::TriggerOverwritten => {
                let value = random.one_in(2).then_some("not a trigger");
                self.overwrite_trigger((connector, edge), value);
            }
            FaultKind::OldTriggerWritten => {
                let at = self.world.first_gateway((connector, edge));
                let earlier = self.ledger.lock().unwrap().earlier_triggers.get(&at).cloned();
                if let Some(earlier) = earlier {
                    self.overwrite_trigger((connector, edge), Some(&earlier));
                }
            }
            FaultKind::HostileWrite => self.write_hostile(connector, edge, random),
            FaultKind::EdgeAnnotationOverwritten => {
                let (edge, key) = (&self.world.names.edges[edge], self.world.hub_key(connector));
                let value = random.one_in(2).then_some("{}");
                self.world.annotate(edge, Kind::Connector, &key, (UPSTREAM_STATUS, value));
            }
            FaultKind::CarrierStuck => {
                self.world.flip(connector);
                self.world.stuck.push((edge, connector));
                self.until(kind, lasts, move |stage| {
                    let stuck = &mut stage.world.stuck;
                    stuck.remove(stuck.iter().position(|at| *at == (edge, connector)).unwrap());
                });
            }
            FaultKind::ExtensionServerLags => {
                // Longer than the window, and shorter than the first confirmation.
                self.world.extension_servers[edge].lag_ms = (500, random.between(600, 1_500));
                self.until(kind, lasts, move |stage| {
                    stage.world.extension_servers[edge].lag_ms = CACHE_LAG_MS;
                });
            }
            FaultKind::ConnectorMadeAgain => self.world.make_again(connector),
            FaultKind::GatewayMadeAgain => self.world.make_gateway_again(connector, edge),
            FaultKind::ParentGone => {
                let Some(site) = self.world.pick_site(random) else { return };
                if self.world.sites[site].is_orphan() {
                    return;
                }
                let parent = random.below(self.world.sites[site].parents.len());
                self.world.set_parent(site, parent, true);
                let end = move |stage: &mut Self| stage.world.set_parent(site, parent, false);
                self.until(kind, lasts, end);
            }
            FaultKind::TenantLeaves => {
                if let Some(site) = self.world.pick_site(random) {
                    self.world.empty_site(site);
                }
            }
            FaultKind::UpstreamLeaves => {
                let upstream = random.below(self.world.names.upstreams.len());
                self.reload_without(Some(upstream));
                self.until(kind, lasts, |stage| stage.reload_without(None));
            }
            FaultKind::UpstreamRestored => {
                let upstream = random.below(self.world.names.upstreams.len());
                if self.restore(upstream) {
                    self.until(kind, lasts, move |stage| stage.world.report(upstream));
                }
            }
            // See [`Histories::was_restored_lately`](crate::ledger::Histories::was_restored_lately).
            FaultKind::HubRestored if self.hub_was_restored_lately() => {}
            FaultKind::HubRestored => _ = self.restore(self.hub()),
            FaultKind::EdgeRestored => _ = self.restore(self.hub() + 1 + edge),
            FaultKind::EtcdLost if server == self.hub() && self.hub_was_restored_lately() => {}
            FaultKind::EtcdLost => {
                self.lose_etcd(server);
                self.until(kind, lasts, move |stage| stage.bring_etcd_back(server));
            }
            FaultKind::OfferDeleted => self.disturb_upstream(fault, Shown::Deleted, random),
            FaultKind::OfferUnlabelled => self.disturb_upstream(fault, Shown::Unlabelled, random),
            FaultKind::OfferUndecodable => self.disturb_upstream(fault, Shown::Undecodable, random),
            FaultKind::OfferTokenChanged => self.disturb_upstream(fault, Shown::Right, random),
            FaultKind::StrangerUndecodable => self.add_stranger(),
            FaultKind::SourceHangs | FaultKind::SourceExpires | FaultKind::SourceBreaksOff => {
                self.disturb_source(kind, lasts, random);
            }
        }
    }

    pub(crate) fn until(
        &mut self,
        kind: FaultKind,
        lasts: Duration,
        end: impl FnOnce(&mut Self) + 'static,
    ) {
        self.note(&format!("for {} ms", lasts.as_millis()));
        let (ends_at, end) = (Instant::now() + lasts, Box::new(end));
        self.active.push(ActiveFault { kind, ends_at, end });
    }

    /// Kills all instances once one has touched a Gateway, as where they share a node.
    pub(crate) fn kill_after_touch(&mut self) {
        let touches = self.ledger.lock().unwrap().touches;
        let Some((_, away)) = self.killed_after.take_if(|(before, _)| touches > *before) else {
            return;
        };
        self.note("all instances are killed");
        for instance in 0..self.instances.len() {
            self.instances[instance].kill();
            let end = move |stage: &mut Self| stage.restart(instance);
            self.until(FaultKind::KilledAfterTouch, away, end);
        }
    }

    fn lag_reads(&mut self, kind: FaultKind, server: usize, random: &mut Random) {
        let lists = kind != FaultKind::WatchesLate;
        let ago = if kind == FaultKind::TimeTravel { 1 + random.below(6) } else { 0 };
        if lists && server < self.hub() {
            // A list with a lower resourceVersion looks like that of a restored API server.
            self.held_upstreams.insert(server);
        }
        let handle = &self.servers[server];
        let at = self.versions.len().saturating_sub(1 + ago);
        let then = self.versions.get(at).map_or_else(|| handle.version(), |all| all[server]);
        handle.lag_reads(then, lists);
        if kind == FaultKind::TimeTravel {
            // The watches that begin again get a 410, so that their instances list again.
            let verbs = vec![ApiVerb::Watch];
            handle.inject(&Fault { verbs, ..Fault::on_writes(410) }, 2 + random.below(12));
            handle.cut_watches(None);
        }
    }

    /// A cluster goes back to an older state, if there is a backup.
    pub(crate) fn restore(&mut self, server: usize) -> bool {
        let Some(backup) = self.backups.get(server) else { return false };
        self.servers[server].restore(backup);
        self.note_new_history(server);
        true
    }

    fn hub_was_restored_lately(&self) -> bool {
        self.ledger.lock().unwrap().histories.was_restored_lately(&self.world.names.hub)
    }

    pub(crate) fn lose_etcd(&mut self, server: usize) {
        let before = self.servers[server].backup();
        self.lost.entry(server).or_insert(before.unwrap());
        self.servers[server].lose_everything();
        self.note_new_history(server);
        let cluster = &self.specs[server].name;
        for instance in &self.instances {
            instance.tape.lock().unwrap().saw_empty.remove(cluster);
        }
    }

    pub(crate) fn bring_etcd_back(&mut self, server: usize) {
        let Some(before) = self.lost.remove(&server) else { return };
        self.servers[server].restore(&before);
        if let Some(edge) = server.checked_sub(self.hub() + 1) {
            let cluster = &self.specs[server].name;
            let saw = |i: &&Instance| i.tape.lock().unwrap().saw_empty.contains(cluster);
            let seen_by = self.instances.iter().filter(saw).map(|i| i.computer.client).collect();
            self.emptied.push((edge, seen_by));
        }
        self.note_new_history(server);
        if server < self.hub() {
            self.world.report(server);
        }
    }

    /// Where no instance that still runs saw that an edge's Gateways were gone, none can know that Envoy
    /// Gateway has translated them as new ones meanwhile; nor that it has translated older ones, where
    /// none that ran could tell that the edge was restored ([`Histories`](crate::ledger::Histories)). A
    /// person then removes the triggers (docs/explanation/limits.md), and so does the simulation.
    pub(crate) fn announce_unseen(&mut self) {
        let deceived = self.ledger.lock().unwrap().histories.deceived.clone();
        let emptied = self.emptied.iter();
        let emptied =
            emptied.filter(|(_, saw)| !self.clients().any(|client| saw.contains(&client)));
        let restored = self.restored_edges.iter();
        let restored = restored.filter(|(_, ran)| ran.iter().all(|c| deceived.contains(c)));
        let unseen: BTreeSet<_> = emptied.chain(restored).map(|(edge, _)| *edge).collect();
        for edge in unseen {
            let cluster = self.world.names.edges[edge].clone();
            self.note(&format!("a person removes the triggers of {cluster}"));
            let keys: Vec<_> = {
                let clusters = self.world.lock();
                let gateways = clusters.objects(&cluster, Kind::Gateway);
                gateways.map(|gateway| (gateway.meta.key(), gateway.meta.uid.clone())).collect()
            };
            for (key, uid) in keys {
                self.world.annotate(&cluster, Kind::Gateway, &key, (TRIGGER, None));
                self.ledger.lock().unwrap().forget_trigger(&cluster, &key, &uid);
            }
        }
    }

    fn note_new_history(&mut self, server: usize) {
        let hub = self.hub();
        let mut ledger = self.ledger.lock().unwrap();
        ledger.histories.restored(&self.specs[server].name);
        if server < hub {
            self.held_upstreams.insert(server);
        } else if server == hub {
            // The Leases are others, too.
            ledger.oracle.lease_edited();
            drop(ledger);
            // So are the Secrets; what issues tokens writes them again.
            if !self.lost.contains_key(&server) {
                self.show_upstreams();
            }
        } else {
            let edge = server - hub - 1;
            ledger.forget_edge(&self.world.names.edges[edge]);
            self.restored_edges.push((edge, self.clients().collect()));
        }
    }

    fn overwrite_trigger(&self, at: (usize, usize), value: Option<&str>) {
        let (edge, key) = self.world.first_gateway(at);
        self.world.annotate(&edge, Kind::Gateway, &key, (TRIGGER, value));
        let uid = self.world.lock().get(&edge, Kind::Gateway, &key).map(|g| g.meta.uid.clone());
        self.ledger.lock().unwrap().forget_trigger(&edge, &key, &uid.unwrap_or_default());
    }

    fn write_hostile(&self, connector: usize, edge: usize, random: &mut Random) {
        let (hub, key) = (self.world.names.hub.clone(), self.world.hub_key(connector));
        let huge = format!("\"{}\"", "x".repeat(200 * 1024));
        let status = ["[]", "{", "null", r#"{"conditions":{}}"#, &huge];
        let nudge = ["18446744073709551615", "-1", "x"];
        let trigger = ["0000000000000000-4294967295-0", "ffffffffffffffff-7-99", "0-0-0", ""];
        let (name, values) = match random.below(3) {
            0 => (UPSTREAM_STATUS, &status[..]),
            1 => (NUDGE, &nudge[..]),
            _ => return self.overwrite_trigger((connector, edge), Some(*random.pick(&trigger))),
        };
        let value = Some(*random.pick(values));
        self.world.annotate(&hub, Kind::Connector, &key, (name, value));
    }
}

/// Watches end, and cannot resume where they ended.
fn lose_history(host: &SimApiServer) {
    host.compact();
    host.cut_watches(None);
}
