//! A connector's way through the hops: how far it came, where it is stuck, and the nudge that
//! makes the carrier try again.

use super::action::{Hop, Noted, Stall, Verb};
use super::flight::doubled;
use super::ids::{ClusterId, ClusterName, Key, Kind};
use super::machine::Machine;
use super::mirror::Right;
use super::source::Digest;
use super::time::UnixMillis;
use super::timers::Due;

impl Machine {
    pub(crate) fn note_hop(
        &mut self,
        cluster: &ClusterName,
        key: Key,
        hop: Hop,
        online: bool,
        after_ms: Option<u64>,
    ) {
        let (cluster, connector) = (cluster.clone(), self.desk.names.object_key(key));
        self.desk.note(Noted::HopPassed { cluster, connector, hop, online, after_ms });
    }

    /// The hub says what upstream says. Now every edge's copy should come to say so, too.
    pub(crate) fn replica_is_right(&mut self, id: ClusterId, key: Key, right: Right) {
        let now = self.desk.now;
        let Some(cluster) = self.cluster(id) else { return };
        let (name, live_since) = (cluster.name.clone(), cluster.live_since(Kind::Connector));
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        let waited = hub.waiting.contains(&key);
        let Some(replica) = hub.replicas.get_mut(&key) else { return };
        let newly = replica.settled_at == UnixMillis(0);
        if newly {
            replica.settled_at = now;
            if let Some(trouble) = &mut replica.trouble {
                trouble.nudges = 0;
            }
        }
        let settled_at = replica.settled_at;
        // What a list shows happened at some time before.
        let seen = replica.flags.upstream_changed && now > live_since;
        if newly && waited {
            let online = right.meaning != Digest::ABSENT && self.is_online_upstream(id, key);
            let after_ms = seen.then(|| now.since(right.changed_at));
            self.note_hop(&name, key, Hop::Mirrored, online, after_ms);
            if self.edges.get(&id).is_some_and(|e| e.connectors.contains_key(&key)) {
                self.note_hop(&name, key, Hop::Arrived, online, seen.then_some(0));
            }
        }
        let seen_since = (settled_at > live_since).then_some(settled_at);
        let missing = self.edges_missing(id, key, right, seen_since);
        if missing.is_empty() {
            self.replica_has_arrived(id, key);
            return;
        }
        if let Some(hub) = self.hubs.get_mut(&id) {
            hub.waiting.insert(key);
        }
        let (first, missing_since, _) = missing[0];
        self.expect(id, key, Hop::Arrived, settled_at.max(missing_since), first);
        // An edge whose watch is lost says nothing, and a change made during its outage only
        // lengthens it: the nudge is for those that can be seen to be wrong.
        let live: Vec<_> = missing.into_iter().filter_map(|(.., since)| since).collect();
        let Some(seen_wrong_since) = live.into_iter().min().map(|s| s.max(settled_at)) else {
            return;
        };
        if self.desk.settings.mirror.nudge && self.desk.leader {
            self.nudge_when_due(id, key, seen_wrong_since);
        }
    }

