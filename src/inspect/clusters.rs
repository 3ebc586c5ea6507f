//! Watches the clusters and writes nothing: the machine and the watches of a live run, without
//! leadership and with an executor in dry-run mode.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::judge;
use super::read_only::ReadOnlyEngine;
use super::read_only_settings;
use super::writers::Writers;
use crate::client::{ClusterClient, path};
use crate::clock::wall_clock_now;
use crate::config::Config;
use crate::core::contract::cause::{Hop, Problem};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::event::EventKind;
use crate::core::contract::note::NoteKind;
use crate::core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use crate::core::data::objects::UPSTREAM_STATUS;
use crate::core::data::shard::Shard;
use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::{Connector, Fleet, Leader, Source, Writer};
use crate::field_owner::field_owner;
use crate::kubectl::own_contexts;
use crate::leader::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use crate::leader::group::Group;
use crate::leader::lease::{LeaseClient, is_fresh, renewal_within};
use crate::leader::no_leader;
use crate::report::style::{count, join_first};

const WRITER_REQUESTS_IN_FLIGHT_MAX: usize = 8;

/// Changes within this time are shown together.
const BATCH_WINDOW: Duration = Duration::from_millis(100);

/// Follows the clusters through their watches and returns their state.
pub struct ClusterWatcher {
    clusters: ReadOnlyEngine,
    writers: Writers,
    leader: Leader,
    /// The kubectl command with which the reader reaches each cluster.
    kubectl: BTreeMap<ClusterName, String>,
}

impl ClusterWatcher {
    /// Starts the watches and discovery, and waits until every list is complete or has failed once, for
    /// at most `within`. If `upstreams` is not empty, no other upstream is included. `progress` receives
    /// the progress.
    ///
    /// # Errors
    /// `upstreams` names one that is not configured, and there is no discovery.
    pub async fn start(
        config: &Config,
        upstreams: &[ClusterName],
        within: Duration,
        progress: impl Fn(&str),
    ) -> anyhow::Result<Self> {
        let config = &config.narrowed(upstreams)?;
        let settings = read_only_settings(&config.settings());
        let watched = settings.clone();
        let kinds = move |roles: &[Role]| watched.kinds_watched(roles);
        let mut watcher = Self {
            clusters: ReadOnlyEngine::start(config, settings, kinds, upstreams),
            writers: Writers::new(&config.mirror.nudge_key),
            leader: Leader::default(),
            kubectl: own_contexts(config),
        };
        watcher.wait_for_lists(config, within, progress).await;
        Ok(watcher)
    }

