//! Faults of what API servers hold and show, and of those who write there.

use std::collections::BTreeSet;

use throughline::core::data::ids::Kind;
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline_sim::apiserver::{ApiVerb, Fault};

use crate::fault_kind::FaultKind;
use crate::instance::Instance;
use crate::random::Random;
use crate::stage::Stage;
use crate::world::TRIGGER;

const NUDGE: &str = "networking.datumapis.com/upstream-status-nudge";

impl Stage {
    /// What a server shows is not what it holds.
    pub(crate) fn lag_reads(&mut self, kind: FaultKind, server: usize, random: &mut Random) {
        let lists = kind != FaultKind::WatchesLate;
        let ago = if kind == FaultKind::TimeTravel { 1 + random.below(6) } else { 0 };
        if lists && server < self.hub() {
            // A list with a lower resourceVersion looks like that of a restored API server.
            self.held_upstreams.insert(server);
        }
        self.servers[server].lag_reads(self.version_ago(server, ago), lists);
        if kind == FaultKind::TimeTravel {
            // The watches that begin again get a 410, so that their instances list again.
            let verbs = vec![ApiVerb::Watch];
            let fault =
                Fault { verbs, resource: None, code: 410, retry_after_s: None, executes: false };
            self.servers[server].inject(&fault, 2 + random.below(12));
            self.servers[server].cut_watches(None);
        }
    }

    /// A cluster goes back to an older state, if there is a backup.
    pub(crate) fn restore(&mut self, server: usize) -> Option<()> {
        let backup = self.backups.get(server)?.clone();
        self.servers[server].restore(&backup);
        self.note_new_history(server);
        Some(())
    }

    pub(crate) fn hub_was_restored_lately(&self) -> bool {
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
        self.note_who_saw_it_empty(server);
        self.note_new_history(server);
        if server < self.hub() {
            self.report_upstream(server);
        }
    }

    /// See [`Stage::announce_unseen`].
    fn note_who_saw_it_empty(&mut self, server: usize) {
        let Some(edge) = server.checked_sub(self.hub() + 1) else { return };
        let cluster = &self.specs[server].name;
        let saw = |instance: &&Instance| instance.tape.lock().unwrap().saw_empty.contains(cluster);
        let seen_by = self.instances.iter().filter(saw);
        let seen_by = seen_by.map(|instance| instance.computer.client).collect();
        self.emptied.push((edge, seen_by));
    }

    /// Where no instance that still runs saw that an edge's Gateways were gone, none can know that Envoy
    /// Gateway has translated them as new ones meanwhile; nor that it has translated older ones, where
    /// none that ran could tell that the edge was restored ([`Histories`](crate::histories::Histories)). A
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

    /// Notes that a cluster has another history now.
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

    /// Agents and tenants of an upstream write what they know.
    pub(crate) fn report_upstream(&mut self, upstream: usize) {
        self.world.report(upstream);
        self.world.restore_parents(upstream);
    }

    pub(crate) fn overwrite_trigger(&self, at: (usize, usize), value: Option<&str>) {
        let (edge, key) = self.world.first_gateway(at);
        self.world.annotate(&edge, Kind::Gateway, &key, (TRIGGER, value));
        let uid = self.world.lock().get(&edge, Kind::Gateway, &key).map(|g| g.meta.uid.clone());
        self.ledger.lock().unwrap().forget_trigger(&edge, &key, &uid.unwrap_or_default());
    }

    pub(crate) fn put_old_trigger_back(&self, connector: usize, edge: usize) {
        let at = self.world.first_gateway((connector, edge));
        let earlier = self.ledger.lock().unwrap().earlier_triggers.get(&at).cloned();
        if let Some(earlier) = earlier {
            self.overwrite_trigger((connector, edge), Some(&earlier));
        }
    }

    pub(crate) fn write_hostile(&self, connector: usize, edge: usize, random: &mut Random) {
        let (hub, key) = (self.world.names.hub.clone(), self.world.hub_key(connector));
        let huge = format!("\"{}\"", "x".repeat(200 * 1024));
        let status = ["[]", "{", "null", r#"{"conditions":{}}"#, &huge];
        let nudge = ["18446744073709551615", "-1", "x"];
        let trigger = ["0000000000000000-4294967295-0", "ffffffffffffffff-7-99", "0-0-0", ""];
        match random.below(3) {
            0 => {
                let value = (UPSTREAM_STATUS, Some(*random.pick(&status)));
                self.world.annotate(&hub, Kind::Connector, &key, value);
            }
            1 => {
                let value = (NUDGE, Some(*random.pick(&nudge)));
                self.world.annotate(&hub, Kind::Connector, &key, value);
            }
            _ => self.overwrite_trigger((connector, edge), Some(*random.pick(&trigger))),
        }
    }

    /// A parent of a route goes. Returns its site and its number; `None` if there is none.
    pub(crate) fn delete_parent(&mut self, random: &mut Random) -> Option<(usize, usize)> {
        let site = self.pick_site(random).filter(|site| !self.world.sites[*site].is_orphan())?;
        let parent = random.below(self.world.sites[site].parents.len());
        self.world.set_parent(site, parent, true);
        Some((site, parent))
    }

    /// All parents of a route go for good.
    pub(crate) fn delete_all_parents(&mut self, random: &mut Random) {
        let Some(site) = self.pick_site(random) else { return };
        for parent in 0..self.world.sites[site].parents.len() {
            self.world.set_parent(site, parent, true);
        }
    }

    fn pick_site(&self, random: &mut Random) -> Option<usize> {
        let sites = self.world.sites.len();
        (sites > 0).then(|| random.below(sites))
    }
}
