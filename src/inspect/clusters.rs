//! Watches the clusters and writes nothing: the machine and the watches of a live run, without
//! leadership and with an executor in dry-run mode.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use kube::api::ListParams;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::judge;
use super::read_only_settings;
use super::writers::Writers;
use crate::client::{CallError, ClusterClient, no_request, path};
use crate::clock::wall_clock_now;
use crate::config::{Config, EventLogConfig};
use crate::core::contract::cause::{Hop, Problem};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::event::{EventKind, Outcome};
use crate::core::contract::note::NoteKind;
use crate::core::contract::settings::LateSettings;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::objects::UPSTREAM_STATUS;
use crate::core::data::shard::Shard;
use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::{Connector, Fleet, HopView, Leader, Source, Writer};
use crate::discovery::joiner::Joiner;
use crate::engine::{Engine, PendingLists};
use crate::executor::FinishedAction;
use crate::field_owner::field_owner;
use crate::kubectl::own_contexts;
use crate::leader::election::{LeaseRequest, LeaseResponse};
use crate::leader::gate::Gate;
use crate::leader::group::Group;
use crate::leader::lease::{LeaseApi, LeaseClient};
use crate::leader::no_leader;
use crate::report::count;
use crate::watch::WatchMessage;

const WRITER_REQUESTS_IN_FLIGHT_MAX: usize = 8;

/// The most clusters named in one line.
const NAMES_MAX: usize = 5;

/// Changes within this time are shown together.
const BATCH_WINDOW: Duration = Duration::from_millis(100);

/// Follows the clusters through their watches and returns their state.
pub struct ClusterWatcher {
    engine: Engine,
    events: mpsc::Receiver<WatchMessage>,
    writers: Writers,
    joiner: Joiner,
    /// The upstreams to include; all if empty.
    upstreams: Vec<ClusterName>,
    pending_lists: PendingLists,
    late_limits: LateSettings,
    trigger_key: String,
    leader: Leader,
    /// The kubectl command with which the reader reaches each cluster.
    kubectl: BTreeMap<ClusterName, String>,
}

impl std::fmt::Debug for ClusterWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterWatcher").finish_non_exhaustive()
    }
}

impl ClusterWatcher {
    /// Starts the watches and discovery. If `upstreams` is not empty, no other upstream is included.
    ///
    /// # Errors
    /// Those of opening an event log; none is opened here.
    pub fn start(config: &Config, upstreams: &[ClusterName]) -> anyhow::Result<Self> {
        let config = &config.narrowed(upstreams);
        let settings = read_only_settings(&config.settings());
        // With these settings and without leadership the machine decides nothing. The dry run prevents
        // writes even if that is wrong.
        let dry = Config { dry_run: true, ..config.clone() };
        let (gate, _) = Gate::closed();
        let mut engine = Engine::new(&dry, settings, gate, &EventLogConfig::default(), Vec::new());
        let (bus, events) = mpsc::channel(config.constants.watch.queue);
        let settings = engine.machine.settings().clone();
        engine.fleet.start_watches(move |roles| settings.kinds_watched(roles), bus);
        let joiner = Joiner::start(config, &engine, upstreams);
        let pending_lists = PendingLists::new(&engine.fleet, joiner.sources().clone());
        Ok(Self {
            events,
            writers: Writers::new(&config.mirror.nudge_key),
            joiner,
            upstreams: upstreams.to_vec(),
            pending_lists,
            late_limits: config.settings().late,
            trigger_key: config.touch.key.clone(),
            leader: Leader::default(),
            kubectl: own_contexts(config),
            engine,
        })
    }

