//! What objects tell beside what the machine keeps: who wrote them last, and what they say.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::core::event::Happened;
use crate::core::ids::{ClusterName, Kind, ObjectKey};
use crate::core::objects::{FIELD_MANAGER, Object, UPSTREAM_STATUS};
use crate::core::time::UnixMillis;
use crate::core::view::SaysView;

/// Who wrote something last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Writer {
    /// The field manager.
    pub manager: String,
    /// When, by the API server's clock, in whole seconds.
    pub at_ms: UnixMillis,
    /// It owns just the field in question; else it only wrote the object last.
    pub of_field: bool,
}

impl Writer {
    /// It is throughline.
    pub fn is_us(&self) -> bool {
        self.manager == FIELD_MANAGER
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    writer: Option<Writer>,
    says: Option<SaysView>,
    nudged: bool,
}

/// The objects as they were seen last.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    objects: BTreeMap<(ClusterName, Kind, ObjectKey), Seen>,
    errors: BTreeMap<(ClusterName, Kind), String>,
    nudge_key: String,
}

impl Witness {
    /// Nothing was seen yet. `nudge_key`: the annotation that nudges the carrier.
    pub fn new(nudge_key: &str) -> Self {
        Self { nudge_key: nudge_key.to_owned(), ..Self::default() }
    }

    /// Something happened.
    pub fn hear(&mut self, what: &Happened) {
        match what {
            Happened::Listed { cluster, object } | Happened::Applied { cluster, object } => {
                let kind = object.kind();
                if matches!(kind, Kind::Connector | Kind::Gateway) {
                    let nudged = object.meta.annotations.get(&self.nudge_key).is_some();
                    let seen = Seen { writer: last_writer(object), says: says(object), nudged };
                    self.objects.insert((cluster.clone(), kind, object.meta.key()), seen);
                }
            }
            Happened::Deleted { cluster, object } => {
                self.objects.remove(&(cluster.clone(), object.kind(), object.meta.key()));
            }
            Happened::WatchLost { cluster, kind, error } => {
                self.errors.insert((cluster.clone(), *kind), error.clone());
            }
            Happened::ListFinished { cluster, kind } | Happened::WatchResumed { cluster, kind } => {
                self.errors.remove(&(cluster.clone(), *kind));
            }
            _ => {}
        }
    }

    /// Who owns the field in question of an object was looked up.
    pub fn refine(&mut self, cluster: &ClusterName, kind: Kind, object: &ObjectKey, by: Writer) {
        let key = (cluster.clone(), kind, object.clone());
        self.objects.entry(key).or_default().writer = Some(by);
    }

    /// What came back of watches that are lost.
    pub fn errors(&self) -> Vec<(ClusterName, Kind, String)> {
        let told = |((cluster, kind), error): (&(ClusterName, Kind), &String)| {
            (cluster.clone(), *kind, error.clone())
        };
        self.errors.iter().map(told).collect()
    }

    pub(super) fn writer(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        object: &ObjectKey,
    ) -> Option<&Writer> {
        self.objects.get(&(cluster.clone(), kind, object.clone()))?.writer.as_ref()
    }

    pub(super) fn is_nudged(&self, cluster: &ClusterName, object: &ObjectKey) -> bool {
        let key = (cluster.clone(), Kind::Connector, object.clone());
        self.objects.get(&key).is_some_and(|seen| seen.nudged)
    }

    pub(super) fn says(&self, cluster: &ClusterName, object: &ObjectKey) -> Option<&SaysView> {
        self.objects.get(&(cluster.clone(), Kind::Connector, object.clone()))?.says.as_ref()
    }
}

/// Who wrote the object last. Which fields it owns is not kept; but the only thing that we write of a
/// Gateway is the trigger.
fn last_writer(object: &Object) -> Option<Writer> {
    let fields = object.meta.managed_fields.iter();
    let ours = |f: &&crate::core::objects::ManagedFields| f.manager == FIELD_MANAGER;
    let of_field = object.kind() == Kind::Gateway;
    let last = if of_field {
        fields.filter(ours).max_by_key(|f| f.time)
    } else {
        fields.max_by_key(|f| f.time)
    }?;
    Some(Writer { manager: last.manager.clone(), at_ms: last.time?, of_field })
}

fn says(object: &Object) -> Option<SaysView> {
    let annotation = object.meta.annotations.get(UPSTREAM_STATUS)?;
    Some(SaysView::of(Some(annotation)))
}

/// A Gateway whose writers are forgotten: what was announced on it is believed, whoever wrote its
/// connectors since. A process that begins to write would announce it once more.
pub(super) fn believed(what: Happened) -> Happened {
    let plain = |object: Arc<Object>| {
        if object.kind() != Kind::Gateway {
            return object;
        }
        let mut object = Arc::unwrap_or_clone(object);
        object.meta.managed_fields.clear();
        Arc::new(object)
    };
    match what {
        Happened::Listed { cluster, object } => Happened::Listed { cluster, object: plain(object) },
        Happened::Applied { cluster, object } => {
            Happened::Applied { cluster, object: plain(object) }
        }
        what => what,
    }
}

/// Who owns a field, by an object's `metadata.managedFields`: the latest of those that do.
pub(super) fn owner(object: &Value, path: &[&str]) -> Option<Writer> {
    let owns = |entry: &&Value| {
        let mut fields = &entry["fieldsV1"];
        path.iter().all(|name| {
            fields = &fields[format!("f:{name}")];
            !fields.is_null()
        })
    };
    let entries = object["metadata"]["managedFields"].as_array()?;
    let writer = |entry: &Value| {
        Some(Writer {
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
        let found = owner(&object, &["metadata", "annotations", UPSTREAM_STATUS]).unwrap();
        assert!(found.is_us() && found.of_field, "{found:?}");
        assert_eq!(found.at_ms.to_string(), "2026-11-21T09:00:05.000Z");
        assert_eq!(owner(&object, &["status"]).unwrap().manager, "agent");
        assert_eq!(owner(&object, &["spec"]), None);
        assert_eq!(owner(&json!({}), &["status"]), None);
    }
}
