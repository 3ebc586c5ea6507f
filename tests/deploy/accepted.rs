//! A real API server accepts every rendered object and knows each of its fields.

use std::collections::BTreeSet;

use serde_json::json;

use crate::cluster::apiserver::ApiServer;
use crate::cluster::{SOON, eventually};
use crate::forms::{NAMESPACE, apply, namespace};
use crate::render::{AT_HUB, Choice, FORMS, helm, kustomize};
use crate::tools::{read, tools_folder};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers, helm and kustomize: make deploy-test"]
async fn an_api_server_accepts_every_manifest() {
    let server = ApiServer::start_with_all_apis("accepts").await;
    let crds = ["servicemonitors", "prometheusrules", "resourceinterpretercustomizations"];
    let crds = crds.map(|name| read(tools_folder().join(format!("{name}.yaml"))).remove(0));
    apply(&server, &[&crds[..], &[namespace()]].concat()).unwrap();
    let wrong = json!({ "apiVersion": "v1", "kind": "Service", "spec": { "port": 1 },
                        "metadata": { "namespace": NAMESPACE, "name": "wrong" } });
    let said = apply(&server, &[wrong]).unwrap_err();
    assert!(said.contains("spec.port"), "{said}");

    let monitored = FORMS.map(|form| (form, Choice::monitored()));
    let sharded = AT_HUB.map(|form| (form, Choice::sharded()));
    let rendered = monitored.iter().chain(&sharded);
    let rendered =
        rendered.flat_map(|(form, choice)| [kustomize(form, choice), helm(form, choice)]);
    let more = [
        "rbac/account.yaml",
        "rbac/upstream-delete/rules.yaml",
        "rbac/hub-delete/rules.yaml",
        "karmada/retain-trigger.yaml",
    ];
    let more = more.map(|file| read(format!("deploy/{file}")));
    let mut kinds = BTreeSet::new();
    for objects in rendered.chain(more) {
        kinds.extend(objects.iter().map(|object| object["kind"].to_string()));
        // Until the CRDs are served.
        eventually("all is accepted", SOON, async || apply(&server, &objects).map(drop)).await;
    }
    assert_eq!(kinds.len(), 15, "{kinds:?}");
}
