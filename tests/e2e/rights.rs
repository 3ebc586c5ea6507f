//! Every permission in `deploy/rbac` is needed: without any one verb, a request is refused that is
//! allowed with it. (All other tests show that none is missing.)

use std::collections::BTreeSet;

use throughline::check::permissions::required_permissions;
use throughline::config::Config;

use crate::cluster::apiserver::client;
use crate::cluster::objects::{node_id, route, with_upstream_labels};
use crate::cluster::rights::{
    DELETING, Permission, SHARDS, documents, folders, grant, permissions_of, without,
};
use crate::leading::{LEASE, short};
use crate::prelude::*;

const REVIEWS: Resource =
    Resource::new("authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview");

/// A cluster, and the folders whose roles the tests' user has there.
struct ClusterRoles<'a> {
    cluster: &'a Cluster,
    ours: Rest,
    folders: Vec<&'static str>,
}

impl<'a> ClusterRoles<'a> {
    /// Also grants these.
    async fn new(cluster: &'a Cluster, more: &[&'static str]) -> Self {
        grant(cluster.rest(), more).await.unwrap();
        let folders = [folders(cluster.roles), more.to_vec()].concat();
        let ours = Rest(client(&cluster.server.kubeconfig(THROUGHLINE)).await);
        Self { cluster, ours, folders }
    }

    fn permissions(&self) -> BTreeSet<Permission> {
        let documents: Vec<_> = self.folders.iter().flat_map(|folder| documents(folder)).collect();
        let rules = documents.iter().filter_map(|document| document["rules"].as_array());
        rules.flatten().flat_map(permissions_of).collect()
    }

    /// Revokes one permission in all roles, or grants it again; waits until that is in effect.
    async fn set_revoked(&self, permission: &Permission, revoked: bool) {
        let (group, resource, verb) = permission;
        let right = revoked.then_some((group.as_str(), resource.as_str(), verb.as_str()));
        without(self.cluster.rest(), &self.folders, right).await;
        let namespace = if resource == "leases" { LEASE.0 } else { "" };
        let wanted = json!({ "group": group, "resource": resource, "verb": verb,
                             "namespace": namespace });
        becomes(&format!("{permission:?} is allowed"), json!(!revoked), async || {
            let review = json!({ "spec": { "resourceAttributes": wanted } });
            self.ours.create(REVIEWS, review).await.unwrap()["status"]["allowed"].take()
        })
        .await;
    }

    /// How many requests that need this permission were refused since the counts were reset.
    fn refused(&self, (_, resource, verb): &Permission) -> usize {
        let method = match &**verb {
            "list" | "get" | "watch" => "GET",
            "patch" => "PATCH",
            "create" => "POST",
            "update" => "PUT",
            "delete" => "DELETE",
            verb => panic!("no request needs {verb}"),
        };
        self.cluster.proxy.count_if(|Exchange { code, target, .. }| {
            (*code, &*target.method, &*target.resource, target.is_watch)
                == (403, method, &**resource, verb == "watch")
        })
    }

    fn any_refused(&self) -> bool {
        self.cluster.proxy.count_if(|exchange| exchange.code == 403) > 0
    }
}

fn setup(testbed: &Testbed) -> Setup {
    Setup::of(testbed).set(&short()).set(&json!({
        // Six API servers start at once and answer slowly for a while.
        "leaderElection": { "leaseDuration": "10s" },
        "election": { "renewDeadlineMs": 8_000 },
        "orphans": { "mode": "delete", "minAge": "1s", "settleMs": 500 },
        "mirror": { "absentGraceMs": 500 },
        "watch": { "backoffMaxMs": 1_000, "timeoutMs": 5_000 },
        "stall": { "mirroredMs": 1_000, "touchedMs": 1_000 },
        "executor": { "timeoutMs": 2_000 },
    }))
}

const ORPHAN: &str = "orphan";

