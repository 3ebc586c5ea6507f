//! Credentials, shared by all clusters that use them: a client made from their kubeconfig at first use,
//! and made again when that changes.
//!
//! Requests use the current client. A separate task checks the kubeconfig's files every five seconds,
//! and at once after a request that got no response or a 401. A kubeconfig with another address or
//! other credentials leads to a new client; a broken one leaves the old client in use.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::Uri;
use http::header::InvalidHeaderValue;
use kube::Client;
use kube::client::ConfigExt;
use kube::config::{AuthInfo, KubeConfigOptions};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, ServiceBuilder};
use tracing::{info, warn};

use super::CallError;
use super::error::causes;
use super::fingerprint::{Fingerprint, kubeconfigs, pipe_of};
use super::pool;
use super::spec::{
    ConnectionSpec, Credentials, Server, TOKEN_REMEDY, read_kubeconfig, token_fault,
};
use super::tls::Tls;
use crate::core::data::ids::ClusterName;
use crate::environment::{blocking, here, spawn};

/// How often the kubeconfig's files are checked while all requests succeed.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The least time between two checks while requests fail.
const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// The longest time for making a client: a credential plugin may hang.
const MAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Credentials and the client made from them.
pub(super) struct SharedCredentials {
    credentials: Credentials,
    /// The last start: a failed one counts for some time, so that those who wait for it do not all
    /// retry.
    start: Mutex<Option<Shared<Start>>>,
    users: Arc<Users>,
}

/// Makes the first client. A credential plugin may take longer than a request may, so this goes on
/// when those who wait for it give up. An error has the time when it came.
type Start = BoxFuture<'static, Result<Arc<Started>, (Instant, CallError)>>;

/// The clusters that use the credentials, and the state of their failed requests.
#[derive(Default)]
struct Users {
    members: Mutex<Vec<Weak<Member>>>,
    due: Notify,
    /// The credentials were rejected: a new client may get better ones, even from an unchanged
    /// kubeconfig, because its credential plugin runs again.
    rejected: AtomicBool,
}

/// A cluster that uses credentials.
pub(super) struct Member {
    pub(super) name: ClusterName,
    pub(super) spec: ConnectionSpec,
    /// Changes when the cluster's address changes.
    pub(super) moves: watch::Sender<()>,
    /// Notified when other credentials are in use.
    pub(super) renewed: Arc<Notify>,
}

struct Started {
    made: watch::Receiver<Arc<Made>>,
    /// Empty for a text, which does not change.
    _follower: JoinSet<()>,
}

/// A client with the credentials, for any host.
pub(super) struct Made {
    /// Adds the credentials to requests with a complete URL.
    pub(super) client: Client,
    pub(super) address: Address,
    /// The source of tokens that are read again while the client is in use.
    token_source: String,
    pub(super) tls: Arc<Tls>,
}

/// The target of requests; a different one may be a different API server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) url: Uri,
    tls_server_name: Option<String>,
}

impl Made {
    /// Why a request got no response.
    pub(super) fn failed(&self, error: &kube::Error) -> CallError {
        match causes(error).any(|cause| cause.is::<InvalidHeaderValue>()) {
            true => {
                let token = format!("the token of {} has a line break", self.token_source);
                CallError::NoClient(format!("{token}, {TOKEN_REMEDY}"))
            }
            false => CallError::no_response(error),
        }
    }
}

impl Address {
    /// The address of a server relative to the kubeconfig's server.
    pub(super) fn of(&self, server: &Server) -> Result<Self, CallError> {
        let url = server.url(&self.url).map_err(CallError::NoClient)?;
        Ok(Self { url, tls_server_name: self.tls_server_name.clone() })
    }
}

