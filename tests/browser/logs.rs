//! Logs made for these tests: one upstream, and one cluster that is hub and edge.

use serde_json::{Value, json};

/// A name that would run as markup if the page did not escape it.
pub(crate) const EVIL: &str = "</script><img src=x onerror=\"hacked=1\"><!--<script>";

const START: u64 = 1_795_252_772_000;

/// `connectors`, each behind one gateway and each changing upstream `times` times.
pub(crate) fn flips(connectors: usize, times: usize, name: &str) -> String {
    let names: Vec<_> = (1..=connectors).map(|i| format!("{name}{i}")).collect();
    let each = |make: fn(&str) -> Value| names.iter().map(|name| make(name)).collect();
    let mut lines = vec![json!({"log": "throughline", "version": 1, "clusters": [
        {"name": "up", "roles": ["upstream"]}, {"name": "down", "roles": ["downstream", "edge"]},
    ]})];
    for (cluster, kind, objects) in [
        ("up", "Namespace", vec![json!({"metadata": {"name": "default", "uid": "u"}})]),
        ("up", "Connector", each(|name| upstream(name, 0))),
        ("down", "Connector", each(hub_connector)),
        ("down", "HTTPProxy", each(proxy)),
        ("down", "Gateway", each(|name| json!({"metadata": metadata("ns-u", name)}))),
    ] {
        let line =
            |event| json!({"at_ms": START, "event": event, "cluster": cluster, "kind": kind});
        lines.push(line("list_started"));
        for mut object in objects {
            object["kind"] = json!(kind);
            object["metadata"]["resourceVersion"] = json!("1");
            lines.push(
                json!({"at_ms": START, "event": "listed", "cluster": cluster, "object": object}),
            );
        }
        lines.push(line("list_finished"));
    }
    for i in 0..times * connectors {
        let (at_ms, time) = (START + 97 * (i as u64 + 1), i / connectors + 1);
        let object = upstream(&names[i % connectors], time);
        lines.push(json!({"at_ms": at_ms, "event": "applied", "cluster": "up", "object": object}));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn metadata(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}")})
}

fn upstream(name: &str, time: usize) -> Value {
    let ready = if time.is_multiple_of(2) { "True" } else { "False" };
    let mut metadata = metadata("default", name);
    metadata["resourceVersion"] = json!((time + 1).to_string());
    json!({"kind": "Connector", "metadata": metadata, "status": {
        "conditions": [{"type": "Ready", "status": ready}],
        "connectionDetails": {"type": "PublicKey", "publicKey": {"id": name}},
    }})
}

fn hub_connector(name: &str) -> Value {
    let mut metadata = metadata("ns-u", name);
    metadata["labels"] = json!({
        "meta.datumapis.com/upstream-cluster-name": "cluster-up",
        "meta.datumapis.com/upstream-namespace": "default",
        "meta.datumapis.com/upstream-name": name,
    });
    json!({"metadata": metadata})
}

fn proxy(name: &str) -> Value {
    let rules = json!([{"backends": [{"connector": {"name": name}}]}]);
    json!({"metadata": metadata("ns-u", name), "spec": {"rules": rules}})
}
