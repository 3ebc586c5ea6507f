//! A real kube-apiserver with its own etcd.

mod etcd;
mod files;
mod template;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::objects;
use super::process::{Folder, Process, Signal, free_port, is_free};
use super::rest::Rest;

/// Has every permission.
pub(crate) const ADMIN: &str = "admin";
/// The user that throughline runs as, with the permissions that `rights::grant` gives.
pub(crate) const THROUGHLINE: &str = "throughline";
/// Has no permission: every request answers 403.
pub(crate) const NOBODY: &str = "nobody";

/// The folder with etcd, kube-apiserver and Gateway API's CRDs. The first call on a machine builds it.
pub(crate) fn assets() -> &'static Path {
    static ASSETS: OnceLock<PathBuf> = OnceLock::new();
    ASSETS.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/apiserver/build");
        let output = Command::new(script).stderr(std::process::Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{script} failed: {}", output.status);
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
    })
}

/// A user's token, as the API server's token file has it.
pub(crate) fn token(user: &str) -> String {
    format!("token-of-{user}")
}

/// Writes a kubeconfig for `server`; only https needs `ca`.
pub(crate) fn write_kubeconfig(path: &Path, server: &str, ca: Option<&Path>, token: &str) {
    let mut cluster = json!({ "server": server });
    if let Some(ca) = ca {
        cluster["certificate-authority"] = json!(ca);
    }
    let user = if token.is_empty() { json!({}) } else { json!({ "token": token }) };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "c", "cluster": cluster }],
        "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        "current-context": "x",
    });
    fs::write(path, serde_json::to_vec_pretty(&config).unwrap()).unwrap();
}

/// A client that does not retry.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    Client::try_from(client_config(kubeconfig).await).unwrap()
}

async fn client_config(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.default_retry = false;
    config.read_timeout = None;
    config
}

/// One control plane: an API server and its etcd. Dropping it kills both and removes their data.
pub(crate) struct ApiServer {
    name: String,
    port: u16,
    etcd_port: u16,
    api: Mutex<Option<Process>>,
    /// Dropped after `api`, before `folder`.
    etcd: Mutex<Option<Process>>,
    folder: Folder,
    admin: OnceLock<Rest>,
    without: &'static str,
}

/// For `--runtime-config`: APIs that no test uses and that make the start slower.
const UNUSED_APIS: &str = "apps/v1=false,batch/v1=false,autoscaling/v1=false,autoscaling/v2=false";

