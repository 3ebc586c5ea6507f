//! The downstream side: the replicas of Connectors at the hub, and the way back to their sources.

use std::collections::BTreeSet;

use super::action::{Noted, Stall};
use super::flight::Flight;
use super::ids::{ClusterId, Key, Kind, Map, ResourceVersion, Sym, Uid};
use super::machine::Machine;
use super::objects::{Object, UPSTREAM_STATUS};
use super::route::Route;
use super::source::{Digest, Source};
use super::time::UnixMillis;
use super::timers::Due;

/// A downstream Connector.
#[derive(Default)]
pub(crate) struct Replica {
    pub(crate) uid: Uid,
    pub(crate) rv: ResourceVersion,
    pub(super) seen: u32,
    /// The upstream cluster and the Connector there, as the labels say.
    pub(crate) source: Option<(Sym, Key)>,
    /// What the annotation means.
    pub(crate) meaning: Digest,
    /// Bytes of all other annotations, for the limit.
    pub(super) other_bytes: u32,
    /// The nudge annotation's counter.
    pub(crate) nudge: u32,
    pub(super) flags: Flags,
    /// When the annotation came to mean what upstream says; 0 while it does not.
    pub(crate) settled_at: UnixMillis,
    /// What is only needed while something is not as it should be.
    pub(crate) trouble: Option<Box<Trouble>>,
}

/// What was told already, so that it is told once; and one more bit.
#[derive(Default)]
pub(super) struct Flags {
    pub(super) identity: bool,
    pub(super) oversized: bool,
    /// It is not right because upstream was seen to change, not another writer.
    pub(super) upstream_changed: bool,
}

/// A replica's open business.
#[derive(Default)]
pub(crate) struct Trouble {
    pub(crate) flight: Flight,
    /// What the write in flight makes the annotation mean; `None` for a nudge.
    pub(super) writing: Option<Digest>,
    /// The object was seen since the write was sent.
    pub(super) seen_since: bool,
    pub(crate) spoils: u32,
    pub(crate) spoiled_at: UnixMillis,
    pub(crate) stall: Option<Stall>,
    pub(crate) nudges: u32,
    pub(crate) next_nudge_at: UnixMillis,
}

impl Trouble {
    /// The last nudges are so recent that the pauses go on growing from there.
    pub(crate) fn nudges_matter(&self, now: UnixMillis, quiet_ms: u64) -> bool {
        self.nudges > 0 && now <= self.next_nudge_at.plus(quiet_ms)
    }
}

/// The downstream side of one cluster.
#[derive(Default)]
pub(crate) struct Hub {
    pub(crate) replicas: Map<Key, Replica>,
    /// Replicas that are not as they should be, here or at an edge.
    pub(crate) waiting: BTreeSet<Key>,
    pub(crate) routes: Map<Key, Route>,
    /// Routes that are orphans by all evidence.
    pub(crate) orphans: BTreeSet<Key>,
}

impl Hub {
    pub(crate) fn not_in_the_list(&self, kind: Kind, list: u32, gone: &mut BTreeSet<Key>) {
        if kind == Kind::Connector {
            gone.extend(self.replicas.iter().filter(|(_, r)| r.seen != list).map(|(k, _)| *k));
        } else if kind == Kind::HttpRoute {
            gone.extend(self.routes.iter().filter(|(_, r)| r.seen != list).map(|(k, _)| *k));
        }
    }
}

impl Machine {
    pub(crate) fn trouble(&mut self, hub: ClusterId, key: Key) -> Option<&mut Trouble> {
        self.hubs.get_mut(&hub)?.replicas.get_mut(&key)?.trouble.as_deref_mut()
    }

