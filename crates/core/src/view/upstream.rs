//! A connector at its upstream.

use super::{LivenessView, UpstreamView};
use crate::controller::Controller;
use crate::data::ids::ClusterName;
use crate::data::name::NamespacedName;
use crate::world::upstream::UpstreamConnector;

/// `row`: `None` where the cluster has no such Connector, or is not in the run.
pub(super) fn view(
    c: &Controller,
    cluster: &ClusterName,
    name: &NamespacedName,
    row: Option<&UpstreamConnector>,
) -> UpstreamView {
    let text = row.and_then(|connector| connector.said.as_ref()).map(|status| status.text.text());
    let LivenessView { online, node } = LivenessView::of(text.as_deref());

    UpstreamView {
        cluster: cluster.clone(),
        object: name.key(),
        exists: row.is_some(),
        gone: c.roster.deleted_project(cluster).is_some(),
        online,
        node,
        because: text.as_deref().filter(|_| !online).and_then(why_not_ready),
        changed_at_ms: row.map(|row| row.changed_at),
    }
}

/// The reason that upstream gives for not being online.
fn why_not_ready(status: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let ready = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
    let words = [&ready["reason"], &ready["message"]].map(|word| word.as_str().unwrap_or_default());
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let words = words.join(": ");
    Some(words.trim_end_matches('.').to_owned()).filter(|words| !words.is_empty())
}
