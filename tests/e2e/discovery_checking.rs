//! `throughline check`, `status` and `trace` with clusters that no configuration file names.

use std::process::Command;

use serde_json::{Value, json};

use crate::checking::run as check;
use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::milo::{CONTROL_PLANES, Milo};
use crate::cluster::rights;
use crate::cluster::testbed::Testbed;
use crate::cluster::throughline::binary;
use crate::discovery::testbed_and_fleet;

/// A configuration in a file, with the hub and these keys.
fn config(testbed: &Testbed, more: &Value) -> std::path::PathBuf {
    let mut config =
        json!({ "clusters": [testbed.hub().config()], "leaderElection": { "enabled": false } });
    crate::cluster::throughline::merge_json(&mut config, more);
    let path = testbed.hub().server.folder().join("discovery.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

async fn throughline(args: Vec<String>) -> (Value, String) {
    let mut command = Command::new(binary());
    command.args(args).env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    (serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}")), err)
}

/// The findings of a check, as `level message: evidence`.
fn findings(out: &str, check: &str) -> Vec<String> {
    let all = crate::checking::findings(out);
    let text = |f: &Value| {
        let word = |name: &str| f[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", word("level"), word("message"), word("evidence"))
    };
    all.iter().filter(|f| f["check"] == check).map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn commands_look_at_what_discovery_shows() {
    let (testbed, fleet) = testbed_and_fleet().await;
    let (milo, upstream) = (Milo::start().await, testbed.upstream());
    rights::grant(milo.root.rest(), &["discovery-milo"]).await.unwrap();
    for project in ["up", "idle"] {
        milo.serve(project, &upstream.proxy).await;
        milo.create(project).await;
    }
    let discovery = json!({ "milo": { "kubeconfig": milo.kubeconfig(THROUGHLINE) } });
    let file = config(&testbed, &json!({ "discovery": discovery }));

    // check: what the source shows, and the project that is needed.
    let (_, out, err) = check(&file, &["--output", "json"]).await;
    let found = findings(&out, "discovery");
    assert_eq!(found, ["passed : milo: 2 clusters, 2 ready; a run joins 1"], "{err}");
    let clusters = |out: &str| {
        let found = crate::checking::findings(out);
        let of = found.iter().filter(|f| f["check"] == "reachable");
        of.map(|f| f["cluster"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(clusters(&out), ["down", "up"]);

    // Only those that are named; a misspelled one is reported.
    let (_, out, _) = check(&file, &["--output", "json", "--upstream", "idle"]).await;
    assert_eq!(clusters(&out), ["down", "idle"]);
    let (code, _, err) = check(&file, &["--upstream", "uq"]).await;
    assert!(code == 2 && err.contains("did you mean up?"), "{code} {err}");

    // A configured upstream whose Project does not exist: its control plane answers all the same.
    let path = |project: &str| {
        format!("/apis/resourcemanager.miloapis.com/v1alpha1/projects/{project}/control-plane")
    };
    let plane = |project: &str| {
        json!({ "name": project, "roles": ["upstream"],
                "kubeconfig": milo.kubeconfig_at(THROUGHLINE, &path(project)) })
    };
    let clusters = json!([testbed.hub().config(), plane("up"), plane("idel")]);
    let typo = json!({ "clusters": clusters, "touch": { "enabled": false } });
    let (_, out, _) = check(&config(&testbed, &typo), &["--output", "json"]).await;
    let failed = crate::checking::findings(&out);
    let mut failed = failed.iter().filter(|f| f["level"] == "failed").map(|f| &f["check"]);
    assert!(failed.all(|check| check == "project"), "{out}");
    let found = findings(&out, "project");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("passed :"), "{found:?}");
    assert!(found[1].starts_with("failed Project idel, to which "), "{found:?}");
    assert!(found[1].contains("did you mean idle?"), "{found:?}");

    // status and trace join what a run would join.
    let file = config(&testbed, &json!({ "discovery": discovery }));
    let file = file.to_string_lossy().into_owned();
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let status = words(&["status", "--config", &file, "--output", "json"]);
    let (rows, err) = throughline(status.clone()).await;
    let rows = rows["connectors"].as_array().unwrap();
    assert_eq!((rows.len(), err.as_str()), (fleet.spec.connectors, ""));
    assert!(rows.iter().all(|row| row["upstream"]["cluster"] == "up"), "{rows:?}");
    let (rows, err) = throughline([status, words(&["--upstream", "idle"])].concat()).await;
    assert_eq!(rows["connectors"].as_array().map(Vec::len), Some(0));
    assert!(err.contains("idle is not shown"), "{err}");
    let (namespace, name) = fleet.upstream_key(0);
    let connector = format!("{namespace}/{name}");
    let trace = words(&["trace", "connector", &connector, "--config", &file, "--output", "json"]);
    let (traces, _) = throughline(trace).await;
    assert_eq!(traces["connectors"][0]["hops"][0]["state"], "ok", "{traces}");

    // A source that can't be read is reported.
    rights::revoke(milo.root.rest(), &["discovery-milo"]).await.unwrap();
    let (code, out, _) = check(std::path::Path::new(&file), &["--output", "json"]).await;
    let found = findings(&out, "discovery");
    assert!(
        code == 1 && found[0].contains("milo cannot list its clusters: 403"),
        "{code} {found:?}"
    );
    let (_, err) = throughline(words(&["status", "--config", &file, "--output", "json"])).await;
    assert!(err.contains("milo are not shown"), "{err}");
    // The misspelled one was asked by this check alone: it is configured.
    assert_eq!(milo.strangers().into_iter().collect::<Vec<_>>(), ["idel"]);
}

/// With `internalServiceDiscovery`, ProjectControlPlanes show the projects, each at its Service. None of
/// these resolves here.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_infrastructure_cluster_shows_projects_by_their_control_planes() {
    let (testbed, _fleet) = testbed_and_fleet().await;
    let milo = Milo::start().await;
    let root = milo.root.rest();
    rights::grant(root, &["discovery-milo"]).await.unwrap();
    for (name, condition) in [("up", "ControlPlaneReady"), ("other", "Ready")] {
        let object = json!({ "metadata": { "namespace": "default", "name": name } });
        root.create(CONTROL_PLANES, object).await.unwrap();
        let status = json!({ "conditions": [{ "type": condition, "status": "True" }] });
        root.merge_status(CONTROL_PLANES, ("default", name), &status).await.unwrap();
    }
    let milo = json!({ "kubeconfig": milo.kubeconfig(THROUGHLINE),
        "internalServiceDiscovery": true });
    let discovery = json!({ "milo": milo });
    let file = config(&testbed, &json!({ "discovery": discovery }));
    let (_, out, err) = check(&file, &["--output", "json"]).await;
    let found = findings(&out, "discovery");
    let expected = "passed : milo: 2 clusters, 1 ready, 1 not ready; a run joins 1";
    assert_eq!(found, [expected], "{err}");
    let found = findings(&out, "reachable");
    assert!(found[1].starts_with("failed The API server of up does not answer"), "{found:?}");
}
