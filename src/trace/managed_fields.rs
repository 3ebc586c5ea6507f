//! What a trace shows and the machine does not keep: each object's last writer by `managedFields`,
//! the liveness in its annotation, and the errors of lost watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::core::contract::error_cause::RequestFailure;
use crate::core::contract::event::EventKind;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::objects::{FIELD_MANAGER, Object, UPSTREAM_STATUS};
use crate::core::data::time::UnixMillis;
use crate::core::view::LivenessView;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastWriter {
    /// The field manager.
    pub manager: String,
    /// When it wrote, by the API server's clock, in whole seconds.
    pub at_ms: UnixMillis,
    /// It owns the field that the hop shows. If not, it wrote the object last, perhaps another field.
    pub of_field: bool,
}

impl LastWriter {
    pub fn is_throughline(&self) -> bool {
        self.manager == FIELD_MANAGER
    }
}

#[derive(Clone, Debug, Default)]
struct ObjectRecord {
    writer: Option<LastWriter>,
    /// The liveness in the status annotation.
    annotation: Option<LivenessView>,
    nudged: bool,
}

/// Connectors and Gateways as they were last observed.
#[derive(Clone, Debug, Default)]
pub struct ManagedFieldsIndex {
    objects: BTreeMap<(ClusterName, Kind, ObjectKey), ObjectRecord>,
    watch_errors: BTreeMap<(ClusterName, Kind), RequestFailure>,
    nudge_key: String,
}

impl ManagedFieldsIndex {
    /// `nudge_key` is the annotation that nudges the carrier.
    pub fn new(nudge_key: &str) -> Self {
        Self { nudge_key: nudge_key.to_owned(), ..Self::default() }
    }

    pub fn observe(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object } => {
                let kind = object.kind();
                if matches!(kind, Kind::Connector | Kind::Gateway) {
                    let nudged = object.meta.annotations.get(&self.nudge_key).is_some();
                    let (writer, annotation) = (last_writer(object), annotated_liveness(object));
                    let record = ObjectRecord { writer, annotation, nudged };
                    self.objects.insert((cluster.clone(), kind, object.meta.key()), record);
                }
            }
            EventKind::Deleted { cluster, object } => {
                self.objects.remove(&(cluster.clone(), object.kind(), object.meta.key()));
            }
            EventKind::WatchLost { cluster, kind, error } => {
                self.watch_errors.insert((cluster.clone(), *kind), error.clone());
            }
            EventKind::ListFinished { cluster, kind }
            | EventKind::WatchResumed { cluster, kind } => {
                self.watch_errors.remove(&(cluster.clone(), *kind));
            }
            _ => {}
        }
    }

    /// Replaces the last writer of an object by the owner of the field that a hop shows.
    pub fn set_writer(
        &mut self,
        cluster: &ClusterName,
        kind: Kind,
        object: &ObjectKey,
        writer: LastWriter,
    ) {
        let key = (cluster.clone(), kind, object.clone());
        self.objects.entry(key).or_default().writer = Some(writer);
    }

    /// The errors of watches that are lost.
    pub fn watch_errors(&self) -> Vec<(ClusterName, Kind, RequestFailure)> {
        let error = |((cluster, kind), error): (&(ClusterName, Kind), &RequestFailure)| {
            (cluster.clone(), *kind, error.clone())
        };
        self.watch_errors.iter().map(error).collect()
    }

    pub(super) fn writer(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        object: &ObjectKey,
    ) -> Option<&LastWriter> {
        self.objects.get(&(cluster.clone(), kind, object.clone()))?.writer.as_ref()
    }

    pub(super) fn is_nudged(&self, cluster: &ClusterName, object: &ObjectKey) -> bool {
        let key = (cluster.clone(), Kind::Connector, object.clone());
        self.objects.get(&key).is_some_and(|record| record.nudged)
    }

    /// The liveness in a Connector's status annotation.
    pub(super) fn annotation(
        &self,
        cluster: &ClusterName,
        object: &ObjectKey,
    ) -> Option<&LivenessView> {
        self.objects.get(&(cluster.clone(), Kind::Connector, object.clone()))?.annotation.as_ref()
    }
}