impl ApiServer {
    /// Starts both and waits until they are ready. Some APIs are off, such as that of Deployments.
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_without(name, UNUSED_APIS).await
    }

    /// Like `start`, with every API.
    pub(crate) async fn start_with_all_apis(name: &str) -> Self {
        Self::start_without(name, "").await
    }

    /// Like `start`, with all four CRDs, which are served.
    pub(crate) async fn start_with_crds(name: &str) -> Self {
        let server = Self::new(name, UNUSED_APIS);
        etcd::copy(template::data().await, &server.folder.path().join("etcd"));
        server.start_both().await;
        objects::wait_crds(server.rest()).await;
        server
    }

    async fn start_without(name: &str, without: &'static str) -> Self {
        let server = Self::new(name, without);
        server.start_both().await;
        server
    }

    fn new(name: &str, without: &'static str) -> Self {
        let folder = Folder::new(name);
        files::write(folder.path());
        Self {
            name: name.to_owned(),
            port: free_port(),
            etcd_port: free_port(),
            api: Mutex::new(None),
            etcd: Mutex::new(None),
            folder,
            admin: OnceLock::new(),
            without,
        }
    }

    async fn start_both(&self) {
        self.start_etcd();
        self.start_api().await;
        self.wait_ready().await;
    }

    async fn start_api(&self) {
        self.wait_etcd().await;
        let folder = self.folder.path();
        let mut command = Command::new(assets().join("kube-apiserver"));
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        command.args([
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", file("tls.crt")),
            format!("--tls-private-key-file={}", file("tls.key")),
            format!("--token-auth-file={}", file("users.csv")),
            format!("--service-account-signing-key-file={}", file("signing.key")),
            format!("--service-account-key-file={}", file("signing.pub")),
            format!("--audit-policy-file={}", file("audit.yaml")),
            format!("--audit-log-path={}", file("audit.log")),
        ]);
        command.args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
        ]);
        command.arg(format!("--runtime-config={}", self.without));
        // A start makes much garbage; collecting it less often saves a quarter of its CPU time.
        command.env("GOGC", "400");
        *self.api.lock().unwrap() = Some(Process::start("kube-apiserver", command, folder));
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Panics
    /// The process ends, or is not ready within two minutes.
    pub(crate) async fn wait_ready(&self) {
        let until = Instant::now() + Duration::from_secs(120);
        let mut last = String::new();
        loop {
            let ended = self.api.lock().unwrap().as_mut().is_none_or(|api| api.ended().is_some());
            if ended || Instant::now() > until {
                let words = self.api.lock().unwrap().as_ref().map(Process::log_tail);
                panic!("{} is not ready: {last}\n{}", self.name, words.unwrap_or_default());
            }
            match self.probe().await {
                Ok(()) => return,
                Err(error) => last = error,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn probe(&self) -> Result<(), String> {
        if self.admin.get().is_none() {
            let rest = Rest(client(&self.kubeconfig(ADMIN)).await);
            let _ = self.admin.set(rest);
        }
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        let asked =
            tokio::time::timeout(Duration::from_secs(5), self.rest().0.request_text(request));
        match asked.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in 5 s".into()),
        }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("tls.crt")
    }

    /// Sends requests as the administrator, directly to the API server.
    ///
    /// # Panics
    /// The API server was never ready.
    pub(crate) fn rest(&self) -> &Rest {
        self.admin.get().expect("the API server was ready before")
    }

    /// Like `rest`, with this user agent, from which the API server takes the field manager's name.
    pub(crate) async fn rest_as(&self, program: &'static str) -> Rest {
        let mut config = client_config(&self.kubeconfig(ADMIN)).await;
        let user_agent = http::HeaderValue::from_static(program);
        config.headers.push((http::header::USER_AGENT, user_agent));
        Rest(Client::try_from(config).unwrap())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A folder in which a test may put files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A kubeconfig for one of the users; an unknown user gets 401.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{user}.kubeconfig"));
        write_kubeconfig(&path, &self.url(), Some(&self.ca()), &token(user));
        path
    }

    /// Sends SIGKILL and waits until the port is free. The etcd keeps running.
    pub(crate) async fn kill(&self) {
        let api = self.api.lock().unwrap().take();
        drop(api);
        while !is_free(self.port) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends SIGTERM, and SIGKILL if it still runs after five seconds.
    pub(crate) async fn stop(&self) {
        let api = self.api.lock().unwrap().take();
        if let Some(mut api) = api {
            api.signal(Signal::TERM);
            api.wait(Duration::from_secs(5)).await;
        }
        self.kill().await;
    }

    /// Kills the API server and starts it again on the same port and data. Its watch cache is new, so
    /// watches from older resourceVersions get 410.
    pub(crate) async fn restart(&self) {
        self.kill().await;
        self.start_api().await;
        self.wait_ready().await;
    }

    /// Restarts the API server with every API.
    pub(crate) async fn restart_with_all_apis(&mut self) {
        self.without = "";
        self.restart().await;
    }

    /// throughline's requests by the API server's audit log, as `(verb, resource, code)`. A watch
    /// appears when it ends.
    pub(crate) fn audited(&self) -> Vec<(String, String, u16)> {
        let text = fs::read_to_string(self.folder.path().join("audit.log")).unwrap_or_default();
        let event = |line: &str| {
            let event: Value = serde_json::from_str(line).ok()?;
            let code = u16::try_from(event["responseStatus"]["code"].as_u64()?).ok()?;
            let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
            Some((event["verb"].as_str()?.to_owned(), resource.to_owned(), code))
        };
        text.lines().filter_map(event).collect()
    }
}
