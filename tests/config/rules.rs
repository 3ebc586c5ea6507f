//! Values of the right type that make no sense, and kubeconfigs without the needed context.

use std::fs;

use serde_json::{Value, json};
use throughline::config::{Overrides, load};

use super::{ONE, assert_refused, assert_warnings, folder, kubeconfig};

#[test]
fn suspicious_values_that_may_be_intended_are_warnings() {
    assert_warnings("fine", ONE, &[]);
    let yaml = "
clusters:
  - {name: a_b, roles: [upstream], kubeconfig: KUBE, context: one}
  - {name: other, roles: [edge], kubeconfig: KUBE, context: one}
touch: {key: networking.datumapis.com/liveness}
mirror: {annotationLimitBytes: 300000}
retry: {outcomeTimeoutMs: 21000}";
    assert_warnings(
        "warnings",
        yaml,
        &[
            "FILE: clusters[0].name: found \"a_b\", but its label at the hub, cluster-a_b, is read as \"a/b\", so no hub object would belong to this upstream",
            "FILE: clusters[1]: uses the same kubeconfig and context as clusters[0]; list one cluster once, with all its roles",
            "FILE: clusters: there is an upstream but no cluster with the role hub: nothing is mirrored",
            "FILE: touch.key: found \"networking.datumapis.com/liveness\"; Envoy Gateway calls its extension servers only for keys with the prefix gateway.envoyproxy.io/, so touches would have no effect",
            "FILE: mirror.annotationLimitBytes: found 300000; API servers accept at most 262144",
            "FILE: retry.outcomeTimeoutMs: found 21000, but the attempts of one action may take 21000 (executor.tries × (timeoutMs + backoffMaxMs)): a slow write would count as lost",
        ],
    );
    // Configurations of older versions are read.
    let queue = format!("{ONE}\nexecutor: {{parallel: 4, queue: 10000}}");
    assert_warnings(
        "queue",
        &queue,
        &[
            "FILE: executor.queue: has no effect: each cluster has a queue of its own, which holds at most one action for each object; remove the key",
        ],
    );
    let hub = "clusters: [{name: hub, roles: [hub], kubeconfig: KUBE}]";
    assert_warnings(
        "hub",
        hub,
        &[
            "FILE: clusters: there is a hub but no cluster with the role upstream: nothing is mirrored",
        ],
    );
    // Without a hub there is no election, so the lease timings do not matter.
    let edge = "executor: {timeoutMs: 14000}\nretry: {outcomeTimeoutMs: 90000}\nclusters: [{name: edge/1, roles: [edge], kubeconfig: KUBE}]";
    assert_warnings("sidecar", edge, &[]);
}

