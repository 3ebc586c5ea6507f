//! Watches the clusters and writes nothing: the machine and the watches of a live run, without
//! leadership and with an executor in dry-run mode.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::ListParams;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::managed_fields::{LastWriter, ManagedFieldsIndex, field_owner, without_gateway_writers};
use super::{HopTrace, Snapshot, SnapshotSource, Trace, read_only_settings};
use crate::client::{CallError, ClusterClient, no_request, path};
use crate::clock::wall_clock_now;
use crate::config::{Config, EventLogConfig};
use crate::core::contract::event::EventKind;
use crate::core::contract::note::Hop;
use crate::core::contract::settings::StallSettings;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::objects::UPSTREAM_STATUS;
use crate::core::data::time::UnixMillis;
use crate::engine::{Engine, PendingLists};
use crate::leader::election::{LeaseRequest, LeaseResponse};
use crate::leader::gate::Gate;
use crate::leader::lease::{LeaseApi, LeaseClient};

const WRITER_REQUESTS_IN_FLIGHT_MAX: usize = 8;

/// Changes within this time are shown together.
const BATCH_WINDOW: Duration = Duration::from_millis(100);

/// Follows the clusters through their watches and takes snapshots of what they show.
pub struct ClusterWatcher {
    engine: Engine,
    events: mpsc::Receiver<EventKind>,
    managed_fields: ManagedFieldsIndex,
    pending_lists: PendingLists,
    stall_limits: StallSettings,
    trigger_key: String,
    holder: Option<String>,
    _watches: JoinSet<()>,
}

impl std::fmt::Debug for ClusterWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterWatcher").finish_non_exhaustive()
    }
}

