//! The Kubernetes Events about the objects of one connector, in all tiers, in order of time.
//!
//! They are read with the rights of whoever asks: `list` on `events` in the namespaces concerned. A
//! running throughline posts Events and does not read them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::ListParams;
use kube::core::Request;
use serde::{Deserialize, Serialize};

use crate::client::{CallError, ClusterClient, no_request};
use crate::config::role_name;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::data::time::UnixMillis;
use crate::core::view::{ClusterView, ConnectorView, View, WatchState};
use crate::trace::{Trace, UpstreamRef};

const REQUESTS_IN_FLIGHT_MAX: usize = 8;

/// How many Events one answer holds, and how many answers are read about one name.
const PAGE_EVENTS: u32 = 500;
const PAGES_MAX: usize = 20;

/// What the carrier, Karmada, calls the object by which it copies a Connector.
const BINDING: &str = "ResourceBinding";

/// One Event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectEvent {
    /// When it occurred last. Events carry whole seconds unless a newer client wrote them.
    pub at_ms: UnixMillis,
    /// When it occurred first, if it did more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_at_ms: Option<UnixMillis>,
    pub cluster: ClusterName,
    /// The roles of the cluster, as `hub+edge`.
    pub tier: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub severity: String,
    pub reason: String,
    pub message: String,
    pub count: u64,
    /// Who reported it; empty where the Event does not say.
    pub reporter: String,
}

/// A cluster whose Events were read, or were not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TierRead {
    pub cluster: ClusterName,
    pub tier: String,
    /// Why they, or some of them, were not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The Events about one connector.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectorEvents {
    pub upstream: Option<UpstreamRef>,
    /// Its namespace and name at the hub and the edges.
    #[serde(rename = "replica")]
    pub hub_key: Option<ObjectKey>,
    /// In order of time.
    pub events: Vec<ObjectEvent>,
    /// The clusters that were asked.
    pub read: Vec<TierRead>,
    /// The clusters whose Events are missing here, or may be.
    pub unread: Vec<TierRead>,
}

/// Whose Events to ask for: those about any of these kinds of this name.
#[derive(Debug, Default)]
struct Plan {
    lookups: BTreeMap<(ClusterName, String, String), BTreeSet<&'static str>>,
    unread: BTreeSet<TierRead>,
}

/// Reads the Events about the connector of a trace. `client` finds the clusters.
pub async fn read(
    view: &View,
    trace: &Trace,
    client: impl Fn(&ClusterName) -> Option<Arc<ClusterClient>>,
    within: Duration,
) -> ConnectorEvents {
    let is_meant = |c: &&ConnectorView| {
        let upstream = c.upstream.as_ref().map(|up| (&up.cluster, &up.object));
        let traced = trace.upstream.as_ref().map(|up| (&up.cluster, &up.object));
        (upstream, &c.place) == (traced, &trace.hub_key)
    };
    let plan = view.connectors.iter().find(is_meant).map(|c| plan(view, c)).unwrap_or_default();
    let Plan { lookups, mut unread } = plan;
    let tier = |cluster: &ClusterName| tier_of(view, cluster);
    let mut read = BTreeSet::new();
    let mut requests = Vec::new();
    for ((cluster, namespace, name), kinds) in lookups {
        let Some(client) = client(&cluster) else {
            let error = Some("it is not configured here".to_owned());
            unread.insert(TierRead { tier: tier(&cluster), cluster, error });
            continue;
        };
        let tier = tier(&cluster);
        requests.push(async move {
            let found = list(&client, &namespace, &name, within).await;
            (cluster, tier, kinds, found)
        });
    }
    let mut answers = futures::stream::iter(requests).buffer_unordered(REQUESTS_IN_FLIGHT_MAX);
    let mut events = Vec::new();
    while let Some((cluster, tier, kinds, (found, error))) = answers.next().await {
        let of_kinds = found.into_iter().filter(|e| kinds.contains(&*e.involved_object.kind));
        events.extend(of_kinds.filter_map(|event| event.read(&cluster, &tier)));
        match error {
            None => read.insert(TierRead { cluster, tier, error: None }),
            Some(error) => unread.insert(TierRead { cluster, tier, error: Some(error) }),
        };
    }
    events.sort_unstable();
    read.retain(|tier| !unread.iter().any(|unread| unread.cluster == tier.cluster));
    ConnectorEvents {
        upstream: trace.upstream.clone(),
        hub_key: trace.hub_key.clone(),
        events,
        read: read.into_iter().collect(),
        unread: unread.into_iter().collect(),
    }
}

/// The roles of a cluster.
fn tier_of(view: &View, cluster: &ClusterName) -> String {
    let found = view.clusters.iter().find(|c| c.name == *cluster);
    let roles: Vec<_> = found.iter().flat_map(|c| &c.roles).map(|role| role_name(*role)).collect();
    if roles.is_empty() { "upstream".to_owned() } else { roles.join("+") }
}

