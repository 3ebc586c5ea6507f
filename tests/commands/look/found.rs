//! The names by which connectors and gateways are found.

use super::*;

/// A second upstream, in which everything has the same names.
fn with_a_twin() -> Fleet {
    let mut fleet = fleet(&Stage::settled(Settings::default()));
    let mut other = fleet.connectors[0].clone();
    other.upstream.as_mut().unwrap().cluster = "up2".into();
    other.name.as_mut().unwrap().namespace = "ns-2".into();
    other.hops[0].cluster = "up2".into();
    for object in other.hops.iter_mut().skip(1).filter_map(|hop| hop.object.as_mut()) {
        object.namespace = "ns-2".into();
    }
    fleet.connectors.push(other);
    let up = fleet.clusters.iter().find(|of| of.name.as_str() == "up").unwrap().clone();
    fleet.clusters.push(throughline::core::view::fleet::ClusterState { name: "up2".into(), ..up });
    fleet
}

#[test]
fn a_name_is_found_upstream_and_at_hub_and_edges() {
    let fleet = fleet(&Stage::settled(Settings::default()));
    for name in [lab(), at_edge("lab")] {
        assert_eq!(find::connector(&fleet, &name, None).unwrap(), fleet.connectors);
    }
    for name in [ObjectKey::new("default", "app"), at_edge("app")] {
        for cluster in [None, Some("edge")] {
            let cluster = cluster.map(ClusterName::from);
            let found = find::gateway(&fleet, &name, cluster.as_ref()).unwrap();
            assert_eq!(found, fleet.connectors, "{name} in {cluster:?}");
        }
    }
}

#[test]
fn a_cluster_chooses_among_equal_names() {
    let fleet = with_a_twin();
    let app = ObjectKey::new("default", "app");
    let upstream = |found: Vec<Connector>| found[0].upstream.as_ref().unwrap().cluster.clone();
    for cluster in ["up", "up2"].map(ClusterName::from) {
        assert_eq!(upstream(find::connector(&fleet, &lab(), Some(&cluster)).unwrap()), cluster);
        assert_eq!(upstream(find::gateway(&fleet, &app, Some(&cluster)).unwrap()), cluster);
    }
    assert_eq!(
        find::connector(&fleet, &lab(), None).unwrap_err().to_string(),
        "more than one connector is called default/lab: default/lab in up; default/lab in up2; add \
         --in CLUSTER"
    );
    assert_eq!(
        find::gateway(&fleet, &app, None).unwrap_err().to_string(),
        "more than one gateway is called default/app: default/app in up; default/app in up2; add \
         --in CLUSTER"
    );
}

#[test]
fn an_unknown_name_is_answered_with_similar_ones() {
    let mut stage = Stage::settled(Settings::default());
    let absent = |fleet: &Fleet, namespace: &str, name: &str| {
        let name = ObjectKey::new(namespace, name);
        find::connector(fleet, &name, None).unwrap_err().to_string()
    };
    let before = fleet(&stage);
    assert!(absent(&before, "default", "lap").ends_with("did you mean default/lab?"));
    let both = format!("did you mean default/lab, {}?", at_edge("lab"));
    assert!(absent(&before, "shop", "lab").ends_with(&both));
    assert!(!absent(&before, "shop", "quite-different").contains("did you mean"));
    let gateway = find::gateway(&before, &ObjectKey::new("shop", "app"), None).unwrap_err();
    assert!(gateway.to_string().ends_with(&format!("did you mean {}?", at_edge("app"))));
    let elsewhere = find::gateway(&before, &at_edge("app"), Some(&"hub".into())).unwrap_err();
    assert!(elsewhere.to_string().starts_with("no gateway is called "), "{elsewhere}");

    // What is not listed may have it.
    stage.lost("up", "Connector").pass(1_000);
    let unseen = absent(&fleet(&stage), "shop", "quite-different");
    let expected = "(it may be in a cluster that is not fully listed: up: cut)";
    assert!(unseen.ends_with(expected), "{unseen}");
}