#[test]
fn rules_that_the_long_list_does_not_cover() {
    let key = "accepted: a DNS name, a slash and up to 63 letters, digits, -, _ and .";
    let cases = [
        (
            "mirror: {deferMs: 199}",
            "mirror.deferMs: found 199; accepted: 0, or 200 or more".to_owned(),
        ),
        (
            "mirror: {deferMs: -5}",
            "mirror.deferMs: found -5; accepted: milliseconds, a whole number".to_owned(),
        ),
        (
            "mirror: {deferrablePerSecond: 1001}",
            "mirror.deferrablePerSecond: found 1001; accepted: 0 (no limit) to 1000".to_owned(),
        ),
        (
            "stall: {deferredMs: 4999}",
            "stall.deferredMs: found 4999; accepted: mirror.deferMs (5000) or more".to_owned(),
        ),
        (
            "mirror: {deferMs: 0}\nstall: {deferredMs: 999}",
            "stall.deferredMs: found 999; accepted: 1000 or more".to_owned(),
        ),
        (
            "touch: {key: gateway.envoyproxy.io/a, scope: gateway}\nmirror: {nudgeKey: gateway.envoyproxy.io/a}",
            "mirror.nudgeKey: found \"gateway.envoyproxy.io/a\", which is also touch.key; accepted: another key".to_owned(),
        ),
        (
            "mirror: {nudgeKey: -a.example/b}",
            format!("mirror.nudgeKey: found \"-a.example/b\", which has a prefix that is not a DNS name; {key}"),
        ),
        (
            "touch: {confirmAfterMs: [5, 5]}",
            "touch.confirmAfterMs: found [5, 5]; accepted: increasing times, counted from the touch".to_owned(),
        ),
        (
            "eventLog: {file: FOLDER}",
            "eventLog.file: found \"FOLDER\", which is not a file; accepted: a file in an existing directory".to_owned(),
        ),
        (
            "touch: {edgeScopes: {on: gateway}}",
            "touch.edgeScopes.on: no edge has this name (did you mean one?); accepted: one".to_owned(),
        ),
        (
            "leaderElection: {renewDeadlineMs: 15000}",
            "leaderElection.renewDeadlineMs: found 15000; accepted: less than leaderElection.leaseDurationMs (15000)".to_owned(),
        ),
        (
            "leaderElection: {retryPeriodMs: 5000}",
            "leaderElection.retryPeriodMs: found 5000; accepted: less than half of leaderElection.renewDeadlineMs (10000), so that a failed renewal can be retried".to_owned(),
        ),
        (
            "leaderElection: {retryPeriodMs: 99}",
            "leaderElection.retryPeriodMs: found 99; accepted: 100 or more".to_owned(),
        ),
        (
            "leaderElection: {leaseDurationMs: 601000}",
            "leaderElection.leaseDurationMs: found 601000; accepted: 1000 to 600000, a multiple of 1000".to_owned(),
        ),
        (
            "executor: {timeoutMs: 9637}",
            "leaderElection.leaseDurationMs: found 15000; minus a tenth for clock drift and 9637 for a write in flight (executor.timeoutMs), 3999 remain between renewals; accepted: a duration that leaves 4000 or more, twice leaderElection.retryPeriodMs".to_owned(),
        ),
        (
            "leaderElection: {shards: 0}",
            "leaderElection.shards: found 0; accepted: 1 to 256".to_owned(),
        ),
        (
            "leaderElection: {shards: 8, enabled: false}",
            "leaderElection.shards: found 8 without an election, in which every instance leads everything; accepted: 1, or leaderElection.enabled: true".to_owned(),
        ),
        (
            "leaderElection: {shards: 8, retryPeriodMs: 4000}",
            "leaderElection.leaseDurationMs: found 15000; accepted with several shards: 4 times leaderElection.retryPeriodMs (4000) or more, so that an instance sees in time that others have another number of shards".to_owned(),
        ),
        (
            "leaderElection: {shards: 8, leaseName: a-name-of-more-characters-than-the-value-of-a-label-may-have.com}",
            "leaderElection.leaseName: found \"a-name-of-more-characters-than-the-value-of-a-label-may-have.com\"; accepted with several shards: at most 63 characters, because it is a label of their Leases, too".to_owned(),
        ),
        (
            "leaderElection: {shards: 8}\ntouch: {standInMs: 5000}",
            "touch.standInMs: found 5000; accepted with several shards: less than stall.touchedMs (5000), so that a touch by another instance is not late".to_owned(),
        ),
        (
            "leaderElection: {leaseName: Mine}",
            "leaderElection.leaseName: found \"Mine\"; accepted: a DNS name, such as throughline".to_owned(),
        ),
        (
            "leaderElection: {leaseNamespace: a.b}",
            "leaderElection.leaseNamespace: found \"a.b\"; accepted: a namespace name".to_owned(),
        ),
        (
            "eventLog: {maxBytes: 1000, keepBytes: 999}",
            "eventLog.keepBytes: found 999; accepted: eventLog.maxBytes (1000) or more".to_owned(),
        ),
        ("eventLog: {keepDays: 0}", "eventLog.keepDays: found 0; accepted: 1 or more".to_owned()),
        (
            "orphans: {mode: delete}",
            "orphans.mode: found delete without eventLog.file: no route is deleted that is not recorded first; accepted: report, off, or delete with eventLog.file".to_owned(),
        ),
        (
            "leaderElection: {cluster: on}",
            "leaderElection.cluster: found \"on\", but no cluster has this name; accepted: one".to_owned(),
        ),
    ];
    for (yaml, expected) in cases {
        let yaml = format!("{ONE}\n{yaml}");
        assert_refused("rules", &yaml, &Overrides::default(), &[&format!("FILE: {expected}")]);
    }
    let alone =
        "clusters: [{name: a, roles: [upstream], kubeconfig: KUBE}]\ntouch: {scope: gatewayClass}";
    assert_warnings(
        "alone",
        alone,
        &[
            "FILE: clusters: upstream is the only role, so nothing is ever written: mirroring needs a hub, touching needs an edge",
            "FILE: touch.scope: gatewayClass has no effect: no cluster has the role edge",
        ],
    );
}