fn plan(view: &View, connector: &ConnectorView) -> Plan {
    let mut plan = Plan::default();
    let gateways = connector.edges.iter().flat_map(|edge| &edge.gateways);
    let gateways: BTreeSet<_> = gateways.map(|gateway| gateway.name.as_str()).collect();
    let is_lost = |cluster: &ClusterView| {
        cluster.watches.get(&Kind::Connector).is_none_or(|state| *state != WatchState::Live)
    };
    if let Some(upstream) = &connector.upstream {
        plan.add(&upstream.cluster, &upstream.object, &gateways);
    } else {
        for cluster in view.clusters.iter().filter(|c| c.roles.contains(&Role::Upstream)) {
            plan.miss(view, &cluster.name, "no hub Connector says what it is called there");
        }
    }
    let (hubs, edges) = (&connector.hubs, &connector.edges);
    let holds = |cluster: &ClusterView| {
        hubs.iter().any(|hub| hub.cluster == cluster.name)
            || edges.iter().any(|edge| edge.cluster == cluster.name)
    };
    let is_below = |c: &&ClusterView| c.roles.iter().any(|role| *role != Role::Upstream);
    for cluster in view.clusters.iter().filter(is_below) {
        match &connector.place {
            // It may be in a cluster that is not listed, too.
            Some(place) if holds(cluster) || is_lost(cluster) => {
                plan.add(&cluster.name, place, &gateways);
                if cluster.roles.contains(&Role::Hub) {
                    let binding = format!("{}-connector", place.name);
                    plan.one(&cluster.name, &place.namespace, &binding, BINDING);
                }
            }
            None if is_lost(cluster) => {
                let why = "its Connectors are not listed, so the name there is not known";
                plan.miss(view, &cluster.name, why);
            }
            _ => {}
        }
    }
    plan
}

impl Plan {
    fn add(&mut self, cluster: &ClusterName, connector: &ObjectKey, gateways: &BTreeSet<&str>) {
        let namespace = &connector.namespace;
        self.one(cluster, namespace, &connector.name, "Connector");
        for gateway in gateways {
            // The platform gives these the same name in all tiers.
            for kind in [Kind::Gateway, Kind::HttpProxy, Kind::HttpRoute] {
                self.one(cluster, namespace, gateway, kind.into());
            }
        }
    }

    fn one(&mut self, cluster: &ClusterName, namespace: &str, name: &str, kind: &'static str) {
        let place = (cluster.clone(), namespace.to_owned(), name.to_owned());
        self.lookups.entry(place).or_default().insert(kind);
    }

    fn miss(&mut self, view: &View, cluster: &ClusterName, why: &str) {
        let tier = tier_of(view, cluster);
        self.unread.insert(TierRead {
            cluster: cluster.clone(),
            tier,
            error: Some(why.to_owned()),
        });
    }
}

/// The Events about objects of this name, and why there may be more.
async fn list(
    client: &ClusterClient,
    namespace: &str,
    name: &str,
    within: Duration,
) -> (Vec<RawEvent>, Option<String>) {
    let mut events = Vec::new();
    let request = Request::new(format!("/api/v1/namespaces/{namespace}/events"));
    let fields = format!("involvedObject.name={name}");
    let mut params = ListParams::default().fields(&fields).limit(PAGE_EVENTS);
    for _ in 0..PAGES_MAX {
        let page = async {
            let request = request.list(&params).map_err(|error| no_request(&error))?;
            let answer = client.call(request, within).await?;
            serde_json::from_slice::<EventList>(&answer)
                .map_err(|error| CallError::Unreadable(error.to_string()))
        };
        match page.await {
            Err(error) => return (events, Some(error.to_string())),
            Ok(page) => {
                events.extend(page.items);
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    None => return (events, None),
                    Some(token) => params = params.continue_token(&token),
                }
            }
        }
    }
    let read = events.len();
    (
        events,
        Some(format!("more than {read} Events are about {namespace}/{name}; the rest is not read")),
    )
}

#[derive(Debug, Deserialize)]
struct EventList {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<RawEvent>,
}

#[derive(Debug, Default, Deserialize)]
struct ListMeta {
    #[serde(rename = "continue")]
    continue_: Option<String>,
}

/// A `core/v1` Event as the API server sends it. client-go's older recorder, its newer one and other
/// clients fill different fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEvent {
    #[serde(default)]
    metadata: RawMeta,
    involved_object: RawReference,
    reason: Option<String>,
    message: Option<String>,
    #[serde(rename = "type")]
    severity: Option<String>,
    count: Option<u64>,
    first_timestamp: Option<String>,
    last_timestamp: Option<String>,
    event_time: Option<String>,
    series: Option<RawSeries>,
    source: Option<RawSource>,
    reporting_component: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMeta {
    creation_timestamp: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawReference {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSeries {
    count: Option<u64>,
    last_observed_time: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawSource {
    component: Option<String>,
}

impl RawEvent {
    /// `None` without any time.
    fn read(self, cluster: &ClusterName, tier: &str) -> Option<ObjectEvent> {
        let time = |text: Option<&String>| UnixMillis::parse_rfc3339(text?);
        let series = self.series.as_ref();
        let at = time(series.and_then(|series| series.last_observed_time.as_ref()))
            .or_else(|| time(self.last_timestamp.as_ref()))
            .or_else(|| time(self.event_time.as_ref()))
            .or_else(|| time(self.first_timestamp.as_ref()))
            .or_else(|| time(self.metadata.creation_timestamp.as_ref()))?;
        let first = time(self.event_time.as_ref()).or_else(|| time(self.first_timestamp.as_ref()));
        let count = series.and_then(|series| series.count).or(self.count).unwrap_or(1).max(1);
        let reporter = self.reporting_component.filter(|reporter| !reporter.is_empty());
        let reporter = reporter.or_else(|| self.source.and_then(|source| source.component));
        Some(ObjectEvent {
            at_ms: at,
            first_at_ms: first.filter(|first| *first < at),
            cluster: cluster.clone(),
            tier: tier.to_owned(),
            kind: self.involved_object.kind,
            namespace: self.involved_object.namespace,
            name: self.involved_object.name,
            severity: self.severity.unwrap_or_default(),
            reason: self.reason.unwrap_or_default(),
            message: self.message.unwrap_or_default(),
            count,
            reporter: reporter.unwrap_or_default(),
        })
    }
}
