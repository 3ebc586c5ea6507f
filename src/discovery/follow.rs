//! Follows the objects that describe clusters, with kube-runtime's `watcher`, and turns its events into
//! offers. [`watch`](crate::watch) explains why the machine's kinds are followed differently.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Api;
use kube::core::ApiResource;
use kube_runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::ledger::{Ledger, Missing, Offer};
use crate::client::{
    AnyObject, CallError, ClusterClient, Timeouts, call_error, kube_client, went_backwards,
};
use crate::config::WatchConstants;
use crate::core::contract::error_cause::ErrorCause;
use crate::core::data::ids::ClusterName;
use crate::watch::pauses::Pauses;

/// A watch counts as resumed if no error came within this time.
const RESUMED_AFTER: Duration = Duration::from_secs(1);

/// How long objects that lose a label are gathered for one list.
const GATHER: Duration = Duration::from_secs(2);

/// The longest pause that an API server may ask for.
const THROTTLED_MAX: Duration = Duration::from_secs(5);

/// The objects that describe clusters.
pub(super) struct Objects {
    pub(super) resource: ApiResource,
    /// `None` for cluster-scoped objects, or for those of all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) label_selector: Option<String>,
    /// A page is read as a whole.
    pub(super) page_size: u32,
}

impl Objects {
    fn api(&self, client: kube::Client) -> Api<AnyObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }

    /// The resource's name in RBAC and CRDs, with the group.
    fn full_name(&self) -> String {
        let ApiResource { plural, group, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }
}

/// The offer of an object; the ledger has its earlier offer. An unreadable object is a broken offer and
/// does not affect the others.
pub(super) type Reader = Box<dyn Fn(&AnyObject, &Ledger) -> Offer + Send + Sync>;

pub(super) struct Follower {
    /// Finds the cluster that holds the objects; `None` while it is not joined.
    pub(super) find_host: Box<dyn Fn() -> Option<Arc<ClusterClient>> + Send + Sync>,
    pub(super) objects: Objects,
    pub(super) reader: Reader,
    pub(super) ledger: Ledger,
    pub(super) config: WatchConstants,
    /// Receives the names whose Project may be gone.
    pub(super) ask: Option<mpsc::UnboundedSender<Question>>,
}

/// A Project that may not exist.
pub(super) enum Question {
    /// It was observed to be deleted, or a complete list lacks it.
    Deleted(ClusterName),
    /// No list contains it.
    Unknown(ClusterName),
}

/// The API server that holds the objects.
struct Host {
    client: Arc<ClusterClient>,
    api: Api<AnyObject>,
    pauses: Pauses,
    /// When the last watch was opened; `None` before the first, and after an error.
    opened: Option<Instant>,
    /// The list before came from another API server, or a newer state, so objects missing from the next
    /// one are not proven gone.
    is_another: bool,
}

type Events = BoxStream<'static, watcher::Result<Event<AnyObject>>>;

