//! Karmada's retention rule, run by the Lua interpreter that Karmada uses.

use std::fs;

use serde_json::{Value, json};
use throughline::core::contract::settings::TouchSettings;

use crate::temp_folder::temp_folder;
use crate::tools::{read, run_tool};

fn gateway(annotations: &Value, port: u16) -> Value {
    let mut gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": "app", "labels": { "a": "b" } },
        "spec": { "gatewayClassName": "edge", "listeners": [{ "name": "http", "port": port }] },
    });
    if !annotations.is_null() {
        gateway["metadata"]["annotations"] = annotations.clone();
    }
    gateway
}

#[test]
#[ignore = "needs a Lua interpreter: make deploy-test"]
fn karmada_retains_the_trigger_of_the_edge_and_nothing_else() {
    let rule = read("deploy/karmada/retain-trigger.yaml").remove(0);
    let script = rule["spec"]["customizations"]["retention"]["luaScript"].as_str().unwrap();
    let key = TouchSettings::default().key;
    let target = json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway" });
    assert_eq!(rule["spec"]["target"], target);

    let folder = temp_folder("karmada");
    let files = ["retain.lua", "hub.json", "edge.json"].map(|name| folder.join(name));
    for (hub, edge, written) in [
        (json!(null), json!({ &key: "d-2-0", "edge": "1" }), json!({ &key: "d-2-0" })),
        (json!({ "hub": "1" }), json!({ &key: "d-2-0" }), json!({ "hub": "1", &key: "d-2-0" })),
        // The hub has an older trigger.
        (json!({ &key: "d-1-0" }), json!({ &key: "d-2-0" }), json!({ &key: "d-2-0" })),
        // A trigger that was removed at the edge does not come back.
        (json!({ &key: "d-1-0", "hub": "1" }), json!(null), json!({ "hub": "1" })),
        (json!({ "hub": "2" }), json!({ "hub": "1" }), json!({ "hub": "2" })),
        (json!(null), json!(null), json!(null)),
    ] {
        fs::write(&files[0], script).unwrap();
        fs::write(&files[1], gateway(&hub, 80).to_string()).unwrap();
        fs::write(&files[2], gateway(&edge, 8080).to_string()).unwrap();
        let retained: Value = serde_json::from_str(&run_tool("lua", &files).unwrap()).unwrap();
        assert_eq!(retained, gateway(&written, 80), "{hub} over {edge}");
    }
}
