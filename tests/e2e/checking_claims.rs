//! What `throughline check` says beside rights is so: of Karmada, of a Lease that two programs share, of
//! two Leases, of lists that fail.

use std::time::Duration;

use serde_json::{Value, json};

use crate::checking::{ConfigFile, default_namespace, install_loose};
use crate::checking_world::World;
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::follow::Task;
use crate::cluster::objects::{UPSTREAM_STATUS, annotation};
use crate::cluster::rest::{CONNECTORS, LEASES, Resource};
use crate::cluster::rights::{ELECTION, grant, without};
use crate::cluster::testbed::{Cluster, Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::karmada::{CLUSTER_POLICIES, POLICIES};
use crate::leading::short;

const CUSTOMIZATIONS: Resource = Resource {
    group_version: "config.karmada.io/v1alpha1",
    plural: "resourceinterpretercustomizations",
    kind: "ResourceInterpreterCustomization",
};
const WORKS: Resource =
    Resource { group_version: "work.karmada.io/v1alpha1", plural: "works", kind: "Work" };

/// Everything arrives meanwhile: Connectors may have been carried before, or by somebody else.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn karmada_without_a_policy_without_a_retention_rule_and_with_a_failed_work() {
    let world = World::start(&json!({})).await;
    let hub = world.testbed.hub().rest();
    install_loose(hub, POLICIES, "Namespaced").await;
    install_loose(hub, CLUSTER_POLICIES, "Cluster").await;
    let what = "no PropagationPolicy selects Connectors";
    let [create] = &world.finds_only("warning", "carrier", what).await[..] else {
        panic!("one command")
    };
    world.does(create).await;
    world.is_well().await;

    // Karmada carries Gateways, too.
    install_loose(hub, CUSTOMIZATIONS, "Cluster").await;
    let gateways = json!([{ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway" }]);
    let policy = json!({ "metadata": { "name": "gateways" },
        "spec": { "resourceSelectors": gateways, "placement": { "clusterAffinity": {} } } });
    hub.create(CLUSTER_POLICIES, policy).await.unwrap();
    let what = "no retention rule protects the triggers";
    let [retain] = &world.finds_only("warning", "carrier", what).await[..] else {
        panic!("one command")
    };
    world.does(retain).await;
    world.is_well().await;

    install_loose(hub, WORKS, "Namespaced").await;
    let manifest = json!({ "apiVersion": CONNECTORS.group_version, "kind": "Connector" });
    let work = json!({ "metadata": { "namespace": "default", "name": "lab" },
        "spec": { "workload": { "manifests": [manifest] } },
        "status": { "conditions": [{ "type": "Applied", "status": "False",
            "reason": "AppliedFailed", "message": "member is away" }] } });
    hub.create(WORKS, work).await.unwrap();
    let what = "1 Work not applied: default/lab";
    let [_, describe] = &world.finds_only("failed", "carrier", what).await[..] else {
        panic!("two commands")
    };
    assert!(world.does(describe).await.contains("member is away"));
    hub.delete(WORKS, "default", "lab").await.unwrap();
    world.is_well().await;
}

async fn is_mirrored(fleet: &Fleet) -> bool {
    let (namespace, name) = fleet.hub_key(0);
    let found = fleet.hub.read(CONNECTORS, namespace, &name).await.unwrap();
    annotation(&found, UPSTREAM_STATUS).is_some()
}

async fn leads(throughline: &Throughline) -> bool {
    let metrics = throughline.metrics().await;
    metrics
        .iter()
        .any(|(name, value)| name.starts_with("leader_election_master_status") && *value > 0.5)
}

fn with_lease(testbed: &Testbed, namespace: &str, name: &str) -> Setup {
    let lease = json!({ "leaderElection": { "leaseNamespace": namespace, "leaseName": name } });
    Setup::of(testbed).set(&short()).set(&lease)
}

/// Another program renews the Lease that throughline is given: throughline waits for ever. (That such a
/// program waits as well while throughline leads is tested with client-go's election.)
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn two_programs_that_share_a_lease_lock_each_other_out() {
    let testbed = Testbed::start(Topology::Two).await;
    default_namespace(testbed.hub().rest()).await;
    let fleet = Fleet::seed(&testbed, Spec::of(1)).await;
    let hub = testbed.hub().rest().clone();
    let spec = || {
        let now = throughline::clock::wall_clock_now().to_string().replace('Z', "000Z");
        json!({ "holderIdentity": "scheduler-1", "leaseDurationSeconds": 15, "renewTime": now })
    };
    let lease = json!({ "metadata": { "namespace": "default", "name": "shared" }, "spec": spec() });
    hub.create(LEASES, lease).await.unwrap();
    let renewing = Task::spawn(async move {
        loop {
            hub.merge(LEASES, ("default", "shared"), &json!({ "spec": spec() })).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let shared =
        json!({ "leaderElection": { "leaseNamespace": "default", "leaseName": "shared" } });
    let found = ConfigFile::new(&testbed, &shared).check(&[]).await;
    let what = "scheduler-1 holds it";
    found.assert_finds("warning", "leader election", what, "lock each other out");
    found.assert_finds("warning", "leader election", "is not a throughline", "leaseName");

    let locked_out = with_lease(&testbed, "default", "shared").ready().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!leads(&locked_out).await && !is_mirrored(&fleet).await);
    locked_out.stop().await;

    // The remedy.
    let own = with_lease(&testbed, "default", "throughline").ready().await;
    oracle::converges(&testbed).await;
    assert!(leads(&own).await);
    own.stop().await;
    drop(renewing);
}

/// Two instances with a Lease of their own each: both lead, and both write.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn two_leaders_by_two_leases_both_write() {
    let testbed = Testbed::start(Topology::Two).await;
    default_namespace(testbed.hub().rest()).await;
    let fleet = Fleet::seed(&testbed, Spec::of(4)).await;
    let clusters = testbed.clusters.iter().map(Cluster::config_of_admin);
    let admin = json!({ "clusters": clusters.collect::<Vec<_>>() });
    let first = with_lease(&testbed, "default", "first").ready().await;
    let second = with_lease(&testbed, "default", "second").set(&admin).ready().await;
    eventually("both lead and have written", SOON, async || {
        fleet.flip_all(0..4).await.map_err(|refused| refused.to_string())?;
        for instance in [&first, &second] {
            let metrics = instance.metrics().await;
            let series = "throughline_actions_total{verb=\"mirror\",outcome=\"applied\"}";
            let written = metrics.get(series).copied().unwrap_or(0.0);
            let leads = leads(instance).await;
            ensure(leads && written > 0.0, || format!("leads: {leads}, written: {written}"))?;
        }
        Ok(())
    })
    .await;
    first.stop().await;
    second.stop().await;
}

/// Where the Lease is in a cluster that is neither hub nor edge, its Events are a right of their own.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn without_a_right_to_events_changes_of_leadership_are_not_posted() {
    let testbed = Testbed::start(Topology::Three).await;
    let up = testbed.upstream();
    default_namespace(up.rest()).await;
    let config = json!({ "leaderElection": { "enabled": true, "cluster": up.name } });
    let setup = || Setup::of(&testbed).set(&short()).set(&config);
    let posted = async || {
        let events = up.rest().items(crate::cluster::rest::EVENTS).await.unwrap();
        events.iter().filter(|e| e["involvedObject"]["kind"] == "Lease").count()
    };
    grant(up.rest(), &[ELECTION]).await.unwrap();
    without(up.rest(), &[ELECTION], Some(("", "events", "create"))).await;
    let silent = setup().ready().await;
    eventually("it leads", SOON, async || ensure(leads(&silent).await, String::new)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    silent.stop().await;
    assert_eq!(posted().await, 0);

    without(up.rest(), &[ELECTION], None).await;
    let heard = setup().ready().await;
    eventually("it is posted", SOON, async || ensure(posted().await > 0, String::new)).await;
    heard.stop().await;
    let loaded: throughline::config::Config = serde_json::from_value(json!({
        "clusters": [{ "name": "up", "roles": ["upstream"] }, { "name": "hub", "roles": ["hub"] }],
        "leaderElection": { "cluster": "up" } }))
    .unwrap();
    let needed = throughline::check::permissions::required_permissions(&loaded);
    let is_it = |need: &&throughline::check::permissions::RequiredPermission| {
        need.cluster.as_str() == "up" && need.resource == "events" && need.verb == "create"
    };
    let claims: Vec<_> = needed.iter().filter(is_it).map(|need| need.without).collect();
    assert_eq!(claims, ["changes of leadership are not posted as Events of the Lease"]);
}

/// Of a cluster that answers otherwise.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn lists_that_fail_are_named() {
    let testbed = Testbed::start(Topology::Three).await;
    let config = ConfigFile::new(&testbed, &json!({}));
    let fleet = Fleet::seed(&testbed, Spec::of(2)).await;
    let proxy = &testbed.edge().proxy;
    let only = async |what: &str| {
        let found = config.check(&[]).await;
        found.assert_finds("failed", "cluster edge", what, "");
        found.assert_finds("passed", "cluster edge", "answered", "");
        found
    };
    proxy.add(Rule::status(500).method("GET").resource("connectors"));
    let found = only("cannot list connectors.networking.datumapis.com").await;
    found.assert_finds("skipped", "carrier", "not known whether Connectors reach", "");
    proxy.clear();
    proxy.add(Rule::new(Fault::Cut).method("GET").resource("connectors"));
    let found = only("cannot list connectors.networking.datumapis.com").await;
    let remedy = "fix what is reported for the cluster itself";
    found.assert_finds("failed", "carrier", "the Connectors cannot be listed", remedy);
    proxy.clear();
    let found = config.check(&[]).await;
    let problems: Vec<Value> = found.not_passed().into_iter().map(Value::from).collect();
    assert!(!format!("{problems:?}").contains("cannot"), "{problems:#?}");
    drop(fleet);
}