impl ClusterWatcher {
    /// Starts the watches.
    ///
    /// # Errors
    /// Those of opening an event log; none is opened here.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let settings = read_only_settings(&config.settings());
        // Under these settings and without leadership the machine decides nothing. The dry run makes
        // sure that a mistake in that would not be written either.
        let dry = Config { dry_run: true, ..config.clone() };
        let (gate, _) = Gate::closed();
        let engine = Engine::new(&dry, settings, gate, &EventLogConfig::default(), Vec::new());
        let (bus, events) = mpsc::channel(config.watch.queue);
        let settings = engine.machine.settings();
        let kinds = |cluster: &ClusterClient| settings.kinds_watched(cluster.roles());
        let watches = engine.start_watches(&dry, kinds, &bus);
        let pending_lists = PendingLists::new(&engine.clusters, kinds);
        Ok(Self {
            events,
            managed_fields: ManagedFieldsIndex::new(&config.mirror.nudge_key),
            pending_lists,
            stall_limits: config.stall.clone(),
            trigger_key: config.touch.key.clone(),
            holder: None,
            _watches: watches,
            engine,
        })
    }

    /// Waits until every list is complete or has failed once, for at most `within`. Meanwhile reads
    /// who holds the Lease.
    pub async fn wait_for_lists(&mut self, config: &Config, within: Duration) {
        let until = Instant::now() + within;
        let lease = config.election_cluster().and_then(|cluster| {
            let cluster = self.engine.clusters.get(&cluster.name)?.clone();
            let election = &config.leader_election;
            let (namespace, name) = (election.lease_namespace.clone(), election.lease_name.clone());
            Some(LeaseClient::new(cluster, namespace, name, within, None))
        });
        let mut holder = std::pin::pin!(holder_of(lease));
        let mut holder_read = false;
        while !self.pending_lists.is_empty() || !holder_read {
            let waited = timeout_at(until, async {
                tokio::select! {
                    found = &mut holder, if !holder_read => {
                        holder_read = true;
                        self.holder = found;
                    }
                    () = self.next_event() => {}
                }
            });
            if waited.await.is_err() {
                break;
            }
        }
    }

    pub fn snapshot(&mut self) -> Snapshot {
        self.engine.handle_event(EventKind::TimedOut);
        let mut view = self.engine.machine.view();
        view.holder.clone_from(&self.holder);
        view.tell_errors(self.managed_fields.watch_errors());
        Snapshot {
            source: SnapshotSource::Live,
            view,
            stall_limits: Some(self.stall_limits.clone()),
            managed_fields: self.managed_fields.clone(),
        }
    }

    /// Waits for the next event and for those that follow closely.
    pub async fn wait_for_change(&mut self) {
        self.next_event().await;
        let until = Instant::now() + BATCH_WINDOW;
        while timeout_at(until, self.next_event()).await.is_ok() {}
    }

    /// Reads who owns the fields that the hops of these traces show, with one request an object, for
    /// at most `within`. Where no answer comes, the object's last writer stays.
    pub async fn fetch_field_owners(&mut self, traces: &[Trace], within: Duration) {
        let mut requested = BTreeSet::new();
        let mut requests = Vec::new();
        for hop in traces.iter().flat_map(|trace| &trace.hops) {
            let (Some(object), Some(cluster)) =
                (&hop.object, self.engine.clusters.get(&hop.cluster))
            else {
                continue;
            };
            if requested.insert((hop.cluster.clone(), hop.kind, object.clone())) {
                requests.push(self.fetch_field_owner(hop, object.clone(), cluster.clone(), within));
            }
        }
        let found = futures::stream::iter(requests)
            .buffer_unordered(WRITER_REQUESTS_IN_FLIGHT_MAX)
            .collect::<Vec<_>>();
        for (cluster, kind, object, writer) in
            timeout(within, found).await.unwrap_or_default().into_iter().flatten()
        {
            self.managed_fields.set_writer(&cluster, kind, &object, writer);
        }
    }

    fn fetch_field_owner(
        &self,
        hop: &HopTrace,
        object: ObjectKey,
        cluster: Arc<ClusterClient>,
        within: Duration,
    ) -> impl Future<Output = Option<(ClusterName, Kind, ObjectKey, LastWriter)>> + use<> {
        let kind = hop.kind;
        let field = match hop.hop {
            Hop::Upstream => vec!["status".to_owned()],
            Hop::Mirrored | Hop::Arrived => annotation(UPSTREAM_STATUS),
            Hop::Touched => annotation(&self.trigger_key),
        };
        async move {
            let found = read_object(&cluster, kind, &object, within).await.ok()?;
            let field: Vec<_> = field.iter().map(String::as_str).collect();
            let writer = field_owner(&found, &field)?;
            Some((cluster.name().clone(), kind, object, writer))
        }
    }

    async fn next_event(&mut self) {
        let deadline = self.engine.deadline();
        tokio::select! {
            Some(kind) = self.events.recv() => {
                self.pending_lists.observe(&kind);
                self.managed_fields.observe(&kind);
                self.engine.handle_event(without_gateway_writers(kind));
            }
            () = deadline => self.engine.handle_event(EventKind::TimedOut),
        }
    }
}

fn annotation(key: &str) -> Vec<String> {
    vec!["metadata".to_owned(), "annotations".to_owned(), key.to_owned()]
}

/// Reads an object with all of its metadata. Lists it by name, because a live run has no permission
/// to get it.
async fn read_object(
    cluster: &ClusterClient,
    kind: Kind,
    object: &ObjectKey,
    within: Duration,
) -> Result<Value, CallError> {
    let all = kube::core::Request::new(path(kind, Some(&object.namespace)));
    let one = ListParams::default().fields(&format!("metadata.name={}", object.name));
    let answer = cluster.call(all.list(&one).map_err(|e| no_request(&e))?, within).await?;
    let mut list: Value =
        serde_json::from_slice(&answer).map_err(|e| CallError::Unreadable(e.to_string()))?;
    Ok(list["items"][0].take())
}

/// The holder of a Lease that has not expired by this host's clock.
async fn holder_of(lease: Option<LeaseClient>) -> Option<String> {
    let (response, _) = lease?.send(&LeaseRequest::Get).await;
    let LeaseResponse::Current(record, _) = response else { return None };
    let renewed = UnixMillis::parse_rfc3339(&record.renew_time)?;
    let holds = !record.holder.is_empty() && wall_clock_now().since(renewed) < record.lease_ms;
    holds.then_some(record.holder)
}
