//! Instances that share the upstreams out among them by shards, on real API servers. What must always
//! hold: only the holder of an upstream's shard writes for it; and after any of them is lost, every change
//! is mirrored within a lease, a retry and a list.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::absence::ask;
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::Spec;
use crate::cluster::rest::LEASES;
use crate::cluster::testbed::{Cluster, Topology};
use crate::cluster::{SOON, ensure, eventually, oracle, rights};
use crate::leading::{ElectionTest, LEASE, print_elapsed, short};

const SHARDS: usize = 8;
const CONNECTORS: usize = 24;

/// Leases last long enough that none expires because the machine is busy: each instance renews its own and
/// those of its shards, and moves are counted here.
fn sharing() -> Value {
    let mut more = short();
    let election = &mut more["leaderElection"];
    election["shards"] = json!(SHARDS);
    election["leaseDuration"] = json!("10s");
    election["renewDeadlineMs"] = json!(6_000);
    more
}

/// Twelve upstreams with two connectors each, and so many instances, of which each holds its share.
async fn shared_by(instances: usize) -> ElectionTest {
    let spec = Spec { per_namespace: 2, upstreams: CONNECTORS / 2, ..Spec::of(CONNECTORS) };
    let mut election = ElectionTest::with_fleet(Topology::Two, spec, sharing()).await;
    rights::grant(election.testbed.hub().rest(), &["lease-shards"]).await.unwrap();
    for _ in 0..instances {
        election.join().await;
    }
    is_even(&election, &(0..instances).collect::<Vec<_>>()).await;
    oracle::converges(&election.testbed).await;
    election
}

/// The holder of each shard that has one.
async fn holders(election: &ElectionTest) -> BTreeMap<usize, String> {
    let leases = election.testbed.hub().rest().items(LEASES).await.unwrap();
    let holder = |lease: &Value| {
        let name = lease["metadata"]["name"].as_str()?;
        let shard = name.strip_prefix(LEASE.1)?.strip_prefix('-')?.parse().ok()?;
        let holder =
            lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
        Some((shard, holder.to_owned()))
    };
    leases.iter().filter_map(holder).collect()
}

