//! The upstream side: Connectors as their own control planes show them, and who replicates them.

use std::collections::BTreeSet;

use super::action::Hop;
use super::budget::Share;
use super::few::Few;
use super::ids::{ClusterId, Key, Kind, Map, ResourceVersion, Sym, fingerprint};
use super::liveness;
use super::machine::Machine;
use super::objects::Object;
use super::packed::Packed;
use super::spelling;
use super::time::UnixMillis;

/// What a JSON document means, whatever its spelling; `ABSENT` for none. Two halves of 128 bits,
/// so that it needs no more than 8-byte alignment in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Digest([u64; 2]);

impl Digest {
    pub(crate) const ABSENT: Digest = Digest([0, 0]);

    pub(super) fn of_bytes(bytes: &str) -> Self {
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
    pub(super) exists: bool,
    pub(super) seen: u32,
    /// The status as the mirror spells it; `None` when upstream has none.
    pub(super) text: Option<Packed>,
    pub(super) meaning: Digest,
    /// How long the spelled status is.
    pub(super) bytes: u32,
    /// The status as upstream spelled it, to see at once that nothing changed.
    pub(super) raw: Digest,
    pub(super) rv: ResourceVersion,
    /// When `meaning` or `exists` last changed.
    pub(super) changed_at: UnixMillis,
    /// What `text` says; only told, never decided by.
    pub(super) online: bool,
    pub(super) replicas: Few<(ClusterId, Key)>,
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
    /// How many of them are orphans.
    pub(super) share: Share,
    pub(super) replicas_by_ns: Map<Sym, BTreeSet<(ClusterId, Key)>>,
}

impl Upstream {
    /// The cluster is not configured any longer; the replicas that name it stay.
    pub(crate) fn forget(&mut self) {
        self.id = None;
        self.share.forget_state();
        self.gateways.clear();
        self.sources.retain(|_, source| {
            let replicas = std::mem::take(&mut source.replicas);
            *source = Source { replicas, ..Source::default() };
            !source.replicas.is_empty()
        });
    }

    /// Every replica that names it.
    pub(crate) fn replicas(&self) -> BTreeSet<(ClusterId, Key)> {
        self.replicas_by_ns.values().flatten().copied().collect()
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

impl Machine {
    pub(crate) fn source_seen(&mut self, id: ClusterId, key: Key, object: &Object, listed: bool) {
        let Some(cluster) = self.clusters.get(usize::from(id.0)).and_then(Option::as_ref) else {
            return;
        };
        let Some(upstream) = self.upstreams.get_mut(&cluster.sym) else { return };
        let source = upstream.sources.entry(key).or_default();
        source.seen = cluster.list(Kind::Connector);
        let rv = ResourceVersion::new(&object.meta.resource_version);
        if source.exists && !listed && rv.is_older_than(&source.rv) {
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
        source.online = liveness::read(None, text.as_deref()).online;
        source.text = text.as_deref().map(Packed::new);
        source.bytes = text.map_or(0, |t| u32::try_from(t.len()).unwrap_or(u32::MAX));
        source.changed_at = self.desk.now;
        if cluster.is_source_namespace(key.ns) == Some(true) && cluster.is_live(Kind::Connector) {
            let (cluster, online) = (cluster.name.clone(), source.online);
            self.note_hop(&cluster, key, Hop::Upstream, online, None);
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
        let was_online = source.online;
        if replicas.is_empty() {
            upstream.sources.remove(&key);
        } else {
            *source = Source { replicas, changed_at: self.desk.now, ..Source::default() };
        }
        if was_online {
            let cluster = cluster.name.clone();
            self.note_hop(&cluster, key, Hop::Upstream, false, None);
        }
        self.wishes_changed(id, key);
    }

    /// What upstream says changed: a pause that was about the old value is over.
    pub(super) fn wishes_changed(&mut self, id: ClusterId, key: Key) {
        for (hub, replica) in self.replicas_of(id, key) {
            if let Some(trouble) = self.trouble(hub, replica) {
                trouble.flight.wish_changed();
            }
            self.evaluate_replica(hub, replica);
        }
    }

    pub(super) fn replicas_of(&self, id: ClusterId, key: Key) -> Vec<(ClusterId, Key)> {
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
            replicas = upstream.replicas();
        }
        for (hub, key) in replicas {
            self.evaluate_replica(hub, key);
        }
        self.evaluate_routes_naming(sym);
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
}
