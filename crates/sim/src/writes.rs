//! Writes to a simulated cluster: versions, preconditions, managed fields, and what the watches
//! show.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ANNOTATION_LIMIT_BYTES, ChangeKind, SimClusters, WatchNotice};
use throughline_core::contract::action::{
    AbsentObjects, Action, AnnotationBefore, Precondition, Verb,
};
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use throughline_core::data::objects::{FIELD_MANAGER, ManagedFields, Object, StringMap};
use throughline_core::data::time::UnixMillis;

impl SimClusters {
    /// Creates or replaces an object as `manager`. The object gets a resourceVersion and, if it has
    /// none, a uid.
    pub fn put(
        &mut self,
        name: &ClusterName,
        object: Object,
        manager: &str,
        notice: WatchNotice,
    ) -> Option<Arc<Object>> {
        let mut object = object;
        let kind = object.kind();
        let key = object.meta.key();
        let is_hub_connector = kind == Kind::Connector && self.has_role(name, Role::Hub);
        let cluster = self.clusters.get_mut(name)?;
        object.meta.resource_version = cluster.next_version().to_string().into();
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
        let previous = cluster.objects[kind].insert(key.clone(), object.clone());
        let change = match &previous {
            Some(_) => ChangeKind::Modified,
            None => ChangeKind::Added,
        };
        cluster.record(change, &object, previous);
        let is_watched = !cluster.lost_watches.contains(&kind);
        let cluster = name.clone();
        let seen = object.clone();
        match notice {
            WatchNotice::Applied if is_watched => {
                self.emit(EventKind::Applied { cluster, object: seen });
            }
            WatchNotice::Applied => {}
            WatchNotice::Listed => self.emit(EventKind::Listed { cluster, object: seen }),
        }
        if !changed.is_empty() {
            self.schedule_carry(name, &key, &changed);
        }
        Some(object)
    }

    /// Applies an action as the executor and an API server would.
    pub fn carry_out(&mut self, action: &Action) -> Outcome {
        let Action { cluster, kind, object, annotations, precondition, .. } = action;
        let absent = precondition.absent.as_ref();
        if let Some(error) = absent.and_then(|absent| self.absence_conflict(absent)) {
            return Outcome::Conflict { error: error.into() };
        }
        let found = match self.writable(cluster, *kind, object) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        if let Some(error) = conflict(precondition, &found) {
            return Outcome::Conflict { error: error.into() };
        }

        if action.verb == Verb::Delete {
            self.remove(cluster, *kind, object);
            return Outcome::Applied { resource_version: None };
        }
        self.patch(cluster, *kind, object, annotations, FIELD_MANAGER)
    }

    /// Checks that objects are absent as a write requires. Returns the reason if they are not.
    fn absence_conflict(&self, absent: &AbsentObjects) -> Option<String> {
        let AbsentObjects { cluster, namespace, namespace_uid, kind, names, .. } = absent;
        let found = self.get(cluster, Kind::Namespace, &NamespacedName::new("", namespace));
        let is_same = found.is_some_and(|found| Some(&*found.meta.uid) == namespace_uid.as_deref());
        if namespace_uid.is_some() && is_same == absent.namespace_deleted {
            let state = if is_same { "still exists" } else { "was deleted or recreated" };
            return Some(format!("namespace {namespace} {state} in {cluster}"));
        }
        let exists = |name: &&String| {
            self.get(cluster, *kind, &NamespacedName::new(namespace, *name)).is_some()
        };
        let name = names.iter().find(exists).filter(|_| !absent.namespace_deleted)?;
        Some(format!("{kind} {name} still exists in {cluster}"))
    }

    /// A merge patch of annotations, without preconditions; `None` removes a key.
    pub fn patch(
        &mut self,
        cluster: &ClusterName,
        kind: Kind,
        key: &NamespacedName,
        annotations: &[(String, Option<String>)],
        manager: &str,
    ) -> Outcome {
        let old = match self.writable(cluster, kind, key) {
            Ok(old) => old,
            Err(outcome) => return outcome,
        };
        if annotations.iter().all(|(k, v)| old.meta.annotations.get(k) == v.as_deref()) {
            return Outcome::Unchanged;
        }
        let mut new = Object::clone(&old);
        for (k, v) in annotations {
            new.meta.annotations.set(k, v.as_deref());
        }
        if new.meta.annotations.bytes() > ANNOTATION_LIMIT_BYTES {
            let error = format!(
                "metadata.annotations: too long: may not be more than {ANNOTATION_LIMIT_BYTES} bytes"
            );
            return Outcome::Refused { error: error.into() };
        }
        let new = self.put(cluster, new, manager, WatchNotice::Applied);
        Outcome::Applied { resource_version: new.map(|new| new.meta.resource_version.to_string()) }
    }

    /// The object. An error is the outcome of a write to it.
    fn writable(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        key: &NamespacedName,
    ) -> Result<Arc<Object>, Outcome> {
        let Some(cluster) = self.clusters.get(cluster).filter(|cluster| cluster.reachable) else {
            let error = "the cluster is unreachable".into();
            return Err(Outcome::Failed { error, retry_after_ms: None });
        };
        cluster.objects[kind].get(key).cloned().ok_or(Outcome::NotFound)
    }

    /// Removes an object unconditionally.
    pub fn remove(&mut self, name: &ClusterName, kind: Kind, key: &NamespacedName) {
        self.remove_object(name, kind, key, true);
    }

    /// Removes an object that a list lacked: no watch shows its deletion.
    pub fn remove_unlisted(&mut self, name: &ClusterName, kind: Kind, key: &NamespacedName) {
        self.remove_object(name, kind, key, false);
    }

    fn remove_object(
        &mut self,
        name: &ClusterName,
        kind: Kind,
        key: &NamespacedName,
        is_shown: bool,
    ) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let Some(mut object) = cluster.objects[kind].remove(key) else { return };
        let previous = object.clone();
        let version = cluster.next_version();
        Arc::make_mut(&mut object).meta.resource_version = version.to_string().into();
        cluster.record(ChangeKind::Deleted, &object, Some(previous));
        if is_shown && !cluster.lost_watches.contains(&kind) {
            self.emit(EventKind::Deleted { cluster: name.clone(), object });
        }
        if let Some(carry) = self.pending_carries.remove(&(name.clone(), key.clone())) {
            self.carry_queue.remove(&(carry.due_at, name.clone(), key.clone()));
        }
    }
}

/// Why the object is not the one that a write requires.
fn conflict(required: &Precondition, object: &Object) -> Option<String> {
    let meta = &object.meta;
    for (field, expected, actual) in [
        ("uid", &required.uid, &meta.uid),
        ("resourceVersion", &required.resource_version, &meta.resource_version),
    ] {
        if expected.as_ref().is_some_and(|expected| **expected != **actual) {
            return Some(format!("{field} is {actual}, not the one given"));
        }
    }
    let AnnotationBefore { key, value, .. } = required.annotation.as_deref()?;
    (meta.annotations.get(key) != value.as_deref()).then(|| format!("{key} has another value"))
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
        None => fields.push(ManagedFields { manager: manager.to_owned(), time, fields: None }),
    }
}
