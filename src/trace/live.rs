//! A look at the clusters that writes nothing: the machine and the watches of a live run, without
//! leadership and without a hand on the executor.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::ListParams;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::witness::{Witness, Writer, believed, owner};
use super::{HopTrace, Snapshot, Source, Trace, looking};
use crate::client::{CallError, Cluster, no_request, path};
use crate::clock::wall;
use crate::config::{Config, EventLogConfig};
use crate::core::action::Hop;
use crate::core::event::Happened;
use crate::core::ids::{ClusterName, Kind, ObjectKey};
use crate::core::objects::UPSTREAM_STATUS;
use crate::core::settings::StallSettings;
use crate::core::time::UnixMillis;
use crate::engine::{Engine, Unlisted};
use crate::gate::Gate;
use crate::leader::election::{Answer, Request as LeaseRequest};
use crate::leader::lease::{Api, Lease};
use crate::run::kinds_watched;

/// So many objects are asked for their writers at a time.
const GETS: usize = 8;

/// What changes within this time is shown at once.
const TOGETHER: Duration = Duration::from_millis(100);

/// A look that its watches keep up to date.
pub struct Look {
    engine: Engine,
    events: mpsc::Receiver<Happened>,
    witness: Witness,
    unlisted: Unlisted,
    late: StallSettings,
    trigger_key: String,
    holder: Option<String>,
    _watches: JoinSet<()>,
}

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Look").finish_non_exhaustive()
    }
}

impl Look {
    /// Begins to list.
    ///
    /// # Errors
    /// None that is known: it writes no event log.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let settings = looking(&config.settings());
        // Nothing is decided without leadership and with windows that never close; were it otherwise,
        // nothing would be written.
        let dry = Config { dry_run: true, ..config.clone() };
        let (gate, _) = Gate::closed();
        let engine = Engine::new(&dry, settings, gate, &EventLogConfig::default(), Vec::new())?;
        let (bus, events) = mpsc::channel(config.watch.queue);
        let settings = engine.machine.settings();
        let kinds = |cluster: &Cluster| kinds_watched(cluster.roles(), settings);
        let watches = engine.watch(&dry, kinds, &bus);
        let unlisted = Unlisted::all(&engine.clusters, kinds);
        Ok(Self {
            events,
            witness: Witness::new(&config.mirror.nudge_key),
            unlisted,
            late: config.stall.clone(),
            trigger_key: config.touch.key.clone(),
            holder: None,
            _watches: watches,
            engine,
        })
    }

    /// Waits until every list has come or has failed once, for `within` at most; meanwhile looks who
    /// holds the Lease.
    pub async fn listed(&mut self, config: &Config, within: Duration) {
        let until = Instant::now() + within;
        let lease = config.election_cluster().and_then(|cluster| {
            let cluster = self.engine.clusters.get(&cluster.name)?.clone();
            let election = &config.leader_election;
            let (namespace, name) = (election.lease_namespace.clone(), election.lease_name.clone());
            Some(Lease::new(cluster, namespace, name, within, None))
        });
        let mut holder = std::pin::pin!(holder_of(lease));
        let mut asked = false;
        while !self.unlisted.is_empty() || !asked {
            let waited = timeout_at(until, async {
                tokio::select! {
                    found = &mut holder, if !asked => {
                        asked = true;
                        self.holder = found;
                    }
                    () = self.turn() => {}
                }
            });
            if waited.await.is_err() {
                break;
            }
        }
    }

    /// What is known now.
    pub fn snapshot(&mut self) -> Snapshot {
        self.engine.take(Happened::TimedOut);
        let mut view = self.engine.machine.view();
        view.holder.clone_from(&self.holder);
        view.tell_errors(self.witness.errors());
        Snapshot {
            source: Source::Live,
            view,
            late: Some(self.late.clone()),
            witness: self.witness.clone(),
        }
    }

    /// Waits until something happened, and takes what happens together with it.
    pub async fn changed(&mut self) {
        self.turn().await;
        let until = Instant::now() + TOGETHER;
        while timeout_at(until, self.turn()).await.is_ok() {}
    }

    /// Looks up who owns the fields that the hops of these traces are about: one request an object,
    /// for `within` at most. What does not come stays as it is.
    pub async fn ask_writers(&mut self, traces: &[Trace], within: Duration) {
        let mut asked = BTreeSet::new();
        let mut requests = Vec::new();
        for hop in traces.iter().flat_map(|trace| &trace.hops) {
            let (Some(object), Some(cluster)) =
                (&hop.object, self.engine.clusters.get(&hop.cluster))
            else {
                continue;
            };
            if asked.insert((hop.cluster.clone(), hop.kind, object.clone())) {
                requests.push(self.writer_of(hop, object.clone(), cluster.clone(), within));
            }
        }
        let found = futures::stream::iter(requests).buffer_unordered(GETS).collect::<Vec<_>>();
        for (cluster, kind, object, writer) in
            timeout(within, found).await.unwrap_or_default().into_iter().flatten()
        {
            self.witness.refine(&cluster, kind, &object, writer);
        }
    }

    fn writer_of(
        &self,
        hop: &HopTrace,
        object: ObjectKey,
        cluster: Arc<Cluster>,
        within: Duration,
    ) -> impl Future<Output = Option<(ClusterName, Kind, ObjectKey, Writer)>> + use<> {
        let kind = hop.kind;
        let field = match hop.hop {
            Hop::Upstream => vec!["status".to_owned()],
            Hop::Mirrored | Hop::Arrived => annotation(UPSTREAM_STATUS),
            Hop::Touched => annotation(&self.trigger_key),
        };
        async move {
            let found = read(&cluster, kind, &object, within).await.ok()?;
            let field: Vec<_> = field.iter().map(String::as_str).collect();
            let writer = owner(&found, &field)?;
            Some((cluster.name().clone(), kind, object, writer))
        }
    }

    /// Takes the next thing that happens.
    async fn turn(&mut self) {
        let due = self.engine.due();
        tokio::select! {
            Some(what) = self.events.recv() => {
                self.unlisted.hear(&what);
                self.witness.hear(&what);
                self.engine.take(believed(what));
            }
            () = due => self.engine.take(Happened::TimedOut),
        }
    }
}

fn annotation(key: &str) -> Vec<String> {
    vec!["metadata".to_owned(), "annotations".to_owned(), key.to_owned()]
}

/// An object with all of its metadata; by a list of one, for which the rights of a run suffice.
async fn read(
    cluster: &Cluster,
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

/// Who holds a Lease that has not run out, by this machine's wall clock.
async fn holder_of(lease: Option<Lease>) -> Option<String> {
    let (Answer::Is(record, _), _) = lease?.ask(&LeaseRequest::Get).await else { return None };
    let renewed = UnixMillis::parse_rfc3339(&record.renewed)?;
    let holds = !record.holder.is_empty() && wall().since(renewed) < record.lease_ms;
    holds.then_some(record.holder)
}
