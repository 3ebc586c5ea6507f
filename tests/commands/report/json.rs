//! The JSON report.

use super::*;

#[test]
fn json_has_every_action_and_hop() {
    let json = json(&incident(), None);
    assert_eq!(json["mode"], "what-if");
    assert_eq!(
        json["verdict"],
        serde_json::json!({"converged": true, "problems": [], "still_wrong": []})
    );
    assert_eq!(json["clusters"][1]["roles"], serde_json::json!(["downstream", "edge"]));
    assert_eq!((&json["from_ms"], &json["ended_ms"]), (&START.into(), &(START + 70_161).into()));
    assert_eq!(
        json["actions"][1],
        serde_json::json!({
            "id": 2, "at_ms": START + 2_161, "type": "touch", "cluster": "edge", "kind": "Gateway",
            "namespace": NS, "name": "app-00", "annotations": {TRIGGER: "9f2c41d07be5a630-1-0"},
            "precondition": {}, "connectors": [{"namespace": NS, "name": "home-lab"}], "because": CHANGED,
            "outcome": "applied", "finished_at_ms": START + 2_161,
        })
    );
    let connectors = json["connectors"].as_array().unwrap();
    assert_eq!(connectors.len(), 2);
    assert_eq!(
        connectors[0]["upstream"],
        serde_json::json!({"cluster": "project-a", "namespace": "default", "name": "home-lab"})
    );
    assert_eq!(
        (&connectors[0]["namespace"], &connectors[0]["name"]),
        (&NS.into(), &"home-lab".into())
    );
    assert_eq!(
        connectors[0]["hops"][0],
        serde_json::json!({"at_ms": START + 2_061, "hop": "upstream", "cluster": "project-a", "online": false})
    );
    assert_eq!(connectors[0]["hops"].as_array().unwrap().len(), 8);
    assert_eq!(connectors[0]["actions"].as_array().unwrap().len(), 132);
    assert_eq!(connectors[1]["actions"], serde_json::json!([]));
    assert_eq!(
        json["outages"]["recorded"][0],
        serde_json::json!({
            "edge": "edge", "namespace": NS, "name": "home-lab", "kind": "offline",
            "from_ms": START + 10_061, "first_right_ms": START + 60_060, "until_ms": START + 62_240,
            "gateways": 26, "by_platform_key": true,
        })
    );
}

#[test]
fn json_of_removals_deletes_and_unfinished_actions() {
    let mut script = Script(empty());
    script.act(1, Verb::Mirror, "home-lab", "", "no status").decision.action.annotations[0].1 =
        None;
    script.act(2, Verb::Delete, "route", "", "orphan").finished = None;
    let actions = &json(&script.0, None)["actions"];
    let removed = &actions[0]["annotations"]["networking.datumapis.com/upstream-status"];
    assert_eq!(removed, &Value::Null);
    assert_eq!(actions[0]["annotations"].as_object().unwrap().len(), 1);
    assert_eq!(actions[1].get("annotations"), None);
    assert_eq!(
        (&actions[1]["outcome"], &actions[1]["finished_at_ms"]),
        (&Value::Null, &Value::Null)
    );
    has(&text(&script.0), "hub annotation removed (edge): no status\n");
}

#[test]
fn json_of_one_connector() {
    let office = json(&incident(), Some("default/office"));
    assert_eq!(office["actions"], serde_json::json!([]));
    assert_eq!(office["outages"], serde_json::json!({"recorded": [], "replayed": []}));
    assert_eq!(office["connectors"].as_array().unwrap().len(), 1);
    let lab = json(&incident(), Some("default/home-lab"));
    assert_eq!(lab["actions"].as_array().unwrap().len(), 132);
    assert_eq!(lab["outages"]["replayed"].as_array().unwrap().len(), 1);
    assert_eq!(lab["connectors"][0]["name"], "home-lab");
}
