//! Clusters in memory that behave as API servers do where it matters here: one resourceVersion a
//! cluster that only grows, merge patches that change nothing when nothing changes, preconditions,
//! the annotation limit, watch events in order. With the carrier, hub → edge, which takes
//! annotations along and never status.
//!
//! What happens comes out as [`Event`]s, the same that watches of real clusters give.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Key, Kind, Map, Names, ObjectKey, Role};
use crate::core::objects::{FIELD_MANAGER, ManagedFields, Object, StringMap};
use crate::core::time::UnixMillis;
use crate::event_log::ClusterSpec;

mod carrier;
mod history;

use carrier::Load;
pub(crate) use history::Ring;
pub use history::{Change, Changed, TooOld};

/// The API server's limit for all annotations of one object, keys and values together.
pub const ANNOTATION_LIMIT_BYTES: usize = 256 * 1024;

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// 404.
    #[error("404: the object does not exist")]
    NotFound,
    /// 409: a precondition does not hold.
    #[error("409: {0}")]
    Conflict(String),
    /// 422: the object would not be valid.
    #[error("422: {0}")]
    Invalid(String),
    /// The cluster can't be reached.
    #[error("the cluster can't be reached")]
    Unreachable,
}

/// What must hold of an object for a request to be carried out.
#[derive(Clone, Debug, Default)]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub resource_version: Option<String>,
}

/// One cluster.
#[derive(Default)]
struct Store {
    roles: Vec<Role>,
    version: u64,
    objects: [Map<Key, Arc<Object>>; 5],
    /// Watches that are broken: their events are not seen.
    blind: BTreeSet<Kind>,
    reachable: bool,
    history: Option<Box<history::History>>,
}

/// Several clusters and the carrier between them.
pub struct World {
    now: UnixMillis,
    clusters: BTreeMap<ClusterName, Store>,
    names: Names,
    loads: BTreeMap<(ClusterName, Key), Load>,
    /// The loads that are not stuck, by when they are due.
    queue: BTreeSet<(UnixMillis, ClusterName, Key)>,
    carrier_delay_ms: u64,
    /// Whether writers and times go into `managedFields`.
    managed_fields: bool,
    events: VecDeque<Event>,
    /// No events: the changes go into histories.
    silent: bool,
    uids: u64,
}

impl World {
    /// Empty clusters. `carrier_delay_ms`: from a hub's change to the edge's.
    pub fn new(clusters: &[ClusterSpec], carrier_delay_ms: u64) -> Self {
        let store =
            |c: &ClusterSpec| Store { roles: c.roles.clone(), reachable: true, ..Store::default() };
        Self {
            now: UnixMillis(0),
            clusters: clusters.iter().map(|c| (c.name.clone(), store(c))).collect(),
            names: Names::default(),
            loads: BTreeMap::new(),
            queue: BTreeSet::new(),
            carrier_delay_ms,
            managed_fields: false,
            events: VecDeque::new(),
            silent: false,
            uids: 0,
        }
    }

    /// Keeps `managedFields` from now on, as API servers do (recordings leave them out).
    pub fn keep_managed_fields(&mut self) {
        self.managed_fields = true;
    }

    /// The moment it is in the world.
    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// The next event that a watch would show, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// An object as it is now.
    pub fn get(&self, cluster: &ClusterName, kind: Kind, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.at(cluster, kind, self.names.find(&key.namespace, &key.name)?)
    }

    /// The same, by its interned name.
    pub(crate) fn at(&self, cluster: &ClusterName, kind: Kind, key: Key) -> Option<&Arc<Object>> {
        self.clusters.get(cluster)?.objects[kind.index()].get(&key)
    }

    /// An object's interned name.
    pub(crate) fn key_of(&mut self, object: &Object) -> Key {
        self.names.key(&object.meta.namespace, &object.meta.name)
    }

    /// All objects of a kind in a cluster, by namespace and name.
    pub fn objects(&self, cluster: &ClusterName, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        let store = self.clusters.get(cluster);
        let mut all: Vec<_> =
            store.into_iter().flat_map(|s| s.objects[kind.index()].values()).collect();
        all.sort_unstable_by_key(|o| (&o.meta.namespace, &o.meta.name));
        all.into_iter()
    }

