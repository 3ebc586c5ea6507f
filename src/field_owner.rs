//! Who owns a field of an object.

use serde_json::Value;

use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::Writer;

/// The managers that own a field of an object, by its `metadata.managedFields`, each with the time of
/// its last write. An entry may lack either.
pub(crate) fn field_owners<'a>(
    managed_fields: &'a Value,
    path: &'a [&str],
) -> impl Iterator<Item = (Option<&'a str>, Option<UnixMillis>)> {
    let owns = move |entry: &&Value| {
        let mut fields = &entry["fieldsV1"];
        path.iter().all(|name| {
            fields = &fields[format!("f:{name}")];
            !fields.is_null()
        })
    };
    let owner = |entry: &'a Value| {
        let time = entry["time"].as_str().and_then(UnixMillis::parse_rfc3339);
        (entry["manager"].as_str(), time)
    };
    managed_fields.as_array().into_iter().flatten().filter(owns).map(owner)
}

/// The owner that wrote last, of those with a name and a time.
pub(crate) fn field_owner(object: &Value, path: &[&str]) -> Option<Writer> {
    let owners = field_owners(&object["metadata"]["managedFields"], path);
    let writer = |(manager, time): (Option<&str>, _)| {
        Some(Writer { manager: manager?.to_owned(), at_ms: time?, of_field: true })
    };
    owners.filter_map(writer).max_by_key(|writer| writer.at_ms)
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
            entry("throughline", "2026-11-21T09:00:05Z", annotation(UPSTREAM_STATUS)),
            entry("replicator", "2026-11-21T09:00:00Z", annotation(UPSTREAM_STATUS)),
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

    #[test]
    fn an_entry_without_a_manager_or_a_time_owns_its_fields() {
        let entries =
            json!([{"manager": "agent", "fieldsV1": {"f:spec": {}}}, {"fieldsV1": {"f:spec": {}}}]);
        let owners: Vec<_> = field_owners(&entries, &["spec"]).collect();
        assert_eq!(owners, [(Some("agent"), None), (None, None)]);
        assert_eq!(field_owner(&json!({"metadata": {"managedFields": entries}}), &["spec"]), None);
    }
}