impl SharedCredentials {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self { credentials, start: Mutex::default(), users: Arc::default() }
    }

    /// Registers a cluster for changes of the kubeconfig's address.
    pub(super) fn add(&self, member: &Arc<Member>) {
        let mut members = self.users.members();
        if members.len() == members.capacity() {
            members.retain(|member| member.strong_count() > 0);
        }
        members.push(Arc::downgrade(member));
    }

    /// The current client.
    ///
    /// # Errors
    /// [`CallError::NoClient`], until one could be made for the first time.
    pub(super) async fn made(&self) -> Result<Arc<Made>, CallError> {
        let started = self.start().await.map_err(|(_, error)| error)?;
        Ok(started.made.borrow().clone())
    }

    /// The start that has succeeded, runs, or has just failed; otherwise a new one.
    fn start(&self) -> Shared<Start> {
        let is_over = |start: &Shared<Start>| {
            let failed = start.peek().and_then(|result| result.as_ref().err());
            failed.is_some_and(|(at, _)| at.elapsed() >= CHECK_PAUSE)
        };
        let mut last = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_some_and(is_over) {
            *last = None;
        }
        let begin = || {
            let started = Started::new(self.credentials.clone(), self.users.clone());
            let task = spawn(started.map(|started| match started {
                Ok(started) => Ok(Arc::new(started)),
                Err(error) => Err((Instant::now(), error)),
            }));
            let failed = |_| Err((Instant::now(), CallError::NoClient(panicked(None))));
            task.map(move |ended| ended.unwrap_or_else(failed)).boxed().shared()
        };
        last.get_or_insert_with(begin).clone()
    }

    /// Reports that a request failed, so that the kubeconfig is checked soon.
    pub(super) fn request_failed(&self, error: &CallError) {
        match error {
            CallError::Status { code: 401, .. } => self.users.rejected.store(true, Relaxed),
            CallError::Status { .. }
            | CallError::NoClient(_)
            | CallError::Unreadable(_)
            | CallError::Defect(_) => return,
            CallError::Unreachable(_) | CallError::Certificate(_) | CallError::TimedOut(_) => {}
        }
        self.users.due.notify_one();
    }
}

impl Started {
    async fn new(credentials: Credentials, users: Arc<Users>) -> Result<Self, CallError> {
        // Before the client: a change in between is detected later.
        let fingerprint = Fingerprint::read(&credentials).await;
        let made = make(&credentials).await?;
        let (current, made) = watch::channel(Arc::new(made));
        let mut tasks = JoinSet::new();
        if !matches!(credentials, Credentials::Text(_)) {
            let follower =
                Follower { credentials, made: current, fingerprint, users, logged: None };
            tasks.spawn(here(follower.run()));
        }
        Ok(Self { made, _follower: tasks })
    }
}

impl Users {
    fn members(&self) -> MutexGuard<'_, Vec<Weak<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn present(&self) -> Vec<Arc<Member>> {
        self.members().iter().filter_map(Weak::upgrade).collect()
    }

    /// For the log: the cluster's name, or the number of clusters.
    fn names(&self) -> String {
        match &*self.present() {
            [] => "none".to_owned(),
            [one] => one.name.to_string(),
            [first, others @ ..] => format!("{} and {} more", first.name, others.len()),
        }
    }
}

/// Follows the kubeconfig while a cluster uses it.
struct Follower {
    credentials: Credentials,
    made: watch::Sender<Arc<Made>>,
    /// The files that the client was made from.
    fingerprint: Fingerprint,
    users: Arc<Users>,
    /// The error that was last logged, until a client is made again.
    logged: Option<String>,
}

impl Follower {
    async fn run(mut self) {
        loop {
            // A time-out is a reason to check, too.
            let _ = timeout(CHECK_EVERY, self.users.due.notified()).await;
            self.check().await;
            sleep(CHECK_PAUSE).await;
        }
    }

    async fn check(&mut self) {
        let rejected = self.users.rejected.swap(false, Relaxed);
        if !rejected && self.fingerprint.is_current().await {
            return;
        }
        let fingerprint = Fingerprint::read(&self.credentials).await;
        let changed = !fingerprint.is_same_content(&self.fingerprint);
        if !changed && !rejected {
            self.fingerprint = fingerprint;
            return;
        }
        match make(&self.credentials).await {
            Ok(made) => self.replace(made, fingerprint, changed),
            Err(error) => self.keep(&error),
        }
    }

