//! What the front reads from and writes to: the world's cluster, and beside it the Leases and Events,
//! which the world does not have. All under one resourceVersion.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::hooks::Fault;
use super::route::{Resource, Verb};
use crate::core::ids::{ClusterName, ObjectKey};
use crate::core::objects::Object;
use crate::world::{Change, Changed, Preconditions, Ring, Tell, TooOld, World};

/// Lists whose next pages may still be asked for.
const SNAPSHOTS_MAX: usize = 64;

/// An object as it is served.
#[derive(Clone)]
pub(super) enum Item {
    Object(Arc<Object>),
    Beside(Arc<Value>),
}

impl Item {
    /// With `apiVersion` and `kind`.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Item::Object(object) => serde_json::to_value(object).unwrap_or_default(),
            Item::Beside(object) => Value::clone(object),
        }
    }

    pub(super) fn key(&self) -> ObjectKey {
        match self {
            Item::Object(object) => object.meta.key(),
            Item::Beside(object) => ObjectKey::new(text(object, "namespace"), text(object, "name")),
        }
    }

    pub(super) fn version(&self) -> &str {
        match self {
            Item::Object(object) => &object.meta.resource_version,
            Item::Beside(object) => text(object, "resourceVersion"),
        }
    }

    pub(super) fn uid(&self) -> &str {
        match self {
            Item::Object(object) => &object.meta.uid,
            Item::Beside(object) => text(object, "uid"),
        }
    }
}

/// A member of `metadata`; empty when it is absent.
pub(super) fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object["metadata"][member].as_str().unwrap_or_default()
}

/// Which items, at which version.
pub(super) type SnapshotKey = (u64, Resource, Option<String>);

/// What the front keeps beside the world.
pub(super) struct Local {
    beside: BTreeMap<(Resource, ObjectKey), Arc<Value>>,
    changes_beside: Ring<(Resource, Arc<Value>)>,
    /// Lists whose first page was given out, by version, oldest first.
    snapshots: BTreeMap<SnapshotKey, Arc<[Item]>>,
    pub(super) faults: VecDeque<Fault>,
    pub(super) hidden: BTreeSet<Resource>,
    pub(super) counts: BTreeMap<(Verb, Resource), u64>,
}

impl Local {
    pub(super) fn new(history: usize) -> Self {
        Self {
            beside: BTreeMap::new(),
            changes_beside: Ring::new(history, 0),
            snapshots: BTreeMap::new(),
            faults: VecDeque::new(),
            hidden: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    pub(super) fn keep(&mut self, key: SnapshotKey, items: Arc<[Item]>) {
        self.snapshots.insert(key, items);
        while self.snapshots.len() > SNAPSHOTS_MAX {
            self.snapshots.pop_first();
        }
    }

    pub(super) fn kept(&self, key: &SnapshotKey) -> Option<Arc<[Item]>> {
        self.snapshots.get(key).cloned()
    }
}

/// A cluster, locked. Never held across an await.
pub(super) struct Cluster<'a> {
    pub(super) world: MutexGuard<'a, World>,
    pub(super) local: MutexGuard<'a, Local>,
    name: &'a ClusterName,
}

impl<'a> Cluster<'a> {
    pub(super) fn lock(
        world: &'a Mutex<World>,
        local: &'a Mutex<Local>,
        name: &'a ClusterName,
    ) -> Self {
        let world = world.lock().unwrap_or_else(PoisonError::into_inner);
        let local = local.lock().unwrap_or_else(PoisonError::into_inner);
        Self { world, local, name }
    }

    pub(super) fn version(&self) -> u64 {
        self.world.version(self.name)
    }

    pub(super) fn get(&self, resource: Resource, key: &ObjectKey) -> Option<Item> {
        match resource.in_world() {
            Some(kind) => self.world.get(self.name, kind, key).cloned().map(Item::Object),
            None => self.local.beside.get(&(resource, key.clone())).cloned().map(Item::Beside),
        }
    }

