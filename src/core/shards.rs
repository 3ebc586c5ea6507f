//! Which shards of the fleet this instance follows and leads.
//!
//! Following decides what is kept: hub objects of a shard that is not followed are dropped where they
//! arrive, so that no rule ever sees them. Nothing is concluded from that: the hub's objects are never
//! evidence of absence, and an upstream that leaves with its shard is forgotten as a whole, like one that
//! leaves the configuration. Leading decides what is written.
//!
//! | input | effect | bound |
//! |---|---|---|
//! | `shard_left` before `leadership_lost` | the shard is led no longer, either | no write of it is decided |
//! | `leadership_acquired` of a shard that is not followed | none: it is followed with it, and its objects come with the next list | |
//! | the watch of the hub shows some objects of a shard that was just followed | dropped: a part of an upstream's objects would say wrongly which share of them is to be removed or deleted | a list that began later brings all |
//! | a list of the hub without a followed shard's objects | they are forgotten | the next list brings them; nothing is deleted or removed meanwhile |
//! | a number of shards that is not the others' | upstreams with two holders | the Leases carry the number: whoever has another one takes none |

use std::collections::BTreeMap;

use super::clusters::Place;
use super::context::Context;
use super::contract::event::EventKind;
use super::data::ids::{ClusterId, ClusterName, Kind, Role};
use super::data::interner::{Key, Sym};
use super::data::map::{Map, keys_where};
use super::data::objects::{Meta, Object};
use super::data::shard::{Shard, ShardSet};
use super::data::time::UnixMillis;
use super::edge::EdgeState;
use super::machine::Machine;
use super::upstream::UpstreamState;

/// The wait for a shard's first Lease.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeaseWait {
    /// Until when this instance waits, or has waited, before it may lead by a Lease that it created:
    /// meanwhile nobody may write, so nothing is late.
    pub(crate) until: UnixMillis,
    pub(crate) ms: u64,
}

/// The shards that this instance follows and leads.
#[derive(Default)]
pub(crate) struct ShardRoles {
    followed: ShardSet,
    led: ShardSet,
    followed_since: BTreeMap<Shard, UnixMillis>,
    led_since: BTreeMap<Shard, UnixMillis>,
    waits: BTreeMap<Shard, LeaseWait>,
    /// The number of each hub's last list when the shard was followed: it lacks the shard's objects.
    listed_before: BTreeMap<(Shard, ClusterId, Kind), u32>,
    /// Nobody knows the leaders.
    is_lease_api_lost: bool,
}

impl Context {
    /// Whether hub objects that name an upstream of the shard are kept.
    pub(crate) fn follows_shard(&self, shard: Shard) -> bool {
        self.settings.shards.is_one() || self.shard_roles.followed.contains(shard)
    }

    /// Whether leader-only writes for the shard's upstreams may be decided.
    pub(crate) fn leads_shard(&self, shard: Shard) -> bool {
        self.shard_roles.led.contains(shard)
    }

    pub(crate) fn leads_any(&self) -> bool {
        !self.shard_roles.led.is_empty()
    }

    /// The part of a fleet-wide limit that this instance may use: what it leads of all shards, but at
    /// least one.
    pub(crate) fn led_part_of(&self, limit: u32) -> u32 {
        let shards = &self.settings.shards;
        if shards.is_one() || limit == 0 {
            return limit;
        }
        let led = self.shard_roles.led.len() as u64;
        let part = u64::from(limit) * led / shards.count() as u64;
        u32::try_from(part).unwrap_or(limit).max(1)
    }

    /// How many times larger the whole fleet is than what this instance sees of it, as a fraction.
    pub(crate) fn fleet_per_followed(&self) -> (u64, u64) {
        let shards = &self.settings.shards;
        match shards.is_one() {
            true => (1, 1),
            false => (shards.count() as u64, self.shard_roles.followed.len().max(1) as u64),
        }
    }

    /// How long a touch of an edge is left to the instance that leads the edge's shard.
    pub(crate) fn stand_in_ms(&self, edge: Shard) -> u64 {
        let goes_first = self.settings.shards.is_one()
            || self.shard_roles.is_lease_api_lost
            || self.leads_shard(edge);
        if goes_first { 0 } else { self.settings.touch.stand_in_ms }
    }

    pub(crate) fn lease_wait(&self, shard: Shard) -> LeaseWait {
        self.shard_roles.waits.get(&shard).copied().unwrap_or_default()
    }

    /// This instance created the Lease, because there was none, and may lead after this time: it
    /// can't know whether the Lease was deleted under a holder that still writes.
    pub(crate) fn start_lease_wait(&mut self, shard: Shard, ms: u64) {
        let wait = LeaseWait { until: self.now.plus(ms), ms };
        self.shard_roles.waits.insert(shard, wait);
    }

    /// The instance leads, or holds the Lease no longer.
    fn end_lease_wait(&mut self, shard: Shard) {
        if let Some(wait) = self.shard_roles.waits.get_mut(&shard) {
            wait.until = wait.until.min(self.now);
        }
    }

