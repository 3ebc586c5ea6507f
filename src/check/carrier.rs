//! Checks the carrier between hub and edges: whether it is configured, and whether it delivers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::election::not_reached;
use super::finding::{FindingGroup, join_first, join_with_and};
use super::karmada::{self, NO_POLICY, POLICIES_SEARCHED};
use super::probe_client::{ListItem, ProbeClient};
use crate::client::{CallError, path};
use crate::core::data::ids::{Kind, Role};
use crate::core::data::objects::UPSTREAM_STATUS;
use crate::report::count;

/// The pause between two comparisons of hub and edges: what differs in only one of them is being
/// carried just then.
const COMPARE_AGAIN_AFTER: Duration = Duration::from_secs(3);

pub(super) async fn check(clusters: &[CheckedCluster], commands: &Commands) -> FindingGroup {
    let mut group = FindingGroup::new("carrier, hub to edges");
    let hub = clusters.iter().find(|cluster| cluster.has(Role::Hub));
    let edges: Vec<_> = clusters.iter().filter(|cluster| cluster.has(Role::Edge)).collect();
    let (Some(hub), false) = (hub, edges.is_empty()) else {
        group.passed("carrier", "no hub or no edge is configured here: nothing to compare");
        return group;
    };
    if hub.has(Role::Edge) && edges.len() == 1 {
        group.passed("carrier", "hub and edge are one cluster: nothing to carry");
        return group;
    }
    let kubectl = commands.kubectl(hub.name());
    let has_no_policy = hub.reached && karmada::check(&mut group, &hub.client, &kubectl).await;
    let missing_policy = has_no_policy.then(|| karmada::policy_remedy(&kubectl));
    let is_told = match std::iter::once(&hub).chain(&edges).find(|cluster| !cluster.reached) {
        Some(cluster) => {
            group.skipped("arrival", DELIVERY_UNKNOWN, not_reached(cluster));
            false
        }
        None => check_delivery(&mut group, hub, &edges, missing_policy.as_deref()).await,
    };
    if let Some(remedy) = missing_policy.filter(|_| !is_told) {
        group.warned("karmada", NO_POLICY, POLICIES_SEARCHED, remedy);
    }
    group
}

const DELIVERY_UNKNOWN: &str = "not known whether Connectors reach the edges";

/// The status annotations of a cluster's Connectors; empty where a Connector has none.
type Annotations = BTreeMap<String, String>;

async fn annotations(
    client: &ProbeClient,
    with_upstream_only: bool,
) -> Result<Annotations, CallError> {
    let found = client.list(path(Kind::Connector, None), |item: ListItem| {
        let value = item.metadata.annotations.get(UPSTREAM_STATUS).cloned().unwrap_or_default();
        let has_upstream = item.metadata.has_upstream();
        (has_upstream || !with_upstream_only).then(|| (item.metadata.key(), value))
    });
    Ok(found.await?.into_iter().collect())
}

/// Where the edges differ from the hub.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    /// How many Connectors the hub has.
    connectors: usize,
    /// Connectors that no edge has.
    missing: BTreeSet<String>,
    /// Connectors that have another value at an edge.
    different: BTreeSet<String>,
}

impl Differences {
    fn between(hub: &Annotations, edges: &[Annotations]) -> Self {
        let mut differences = Self { connectors: hub.len(), ..Self::default() };
        for (key, at_hub) in hub {
            let mut at_edges = edges.iter().filter_map(|edge| edge.get(key)).peekable();
            if at_edges.peek().is_none() {
                differences.missing.insert(key.clone());
            } else if at_edges.any(|at_edge| at_edge != at_hub) {
                differences.different.insert(key.clone());
            }
        }
        differences
    }

