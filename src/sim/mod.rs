//! Clusters in memory that behave like API servers where it matters here: one increasing
//! resourceVersion per cluster, merge patches that change nothing if nothing differs,
//! preconditions, the annotation limit, watch events in order. A simulated carrier copies
//! annotations from the hub to the edges.
//!
//! Changes come out as [`Event`]s, the same that watches of real clusters produce. The demo,
//! what-if replays and the property tests use it.

pub mod apiserver;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::core::contract::action::{AbsentObjects, AnnotationBefore, Precondition};
use crate::core::contract::event::{Event, EventKind};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::data::interner::{Key, Names};
use crate::core::data::map::Map;
use crate::core::data::objects::{ManagedFields, Object, StringMap};
use crate::core::data::per_kind::PerKind;
use crate::core::data::time::UnixMillis;
use crate::event_log::ClusterSpec;

mod carrier;
mod changes;

use carrier::PendingCarry;
pub(crate) use changes::ChangeHistory;
pub use changes::{Change, ChangeKind, TooOld};

/// The API server's limit for all annotations of one object, keys and values together.
pub const ANNOTATION_LIMIT_BYTES: usize = 256 * 1024;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    #[error("404: the object does not exist")]
    NotFound,
    /// A precondition does not hold.
    #[error("409: {0}")]
    Conflict(String),
    /// The object would not be valid.
    #[error("422: {0}")]
    Invalid(String),
    #[error("the cluster is unreachable")]
    Unreachable,
}

/// What must match for a request to be executed.
#[derive(Clone, Debug, Default)]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub annotation: Option<Box<AnnotationBefore>>,
}

impl From<&Precondition> for Preconditions {
    fn from(precondition: &Precondition) -> Self {
        let Precondition { uid, resource_version, annotation, .. } = precondition.clone();
        Self { uid, resource_version, annotation }
    }
}

#[derive(Default)]
struct SimCluster {
    roles: Vec<Role>,
    version: VersionCounter,
    objects: PerKind<Map<Key, Arc<Object>>>,
    /// Kinds whose watch is lost: their changes produce no events.
    lost_watches: BTreeSet<Kind>,
    reachable: bool,
    history: Option<Box<changes::ClusterHistory>>,
}

/// The resourceVersion of a cluster, or of several that share one etcd.
#[derive(Clone, Default)]
struct VersionCounter(Arc<AtomicU64>);

impl VersionCounter {
    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn next(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
}

/// Several clusters and the carrier between them.
pub struct SimClusters {
    now: UnixMillis,
    clusters: BTreeMap<ClusterName, SimCluster>,
    /// The clusters of each role: a search among thousands of projects for each write takes longer
    /// than the write.
    by_role: BTreeMap<Role, BTreeSet<ClusterName>>,
    names: Names,
    pending_carries: BTreeMap<(ClusterName, Key), PendingCarry>,
    /// The pending carries that are not stuck, by the time they are due.
    carry_queue: BTreeSet<(UnixMillis, ClusterName, Key)>,
    carrier_delay_ms: u64,
    /// Whether writes update `managedFields`.
    has_managed_fields: bool,
    events: VecDeque<Event>,
    /// The length of histories; `None` if changes are events instead.
    history_changes: Option<usize>,
    /// Number of uids given out.
    uids: u64,
}

impl SimClusters {
    /// Empty clusters. `carrier_delay_ms` is the time from a change at the hub to the edges.
    pub fn new(clusters: &[ClusterSpec], carrier_delay_ms: u64) -> Self {
        let mut sim = Self {
            now: UnixMillis(0),
            clusters: BTreeMap::new(),
            by_role: BTreeMap::new(),
            names: Names::default(),
            pending_carries: BTreeMap::new(),
            carry_queue: BTreeSet::new(),
            carrier_delay_ms,
            has_managed_fields: false,
            events: VecDeque::new(),
            history_changes: None,
            uids: 0,
        };
        clusters.iter().for_each(|cluster| sim.add_cluster(cluster, None));
        sim
    }

