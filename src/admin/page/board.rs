//! The fleet as the page shows it: a row for each connector, and what is above the rows.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use serde::Serialize;

use super::banners::{Banner, banners};
use crate::admin::hops::{KEPT_MS, PassedHop};
use crate::core::contract::note::Hop;
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::core::view::phase::{AnnouncementState, Phases};
use crate::core::view::{ConnectorView, EdgeView, View};
use crate::outside_text::plain_json::PlainJson;
use crate::trace::{Snapshot, StatusRow, UpstreamRef, status_rows};

/// How many versions back the removed rows are known. A page that is further behind gets everything.
const REMOVED_KEPT: u64 = 300;

/// A connector, as `throughline status` shows it, and what each of its hops says now.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    id: &'a str,
    #[serde(flatten)]
    row: &'a StatusRow,
    lanes: Vec<Lane<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Lane<'a> {
    hop: Hop,
    cluster: &'a ClusterName,
    /// `None` where that is not known.
    online: Option<bool>,
    /// Since when it says so, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<UnixMillis>,
    /// Since when the hop is late.
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled_ms: Option<UnixMillis>,
}

/// What stands above the rows.
#[derive(PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    leads: bool,
    holder: Option<String>,
    clusters: usize,
    phases: Phases,
    banners: Vec<Banner>,
}

/// A row's text, and the version in which it became that.
type Version = u64;

/// The fleet at one moment. Encoded once for all pages.
#[derive(Debug)]
pub(super) struct Frame {
    /// Of two feeds of one process, the ids differ.
    epoch: u64,
    pub(super) version: Version,
    at: UnixMillis,
    head: (Version, Arc<str>),
    rows: Vec<(Version, Arc<str>)>,
    /// Ids as JSON.
    removed: VecDeque<(Version, Arc<str>)>,
    hops: VecDeque<(Version, UnixMillis, Arc<str>)>,
    everything: OnceLock<Bytes>,
    latest: OnceLock<Bytes>,
}

/// Turns views into frames, and keeps what tells one frame from the next.
#[derive(Debug)]
pub(super) struct Board {
    epoch: u64,
    version: Version,
    head: (Version, Arc<str>),
    rows: BTreeMap<Arc<str>, (Version, Arc<str>)>,
    removed: VecDeque<(Version, Arc<str>)>,
    hops: VecDeque<(Version, UnixMillis, Arc<str>)>,
}

impl Board {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            version: 0,
            head: (0, "{}".into()),
            rows: BTreeMap::new(),
            removed: VecDeque::new(),
            hops: VecDeque::new(),
        }
    }

    /// The next frame.
    ///
    /// # Errors
    /// The view can't be encoded.
    pub(super) fn frame(&mut self, view: View, passed: &[PassedHop]) -> serde_json::Result<Frame> {
        self.version += 1;
        let version = self.version;
        let snapshot = Snapshot::of_instance(view);
        let rows = status_rows(&snapshot);
        let view = &snapshot.view;
        let head = encode(&Head {
            leads: view.leads,
            holder: view.holder.clone(),
            clusters: view.clusters.len(),
            phases: view.phases.clone(),
            banners: banners(&snapshot, &rows),
        })?;
        if self.head.1 != head {
            self.head = (version, head);
        }
        self.take_rows(&rows, view)?;
        while self.removed.front().is_some_and(|(at, _)| at + REMOVED_KEPT < version) {
            self.removed.pop_front();
        }
        for hop in passed {
            self.hops.push_back((version, hop.at, encode(hop)?));
        }
        let oldest = UnixMillis(view.at_ms.0.saturating_sub(KEPT_MS));
        while self.hops.front().is_some_and(|(_, at, _)| *at < oldest) {
            self.hops.pop_front();
        }
        Ok(Frame {
            epoch: self.epoch,
            version,
            at: view.at_ms,
            head: self.head.clone(),
            rows: self.rows.values().cloned().collect(),
            removed: self.removed.clone(),
            hops: self.hops.clone(),
            everything: OnceLock::new(),
            latest: OnceLock::new(),
        })
    }

    fn take_rows(&mut self, rows: &[StatusRow], view: &View) -> serde_json::Result<()> {
        let mut connectors: BTreeMap<String, &ConnectorView> = BTreeMap::new();
        for connector in &view.connectors {
            let upstream = connector.upstream.as_ref().map(|up| (&up.cluster, &up.object));
            connectors.insert(id_of(upstream, connector.place.as_ref()), connector);
        }
        let mut gone = std::mem::take(&mut self.rows);
        for row in rows {
            let upstream =
                row.upstream.as_ref().map(|UpstreamRef { cluster, object }| (cluster, object));
            let id = id_of(upstream, row.hub_key.as_ref());
            let lanes = connectors.get(&id).map_or(Vec::new(), |connector| lanes(connector));
            let text = encode(&Row { id: &id, row, lanes })?;
            let entry = match gone.remove_entry(&*id) {
                Some((id, (since, same))) if same == text => (id, (since, same)),
                Some((id, _)) => (id, (self.version, text)),
                None => (id.into(), (self.version, text)),
            };
            self.rows.insert(entry.0, entry.1);
        }
        for id in gone.into_keys() {
            self.removed.push_back((self.version, encode(&&*id)?));
        }
        Ok(())
    }
}

