//! A connector at its upstream.

use super::fleet::{LivenessView, UpstreamName};
use super::judged::{HopAt, Judged};
use crate::contract::cause::{Hop, State};
use crate::data::ids::{ClusterName, Kind};
use crate::data::name::NamespacedName;
use crate::machine::Machine;
use crate::world::World;
use crate::world::cluster::Cluster;
use crate::world::hub::UpstreamRef;
use crate::world::upstream::UpstreamConnector;

#[derive(Clone, Copy)]
pub(super) struct UpstreamAt<'c> {
    /// The name of its cluster.
    pub(super) of: &'c ClusterName,
    /// `None` if the cluster is not in the run.
    pub(super) cluster: Option<&'c Cluster>,
    pub(super) name: &'c NamespacedName,
    /// `None` if the cluster has no such Connector.
    pub(super) row: Option<&'c UpstreamConnector>,
}

impl<'c> UpstreamAt<'c> {
    pub(super) fn find(world: &'c World, named: &'c UpstreamRef) -> Self {
        let UpstreamRef { cluster: of, name } = named;
        let cluster = world.upstream_named(of);
        let row = cluster.and_then(|cluster| cluster.upstream_connectors.seen(name));
        Self { of, cluster, name, row }
    }

    pub(super) fn named(self) -> UpstreamName {
        UpstreamName { cluster: self.of.clone(), object: self.name.key() }
    }

    pub(super) fn says(self) -> Option<LivenessView> {
        self.row.map(|row| LivenessView::new(row.stamp()))
    }

    /// `None` if the cluster is not in the run.
    pub(super) fn judged(self, c: &'c Machine) -> Option<Judged<'c>> {
        let not_live = Judged::not_live(c, self.cluster?, &[Kind::Connector]);
        Some(not_live.unwrap_or(Judged::ok()))
    }

    /// `None` if the cluster is not in the run.
    pub(super) fn hop(self, c: &'c Machine) -> Option<HopAt<'c>> {
        let Self { of, cluster, name, row } = self;
        let status = row.and_then(|row| row.status.as_ref()).map(|status| status.text.text());
        let says = self.says();
        let why_not = says.as_ref().filter(|says| !says.online).and(status.as_deref());
        let judged = self.judged(c)?;
        let is_absent = row.is_none() && judged.state == State::Ok;
        let absent = is_absent.then(|| format!("{of} has no Connector {}", name.key()));

        let hop = HopAt::new(Hop::Upstream, cluster?, Kind::Connector, Some(name.key()), judged);
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
    let ready = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
    let words = [&ready["reason"], &ready["message"]].map(|word| word.as_str().unwrap_or_default());
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let words = words.join(": ");
    let words = Some(words.trim_end_matches('.').to_owned()).filter(|words| !words.is_empty());
    words.map(|words| format!("Ready is not True: {words}"))
}
