//! The connection to a cluster follows its kubeconfig: to another address, to other credentials; and
//! stays as it is while the kubeconfig is broken.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::client::{CallError, ClusterClient, JSON, get, path};
use throughline::config::WatchConstants;
use throughline::core::data::ids::{Kind, Role};
use throughline_sim::apiserver::{ServerMode, SimApiServerSettings};
use tokio::time::sleep;

use crate::cluster::{client, configured};
use crate::live::{Watched, quick, tls};
use crate::log::Log;
use crate::sim_apiserver::{TestServer, serve_cluster_with, serve_with};
use crate::stage::object;
use crate::temp_folder::temp_folder;
use crate::waiting::until;

/// One API server at two addresses, and a client whose kubeconfig names the first.
struct Moving {
    old: TestServer,
    new: TestServer,
    client: Arc<ClusterClient>,
    kubeconfig: PathBuf,
}

async fn moving(with_tls: bool) -> Moving {
    let old = serve_with(SimApiServerSettings::default(), with_tls.then(tls)).await;
    let new = serve_cluster_with(&old.sim, old.cluster.clone(), with_tls.then(tls)).await;
    old.put(object("Gateway", "n", "g"));
    let kubeconfig = old.kubeconfig(&temp_folder("connection"));
    let client = client(configured("one", &[Role::Upstream], Some(&kubeconfig)));
    Moving { old, new, client, kubeconfig }
}

impl Moving {
    async fn get(&self) -> Result<(), CallError> {
        let request = get(&format!("{}/g", path(Kind::Gateway, Some("n"))), JSON)?;
        self.client.call(request, Duration::from_secs(2)).await.map(drop)
    }
}

/// The old one may be a copy that nobody writes to any more.
#[tokio::test]
async fn a_watch_leaves_the_old_address_even_while_that_still_answers() {
    for with_tls in [false, true] {
        let moving = moving(with_tls).await;
        let mut watched = Watched::of(moving.client.clone(), Kind::Gateway, quick());
        let list = ["list_started", "listed g", "list_finished"];
        watched.expect("the old one", &list).await;
        moving.new.write_kubeconfig(&moving.kubeconfig);
        watched.expect("the new one", &list).await;
        moving.old.handle.set_mode(ServerMode::Down);
        moving.get().await.unwrap();
    }
}

#[tokio::test]
async fn the_pause_of_a_watch_ends_once_its_credentials_are_corrected() {
    let moving = moving(false).await;
    moving.old.handle.set_token("right");
    let pauses =
        WatchConstants { backoff_first_ms: 60_000, backoff_max_ms: 120_000, ..Default::default() };
    let mut watched = Watched::of(moving.client.clone(), Kind::Gateway, pauses);
    watched.expect("another token", &["watch_lost 401"]).await;
    let user = json!({"token": "right"});
    edit_users(&moving.kubeconfig, |users| users[0]["user"] = user);
    watched.expect("the right one", &["list_started"]).await;
}

#[tokio::test]
async fn a_broken_kubeconfig_keeps_the_connection_and_is_logged_once() {
    for with_tls in [false, true] {
        let (log, _guard) = Log::capture();
        let moving = moving(with_tls).await;
        moving.get().await.unwrap();

        // What concerns other clusters changes nothing.
        let other = json!({"name": "other", "user": {"token": "t"}});
        edit_users(&moving.kubeconfig, |users| users.push(other));
        moving.old.handle.set_mode(ServerMode::Down);
        moving.get().await.unwrap_err();
        sleep(Duration::from_millis(1_500)).await;
        assert!(!log.text().contains("kubeconfig"), "{}", log.text());
        moving.old.handle.set_mode(ServerMode::Serving);

        std::fs::write(&moving.kubeconfig, "clusters: [").unwrap();
        log.until_contains("cannot be used").await;
        moving.get().await.unwrap();

        // Requests that fail now have the broken file read again.
        moving.old.handle.set_mode(ServerMode::Down);
        for _ in 0..3 {
            moving.get().await.unwrap_err();
            sleep(Duration::from_millis(1_100)).await;
        }
        assert_eq!(log.text().matches("cannot be used").count(), 1, "{}", log.text());

        moving.new.write_kubeconfig(&moving.kubeconfig);
        until("the other address answers", async || moving.get().await.is_ok()).await;
        log.until_contains("names another address").await;
    }
}

/// Changes the user section of the kubeconfig.
fn edit_users(kubeconfig: &Path, edit: impl FnOnce(&mut Vec<Value>)) {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    edit(config["users"].as_array_mut().unwrap());
    std::fs::write(kubeconfig, config.to_string()).unwrap();
}

/// A credential plugin that fails is not run once for each watch that waits for it.
#[tokio::test]
async fn a_failing_credential_plugin_runs_once_for_all_requests_that_wait() {
    let moving = moving(false).await;
    let runs = moving.kubeconfig.with_extension("runs");
    let script = format!("echo ran >> {}; exit 1", runs.display());
    let user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}});
    edit_users(&moving.kubeconfig, |users| users[0]["user"] = user);
    let asked = futures::future::join_all((0..20).map(|_| moving.get())).await;
    assert!(asked.iter().all(Result::is_err), "{asked:?}");
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "ran\n");
}

/// It runs on when the requests that wait for it give up, as those for a Lease do after two seconds.
#[tokio::test]
async fn a_credential_plugin_that_is_slower_than_a_request_runs_once() {
    let moving = moving(false).await;
    let runs = moving.kubeconfig.with_extension("runs");
    let answer = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "t"}});
    let script = format!("echo ran >> {}; sleep 1; echo '{answer}'", runs.display());
    let user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}});
    edit_users(&moving.kubeconfig, |users| users[0]["user"] = user);
    let impatient = || tokio::time::timeout(Duration::from_millis(200), moving.get());
    until("it has answered", async || matches!(impatient().await, Ok(Ok(_)))).await;
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "ran\n");
}
