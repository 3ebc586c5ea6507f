//! A real kube-apiserver with its own etcd.

mod etcd;
mod template;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::time::timeout;

use super::certificate::{Certificate, X509};
use super::objects;
use super::process::{Folder, Process, Signal, free_port, is_free};
use super::rest::Rest;
use super::{SOON, eventually};

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
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "c", "cluster": cluster }],
        "users": [{ "name": "u", "user": { "token": token } }],
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
    without_retries(Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap())
}

/// A client without credentials that does not retry, and accepts any certificate.
pub(super) fn client_without_token(url: &str) -> Client {
    let mut config = without_retries(Config::new(url.parse().unwrap()));
    config.accept_invalid_certs = true;
    Client::try_from(config).unwrap()
}

fn without_retries(mut config: Config) -> Config {
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
    admin: Rest,
    /// One more flag of kube-apiserver.
    flag: &'static str,
}

/// APIs that no test uses and that make the start slower.
const FEW_APIS: &str =
    "--runtime-config=apps/v1=false,batch/v1=false,autoscaling/v1=false,autoscaling/v2=false";
const ALL_APIS: &str = "--runtime-config=";
/// Otherwise the cache would still serve pages of a compacted revision.
const NO_SNAPSHOTS: &str = "--feature-gates=ListFromCacheSnapshot=false";

impl ApiServer {
    /// Starts both and waits until they are ready. Some APIs are off, such as that of Deployments.
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_with(name, FEW_APIS, None).await
    }

    /// Like `start`, with every API.
    pub(crate) async fn start_with_all_apis(name: &str) -> Self {
        Self::start_with(name, ALL_APIS, None).await
    }

    /// With every API, and so that no page of a list can be read after a compaction.
    pub(crate) async fn start_without_snapshots(name: &str) -> Self {
        Self::start_with(name, NO_SNAPSHOTS, None).await
    }

    /// Like `start`, with all four CRDs, which are served.
    pub(crate) async fn start_with_crds(name: &str) -> Self {
        let server = Self::start_with(name, FEW_APIS, Some(template::data().await)).await;
        objects::wait_crds(server.rest()).await;
        server
    }

    async fn start_with(name: &str, flag: &'static str, data: Option<&Path>) -> Self {
        let folder = Folder::new(name);
        write_files(folder.path());
        if let Some(data) = data {
            etcd::copy(data, &folder.path().join("etcd"));
        }
        let port = free_port();
        let kubeconfig = write_user(folder.path(), port, ADMIN);
        let server = Self {
            name: name.to_owned(),
            port,
            etcd_port: free_port(),
            api: Mutex::new(None),
            etcd: Mutex::new(None),
            folder,
            admin: Rest(client(&kubeconfig).await),
            flag,
        };
        server.start_both().await;
        server
    }

    async fn start_both(&self) {
        self.start_etcd();
        self.start_api().await;
    }

    /// Starts the API server and waits until it is ready.
    async fn start_api(&self) {
        self.wait_etcd().await;
        let folder = self.folder.path();
        let mut command = program("kube-apiserver");
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        command.args([
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", file("tls.crt")),
            format!("--tls-private-key-file={}", file("tls.key")),
            format!("--token-auth-file={}", file("users.csv")),
            format!("--service-account-signing-key-file={}", file("tls.key")),
            format!("--service-account-key-file={}", file("tls.crt")),
        ]);
        command.args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
        ]);
        command.arg(self.flag);
        // A start makes much garbage; collecting it less often saves a quarter of its CPU time.
        command.env("GOGC", "400");
        *self.api.lock().unwrap() = Some(Process::start("kube-apiserver", command, folder));
        self.wait_ready().await;
    }

    /// Waits until `/readyz` answers 200.
    async fn wait_ready(&self) {
        eventually(&format!("{} is ready", self.name), 2 * SOON, async || {
            let api = self.api.lock().unwrap().as_mut().map(|api| (api.ended(), api.log_tail()));
            let Some((None, log)) = &api else { panic!("{} has ended: {api:?}", self.name) };
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            let asked = timeout(Duration::from_secs(5), self.admin.0.request_text(request)).await;
            let answer = asked.map_err(|late| format!("{late}\n{log}"))?;
            answer.map(drop).map_err(|error| format!("{error}\n{log}"))
        })
        .await;
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("tls.crt")
    }

    /// Sends requests as the administrator, directly to the API server.
    pub(crate) fn rest(&self) -> &Rest {
        &self.admin
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
        write_user(self.folder.path(), self.port, user)
    }

    /// Sends SIGKILL and waits until the port is free. The etcd keeps running.
    pub(crate) async fn kill(&self) {
        drop(self.api.lock().unwrap().take());
        is_closed(self.port).await;
    }

    async fn stop(&self) {
        end(&self.api, self.port).await;
    }

    /// Kills the API server and starts it again on the same port and data. Its watch cache is new, so
    /// watches from older resourceVersions get 410.
    pub(crate) async fn restart(&self) {
        self.kill().await;
        self.start_api().await;
    }

    /// Restarts the API server with every API.
    pub(crate) async fn restart_with_all_apis(&mut self) {
        self.flag = ALL_APIS;
        self.restart().await;
    }
}

/// A command that runs one of the two.
fn program(name: &str) -> Command {
    let mut command = Command::new(assets().join(name));
    // Several run at a time; each on all cores would collect garbage on all of them.
    command.env("GOMAXPROCS", "1");
    command
}

/// Sends SIGTERM, and SIGKILL if it still runs after five seconds; waits until the port is free.
async fn end(process: &Mutex<Option<Process>>, port: u16) {
    let process = process.lock().unwrap().take();
    if let Some(mut process) = process {
        process.signal(Signal::TERM);
        process.wait(Duration::from_secs(5)).await;
    }
    is_closed(port).await;
}

async fn is_closed(port: u16) {
    while !is_free(port) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Writes a user's kubeconfig.
fn write_user(folder: &Path, port: u16, user: &str) -> PathBuf {
    let path = folder.join(format!("{user}.kubeconfig"));
    let (server, ca) = (format!("https://127.0.0.1:{port}"), folder.join("tls.crt"));
    write_kubeconfig(&path, &server, Some(&ca), &token(user));
    path
}

/// Writes the files that an API server starts with.
fn write_files(folder: &Path) {
    let user = |(user, group)| format!("{},{user},{user},\"{group}\"\n", token(user));
    let users = [(ADMIN, "system:masters"), (THROUGHLINE, ""), (NOBODY, "")].map(user);
    fs::write(folder.join("users.csv"), users.concat()).unwrap();
    // Its own certificate would have an RSA key, which takes long to make. It also signs ServiceAccounts'
    // tokens: without such a key the API server does not start.
    let certificate = Certificate::self_signed("localhost", X509::V3);
    fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(folder.join("tls.key"), certificate.key_pem()).unwrap();
}
