//! The mirror: what upstream says of a connector should stand in the hub's annotation.
//!
//! A [`Source`] is an upstream Connector, a [`Replica`] a downstream one. What should be is read
//! from the source, what is from the replica; they are compared by meaning ([`Digest`]).

use std::collections::BTreeSet;

use super::action::{AnomalyKind, Hop, Noted, Precondition, Stall, Verb};
use super::event::Outcome;
use super::few::Few;
use super::flight::{Flight, Landed, doubled};
use super::ids::{ActionId, ClusterId, Key, Kind, Map, ResourceVersion, Sym, Uid, fingerprint};
use super::liveness;
use super::machine::{Aim, Machine, Target};
use super::objects::{
    Object, UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE, UPSTREAM_STATUS,
    upstream_cluster_name,
};
use super::orphan::Route;
use super::packed::Packed;
use super::settings::MirrorSettings;
use super::spelling;
use super::time::UnixMillis;
use super::timers::Due;

/// What a JSON document means, whatever its spelling; `ABSENT` for none. Two halves of 128 bits,
/// so that it needs no more than 8-byte alignment in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Digest([u64; 2]);

impl Digest {
    pub(crate) const ABSENT: Digest = Digest([0, 0]);

    fn of_bytes(bytes: &str) -> Self {
        let wide = fingerprint(bytes.as_bytes());
        Self([wide as u64, (wide >> 64) as u64])
    }

    /// The meaning of `text`. `likely` are meanings it may have: when it is spelled as one of
    /// them is, nothing is parsed. Text that is not JSON means only itself.
    pub(crate) fn of(text: &str, likely: [Digest; 2]) -> Self {
        let bytes = Self::of_bytes(text);
        if likely.contains(&bytes) {
            return bytes;
        }
        spelling::spell(text).map_or(Digest([!bytes.0[0], bytes.0[1]]), |s| Self::of_bytes(&s))
    }
}

/// An upstream Connector, or the place of one that a replica names.
#[derive(Default)]
pub(crate) struct Source {
    exists: bool,
    seen: u32,
    /// The status as the mirror spells it; `None` when upstream has none.
    text: Option<Packed>,
    meaning: Digest,
    /// How long the spelled status is.
    bytes: u32,
    /// The status as upstream spelled it, to see at once that nothing changed.
    raw: Digest,
    rv: ResourceVersion,
    /// When `meaning` or `exists` last changed.
    changed_at: UnixMillis,
    replicas: Few<(ClusterId, Key)>,
}

impl Source {
    /// Read when it is asked for: rarely, and only to tell people.
    fn is_online(&self) -> bool {
        self.text.as_ref().is_some_and(|t| liveness::read(None, Some(&t.text())).online)
    }
}

/// What is known of one upstream cluster, configured or only named by replicas.
#[derive(Default)]
pub(crate) struct Upstream {
    pub(crate) id: Option<ClusterId>,
    pub(crate) sources: Map<Key, Source>,
    /// Gateways, with the list that last brought each.
    pub(crate) gateways: Map<Key, u32>,
    /// Routes of the hub by the Gateway they name, and by upstream namespace.
    pub(crate) routes_by_parent: Map<Key, BTreeSet<(ClusterId, Key)>>,
    pub(crate) routes_by_ns: Map<Sym, BTreeSet<(ClusterId, Key)>>,
    replicas_by_ns: Map<Sym, BTreeSet<(ClusterId, Key)>>,
}

impl Upstream {
    /// The cluster is not configured any longer; the replicas that name it stay.
    pub(crate) fn forget(&mut self) {
        self.id = None;
        self.gateways.clear();
        self.sources.retain(|_, source| {
            let replicas = std::mem::take(&mut source.replicas);
            *source = Source { replicas, ..Source::default() };
            !source.replicas.is_empty()
        });
    }

    pub(crate) fn not_in_the_list(&self, kind: Kind, list: u32, gone: &mut BTreeSet<Key>) {
        if kind == Kind::Connector {
            gone.extend(
                self.sources.iter().filter(|(_, s)| s.exists && s.seen != list).map(|(k, _)| *k),
            );
        } else if kind == Kind::Gateway {
            gone.extend(self.gateways.iter().filter(|(_, seen)| **seen != list).map(|(k, _)| *k));
        }
    }
}

