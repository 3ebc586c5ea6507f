//! A connector at its upstream.

use super::fleet::{LivenessView, UpstreamName};
use super::judged::{HopAt, Judged};
use crate::contract::cause::{Hop, State};
use crate::data::ids::{ClusterName, Kind, NamespacedName};
use crate::machine::Machine;
use crate::world::cluster::Cluster;
use crate::world::hub::UpstreamRef;
use crate::world::upstream::UpstreamConnector;

/// An upstream Connector, or the name of one that does not exist.
#[derive(Clone, Copy)]
pub(super) struct UpstreamAt<'m> {
    pub(super) m: &'m Machine,
    pub(super) cluster_name: &'m ClusterName,
    /// `None` if the cluster is not in the run.
    pub(super) cluster: Option<&'m Cluster>,
    pub(super) name: &'m NamespacedName,
    /// `None` if the cluster has no such Connector.
    pub(super) row: Option<&'m UpstreamConnector>,
}

impl<'m> UpstreamAt<'m> {
    pub(super) fn find(m: &'m Machine, named: &'m UpstreamRef) -> Self {
        let UpstreamRef { cluster: cluster_name, name } = named;
        let cluster = m.world.upstream_named(cluster_name);
        let row = cluster.and_then(|cluster| cluster.upstream_connectors.seen(name));
        Self { m, cluster_name, cluster, name, row }
    }

    pub(super) fn upstream_name(self) -> UpstreamName {
        UpstreamName { cluster: self.cluster_name.clone(), object: self.name.clone() }
    }

    pub(super) fn says(self) -> Option<LivenessView> {
        self.row.map(|row| LivenessView::new(row.stamp()))
    }

    /// `None` if the cluster is not in the run.
    pub(super) fn judged(self) -> Option<Judged<'m>> {
        let not_live = Judged::not_live(self.m, self.cluster?, &[Kind::Connector]);
        Some(not_live.unwrap_or(Judged::ok()))
    }

    /// `None` if the cluster is not in the run.
    pub(super) fn hop(self) -> Option<HopAt<'m>> {
        let Self { cluster_name, cluster, name, row, .. } = self;
        let status = row.and_then(|row| row.status.as_ref()).map(|status| status.text.text());
        let says = self.says();
        let why_not = says.as_ref().filter(|says| !says.online).and(status.as_deref());
        let judged = self.judged()?;
        let is_absent = row.is_none() && judged.state == State::Ok;
        let absent = is_absent.then(|| format!("{cluster_name} has no Connector {name}"));

        let hop = HopAt::new(Hop::Upstream, cluster?, Kind::Connector, Some(name.clone()), judged);
        Some(HopAt {
            says,
            since: match judged.state {
                State::Unknown => judged.unknown_since,
                _ => row.map(|row| row.changed_at),
            },
            evidence: absent.into_iter().chain(why_not.and_then(why_not_ready)).collect(),
            ..hop
        })
    }
}

/// The reason in upstream's status why the connector is not online.
fn why_not_ready(status: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let ready =
        status["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")?;
    let words = [&ready["reason"], &ready["message"]].map(|word| word.as_str().unwrap_or_default());
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let words = words.join(": ");
    let words = Some(words.trim_end_matches('.').to_owned()).filter(|words| !words.is_empty());
    words.map(|words| format!("Ready is not True: {words}"))
}
