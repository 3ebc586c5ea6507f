//! Values that fit their keys and make no sense; kubeconfigs that are no way to a cluster.

use std::fs;

use serde_json::{Value, json};
use throughline::config::{Overrides, load};

use super::{ONE, folder, kubeconfig, refused, warned};

#[test]
fn what_looks_wrong_and_may_be_meant_is_a_warning() {
    warned("fine", ONE, &[]);
    let yaml = "
clusters:
  - {name: a_b, roles: [upstream], kubeconfig: KUBE, context: one}
  - {name: other, roles: [edge], kubeconfig: KUBE, context: one}
touch: {key: networking.datumapis.com/liveness}
mirror: {annotationLimitBytes: 300000}
retry: {outcomeTimeoutMs: 21000}";
    warned(
        "warnings",
        yaml,
        &[
            "FILE: clusters[0].name: found \"a_b\"; a replica's label would be read as \"a/b\", so that none is of this upstream",
            "FILE: clusters[1]: the way to it is clusters[0]'s; is it the same cluster, and should be listed once with all its roles?",
            "FILE: clusters: upstream and no downstream: there is nowhere to mirror to",
            "FILE: touch.key: found \"networking.datumapis.com/liveness\"; only keys with the prefix gateway.envoyproxy.io/ make Envoy Gateway call its extension servers: touches would heal nothing",
            "FILE: mirror.annotationLimitBytes: found 300000; API servers refuse more than 262144",
            "FILE: retry.outcomeTimeoutMs: found 21000; the tries of one action may take 21000 (executor.tries × (timeoutMs + backoffMaxMs)), and would be counted as lost",
        ],
    );
    let hub = "clusters: [{name: hub, roles: [downstream], kubeconfig: KUBE}]";
    warned("hub", hub, &["FILE: clusters: downstream and no upstream: there is nothing to mirror"]);
    // Where nothing is mirrored nobody is elected, and no lease has to be long enough.
    let edge = "executor: {timeoutMs: 14000}\nretry: {outcomeTimeoutMs: 90000}\nclusters: [{name: edge/1, roles: [edge], kubeconfig: KUBE}]";
    warned("sidecar", edge, &[]);
}

#[test]
fn rules_that_the_long_list_leaves_out() {
    let key = "accepted: a DNS name, a slash and up to 63 letters, digits, -, _ and .";
    let cases = [
        (
            "touch: {key: gateway.envoyproxy.io/a, scope: gateway}\nmirror: {nudgeKey: gateway.envoyproxy.io/a}",
            "mirror.nudgeKey: found \"gateway.envoyproxy.io/a\", which is touch.key; accepted: a key of its own".to_owned(),
        ),
        (
            "mirror: {nudgeKey: -a.example/b}",
            format!("mirror.nudgeKey: found \"-a.example/b\", which has a prefix that is no DNS name; {key}"),
        ),
        (
            "touch: {confirmAfterMs: [5, 5]}",
            "touch.confirmAfterMs: found [5, 5]; accepted: times from the touch, each later than the one before".to_owned(),
        ),
        (
            "eventLog: {file: FOLDER}",
            "eventLog.file: found \"FOLDER\", which is no file; accepted: a file in a folder that exists".to_owned(),
        ),
        (
            "touch: {edgeScopes: {on: gateway}}",
            "touch.edgeScopes.on: no edge has this name (did you mean one?); accepted here: one".to_owned(),
        ),
        (
            "leaderElection: {renewDeadlineMs: 15000}",
            "leaderElection.renewDeadlineMs: found 15000; accepted: less than leaderElection.leaseDurationMs, 15000".to_owned(),
        ),
        (
            "leaderElection: {retryPeriodMs: 5000}",
            "leaderElection.retryPeriodMs: found 5000; accepted: less than half of leaderElection.renewDeadlineMs, which is 10000, so that a renewal that fails can be tried again".to_owned(),
        ),
        (
            "leaderElection: {retryPeriodMs: 99}",
            "leaderElection.retryPeriodMs: found 99; accepted: 100 or more".to_owned(),
        ),
        (
            "leaderElection: {leaseDurationMs: 601000}",
            "leaderElection.leaseDurationMs: found 601000; accepted: 1000 to 600000, in thousands".to_owned(),
        ),
        (
            "executor: {timeoutMs: 9637}",
            "leaderElection.leaseDurationMs: found 15000; less a tenth for clocks that differ, and 9637 for a write that is under way (executor.timeoutMs), this leaves 3999 from one renewal to the next; accepted: a lease that leaves 4000 or more, twice leaderElection.retryPeriodMs".to_owned(),
        ),
        (
            "leaderElection: {leaseName: Mine}",
            "leaderElection.leaseName: found \"Mine\"; accepted: a DNS name, such as throughline".to_owned(),
        ),
        (
            "leaderElection: {leaseNamespace: a.b}",
            "leaderElection.leaseNamespace: found \"a.b\"; accepted: a namespace's name".to_owned(),
        ),
        (
            "leaderElection: {cluster: on}",
            "leaderElection.cluster: found \"on\", and no cluster has this name; accepted here: one".to_owned(),
        ),
    ];
    for (yaml, expected) in cases {
        let yaml = format!("{ONE}\n{yaml}");
        refused("rules", &yaml, &Overrides::default(), &[&format!("FILE: {expected}")]);
    }
    let alone =
        "clusters: [{name: a, roles: [upstream], kubeconfig: KUBE}]\ntouch: {scope: gatewayClass}";
    warned(
        "alone",
        alone,
        &[
            "FILE: clusters: upstream alone: nothing is ever written; mirroring needs a downstream, touching an edge",
            "FILE: touch.scope: gatewayClass, and there is no edge to touch at",
        ],
    );
}

#[test]
fn a_kubeconfig_without_the_context_says_which_it_has() {
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
        "defaults: clusters[0].context: not said, and KUBE has no current one; accepted, of KUBE: one, two"
    );
    let lacks = with(|kube| kube["current-context"] = "six".into());
    assert_eq!(
        lacks,
        "--kubeconfig KUBE: clusters[0].kubeconfig: the current context of KUBE is \"six\", which it lacks; accepted, of KUBE: one, two"
    );
    let empty = with(|kube| kube["contexts"] = json!([]));
    assert_eq!(
        empty,
        "--kubeconfig KUBE: clusters[0].kubeconfig: the current context of KUBE is \"one\", which it lacks; KUBE has no contexts"
    );
}

/// A kubeconfig holds keys: nothing of what stands in it is told.
#[test]
fn a_broken_kubeconfig_is_told_without_its_content() {
    let folder = folder("secret");
    let path = folder.join("broken");
    for content in ["users: [{name: u, user: {token: s3cret", "users: {token: s3cret}", "s3cret"] {
        fs::write(&path, content).unwrap();
        let flags = Overrides { kubeconfig: Some(path.clone()), ..Overrides::default() };
        let error = load(None, &flags).unwrap_err().to_string();
        assert!(error.contains("which is no kubeconfig (line 1, column "), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