#[test]
fn shards_that_have_no_effect_or_many_requests_are_warnings() {
    assert_warnings("shards", &format!("{ONE}\nleaderElection: {{shards: 41}}"), &[]);
    assert_warnings(
        "many shards",
        &format!("{ONE}\nleaderElection: {{shards: 42}}"),
        &[
            "FILE: leaderElection.shards: found 42, which makes 21 writes to Leases a second (leaderElection.retryPeriodMs: 2000); about four shards for each instance suffice",
        ],
    );
    let edge = "clusters: [{name: edge, roles: [edge], kubeconfig: KUBE}]";
    assert_warnings(
        "no hub",
        &format!("{edge}\nleaderElection: {{shards: 8}}"),
        &["FILE: leaderElection.shards: 8 has no effect: no cluster has the role hub"],
    );
    // What decides nothing with one shard is not looked at.
    assert_warnings("one shard", &format!("{ONE}\ntouch: {{standInMs: 5000}}"), &[]);
}

#[test]
fn a_missing_context_lists_the_contexts_of_the_kubeconfig() {
    let folder = folder("contexts");
    let path = kubeconfig(&folder, &["one", "two"]);
    let with = |change: fn(&mut Value)| {
        let mut content: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut content);
        let changed = folder.join("changed");
        fs::write(&changed, content.to_string()).unwrap();
        let flags = Overrides { kubeconfig: Some(changed.clone()), ..Overrides::default() };
        let error = load(None, &flags).unwrap_err().to_string();
        error.replace(&changed.display().to_string(), "KUBE")
    };
    let none = with(|kube| kube["current-context"] = Value::Null);
    assert_eq!(
        none,
        "defaults: clusters[0].context: not set, and KUBE has no current context; accepted from KUBE: one, two"
    );
    let lacks = with(|kube| kube["current-context"] = "six".into());
    assert_eq!(
        lacks,
        "--kubeconfig KUBE: clusters[0].kubeconfig: the current context of KUBE is \"six\", which it does not define; accepted from KUBE: one, two"
    );
    let empty = with(|kube| kube["contexts"] = json!([]));
    assert_eq!(
        empty,
        "--kubeconfig KUBE: clusters[0].kubeconfig: the current context of KUBE is \"one\", which it does not define; KUBE has no contexts"
    );
}

/// A kubeconfig holds credentials, so its content must not appear in an error.
#[test]
fn errors_about_a_broken_kubeconfig_do_not_quote_it() {
    let folder = folder("secret");
    let path = folder.join("broken");
    for content in ["users: [{name: u, user: {token: s3cret", "users: {token: s3cret}", "s3cret"] {
        fs::write(&path, content).unwrap();
        let flags = Overrides { kubeconfig: Some(path.clone()), ..Overrides::default() };
        let error = load(None, &flags).unwrap_err().to_string();
        assert!(error.contains("which is not a valid kubeconfig (line 1, column "), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
