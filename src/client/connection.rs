//! The client of one cluster: made from its kubeconfig at first use, and made again when that
//! changes.
//!
//! Requests use the client that there is. Apart from them, a task looks at the kubeconfig's files: every
//! five seconds, and at once after a request that got no response or was answered 401. A kubeconfig
//! that names another address or other credentials gives a new client; one that is broken leaves the
//! old client in use.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::Uri;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::{Notify, OnceCell, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::fingerprint::{Fingerprint, Stamps};
use super::{CallError, root_cause};
use crate::config::ClusterConfig;

/// The longest that connecting may take, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the kubeconfig's files are looked at while all requests succeed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The least time between two looks while requests fail.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The longest that a new client may take: a credential plugin may hang.
const MAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The way to one cluster.
pub(super) struct Connection {
    config: ClusterConfig,
    current: OnceCell<Current>,
    wishes: Arc<Wishes>,
    moves: watch::Sender<()>,
}

/// What failed requests ask of the task that looks at the kubeconfig.
#[derive(Default)]
struct Wishes {
    look: Notify,
    /// The credentials were rejected: a new client may have better ones, even from an unchanged
    /// kubeconfig, whose credential plugin is asked again.
    rejected: AtomicBool,
}

struct Current {
    client: Arc<RwLock<Client>>,
    follower: Option<AbortHandle>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(follower) = &self.follower {
            follower.abort();
        }
    }
}

/// Where requests go; a different one may be a different API server.
#[derive(Clone, PartialEq, Eq)]
struct Address {
    url: Uri,
    proxy: Option<Uri>,
    tls_server_name: Option<String>,
}

struct Made {
    client: Client,
    address: Address,
}

/// Follows the kubeconfig for as long as the cluster is in use.
struct Follower {
    config: ClusterConfig,
    client: Arc<RwLock<Client>>,
    address: Address,
    /// What the client was made from.
    fingerprint: Fingerprint,
    wishes: Arc<Wishes>,
    moves: watch::Sender<()>,
    /// The error that was last logged, until a client could be made again.
    logged: Option<String>,
}

impl Connection {
    pub(super) fn new(config: ClusterConfig) -> Self {
        Self {
            config,
            current: OnceCell::new(),
            wishes: Arc::default(),
            moves: watch::Sender::new(()),
        }
    }

    /// With a client that is never made again.
    pub(super) fn fixed(config: ClusterConfig, client: Client) -> Self {
        let current = Current { client: Arc::new(RwLock::new(client)), follower: None };
        Self { current: OnceCell::from(current), ..Self::new(config) }
    }

    pub(super) fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// The present client.
    ///
    /// # Errors
    /// [`CallError::NoClient`], until one could be made for the first time.
    pub(super) async fn client(&self) -> Result<Client, CallError> {
        let current = self.current.get_or_try_init(|| self.start()).await?;
        Ok(current.client.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn start(&self) -> Result<Current, CallError> {
        // Before the client: a change in between shows as one later.
        let fingerprint = Fingerprint::read(&self.config).await;
        let Made { client, address } = make(&self.config).await?;
        let client = Arc::new(RwLock::new(client));
        let follower = Follower {
            config: self.config.clone(),
            client: client.clone(),
            address,
            fingerprint,
            wishes: self.wishes.clone(),
            moves: self.moves.clone(),
            logged: None,
        };
        let follower = tokio::spawn(follower.run()).abort_handle();
        Ok(Current { client, follower: Some(follower) })
    }

    /// Tells that a request failed: its kubeconfig is looked at soon.
    pub(super) fn request_failed(&self, error: &CallError) {
        match error {
            CallError::Status { code: 401, .. } => self.wishes.rejected.store(true, Relaxed),
            CallError::Status { .. } | CallError::NoClient(_) | CallError::Unreadable(_) => return,
            CallError::Unreachable(_) | CallError::Certificate(_) | CallError::TimedOut(_) => {}
        }
        self.wishes.look.notify_one();
    }

    /// Changes whenever the kubeconfig names another address.
    pub(super) fn moves(&self) -> watch::Receiver<()> {
        self.moves.subscribe()
    }
}

impl Follower {
    async fn run(mut self) {
        loop {
            // Its end is a reason to look, too.
            let _ = timeout(LOOK_EVERY, self.wishes.look.notified()).await;
            self.look().await;
            sleep(LOOK_PAUSE).await;
        }
    }

    async fn look(&mut self) {
        let rejected = self.wishes.rejected.swap(false, Relaxed);
        if !rejected && Stamps::read(self.fingerprint.files()).await == self.fingerprint.stamps {
            return;
        }
        let fingerprint = Fingerprint::read(&self.config).await;
        let changed = !fingerprint.is_same_content(&self.fingerprint);
        if !changed && !rejected {
            self.fingerprint = fingerprint;
            return;
        }
        match timeout(MAKE_TIMEOUT, make(&self.config)).await {
            Ok(Ok(made)) => self.replace(made, fingerprint, changed),
            Ok(Err(error)) => self.keep(&error),
            Err(_) => {
                let error = format!("not ready within {} s", MAKE_TIMEOUT.as_secs());
                self.keep(&CallError::NoClient(error));
            }
        }
    }

    fn replace(&mut self, made: Made, fingerprint: Fingerprint, changed: bool) {
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = made.client;
        self.fingerprint = fingerprint;
        self.logged = None;
        let cluster = &self.config.name;
        if made.address != self.address {
            self.address = made.address;
            self.moves.send_replace(());
            info!(%cluster, "the kubeconfig names another address: connecting to that one");
        } else if changed {
            info!(%cluster, "the kubeconfig changed: new connections use its new credentials");
        }
    }

    /// The fingerprint stays, so that the next look tries again.
    fn keep(&mut self, error: &CallError) {
        let error = error.to_string();
        if self.logged.as_ref() != Some(&error) {
            warn!(cluster = %self.config.name, error,
                "the changed kubeconfig cannot be used: the former connection stays; fix the file");
            self.logged = Some(error);
        }
    }
}

async fn make(config: &ClusterConfig) -> Result<Made, CallError> {
    let mut config = kube_config(config).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    let address = Address {
        url: config.cluster_url.clone(),
        proxy: config.proxy_url.clone(),
        tls_server_name: config.tls_server_name.clone(),
    };
    let client = Client::try_from(config).map_err(|e| CallError::NoClient(root_cause(&e)))?;
    Ok(Made { client, address })
}

async fn kube_config(config: &ClusterConfig) -> Result<kube::Config, CallError> {
    let failed = |error: &dyn std::error::Error| CallError::NoClient(root_cause(error));
    let ClusterConfig { kubeconfig, context, in_cluster, .. } = config;
    let options = KubeConfigOptions { context: context.clone(), ..Default::default() };
    let config = if *in_cluster {
        kube::Config::incluster().map_err(|e| failed(&e))
    } else if let Some(path) = kubeconfig {
        let file = Kubeconfig::read_from(path).map_err(|e| failed(&e))?;
        kube::Config::from_custom_kubeconfig(file, &options).await.map_err(|e| failed(&e))
    } else if context.is_some() {
        kube::Config::from_kubeconfig(&options).await.map_err(|e| failed(&e))
    } else {
        kube::Config::infer().await.map_err(|e| failed(&e))
    };
    let mut config = config?;
    // Go's clients ignore HTTPS_PROXY for the local host; kube does not.
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    if host == "localhost" || host.parse().is_ok_and(is_loopback) {
        config.proxy_url = None;
    }
    Ok(config)
}
