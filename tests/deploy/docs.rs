//! Runs the commands of docs/how-to/install.md with a real kubectl on real API servers.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::cluster::apiserver::{ADMIN, ApiServer, token as token_of_user};
use crate::cluster::objects::install_crds;
use crate::cluster::rest::{Rest, SECRETS};
use crate::forms::{NAMESPACE, kubeconfig, token};
use crate::tools::{repo, temp_folder, tools_folder};

/// The shell blocks of a section.
fn commands(section: &str) -> Vec<String> {
    let text = fs::read_to_string(repo("docs/how-to/install.md")).unwrap();
    let from = text.find(&format!("\n## {section}\n")).unwrap() + 1;
    let rest = &text[from..];
    let rest = &rest[..rest[2..].find("\n## ").map_or(rest.len(), |end| end + 2)];
    let blocks = rest.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Runs a script in the repository's folder; returns its output.
fn shell(kubeconfig: &Path, script: &str) -> String {
    let path = format!("{}:{}", tools_folder().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(repo("."))
        .env("PATH", path)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{script}\n{stdout}{stderr}");
    stdout
}

/// Puts a token into the Secret that asks for one, as a controller of a full Kubernetes does.
async fn fill_token(server: &ApiServer, rest: &Rest) {
    let ca = fs::read_to_string(server.ca()).unwrap();
    let data = json!({ "stringData": { "token": token(rest, "throughline").await, "ca.crt": ca } });
    rest.merge(SECRETS, (NAMESPACE, "throughline-token"), &data).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kubectl: make deploy-test"]
async fn install_md_can_be_followed() {
    let (up, own) =
        tokio::join!(ApiServer::start("project-a"), ApiServer::start_with_all_apis("own"));
    for server in [&up, &own] {
        install_crds(server.rest()).await;
    }
    let admin = temp_folder("docs").join("kubeconfig");
    let access = |name, server| (name, server, token_of_user(ADMIN));
    kubeconfig(&admin, &[access("hub", &own), access("project-a", &up), access("edge-1", &own)]);

    // Remote clusters. Here the edge is the hub's own cluster.
    let [rights, secret] = &commands("Remote clusters")[..] else { panic!("two blocks") };
    shell(&admin, rights);
    fill_token(&up, up.rest()).await;
    let rights = rights.replace("role=upstream", "role=edge").replace("project-a", "edge-1");
    shell(&admin, &rights);
    fill_token(&own, own.rest()).await;
    let mine = temp_folder("docs-secret");
    // The page writes the kubeconfig into the current folder; the test does not write into the repository.
    let secret = secret.replace("throughline.kubeconfig", mine.join("made").to_str().unwrap());
    shell(&admin, &secret);
    assert!(!mine.join("made").exists(), "the kubeconfig with its tokens was not removed");

    // The Secret gives access to both clusters, with the permissions of their roles.
    let made = shell(
        &admin,
        "kubectl -n throughline get secret throughline-kubeconfig -o jsonpath='{.data.config}' | base64 -d",
    );
    let path = mine.join("kubeconfig");
    fs::write(&path, made).unwrap();
    let may = |context: &str, verb: &str, resource: &str| {
        let ask = format!("kubectl --context {context} auth can-i -A {verb} {resource} || true");
        shell(&path, &ask).trim() == "yes"
    };
    let connectors = "connectors.networking.datumapis.com";
    let gateways = "gateways.gateway.networking.k8s.io";
    assert!(may("project-a", "list", connectors) && may("edge-1", "patch", gateways));
    assert!(!may("project-a", "patch", gateways) && !may("edge-1", "get", "secrets"));

    // Each form, by the page's command.
    for form in ["All in one", "Standalone, at an edge"] {
        let block = &commands(form)[0];
        let (kustomize, helm) = block.split_once("# or\n").unwrap();
        shell(&admin, kustomize);
        shell(&admin, &kustomize.replace("apply", "delete --wait=false"));
        shell(&admin, helm);
        shell(&admin, "helm uninstall throughline -n throughline");
    }
}
