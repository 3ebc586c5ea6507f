use serde_json::{Value, json};

use super::*;

fn config(value: Value) -> Config {
    serde_json::from_value(value).unwrap()
}

/// `name=role+role[@context]`, several of them.
fn clusters(specs: &[&str]) -> Config {
    let cluster = |spec: &&str| {
        let (name, rest) = spec.split_once('=').unwrap();
        let (roles, context) = rest.split_once('@').unwrap_or((rest, "one"));
        let roles: Vec<_> = roles.split('+').collect();
        json!({ "name": name, "roles": roles, "kubeconfig": "/k", "context": context })
    };
    config(json!({ "clusters": specs.iter().map(cluster).collect::<Vec<_>>() }))
}

fn plan(before: &Config, after: Config) -> ReloadedConfig {
    ReloadedConfig::new(before, before.election_cluster(), after)
}

fn names(clusters: &[ClusterConfig]) -> Vec<&str> {
    clusters.iter().map(|cluster| cluster.name.as_str()).collect()
}

#[test]
fn clusters_join_leave_change_roles_and_are_reached_in_another_way() {
    let before = clusters(&["hub=hub", "a=upstream", "b=upstream+edge", "c=edge", "d=edge"]);
    let after =
        clusters(&["hub=hub", "e=edge", "b=edge+upstream", "c=edge+upstream", "d=edge@two"]);
    let plan = plan(&before, after);
    assert_eq!(names(&plan.joined), ["e", "c"]);
    assert_eq!(plan.left, ["a".into(), "c".into()]);
    assert_eq!(names(&plan.replaced), ["d"]);
    assert_eq!(plan.config.clusters[2].roles, [Role::Upstream, Role::Edge], "as they were");
    assert_eq!(
        plan.describe(),
        "2 clusters joined (e, c), 2 left (a, c), 1 reached in another way (d)"
    );
}

#[test]
fn the_number_of_shards_waits_for_a_restart_and_stand_ins_do_not() {
    let before = clusters(&["hub=hub", "a=upstream"]);
    let mut after = before.clone();
    after.leader_election.shards = 8;
    after.touch.stand_in_ms = 5_000;
    let plan = plan(&before, after);
    assert_eq!(plan.describe(), "settings changed: touch.standInMs");
    assert_eq!(plan.waiting, ["leaderElection.shards"]);
    assert_eq!(plan.config.leader_election.shards, 1);
    assert_eq!(plan.config.touch.stand_in_ms, 5_000);
}

/// Without an election nobody else would do what this instance leaves.
#[test]
fn only_an_election_shares_upstreams_out() {
    let mut eight = clusters(&["hub=hub", "a=upstream"]);
    eight.leader_election.shards = 8;
    assert_eq!(eight.settings().shards.count(), 8);
    let dry = Config { dry_run: true, ..eight.clone() };
    assert!(dry.settings().shards.is_one());
    let without_hub = Config { clusters: clusters(&["a=upstream", "e=edge"]).clusters, ..eight };
    assert!(without_hub.settings().shards.is_one());
}

#[test]
fn settings_take_effect_and_other_keys_wait_for_a_restart() {
    let before = clusters(&["hub=hub", "a=upstream"]);
    let mut after = before.clone();
    after.touch.window_ms = 7;
    after
        .touch
        .edge_scopes
        .insert("a".into(), crate::core::contract::settings::TouchScope::Gateway);
    after.log.level = "debug".to_owned();
    after.log.format = super::super::LogFormat::Text;
    after.shutdown.grace_ms = 5;
    after.watch.page_size = 3;
    after.orphans.mode = OrphanMode::Off;
    after.discovery.milo = Some(super::super::MiloConfig::default());
    after.leader_election.lease_name = "other".to_owned();
    after.leader_election.shards = 4;
    after.touch.stand_in_ms = 8;
    let plan = plan(&before, after.clone());
    assert_eq!(
        plan.describe(),
        "settings changed: log.level, shutdown.graceMs, touch.edgeScopes.a, touch.standInMs, touch.windowMs"
    );
    assert_eq!(
        plan.waiting,
        [
            "discovery.milo",
            "leaderElection.leaseName",
            "leaderElection.shards",
            "log.format",
            "orphans.mode",
            "watch.pageSize"
        ]
    );
    let in_force = Config {
        touch: after.touch,
        shutdown: after.shutdown,
        log: super::super::LogConfig { level: "debug".to_owned(), ..before.log.clone() },
        ..before
    };
    assert_eq!(plan.config, in_force);
}

