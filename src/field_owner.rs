//! Who owns a field of an object.

use serde_json::Value;

use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::Writer;

/// The managers that own a field of an object, by its `metadata.managedFields`, each with the time of
/// its last write.
pub(crate) fn field_owners(managed_fields: &Value, path: &[&str]) -> impl Iterator<Item = Writer> {
    let owns = move |entry: &&Value| {
        let mut fields = &entry["fieldsV1"];
        path.iter().all(|name| {
            fields = &fields[format!("f:{name}")];
            !fields.is_null()
        })
    };
    let writer = |entry: &Value| {
        Some(Writer {
            manager: entry["manager"].as_str()?.to_owned(),
            at_ms: UnixMillis::parse_rfc3339(entry["time"].as_str()?)?,
            of_field: true,
        })
    };
    managed_fields.as_array().into_iter().flatten().filter(owns).filter_map(writer)
}

/// The owner that wrote last.
pub(crate) fn field_owner(object: &Value, path: &[&str]) -> Option<Writer> {
    let owners = field_owners(&object["metadata"]["managedFields"], path);
    owners.max_by_key(|owner| owner.at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::data::objects::{FIELD_MANAGER, UPSTREAM_STATUS};
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
        assert!(found.manager == FIELD_MANAGER && found.of_field, "{found:?}");
        assert_eq!(found.at_ms.to_string(), "2026-11-21T09:00:05.000Z");
        assert_eq!(field_owner(&object, &["status"]).unwrap().manager, "agent");
        assert_eq!(field_owner(&object, &["spec"]), None);
        assert_eq!(field_owner(&json!({}), &["status"]), None);
    }
}