    /// Those that still exist later.
    fn persisting(self, later: Self) -> Self {
        Self {
            connectors: later.connectors,
            missing: self.missing.intersection(&later.missing).cloned().collect(),
            different: self.different.intersection(&later.different).cloned().collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.different.is_empty()
    }
}

async fn compare(
    hub: &CheckedCluster,
    edges: &[&CheckedCluster],
) -> Result<Differences, CallError> {
    let at_edges = edges.iter().map(|edge| annotations(&edge.client, false));
    let (at_hub, at_edges) =
        tokio::join!(annotations(&hub.client, true), futures::future::join_all(at_edges));
    let at_edges: Vec<_> = at_edges.into_iter().collect::<Result<_, _>>()?;
    Ok(Differences::between(&at_hub?, &at_edges))
}

/// `missing_policy`: what to do about a policy that is missing. Returns whether it was reported.
async fn check_delivery(
    group: &mut FindingGroup,
    hub: &CheckedCluster,
    edges: &[&CheckedCluster],
    missing_policy: Option<&str>,
) -> bool {
    let compared = async {
        let first = compare(hub, edges).await?;
        if first.is_empty() {
            return Ok(first);
        }
        tokio::time::sleep(COMPARE_AGAIN_AFTER).await;
        Ok(first.persisting(compare(hub, edges).await?))
    };
    let names: Vec<_> = edges.iter().map(|edge| edge.name()).collect();
    match compared.await {
        Ok(found) => {
            let tiers = (hub.name(), &*join_with_and(&names));
            return report_delivery(group, &found, tiers, missing_policy);
        }
        Err(error @ CallError::Status { .. }) => {
            group.skipped("arrival", DELIVERY_UNKNOWN, error.to_string());
        }
        Err(error) => {
            let remedy = "fix what is reported for the cluster itself, and run the check again";
            group.failed("arrival", "the Connectors cannot be listed", error.to_string(), remedy);
        }
    }
    false
}

/// Returns whether it reported that a policy is missing.
fn report_delivery(
    group: &mut FindingGroup,
    found: &Differences,
    (hub, edges): (&str, &str),
    missing_policy: Option<&str>,
) -> bool {
    let Differences { connectors, missing, different } = found;
    let all = count(*connectors, "Connector");
    if found.is_empty() {
        let what = match connectors {
            0 => format!("{hub} has no Connectors from upstream yet"),
            _ => format!("{all} at {hub}, with the same value at {edges}"),
        };
        group.passed("arrival", what);
        return false;
    }
    let evidence = |names: &BTreeSet<String>| {
        let names: Vec<_> = names.iter().collect();
        let pause = COMPARE_AGAIN_AFTER.as_secs();
        format!("compared {hub} with {edges} twice, {pause} s apart: {}", join_first(&names))
    };
    let is_nothing_carried = !missing.is_empty() && missing.len() == *connectors;
    if let Some(remedy) = missing_policy.filter(|_| is_nothing_carried) {
        let what = format!("nothing is carried from {hub} to {edges}: {NO_POLICY}");
        let detail = format!("{POLICIES_SEARCHED}; {}", evidence(missing));
        group.failed("arrival", what, detail, remedy);
        return true;
    }
    if is_nothing_carried {
        group.failed(
            "arrival",
            format!("nothing is carried: {edges} has none of {all} at {hub}"),
            evidence(missing),
            "check the carrier: its policy for Connectors, its controllers, whether it reaches the \
             member clusters, and whether these edges are its members",
        );
    } else if !missing.is_empty() {
        group.warned(
            "arrival",
            format!("{edges} lacks {} of {all} at {hub}", missing.len()),
            evidence(missing),
            "read the carrier's objects for them, or configure the edge that they are placed on",
        );
    }
    if !different.is_empty() {
        let differ = count(different.len(), "Connector");
        group.warned(
            "arrival",
            format!("{differ} with another value at {edges} than at {hub}"),
            evidence(different),
            "a live run nudges the carrier for them; if that does not help, check who writes \
             upstream-status at the edge, and read the carrier's objects for them",
        );
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    fn annotations(of: &[(&str, &str)]) -> Annotations {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn connectors_that_are_not_carried_are_a_warning_and_a_failure_when_none_is() {
        let hub = annotations(&[("a", "1"), ("b", "1")]);
        for (edges, levels) in [
            (vec![annotations(&[("a", "1"), ("b", "1"), ("own", "")])], vec![Level::Passed]),
            // Each is placed on one edge.
            (vec![annotations(&[("a", "1")]), annotations(&[("b", "1")])], vec![Level::Passed]),
            (vec![annotations(&[("a", "1")])], vec![Level::Warning]),
            (vec![annotations(&[("a", "0"), ("b", "1")])], vec![Level::Warning]),
            (vec![annotations(&[("a", "0")])], vec![Level::Warning, Level::Warning]),
            (vec![annotations(&[])], vec![Level::Failed]),
        ] {
            let mut group = FindingGroup::new("g");
            let found = Differences::between(&hub, &edges);
            report_delivery(&mut group, &found, ("hub", "edge"), None);
            let found: Vec<_> = group.into_findings().iter().map(|f| f.level).collect();
            assert_eq!(found, levels, "{edges:?}");
        }
    }

    #[test]
    fn a_difference_that_goes_away_is_not_reported() {
        let hub = annotations(&[("a", "1"), ("b", "1")]);
        let before = Differences::between(&hub, &[annotations(&[("a", "0")])]);
        let later = Differences::between(&hub, &[annotations(&[("a", "1")])]);
        let persisting = before.persisting(later);
        assert_eq!((persisting.missing.len(), persisting.different.len()), (1, 0));
    }
}