/// A downstream Connector.
#[derive(Default)]
pub(crate) struct Replica {
    pub(crate) uid: Uid,
    pub(crate) rv: ResourceVersion,
    seen: u32,
    /// The upstream cluster and the Connector there, as the labels say.
    pub(crate) source: Option<(Sym, Key)>,
    /// What the annotation means.
    pub(crate) meaning: Digest,
    /// Bytes of all other annotations, for the limit.
    other_bytes: u32,
    /// The nudge annotation's counter.
    pub(crate) nudge: u32,
    flags: Flags,
    /// When the annotation came to mean what upstream says; 0 while it does not.
    pub(crate) settled_at: UnixMillis,
    /// What is only needed while something is not as it should be.
    pub(crate) trouble: Option<Box<Trouble>>,
}

/// What was told already, so that it is told once.
#[derive(Default)]
struct Flags {
    identity: bool,
    oversized: bool,
}

/// A replica's open business.
#[derive(Default)]
pub(crate) struct Trouble {
    pub(crate) flight: Flight,
    /// What the write in flight makes the annotation mean; `None` for a nudge.
    writing: Option<Digest>,
    /// The object was seen since the write was sent.
    seen_since: bool,
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

/// What should stand in a replica's annotation.
enum Wish {
    /// Not known: hold still.
    Unknown,
    /// Known from this moment on, but not before.
    Later(UnixMillis),
    /// This meaning, wanted since this moment.
    This(Right),
}

/// What is right for a replica.
#[derive(Clone, Copy)]
pub(crate) struct Right {
    pub(crate) meaning: Digest,
    /// When upstream came to say so.
    pub(crate) since: UnixMillis,
}

impl Machine {
    pub(crate) fn source_seen(&mut self, id: ClusterId, key: Key, object: &Object) {
        let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref) else {
            return;
        };
        let Some(upstream) = self.upstreams.get_mut(&cluster.sym) else { return };
        let source = upstream.sources.entry(key).or_default();
        source.seen = cluster.list(Kind::Connector);
        let rv = ResourceVersion::new(&object.meta.resource_version);
        if source.exists && rv.is_older_than(&source.rv) {
            return;
        }
        source.rv = rv;
        let status = object.status();
        let raw = status.map_or(Digest::ABSENT, Digest::of_bytes);
        if source.exists && raw == source.raw {
            return;
        }
        let text = status.and_then(spelling::spell);
        let meaning = text.as_deref().map_or(Digest::ABSENT, Digest::of_bytes);
        let changed = !source.exists || meaning != source.meaning;
        source.exists = true;
        source.raw = raw;
        if !changed {
            return;
        }
        source.meaning = meaning;
        source.text = text.as_deref().map(Packed::new);
        source.bytes = text.map_or(0, |t| u32::try_from(t.len()).unwrap_or(u32::MAX));
        source.changed_at = self.desk.now;
        if cluster.is_source_namespace(key.ns) == Some(true) && cluster.is_live(Kind::Connector) {
            let (cluster, online) = (cluster.name.clone(), source.is_online());
            self.note_hop(&cluster, key, Hop::Upstream, online);
        }
        self.wishes_changed(id, key);
    }

