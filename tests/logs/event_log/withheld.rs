//! Annotations that no rule reads: their values are in no log. Their lengths still count, as the logs of the
//! fixtures `oversized-status-…` verify.

use serde_json::{Value, json};

use crate::reading::*;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const TOKEN: &str = "s3cr3t-b34r3r-t0k3n";

/// What `kubectl apply` leaves on an HTTPProxy that sets a header.
fn last_applied() -> String {
    let headers = json!({"set": [{"name": "Authorization", "value": format!("Bearer {TOKEN}")}]});
    let rules =
        json!([{"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": headers}]}]);
    json!({"kind": "HTTPProxy", "spec": {"rules": rules}}).to_string()
}

fn line(event: &str, kind: &str, annotations: &Value) -> String {
    let metadata = json!({"namespace": "ns-1", "name": "p", "annotations": annotations});
    let object = json!({"kind": kind, "metadata": metadata});
    json!({"at_ms": START_MS, "event": event, "cluster": "hub", "object": object}).to_string()
}

#[test]
fn a_bearer_token_in_an_annotation_or_a_deleted_route_is_in_no_log() {
    let mut lines = Vec::new();
    for kind in ["HTTPProxy", "HTTPRoute", "Gateway", "Connector", "Namespace"] {
        for event in ["listed", "applied", "deleted"] {
            lines.push(line(event, kind, &json!({LAST_APPLIED: last_applied()})));
        }
    }
    for outcome in ["applied", "unanswered"] {
        let route = json!({"kind": "HTTPRoute", "metadata": {"name": "r"}, "spec": last_applied()});
        let line = json!({"at_ms": START_MS, "event": "action_finished", "id": 1,
            "outcome": outcome, "deleted": route});
        lines.push(line.to_string());
    }
    let result = read_lines(&(lines.join("\n") + "\n"));
    check_silent(&result, lines.len());
    assert!(!result.written.contains(TOKEN), "{}", result.written);
    let withheld = format!(r#""{LAST_APPLIED}":"redacted:{}""#, last_applied().len());
    assert_eq!(result.written.matches(&withheld).count(), 15, "{}", result.written);

    // A reader finds a value of the same length, and writes that again.
    assert_eq!(read(&result.written).written, result.written);
}

#[test]
fn what_rules_read_stays_and_a_filler_is_bounded() {
    let read_by_rules = json!({
        "networking.datumapis.com/upstream-status": "{}",
        "nudge.example.com": "1",
        "gateway.envoyproxy.io/trigger": "redacted:7",
        "networking.datumapis.com/connector-ready-generation": "true/x",
        "throughline.datumapis.com/paused": "true",
        "throughline.datumapis.com/allow-removals": "true",
    });
    let header = HEADER.replace(
        "]}]",
        r#"]}],"settings":{"mirror":{"nudgeKey":"nudge.example.com"},"touch":{"key":"gateway.envoyproxy.io/trigger"}}"#,
    );
    let gateway = |header: &str, annotations: &Value| {
        read(format!("{header}\n{}\n", line("applied", "Gateway", annotations))).written
    };
    let again: Value =
        serde_json::from_str(gateway(&header, &read_by_rules).lines().nth(1).unwrap()).unwrap();
    assert_eq!(again["object"]["metadata"]["annotations"], read_by_rules);
    // Without these settings, two of the six are anybody's.
    assert_eq!(gateway(HEADER, &read_by_rules).matches("redacted:").count(), 2);

    let huge = json!({"a": "redacted:99999999999", "b": "redacted:5", "c": "redacted:-1",
        "d": "redacted:", "e": "x"});
    let written = gateway(HEADER, &huge);
    let lengths = [1 << 20, 0, 11, 9, 1].into_iter().zip("abcde".chars());
    let lengths = lengths.map(|(bytes, key)| format!("\"{key}\":\"redacted:{bytes}\""));
    assert!(written.contains(&lengths.collect::<Vec<_>>().join(",")), "{written}");
}
