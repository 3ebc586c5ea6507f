//! What throughline may do in a cluster: the rights that stand in `deploy/rbac`, and not one more,
//! given to the tests' user.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::apiserver::THROUGHLINE;
use super::rest::{BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Refused, Resource, Rest};

/// The folder with the rights of the election, apart from the others: they can be taken away alone.
pub(crate) const ELECTION: &str = "lease";
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
pub(crate) async fn grant(rest: &Rest, folders: &[&str]) -> Result<(), Refused> {
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
pub(crate) async fn revoke(rest: &Rest, folders: &[&str]) -> Result<(), Refused> {
    for object in folders.iter().flat_map(|folder| documents(folder)) {
        let namespace = object["metadata"]["namespace"].as_str().map_or("", |_| LEASES_IN);
        let name = object["metadata"]["name"].as_str().unwrap();
        rest.delete(resource(&object), namespace, name).await?;
    }
    Ok(())
}