    fn replace(&mut self, made: Made, fingerprint: Fingerprint, changed: bool) {
        let now = made.address.clone();
        let before = self.made.send_replace(Arc::new(made)).address.clone();
        self.fingerprint = fingerprint;
        self.logged = None;
        let clusters = self.users.names();
        for member in self.users.present() {
            let server = &member.spec.server;
            if now != before && now.of(server) != before.of(server) {
                member.moves.send_replace(());
            }
            // Not after a credential plugin ran again: its new token may be rejected, too.
            if changed {
                member.renewed.notify_waiters();
            }
        }
        if now != before {
            info!(
                cluster = clusters,
                "the kubeconfig names another address: connecting to that one"
            );
        } else if changed {
            info!(
                cluster = clusters,
                "the kubeconfig changed: new connections use its new credentials"
            );
        }
    }

    /// Keeps the client in use and the fingerprint, so that the next check retries.
    fn keep(&mut self, error: &CallError) {
        let error = error.to_string();
        if self.logged.as_ref() != Some(&error) {
            warn!(
                cluster = self.users.names(),
                error,
                "the changed kubeconfig cannot be used: the former connection stays; fix the file"
            );
            self.logged = Some(error);
        }
    }
}

async fn make(credentials: &Credentials) -> Result<Made, CallError> {
    if let Some(pipe) = pipe_of(credentials) {
        let error = format!("{} is a pipe, whose read may never end: name a file", pipe.display());
        return Err(CallError::NoClient(error));
    }
    let config = kube_config(credentials).await?;
    if let Some(fault) = token_fault(&config.auth_info) {
        let files: Vec<_> =
            kubeconfigs(credentials).iter().map(|file| file.display().to_string()).collect();
        let files = files.join(" or ");
        let error = format!("users[].user.token in {files} has {fault}, {TOKEN_REMEDY}");
        return Err(CallError::NoClient(error));
    }
    let plugin = config.auth_info.exec.as_ref().map(|_| token_source(&config.auth_info));
    // In a separate thread: this reads files, and a credential plugin runs until it has answered.
    let making = blocking(move || make_from(config));
    match timeout(MAKE_TIMEOUT, making).await {
        Ok(made) => made.unwrap_or_else(|| Err(CallError::NoClient(panicked(plugin.as_deref())))),
        Err(_) => {
            let error = format!("not ready within {} s", MAKE_TIMEOUT.as_secs());
            Err(CallError::NoClient(error))
        }
    }
}

/// The error for a panic of kube, which panics on an invalid token that a plugin returns without
/// expiry.
fn panicked(plugin: Option<&str>) -> String {
    let token = plugin.map(|plugin| format!("the token of {plugin} may have a line break"));
    token.map_or("making it failed".to_owned(), |token| format!("{token}, {TOKEN_REMEDY}"))
}

fn token_source(auth: &AuthInfo) -> String {
    match (&auth.token_file, &auth.exec) {
        (Some(file), _) => format!("tokenFile {file}"),
        (None, Some(exec)) => {
            format!("the exec plugin {}", exec.command.as_deref().unwrap_or_default())
        }
        (None, None) => "the kubeconfig's user".to_owned(),
    }
}

fn make_from(mut config: kube::Config) -> Result<Made, CallError> {
    let failed = |error: kube::Error| CallError::no_client(&error);
    config.default_retry = false;
    if config.proxy_url.is_some() {
        // kube reports an error if it is built without support for proxies.
        Client::try_from(config.clone()).map_err(failed)?;
    }
    // Runs a credential plugin, if there is one.
    let auth = config.auth_layer().map_err(failed)?;
    let has_plugin = config.auth_info.exec.is_some();
    let tls = Arc::new(Tls::new(&config, has_plugin && auth.is_none())?);
    let service = ServiceBuilder::new()
        .option_layer(auth)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .map_err(BoxError::from)
        .service_fn(pool::send);
    let client = Client::new(service, config.default_namespace);
    let address = Address { url: config.cluster_url, tls_server_name: config.tls_server_name };
    let token_source = token_source(&config.auth_info);
    Ok(Made { client, address, token_source, tls })
}