    /// Whether the only reason not to write is the wait for a Lease that was not there.
    pub(crate) fn waits_for_lease(&self, shard: Shard) -> bool {
        !self.leads_shard(shard) && self.now < self.lease_wait(shard).until
    }

    /// Since when each shard has been followed, and led.
    pub(crate) fn shards_followed(
        &self,
    ) -> impl Iterator<Item = (Shard, UnixMillis, Option<UnixMillis>)> {
        let ShardRoles { followed_since, led_since, .. } = &self.shard_roles;
        followed_since.iter().map(|(shard, since)| (*shard, *since, led_since.get(shard).copied()))
    }

    /// What is known of an upstream, with its shard: the name is hashed once.
    pub(crate) fn upstream_of<'u>(
        &self,
        upstreams: &'u mut Map<Sym, UpstreamState>,
        sym: Sym,
    ) -> &'u mut UpstreamState {
        let shard = || self.settings.shards.of(self.names.text(sym));
        upstreams.entry(sym).or_insert_with(|| UpstreamState::new(shard()))
    }
}

impl Machine {
    /// Whether a hub object is kept: its upstream is of a shard that is followed, and the hub was listed
    /// since. What names no upstream is of the first.
    pub(super) fn keeps_hub_object(&self, hub: ClusterId, object: &Object) -> bool {
        let shards = &self.ctx.settings.shards;
        if shards.is_one() {
            return true;
        }
        let upstream = object.meta.upstream();
        let shard = upstream.map_or(Shard::FIRST, |(cluster, ..)| shards.of(&cluster));
        let (roles, kind) = (&self.ctx.shard_roles, object.kind());
        let listed_before = roles.listed_before.get(&(shard, hub, kind)).copied();
        let list = self.cluster(hub).map(|hub| hub.list(kind));
        roles.followed.contains(shard) && (listed_before.is_none() || listed_before != list)
    }

    /// Whether an event changes nothing here: it shows a hub object of a shard that is not followed, of
    /// which nothing is known.
    pub(crate) fn ignores(&self, kind: &EventKind) -> bool {
        let (EventKind::Listed { cluster, object }
        | EventKind::Applied { cluster, object }
        | EventKind::Deleted { cluster, object }) = kind
        else {
            return false;
        };
        let is_shared = matches!(object.kind(), Kind::Connector | Kind::HttpRoute);
        if self.ctx.settings.shards.is_one() || !is_shared {
            return false;
        }
        let Some(id) = self.clusters.id_of(cluster) else { return false };
        let Some((cluster, hub)) = self.cluster(id).zip(self.hubs.get(&id)) else { return false };
        let Meta { namespace, name, .. } = &object.meta;
        let is_known = self.ctx.names.find(namespace, name).is_some_and(|key| {
            hub.connectors.contains_key(&key)
                || hub.routes.contains_key(&key)
                || cluster.is_unreadable(object.kind(), key)
        });
        let is_hub_alone = !cluster.has(Role::Upstream) && !cluster.has(Role::Edge);
        is_hub_alone && !is_known && !self.keeps_hub_object(id, object)
    }

    /// Whether a cluster of these roles is followed: one that is an upstream alone with its shard, any
    /// other one always.
    pub(crate) fn follows_cluster(&self, cluster: &ClusterName, roles: &[Role]) -> bool {
        let shards = &self.ctx.settings.shards;
        roles != [Role::Upstream] || self.ctx.follows_shard(shards.of(cluster.as_str()))
    }

    /// The cluster left: the next one that gets its id was never listed.
    pub(super) fn forget_lists_of(&mut self, id: ClusterId) {
        self.ctx.shard_roles.listed_before.retain(|(_, hub, _), _| *hub != id);
    }

    pub(super) fn leadership_acquired(&mut self, shard: Shard) {
        let now = self.ctx.now;
        self.shard_followed(shard);
        if self.ctx.shard_roles.led.insert(shard) {
            self.ctx.shard_roles.led_since.insert(shard, now);
        }
        self.ctx.end_lease_wait(shard);
        self.evaluate_unsettled(shard);
        self.resume_probes(None);
        self.first_at_edges_changed(Some(shard));
    }

    pub(super) fn leadership_lost(&mut self, shard: Shard) {
        let has_waited = self.ctx.waits_for_lease(shard);
        self.ctx.shard_roles.led.remove(shard);
        self.ctx.shard_roles.led_since.remove(&shard);
        self.ctx.end_lease_wait(shard);
        self.unqueue_deletes();
        if has_waited {
            // What is not done counts as late from now on, not from the end of the wait.
            self.evaluate_unsettled(shard);
        }
        self.first_at_edges_changed(Some(shard));
    }

    pub(super) fn shard_followed(&mut self, shard: Shard) {
        let now = self.ctx.now;
        if !self.ctx.shard_roles.followed.insert(shard) {
            return;
        }
        self.ctx.shard_roles.followed_since.insert(shard, now);
        if self.ctx.settings.shards.is_one() {
            return;
        }
        for &id in self.hubs.keys() {
            let Some(hub) = self.clusters.get(id) else { continue };
            for kind in [Kind::Connector, Kind::HttpRoute] {
                let before = &mut self.ctx.shard_roles.listed_before;
                before.insert((shard, id, kind), hub.list(kind));
            }
        }
        self.join_shard(shard);
    }