    /// All items of a resource in the order of their keys in etcd.
    pub(super) fn all(&self, resource: Resource, namespace: Option<&str>) -> Vec<Item> {
        let mut all: Vec<Item> = match resource.in_world() {
            Some(kind) => self.world.objects(self.name, kind).cloned().map(Item::Object).collect(),
            None => {
                let beside = self.local.beside.iter().filter(|((r, _), _)| *r == resource);
                beside.map(|(_, object)| Item::Beside(object.clone())).collect()
            }
        };
        all.retain(|item| namespace.is_none_or(|ns| item.key().namespace == ns));
        all.sort_by_cached_key(|item| item.key().to_string());
        all
    }

    /// The changes of a resource after `version`.
    pub(super) fn changes(
        &self,
        resource: Resource,
        version: u64,
    ) -> Result<Vec<(Changed, Item)>, TooOld> {
        if let Some(kind) = resource.in_world() {
            let changes = self.world.changes_since(self.name, kind, version)?.into_iter();
            return Ok(changes.map(|c| (c.what, Item::Object(c.object))).collect());
        }
        let changes = self.local.changes_beside.since(version)?.into_iter();
        let of_it = changes.filter(|c| c.object.0 == resource);
        Ok(of_it.map(|c| (c.what, Item::Beside(c.object.1))).collect())
    }

    /// Whether objects may be created in a namespace. A cluster played back from a recording may
    /// well hold objects of namespaces that were not recorded.
    pub(super) fn has_namespace(&self, namespace: &str) -> bool {
        const THERE_FROM_THE_START: [&str; 4] =
            ["default", "kube-system", "kube-public", "kube-node-lease"];
        THERE_FROM_THE_START.contains(&namespace)
            || self.get(Resource::Namespaces, &ObjectKey::new("", namespace)).is_some()
            || Resource::ALL.into_iter().any(|r| !self.all(r, Some(namespace)).is_empty())
    }

    /// Creates or replaces an object of the world.
    pub(super) fn put(&mut self, object: Object, manager: &str) -> Option<Item> {
        self.world.put(self.name, object, manager, Tell::Applied).map(Item::Object)
    }

    /// Creates or replaces what the world does not have.
    pub(super) fn put_beside(
        &mut self,
        resource: Resource,
        key: ObjectKey,
        mut object: Value,
    ) -> Item {
        let version = self.world.next_version(self.name);
        let old = self.local.beside.get(&(resource, key.clone()));
        let what = if old.is_some() { Changed::Modified } else { Changed::Added };
        let meta = &mut object["metadata"];
        meta["namespace"] = key.namespace.clone().into();
        meta["name"] = key.name.clone().into();
        meta["resourceVersion"] = version.to_string().into();
        match old {
            Some(old) => {
                meta["uid"] = old["metadata"]["uid"].clone();
                meta["creationTimestamp"] = old["metadata"]["creationTimestamp"].clone();
            }
            None => {
                meta["uid"] = format!("00000000-0000-4000-8001-{version:012x}").into();
                meta["creationTimestamp"] = self.world.now().to_string().into();
            }
        }
        let object = Arc::new(object);
        self.local.beside.insert((resource, key), object.clone());
        let change = Change { version, what, object: (resource, object.clone()) };
        self.local.changes_beside.record(change);
        Item::Beside(object)
    }

    /// Deletes an object that is there.
    pub(super) fn remove(&mut self, resource: Resource, key: &ObjectKey) {
        if let Some(kind) = resource.in_world() {
            // The preconditions were looked at before, under the same lock.
            let _ = self.world.delete(self.name, kind, key, &Preconditions::default());
            return;
        }
        let Some(mut object) = self.local.beside.remove(&(resource, key.clone())) else { return };
        let version = self.world.next_version(self.name);
        Arc::make_mut(&mut object)["metadata"]["resourceVersion"] = version.to_string().into();
        let change = Change { version, what: Changed::Deleted, object: (resource, object) };
        self.local.changes_beside.record(change);
    }

    /// Forgets what changed up to now, and every list that was begun.
    pub(super) fn compact(&mut self) {
        self.world.forget_history(self.name);
        let version = self.version();
        self.local.changes_beside.forget(version);
        self.local.snapshots.clear();
    }
}