/// Creates a route whose Gateway never existed, unless it is there already.
async fn ensure_orphan(testbed: &Testbed, fleet: &Fleet) {
    let (namespace, _) = fleet.upstream_key(0);
    let kind = ("gateway.networking.k8s.io", "HTTPRoute");
    let made = route(fleet.hub_key(0).0, ORPHAN, &["never-was"]);
    let made = with_upstream_labels(made, testbed.upstream().name, kind, (namespace, ORPHAN));
    let made = testbed.hub().rest().create(ROUTES, made).await;
    assert!(made.as_ref().map_or_else(|refused| refused.code == 409, |_| true), "{made:?}");
}

/// What works with all permissions, and is then tried without each of some of them.
async fn each_is_needed(is_meant: impl Fn(&Permission) -> bool) {
    let spec = Spec { with_routes: true, ..Spec::of(3) };
    let (testbed, fleet) = seeded(Topology::Three, spec).await;
    let clusters = [
        ClusterRoles::new(testbed.upstream(), &DELETING[..1]).await,
        ClusterRoles::new(testbed.hub(), &[DELETING[1], SHARDS]).await,
        ClusterRoles::new(testbed.edge(), &[]).await,
    ];

    // With all permissions everything works and nothing is refused.
    ensure_orphan(&testbed, &fleet).await;
    let throughline = setup(&testbed).ready().await;
    oracle::converges(&testbed).await;
    until("the orphan is deleted", async || {
        testbed.hub().rest().read(ROUTES, fleet.hub_key(0).0, ORPHAN).await.is_err()
    })
    .await;
    throughline.stop().await;
    assert!(!clusters.iter().any(ClusterRoles::any_refused));

    let permissions: BTreeSet<_> =
        clusters.iter().flat_map(ClusterRoles::permissions).filter(is_meant).collect();
    for permission in &permissions {
        for roles in clusters.iter().filter(|roles| roles.permissions().contains(permission)) {
            is_needed((&testbed, &fleet), permission, &clusters, roles).await;
        }
    }
}

