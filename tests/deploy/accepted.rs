//! A real API server accepts every rendered object and knows each of its fields.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cluster::apiserver::ApiServer;
use crate::cluster::rest::{CRDS, NAMESPACES, Rest};
use crate::cluster::{SOON, ensure, eventually};
use crate::render::{AT_HUB, Choice, FORMS, helm, id, kustomize};
use crate::tools;

/// The path of an object.
fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let plural = match kind.as_str() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = match text(&object["metadata"]["namespace"]) {
        none if none.is_empty() => none,
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("/{root}/{version}{namespace}/{plural}/{}", text(&object["metadata"]["name"]))
}

/// Applies an object as `kubectl apply --server-side` does. A field that the API server does not know
/// is an error.
pub(crate) async fn apply(rest: &Rest, object: &Value) -> Result<Value, String> {
    let query = "fieldManager=test&force=true&fieldValidation=Strict";
    let request = http::Request::patch(format!("{}?{query}", path(object)))
        .header("content-type", "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())
        .unwrap();
    let applied = rest.0.request::<Value>(request).await;
    applied.map_err(|error| format!("{}: {error}", id(object)))
}

pub(crate) async fn namespace(rest: &Rest, name: &str) {
    rest.create(NAMESPACES, json!({ "metadata": { "name": name } })).await.unwrap();
}

pub(crate) async fn install_others_crds(rest: &Rest) {
    for name in ["servicemonitors", "prometheusrules", "resourceinterpretercustomizations"] {
        let crd = tools::read(&tools::tools_folder().join(format!("{name}.yaml"))).remove(0);
        let (group, version) = (&crd["spec"]["group"], &crd["spec"]["versions"][0]["name"]);
        let path = [group, version].map(|v| v.as_str().unwrap()).join("/");
        rest.create(CRDS, crd.clone()).await.unwrap();
        eventually(&format!("{name} are served"), SOON, async || {
            let asked = rest.get(&format!("/apis/{path}/{name}")).await;
            ensure(asked.is_ok(), || format!("{asked:?}"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers, helm and kustomize: make deploy-test"]
async fn an_api_server_accepts_every_manifest() {
    let server = ApiServer::start_with_all_apis("accepts").await;
    let rest = server.rest();
    install_others_crds(rest).await;
    namespace(rest, "throughline").await;

    // Strict validation finds unknown fields.
    let wrong = json!({ "apiVersion": "v1", "kind": "Service", "spec": { "port": 1 },
                        "metadata": { "namespace": "throughline", "name": "wrong" } });
    let said = apply(rest, &wrong).await.unwrap_err();
    assert!(said.contains("spec.port"), "{said}");

    let mut kinds = BTreeSet::new();
    let monitored = FORMS.map(|form| (form, Choice::monitored()));
    let sharded = AT_HUB.map(|form| (form, Choice::sharded()));
    for (form, choice) in monitored.into_iter().chain(sharded) {
        for render in [kustomize, helm] {
            for object in render(form, &choice) {
                kinds.insert(object["kind"].as_str().unwrap().to_owned());
                apply(rest, &object).await.unwrap_or_else(|error| panic!("{form}: {error}"));
            }
        }
    }
    let all = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "StatefulSet",
    ];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), all);

    let more = [
        "rbac/account.yaml",
        "rbac/upstream-delete/rules.yaml",
        "rbac/hub-delete/rules.yaml",
        "karmada/retain-trigger.yaml",
    ];
    for object in more.iter().flat_map(|path| tools::read(&tools::repo("deploy").join(path))) {
        apply(rest, &object).await.unwrap();
    }
}