/// Waits until these instances hold all shards, each as many as the others but for one.
async fn is_even(election: &ElectionTest, instances: &[usize]) {
    eventually("every instance has its share", SOON * 2, async || {
        let held = holders(election).await;
        let count = |n: &usize| {
            let identity = &election.instances[*n].identity;
            held.values().filter(|holder| *holder == identity).count()
        };
        let counts: Vec<_> = instances.iter().map(count).collect();
        let (most, least) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
        let is_even = counts.iter().sum::<usize>() == SHARDS && most - least <= 1;
        ensure(is_even, || format!("{counts:?}: {held:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn instances_that_stop_hand_their_shards_over_and_a_rollout_of_all_moves_each_once() {
    let mut election = shared_by(3).await;
    let before = holders(&election).await;
    // All new ones come before the first old one goes, as with maxSurge 100 %.
    for _ in 0..3 {
        election.join().await;
    }
    election.fleet.flip_all(0..CONNECTORS).await.unwrap();
    let began = Instant::now();
    for old in 0..3 {
        election.stop(old).await;
    }
    is_even(&election, &[3, 4, 5]).await;
    print_elapsed("three instances replaced by three others", began);
    oracle::converges(&election.testbed).await;
    print_elapsed("converged", began);
    let after = holders(&election).await;
    for shard in 0..SHARDS {
        let mut tenures = election.tenures(&format!("{}-{shard}", LEASE.1));
        // Before, it may have moved until every instance had its share.
        let tenures = tenures.split_off(tenures.iter().position(|h| *h == before[&shard]).unwrap());
        assert_eq!(tenures, [&*before[&shard], &*after[&shard]], "shard {shard}");
    }
    election.only_holders_wrote();
    election.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_shards_of_an_instance_that_is_killed_are_taken_by_the_others() {
    let mut election = shared_by(3).await;
    let began = Instant::now();
    election.kill(0);
    election.fleet.flip_all(0..CONNECTORS).await.unwrap();
    is_even(&election, &[1, 2]).await;
    print_elapsed("its shards were taken after the SIGKILL", began);
    oracle::converges(&election.testbed).await;
    print_elapsed("converged", began);
    // Another one comes, and gets its share.
    election.join().await;
    election.fleet.flip_all(0..CONNECTORS).await.unwrap();
    is_even(&election, &[1, 2, 3]).await;
    print_elapsed("a new instance has its share", began);
    election.fleet.flip_all(0..CONNECTORS).await.unwrap();
    oracle::converges(&election.testbed).await;
    commands_tell_who_holds_the_shards(&election).await;
    election.only_holders_wrote();
    election.end().await;
}

/// Without an instance, `status` reads the Leases; and `check` takes none of them for another throughline's.
async fn commands_tell_who_holds_the_shards(election: &ElectionTest) {
    // With an administrator's rights, so that the Leases of all namespaces can be listed.
    let clusters = election.testbed.clusters.iter().map(Cluster::config_of_admin);
    let mut config = sharing();
    config["clusters"] = clusters.collect();
    let file = election.testbed.hub().server.folder().join("shards.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let told = |words: &[&str]| -> Value {
        let (_, said) = ask(&[words, &["--config", file, "--output", "json"]].concat());
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
    };
    // A shard may change hands between the two reads.
    eventually("status shows who holds each shard", SOON, async || {
        let status = told(&["status"]);
        let shards = status["shards"].as_array().unwrap().iter().enumerate();
        let shown = shards.filter_map(|(n, shard)| Some((n, shard["holder"].as_str()?.to_owned())));
        let (shown, held) = (shown.collect::<BTreeMap<_, _>>(), holders(election).await);
        ensure(shown == held, || format!("{shown:?}, but {held:?}"))
    })
    .await;
    let check = told(&["check"]).to_string();
    assert!(check.contains("second-writer"), "{check}");
    assert!(!check.contains("another throughline"), "{check}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_instance_cut_off_from_the_leases_leads_nothing_until_it_is_back() {
    let election = shared_by(3).await;
    let cut_off = election.instances[0].hub();
    let rule = cut_off.add(Rule::new(Fault::Cut).resource("leases"));
    let began = Instant::now();
    election.fleet.flip_all(0..CONNECTORS).await.unwrap();
    is_even(&election, &[1, 2]).await;
    print_elapsed("its shards were taken after it was cut off", began);
    oracle::converges(&election.testbed).await;
    print_elapsed("converged", began);
    assert!(!election.leaders().await.contains(&0));
    cut_off.remove(rule);
    election.fleet.flip_all(0..CONNECTORS).await.unwrap();
    is_even(&election, &[0, 1, 2]).await;
    print_elapsed("it has its share again", began);
    election.fleet.flip_all(0..CONNECTORS).await.unwrap();
    oracle::converges(&election.testbed).await;
    election.only_holders_wrote();
    election.end().await;
}

/// An instance that has another number of shards would hold an upstream by another Lease.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn instances_with_another_number_of_shards_wait_for_each_other() {
    let mut election = shared_by(2).await;
    for shards in [1, 4] {
        election.set(json!({ "leaderElection": { "shards": shards } }));
        let other = election.join().await;
        election.fleet.flip_all(0..CONNECTORS).await.unwrap();
        oracle::converges(&election.testbed).await;
        // Longer than a lease.
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert!(!election.leaders().await.contains(&other), "with {shards} shards");
        election.stop(other).await;
    }
    election.set(json!({ "leaderElection": { "shards": SHARDS } }));
    let other = election.join().await;
    election.stop(0).await;
    election.kill(1);
    is_even(&election, &[other]).await;
    election.only_holders_wrote();
    election.end().await;
}
