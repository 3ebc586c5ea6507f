//! A kube-apiserver and its etcd for one test, with a token and the CRDs of our kinds. Both stop
//! when the test ends.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::certificate::{Certificate, X509};

pub(crate) struct RealServer {
    processes: Vec<Child>,
    folder: PathBuf,
    etcd: String,
    pub(crate) client: Client,
}

impl RealServer {
    /// Starts both and installs our CRDs; ready when this returns.
    pub(crate) async fn start() -> Self {
        let binaries = PathBuf::from(
            std::env::var("KUBEBUILDER_ASSETS")
                .expect("KUBEBUILDER_ASSETS must name the folder with etcd and kube-apiserver"),
        );
        let folder = std::env::temp_dir().join(format!("throughline-real-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let (certificate, key) = (path("tls.crt"), path("tls.key"));
        let made = Certificate::self_signed("localhost", X509::V3);
        std::fs::write(&certificate, made.pem()).unwrap();
        std::fs::write(&key, made.key_pem()).unwrap();
        std::fs::write(path("tokens.csv"), "token,admin,admin,system:masters\n").unwrap();
        let etcd = format!("http://127.0.0.1:{}", free_port());
        let port = free_port();
        let store = start(
            &binaries.join("etcd"),
            &folder,
            &[
                format!("--data-dir={}", path("etcd")),
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                "--listen-peer-urls=http://127.0.0.1:0".into(),
                "--unsafe-no-fsync".into(),
            ],
        );
        let server = start(
            &binaries.join("kube-apiserver"),
            &folder,
            &[
                format!("--etcd-servers={etcd}"),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".into(),
                format!("--tls-cert-file={certificate}"),
                format!("--tls-private-key-file={key}"),
                "--service-account-issuer=https://localhost".into(),
                format!("--service-account-key-file={certificate}"),
                format!("--service-account-signing-key-file={key}"),
                format!("--token-auth-file={}", path("tokens.csv")),
                "--authorization-mode=RBAC".into(),
                "--allow-privileged".into(),
                // Otherwise the cache would still serve pages of a compacted revision.
                "--feature-gates=ListFromCacheSnapshot=false".into(),
                "--disable-admission-plugins=ServiceAccount".into(),
                "--service-cluster-ip-range=10.0.0.0/24".into(),
            ],
        );
        let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.root_cert = Some(vec![made.der]);
        config.default_retry = false;
        config.auth_info.token = Some("token".to_owned().into());
        let client = Client::try_from(config).unwrap();
        let real = Self { processes: vec![server, store], folder, etcd, client };
        real.until_ok("/readyz").await;
        real.install().await;
        real
    }

    async fn install(&self) {
        let crds: Vec<Value> = serde_saphyr::from_str(include_str!("requests/crds.yaml")).unwrap();
        for crd in &crds {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let request = Request::post(path).header("content-type", "application/json");
            let request = request.body(crd.to_string().into_bytes()).unwrap();
            self.client.request::<Value>(request).await.unwrap();
        }
        for crd in &crds {
            let spec = &crd["spec"];
            let text = |v: &Value| v.as_str().unwrap().to_owned();
            self.until_ok(&format!(
                "/apis/{}/{}/{}",
                text(&spec["group"]),
                text(&spec["versions"][0]["name"]),
                text(&spec["names"]["plural"]),
            ))
            .await;
        }
    }

    async fn until_ok(&self, path: &str) {
        for _ in 0..600 {
            let request = Request::get(path).body(Vec::new()).unwrap();
            if self.client.request_text(request).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{path} did not answer within a minute; see *.log in {}", self.folder.display());
    }

    /// Compacts etcd up to now.
    pub(crate) async fn compact(&self) {
        let etcd = Client::try_from(kube::Config::new(self.etcd.parse().unwrap())).unwrap();
        let post = |path: &str, body: Value| {
            let request = Request::post(path).body(body.to_string().into_bytes()).unwrap();
            let etcd = etcd.clone();
            async move { etcd.request::<Value>(request).await.unwrap() }
        };
        let answer = post("/v3/kv/range", json!({"key": "AA=="})).await;
        let revision = answer["header"]["revision"].clone();
        post("/v3/kv/compaction", json!({"revision": revision, "physical": true})).await;
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn start(binary: &Path, folder: &Path, flags: &[String]) -> Child {
    let name = binary.file_name().unwrap().to_string_lossy();
    let log = std::fs::File::create(folder.join(format!("{name}.log"))).unwrap();
    Command::new(binary)
        .args(flags)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", binary.display()))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