    /// The clusters that hold a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = &ClusterName> {
        self.clusters.iter().filter(move |(_, s)| s.roles.contains(&role)).map(|(name, _)| name)
    }

    /// Cuts a cluster off, or brings it back: requests fail, the carrier waits. Watches are the
    /// caller's to break ([`World::lose_watch`]) and to list again.
    pub fn set_reachable(&mut self, cluster: &ClusterName, reachable: bool) {
        if let Some(store) = self.clusters.get_mut(cluster) {
            store.reachable = reachable;
        }
    }

    /// A watch breaks; its events are not seen until it is listed again.
    pub fn lose_watch(&mut self, cluster: &ClusterName, kind: Kind, error: &str) {
        if let Some(store) = self.clusters.get_mut(cluster) {
            store.blind.insert(kind);
            let error = error.to_owned();
            self.emit(Happened::WatchLost { cluster: cluster.clone(), kind, error });
        }
    }

    /// A full list of a kind, and the watch from there on.
    pub fn list(&mut self, cluster: &ClusterName, kind: Kind) {
        let Some(store) = self.clusters.get_mut(cluster) else { return };
        store.blind.remove(&kind);
        let objects: Vec<_> = self.objects(cluster, kind).cloned().collect();
        self.emit(Happened::ListStarted { cluster: cluster.clone(), kind });
        for object in objects {
            self.emit(Happened::Listed { cluster: cluster.clone(), object });
        }
        self.emit(Happened::ListFinished { cluster: cluster.clone(), kind });
    }

    fn emit(&mut self, what: Happened) {
        if !self.silent {
            self.events.push_back(Event { at: self.now, what });
        }
    }

    /// Creates or replaces an object, by whoever `manager` is; the world gives it a
    /// resourceVersion, and a uid if it has none. Tells the watches by `tell`.
    pub fn put(
        &mut self,
        cluster: &ClusterName,
        object: Object,
        manager: &str,
        tell: Tell,
    ) -> Option<Arc<Object>> {
        let mut object = object;
        let kind = object.kind();
        let key = self.key_of(&object);
        let store = self.clusters.get_mut(cluster)?;
        let is_hub = store.roles.contains(&Role::Downstream) && kind == Kind::Connector;
        store.version += 1;
        object.meta.resource_version = store.version.to_string().into();
        let old = store.objects[kind.index()].get(&key);
        if object.meta.uid.is_empty() {
            self.uids += 1;
            object.meta.uid = match old {
                Some(old) => old.meta.uid.clone(),
                None => format!("00000000-0000-4000-8000-{:012x}", self.uids).into(),
            };
        }
        if self.managed_fields {
            if let Some(old) = old {
                object.meta.managed_fields.clone_from(&old.meta.managed_fields);
            }
            sign(&mut object, manager, self.now);
        }
        let changed: BTreeSet<Box<str>> = if is_hub && tell != Tell::Listed {
            let none = StringMap::default();
            let before = old.map_or(&none, |o| &o.meta.annotations);
            let after = &object.meta.annotations;
            let differs = |(k, _): &(&str, &str)| before.get(k) != after.get(k);
            before
                .iter()
                .filter(differs)
                .chain(after.iter().filter(differs))
                .map(|(k, _)| k.into())
                .collect()
        } else {
            BTreeSet::new()
        };
        let object = Arc::new(object);
        let what = match store.objects[kind.index()].insert(key, object.clone()) {
            Some(_) => Changed::Modified,
            None => Changed::Added,
        };
        store.record(what, &object);
        let blind = store.blind.contains(&kind);
        match tell {
            Tell::Applied if !blind => {
                self.emit(Happened::Applied { cluster: cluster.clone(), object: object.clone() });
            }
            Tell::Listed => {
                self.emit(Happened::Listed { cluster: cluster.clone(), object: object.clone() })
            }
            Tell::Applied | Tell::Nothing => {}
        }
        if !changed.is_empty() {
            self.load(cluster, key, &changed);
        }
        Some(object)
    }

    /// A merge patch of annotations; `None` removes the key. Gives the object's resourceVersion
    /// and whether anything changed.
    ///
    /// # Errors
    /// As an API server: the cluster is cut off, the object is missing, a precondition does not
    /// hold, or the annotations would be too large.
    pub fn patch(
        &mut self,
        cluster: &ClusterName,
        kind: Kind,
        key: &ObjectKey,
        annotations: &[(String, Option<String>)],
        preconditions: &Preconditions,
        manager: &str,
    ) -> Result<(String, bool), ApiError> {
        let old = self.precondition(cluster, kind, key, preconditions)?;
        let changes = annotations.iter().any(|(k, v)| old.meta.annotations.get(k) != v.as_deref());
        if !changes {
            return Ok((old.meta.resource_version.to_string(), false));
        }
        let mut new = Object::clone(&old);
        for (k, v) in annotations {
            new.meta.annotations.set(k, v.as_deref());
        }
        if new.meta.annotations.bytes() > ANNOTATION_LIMIT_BYTES {
            return Err(ApiError::Invalid(format!(
                "metadata.annotations: too long: may not be more than {ANNOTATION_LIMIT_BYTES} bytes"
            )));
        }
        let new = self.put(cluster, new, manager, Tell::Applied).ok_or(ApiError::Unreachable)?;
        Ok((new.meta.resource_version.to_string(), true))
    }

    fn precondition(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        key: &ObjectKey,
        preconditions: &Preconditions,
    ) -> Result<Arc<Object>, ApiError> {
        let store =
            self.clusters.get(cluster).filter(|s| s.reachable).ok_or(ApiError::Unreachable)?;
        let key = self.names.find(&key.namespace, &key.name).ok_or(ApiError::NotFound)?;
        let object = store.objects[kind.index()].get(&key).ok_or(ApiError::NotFound)?;
        let meta = &object.meta;
        for (what, want, is) in [
            ("uid", &preconditions.uid, &meta.uid),
            ("resourceVersion", &preconditions.resource_version, &meta.resource_version),
        ] {
            if want.as_ref().is_some_and(|want| **want != **is) {
                return Err(ApiError::Conflict(format!("{what} is {is}, not the one given")));
            }
        }
        Ok(object.clone())
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// As [`World::patch`].
    pub fn delete(
        &mut self,
        cluster: &ClusterName,
        kind: Kind,
        key: &ObjectKey,
        preconditions: &Preconditions,
    ) -> Result<(), ApiError> {
        self.precondition(cluster, kind, key, preconditions)?;
        self.remove(cluster, kind, key);
        Ok(())
    }

    /// Takes an object away, whoever did it.
    pub fn remove(&mut self, cluster: &ClusterName, kind: Kind, key: &ObjectKey) {
        let Some(key) = self.names.find(&key.namespace, &key.name) else { return };
        let Some(store) = self.clusters.get_mut(cluster) else { return };
        let Some(mut object) = store.objects[kind.index()].remove(&key) else { return };
        store.version += 1;
        Arc::make_mut(&mut object).meta.resource_version = store.version.to_string().into();
        store.record(Changed::Deleted, &object);
        if !store.blind.contains(&kind) {
            self.emit(Happened::Deleted { cluster: cluster.clone(), object });
        }
        if let Some(load) = self.loads.remove(&(cluster.clone(), key)) {
            self.queue.remove(&(load.due_at, cluster.clone(), key));
        }
    }
}

/// How the watches hear of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// As a change, where the watch is not broken.
    Applied,
    /// As part of a list that runs.
    Listed,
    /// Not at all.
    Nothing,
}

/// Puts a writer and its time, in whole seconds, into `managedFields`.
fn sign(object: &mut Object, manager: &str, now: UnixMillis) {
    let time = Some(UnixMillis(now.0 / 1000 * 1000));
    let fields = &mut object.meta.managed_fields;
    match fields.iter_mut().find(|f| f.manager == manager) {
        Some(entry) => entry.time = time,
        None => fields.push(ManagedFields { manager: manager.to_owned(), time }),
    }
}

/// The manager of throughline's own writes in the world.
pub const OURS: &str = FIELD_MANAGER;
