//! What throughline may do in a cluster: the rights that stand in `deploy/rbac`, and not one more,
//! given to the tests' user.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::apiserver::THROUGHLINE;
use super::objects::key;
use super::rest::{Answer, BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource, Rest};

/// The folder with the rights of the election, apart from the others: they can be taken away alone.
pub(crate) const ELECTION: &str = "lease";
/// What several shards take beside.
pub(crate) const SHARDS: &str = "lease-shards";
/// Where the tests' Leases are.
const LEASES_IN: &str = "default";

/// The objects in a folder of `deploy/rbac`, for the tests' user.
pub(crate) fn documents(folder: &str) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/rbac");
    let path = root.join(folder).join("rules.yaml");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let document = |text| {
        let mut object: Value =
            serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if object["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = json!(LEASES_IN);
        }
        if object["subjects"].is_array() {
            object["subjects"] = subjects();
        }
        object
    };
    text.split("\n---\n").map(document).collect()
}

fn subjects() -> Value {
    json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": THROUGHLINE }])
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
pub(crate) async fn grant(rest: &Rest, folders: &[&str]) -> Answer<()> {
    for object in folders.iter().flat_map(|folder| documents(folder)) {
        rest.create(resource(&object), object).await?;
    }
    Ok(())
}

/// Takes them away again.
pub(crate) async fn revoke(rest: &Rest, folders: &[&str]) -> Answer<()> {
    for object in folders.iter().flat_map(|folder| documents(folder)) {
        let (namespace, name) = key(&object);
        rest.delete(resource(&object), &namespace, &name).await?;
    }
    Ok(())
}

/// Gives these rules instead of what the folders gave.
pub(crate) async fn only(rest: &Rest, folders: &[&str], rules: &Value) {
    let of_all = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                         "name": THROUGHLINE });
    let metadata = json!({ "name": THROUGHLINE });
    let binding = json!({ "metadata": metadata, "roleRef": of_all, "subjects": subjects() });
    // Those of an earlier call may be gone already.
    let _ = revoke(rest, folders).await;
    rest.apply(BINDINGS, binding, "tests").await.unwrap();
    let role = json!({ "metadata": metadata, "rules": rules });
    rest.apply(CLUSTER_ROLES, role, "tests").await.unwrap();
}

/// A right: API group, resource, verb.
pub(crate) type Permission = (String, String, String);

/// What the folders give, without one right; `None` gives it back.
pub(crate) async fn without(rest: &Rest, folders: &[&str], right: Option<(&str, &str, &str)>) {
    let roles = folders.iter().flat_map(|folder| documents(folder));
    for role in roles.filter(|object| object["rules"].is_array()) {
        let (namespace, name) = key(&role);
        let rules = json!({ "rules": except(&role["rules"], right) });
        rest.merge(resource(&role), (&namespace, &name), &rules).await.unwrap();
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

/// A rule for each right that these rules give, without one of them.
fn except(rules: &Value, right: Option<(&str, &str, &str)>) -> Value {
    let mut left = Vec::new();
    for rule in rules.as_array().unwrap() {
        for (group, resource, verb) in permissions_of(rule) {
            if right != Some((&group, &resource, &verb)) {
                let mut part = rule.clone();
                part["apiGroups"] = json!([group]);
                part["resources"] = json!([resource]);
                part["verbs"] = json!([verb]);
                left.push(part);
            }
        }
    }
    left.into()
}
