//! The objects of a served cluster: throughline's kinds from [`SimClusters`], and Leases and Events
//! from the server's own store, all under one resourceVersion.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use http::HeaderValue;
use serde_json::Value;

use super::fault::Fault;
use super::resource::{ApiVerb, Resource};
use crate::{Backup, Change, ChangeHistory, ChangeKind, SimClusters, TooOld, WatchNotice};
use throughline_core::data::ids::{ClusterName, NamespacedName};
use throughline_core::data::objects::Object;

/// The number of lists whose next pages can still be requested.
const SNAPSHOTS_MAX: usize = 64;

/// A served object.
#[derive(Clone)]
pub(super) enum ServedObject {
    Sim(Arc<Object>),
    /// An object of another kind than throughline's.
    Raw(Arc<Value>),
}

impl ServedObject {
    /// With `apiVersion` and `kind`.
    pub(super) fn to_value(&self) -> Value {
        match self {
            ServedObject::Sim(object) => serde_json::to_value(object).unwrap_or_default(),
            ServedObject::Raw(object) => Value::clone(object),
        }
    }

    pub(super) fn key(&self) -> NamespacedName {
        match self {
            ServedObject::Sim(object) => object.meta.key(),
            ServedObject::Raw(object) => {
                NamespacedName::new(metadata(object, "namespace"), metadata(object, "name"))
            }
        }
    }

    pub(super) fn version(&self) -> &str {
        match self {
            ServedObject::Sim(object) => &object.meta.resource_version,
            ServedObject::Raw(object) => metadata(object, "resourceVersion"),
        }
    }

    pub(super) fn uid(&self) -> &str {
        match self {
            ServedObject::Sim(object) => &object.meta.uid,
            ServedObject::Raw(object) => metadata(object, "uid"),
        }
    }
}

/// A member of `metadata`; empty if absent.
pub(super) fn metadata<'a>(object: &'a Value, member: &str) -> &'a str {
    object["metadata"][member].as_str().unwrap_or_default()
}

/// Version, resource, namespace and label selector of a list.
pub(super) type SnapshotKey = (u64, Resource, Option<String>, String);

/// The server's state beyond the simulated cluster.
pub(super) struct ServerState {
    raw_objects: BTreeMap<(Resource, NamespacedName), Arc<Value>>,
    raw_changes: ChangeHistory<(Resource, Arc<Value>)>,
    /// Lists whose first page was sent, by version, oldest first.
    snapshots: BTreeMap<SnapshotKey, Arc<[ServedObject]>>,
    pub(super) faults: VecDeque<Fault>,
    pub(super) unserved: BTreeSet<Resource>,
    pub(super) request_counts: BTreeMap<(ApiVerb, Resource), u64>,
    /// How long a resource's storage takes to initialize, from the first request on.
    pub(super) initializes_for: Duration,
    /// When each resource was first requested.
    pub(super) initialized: BTreeMap<Resource, Instant>,
    /// The only accepted bearer token; `None`: every request is accepted.
    pub(super) token: Option<String>,
    /// The resourceVersion at which the watch cache stays; `None`: it follows etcd. Writes and reads
    /// of single objects use the newest state nevertheless.
    pub(super) cached: Option<u64>,
    /// Lists are answered from the watch cache, too. API servers since 1.31 wait for the cache
    /// instead.
    pub(super) are_lists_cached: bool,
    /// Watches get no bookmarks.
    pub(super) has_no_bookmarks: bool,
    /// All pages of a list after the first get a 410.
    pub(super) do_pages_expire: bool,
    /// The next writes to repeat: how long after the first time.
    pub(super) repeats: VecDeque<Duration>,
}

/// A backup of one cluster, Leases and Events included. The default is that of a new one.
#[derive(Clone, Default)]
pub struct ServerBackup {
    objects: Backup,
    raw_objects: BTreeMap<(Resource, NamespacedName), Arc<Value>>,
}