    /// Waits until every list is complete or has failed once, for at most `within`. Meanwhile reads the
    /// Lease of each shard: each may have a problem, but only shard 0's leader is kept. `progress` receives
    /// the progress.
    pub async fn wait_for_lists(
        &mut self,
        config: &Config,
        within: Duration,
        progress: impl Fn(&str),
    ) {
        let until = Instant::now() + within;
        let election = &config.leader_election;
        let hub = config.election_cluster().map(|cluster| &cluster.name);
        let hub = hub.and_then(|name| self.engine.fleet.table().get(name));
        let mut leases = Vec::new();
        if let Some(hub) = hub {
            for index in 0..election.shards {
                let group = Group::new(&election.lease_name, Shard { index, of: election.shards });
                let namespace = election.lease_namespace.clone();
                leases.push(LeaseClient::new(hub.clone(), namespace, &group, within, None));
            }
        }
        // The namespace of a pod may differ from the reader's.
        let is_known = election.lease_namespace.is_some();
        let leaders = join_all(leases.into_iter().map(|lease| leader_by(lease, is_known)));
        let mut leaders = std::pin::pin!(leaders);
        let mut is_read = false;
        let mut told = String::new();
        while !self.pending_lists.is_empty() || !is_read {
            let waited = timeout_at(until, async {
                tokio::select! {
                    found = &mut leaders, if !is_read => {
                        is_read = true;
                        for (shard, (leader, problem)) in found.into_iter().enumerate() {
                            // `Fleet` has room for one leader. A single instance uses this Lease, too.
                            if shard == 0 {
                                self.leader = leader;
                            }
                            if let Some(problem) = problem {
                                self.engine.handle_outside(NoteKind::Began(problem));
                            }
                        }
                    }
                    () = self.next_event() => {}
                }
            });
            if waited.await.is_err() {
                break;
            }
            let now = self.pending_lists.progress();
            if now != told {
                progress(&now);
                told = now;
            }
        }
        self.give_up_lists(within);
        self.joiner.ask_for_unknown(&mut self.engine).await;
    }

    /// Marks incomplete lists as lost, with the reason.
    fn give_up_lists(&mut self, within: Duration) {
        let seconds = within.as_secs_f32();
        for (cluster, kind) in self.pending_lists.watches() {
            let text = format!("no list within {seconds} s");
            let error = RequestFailure::new(ErrorCause::TimedOut, text);
            self.handle_event(EventKind::WatchLost { cluster, kind, error });
        }
    }

    /// The missing or incomplete data: one line for each reason.
    pub fn not_shown(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (source, error) in self.joiner.lost() {
            lines.push(format!(
                "the clusters of {source} are not shown, because it cannot be read: {error}"
            ));
        }
        let is_absent = |name: &&ClusterName| !self.engine.fleet.table().contains(name);
        for name in self.upstreams.iter().filter(is_absent) {
            lines.push(format!(
                "{name} is not shown: it is not configured, and not among the discovered clusters \
                 that a run joins"
            ));
        }
        let (clusters, sources) = self.pending_lists.rest();
        for source in sources {
            lines.push(format!("the clusters of {source} are not complete: no list came in time"));
        }
        if !clusters.is_empty() {
            let names: Vec<_> = clusters.iter().take(NAMES_MAX).map(|c| c.as_str()).collect();
            let more = clusters.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!(
                "{} did not answer in time: {}{more}; wait longer with --timeout, or look at some \
                 with --upstream NAME",
                count(clusters.len(), "cluster"),
                names.join(", ")
            ));
        }
        lines
    }

    /// The kubectl command with which the reader reaches each cluster.
    pub fn kubectl(&self) -> &BTreeMap<ClusterName, String> {
        &self.kubectl
    }

    /// The current state.
    pub fn fleet(&mut self) -> Fleet {
        self.handle_event(EventKind::TimedOut);
        let kubectl = |cluster: &ClusterName| self.kubectl.get(cluster).cloned();
        let mut fleet = self.engine.machine.fleet(Source::Clusters, &kubectl);
        let now = fleet.at_ms;
        let waits_until = self.leader.waits_until_ms.filter(|until| now < *until);
        fleet.leader = Leader { waits_until_ms: waits_until, ..self.leader.clone() };
        let limits = &self.late_limits;
        let problems = &self.engine.problems;
        judge::complete(&mut fleet, &self.writers, limits, problems, &kubectl);
        fleet.add_received(self.engine.metrics.received(now));
        fleet
    }

    /// Waits for the next event and for those that follow closely.
    pub async fn wait_for_change(&mut self) {
        self.next_event().await;
        let until = Instant::now() + BATCH_WINDOW;
        while timeout_at(until, self.next_event()).await.is_ok() {}
    }

    /// Reads the owners of the fields that the hops of these connectors show, with one request for each
    /// object, for at most `within`. Without an answer, the object's last writer remains.
    pub async fn fetch_field_owners(&mut self, connectors: &[Connector], within: Duration) {
        let mut requested = BTreeSet::new();
        let mut requests = Vec::new();
        for hop in connectors.iter().flat_map(|connector| &connector.hops) {
            let (Some(object), Some(cluster)) =
                (&hop.object, self.engine.fleet.table().get(&hop.cluster))
            else {
                continue;
            };
            if requested.insert((hop.cluster.clone(), hop.kind, object.clone())) {
                requests.push(self.fetch_field_owner(hop, object.clone(), cluster, within));
            }
        }
        let found = futures::stream::iter(requests)
            .buffer_unordered(WRITER_REQUESTS_IN_FLIGHT_MAX)
            .collect::<Vec<_>>();
        for (cluster, kind, object, writer) in
            timeout(within, found).await.unwrap_or_default().into_iter().flatten()
        {
            self.writers.set_writer(&cluster, kind, &object, writer);
        }
    }

    fn fetch_field_owner(
        &self,
        hop: &HopView,
        object: ObjectKey,
        cluster: Arc<ClusterClient>,
        within: Duration,
    ) -> impl Future<Output = Option<(ClusterName, Kind, ObjectKey, Writer)>> + use<> {
        let kind = hop.kind;
        let field = match hop.hop {
            Hop::Upstream => vec!["status".to_owned()],
            Hop::Mirrored | Hop::Carried => annotation(UPSTREAM_STATUS),
            Hop::Announced => annotation(&self.trigger_key),
        };
        async move {
            let found = read_object(&cluster, kind, &object, within).await.ok()??;
            let field: Vec<_> = field.iter().map(String::as_str).collect();
            let writer = field_owner(&found, &field)?;
            Some((cluster.name().clone(), kind, object, writer))
        }
    }

    /// Handles an event; the machine's decisions are not attempted.
    fn handle_event(&mut self, kind: EventKind) {
        self.engine.handle_event(kind);
        while let Some(finished) = self.engine.executor.next_finished().now_or_never() {
            self.engine.handle_finished(FinishedAction { outcome: Outcome::Dropped, ..finished });
        }
    }

    async fn next_event(&mut self) {
        let deadline = self.engine.deadline();
        tokio::select! {
            Some(message) = self.events.recv() => {
                // Ignore events of a cluster that has left.
                if self.engine.fleet.is_current(&message) {
                    self.pending_lists.observe(&message.kind);
                    self.writers.observe(&message.kind);
                    self.handle_event(self.writers.without_doubts(message.kind));
                }
            }
            kind = self.joiner.next() => {
                self.pending_lists.observe(&kind);
                self.handle_event(kind);
            }
            () = deadline => self.handle_event(EventKind::TimedOut),
        }
        self.joiner.carry_out(&mut self.engine, &mut self.pending_lists);
    }
}