async fn kube_config(credentials: &Credentials) -> Result<kube::Config, CallError> {
    let (kubeconfig, context) = match credentials {
        Credentials::InCluster => {
            return kube::Config::incluster().map(direct).map_err(|e| CallError::no_client(&e));
        }
        Credentials::Kubeconfig { file: None, context: None } => {
            let config = kube::Config::infer().await;
            return config.map(direct).map_err(|e| CallError::no_client(&e));
        }
        Credentials::Kubeconfig { file, context } => {
            let kubeconfig = read_kubeconfig(file.as_deref());
            (kubeconfig.map_err(|e| CallError::no_client(&e))?, context.clone())
        }
        Credentials::Text(text) => (text.kubeconfig().map_err(CallError::NoClient)?, None),
    };
    let options = KubeConfigOptions { context, ..Default::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.map(direct).map_err(|e| CallError::no_client(&e))
}

/// Go's clients ignore HTTPS_PROXY for the local host; kube does not.
fn direct(mut config: kube::Config) -> kube::Config {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    if host == "localhost" || host.parse().is_ok_and(is_loopback) {
        config.proxy_url = None;
    }
    config
}

#[cfg(test)]
mod tests {
    use super::super::{ClusterClient, Connections, get};
    use super::*;
    use crate::metrics::Metrics;

    /// A plugin that always returns a token with a line break.
    const PLUGIN: &str = r#"exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never,
        command: printf, args: ['%s', '{"apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential", "status": {"token": "secret\n"}}']}"#;

    /// The error of a request with these user fields in a kubeconfig file, and the path of that file.
    /// `{}` in the fields is another file, which contains a token with a line break.
    async fn error_with(name: &str, user: &str) -> (String, String) {
        let folder = std::env::temp_dir();
        let file = folder.join(format!("throughline-{name}-{}", std::process::id()));
        let token = folder.join(format!("throughline-{name}-token-{}", std::process::id()));
        std::fs::write(&token, "secret\n").unwrap();
        let user = user.replace("{}", &token.display().to_string());
        let text = format!(
            "{{current-context: x, contexts: [{{name: x, context: {{cluster: c, user: u}}}}],
            clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}],
            users: [{{name: u, user: {{{user}}}}}]}}"
        );
        std::fs::write(&file, text).unwrap();
        let credentials = Credentials::Kubeconfig { file: Some(file.clone()), context: None };
        let spec = ConnectionSpec { credentials, server: Server::AsConfigured };
        let connections = Connections::default();
        let metrics = Arc::new(Metrics::new());
        let client = ClusterClient::new("a".into(), Vec::new(), spec, &connections, metrics);
        let request = get("/version", "*/*").unwrap();
        let error = client.open(request, Duration::from_secs(10)).await.unwrap_err();
        for file in [&file, &token] {
            std::fs::remove_file(file).unwrap();
        }
        assert!(matches!(error, CallError::NoClient(_)), "{error:?}");
        (error.to_string(), file.display().to_string())
    }

    #[tokio::test]
    async fn a_line_break_in_a_token_is_told() {
        let (error, file) = error_with("inline", r#"token: "secret\n""#).await;
        assert!(
            error.contains(&format!("users[].user.token in {file} has a line break, ")),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
        let (error, _) = error_with("file", "tokenFile: '{}'").await;
        assert!(
            error.contains("the token of tokenFile /") && error.contains(" has a line break, ")
        );
        let (error, _) = error_with("plugin", PLUGIN).await;
        assert!(
            error.contains("the token of the exec plugin printf may have a line break, "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_a_pipe_is_not_read() {
        let file = std::env::temp_dir().join(format!("throughline-pipe-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let credentials = Credentials::Kubeconfig { file: Some(file.clone()), context: None };
        let shared = SharedCredentials::new(credentials);
        let made = timeout(Duration::from_secs(10), shared.made()).await;
        std::fs::remove_file(&file).unwrap();
        let error = made.unwrap().err().unwrap().to_string();
        assert!(error.contains(&format!("{} is a pipe", file.display())), "{error}");
    }
}