impl ServerState {
    pub(super) fn new(history_changes: usize) -> Self {
        Self {
            raw_objects: BTreeMap::new(),
            raw_changes: ChangeHistory::new(history_changes, 0),
            snapshots: BTreeMap::new(),
            faults: VecDeque::new(),
            unserved: BTreeSet::from([
                Resource::Projects,
                Resource::ProjectControlPlanes,
                Resource::Secrets,
            ]),
            request_counts: BTreeMap::new(),
            initializes_for: Duration::ZERO,
            initialized: BTreeMap::new(),
            token: None,
            cached: None,
            are_lists_cached: false,
            has_no_bookmarks: false,
            do_pages_expire: false,
            repeats: VecDeque::new(),
        }
    }

    /// Whether a resource's storage is still being initialized. The first request starts this.
    pub(super) fn is_initializing(&mut self, resource: Resource, now: Instant) -> bool {
        if self.initializes_for.is_zero() {
            return false;
        }
        let since = *self.initialized.entry(resource).or_insert(now);
        now.duration_since(since) < self.initializes_for
    }

    /// Whether a request with this `Authorization` is accepted.
    pub(super) fn lets_in(&self, authorization: Option<&HeaderValue>) -> bool {
        let Some(token) = &self.token else { return true };
        let given = authorization.and_then(|value| value.to_str().ok());
        given.and_then(|given| given.strip_prefix("Bearer ")) == Some(token)
    }

    pub(super) fn save_snapshot(&mut self, key: SnapshotKey, objects: Arc<[ServedObject]>) {
        self.snapshots.insert(key, objects);
        while self.snapshots.len() > SNAPSHOTS_MAX {
            self.snapshots.pop_first();
        }
    }

    pub(super) fn snapshot(&self, key: &SnapshotKey) -> Option<Arc<[ServedObject]>> {
        self.snapshots.get(key).cloned()
    }
}

/// A served cluster, locked. Never held across an await.
pub(super) struct LockedCluster<'a> {
    pub(super) sim: MutexGuard<'a, SimClusters>,
    pub(super) state: MutexGuard<'a, ServerState>,
    pub(super) name: &'a ClusterName,
}