    /// Forgets the shard: its hub objects, and what was concluded from them. Nothing is written.
    pub(super) fn shard_left(&mut self, shard: Shard) {
        if self.ctx.settings.shards.is_one() {
            return;
        }
        self.leadership_lost(shard);
        self.ctx.shard_roles.followed.remove(shard);
        self.ctx.shard_roles.followed_since.remove(&shard);
        self.ctx.shard_roles.waits.remove(&shard);
        let of_shard = |upstream: &UpstreamState| upstream.shard == shard;
        let mut upstreams: Vec<Sym> = keys_where(&self.upstreams, of_shard).collect();
        upstreams.sort_unstable();
        for upstream in upstreams {
            self.forget_hub_objects_of(upstream);
        }
        if shard.is_first() {
            self.forget_unnamed_hub_objects();
        }
        self.leave_shard(shard);
    }

    fn forget_hub_objects_of(&mut self, sym: Sym) {
        let Some(upstream) = self.upstreams.get(&sym) else { return };
        let connectors = upstream.hub_connectors();
        let routes = upstream.hub_routes();
        for at in connectors {
            self.forget_hub_connector(at);
        }
        for (hub, key) in routes {
            self.route_gone(hub, key);
        }
        self.removals.forget_upstream(&mut self.ctx, sym);
        self.ctx.look_at_name_again(sym);
        self.drop_unused_upstream(sym);
    }

    /// Hub objects that name no upstream belong to the first shard. So do here routes that are kept
    /// whatever exists upstream, whose upstream is not remembered: the hub shows them again.
    fn forget_unnamed_hub_objects(&mut self) {
        let hubs: Vec<ClusterId> = self.hubs.keys().copied().collect();
        for id in hubs {
            let Some(hub) = self.hubs.get(&id) else { continue };
            let connectors: Vec<Key> =
                keys_where(&hub.connectors, |c| c.upstream.is_none()).collect();
            let routes: Vec<Key> =
                keys_where(&hub.routes, |r| r.parents.gateways().is_none()).collect();
            for key in connectors {
                self.forget_hub_connector(Place { cluster: id, key });
            }
            for key in routes {
                self.route_gone(id, key);
            }
        }
    }

    /// Forgets a hub Connector of a shard that is not followed. What the edges owe it is forgotten, too.
    pub(super) fn forget_hub_connector(&mut self, at: Place) {
        self.hub_connector_gone(at);
        for edge in self.edges.values_mut() {
            if let Some(connector) = edge.connectors.get_mut(&at.key) {
                connector.missing_since.take();
            }
        }
    }

    pub(super) fn lease_api(&mut self, is_lost: bool) {
        if std::mem::replace(&mut self.ctx.shard_roles.is_lease_api_lost, is_lost) != is_lost {
            self.first_at_edges_changed(None);
        }
    }

    /// Another instance goes first at the edges of a shard, or at all: touches that wait are due at
    /// another time.
    fn first_at_edges_changed(&mut self, shard: Option<Shard>) {
        if self.ctx.settings.shards.is_one() {
            return;
        }
        let is_concerned = |edge: &EdgeState| shard.is_none_or(|s| s == edge.shard);
        let edges = self.edges.iter().filter(|(_, edge)| is_concerned(edge));
        let edges: Vec<ClusterId> = edges.map(|(id, _)| *id).collect();
        for edge in edges {
            self.reschedule_touches(edge);
        }
    }

    /// Deletes that may not be decided any longer leave the queue.
    fn unqueue_deletes(&mut self) {
        if self.ctx.settings.shards.is_one() {
            return self.spend_budget_again();
        }
        for (_, id, key) in self.budget.queued() {
            self.evaluate_route(id, key);
        }
        self.spend_budget_again();
    }

    /// Hub objects of a shard that wait for its leader, in the order of their names.
    pub(super) fn unsettled_of(&self, shard: Shard) -> Vec<(ClusterId, Vec<Key>, Vec<Key>)> {
        let is_one = self.ctx.settings.shards.is_one();
        let is_of = |upstream: Option<Sym>| {
            let upstream = upstream.and_then(|sym| self.upstreams.get(&sym));
            is_one || upstream.map_or(Shard::FIRST, |upstream| upstream.shard) == shard
        };
        let hubs = self.hubs.iter().map(|(&id, hub)| {
            let named = |key: &Key| hub.connectors.get(key)?.upstream.map(|named| named.cluster);
            let parent = |key: &Key| Some(hub.routes.get(key)?.parents.gateways()?.cluster);
            let connectors = hub.unsettled.iter().filter(|key| is_of(named(key)));
            let routes = hub.orphans.iter().filter(|key| is_of(parent(key)));
            (id, connectors.copied().collect(), routes.copied().collect())
        });
        hubs.collect()
    }
}