    /// Adds an empty cluster; one of that name is replaced. With `shares_etcd`, its resourceVersion is
    /// that of the other cluster, as of all projects of one Milo.
    pub fn add_cluster(&mut self, spec: &ClusterSpec, shares_etcd: Option<&ClusterName>) {
        let shared = shares_etcd.and_then(|other| self.clusters.get(other));
        let version = shared.map(|other| other.version.clone()).unwrap_or_default();
        self.remove_cluster(&spec.name);
        for role in &spec.roles {
            self.by_role.entry(*role).or_default().insert(spec.name.clone());
        }
        let mut cluster = SimCluster {
            roles: spec.roles.clone(),
            reachable: true,
            version,
            ..SimCluster::default()
        };
        if let Some(changes) = self.history_changes {
            cluster.keep_history(changes);
        }
        self.clusters.insert(spec.name.clone(), cluster);
    }

    /// Removes a cluster with its objects. No watch shows it.
    pub fn remove_cluster(&mut self, name: &ClusterName) {
        self.clusters.remove(name);
        for names in self.by_role.values_mut() {
            names.remove(name);
        }
        self.pending_carries.retain(|(cluster, _), _| cluster != name);
        self.carry_queue.retain(|(_, cluster, _)| cluster != name);
    }

    /// Maintains `managedFields` from now on, as API servers do (recordings omit them).
    pub fn keep_managed_fields(&mut self) {
        self.has_managed_fields = true;
    }

    /// The simulated time.
    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// The next event that a watch would deliver.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The current state of an object.
    pub fn get(&self, cluster: &ClusterName, kind: Kind, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.at(cluster, kind, self.names.find(&key.namespace, &key.name)?)
    }

    /// Like [`SimClusters::get`], by the interned name.
    pub(crate) fn at(&self, cluster: &ClusterName, kind: Kind, key: Key) -> Option<&Arc<Object>> {
        self.clusters.get(cluster)?.objects[kind].get(&key)
    }

    /// An object's interned name.
    pub(crate) fn key_of(&mut self, object: &Object) -> Key {
        self.names.key(&object.meta.namespace, &object.meta.name)
    }

    /// All objects of a kind in a cluster, by namespace and name.
    pub fn objects(&self, cluster: &ClusterName, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        let cluster = self.clusters.get(cluster);
        let mut all: Vec<_> = cluster.into_iter().flat_map(|c| c.objects[kind].values()).collect();
        all.sort_unstable_by_key(|o| (&o.meta.namespace, &o.meta.name));
        all.into_iter()
    }

    /// The clusters that have a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = &ClusterName> {
        self.by_role.get(&role).into_iter().flatten()
    }

    /// Makes a cluster unreachable, or reachable again: requests fail and the carrier waits. It does
    /// not affect watches; see [`SimClusters::lose_watch`] and [`SimClusters::list`].
    pub fn set_reachable(&mut self, cluster: &ClusterName, reachable: bool) {
        if let Some(cluster) = self.clusters.get_mut(cluster) {
            cluster.reachable = reachable;
        }
    }

    /// Loses a watch; its changes produce no events until the kind is listed again.
    pub fn lose_watch(&mut self, name: &ClusterName, kind: Kind, error: &str) {
        if let Some(cluster) = self.clusters.get_mut(name) {
            cluster.lost_watches.insert(kind);
            let error = error.into();
            self.emit(EventKind::WatchLost { cluster: name.clone(), kind, error });
        }
    }

