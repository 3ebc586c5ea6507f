//! Every permission in `deploy/rbac` is needed: without any one verb, a request is refused that is
//! allowed with it. (All other tests show that none is missing.)

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::apiserver::{THROUGHLINE, client};
use crate::cluster::faults::Rule;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::{route, with_upstream_labels};
use crate::cluster::rest::{CLUSTER_ROLES, LEASES, ROLES, ROUTES, Resource, Rest};
use crate::cluster::rights::{
    DELETING, Permission, SHARDS, documents, except, folders, grant, texts,
};
use crate::cluster::testbed::{Cluster, Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::leading::{LEASE, short};
use crate::rights_claims;

const REVIEWS: Resource = Resource {
    group_version: "authorization.k8s.io/v1",
    plural: "selfsubjectaccessreviews",
    kind: "SelfSubjectAccessReview",
};

/// A cluster, and the roles (not their bindings) that the tests' user has there.
struct ClusterRoles<'a> {
    cluster: &'a Cluster,
    ours: Rest,
    roles: Vec<(Resource, Value)>,
}

impl<'a> ClusterRoles<'a> {
    /// Also grants these.
    async fn new(cluster: &'a Cluster, more: &[&'static str]) -> Self {
        grant(cluster.rest(), more).await.unwrap();
        let folders = [folders(cluster.roles), more.to_vec()].concat();
        let mut roles = Vec::new();
        for role in folders.into_iter().flat_map(documents) {
            let Some(resource) =
                [CLUSTER_ROLES, ROLES].into_iter().find(|r| role["kind"] == r.kind)
            else {
                continue;
            };
            let namespace = role["metadata"]["namespace"].as_str().map_or("", |_| LEASE.0);
            let name = role["metadata"]["name"].as_str().unwrap();
            let role = cluster.rest().read(resource, namespace, name).await.unwrap();
            roles.push((resource, role));
        }
        let ours = Rest(client(&cluster.server.kubeconfig(THROUGHLINE)).await);
        Self { cluster, ours, roles }
    }

    fn permissions(&self) -> BTreeSet<Permission> {
        let rules = self.roles.iter().flat_map(|(_, role)| role["rules"].as_array().unwrap());
        let mut permissions = BTreeSet::new();
        for rule in rules {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        permissions.insert((group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
        permissions
    }

    /// Revokes one permission in all roles, or grants it again; waits until that is in effect.
    async fn set_revoked(&self, permission: &Permission, revoked: bool) {
        let (group, resource, verb) = permission;
        for (kind, role) in &self.roles {
            let mut role = role.clone();
            role["metadata"]["resourceVersion"].take();
            if revoked {
                role["rules"] = role["rules"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|rule| except(rule, permission))
                    .collect();
            }
            let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
            let name = role["metadata"]["name"].as_str().unwrap();
            let path = format!("{}/{name}", kind.path(namespace));
            self.cluster.rest().replace(&path, &role).await.unwrap();
        }
        let namespace = if resource == "leases" { LEASE.0 } else { "" };
        let wanted = json!({ "group": group, "resource": resource, "verb": verb,
                             "namespace": namespace });
        eventually(&format!("{permission:?} is revoked: {revoked}"), SOON, async || {
            let review = json!({ "spec": { "resourceAttributes": wanted } });
            let answer = self.ours.create(REVIEWS, review).await.map_err(|r| r.to_string())?;
            ensure(answer["status"]["allowed"] == !revoked, || answer["status"].to_string())
        })
        .await;
    }

    /// How many requests that need this permission were refused since the counts were reset.
    fn refused(&self, (_, resource, verb): &Permission) -> u64 {
        let (method, is_watch) = match &**verb {
            "list" | "get" => ("GET", false),
            "watch" => ("GET", true),
            "patch" => ("PATCH", false),
            "create" => ("POST", false),
            "update" => ("PUT", false),
            "delete" => ("DELETE", false),
            verb => panic!("no request needs {verb}"),
        };
        let is_it = |count: &crate::cluster::proxy::Count| {
            (count.code, &*count.method, &*count.resource, count.is_watch)
                == (403, method, &**resource, is_watch)
        };
        let counts = self.cluster.proxy.counts();
        counts.iter().filter(|(count, _)| is_it(count)).map(|(_, n)| n).sum()
    }

    fn any_refused(&self) -> bool {
        self.cluster.proxy.counts().keys().any(|count| count.code == 403)
    }
}

fn setup(testbed: &Testbed) -> Setup {
    Setup::of(testbed).set(&short()).set(&json!({
        "orphans": { "mode": "delete", "minAge": "1s", "settleMs": 500 },
        "mirror": { "absentGraceMs": 500 },
        "watch": { "backoffMaxMs": 1_000, "timeoutMs": 5_000 },
        "stall": { "mirroredMs": 1_000, "touchedMs": 1_000 },
        "executor": { "timeoutMs": 2_000 },
    }))
}

pub(crate) const ORPHAN: &str = "orphan";

/// Creates a route whose Gateway never existed, unless it is there already.
async fn ensure_orphan(testbed: &Testbed, fleet: &Fleet) {
    let (namespace, _) = fleet.upstream_key(0);
    let kind = ("gateway.networking.k8s.io", "HTTPRoute");
    let made = route(fleet.hub_key(0).0, ORPHAN, &["never-was"]);
    let made = with_upstream_labels(made, testbed.upstream().name, kind, (namespace, ORPHAN));
    let made = testbed.hub().rest().create(ROUTES, made).await;
    assert!(made.as_ref().map_or_else(|refused| refused.code == 409, |_| true), "{made:?}");
}

async fn refused_in_metrics(throughline: &Throughline, host: &str) -> bool {
    let metrics = throughline.metrics().await;
    let is_it = |name: &&String| {
        let parts = ["rest_client_requests_total{", "code=\"403\"", &format!("host=\"{host}\"")];
        parts.iter().all(|part| name.contains(part))
    };
    metrics.keys().any(|name| is_it(&name))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn every_permission_is_needed() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec { with_routes: true, ..Spec::of(3) }).await;
    let clusters = [
        ClusterRoles::new(testbed.upstream(), &DELETING[..1]).await,
        ClusterRoles::new(testbed.hub(), &[DELETING[1], SHARDS]).await,
        ClusterRoles::new(testbed.edge(), &[]).await,
    ];

    // With all permissions everything works and nothing is refused.
    ensure_orphan(&testbed, &fleet).await;
    let throughline = setup(&testbed).ready().await;
    oracle::converges(&testbed).await;
    eventually("the orphan is deleted", SOON, async || {
        let found = testbed.hub().rest().read(ROUTES, fleet.hub_key(0).0, ORPHAN).await;
        ensure(found.is_err(), || "it still exists".into())
    })
    .await;
    throughline.stop().await;
    assert!(!clusters.iter().any(ClusterRoles::any_refused));

    for roles in &clusters {
        for permission in &roles.permissions() {
            let kind = format!("{} {} at {}", permission.2, permission.1, roles.cluster.name);
            roles.set_revoked(permission, true).await;
            if permission.1 == "leases" && permission.2 == "create" {
                let _ = testbed.hub().rest().delete(LEASES, LEASE.0, LEASE.1).await;
            }
            let removed = [("get", "connectors"), ("get", "namespaces")];
            let removed = removed.iter().position(|of| *of == (&*permission.2, &*permission.1));
            if let Some(i) = removed.filter(|_| roles.cluster.roles == ["upstream"]) {
                // Before its annotation is removed, it and its namespace are read.
                fleet.delete_upstream(i + 1).await.unwrap();
            }
            testbed.reset_counts();
            ensure_orphan(&testbed, &fleet).await;
            let mut setup = setup(&testbed).provokes(&[
                Cause::LeaseUnusable,
                Cause::NotAnnounced,
                Cause::NotMirrored,
                Cause::PermissionMissing,
                Cause::WriteFailing,
                Cause::WriteRefused,
            ]);
            if permission.1 == "events" {
                setup = setup.set(&json!({ "retry": { "firstMs": 3_000, "maxMs": 3_000 } }));
            }
            if (&*permission.1, &*permission.2) == ("leases", "list") {
                // Only several shards ask for the group.
                setup =
                    setup.set(&json!({ "leaderElection": { "shards": 2 } })).pod("throughline-0");
            }
            let throughline = setup.start().await;
            let rounds = Cell::new(0);
            // An Event is patched a minute after it was posted.
            let within = if permission.1 == "events" { 2 * SOON } else { SOON };
            eventually(&format!("without {kind}, it is refused"), within, async || {
                if permission.1 == "events" {
                    // Writes fail, which a new leader posts after 10 s. A minute later the Event is patched,
                    // because they fail otherwise.
                    let code = if rounds.replace(rounds.get() + 1) < 4 { 503 } else { 500 };
                    roles.cluster.proxy.clear();
                    for resource in ["connectors", "gateways"] {
                        let failing = Rule::status(code).method("PATCH").resource(resource);
                        roles.cluster.proxy.add(failing);
                    }
                }
                // A new value each time: one left over from the round before would not be a change.
                fleet.move_node(0).await.map_err(|refused| refused.to_string())?;
                if permission.1 == "events" {
                    tokio::time::sleep(Duration::from_secs(6)).await;
                }
                ensure(roles.refused(permission) > 0, || "not yet".to_owned())
            })
            .await;
            // The refusal is logged. That of an Event is only counted.
            eventually(&format!("without {kind}, the refusal is reported"), SOON, async || {
                let counted = refused_in_metrics(&throughline, roles.cluster.name).await;
                let logged = throughline.logged("403") || permission.1 == "events";
                ensure(counted && logged, || format!("counted: {counted}, logged: {logged}"))
            })
            .await;
            let config = throughline.config();
            rights_claims::hold(&testbed, &fleet, &config, (roles.cluster.name, permission)).await;
            let elsewhere = clusters.iter().filter(|p| p.cluster.name != roles.cluster.name);
            assert!(!elsewhere.into_iter().any(ClusterRoles::any_refused), "{kind}");
            roles.set_revoked(permission, false).await;
            roles.cluster.proxy.clear();
            throughline.stop().await;
            eprintln!("needed: {kind}");
        }
    }
}