/// Who wrote the object last. Slim objects do not keep which fields an entry owns; but the trigger is
/// the only field of a Gateway that throughline writes.
fn last_writer(object: &Object) -> Option<LastWriter> {
    let fields = object.meta.managed_fields.iter();
    let ours = |f: &&crate::core::data::objects::ManagedFields| f.manager == FIELD_MANAGER;
    let of_field = object.kind() == Kind::Gateway;
    let last = if of_field {
        fields.filter(ours).max_by_key(|f| f.time)
    } else {
        fields.max_by_key(|f| f.time)
    }?;
    Some(LastWriter { manager: last.manager.clone(), at_ms: last.time?, of_field })
}

fn annotated_liveness(object: &Object) -> Option<LivenessView> {
    let annotation = object.meta.annotations.get(UPSTREAM_STATUS)?;
    Some(LivenessView::of(Some(annotation)))
}

/// Removes the `managedFields` of a Gateway from an event. With them, the machine distrusts a trigger
/// older than the last write of its connectors and touches the Gateway once more; a trace shall show
/// such a Gateway as announced.
pub(super) fn without_gateway_writers(kind: EventKind) -> EventKind {
    let strip = |object: Arc<Object>| {
        if object.kind() != Kind::Gateway {
            return object;
        }
        let mut object = Arc::unwrap_or_clone(object);
        object.meta.managed_fields.clear();
        Arc::new(object)
    };
    match kind {
        EventKind::Listed { cluster, object } => {
            EventKind::Listed { cluster, object: strip(object) }
        }
        EventKind::Applied { cluster, object } => {
            EventKind::Applied { cluster, object: strip(object) }
        }
        kind => kind,
    }
}

/// Of the managers that own a field, by an object's `metadata.managedFields`, the one that wrote last.
pub(super) fn field_owner(object: &Value, path: &[&str]) -> Option<LastWriter> {
    let owns = |entry: &&Value| {
        let mut fields = &entry["fieldsV1"];
        path.iter().all(|name| {
            fields = &fields[format!("f:{name}")];
            !fields.is_null()
        })
    };
    let entries = object["metadata"]["managedFields"].as_array()?;
    let writer = |entry: &Value| {
        Some(LastWriter {
            manager: entry["manager"].as_str()?.to_owned(),
            at_ms: UnixMillis::parse_rfc3339(entry["time"].as_str()?)?,
            of_field: true,
        })
    };
    entries.iter().filter(owns).filter_map(writer).max_by_key(|writer| writer.at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_owner_of_a_field_is_the_latest_entry_that_names_it() {
        let entry = |manager: &str, time: &str, fields: Value| json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields});
        let annotation = |key: &str| {
            let key = format!("f:{key}");
            json!({"f:metadata": {"f:annotations": {key: {}}}})
        };
        let object = json!({"metadata": {"managedFields": [
            entry("replicator", "2026-11-21T09:00:00Z", annotation(UPSTREAM_STATUS)),
            entry("throughline", "2026-11-21T09:00:05Z", annotation(UPSTREAM_STATUS)),
            entry("kubectl", "2026-11-21T10:00:00Z", annotation("example.com/other")),
            entry("agent", "2026-11-21T09:30:00Z", json!({"f:status": {"f:conditions": {}}})),
        ]}});
        let found = field_owner(&object, &["metadata", "annotations", UPSTREAM_STATUS]).unwrap();
        assert!(found.is_throughline() && found.of_field, "{found:?}");
        assert_eq!(found.at_ms.to_string(), "2026-11-21T09:00:05.000Z");
        assert_eq!(field_owner(&object, &["status"]).unwrap().manager, "agent");
        assert_eq!(field_owner(&object, &["spec"]), None);
        assert_eq!(field_owner(&json!({}), &["status"]), None);
    }
}
