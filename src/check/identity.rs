//! Checks whether each upstream cluster is the one that the hub Connectors were copied from: the
//! namespaces that their labels name exist there, with the uid in the name of their hub namespace.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::cluster::CheckedCluster;
use super::election::not_reached;
use super::finding::{FindingGroup, join_first};
use super::probe_client::ListItem;
use crate::client::path;
use crate::core::contract::hold_reason::HoldReason;
use crate::core::data::ids::{Kind, Role};
use crate::core::data::objects::{
    UPSTREAM_CLUSTER_NAME, UPSTREAM_NAMESPACE, upstream_cluster_name,
};
use crate::report::count;

/// A hub Connector, and the upstream namespace that it was copied from.
#[derive(Debug)]
struct HubConnector {
    key: String,
    upstream: String,
    namespace: String,
    /// The uid that the namespace had.
    uid: String,
}

impl HubConnector {
    fn of(item: ListItem) -> Option<Self> {
        let meta = item.metadata;
        let label = |key: &str| meta.labels.get(key).filter(|value| !value.is_empty());
        Some(Self {
            upstream: upstream_cluster_name(label(UPSTREAM_CLUSTER_NAME)?)?,
            namespace: label(UPSTREAM_NAMESPACE)?.clone(),
            uid: meta.namespace.strip_prefix("ns-")?.to_owned(),
            key: meta.key(),
        })
    }
}

/// By name, the uid of each namespace.
type Namespaces = BTreeMap<String, String>;

pub(super) async fn check(clusters: &[CheckedCluster]) -> FindingGroup {
    let mut group = FindingGroup::new("hub Connectors and their upstreams");
    let upstreams: Vec<_> = clusters.iter().filter(|c| c.has(Role::Upstream)).collect();
    let Some(hub) = clusters.iter().find(|cluster| cluster.has(Role::Hub)) else { return group };
    if upstreams.is_empty() {
        return group;
    }
    let connectors = list(hub, Kind::Connector, HubConnector::of).await;
    let connectors = match connectors {
        Ok(connectors) => connectors,
        Err(why) => {
            let what = format!("not known which Connectors {} holds", hub.name());
            group.skipped("identity", what, why);
            return group;
        }
    };
    let uid = |item: ListItem| Some((item.metadata.name, item.metadata.uid));
    let namespaces = upstreams.iter().map(|upstream| list(upstream, Kind::Namespace, uid));
    for (upstream, namespaces) in upstreams.iter().zip(join_all(namespaces).await) {
        let name = upstream.name();
        match namespaces {
            Ok(namespaces) => {
                let namespaces = namespaces.into_iter().collect();
                let of = connectors.iter().filter(|connector| connector.upstream == name);
                report(&mut group, name, &of.collect::<Vec<_>>(), &namespaces);
            }
            Err(why) => {
                let what = format!("not known whether {name} is what its hub Connectors come from");
                group.skipped("identity", what, why);
            }
        }
    }
    group
}

/// # Errors
/// Why the objects could not be listed.
async fn list<T>(
    cluster: &CheckedCluster,
    kind: Kind,
    take: impl Fn(ListItem) -> Option<T>,
) -> Result<Vec<T>, String> {
    if !cluster.reached {
        return Err(not_reached(cluster));
    }
    cluster.client.list(path(kind, None), take).await.map_err(|error| error.to_string())
}

fn report(
    group: &mut FindingGroup,
    upstream: &str,
    connectors: &[&HubConnector],
    namespaces: &Namespaces,
) {
    let all = count(connectors.len(), "hub Connector");
    let of_reason = |reason: HoldReason| {
        let is_it = |connector: &&&HubConnector| {
            let uid = namespaces.get(&connector.namespace);
            match reason {
                HoldReason::NamespaceMissing => uid.is_none(),
                _ => uid.is_some_and(|uid| *uid != connector.uid),
            }
        };
        let keys: Vec<_> = connectors.iter().filter(is_it).map(|c| c.key.as_str()).collect();
        (reason, keys)
    };
    let reasons = [HoldReason::NamespaceMissing, HoldReason::NamespaceDiffers];
    let wrong = reasons.map(of_reason).into_iter().filter(|(_, keys)| !keys.is_empty());
    let wrong: Vec<_> = wrong.collect();
    if connectors.is_empty() {
        let what = format!("not known whether {upstream} is the right cluster");
        group.skipped("identity", what, "no hub Connector names it yet");
    } else if wrong.is_empty() {
        let what = format!("{upstream} holds the namespaces of its {all}, by name and uid");
        group.passed("identity", what);
    }
    for (reason, keys) in wrong {
        let what =
            format!("{} of {all} of {upstream} cannot be followed: {}", keys.len(), reason.text());
        let remedy = format!(
            "{}; a live run leaves the annotations of these Connectors as they are",
            reason.remedy()
        );
        let detail = join_first(&keys);
        // One tenant's namespace may have been deleted; all of them are another control plane.
        if keys.len() == connectors.len() {
            group.failed("identity", what, detail, remedy);
        } else {
            group.warned("identity", what, detail, remedy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    #[test]
    fn another_control_plane_is_a_failure_and_a_missing_namespace_a_warning() {
        let connector = |namespace: &str, uid: &str| HubConnector {
            key: format!("ns-{uid}/c"),
            upstream: "up".to_owned(),
            namespace: namespace.to_owned(),
            uid: uid.to_owned(),
        };
        let (a, b) = (connector("a", "1"), connector("b", "2"));
        for (namespaces, levels) in [
            (vec![("a", "1"), ("b", "2")], vec![Level::Passed]),
            (vec![("a", "1")], vec![Level::Warning]),
            (vec![], vec![Level::Failed]),
            (vec![("a", "8"), ("b", "9")], vec![Level::Failed]),
            (vec![("a", "8")], vec![Level::Warning, Level::Warning]),
        ] {
            let mut group = FindingGroup::new("g");
            let namespaces = namespaces.iter().map(|(n, u)| ((*n).to_owned(), (*u).to_owned()));
            report(&mut group, "up", &[&a, &b], &namespaces.collect());
            let found: Vec<_> = group.into_findings().iter().map(|f| f.level).collect();
            assert_eq!(found, levels);
        }
    }
}