fn annotation(key: &str) -> Vec<String> {
    vec!["metadata".to_owned(), "annotations".to_owned(), key.to_owned()]
}

/// Reads an object with all of its metadata; `None` if it does not exist. Lists it by name, because a
/// live run has no permission to get it.
async fn read_object(
    cluster: &ClusterClient,
    kind: Kind,
    object: &ObjectKey,
    within: Duration,
) -> Result<Option<Value>, CallError> {
    let all = kube::core::Request::new(path(kind, Some(&object.namespace)));
    let one = ListParams::default().fields(&format!("metadata.name={}", object.name));
    let answer = cluster.call(all.list(&one).map_err(|e| no_request(&e))?, within).await?;
    let mut list: Value =
        serde_json::from_slice(&answer).map_err(|e| CallError::Unreadable(e.to_string()))?;
    Ok(list.pointer_mut("/items/0").map(Value::take))
}

/// The leader, by the Lease and this host's clock, and a problem with the Lease. An instance that
/// created the Lease waits before it may lead. `is_known`: the Lease would be found if it existed.
async fn leader_by(mut lease: LeaseClient, is_known: bool) -> (Leader, Option<Problem>) {
    let nobody = Leader::default();
    let (response, _) = lease.send(&LeaseRequest::Get).await;
    let foreign = lease.foreign_holder();
    let problem = no_leader(&lease.about(), foreign.as_deref());
    let record = match response {
        LeaseResponse::Current(record, _) => record,
        LeaseResponse::NotFound => return (nobody, Some(problem).filter(|_| is_known)),
        LeaseResponse::Conflict | LeaseResponse::Failed => return (nobody, None),
    };
    let now = wall_clock_now();
    let renewed = UnixMillis::parse_rfc3339(&record.renew_time);
    let is_held = renewed.is_some_and(|renewed| now.since(renewed) < record.lease_ms);
    if record.holder.is_empty() || !is_held || foreign.is_some() {
        return (nobody, Some(problem));
    }
    let created = lease.created_at().filter(|_| record.transitions == 0);
    let until = created.map(|at| at.plus(record.lease_ms)).filter(|until| now < *until);
    (Leader { leads: false, holder: Some(record.holder), waits_until_ms: until }, None)
}