    /// Waits for the lists. Meanwhile reads the Lease of each shard: each may have a problem, but only
    /// shard 0's leader is kept.
    async fn wait_for_lists(&mut self, config: &Config, within: Duration, progress: impl Fn(&str)) {
        let until = Instant::now() + within;
        let election = &config.leader_election;
        let hub = config.election_cluster().map(|cluster| &cluster.name);
        let hub = hub.and_then(|name| self.clusters.engine.fleet.table().get(name));
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
        let leaders = join_all(leases.into_iter().map(|lease| leader_by(lease, is_known, until)));
        let mut leaders = std::pin::pin!(leaders);
        let mut is_read = false;
        let mut told = String::new();
        while !self.clusters.pending_lists.is_empty() || !is_read {
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
                                self.clusters.engine.handle_outside(NoteKind::Began(problem));
                            }
                        }
                    }
                    () = self.next_event() => {}
                }
            });
            if waited.await.is_err() {
                break;
            }
            let now = self.clusters.pending_lists.progress();
            if now != told {
                progress(&now);
                told = now;
            }
        }
        self.give_up_lists(within);
        self.clusters.ask_for_unknown().await;
    }

    /// Marks incomplete lists as lost, with the reason.
    fn give_up_lists(&mut self, within: Duration) {
        let seconds = within.as_secs_f32();
        for (cluster, kind) in self.clusters.pending_lists.watches() {
            let text = format!("no list within {seconds} s");
            let error = RequestFailure::new(ErrorCause::TimedOut, text);
            self.clusters.handle_event(EventKind::WatchLost { cluster, kind, error });
        }
    }

    /// The missing or incomplete data: one line for each reason.
    pub fn not_shown(&self) -> Vec<String> {
        let mut lines = self.clusters.not_shown();
        let (clusters, sources) = self.clusters.pending_lists.rest();
        for source in sources {
            lines.push(format!("the clusters of {source} are not complete: no list came in time"));
        }
        if !clusters.is_empty() {
            lines.push(format!(
                "{} did not answer in time: {}; wait longer with --timeout, or look at some with \
                 --upstream NAME",
                count(clusters.len(), "cluster"),
                join_first(clusters)
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
        self.clusters.handle_event(EventKind::TimedOut);
        let engine = &self.clusters.engine;
        let kubectl = |cluster: &ClusterName| self.kubectl.get(cluster).cloned();
        let mut fleet = engine.machine.fleet(Source::Clusters, &kubectl);
        let now = fleet.at_ms;
        let waits_until = self.leader.waits_until_ms.filter(|until| now < *until);
        fleet.leader = Leader { waits_until_ms: waits_until, ..self.leader.clone() };
        let limits = &engine.machine.settings().late;
        judge::complete(&mut fleet, &self.writers, limits, &engine.problems, &kubectl);
        fleet.add_received(engine.metrics.received(now));
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
        let trigger_key = &self.clusters.engine.machine.settings().touch.key;
        let mut requested = BTreeSet::new();
        let mut requests = Vec::new();
        for hop in connectors.iter().flat_map(|connector| &connector.hops) {
            let (Some(object), Some(cluster)) =
                (&hop.object, self.clusters.engine.fleet.table().get(&hop.cluster))
            else {
                continue;
            };
            let field = match hop.hop {
                Hop::Upstream => vec!["status"],
                Hop::Mirrored | Hop::Carried => vec!["metadata", "annotations", UPSTREAM_STATUS],
                Hop::Announced => vec!["metadata", "annotations", trigger_key],
            };
            if requested.insert((hop.cluster.clone(), hop.kind, object.clone())) {
                requests.push(owner_of_field(cluster, hop.kind, object, field, within));
            }
        }
        let found = futures::stream::iter(requests)
            .buffer_unordered(WRITER_REQUESTS_IN_FLIGHT_MAX)
            .collect::<Vec<_>>();
        let found = timeout(within, found).await.unwrap_or_default();
        for (cluster, kind, object, writer) in found.into_iter().flatten() {
            self.writers.set_writer(&cluster, kind, &object, writer);
        }
    }

    async fn next_event(&mut self) {
        let prepare = |kind| {
            self.writers.observe(&kind);
            self.writers.without_doubts(kind)
        };
        self.clusters.handle_next(prepare).await;
    }
}

/// The owner of a field of an object; `None` also if it cannot be read. Lists the object by its name,
/// because a live run has no permission to get it.
async fn owner_of_field(
    cluster: Arc<ClusterClient>,
    kind: Kind,
    object: &NamespacedName,
    field: Vec<&str>,
    within: Duration,
) -> Option<(ClusterName, Kind, NamespacedName, Writer)> {
    let all = kube::core::Request::new(path(kind, Some(object.namespace())));
    let one = ListParams::default().fields(&format!("metadata.name={}", object.name()));
    let answer = cluster.call(all.list(&one).ok()?, within).await.ok()?;
    let list: Value = serde_json::from_slice(&answer).ok()?;
    let writer = field_owner(list.pointer("/items/0")?, &field)?;
    Some((cluster.name().clone(), kind, object.clone(), writer))
}

/// The Lease, and whether its holder renews it, as far as can be seen by `until`.
///
/// # Errors
/// The answer that shows no Lease.
async fn current(
    lease: &mut LeaseClient,
    until: Instant,
) -> Result<(LeaseRecord, bool), LeaseResponse> {
    let mut read = async || match lease.send(&LeaseRequest::Get).await {
        (LeaseResponse::Current(record, _), _) => Ok(record),
        (none, _) => Err(none),
    };
    let first = read().await?;
    let renewed = UnixMillis::parse_rfc3339(&first.renew_time);
    if first.holder.is_empty() || is_fresh(renewed, first.lease_ms, wall_clock_now()) {
        return Ok((first, true));
    }
    let again = async {
        sleep(renewal_within(first.lease_ms)).await;
        read().await
    };
    // Without a second read nothing shows that it is renewed.
    let Ok(Ok(later)) = timeout_at(until, again).await else { return Ok((first, false)) };
    let is_renewed = later.renew_time != first.renew_time;
    Ok((later, is_renewed))
}

/// The leader by the Lease, and a problem with the Lease. An instance that created the Lease waits
/// before it may lead. `is_known`: the Lease would be found if it existed.
async fn leader_by(
    mut lease: LeaseClient,
    is_known: bool,
    until: Instant,
) -> (Leader, Option<Problem>) {
    let nobody = Leader::default();
    let found = current(&mut lease, until).await;
    let foreign = lease.foreign_holder();
    let problem = no_leader(&lease.about(), foreign.as_deref());
    let (record, is_renewed) = match found {
        Ok(found) => found,
        Err(LeaseResponse::NotFound) => return (nobody, Some(problem).filter(|_| is_known)),
        Err(_) => return (nobody, None),
    };
    if record.holder.is_empty() || !is_renewed || foreign.is_some() {
        return (nobody, Some(problem));
    }
    let now = wall_clock_now();
    let created = lease.created_at().filter(|_| record.transitions == 0);
    let until = created.map(|at| at.plus(record.lease_ms)).filter(|until| now < *until);
    (Leader { leads: false, holder: Some(record.holder), waits_until_ms: until }, None)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::json;

    use super::*;
    use crate::client::{ConnectionSpec, Connections, Credentials, KubeconfigText, Server};
    use crate::metrics::Metrics;

    /// Whether somebody leads by a Lease that each read finds renewed so much later. By this host's clock
    /// it expired an hour ago.
    async fn is_led(renewed_ms: u64) -> bool {
        let renewed = AtomicU64::new(wall_clock_now().0 - 3_600_000);
        let renewed = Arc::new(renewed);
        let answer = move || {
            let at = UnixMillis(renewed.fetch_add(renewed_ms, Ordering::Relaxed)).to_string();
            let spec = json!({"holderIdentity": "me", "leaseDurationSeconds": 1, "renewTime": at,
                "leaseTransitions": 1});
            let lease = json!({"metadata": {"resourceVersion": "1"}, "spec": spec});
            std::future::ready(lease.to_string())
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let app = axum::Router::new().fallback(answer);
        tokio::spawn(async { axum::serve(listener, app).await });
        let text = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: a, user: u}}}}],
              clusters: [{{name: a, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{}}}}]}}"
        );
        let credentials = Credentials::Text(KubeconfigText::parse(&text).unwrap());
        let spec = ConnectionSpec { credentials, server: Server::AsConfigured };
        let connections = Connections::default();
        let metrics = Arc::new(Metrics::new());
        let hub = ClusterClient::new("hub".into(), Vec::new(), spec, &connections, metrics);
        let group = Group::new("throughline", Shard::WHOLE);
        let namespace = Some("ns".to_owned());
        let within = Duration::from_secs(30);
        let lease = LeaseClient::new(Arc::new(hub), namespace, &group, within, None);
        let (leader, problem) = leader_by(lease, true, Instant::now() + within).await;
        assert_eq!(leader.holder.is_none(), problem.is_some());
        leader.holder.is_some()
    }

    #[tokio::test]
    async fn a_lease_that_is_renewed_is_held_whatever_this_hosts_clock_says() {
        assert!(is_led(300).await);
        assert!(!is_led(0).await);
    }
}
