//! The mirror: what upstream says of a connector should stand in the hub's annotation.
//!
//! A [`Source`](super::source::Source) is an upstream Connector, a
//! [`Replica`](super::replica::Replica) a downstream one. What should be is read from the source, what
//! is from the replica; they are compared by meaning ([`Digest`]).

use super::action::{AnomalyKind, Hop, Precondition, Verb};
use super::desk::{Aim, Target};
use super::ids::{ClusterId, Key, Kind, Sym};
use super::machine::Machine;
use super::objects::UPSTREAM_STATUS;
use super::packed::Packed;
use super::source::Digest;
use super::spelling;
use super::time::UnixMillis;
use super::timers::Due;

/// What should stand in a replica's annotation.
pub(crate) enum Wish {
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
    /// Since when it is wanted: upstream said so, and was to be believed.
    pub(crate) since: UnixMillis,
    /// When upstream came to say so.
    pub(crate) changed_at: UnixMillis,
    /// That was seen to happen, and not found in a list.
    pub(crate) seen_to_change: bool,
}

impl Machine {
    pub(crate) fn wish(&self, id: ClusterId, key: Key) -> Wish {
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
        let (changed_at, live_since) = (source.changed_at, cluster.live_since(Kind::Connector));
        let since = changed_at.max(live_since);
        let right = |meaning, since| {
            Wish::This(Right {
                meaning,
                since,
                changed_at,
                seen_to_change: changed_at > live_since,
            })
        };
        if !known || (source.exists && cluster.is_source_namespace(source_key.ns) != Some(true)) {
            return Wish::Unknown;
        }
        if !source.exists {
            let at = since.plus(self.desk.settings.mirror.absent_grace_ms);
            return if at > self.desk.now && replica.meaning != Digest::ABSENT {
                Wish::Later(at)
            } else {
                right(Digest::ABSENT, at)
            };
        }
        right(source.meaning, since)
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
                if !self.is_out_of_sight(id, key) {
                    self.end_stall_unless(id, key, None);
                }
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
        let settled_at = std::mem::take(&mut replica.settled_at);
        let (was_right, just) = (settled_at > UnixMillis(0), right.changed_at == now);
        if was_right || just {
            let since_then = right.changed_at > settled_at || just;
            replica.flags.upstream_changed = right.seen_to_change && since_then;
        }
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
        source().is_some_and(|s| s.online)
    }

    /// What a replica should say is not known for now: a watch of its upstream is not live.
    fn is_out_of_sight(&self, id: ClusterId, key: Key) -> bool {
        let source = self.hubs.get(&id).and_then(|h| h.replicas.get(&key)?.source);
        let upstream = source.and_then(|(name, _)| self.upstreams.get(&name)?.id);
        upstream
            .and_then(|id| self.cluster(id))
            .is_some_and(|c| !c.is_live(Kind::Connector) || !c.is_live(Kind::Namespace))
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
}

/// Whether labels and namespaces of a replica agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Agrees,
    Disagrees,
    /// The upstream namespace, or its uid, is not known.
    Unknown,
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
