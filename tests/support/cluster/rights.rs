//! What throughline may do in a cluster: the rights that stand in `deploy/rbac`, and not one more,
//! given to the tests' user.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::apiserver::THROUGHLINE;
use super::rest::{BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, RequestError, Resource, Rest};

/// The folder with the rights of the election, apart from the others: they can be taken away alone.
pub(crate) const ELECTION: &str = "lease";
/// What several shards take beside.
pub(crate) const SHARDS: &str = "lease-shards";
/// Where the tests' Leases are.
const LEASES_IN: &str = "default";

/// The objects in a folder of `deploy/rbac`.
pub(crate) fn documents(folder: &str) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/rbac");
    let path = root.join(folder).join("rules.yaml");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let documents = text.split("\n---\n").map(serde_saphyr::from_str);
    documents.collect::<Result<_, _>>().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The folders that a cluster of these roles needs. Deleting orphans takes more: [`DELETING`].
pub(crate) fn folders(roles: &[&str]) -> Vec<&'static str> {
    let of = |role: &&str| match *role {
        "upstream" => vec!["upstream"],
        "downstream" => vec!["hub", ELECTION],
        "edge" => vec!["edge"],
        role => panic!("no role: {role}"),
    };
    roles.iter().flat_map(of).collect()
}

/// What deleting orphans takes beside: upstream, and at the hub.
pub(crate) const DELETING: [&str; 2] = ["upstream-delete", "hub-delete"];

fn resource(object: &Value) -> Resource {
    let all = [CLUSTER_ROLES, BINDINGS, ROLES, ROLE_BINDINGS];
    all.into_iter().find(|resource| object["kind"] == resource.kind).unwrap()
}

/// Gives the rights of these folders to the tests' user.
pub(crate) async fn grant(rest: &Rest, folders: &[&str]) -> Result<(), RequestError> {
    for mut object in folders.iter().flat_map(|folder| documents(folder)) {
        if object["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = json!(LEASES_IN);
        }
        if object["subjects"].is_array() {
            let group = "rbac.authorization.k8s.io";
            object["subjects"] =
                json!([{ "apiGroup": group, "kind": "User", "name": THROUGHLINE }]);
        }
        rest.create(resource(&object), object).await?;
    }
    Ok(())
}

/// Takes them away again.
pub(crate) async fn revoke(rest: &Rest, folders: &[&str]) -> Result<(), RequestError> {
    for object in folders.iter().flat_map(|folder| documents(folder)) {
        let namespace = object["metadata"]["namespace"].as_str().map_or("", |_| LEASES_IN);
        let name = object["metadata"]["name"].as_str().unwrap();
        rest.delete(resource(&object), namespace, name).await?;
    }
    Ok(())
}

/// Gives these rules instead of what the folders gave.
pub(crate) async fn only(rest: &Rest, folders: &[&str], rules: &Value) {
    // Those of an earlier call may be gone already.
    let _ = revoke(rest, folders).await;
    let role = json!({ "metadata": { "name": THROUGHLINE }, "rules": rules });
    if rest.create(CLUSTER_ROLES, role).await.is_err() {
        rest.merge(CLUSTER_ROLES, ("", THROUGHLINE), &json!({ "rules": rules })).await.unwrap();
        return;
    }
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": THROUGHLINE },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": THROUGHLINE },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": THROUGHLINE }],
    });
    rest.create(BINDINGS, binding).await.unwrap();
}

/// A right: API group, resource, verb.
pub(crate) type Permission = (String, String, String);

/// What the folders give, without one right; `None` gives it back.
pub(crate) async fn without(rest: &Rest, folders: &[&str], right: Option<(&str, &str, &str)>) {
    let right = right.map(|(g, r, v)| (g.to_owned(), r.to_owned(), v.to_owned()));
    for role in folders.iter().flat_map(|folder| documents(folder)) {
        if role["kind"] == "RoleBinding" || role["kind"] == "ClusterRoleBinding" {
            continue;
        }
        let namespace = role["metadata"]["namespace"].as_str().map_or("", |_| LEASES_IN);
        let name = role["metadata"]["name"].as_str().unwrap();
        let rules = role["rules"].as_array().unwrap().iter();
        let rules: Vec<_> = match &right {
            Some(right) => rules.flat_map(|rule| except(rule, right)).collect(),
            None => rules.cloned().collect(),
        };
        let rules = json!({ "rules": rules });
        rest.merge(resource(&role), (namespace, name), &rules).await.unwrap();
    }
}

/// The texts of a list.
pub(crate) fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// What is left of a rule without this right; what it gives beside is kept in rules of its own.
pub(crate) fn except(rule: &Value, (group, resource, verb): &Permission) -> Vec<Value> {
    let has = |key: &str, text: &String| texts(&rule[key]).contains(text);
    if !(has("apiGroups", group) && has("resources", resource) && has("verbs", verb)) {
        return vec![rule.clone()];
    }
    let with = |resources: Vec<String>, verbs: Vec<String>| {
        let mut part = rule.clone();
        (part["resources"], part["verbs"]) = (json!(resources), json!(verbs));
        part
    };
    let others = |key: &str, text: &String| {
        texts(&rule[key]).into_iter().filter(|t| t != text).collect::<Vec<_>>()
    };
    let parts = [
        (others("resources", resource), texts(&rule["verbs"])),
        (vec![resource.clone()], others("verbs", verb)),
    ];
    let parts =
        parts.into_iter().filter(|(resources, verbs)| !resources.is_empty() && !verbs.is_empty());
    parts.map(|(resources, verbs)| with(resources, verbs)).collect()
}