impl Follower {
    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        let mut is_another = false;
        let mut pauses = Pauses::new();
        loop {
            let Some(client) = (self.find_host)() else {
                let error = "the cluster that holds the objects is not configured".to_owned();
                self.report_lost(&CallError::NoClient(error)).await;
                sleep(pauses.next(&self.config)).await;
                pauses.ended();
                continue;
            };
            self.follow(client, is_another).await;
            is_another = true;
        }
    }

    /// Follows the objects until they are to be read from another cluster.
    async fn follow(&mut self, client: Arc<ClusterClient>, is_another: bool) {
        let WatchConstants { timeout_ms, silent_after_ms, .. } = self.config;
        let [answer, silence] = [timeout_ms, silent_after_ms].map(Duration::from_millis);
        let (kube, mut opened) = kube_client(client.clone(), Timeouts { answer, silence });
        let mut moves = client.moves();
        let api = self.objects.api(kube);
        let pauses = Pauses::new();
        let mut host = Host { client, api, pauses, opened: None, is_another };
        let mut events = self.events(&host);
        loop {
            let resumed_at = host.opened.filter(|_| self.ledger.is_lost());
            tokio::select! {
                biased;
                _ = moves.changed() => return,
                Ok(()) = opened.changed() => {
                    host.opened = Some(Instant::now());
                    if !self.is_still(&host.client) {
                        return;
                    }
                }
                Some(event) = events.next() => match event {
                    Ok(Event::Delete(object)) if self.may_be_unselected(&object) => {
                        // Others may follow, and one list tells of all.
                        sleep(GATHER).await;
                        events = self.events(&host);
                    }
                    Ok(event) => self.handle(event, &mut host).await,
                    Err(error) => {
                        // That watch may have been opened just now.
                        opened.mark_unchanged();
                        let is_resumable = is_resumable(&error);
                        self.fail(&error, &mut host).await;
                        if !self.is_still(&host.client) {
                            return;
                        }
                        if !is_resumable {
                            events = self.events(&host);
                        }
                    }
                },
                () = sleep_until(resumed_at.unwrap_or_else(Instant::now) + RESUMED_AFTER),
                    if resumed_at.is_some() => self.ledger.resumed().await,
            }
        }
    }

    fn events(&self, host: &Host) -> Events {
        let config = watcher::Config {
            label_selector: self.objects.label_selector.clone(),
            page_size: Some(self.objects.page_size),
            ..watcher::Config::default()
        };
        watcher(host.api.clone(), config).boxed()
    }

    /// An object that loses the label of the selector is shown as deleted, too. That would prove that
    /// a project is gone, so only a list tells that the object is not selected any more.
    fn may_be_unselected(&self, object: &AnyObject) -> bool {
        let has_selector = self.objects.label_selector.is_some();
        self.is_of_milo_root()
            && has_selector
            && object.metadata().is_ok_and(|meta| meta.deletion_timestamp.is_none())
    }

    /// Whether the objects are the Projects of a Milo root, which is asked whether one is gone.
    fn is_of_milo_root(&self) -> bool {
        self.ask.is_some()
    }

    fn is_still(&self, client: &Arc<ClusterClient>) -> bool {
        (self.find_host)().is_some_and(|host| Arc::ptr_eq(&host, client))
    }

    async fn handle(&mut self, event: Event<AnyObject>, host: &mut Host) {
        if self.ledger.is_lost() && matches!(event, Event::Apply(_) | Event::Delete(_)) {
            self.ledger.resumed().await;
        }
        match event {
            Event::Init => self.ledger.new_list().await,
            Event::InitApply(object) => {
                self.ledger.listed((self.reader)(&object, &self.ledger)).await;
            }
            Event::InitDone => {
                let missing = self.ledger.list_finished().await;
                self.ask_for_proof(missing, host);
            }
            Event::Apply(object) => {
                self.ledger.changed((self.reader)(&object, &self.ledger)).await;
            }
            Event::Delete(object) => {
                let Offer { cluster, shown_by, .. } = (self.reader)(&object, &self.ledger);
                let was_shown = self.ledger.withdrawn(&cluster, &shown_by).await;
                if let Some(ask) = self.ask.as_ref().filter(|_| was_shown) {
                    let _ = ask.send(Question::Deleted(cluster));
                }
            }
        }
    }

    /// A list that lacks many objects at once proves nothing about any of them; neither does a list
    /// from another API server or an older state.
    fn ask_for_proof(&self, missing: Missing, host: &mut Host) {
        let is_comparable = !std::mem::take(&mut host.is_another) && !missing.is_suspicious;
        let Some(ask) = self.ask.as_ref().filter(|_| is_comparable) else { return };
        for cluster in missing.clusters {
            let _ = ask.send(Question::Deleted(cluster));
        }
    }

    /// Reports an error, and waits before the next attempt.
    async fn fail(&mut self, error: &watcher::Error, host: &mut Host) {
        host.opened = None;
        let call = call_error(error);
        let asked = call.retry_after().unwrap_or_default().min(THROTTLED_MAX);
        if call == went_backwards() {
            warn!(
                resource = self.objects.full_name(),
                "the resourceVersion went backwards: the API server \
                was restored from an older state"
            );
            host.is_another = true;
        }
        match call.code() {
            // It is starting up or busy: nothing is lost.
            Some(429) => {}
            // The version is too old to resume from. If the API server can't be read, the next list
            // reports it.
            Some(410) if !matches!(error, watcher::Error::InitialListFailed(_)) => {}
            _ => self.report_lost(&call).await,
        }
        let pause = host.pauses.next(&self.config).saturating_sub(call.waited());
        sleep(pause.max(asked)).await;
        host.pauses.ended();
    }

    async fn report_lost(&mut self, error: &CallError) {
        let remedy = self.remedy(error);
        self.ledger.lost(error.failure(), remedy.as_deref()).await;
    }

    /// What an operator can do; `None` if only waiting helps.
    fn remedy(&self, error: &CallError) -> Option<String> {
        let resource = self.objects.full_name();
        Some(match error.cause() {
            ErrorCause::Unauthorized => "renew the token or client certificate in the kubeconfig; \
                 throughline reads it again before each attempt"
                .to_owned(),
            ErrorCause::Forbidden => {
                format!("grant get, list and watch on {resource} to the user or ServiceAccount")
            }
            ErrorCause::NotFound => format!("check that this API server serves {resource}"),
            ErrorCause::Certificate => "check certificate-authority-data, the server's name and \
                 the client certificate in the kubeconfig"
                .to_owned(),
            ErrorCause::Kubeconfig => {
                "fix the kubeconfig; throughline reads it again before each attempt".to_owned()
            }
            _ => return None,
        })
    }
}

/// Whether a watch may be resumed. `watcher` would resume after each error, but would skip a line that
/// it can't read, and repeat a version that is too old forever.
fn is_resumable(error: &watcher::Error) -> bool {
    let is_broken = matches!(
        error,
        watcher::Error::WatchStartFailed(_)
            | watcher::Error::WatchFailed(kube::Error::ReadEvents(_))
    );
    is_broken && call_error(error).code() != Some(410)
}