/// Without this permission in a cluster, a run is refused there and in no other one.
async fn is_needed(
    (testbed, fleet): (&Testbed, &Fleet),
    permission: &Permission,
    clusters: &[ClusterRoles<'_>],
    roles: &ClusterRoles<'_>,
) {
    let (name, proxy) = (roles.cluster.name, &roles.cluster.proxy);
    let what = format!("without {} {} at {name}", permission.2, permission.1);
    roles.set_revoked(permission, true).await;
    let is_event = permission.1 == "events";
    let mut setup = setup(testbed).provokes(&[
        Cause::LeaseUnusable,
        Cause::NotAnnounced,
        Cause::NotMirrored,
        Cause::PermissionMissing,
        Cause::WriteFailing,
        Cause::WriteRefused,
    ]);
    match (&*permission.1, &*permission.2) {
        ("leases", "create") => {
            let _ = testbed.hub().rest().delete(LEASES, LEASE.0, LEASE.1).await;
        }
        // Only several shards ask for the group.
        ("leases", "list") => {
            setup = setup.set(&json!({ "leaderElection": { "shards": 2 } })).pod("throughline-0");
        }
        // Before its annotation is removed, a Connector and its namespace are read.
        ("connectors", "get") => fleet.delete_upstream(1).await.unwrap(),
        ("namespaces", "get") => fleet.delete_upstream(2).await.unwrap(),
        ("events", _) => {
            setup = setup.set(&json!({ "retry": { "firstMs": 3_000, "maxMs": 3_000 } }));
        }
        _ => {}
    }
    testbed.reset_counts();
    ensure_orphan(testbed, fleet).await;
    let throughline = setup.start().await;
    // An Event is patched a minute after it was posted.
    let within = if is_event { 2 * SOON } else { SOON };
    eventually(&format!("{what}, it is refused"), within, async || {
        if is_event {
            // Writes fail, which a new leader posts after 10 s. A minute later the Event is patched,
            // because they fail otherwise.
            let is_posted = |event: &Exchange| event.body["reason"] == "WriteFailing";
            let code = if proxy.events().iter().any(is_posted) { 500 } else { 503 };
            proxy.clear();
            for resource in ["connectors", "gateways"] {
                proxy.add(Rule::status(code).method("PATCH").resource(resource));
            }
        }
        // A new value each time: one left over from the round before would not be a change.
        fleet.move_node(0).await.map_err(|refused| refused.to_string())?;
        if is_event {
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
        ensure(roles.refused(permission) > 0, || "not yet".to_owned())
    })
    .await;
    // The refusal is logged. That of an Event is only counted.
    becomes(&format!("{what}, it is counted and logged"), (true, true), async || {
        let parts = ["rest_client_requests_total{", "code=\"403\"", &format!("host={name:?}")];
        let metrics = throughline.metrics().await;
        let counted = metrics.keys().any(|key| parts.iter().all(|part| key.contains(part)));
        (counted, throughline.logged("403") || is_event)
    })
    .await;
    let claims = claims(&throughline.config(), name, permission);
    assert!(!claims.is_empty(), "check does not ask for it: {what}");
    for claim in claims {
        holds(testbed, fleet, claim, (&permission.1, name)).await;
    }
    let mut others = clusters.iter().filter(|of| of.cluster.name != name);
    assert!(!others.any(ClusterRoles::any_refused), "{what}");
    roles.set_revoked(permission, false).await;
    proxy.clear();
    throughline.stop().await;
}

/// Events take a minute each, so they have clusters of their own.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn every_permission_is_needed() {
    let is_event = |permission: &Permission| permission.1 == "events";
    tokio::join!(each_is_needed(is_event), each_is_needed(|permission| !is_event(permission)));
}

/// What `throughline check` claims to happen without this permission in a cluster.
fn claims(config: &Value, cluster: &str, (group, plural, verb): &Permission) -> Vec<&'static str> {
    let resource = format!("{plural}.{group}");
    let it = (resource.trim_end_matches('.'), &**verb);
    let config: Config = serde_json::from_value(config.clone()).unwrap();
    let of = config.clusters.iter().find(|of| of.name.as_str() == cluster).unwrap();
    let mut needed = required_permissions(&config, &of.name, &of.roles, LEASE.0);
    needed.retain(|need| (need.resource, need.verb) == it);
    needed.iter().map(|need| need.without).collect()
}

/// Checks a claim about a permission that has been refused since the counts were reset, while connector 0
/// moved from node to node.
async fn holds(testbed: &Testbed, fleet: &Fleet, claim: &str, (plural, cluster): (&str, &str)) {
    let writes = testbed.writes();
    let none = |plural: &str| assert!(done(&writes, plural).is_empty(), "{claim}: {writes:#?}");
    let (namespace, _) = fleet.hub_key(0);
    let now = node_id(fleet.node(0));
    let is_new = |status: Option<String>| status.is_some_and(|said| said.contains(&now));
    let is_new_at_hub = is_new(fleet.status_at_hub(0).await);
    match claim {
        "no status is mirrored, and the edges keep the last one they got" => {
            none("connectors");
            assert!(!is_new_at_hub && !is_new(fleet.status_at(&fleet.edge, 0).await));
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
            none("gateways");
        }
        "no Kubernetes Events are posted" | "an Event that happens again is not counted up" => {
            let verb = if claim.starts_with("no ") { "POST" } else { "PATCH" };
            let refused = testbed.events();
            let refused: Vec<_> = refused.iter().filter(|w| w.code == 403).collect();
            assert!(!refused.is_empty() && refused.iter().all(|w| w.target.method == verb));
        }
        "no leader is elected, and nothing is mirrored" => {
            none("connectors");
            assert!(!is_new_at_hub);
        }
        "throughline does not see these objects, and does nothing that depends on them" => {
            match (plural, cluster) {
                ("connectors", _) => stays_behind(testbed).await,
                ("gateways" | "httpproxies", "edge") => none("gateways"),
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