/// The name of a connector among all: where it is at the hub, else where it is upstream.
fn id_of(upstream: Option<(&ClusterName, &ObjectKey)>, hub_key: Option<&ObjectKey>) -> String {
    match (hub_key, upstream) {
        (Some(key), _) => key.to_string(),
        (None, Some((cluster, key))) => format!("{cluster}: {key}"),
        (None, None) => String::new(),
    }
}

fn lanes(connector: &ConnectorView) -> Vec<Lane<'_>> {
    let stalled = |hop: Hop, cluster: &ClusterName| {
        // A stall of several edges names only the first.
        let names = |c: &ClusterName| c == cluster || hop == Hop::Arrived;
        let stalls =
            connector.stalls.iter().filter(|stall| stall.hop == hop && names(&stall.cluster));
        stalls.map(|stall| stall.since_ms).min()
    };
    let upstream = connector.upstream.iter().map(|up| Lane {
        hop: Hop::Upstream,
        cluster: &up.cluster,
        online: up.exists.then_some(up.online),
        since_ms: up.changed_at_ms,
        stalled_ms: None,
    });
    let hubs = connector.hubs.iter().map(|hub| Lane {
        hop: Hop::Mirrored,
        cluster: &hub.cluster,
        online: hub.says.as_ref().map(|says| says.online),
        since_ms: hub.right_since_ms,
        stalled_ms: stalled(Hop::Mirrored, &hub.cluster),
    });
    let edges = connector.edges.iter().map(|edge| Lane {
        hop: Hop::Arrived,
        cluster: &edge.cluster,
        online: Some(edge.online),
        since_ms: edge.changed_at_ms,
        stalled_ms: stalled(Hop::Arrived, &edge.cluster),
    });
    let announced = connector.edges.iter().filter(|edge| has_gateway(edge)).map(|edge| {
        let all = edge.gateways.iter().all(|gateway| {
            matches!(
                gateway.announcement,
                AnnouncementState::Announced | AnnouncementState::NoGateway
            )
        });
        Lane {
            hop: Hop::Touched,
            cluster: &edge.cluster,
            // While it does not announce this, it announces something that nobody keeps.
            online: all.then_some(edge.online),
            since_ms: None,
            stalled_ms: stalled(Hop::Touched, &edge.cluster),
        }
    });
    upstream.chain(hubs).chain(edges).chain(announced).collect()
}

fn has_gateway(edge: &EdgeView) -> bool {
    edge.gateways.iter().any(|gateway| gateway.announcement != AnnouncementState::NoGateway)
}

/// JSON for a page, which shows its texts to people as they are.
fn encode(value: &impl Serialize) -> serde_json::Result<Arc<str>> {
    let mut json = Vec::new();
    serde_json::to_writer(PlainJson::for_people(&mut json), value)?;
    Ok(String::from_utf8_lossy(&json).into())
}

impl Frame {
    /// The event that takes a page from the id of its last event to this frame.
    pub(super) fn event(&self, since: Option<&str>) -> Bytes {
        let since = since.and_then(|id| self.version_of(id));
        match since {
            Some(since) if since + 1 == self.version => {
                self.latest.get_or_init(|| self.changes(since)).clone()
            }
            Some(since) => self.changes(since),
            None => self.everything.get_or_init(|| self.whole()).clone(),
        }
    }

    pub(super) fn id(&self) -> String {
        format!("{}-{}", self.epoch, self.version)
    }

    /// The version of an id of this feed from which the changes are still known.
    fn version_of(&self, id: &str) -> Option<Version> {
        let (epoch, version) = id.split_once('-')?;
        let version = version.parse().ok().filter(|v| *v <= self.version)?;
        (epoch.parse() == Ok(self.epoch) && version + REMOVED_KEPT >= self.version)
            .then_some(version)
    }

    fn whole(&self) -> Bytes {
        let mut text = self.begin("fleet");
        let _ = write!(text, ",\"head\":{},\"rows\":[", self.head.1);
        join(&mut text, self.rows.iter().map(|(_, row)| row));
        text.push_str("],\"hops\":[");
        join(&mut text, self.hops.iter().map(|(.., hop)| hop));
        text.push_str("]}\n\n");
        text.into()
    }

    fn changes(&self, since: Version) -> Bytes {
        let mut text = self.begin("change");
        if self.head.0 > since {
            let _ = write!(text, ",\"head\":{}", self.head.1);
        }
        let mut list = |name: &str, items: &mut dyn Iterator<Item = &Arc<str>>| {
            let mut items = items.peekable();
            if items.peek().is_some() {
                let _ = write!(text, ",\"{name}\":[");
                join(&mut text, items);
                text.push(']');
            }
        };
        list("rows", &mut self.rows.iter().filter(|(at, _)| *at > since).map(|(_, row)| row));
        list("hops", &mut self.hops.iter().filter(|(at, ..)| *at > since).map(|(.., hop)| hop));
        list("removed", &mut self.removed.iter().filter(|(at, _)| *at > since).map(|(_, id)| id));
        text.push_str("}\n\n");
        text.into()
    }

    fn begin(&self, event: &str) -> String {
        format!("id: {}\nevent: {event}\ndata: {{\"atMs\":{}", self.id(), self.at.0)
    }
}

fn join<'a>(text: &mut String, items: impl Iterator<Item = &'a Arc<str>>) {
    for (i, item) in items.enumerate() {
        if i > 0 {
            text.push(',');
        }
        text.push_str(item);
    }
}
