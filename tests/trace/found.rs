//! By which name a connector is found, and the table of all.

use super::*;

#[test]
fn a_name_that_is_nowhere_is_answered_with_near_ones() {
    let mut stage = settled();
    let snapshot_of = |stage: &Stage| snapshot(stage, Source::State);
    let ask = |stage: &Stage, namespace: &str, name: &str| {
        let key = ObjectKey::new(namespace, name);
        connector(&snapshot_of(stage), &key, None).unwrap_err().to_string()
    };
    assert!(ask(&stage, "default", "lap").ends_with("did you mean default/lab?"));
    let elsewhere = ask(&stage, "shop", "lab");
    assert!(
        elsewhere.ends_with(&format!("did you mean default/lab, ns-{UID}/lab?")),
        "{elsewhere}"
    );
    assert!(!ask(&stage, "shop", "quite-different").contains("did you mean"));
    stage.lost("up", "Connector");
    let unseen = ask(&stage, "shop", "quite-different");
    assert!(unseen.ends_with("(not seen in full, so it may be there: up)"), "{unseen}");
    let app = ObjectKey::new("default", "app");
    let error = gateway(&snapshot_of(&stage), &app, None).unwrap_err().to_string();
    assert!(error.ends_with(&format!("did you mean ns-{UID}/app?")), "{error}");
}

#[test]
fn equal_names_are_told_apart_by_a_cluster() {
    let mut snapshot = snapshot(&settled(), Source::State);
    let mut other = snapshot.view.connectors[0].clone();
    other.upstream.as_mut().unwrap().cluster = "up2".into();
    snapshot.view.connectors.push(other);
    let error = connector(&snapshot, &lab(), None).unwrap_err().to_string();
    assert_eq!(
        error,
        "several connectors are called default/lab: default/lab in up; default/lab in up2; choose \
         one by --in CLUSTER"
    );
    let Found(one) = connector(&snapshot, &lab(), Some(&"up2".into())).unwrap();
    assert_eq!(one[0].upstream.as_ref().unwrap().cluster.as_str(), "up2");
}

#[test]
fn the_table_has_the_stuck_ones_first() {
    let mut stage = settled();
    let v = stage.version();
    stage.applied("up", &format!(r#"{{"kind":"Connector","metadata":{{"namespace":"zoo","name":"ape","resourceVersion":"{v}"}}}}"#));
    stage.pass_to(660_000);
    let rows = table(&snapshot(&stage, Source::State));
    let told: Vec<_> = rows
        .iter()
        .map(|row| (&*row.upstream.as_ref().unwrap().object.name, row.state, row.announced))
        .collect();
    assert_eq!(told, [("ape", State::Wrong, 0), ("lab", State::Ok, 1)]);
    let stuck = rows[0].stuck.as_ref().unwrap();
    assert_eq!((stuck.hop, stuck.cause), (Hop::Mirrored, Some(Cause::Unreplicated)));
    assert_eq!(rows[0].since_ms, Some(UnixMillis(START + 600_000)));
    assert_eq!((rows[1].gateways, rows[1].online), (1, Some(true)));
}
