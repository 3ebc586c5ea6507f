//! Karmada's retention rule, run by the Lua interpreter that Karmada uses.

use std::fs;

use serde_json::{Value, json};
use throughline::core::contract::settings::TouchSettings;

use crate::tools::{read, repo, run_tool, temp_folder};

/// What Karmada writes to the member cluster: `desired`, with what the rule retains of `observed`.
fn retained(script: &str, desired: &Value, observed: &Value) -> Value {
    let folder = temp_folder("karmada");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let args = [
        file("retain.lua", script),
        file("desired.json", &desired.to_string()),
        file("observed.json", &observed.to_string()),
    ];
    serde_json::from_str(&run_tool("lua", &args).unwrap()).unwrap()
}

fn gateway(annotations: &Value) -> Value {
    let mut gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": "app", "labels": { "a": "b" } },
        "spec": { "gatewayClassName": "edge", "listeners": [{ "name": "http", "port": 80 }] },
    });
    if !annotations.is_null() {
        gateway["metadata"]["annotations"] = annotations.clone();
    }
    gateway
}

#[test]
#[ignore = "needs a Lua interpreter: make deploy-test"]
fn karmada_retains_the_trigger_of_the_edge_and_nothing_else() {
    let rule = read(&repo("deploy/karmada/retain-trigger.yaml")).remove(0);
    let script = rule["spec"]["customizations"]["retention"]["luaScript"].as_str().unwrap();
    let key = TouchSettings::default().key;
    let target = json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway" });
    assert_eq!(rule["spec"]["target"], target);

    let none = Value::Null;
    let cases = [
        // The annotations at the hub, at the edge, and as written to the edge.
        (none.clone(), json!({ &key: "d-2-0", "edge": "1" }), json!({ &key: "d-2-0" })),
        (json!({ "hub": "1" }), json!({ &key: "d-2-0" }), json!({ "hub": "1", &key: "d-2-0" })),
        // The hub has an older trigger.
        (json!({ &key: "d-1-0" }), json!({ &key: "d-2-0" }), json!({ &key: "d-2-0" })),
        // A trigger that was removed at the edge does not come back.
        (json!({ &key: "d-1-0", "hub": "1" }), none.clone(), json!({ "hub": "1" })),
        (json!({ "hub": "2" }), json!({ "hub": "1" }), json!({ "hub": "2" })),
        (none.clone(), none.clone(), none.clone()),
    ];
    for (desired, observed, wanted) in cases {
        let mut observed = gateway(&observed);
        observed["spec"]["listeners"][0]["port"] = json!(8080);
        let found = retained(script, &gateway(&desired), &observed);
        assert_eq!(found, lua(gateway(&wanted)), "{desired} over {observed}");
    }
}

/// The value after a round trip through JSON text, as Lua returns it.
fn lua(value: Value) -> Value {
    serde_json::from_str(&value.to_string()).unwrap()
}
