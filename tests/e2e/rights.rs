//! No right in `deploy/rbac` is superfluous: each verb is taken away in turn, and something is refused
//! that was not refused before. (That none is missing is what all the other tests show.)

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::apiserver::{THROUGHLINE, client};
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::{replica_of, route};
use crate::cluster::rest::{CLUSTER_ROLES, LEASES, ROLES, ROUTES, Resource, Rest};
use crate::cluster::rights::{DELETING, Right, documents, except, folders, grant, texts};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::world::{Cluster, Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::leading::{LEASE, short};

const REVIEWS: Resource = Resource {
    group_version: "authorization.k8s.io/v1",
    plural: "selfsubjectaccessreviews",
    kind: "SelfSubjectAccessReview",
};

/// A cluster, and the roles (not their bindings) that the tests' user has there.
struct Place<'a> {
    cluster: &'a Cluster,
    ours: Rest,
    roles: Vec<(Resource, Value)>,
}

impl<'a> Place<'a> {
    /// Gives the right to delete orphans, too.
    async fn new(cluster: &'a Cluster, deleting: &[&'static str]) -> Self {
        grant(cluster.rest(), deleting).await.unwrap();
        let folders = [folders(cluster.roles), deleting.to_vec()].concat();
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

    fn rights(&self) -> BTreeSet<Right> {
        let rules = self.roles.iter().flat_map(|(_, role)| role["rules"].as_array().unwrap());
        let mut rights = BTreeSet::new();
        for rule in rules {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        rights.insert((group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
        rights
    }

    /// Takes one right away in all roles (`None`: gives all back), and waits until that is in effect.
    async fn without(&self, right: &Right, taken: bool) {
        let (group, resource, verb) = right;
        for (kind, role) in &self.roles {
            let mut role = role.clone();
            role["metadata"]["resourceVersion"].take();
            if taken {
                role["rules"] = role["rules"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|rule| except(rule, right))
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
        eventually(&format!("{right:?} is taken away: {taken}"), SOON, async || {
            let review = json!({ "spec": { "resourceAttributes": wanted } });
            let answer = self.ours.create(REVIEWS, review).await.map_err(|r| r.to_string())?;
            ensure(answer["status"]["allowed"] == !taken, || answer["status"].to_string())
        })
        .await;
    }

    /// How many requests that need this right were refused since the proxy was told to forget.
    fn refused(&self, (_, resource, verb): &Right) -> u64 {
        let (method, is_watch) = match &**verb {
            "list" | "get" => ("GET", false),
            "watch" => ("GET", true),
            "patch" => ("PATCH", false),
            "create" => ("POST", false),
            "update" => ("PUT", false),
            "delete" => ("DELETE", false),
            verb => panic!("what asks for {verb}?"),
        };
        let is_it = |count: &crate::cluster::proxy::Count| {
            (count.code, &*count.method, &*count.resource, count.is_watch)
                == (403, method, &**resource, is_watch)
        };
        let counts = self.cluster.proxy.counts();
        counts.iter().filter(|(count, _)| is_it(count)).map(|(_, n)| n).sum()
    }

    fn refused_at_all(&self) -> bool {
        self.cluster.proxy.counts().keys().any(|count| count.code == 403)
    }
}

fn setup(world: &World) -> Setup {
    Setup::of(world).set(&short()).set(&json!({
        "orphans": { "mode": "delete", "minAgeMs": 1_000, "settleMs": 500 },
        "watch": { "backoffMaxMs": 1_000, "timeoutMs": 5_000 },
        "stall": { "mirroredMs": 1_000, "touchedMs": 1_000 },
        "executor": { "timeoutMs": 2_000 },
    }))
}

const ORPHAN: &str = "orphan";

/// A route whose Gateway never was, unless there is one already.
async fn orphan(world: &World, fleet: &Fleet) {
    let (source, _) = fleet.key(0);
    let kind = ("gateway.networking.k8s.io", "HTTPRoute");
    let made = route(fleet.replica(0).0, ORPHAN, &["never-was"]);
    let made = replica_of(made, world.upstream().name, kind, (source, ORPHAN));
    let made = world.hub().rest().create(ROUTES, made).await;
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
async fn no_right_is_superfluous() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec { with_routes: true, ..Spec::of(1) }).await;
    let places = [
        Place::new(world.upstream(), &DELETING[..1]).await,
        Place::new(world.hub(), &DELETING[1..]).await,
        Place::new(world.edge(), &[]).await,
    ];

    // With all of them, all is done and nothing is refused.
    orphan(&world, &fleet).await;
    let throughline = setup(&world).ready().await;
    oracle::converges(&world).await;
    eventually("the orphan is deleted", SOON, async || {
        let found = world.hub().rest().read(ROUTES, fleet.replica(0).0, ORPHAN).await;
        ensure(found.is_err(), || "it stands".into())
    })
    .await;
    throughline.stop().await;
    assert!(!places.iter().any(Place::refused_at_all));

    for place in &places {
        for right in &place.rights() {
            let what = format!("{} {} at {}", right.2, right.1, place.cluster.name);
            place.without(right, true).await;
            if right.1 == "leases" && right.2 == "create" {
                let _ = world.hub().rest().delete(LEASES, LEASE.0, LEASE.1).await;
            }
            if right.1 == "events" {
                // Every change is late, and told; the next time it is the same Event.
                let late = Rule::new(Fault::Delay(Duration::from_millis(1_500))).method("PATCH");
                place.cluster.proxy.add(late.clone().resource("connectors"));
                place.cluster.proxy.add(late.resource("gateways"));
            }
            world.forget();
            orphan(&world, &fleet).await;
            let throughline = setup(&world).allow("403").allow("mend the permission").start().await;
            eventually(&format!("without {what}, it is refused"), SOON, async || {
                // Never seen before: what was not carried in the round before is no help.
                fleet.move_node(0).await.map_err(|refused| refused.to_string())?;
                if right.1 == "events" {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                ensure(place.refused(right) > 0, || "not yet".to_owned())
            })
            .await;
            // A person is told: Events are not worth a word, but they are counted.
            eventually(&format!("without {what}, it is told"), SOON, async || {
                let counted = refused_in_metrics(&throughline, place.cluster.name).await;
                let said = throughline.logged("403") || right.1 == "events";
                ensure(counted && said, || format!("counted: {counted}, said: {said}"))
            })
            .await;
            let elsewhere = places.iter().filter(|p| p.cluster.name != place.cluster.name);
            assert!(!elsewhere.into_iter().any(Place::refused_at_all), "{what}");
            place.without(right, false).await;
            place.cluster.proxy.clear();
            throughline.stop().await;
            eprintln!("needed: {what}");
        }
    }
}
