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
        let rules =
            right.as_ref().map_or(role["rules"].clone(), |right| except(&role["rules"], right));
        rest.merge(resource(&role), (namespace, name), &json!({ "rules": rules })).await.unwrap();
    }
}

/// Each right that a rule gives.
pub(crate) fn permissions_of(rule: &Value) -> Vec<Permission> {
    let texts = |key: &str| {
        let list = rule[key].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut permissions = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            let of = |verb| (group.clone(), resource.clone(), verb);
            permissions.extend(texts("verbs").into_iter().map(of));
        }
    }
    permissions
}

/// The rules without this right. A rule that gives it is split into one for each right that is left.
pub(crate) fn except(rules: &Value, permission: &Permission) -> Value {
    let mut left = Vec::new();
    for rule in rules.as_array().unwrap() {
        let mut permissions = permissions_of(rule);
        if !permissions.contains(permission) {
            left.push(rule.clone());
            continue;
        }
        permissions.retain(|of| of != permission);
        left.extend(permissions.into_iter().map(|(group, resource, verb)| {
            let mut part = rule.clone();
            part["apiGroups"] = json!([group]);
            part["resources"] = json!([resource]);
            part["verbs"] = json!([verb]);
            part
        }));
    }
    left.into()
}
