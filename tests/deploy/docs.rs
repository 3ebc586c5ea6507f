//! Runs the commands of docs/how-to/install.md with a real kubectl on real API servers.

use std::fs;

use serde_json::json;

use crate::cluster::apiserver::{ADMIN, ApiServer, token as token_of_user};
use crate::cluster::objects::install_crds;
use crate::forms::{NAMESPACE, kubeconfig, kubectl, token};
use crate::temp_folder::temp_folder;
use crate::tools::{repo, shell, succeeds};

/// The shell blocks of a section.
fn commands(section: &str) -> Vec<String> {
    let text = fs::read_to_string(repo("docs/how-to/install.md")).unwrap();
    let (_, text) = text.split_once(&format!("\n## {section}\n")).unwrap();
    let blocks = text.split("\n## ").next().unwrap().split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Puts a token into the Secret that asks for one, as a controller of a full Kubernetes does.
fn fill_token(server: &ApiServer) {
    let ca = fs::read_to_string(server.ca()).unwrap();
    let token = token(server, "throughline");
    let data = json!({ "stringData": { "token": token, "ca.crt": ca } }).to_string();
    let words = ["patch", "secret", "throughline-token", "-n", NAMESPACE, "--patch", &data];
    kubectl(server, &words).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kubectl: make deploy-test"]
async fn install_md_can_be_followed() {
    let (up, own) =
        tokio::join!(ApiServer::start("project-a"), ApiServer::start_with_all_apis("own"));
    for server in [&up, &own] {
        install_crds(server.rest()).await;
    }
    let mine = temp_folder("docs");
    let admin = mine.join("admin");
    let access = |name, server| (name, server, token_of_user(ADMIN));
    kubeconfig(&admin, &[access("hub", &own), access("project-a", &up), access("edge-1", &own)]);
    let run = |script: &str| succeeds(shell(script).env("KUBECONFIG", &admin));

    // Remote clusters. Here the edge is the hub's own cluster.
    let [rights, secret] = &commands("Remote clusters")[..] else { panic!("two blocks") };
    run(rights);
    fill_token(&up);
    run(&rights.replace("role=upstream", "role=edge").replace("project-a", "edge-1"));
    fill_token(&own);
    // The page writes the kubeconfig into the current folder; the test does not write into the repository.
    run(&secret.replace("throughline.kubeconfig", mine.join("made").to_str().unwrap()));
    assert!(!mine.join("made").exists(), "the kubeconfig with its tokens was not removed");

    // The Secret gives access to both clusters, with the permissions of their roles.
    let made =
        "kubectl -n throughline get secret throughline-kubeconfig -o jsonpath='{.data.config}'";
    let path = mine.join("kubeconfig");
    fs::write(&path, run(&format!("{made} | base64 -d"))).unwrap();
    let may = |context: &str, verb: &str, resource: &str| {
        let ask = format!("kubectl --context {context} auth can-i -A {verb} {resource} || true");
        succeeds(shell(&ask).env("KUBECONFIG", &path)).trim() == "yes"
    };
    let connectors = "connectors.networking.datumapis.com";
    let gateways = "gateways.gateway.networking.k8s.io";
    assert!(may("project-a", "list", connectors) && may("edge-1", "patch", gateways));
    assert!(!may("project-a", "patch", gateways) && !may("edge-1", "get", "secrets"));

    // Each form, by the page's command.
    for form in ["All in one", "Standalone, at an edge"] {
        let block = &commands(form)[0];
        let (kustomize, helm) = block.split_once("# or\n").unwrap();
        run(kustomize);
        run(&kustomize.replace("apply", "delete --wait=false"));
        run(helm);
        run("helm uninstall throughline -n throughline");
    }
}