    pub(crate) fn replica_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        let meta = &object.meta;
        let names = &mut self.desk.names;
        let source = meta.upstream().map(|(cluster, namespace, name)| {
            let key = names.key(namespace, name);
            (names.intern(&cluster), key)
        });
        let wished = source.and_then(|(cluster, key)| {
            self.upstreams.get(&cluster)?.sources.get(&key).map(|s| s.meaning)
        });
        let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref) else {
            return;
        };
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        let replica = hub.replicas.entry(key).or_default();
        replica.seen = cluster.list(Kind::Connector);
        let (uid, rv) = (Uid::new(&meta.uid), ResourceVersion::new(&meta.resource_version));
        if !listed && uid == replica.uid && rv.is_older_than(&replica.rv) {
            return;
        }
        if uid != replica.uid {
            // Another object under the same name: what was under way is about the old one.
            replica.trouble = None;
            replica.flags = Flags::default();
        }
        let was_settled = replica.settled_at > UnixMillis(0);
        let before = replica.meaning;
        let annotation = meta.annotations.get(UPSTREAM_STATUS);
        let likely = [before, wished.unwrap_or_default()];
        let meaning = annotation.map_or(Digest::ABSENT, |text| Digest::of(text, likely));
        let own_bytes = annotation.map_or(0, |text| UPSTREAM_STATUS.len() + text.len());
        let nudge = meta.annotations.get(&self.desk.settings.mirror.nudge_key);
        let spoiled =
            was_settled && uid == replica.uid && meaning != before && Some(before) == wished;
        replica.uid = uid;
        replica.rv = rv;
        replica.meaning = meaning;
        replica.other_bytes =
            u32::try_from(meta.annotations.bytes() - own_bytes).unwrap_or(u32::MAX);
        replica.nudge = nudge.and_then(|n| n.parse().ok()).unwrap_or(0);
        let old_source = std::mem::replace(&mut replica.source, source);
        if let Some(trouble) = &mut replica.trouble {
            trouble.flight.seen();
            trouble.seen_since = true;
        }
        if spoiled {
            self.replica_spoiled(id, key);
        }
        if old_source != source {
            self.relink_replica(id, key, old_source, source);
        }
        self.evaluate_replica(id, key);
    }

    /// Keeps the way from a source to its replicas.
    pub(super) fn relink_replica(
        &mut self,
        id: ClusterId,
        key: Key,
        old: Option<(Sym, Key)>,
        new: Option<(Sym, Key)>,
    ) {
        if let Some((cluster, source_key)) = old
            && let Some(upstream) = self.upstreams.get_mut(&cluster)
        {
            if let Some(source) = upstream.sources.get_mut(&source_key) {
                source.replicas.retain(|r| *r != (id, key));
                if source.replicas.is_empty() && !source.exists {
                    upstream.sources.remove(&source_key);
                }
            }
            if let Some(replicas) = upstream.replicas_by_ns.get_mut(&source_key.ns) {
                replicas.remove(&(id, key));
                if replicas.is_empty() {
                    upstream.replicas_by_ns.remove(&source_key.ns);
                }
            }
        }
        if let Some((cluster, source_key)) = new {
            let now = self.desk.now;
            let upstream = self.upstreams.entry(cluster).or_default();
            let place = || Source { changed_at: now, ..Source::default() };
            let source = upstream.sources.entry(source_key).or_insert_with(place);
            if !source.replicas.as_slice().contains(&(id, key)) {
                source.replicas.push((id, key));
            }
            upstream.replicas_by_ns.entry(source_key.ns).or_default().insert((id, key));
        }
    }

    pub(crate) fn replica_gone(&mut self, id: ClusterId, key: Key) {
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        hub.waiting.remove(&key);
        let Some(replica) = hub.replicas.remove(&key) else { return };
        self.desk.timers.clear(Due::Replica(id, key));
        if let Some(stall) = replica.trouble.and_then(|t| t.stall) {
            self.desk.note(Noted::StallEnded(stall));
        }
        self.relink_replica(id, key, replica.source, None);
    }

    pub(crate) fn forget_hub(&mut self, id: ClusterId) {
        let Some(mut hub) = self.hubs.remove(&id) else { return };
        let mut keys: Vec<_> = hub.replicas.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            let Some(replica) = hub.replicas.remove(&key) else { continue };
            self.relink_replica(id, key, replica.source, None);
            self.desk.timers.clear(Due::Replica(id, key));
            if let Some(stall) = replica.trouble.and_then(|t| t.stall) {
                self.desk.note(Noted::StallEnded(stall));
            }
        }
        for (key, route) in &hub.routes {
            self.unlink_route(id, *key, route);
        }
    }

    pub(crate) fn take_up_held_work(&mut self) {
        let hubs: Vec<_> = self.hubs.keys().copied().collect();
        for id in hubs {
            let held = |hub: &Hub| (hub.waiting.clone(), hub.orphans.clone());
            let (replicas, routes) = self.hubs.get(&id).map(held).unwrap_or_default();
            for key in replicas {
                self.evaluate_replica(id, key);
            }
            for key in routes {
                self.evaluate_route(id, key);
            }
        }
    }

    pub(crate) fn hub_listed(&mut self, id: ClusterId) {
        let Some(hub) = self.hubs.get(&id) else { return };
        let mut keys: Vec<_> = hub.replicas.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.evaluate_replica(id, key);
        }
    }
}