#[test]
fn no_route_is_deleted_by_a_run_without_an_event_log() {
    let before = clusters(&["hub=hub"]);
    let mut after = before.clone();
    after.orphans.mode = OrphanMode::Delete;
    after.event_log.file = Some("/log".into());
    let plan = plan(&before, after);
    assert_eq!(plan.waiting, ["eventLog.file", "orphans.mode"]);
    assert!(plan.is_empty());
    assert_eq!(plan.config, before);
}

#[test]
fn the_cluster_of_the_lease_stays_reached_as_it_was() {
    let before = clusters(&["hub=hub", "a=upstream"]);
    let found = plan(&before, clusters(&["hub=hub@two", "a=upstream@two"]));
    assert_eq!(names(&found.replaced), ["a"]);
    assert_eq!(found.waiting, ["the connection of hub, which holds the Lease"]);
    assert_eq!(found.config.clusters[0], before.clusters[0]);

    let found = plan(&before, clusters(&["new=hub", "a=upstream"]));
    assert_eq!(found.waiting, ["the Lease, which stays in hub"]);

    let election = json!({ "enabled": false });
    let alone = |mut config: Config| {
        config.leader_election = serde_json::from_value(election.clone()).unwrap();
        config
    };
    let found = plan(&alone(before), alone(clusters(&["hub=hub@two", "a=upstream"])));
    assert_eq!((names(&found.replaced), found.waiting), (vec!["hub"], vec![]));
}

#[test]
fn a_file_alone_may_not_make_the_fleet_leave() {
    let fleet = ["hub=hub", "a=upstream", "b=upstream", "c=edge", "d=edge", "e=edge"];
    let before = clusters(&fleet);
    let harm = |specs: &[&str]| plan(&before, clusters(specs)).harm(&before);
    assert_eq!(harm(&fleet), None);
    assert_eq!(harm(&fleet[..4]), None, "a third");
    assert_eq!(
        harm(&fleet[..3]).as_deref(),
        Some("it takes away 3 of 6 clusters, or roles of them: c, d, e")
    );
    let moved = ["hub=hub", "a=edge", "b=edge", "c=upstream", "d=edge", "e=edge"];
    assert_eq!(
        harm(&moved).as_deref(),
        Some("it takes away 3 of 6 clusters, or roles of them: a, b, c")
    );
    assert_eq!(harm(&fleet[1..]).as_deref(), Some("it takes away the hub, hub"));
    let other_hub = ["hub=edge", "a=upstream+hub", "b=upstream", "c=edge", "d=edge", "e=edge"];
    assert_eq!(harm(&other_hub).as_deref(), Some("it takes away the hub, hub"));

    // One of two or three may leave.
    let few = clusters(&["a=upstream", "b=edge"]);
    assert_eq!(plan(&few, clusters(&["a=upstream"])).harm(&few), None);

    // What an empty file means.
    let local = json!({ "name": LOCAL_CLUSTER, "roles": ["upstream", "hub", "edge"] });
    let empty = config(json!({ "clusters": [local] }));
    assert_eq!(
        plan(&few, empty.clone()).harm(&few).as_deref(),
        Some(
            "it names no cluster, so that the 2 clusters in force would give way to the default \
             one, local"
        )
    );
    assert_eq!(plan(&empty, empty.clone()).harm(&empty), None);
}

#[test]
fn long_lists_are_cut() {
    let many: Vec<_> = (0..30).map(|i| format!("e{i}=edge")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let before = clusters(&["e0=edge"]);
    let text = plan(&before, clusters(&many)).describe();
    assert!(text.starts_with("29 clusters joined (e1, e2, "), "{text}");
    assert!(text.ends_with(", e20 and 9 more)"), "{text}");
}
