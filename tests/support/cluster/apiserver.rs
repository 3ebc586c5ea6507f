//! A real kube-apiserver with its own etcd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

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

    async fn start_without(name: &str, without: &'static str) -> Self {
        let folder = Folder::new(name);
        let (port, etcd_port) = (free_port(), free_port());
        let users: Vec<_> = [(ADMIN, "system:masters"), (THROUGHLINE, ""), (NOBODY, "")]
            .iter()
            .map(|(user, group)| format!("{},{user},{user},\"{group}\"\n", token(user)))
            .collect();
        fs::write(folder.path().join("users.csv"), users.concat()).unwrap();
        write_signing_keys(folder.path());
        fs::write(folder.path().join("audit.yaml"), AUDIT_POLICY).unwrap();
        let etcd = start_etcd(folder.path(), etcd_port);
        let server = Self {
            name: name.to_owned(),
            port,
            etcd_port,
            api: Mutex::new(None),
            etcd: Mutex::new(Some(etcd)),
            folder,
            admin: OnceLock::new(),
            without,
        };
        server.start_api();
        server.wait_ready().await;
        server
    }

    fn start_api(&self) {
        let folder = self.folder.path();
        let mut command = Command::new(assets().join("kube-apiserver"));
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        command.args([
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            format!("--cert-dir={}", file("certs")),
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
        *self.api.lock().unwrap() = Some(Process::start("kube-apiserver", command, folder));
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Panics
    /// The process ends, or is not ready within two minutes.
    pub(crate) async fn wait_ready(&self) {
        let until = Instant::now() + Duration::from_secs(120);
        let mut last = "no certificate yet".to_owned();
        loop {
            let ended = self.api.lock().unwrap().as_mut().is_none_or(|api| api.ended().is_some());
            if ended || Instant::now() > until {
                let words = self.api.lock().unwrap().as_ref().map(Process::log_tail);
                panic!("{} is not ready: {last}\n{}", self.name, words.unwrap_or_default());
            }
            if self.ca().exists() {
                match self.probe().await {
                    Ok(()) => return,
                    Err(error) => last = error,
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn probe(&self) -> Result<(), String> {
        // The client would keep a half-written certificate for ever.
        let pem = fs::read_to_string(self.ca()).map_err(|e| e.to_string())?;
        if pem.matches("-----END CERTIFICATE-----").count() < 2 {
            return Err("the certificate is half written".into());
        }
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
        self.folder.path().join("certs/apiserver.crt")
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
        self.start_api();
        self.wait_ready().await;
    }

    /// Restarts the API server with every API.
    pub(crate) async fn restart_with_all_apis(&mut self) {
        self.without = "";
        self.restart().await;
    }

    /// Stops both, runs `work` on their folder, and starts both again.
    async fn with_etcd_stopped(&self, work: impl FnOnce(&Path)) {
        self.stop().await;
        let etcd = self.etcd.lock().unwrap().take();
        if let Some(mut etcd) = etcd {
            etcd.signal(Signal::TERM);
            etcd.wait(Duration::from_secs(5)).await;
        }
        while !is_free(self.etcd_port) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        work(self.folder.path());
        *self.etcd.lock().unwrap() = Some(start_etcd(self.folder.path(), self.etcd_port));
        self.start_api();
        self.wait_ready().await;
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

    /// SIGSTOP: connections stay open and nothing is answered.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        self.api.lock().unwrap().as_ref().expect("the API server is running").signal(signal);
    }

    /// Compacts etcd's history up to now, so that no older version can be read from it. The API
    /// server's watch cache still serves older versions until `restart`.
    pub(crate) async fn compact(&self) {
        let status = self.etcd("maintenance/status", json!({})).await;
        let revision = status["header"]["revision"].as_str().unwrap().to_owned();
        self.etcd("kv/compaction", json!({ "revision": revision, "physical": true })).await;
    }

    async fn etcd(&self, path: &str, body: Value) -> Value {
        let config = Config::new(format!("http://127.0.0.1:{}", self.etcd_port).parse().unwrap());
        let request = http::Request::post(format!("/v3/{path}"))
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .unwrap();
        Client::try_from(config).unwrap().request(request).await.unwrap()
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

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: [throughline]
  - level: None
"#;

fn start_etcd(folder: &Path, port: u16) -> Process {
    let mut command = Command::new(assets().join("etcd"));
    command.args([
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
    ]);
    command.args([
        "--listen-peer-urls=http://127.0.0.1:0",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--quota-backend-bytes=4294967296",
    ]);
    Process::start("etcd", command, folder)
}

/// The API server does not start without keys to sign ServiceAccount tokens.
fn write_signing_keys(folder: &Path) {
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    /// RFC 5480: the header of a P-256 public key, up to where the point begins.
    const SPKI_P256: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
    let random = ring::rand::SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random).unwrap();
    let bytes = (0..SPKI_P256.len()).step_by(2);
    let mut public: Vec<_> =
        bytes.map(|i| u8::from_str_radix(&SPKI_P256[i..i + 2], 16).unwrap()).collect();
    public.extend_from_slice(pair.public_key().as_ref());
    let write = |name: &str, tag: &str, key: &[u8]| {
        fs::write(folder.join(name), pem::encode(&pem::Pem::new(tag, key))).unwrap();
    };
    write("signing.key", "PRIVATE KEY", private.as_ref());
    write("signing.pub", "PUBLIC KEY", &public);
}