    /// The edges whose copy does not say what the hub says; with since when their watch is live,
    /// if it is. Tells of the edges where it has just arrived. `settled_at`: when the hub was seen
    /// to become right.
    fn edges_missing(
        &mut self,
        hub: ClusterId,
        key: Key,
        right: Right,
        settled_at: Option<UnixMillis>,
    ) -> Vec<(ClusterId, UnixMillis, Option<UnixMillis>)> {
        let mut missing = Vec::new();
        let mut arrived = Vec::new();
        for (&id, edge) in self.edges.iter_mut().filter(|(id, _)| **id != hub) {
            let Some(connector) = edge.connectors.get_mut(&key) else { continue };
            let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref)
            else {
                continue;
            };
            let live = cluster.is_live(Kind::Connector);
            if connector.meaning == right.meaning {
                let missing_since = std::mem::take(&mut connector.missing_since);
                if missing_since > UnixMillis(0) {
                    // A copy that went wrong later was somebody else's doing.
                    let carried = settled_at.filter(|at| live && *at >= missing_since);
                    let after_ms = carried.map(|at| self.desk.now.since(at));
                    arrived.push((cluster.name.clone(), after_ms));
                }
            } else if live || cluster.live_since(Kind::Connector) > UnixMillis(0) {
                if connector.missing_since == UnixMillis(0) {
                    connector.missing_since = self.desk.now;
                }
                let since = connector.missing_since;
                let seen = live.then(|| since.max(cluster.live_since(Kind::Connector)));
                missing.push((id, since, seen));
            }
        }
        for (cluster, after_ms) in arrived {
            let online = right.meaning != Digest::ABSENT && self.is_online_upstream(hub, key);
            self.note_hop(&cluster, key, Hop::Arrived, online, after_ms);
        }
        missing
    }

    fn replica_has_arrived(&mut self, id: ClusterId, key: Key) {
        let quiet_ms = self.desk.settings.mirror.contention_quiet_ms;
        let now = self.desk.now;
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        hub.waiting.remove(&key);
        let Some(replica) = hub.replicas.get_mut(&key) else { return };
        let Some(trouble) = &mut replica.trouble else { return };
        // Somebody at the edge may undo it again: the pauses go on growing until that is over.
        let nudges_matter = trouble.nudges_matter(now, quiet_ms);
        if !nudges_matter {
            trouble.nudges = 0;
        }
        if let Some(stall) = trouble.stall.take() {
            self.desk.note(Noted::StallEnded(stall));
        }
        let spoils_matter = trouble.spoils > 0 && now.since(trouble.spoiled_at) <= quiet_ms;
        if trouble.flight.in_flight.is_none() && !spoils_matter && !nudges_matter {
            replica.trouble = None;
        }
    }

    fn nudge_when_due(&mut self, id: ClusterId, key: Key, wrong_since: UnixMillis) {
        let now = self.desk.now;
        let settings = &self.desk.settings.mirror;
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let trouble = replica.trouble.get_or_insert_default();
        if !trouble.nudges_matter(now, settings.contention_quiet_ms) {
            trouble.nudges = 0;
        }
        let mut at = wrong_since.plus(settings.nudge_after_ms);
        if trouble.nudges > 0 {
            at = at.max(trouble.next_nudge_at);
        }
        if trouble.flight.in_flight.is_some() {
            return;
        }
        let at = at.max(trouble.flight.not_before);
        if now < at {
            self.desk.timers.no_later(Due::Replica(id, key), at);
            return;
        }
        let waited_s = now.since(wrong_since) / 1000;
        let because = format!(
            "the mirrored value has not arrived at an edge whose watch is live for {waited_s} s; \
             any new change makes the carrier try again"
        );
        let value = replica.nudge.wrapping_add(1).to_string();
        let annotations = vec![(settings.nudge_key.clone(), Some(value))];
        self.write_replica(id, key, Verb::Nudge, annotations, because, None);
    }

    /// A nudge landed: the next one comes later than this one did.
    pub(crate) fn nudged(&mut self, id: ClusterId, key: Key) {
        let now = self.desk.now;
        let settings = &self.desk.settings.mirror;
        let (first_ms, max_ms) = (settings.nudge_after_ms, settings.nudge_max_ms);
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let trouble = replica.trouble.get_or_insert_default();
        trouble.nudges += 1;
        trouble.next_nudge_at = now.plus(doubled(first_ms, trouble.nudges, max_ms));
    }

    /// A hop of a replica is waited for since a moment; past its time it is a stall.
    pub(crate) fn expect(
        &mut self,
        id: ClusterId,
        key: Key,
        hop: Hop,
        since: UnixMillis,
        place: ClusterId,
    ) {
        let stall = &self.desk.settings.stall;
        let at =
            since.plus(if hop == Hop::Mirrored { stall.mirrored_ms } else { stall.arrived_ms });
        if self.desk.now < at {
            self.desk.timers.no_later(Due::Replica(id, key), at);
            self.end_stall_unless(id, key, Some(hop));
            return;
        }
        let Some(cluster) = self.cluster(place).map(|c| c.name.clone()) else { return };
        let live = self.cluster(place).is_some_and(|c| c.is_live(Kind::Connector));
        let leader = self.desk.leader;
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let trouble = replica.trouble.get_or_insert_default();
        if trouble.stall.as_ref().is_some_and(|s| s.hop == hop) {
            return;
        }
        let reason = match (&trouble.flight.error, hop) {
            _ if !live => format!("the watch of {cluster} is lost"),
            (Some(error), _) => format!("writes to the hub fail: {error}"),
            _ if !leader => "this process does not lead; whoever leads should write it".to_owned(),
            (_, Hop::Mirrored) if trouble.flight.in_flight.is_some() => {
                "a write to the hub is under way without an answer".to_owned()
            }
            (_, Hop::Mirrored) if trouble.spoils > 0 => {
                "another writer keeps changing the hub's annotation".to_owned()
            }
            (_, Hop::Mirrored) => "the hub's annotation is not what upstream says".to_owned(),
            _ => format!(
                "the copy at {cluster} is not what the hub says; nudged {} times",
                trouble.nudges
            ),
        };
        let connector = self.desk.names.object_key(key);
        let stall = Stall { cluster, connector, hop, since, reason };
        let old = trouble.stall.replace(stall.clone());
        if let Some(old) = old {
            self.desk.note(Noted::StallEnded(old));
        }
        self.desk.note(Noted::Stalled(stall));
    }

    /// Ends a replica's stall, unless it is about `hop`.
    pub(crate) fn end_stall_unless(&mut self, id: ClusterId, key: Key, hop: Option<Hop>) {
        let Some(trouble) = self.trouble(id, key) else { return };
        if let Some(stall) = trouble.stall.take_if(|s| Some(s.hop) != hop) {
            self.desk.note(Noted::StallEnded(stall));
        }
    }

    /// A connector's liveness at an edge is not announced by all its gateways in time.
    pub(crate) fn announcement_is_late(&mut self, id: ClusterId, key: Key) {
        let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) else { return };
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let late = edge.late_targets(key);
        let Some(connector) = edge.connectors.get_mut(&key) else { return };
        if connector.unannounced == 0 || connector.touch_stall.is_some() {
            return;
        }
        let reason = match late {
            Some(error) => format!("writes to a gateway fail: {error}"),
            None if !edge.ready => "not every watch of the edge is live".to_owned(),
            None => format!("{} of its gateways are not written yet", connector.unannounced),
        };
        let stall = Stall {
            cluster,
            connector: self.desk.names.object_key(key),
            hop: Hop::Touched,
            since: connector.changed_at,
            reason,
        };
        connector.touch_stall = Some(Box::new(stall.clone()));
        self.desk.note(Noted::Stalled(stall));
    }
}
