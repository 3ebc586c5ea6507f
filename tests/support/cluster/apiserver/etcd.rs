//! The etcd of an API server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::super::process::Process;
use super::{ApiServer, client_without_token, end, program};

impl ApiServer {
    pub(super) fn start_etcd(&self) {
        let folder = self.folder.path();
        let url = format!("http://127.0.0.1:{}", self.etcd_port);
        let mut command = program("etcd");
        command.args([
            format!("--data-dir={}", folder.join("etcd").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
        ]);
        // The one member elects itself when the election's time-out is over.
        command.args([
            "--heartbeat-interval=50",
            "--election-timeout=250",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",
        ]);
        *self.etcd.lock().unwrap() = Some(Process::start("etcd", command, folder));
    }

    /// Waits until the etcd accepts connections. An API server that starts before tries again only
    /// after a second.
    ///
    /// # Panics
    /// The etcd ends first.
    pub(super) async fn wait_etcd(&self) {
        while TcpStream::connect(("127.0.0.1", self.etcd_port)).await.is_err() {
            if let Some(etcd) = self.etcd.lock().unwrap().as_mut() {
                assert!(etcd.ended().is_none(), "{}", etcd.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops both, runs `work` on their folder, and starts both again.
    async fn with_etcd_stopped(&self, work: impl FnOnce(&Path)) {
        self.stop_both().await;
        work(self.folder.path());
        self.start_both().await;
    }

    async fn stop_both(&self) {
        self.stop().await;
        end(&self.etcd, self.etcd_port).await;
    }

    /// Copies all data of the etcd.
    pub(crate) async fn back_up(&self) {
        self.with_etcd_stopped(|folder| copy(&folder.join("etcd"), &folder.join("backup"))).await;
    }

    /// Restores the copy.
    pub(crate) async fn restore(&self) {
        self.with_etcd_stopped(|folder| {
            fs::remove_dir_all(folder.join("etcd")).unwrap();
            copy(&folder.join("backup"), &folder.join("etcd"));
        })
        .await;
    }

    /// Loses all data of the etcd; both start again empty.
    pub(crate) async fn lose_everything(&self) {
        self.with_etcd_stopped(|folder| fs::remove_dir_all(folder.join("etcd")).unwrap()).await;
    }

    /// Compacts etcd's history up to now, so that no older version can be read from it. The API
    /// server's watch cache still serves older versions until `restart`.
    pub(crate) async fn compact(&self) {
        let status = self.etcd("maintenance/status", json!({})).await;
        let revision = status["header"]["revision"].as_str().unwrap().to_owned();
        self.etcd("kv/compaction", json!({ "revision": revision, "physical": true })).await;
    }

    async fn etcd(&self, path: &str, body: Value) -> Value {
        let client = client_without_token(&format!("http://127.0.0.1:{}", self.etcd_port));
        let request = http::Request::post(format!("/v3/{path}"))
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .unwrap();
        client.request(request).await.unwrap()
    }

    /// Removes the keys that begin with `prefix`.
    pub(super) async fn delete_keys(&self, prefix: &str) {
        // etcd's way to say "all with this prefix": up to the prefix with a greater last byte.
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().unwrap() += 1;
        let range = json!({ "key": BASE64.encode(prefix), "range_end": BASE64.encode(end) });
        self.etcd("kv/deleterange", range).await;
    }

    /// Stops both and copies the data of the etcd to `path`.
    pub(super) async fn into_data(self, path: &Path) {
        self.stop_both().await;
        copy(&self.folder.path().join("etcd"), path);
    }
}

/// Copies a folder. Holes stay holes: etcd makes its log 64 MB long in advance.
pub(super) fn copy(from: &Path, to: &Path) {
    let mut cp = Command::new("cp");
    cp.args(["--recursive", "--no-target-directory"]).args([from, to]);
    assert!(cp.status().unwrap().success(), "{cp:?}");
}