    /// Lists a kind in full and watches it from there.
    pub fn list(&mut self, name: &ClusterName, kind: Kind) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        cluster.lost_watches.remove(&kind);
        let objects: Vec<_> = self.objects(name, kind).cloned().collect();
        self.emit(EventKind::ListStarted { cluster: name.clone(), kind });
        for object in objects {
            self.emit(EventKind::Listed { cluster: name.clone(), object });
        }
        self.emit(EventKind::ListFinished { cluster: name.clone(), kind });
    }

    fn emit(&mut self, kind: EventKind) {
        if self.history_changes.is_none() {
            self.events.push_back(Event { at: self.now, kind });
        }
    }

    /// Creates or replaces an object in the name of `manager`. The object gets a resourceVersion
    /// and, if it has none, a uid.
    pub fn put(
        &mut self,
        name: &ClusterName,
        object: Object,
        manager: &str,
        notice: WatchNotice,
    ) -> Option<Arc<Object>> {
        let mut object = object;
        let kind = object.kind();
        let key = self.key_of(&object);
        let cluster = self.clusters.get_mut(name)?;
        let is_hub_connector = cluster.roles.contains(&Role::Hub) && kind == Kind::Connector;
        object.meta.resource_version = cluster.version.next().to_string().into();
        let old = cluster.objects[kind].get(&key);
        if object.meta.uid.is_empty() {
            self.uids += 1;
            object.meta.uid = match old {
                Some(old) => old.meta.uid.clone(),
                None => format!("00000000-0000-4000-8000-{:012x}", self.uids).into(),
            };
        }
        if self.has_managed_fields {
            if let Some(old) = old {
                object.meta.managed_fields.clone_from(&old.meta.managed_fields);
            }
            update_managed_fields(&mut object, manager, self.now);
        }
        let is_carried = is_hub_connector && notice != WatchNotice::Listed;
        let changed = match is_carried {
            true => changed_annotations(old.map(|o| &**o), &object),
            false => BTreeSet::new(),
        };
        let object = Arc::new(object);
        let previous = cluster.objects[kind].insert(key, object.clone());
        let change = match &previous {
            Some(_) => ChangeKind::Modified,
            None => ChangeKind::Added,
        };
        cluster.record(change, &object, previous);
        let is_watched = !cluster.lost_watches.contains(&kind);
        let (cluster, seen) = (name.clone(), object.clone());
        match notice {
            WatchNotice::Applied if is_watched => {
                self.emit(EventKind::Applied { cluster, object: seen });
            }
            WatchNotice::Applied => {}
            WatchNotice::Listed => self.emit(EventKind::Listed { cluster, object: seen }),
        }
        if !changed.is_empty() {
            self.schedule_carry(name, key, &changed);
        }
        Some(object)
    }

    /// Why objects that a write requires to be absent do not count as absent, if they don't.
    pub(crate) fn absence_conflict(&self, absent: &AbsentObjects) -> Option<String> {
        let AbsentObjects { cluster, namespace, namespace_uid, kind, names, .. } = absent;
        let found = self.get(cluster, Kind::Namespace, &ObjectKey::new("", namespace));
        let is_same = found.is_some_and(|found| Some(&*found.meta.uid) == namespace_uid.as_deref());
        if namespace_uid.is_some() && is_same == absent.namespace_deleted {
            let state = if is_same { "still exists" } else { "was deleted or recreated" };
            return Some(format!("namespace {namespace} {state} in {cluster}"));
        }
        let exists =
            |name: &&String| self.get(cluster, *kind, &ObjectKey::new(namespace, *name)).is_some();
        let name = names.iter().find(exists).filter(|_| !absent.namespace_deleted)?;
        Some(format!("{kind} {name} still exists in {cluster}"))
    }

    /// A merge patch of annotations; `None` removes a key. Returns the object's resourceVersion and
    /// whether anything changed.
    ///
    /// # Errors
    /// Those of an API server: the cluster is unreachable, the object is missing, a precondition
    /// does not hold, or the annotations would be too large.
    pub fn patch(
        &mut self,
        cluster: &ClusterName,
        kind: Kind,
        key: &ObjectKey,
        annotations: &[(String, Option<String>)],
        preconditions: &Preconditions,
        manager: &str,
    ) -> Result<(String, bool), ApiError> {
        let old = self.get_if(cluster, kind, key, preconditions)?;
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
        let new =
            self.put(cluster, new, manager, WatchNotice::Applied).ok_or(ApiError::Unreachable)?;
        Ok((new.meta.resource_version.to_string(), true))
    }

    /// The object, if the preconditions hold.
    fn get_if(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        key: &ObjectKey,
        preconditions: &Preconditions,
    ) -> Result<Arc<Object>, ApiError> {
        let cluster =
            self.clusters.get(cluster).filter(|c| c.reachable).ok_or(ApiError::Unreachable)?;
        let key = self.names.find(&key.namespace, &key.name).ok_or(ApiError::NotFound)?;
        let object = cluster.objects[kind].get(&key).ok_or(ApiError::NotFound)?;
        let meta = &object.meta;
        for (field, expected, actual) in [
            ("uid", &preconditions.uid, &meta.uid),
            ("resourceVersion", &preconditions.resource_version, &meta.resource_version),
        ] {
            if expected.as_ref().is_some_and(|expected| **expected != **actual) {
                return Err(ApiError::Conflict(format!("{field} is {actual}, not the one given")));
            }
        }
        if let Some(AnnotationBefore { key, value }) = preconditions.annotation.as_deref()
            && meta.annotations.get(key) != value.as_deref()
        {
            return Err(ApiError::Conflict(format!("{key} has another value")));
        }
        Ok(object.clone())
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// As [`SimClusters::patch`].
    pub fn delete(
        &mut self,
        cluster: &ClusterName,
        kind: Kind,
        key: &ObjectKey,
        preconditions: &Preconditions,
    ) -> Result<(), ApiError> {
        self.get_if(cluster, kind, key, preconditions)?;
        self.remove(cluster, kind, key);
        Ok(())
    }

    /// Removes an object unconditionally.
    pub fn remove(&mut self, name: &ClusterName, kind: Kind, key: &ObjectKey) {
        self.remove_object(name, kind, key, true);
    }

    /// Removes an object that a list did not bring again: no watch shows that it was deleted.
    pub(crate) fn remove_unlisted(&mut self, name: &ClusterName, kind: Kind, key: &ObjectKey) {
        self.remove_object(name, kind, key, false);
    }

    fn remove_object(&mut self, name: &ClusterName, kind: Kind, key: &ObjectKey, is_shown: bool) {
        let Some(key) = self.names.find(&key.namespace, &key.name) else { return };
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let Some(mut object) = cluster.objects[kind].remove(&key) else { return };
        let previous = object.clone();
        let version = cluster.version.next();
        Arc::make_mut(&mut object).meta.resource_version = version.to_string().into();
        cluster.record(ChangeKind::Deleted, &object, Some(previous));
        if is_shown && !cluster.lost_watches.contains(&kind) {
            self.emit(EventKind::Deleted { cluster: name.clone(), object });
        }
        if let Some(carry) = self.pending_carries.remove(&(name.clone(), key)) {
            self.carry_queue.remove(&(carry.due_at(), name.clone(), key));
        }
    }
}

/// How watches report a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchNotice {
    /// As a change, unless the watch is lost.
    Applied,
    /// As part of a running list; the carrier ignores it.
    Listed,
}

fn changed_annotations(old: Option<&Object>, new: &Object) -> BTreeSet<Box<str>> {
    let none = StringMap::default();
    let before = old.map_or(&none, |o| &o.meta.annotations);
    let after = &new.meta.annotations;
    let differs = |(k, _): &(&str, &str)| before.get(k) != after.get(k);
    let changed = before.iter().filter(differs).chain(after.iter().filter(differs));
    changed.map(|(k, _)| k.into()).collect()
}

/// API servers keep the time of a manager's last write in whole seconds.
fn update_managed_fields(object: &mut Object, manager: &str, now: UnixMillis) {
    let time = Some(UnixMillis(now.0 / 1000 * 1000));
    let fields = &mut object.meta.managed_fields;
    match fields.iter_mut().find(|f| f.manager == manager) {
        Some(entry) => entry.time = time,
        None => fields.push(ManagedFields { manager: manager.to_owned(), time }),
    }
}
