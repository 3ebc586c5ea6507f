//! The sections that find clusters, the operator's spelling of them, and files checked without their
//! kubeconfigs.

use std::fs;
use std::path::Path;

use serde_json::json;
use throughline::client::Credentials;
use throughline::config::{DiscoveryConfig, MiloConfig, Overrides, load, load_offline};
use throughline::core::contract::membership::JoinRule;
use throughline::core::data::ids::Role;

use crate::{ONE, assert_refused, assert_warnings, folder, load_text, sets, texts};

const HUB: &str = "clusters: [{name: hub, roles: [upstream, hub, edge], kubeconfig: KUBE}]";

fn discovery(name: &str, section: &str) -> DiscoveryConfig {
    let yaml = format!("{HUB}\ndiscovery: {section}");
    let loaded = load_text(name, &yaml, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let in_pod = |text: &String| text.contains("not running in a pod");
    let warnings: Vec<_> =
        texts(name, &loaded.warnings).into_iter().filter(|w| !in_pod(w)).collect();
    assert_eq!(warnings, [""; 0], "{section}");
    loaded.config.discovery
}

#[test]
fn a_section_is_switched_on_by_its_keys_or_by_an_empty_one() {
    assert_eq!(discovery("off", "{milo: null, kubeconfigDir:}"), DiscoveryConfig::default());
    let milo = discovery("on", "{milo: {kubeconfig: KUBE}}").milo.unwrap();
    assert_eq!((milo.join, milo.internal_service_discovery), (JoinRule::Needed, false));

    let milo = discovery(
        "all",
        "{milo: {kubeconfig: KUBE, context: two, join: all, labelSelector: 'team in (a, b)'}}",
    );
    let milo = milo.milo.unwrap();
    assert_eq!(
        (milo.join, milo.label_selector.as_deref()),
        (JoinRule::All, Some("team in (a, b)"))
    );
    assert_eq!(milo.project_credentials(), milo.credentials());

    let secrets = discovery("secrets", "{kubeconfigSecrets: {cluster: hub, namespace: apps}}");
    let secrets = secrets.kubeconfig_secrets.unwrap();
    assert_eq!(secrets.label_selector, "sigs.k8s.io/multicluster-runtime-kubeconfig=true");
    assert_eq!(secrets.roles, [Role::Upstream]);
    let dir = discovery("dir", "{kubeconfigDir: {path: FOLDER, roles: [upstream, edge]}}");
    assert_eq!(dir.kubeconfig_dir.unwrap().roles, [Role::Upstream, Role::Edge]);

    let flags = sets(&["discovery.milo.kubeconfig=KUBE", "discovery.milo.join=all"]);
    let errors = load_text("flag", HUB, &flags).unwrap_err();
    let expected = "--set discovery.milo.kubeconfig=KUBE: discovery.milo.kubeconfig: found \"KUBE\", \
                    which cannot be read (No such file or directory (os error 2)); accepted: a \
                    kubeconfig file";
    assert_eq!(texts("flag", &errors.0), [expected]);
}

#[test]
fn the_operators_keys_are_read_and_printed_as_ours() {
    let found = discovery("operator", "{mode: milo, discoveryKubeconfigPath: KUBE}");
    let milo = found.milo.clone().unwrap();
    // For the operator, a path that is not set is the pod's own ServiceAccount.
    assert_eq!(milo.project_credentials(), Credentials::InCluster);
    assert!(matches!(milo.credentials(), Credentials::Kubeconfig { file: Some(_), context: None }));
    let printed = serde_json::to_value(&found).unwrap();
    let keys: Vec<_> = printed.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["kubeconfigDir", "kubeconfigSecrets", "milo"]);

    assert_eq!(discovery("single", "{mode: single}"), DiscoveryConfig::default());
    let yaml = format!(
        "{ONE}\ndiscovery: {{mode: milo, discoveryKubeconfigPath: '', projectKubeconfigPath: KUBE, \
         internalServiceDiscovery: true}}"
    );
    let loaded = load_text("internal", &yaml, &Overrides::default()).unwrap();
    let milo = loaded.config.discovery.milo.unwrap();
    let expected = MiloConfig {
        kubeconfig: Some("".into()),
        project_kubeconfig: Some(folder("internal").join("kubeconfig")),
        internal_service_discovery: true,
        ..MiloConfig::default()
    };
    assert_eq!(milo, expected);
    assert_eq!(milo.credentials(), Credentials::InCluster);
    assert_warnings(
        "no-effect",
        &format!("{ONE}\ndiscovery: {{projectKubeconfigPath: KUBE}}"),
        &["FILE: discovery.projectKubeconfigPath: has no effect without discovery.mode: milo"],
    );
}

