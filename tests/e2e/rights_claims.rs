//! What `throughline check` says about a missing permission is what happens without it.

use throughline::check::permissions::{RequiredPermission, required_permissions};
use throughline::config::Config;

use crate::cluster::objects::node_id;
use crate::cluster::proxy::Write;
use crate::cluster::rest::ROUTES;
use crate::cluster::rights::Permission;
use crate::prelude::*;
use crate::rights::ORPHAN;

/// Asserts each claim about this permission, which has been refused since the counts were reset, while
/// connector 0 moved from node to node.
///
/// # Panics
/// A claim is wrong, or none of those below.
pub(crate) async fn hold(
    testbed: &Testbed,
    fleet: &Fleet,
    config: &Value,
    (cluster, permission): (&str, &Permission),
) {
    let config: Config = serde_json::from_value(config.clone()).unwrap();
    let (group, plural, verb) = permission;
    let resource = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
    let is_it = |need: &&RequiredPermission| {
        (need.cluster.as_str(), need.resource, need.verb) == (cluster, &*resource, &**verb)
    };
    let needed = required_permissions(&config);
    let claims: Vec<_> = needed.iter().filter(is_it).map(|need| need.without).collect();
    assert!(!claims.is_empty(), "check does not ask for {verb} {resource} at {cluster}");
    for claim in claims {
        println!("without {verb} {resource} at {cluster}: {claim}");
        holds(testbed, fleet, claim, (plural, cluster)).await;
    }
}

async fn holds(testbed: &Testbed, fleet: &Fleet, claim: &str, (plural, cluster): (&str, &str)) {
    let writes = testbed.writes();
    let done = |plural: &str| {
        let is_it = |write: &&Write| write.target.resource == plural && write.code < 300;
        writes.iter().filter(is_it).map(|w| w.target.name.clone()).collect::<Vec<_>>()
    };
    let (namespace, _) = fleet.hub_key(0);
    let now = node_id(fleet.node(0));
    let is_new = |status: Option<String>| status.is_some_and(|said| said.contains(&now));
    let is_new_at_hub = is_new(fleet.status_at_hub(0).await);
    match claim {
        "no status is mirrored, and the edges keep the last one they got" => {
            assert_eq!(done("connectors"), [""; 0]);
            assert!(!is_new_at_hub && !is_new(fleet.status_at_edge(0).await));
        }
        "no Connector can be proven absent, and its annotation stays at the hub" => {
            let i = if plural == "connectors" { 1 } else { 2 };
            assert!(fleet.status_at_hub(i).await.is_some());
        }
        "no orphaned route is deleted"
        | "no Gateway can be proven absent, and no orphaned route is deleted" => {
            testbed.hub().rest().read(ROUTES, namespace, ORPHAN).await.unwrap();
        }
        "no Gateway is touched, and Envoy Gateway keeps its old configuration" => {
            assert_eq!(done("gateways"), [""; 0]);
        }
        "no Kubernetes Events are posted" | "an Event that happens again is not counted up" => {
            let verb = if claim.starts_with("no ") { "POST" } else { "PATCH" };
            let refused = testbed.events();
            let refused: Vec<_> = refused.iter().filter(|w| w.code == 403).collect();
            assert!(!refused.is_empty() && refused.iter().all(|w| w.target.method == verb));
        }
        "no leader is elected, and nothing is mirrored" => {
            assert_eq!(done("connectors"), [""; 0]);
            assert!(!is_new_at_hub);
        }
        "throughline does not see these objects, and does nothing that depends on them" => {
            match (plural, cluster) {
                ("connectors", _) => stays_behind(testbed).await,
                ("gateways" | "httpproxies", "edge") => assert_eq!(done("gateways"), [""; 0]),
                ("gateways" | "namespaces", "up") | ("httproutes", "hub") => {
                    testbed.hub().rest().read(ROUTES, namespace, ORPHAN).await.unwrap();
                }
                // What depends on them is tested where the annotations that allow removals are.
                ("namespaces", "hub") => {}
                other => panic!("nobody says what depends on {other:?}"),
            }
        }
        "throughline does not see how these objects change" => {
            if plural == "connectors" {
                stays_behind(testbed).await;
            }
        }
        other => panic!("a claim without a test: {other}"),
    }
}

/// The change that was made last does not come to the gateways: not soon, and not later.
async fn stays_behind(testbed: &Testbed) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    oracle::converged(testbed).await.unwrap_err();
}