    pub(crate) fn source_gone(&mut self, id: ClusterId, key: Key) {
        let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref) else {
            return;
        };
        let Some(upstream) = self.upstreams.get_mut(&cluster.sym) else { return };
        let Some(source) = upstream.sources.get_mut(&key) else { return };
        let replicas = std::mem::take(&mut source.replicas);
        let was_online = source.is_online();
        if replicas.is_empty() {
            upstream.sources.remove(&key);
        } else {
            *source = Source { replicas, changed_at: self.desk.now, ..Source::default() };
        }
        if was_online {
            let cluster = cluster.name.clone();
            self.note_hop(&cluster, key, Hop::Upstream, false);
        }
        self.wishes_changed(id, key);
    }

    /// What upstream says changed: a pause that was about the old value is over.
    fn wishes_changed(&mut self, id: ClusterId, key: Key) {
        for (hub, replica) in self.replicas_of(id, key) {
            if let Some(trouble) = self.trouble(hub, replica) {
                trouble.flight.wish_changed();
            }
            self.evaluate_replica(hub, replica);
        }
    }

    fn replicas_of(&self, id: ClusterId, key: Key) -> Vec<(ClusterId, Key)> {
        let source = self
            .cluster(id)
            .and_then(|c| self.upstreams.get(&c.sym))
            .and_then(|upstream| upstream.sources.get(&key));
        source.map(|s| s.replicas.as_slice().to_vec()).unwrap_or_default()
    }

    pub(crate) fn evaluate_replicas_of(&mut self, id: ClusterId, key: Key) {
        for (hub, replica) in self.replicas_of(id, key) {
            self.evaluate_replica(hub, replica);
        }
    }

    /// An upstream list is complete: absence counts from now on.
    pub(crate) fn upstream_listed(&mut self, id: ClusterId, connectors: bool) {
        let Some(sym) = self.cluster(id).map(|c| c.sym) else { return };
        let Some(upstream) = self.upstreams.get(&sym) else { return };
        let mut replicas = BTreeSet::new();
        if connectors {
            replicas.extend(
                upstream.sources.values().flat_map(|s| s.replicas.as_slice().iter().copied()),
            );
        } else {
            replicas.extend(upstream.replicas_by_ns.values().flatten().copied());
        }
        let routes: BTreeSet<_> = upstream.routes_by_ns.values().flatten().copied().collect();
        for (hub, key) in replicas {
            self.evaluate_replica(hub, key);
        }
        for (hub, key) in routes {
            self.evaluate_route(hub, key);
        }
    }

    /// An upstream namespace changed: replicas and routes that name it are looked at again.
    pub(crate) fn look_again_at_sources_of(&mut self, id: ClusterId, ns: Sym) {
        let Some(upstream) = self.cluster(id).and_then(|c| self.upstreams.get(&c.sym)) else {
            return;
        };
        let replicas = upstream.replicas_by_ns.get(&ns).cloned().unwrap_or_default();
        let routes = upstream.routes_by_ns.get(&ns).cloned().unwrap_or_default();
        for (hub, key) in replicas {
            self.evaluate_replica(hub, key);
        }
        for (hub, key) in routes {
            self.evaluate_route(hub, key);
        }
    }

    pub(crate) fn trouble(&mut self, hub: ClusterId, key: Key) -> Option<&mut Trouble> {
        self.hubs.get_mut(&hub)?.replicas.get_mut(&key)?.trouble.as_deref_mut()
    }

    pub(crate) fn replica_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        let meta = &object.meta;
        let label = |key| meta.labels.get(key).filter(|v| !v.is_empty());
        let source =
            label(UPSTREAM_CLUSTER_NAME).and_then(upstream_cluster_name).and_then(|name| {
                let key = self.desk.names.key(label(UPSTREAM_NAMESPACE)?, label(UPSTREAM_NAME)?);
                Some((self.desk.names.intern(&name), key))
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
    fn relink_replica(
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
        let Some(hub) = self.hubs.remove(&id) else { return };
        for (key, replica) in &hub.replicas {
            self.relink_replica(id, *key, replica.source, None);
            self.desk.timers.clear(Due::Replica(id, *key));
        }
        for (key, route) in &hub.routes {
            self.unlink_route(id, *key, route);
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

    /// Another writer changed what was right.
    fn replica_spoiled(&mut self, id: ClusterId, key: Key) {
        let now = self.desk.now;
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let settings = &self.desk.settings.mirror;
        let trouble = replica.trouble.get_or_insert_default();
        if now.since(trouble.spoiled_at) > settings.contention_quiet_ms {
            trouble.spoils = 0;
        }
        trouble.spoils += 1;
        trouble.spoiled_at = now;
        if trouble.spoils < settings.contention_count {
            return;
        }
        let pause_ms = contention_pause(settings, trouble.spoils);
        trouble.flight.pause_until(now.plus(pause_ms));
        let (spoils, first) = (trouble.spoils, trouble.spoils == settings.contention_count);
        if let Some(cluster) = self.cluster(id).map(|c| c.name.clone())
            && (first || spoils.is_power_of_two())
        {
            let detail = format!(
                "another writer keeps changing {UPSTREAM_STATUS} ({spoils} times by now); \
                 the right value is written again after a pause of {pause_ms} ms"
            );
            self.desk.anomaly(AnomalyKind::Contention, &cluster, Some(key), detail);
        }
    }

    fn wish(&self, id: ClusterId, key: Key) -> Wish {
        let Some(replica) = self.hubs.get(&id).and_then(|h| h.replicas.get(&key)) else {
            return Wish::Unknown;
        };
        let Some((name, source_key)) = replica.source else { return Wish::Unknown };
        let is_replica = self.cluster(id).and_then(|c| c.is_replica_namespace(key.ns));
        let Some(upstream) = self.upstreams.get(&name) else { return Wish::Unknown };
        let (Some(up_id), Some(source)) = (upstream.id, upstream.sources.get(&source_key)) else {
            return Wish::Unknown;
        };
        let Some(cluster) = self.cluster(up_id) else { return Wish::Unknown };
        let known = is_replica == Some(true)
            && cluster.is_live(Kind::Connector)
            && self.identity(cluster, key.ns, source_key.ns) != Identity::Disagrees;
        // What could not be known could not be waited for.
        let since = source.changed_at.max(cluster.live_since(Kind::Connector));
        if !known || (source.exists && cluster.is_source_namespace(source_key.ns) != Some(true)) {
            return Wish::Unknown;
        }
        if !source.exists {
            let at = since.plus(self.desk.settings.mirror.absent_grace_ms);
            return if at > self.desk.now && replica.meaning != Digest::ABSENT {
                Wish::Later(at)
            } else {
                Wish::This(Right { meaning: Digest::ABSENT, since: at })
            };
        }
        Wish::This(Right { meaning: source.meaning, since })
    }

    /// Whether `ns` at the hub is the replica of `source_ns`: `ns-<uid of the namespace>`.
    pub(crate) fn identity(
        &self,
        upstream: &super::cluster::Cluster,
        ns: Sym,
        source_ns: Sym,
    ) -> Identity {
        let Some(namespace) = upstream.namespaces.get(&source_ns) else { return Identity::Unknown };
        let Some(uid) = namespace.uid.text() else { return Identity::Unknown };
        match self.desk.names.text(ns).strip_prefix("ns-") {
            Some(suffix) if suffix == uid => Identity::Agrees,
            _ => Identity::Disagrees,
        }
    }

    /// Compares what is with what should be, and acts on the difference.
    pub(crate) fn evaluate_replica(&mut self, id: ClusterId, key: Key) {
        let now = self.desk.now;
        let due = Due::Replica(id, key);
        self.desk.timers.clear(due);
        if !self.cluster(id).is_some_and(|c| c.is_live(Kind::Connector))
            || !self.desk.settings.mirror.enabled
        {
            return;
        }
        let mut right = match self.wish(id, key) {
            Wish::Unknown => {
                self.tell_identity(id, key);
                return;
            }
            Wish::Later(at) => {
                self.desk.timers.no_later(due, at);
                return;
            }
            Wish::This(right) => right,
        };
        let wished = right.meaning;
        let (meaning, text) = self.within_the_limit(id, key, wished);
        right.meaning = meaning;
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        let Some(replica) = hub.replicas.get_mut(&key) else { return };
        if replica.meaning == meaning {
            self.replica_is_right(id, key, right);
            return;
        }
        replica.settled_at = UnixMillis(0);
        hub.waiting.insert(key);
        let live_since = self.cluster(id).map_or(now, |c| c.live_since(Kind::Connector));
        let spoiled_at = self.trouble(id, key).map_or(UnixMillis(0), |t| t.spoiled_at);
        let since = right.since.max(live_since).max(spoiled_at);
        self.expect(id, key, Hop::Mirrored, since, id);
        if !self.desk.leader {
            return;
        }
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let trouble = replica.trouble.get_or_insert_default();
        if !trouble.flight.is_free(now) {
            if trouble.flight.in_flight.is_none() {
                self.desk.timers.no_later(due, trouble.flight.not_before);
            }
            return;
        }
        let spoiled = trouble.spoiled_at > right.since;
        let is = replica.meaning;
        let because = if meaning == Digest::ABSENT && wished != Digest::ABSENT {
            "nothing of upstream's status fits, and a stale one may not stay".to_owned()
        } else {
            because(is, meaning, self.is_online_upstream(id, key), spoiled)
        };
        // Nothing to claim, or nothing that fits: the key goes.
        let text = match meaning {
            Digest::ABSENT => None,
            _ => text.or_else(|| self.source_text(id, key)),
        };
        let annotations = vec![(UPSTREAM_STATUS.to_owned(), text)];
        self.write_replica(id, key, Verb::Mirror, annotations, because, Some(meaning));
    }

    /// Whether upstream says that a replica's connector is online.
    pub(crate) fn is_online_upstream(&self, id: ClusterId, key: Key) -> bool {
        let source = || {
            let (cluster, source) = self.hubs.get(&id)?.replicas.get(&key)?.source?;
            self.upstreams.get(&cluster)?.sources.get(&source)
        };
        source().is_some_and(Source::is_online)
    }

    fn source_text(&self, id: ClusterId, key: Key) -> Option<String> {
        let (cluster, source) = self.hubs.get(&id)?.replicas.get(&key)?.source?;
        let text = &self.upstreams.get(&cluster)?.sources.get(&source)?.text;
        text.as_ref().map(Packed::text)
    }

    /// A status that would break the annotation limit is reduced to what routing needs; one that
    /// breaks it even so is removed, because a stale value is worse than none.
    fn within_the_limit(
        &mut self,
        id: ClusterId,
        key: Key,
        full: Digest,
    ) -> (Digest, Option<String>) {
        let limit = self.desk.settings.mirror.annotation_limit_bytes;
        let Some(replica) = self.hubs.get(&id).and_then(|h| h.replicas.get(&key)) else {
            return (full, None);
        };
        let room = limit.saturating_sub(replica.other_bytes as usize + UPSTREAM_STATUS.len());
        let source = replica.source.and_then(|(c, s)| self.upstreams.get(&c)?.sources.get(&s));
        let bytes = source.map_or(0, |s| s.bytes as usize);
        let told = replica.flags.oversized;
        let fits = full == Digest::ABSENT || bytes <= room;
        if let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) {
            replica.flags.oversized = !fits;
        }
        if fits {
            return (full, None);
        }
        let source = self.source_text(id, key).unwrap_or_default();
        let reduced = spelling::reduce(&source).filter(|r| r.len() <= room);
        if !told && let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) {
            let done = if reduced.is_some() {
                "its Ready condition and connectionDetails are mirrored"
            } else {
                "nothing of it fits, and the annotation is removed"
            };
            let detail = format!(
                "the status takes {} bytes where {room} are left of the limit of {limit}; {done}",
                source.len()
            );
            self.desk.anomaly(AnomalyKind::OversizedStatus, &cluster, Some(key), detail);
        }
        match reduced {
            Some(text) => (Digest::of_bytes(&text), Some(text)),
            None => (Digest::ABSENT, None),
        }
    }

    fn tell_identity(&mut self, id: ClusterId, key: Key) {
        let disagrees = || {
            let replica = self.hubs.get(&id)?.replicas.get(&key)?;
            let (name, source) = replica.source?;
            let cluster = self.cluster(self.upstreams.get(&name)?.id?)?;
            let wrong = self.identity(cluster, key.ns, source.ns) == Identity::Disagrees;
            (wrong && !replica.flags.identity).then(|| (cluster.name.clone(), source))
        };
        let Some((upstream, source)) = disagrees() else { return };
        if let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) {
            replica.flags.identity = true;
        }
        let source = self.desk.names.object_key(source);
        let detail = format!(
            "its labels name {source} in {upstream}, but its namespace is not that namespace's \
             replica; it is left as it is"
        );
        if let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) {
            self.desk.anomaly(AnomalyKind::Identity, &cluster, Some(key), detail);
        }
    }

    /// Sends a write to a replica. `writing` is what it makes the annotation mean.
    pub(crate) fn write_replica(
        &mut self,
        id: ClusterId,
        key: Key,
        verb: Verb,
        annotations: Vec<(String, Option<String>)>,
        because: String,
        writing: Option<Digest>,
    ) {
        let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) else { return };
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let object = self.desk.names.object_key(key);
        let aim = Aim {
            target: Target::Replica(id, key),
            cluster,
            kind: Kind::Connector,
            connectors: vec![object.clone()],
            object,
            precondition: Precondition {
                uid: replica.uid.text(),
                resource_version: replica.rv.text(),
                absent: None,
            },
        };
        let trouble = replica.trouble.get_or_insert_default();
        trouble.writing = writing;
        trouble.seen_since = false;
        trouble.flight.launch(self.desk.submit(aim, verb, annotations, because));
    }

    pub(crate) fn replica_written(
        &mut self,
        id: ClusterId,
        key: Key,
        action: ActionId,
        outcome: &Outcome,
    ) {
        let now = self.desk.now;
        let retry = self.desk.settings.retry;
        let Some(replica) = self.hubs.get_mut(&id).and_then(|h| h.replicas.get_mut(&key)) else {
            return;
        };
        let Some(trouble) = replica.trouble.as_deref_mut() else { return };
        if trouble.flight.in_flight != Some(action) {
            return;
        }
        let landed = trouble.flight.land(now, outcome, &retry);
        let (writing, seen_since) = (trouble.writing.take(), trouble.seen_since);
        match (&landed, writing) {
            (Landed::Yes, writing) => {
                let rv = match outcome {
                    Outcome::Applied { resource_version: Some(rv) } => ResourceVersion::new(rv),
                    _ => ResourceVersion::Absent,
                };
                // The watch may have shown this write, and even a later one, before its outcome.
                if replica.rv.is_older_than(&rv) {
                    replica.rv = rv;
                    replica.meaning = writing.unwrap_or(replica.meaning);
                } else if rv == ResourceVersion::Absent && !seen_since {
                    replica.meaning = writing.unwrap_or(replica.meaning);
                } else if rv == ResourceVersion::Absent
                    && writing.is_some_and(|w| w != replica.meaning)
                {
                    // Which of the two came first is not known: let the watch catch up.
                    trouble.flight.pause_until(now.plus(retry.first_ms));
                }
                if writing.is_none() {
                    self.nudged(id, key);
                }
            }
            (Landed::Refused, _) => {
                let error = trouble.flight.error.clone().unwrap_or_default();
                if let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) {
                    let detail = format!(
                        "the API server refuses the write: {error}; it is tried again in {} s, or \
                         when upstream changes",
                        retry.refused_ms / 1000
                    );
                    self.desk.anomaly(AnomalyKind::Refused, &cluster, Some(key), detail);
                }
            }
            // What it conflicts with was seen before its outcome: nothing to wait for.
            (Landed::No, _) if seen_since => trouble.flight.seen(),
            (Landed::No, _) => {}
        }
        self.evaluate_replica(id, key);
    }
}

/// Whether labels and namespaces of a replica agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Agrees,
    Disagrees,
    /// The upstream namespace, or its uid, is not known.
    Unknown,
}

fn contention_pause(settings: &MirrorSettings, spoils: u32) -> u64 {
    let times = spoils - settings.contention_count;
    doubled(settings.contention_backoff_ms, times, settings.contention_backoff_max_ms)
}

fn because(is: Digest, should: Digest, online: bool, spoiled: bool) -> String {
    let said = if online { "online" } else { "offline" };
    match (is == Digest::ABSENT, should == Digest::ABSENT) {
        (_, true) => "upstream has no status, so the hub may not claim one".to_owned(),
        _ if spoiled => {
            format!("another writer changed the hub's annotation; upstream says {said}")
        }
        (true, _) => format!("upstream says {said}, the hub has no annotation"),
        _ => format!("upstream says {said}, the hub's annotation says something else"),
    }
}