#[test]
fn errors_name_the_key_the_value_and_what_is_accepted() {
    let yaml = "
clusters: [{name: hub, roles: [hub], kubeconfig: KUBE}]
discovery:
  mode: milo
  projectKubeconfigPath: KUBE
  milo: {kubeconfig: /nowhere/milo, labelSelector: 'a in b', join: some}
  kubeconfigSecrets: {cluster: hob, namespace: A, labelSelector: '', roles: [upstream, hub]}
  kubeconfigDir: {path: FOLDER/nowhere, roles: []}
fleet: {listsInParallel: 0}
metrics: {perCluster: 7}";
    assert_refused(
        "wrong-discovery",
        yaml,
        &Overrides::default(),
        &[
            "FILE: discovery.milo.join: found \"some\"; accepted: needed or all",
            "FILE: metrics.perCluster: found 7; accepted: true or false",
            "FILE: discovery.mode: cannot be combined with discovery.milo; accepted: one of them",
            "FILE: discovery.projectKubeconfigPath: cannot be combined with discovery.milo; accepted: one of them",
            "FILE: discovery.milo.kubeconfig: found \"/nowhere/milo\", which cannot be read (No such file or directory (os error 2)); accepted: a kubeconfig file",
            "FILE: discovery.milo.labelSelector: found \"a in b\", which has \"in b\" after the key \"a\", which is no condition; accepted: a label selector, such as env in (prod, staging),team=a",
            "FILE: discovery.kubeconfigSecrets.cluster: found \"hob\", but no configured cluster has this name; accepted: hub",
            "FILE: discovery.kubeconfigSecrets.namespace: found \"A\"; accepted: a namespace name",
            "FILE: discovery.kubeconfigSecrets.labelSelector: found no label selector, but not every Secret is a kubeconfig; accepted: a label selector, such as team=a",
            "FILE: discovery.kubeconfigSecrets.roles: found hub, but a hub is never discovered; accepted: upstream, edge, or both",
            "FILE: discovery.kubeconfigDir.path: found \"FOLDER/nowhere\", which is not a directory; accepted: a directory of kubeconfig files",
            "FILE: discovery.kubeconfigDir.roles: found no roles; accepted: upstream, edge, or both",
            "FILE: fleet.listsInParallel: found 0; accepted: 1 to 256",
        ],
    );
    let required = format!("{HUB}\ndiscovery: {{kubeconfigSecrets: {{}}, kubeconfigDir: {{}}}}");
    assert_refused(
        "required",
        &required,
        &Overrides::default(),
        &[
            "FILE: discovery.kubeconfigSecrets.cluster: not set; accepted: hub",
            "FILE: discovery.kubeconfigSecrets.namespace: not set; accepted: a namespace name",
            "FILE: discovery.kubeconfigDir.path: not set; accepted: a directory of kubeconfig files",
        ],
    );
    let operator = format!("{HUB}\ndiscovery: {{mode: milo, discoveryKubeconfigPath: /nowhere/m}}");
    let errors = load_text("op", &operator, &Overrides::default()).unwrap_err();
    let expected = "FILE: discovery.discoveryKubeconfigPath: found \"/nowhere/m\", which cannot be \
                    read (No such file or directory (os error 2)); accepted: a kubeconfig file";
    assert_eq!(texts("op", &errors.0), [expected]);
}

/// An edge that will be found may have exceptions.
#[test]
fn what_discovery_may_find_is_not_missing() {
    let edges = "clusters: [{name: hub, roles: [hub], kubeconfig: KUBE}]\n\
                 discovery: {kubeconfigDir: {path: FOLDER, roles: [upstream, edge]}}\n\
                 touch: {scope: gatewayClass, edgeScopes: {edge-7: gateway}}";
    assert_warnings("edges", edges, &[]);
    let alone = "clusters: [{name: up, roles: [upstream], kubeconfig: KUBE}]\n\
                 discovery: {kubeconfigDir: {path: FOLDER, roles: [upstream]}}";
    assert_warnings(
        "no-hub",
        alone,
        &[
            "FILE: clusters: upstream is the only role, so nothing is ever written: mirroring needs a hub, touching needs an edge",
        ],
    );
}

#[test]
fn offline_no_other_file_is_opened_and_each_is_named() {
    let folder = folder("offline");
    let file = folder.join("offline.yaml");
    let config = json!({
        "clusters": [
            { "name": "hub", "roles": ["hub"], "inCluster": true },
            { "name": "a", "roles": ["upstream"], "kubeconfig": "/nowhere/k", "context": "a" },
            { "name": "b", "roles": ["upstream"], "kubeconfig": "/nowhere/k", "context": "b" },
            { "name": "edge", "roles": ["edge"], "kubeconfig": "/nowhere/e" },
        ],
        "discovery": { "milo": { "kubeconfig": "/nowhere/milo" },
            "kubeconfigDir": { "path": "/nowhere/dir" } },
        "eventLog": { "file": "/nowhere/log/live.jsonl" },
    });
    fs::write(&file, config.to_string()).unwrap();
    assert_eq!(load(Some(&file), &Overrides::default()).unwrap_err().0.len(), 6);
    let loaded = load_offline(Some(&file), &Overrides::default()).unwrap();
    assert_eq!(loaded.warnings, []);
    let readable = "whether it can be read and has";
    assert_eq!(
        loaded.unchecked,
        [
            format!("/nowhere/e: {readable} a current context"),
            format!("/nowhere/k: {readable} the contexts a, b"),
            format!("/nowhere/milo: {readable} a current context"),
            "/nowhere/dir: whether it is a directory, and its kubeconfigs".to_owned(),
            "/nowhere/log/live.jsonl: whether its directory exists".to_owned(),
        ]
    );
    let wrong = folder.join("wrong.yaml");
    fs::write(&wrong, "clusters: [{name: a, roles: [], kubeconfig: /nowhere/k}]").unwrap();
    let errors = load_offline(Some(&wrong), &Overrides::default()).unwrap_err();
    assert_eq!(errors.0.len(), 1, "{errors}");
    let missing = load_offline(Some(Path::new("/nowhere/x.yaml")), &Overrides::default());
    assert!(missing.unwrap_err().to_string().contains("cannot be read"));
}
