//! Logs made for these tests: one upstream, and one cluster that is hub and edge.

use std::fmt::Write;

use serde_json::{Value, json};

/// A name that would run as markup if the page did not escape it.
pub(crate) const EVIL: &str = "</script><img src=x onerror=\"hacked=1\"><!--<script>";

const START: u64 = 1_795_252_772_000;

/// `connectors`, each behind one gateway and each changing upstream `times` times.
pub(crate) fn flips(connectors: usize, times: usize, name: &str) -> String {
    let names: Vec<_> = (1..=connectors).map(|i| format!("{name}{i}")).collect();
    let header = json!({"log": "throughline", "version": 1, "clusters": [
        {"name": "up", "roles": ["upstream"]}, {"name": "down", "roles": ["downstream", "edge"]},
    ]});
    let mut log = format!("{header}\n");
    let mut write = |at_ms: u64, event: &str, cluster: &str, key: &str, what: Value| {
        let mut line = json!({"at_ms": at_ms, "event": event, "cluster": cluster});
        line[key] = what;
        writeln!(log, "{line}").unwrap();
    };
    let mut list = |cluster: &str, kind: &str, objects: Vec<Value>| {
        write(START, "list_started", cluster, "kind", json!(kind));
        objects.into_iter().for_each(|object| write(START, "listed", cluster, "object", object));
        write(START, "list_finished", cluster, "kind", json!(kind));
    };
    let each = |make: fn(&str) -> Value| names.iter().map(|name| make(name)).collect();
    let namespace = json!({"name": "default", "uid": "u", "resourceVersion": "1"});
    list("up", "Namespace", vec![json!({"kind": "Namespace", "metadata": namespace})]);
    list("up", "Connector", names.iter().map(|name| upstream(name, 0)).collect());
    list("down", "Connector", each(hub_connector));
    list(
        "down",
        "HTTPProxy",
        each(|name| {
            let rules = json!([{"backends": [{"connector": {"name": name}}]}]);
            json!({"kind": "HTTPProxy", "metadata": {"namespace": "ns-u", "name": name}, "spec": {"rules": rules}})
        }),
    );
    list(
        "down",
        "Gateway",
        each(
            |name| json!({"kind": "Gateway", "metadata": {"namespace": "ns-u", "name": name, "uid": name, "resourceVersion": "1"}}),
        ),
    );
    let mut at_ms = START;
    for time in 1..=times {
        for name in &names {
            at_ms += 97;
            write(at_ms, "applied", "up", "object", upstream(name, time));
        }
    }
    log
}

fn upstream(name: &str, time: usize) -> Value {
    let ready = if time.is_multiple_of(2) { "True" } else { "False" };
    json!({
        "kind": "Connector",
        "metadata": {"namespace": "default", "name": name, "uid": format!("up-{name}"), "resourceVersion": format!("{}", time + 1)},
        "status": {"conditions": [{"type": "Ready", "status": ready}],
            "connectionDetails": {"type": "PublicKey", "publicKey": {"id": name}}},
    })
}

fn hub_connector(name: &str) -> Value {
    json!({"kind": "Connector", "metadata": {
        "namespace": "ns-u", "name": name, "uid": format!("down-{name}"), "resourceVersion": "1",
        "labels": {"meta.datumapis.com/upstream-cluster-name": "cluster-up",
            "meta.datumapis.com/upstream-namespace": "default", "meta.datumapis.com/upstream-name": name},
    }})
}
