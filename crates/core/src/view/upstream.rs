//! A connector at its upstream.

use super::fleet::LivenessView;
use super::judged::{HopAt, Judged};
use crate::contract::cause::{Hop, State};
use crate::data::ids::Kind;
use crate::data::name::NamespacedName;
use crate::machine::Machine;
use crate::world::cluster::Cluster;
use crate::world::upstream::UpstreamConnector;

/// `row`: `None` if the cluster has no such Connector.
pub(super) fn hop<'c>(
    c: &'c Machine,
    cluster: &'c Cluster,
    name: &NamespacedName,
    row: Option<&UpstreamConnector>,
) -> HopAt<'c> {
    let text = row.and_then(|connector| connector.status.as_ref()).map(|status| status.text.text());
    let says = row.map(|row| LivenessView::new(row.stamp()));
    let why_not = says.as_ref().filter(|says| !says.online).and(text.as_deref());
    let judged = judged(c, cluster);
    let is_absent = row.is_none() && judged.state == State::Ok;
    let absent = is_absent.then(|| format!("{} has no Connector {}", cluster.name, name.key()));

    let hop = HopAt::new(Hop::Upstream, cluster, Kind::Connector, Some(name.key()), judged);
    HopAt {
        says,
        since: match judged.state {
            State::Unknown => judged.unknown_since,
            _ => row.map(|row| row.changed_at),
        },
        evidence: absent.into_iter().chain(why_not.and_then(why_not_ready)).collect(),
        ..hop
    }
}

pub(super) fn judged<'c>(c: &'c Machine, cluster: &Cluster) -> Judged<'c> {
    Judged::not_live(c, cluster, &[Kind::Connector]).unwrap_or(Judged::ok())
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