impl LockedCluster<'_> {
    pub(super) fn version(&self) -> u64 {
        self.sim.version(self.name)
    }

    /// The resourceVersion up to which watches show changes.
    pub(super) fn cached_version(&self) -> u64 {
        let newest = self.version();
        self.state.cached.map_or(newest, |cached| cached.min(newest))
    }

    /// The resourceVersion of a new list.
    pub(super) fn listed_version(&self) -> u64 {
        if self.state.are_lists_cached { self.cached_version() } else { self.version() }
    }

    pub(super) fn get(&self, resource: Resource, key: &NamespacedName) -> Option<ServedObject> {
        match resource.sim_kind() {
            Some(kind) => self.sim.get(self.name, kind, key).cloned().map(ServedObject::Sim),
            None => {
                let object = self.state.raw_objects.get(&(resource, key.clone()));
                object.cloned().map(ServedObject::Raw)
            }
        }
    }

    /// All objects of a resource in the order of their etcd keys.
    pub(super) fn all(&self, resource: Resource, namespace: Option<&str>) -> Vec<ServedObject> {
        let mut all: Vec<ServedObject> = match resource.sim_kind() {
            Some(kind) => {
                self.sim.objects(self.name, kind).cloned().map(ServedObject::Sim).collect()
            }
            None => {
                let raw = self.state.raw_objects.iter().filter(|((r, _), _)| *r == resource);
                raw.map(|(_, object)| ServedObject::Raw(object.clone())).collect()
            }
        };
        all.retain(|object| namespace.is_none_or(|ns| object.key().namespace() == ns));
        all.sort_by_cached_key(|object| object.key().to_string());
        all
    }

    /// All objects of a resource at `version`, in the order of their etcd keys. `None` if the
    /// history does not go back that far.
    pub(super) fn all_at(
        &self,
        version: u64,
        resource: Resource,
        namespace: Option<&str>,
    ) -> Option<Vec<ServedObject>> {
        let all = self.all(resource, namespace);
        if version >= self.version() {
            return Some(all);
        }
        let mut then: BTreeMap<_, _> =
            all.into_iter().map(|object| (object.key().to_string(), object)).collect();
        for change in self.changes(resource, version).ok()?.into_iter().rev() {
            let key = change.object.key();
            if namespace.is_some_and(|namespace| key.namespace() != namespace) {
                continue;
            }
            match change.previous {
                Some(previous) => then.insert(key.to_string(), previous),
                None => then.remove(&key.to_string()),
            };
        }
        Some(then.into_values().collect())
    }

    /// The changes of a resource after `version`.
    pub(super) fn changes(
        &self,
        resource: Resource,
        version: u64,
    ) -> Result<Vec<Change<ServedObject>>, TooOld> {
        if let Some(kind) = resource.sim_kind() {
            let changes = self.sim.changes_since(self.name, kind, version)?.into_iter();
            return Ok(changes.map(|change| change.map(ServedObject::Sim)).collect());
        }
        let changes = self.state.raw_changes.since(version)?.into_iter();
        let changes = changes.filter(|c| c.object.0 == resource);
        Ok(changes.map(|change| change.map(|(_, object)| ServedObject::Raw(object))).collect())
    }

    /// Whether objects may be created in a namespace. Recordings may contain objects of namespaces
    /// that they do not list, so a namespace that has any object exists.
    pub(super) fn has_namespace(&self, namespace: &str) -> bool {
        const BUILT_IN: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
        BUILT_IN.contains(&namespace)
            || self.get(Resource::Namespaces, &NamespacedName::new("", namespace)).is_some()
            || Resource::ALL.into_iter().any(|r| !self.all(r, Some(namespace)).is_empty())
    }

    /// Creates or replaces an object of one of throughline's kinds.
    pub(super) fn put(&mut self, object: Object, manager: &str) -> Option<ServedObject> {
        self.sim.put(self.name, object, manager, WatchNotice::Applied).map(ServedObject::Sim)
    }

    /// Creates or replaces an object of another kind.
    pub(super) fn put_raw(
        &mut self,
        resource: Resource,
        key: NamespacedName,
        mut object: Value,
    ) -> ServedObject {
        let version = self.sim.next_version(self.name);
        let old = self.state.raw_objects.get(&(resource, key.clone()));
        let kind = if old.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        let meta = &mut object["metadata"];
        if !resource.is_cluster_scoped() {
            meta["namespace"] = key.namespace().to_owned().into();
        }
        meta["name"] = key.name().to_owned().into();
        meta["resourceVersion"] = version.to_string().into();
        match old {
            Some(old) => {
                meta["uid"] = old["metadata"]["uid"].clone();
                meta["creationTimestamp"] = old["metadata"]["creationTimestamp"].clone();
            }
            None => {
                meta["uid"] = format!("00000000-0000-4000-8001-{version:012x}").into();
                meta["creationTimestamp"] = self.sim.now().to_string().into();
            }
        }
        let object = Arc::new(object);
        let previous = self.state.raw_objects.insert((resource, key), object.clone());
        let previous = previous.map(|old| (resource, old));
        let change = Change { version, kind, object: (resource, object.clone()), previous };
        self.state.raw_changes.record(change);
        ServedObject::Raw(object)
    }

    /// Deletes an existing object.
    pub(super) fn remove(&mut self, resource: Resource, key: &NamespacedName) {
        if let Some(kind) = resource.sim_kind() {
            // The caller has checked the preconditions under the same lock.
            return self.sim.remove(self.name, kind, key);
        }
        let Some(mut object) = self.state.raw_objects.remove(&(resource, key.clone())) else {
            return;
        };
        let version = self.sim.next_version(self.name);
        let previous = object.clone();
        Arc::make_mut(&mut object)["metadata"]["resourceVersion"] = version.to_string().into();
        let object = (resource, object);
        let previous = Some((resource, previous));
        let change = Change { version, kind: ChangeKind::Deleted, object, previous };
        self.state.raw_changes.record(change);
    }

    /// Drops the history up to now and the snapshots of all running lists.
    pub(super) fn compact(&mut self) {
        self.sim.clear_history(self.name);
        let version = self.version();
        self.state.raw_changes.clear(version);
        self.state.snapshots.clear();
        self.state.cached = None;
    }

    pub(super) fn backup(&self) -> Option<ServerBackup> {
        let raw_objects = self.state.raw_objects.clone();
        Some(ServerBackup { objects: self.sim.backup(self.name)?, raw_objects })
    }

    pub(super) fn restore(&mut self, backup: &ServerBackup) {
        self.sim.restore(self.name, &backup.objects);
        self.state.raw_objects.clone_from(&backup.raw_objects);
        self.compact();
    }
}
