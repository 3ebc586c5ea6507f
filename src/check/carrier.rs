//! Checks the carrier between hub and edges: whether it is configured, and whether it delivers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::election::not_reached;
use super::finding::{FindingGroup, join_first, join_with_and};
use super::permissions::{
    CLUSTER_PROPAGATION_POLICIES, CUSTOMIZATIONS, PROPAGATION_POLICIES, RESOURCE_BINDINGS, WORKS,
    split_resource,
};
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
    let has_no_policy = hub.reached && check_karmada(&mut group, &hub.client, &kubectl).await;
    let missing_policy = has_no_policy.then(|| policy_remedy(&kubectl));
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

const NO_POLICY: &str = "no PropagationPolicy selects Connectors";
const POLICIES_SEARCHED: &str =
    "searched the hub's PropagationPolicies and ClusterPropagationPolicies";

/// A policy that carries Connectors to every member cluster.
fn policy_remedy(kubectl: &str) -> String {
    let policy = serde_json::json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": { "name": "connectors" },
        "spec": {
            "resourceSelectors": [{ "apiVersion": Kind::Connector.api_version(),
                "kind": "Connector" }],
            "placement": { "clusterAffinity": {} },
        },
    });
    format!(
        "create a policy that selects Connector of {} and places it on the edges; without one Karmada \
         carries no Connector. This one places it on every member cluster:\n\
         echo '{policy}' | {kubectl} apply -f -",
        Kind::Connector.api_version()
    )
}

const DELIVERY_UNKNOWN: &str = "not known whether Connectors reach the edges";

/// Lists one of Karmada's resources; one that is not served has no objects.
async fn list<T>(
    client: &ProbeClient,
    version: &str,
    resource: &str,
    map: impl Fn(ListItem) -> Option<T>,
) -> Result<Vec<T>, CallError> {
    let (plural, group) = split_resource(resource);
    match client.list(format!("/apis/{group}/{version}/{plural}"), map).await {
        Err(CallError::Status { code: 404, .. }) => Ok(Vec::new()),
        found => found,
    }
}

/// Whether the hub serves Karmada's API.
pub(super) async fn has_karmada(hub: &ProbeClient) -> Result<bool, CallError> {
    let (plural, api_group) = split_resource(PROPAGATION_POLICIES);
    hub.is_served(api_group, "v1alpha1", plural).await
}

/// What a policy carries.
#[derive(Clone, Copy)]
struct Selected {
    connectors: bool,
    gateways: bool,
}

/// Returns whether Karmada is there and no policy selects Connectors, which is not reported here.
async fn check_karmada(group: &mut FindingGroup, hub: &ProbeClient, kubectl: &str) -> bool {
    match has_karmada(hub).await {
        Ok(true) => {}
        Ok(false) => {
            group.passed("karmada", "no Karmada at the hub: another carrier is in use, or none");
            return false;
        }
        Err(error) => {
            group.skipped("karmada", "not known whether Karmada is installed", error.to_string());
            return false;
        }
    }
    let selects = |item: ListItem| {
        let [connectors, gateways] = ["Connector", "Gateway"].map(|k| selects(&item.spec, k));
        Some(Selected { connectors, gateways })
    };
    let retains = |item: ListItem| retains_gateways(&item.spec).then_some(());
    let found = tokio::try_join!(
        list(hub, "v1alpha1", PROPAGATION_POLICIES, selects),
        list(hub, "v1alpha1", CLUSTER_PROPAGATION_POLICIES, selects),
        list(hub, "v1alpha2", RESOURCE_BINDINGS, failed_binding),
        list(hub, "v1alpha1", WORKS, failed_work),
        list(hub, "v1alpha1", CUSTOMIZATIONS, retains),
    );
    match found {
        Ok((namespaced, cluster_wide, bindings, works, retention_rules)) => {
            let policies = [namespaced, cluster_wide].concat();
            let for_connectors = policies.iter().filter(|policy| policy.connectors).count();
            if for_connectors > 0 {
                let policies = match for_connectors {
                    1 => "1 policy".to_owned(),
                    n => format!("{n} policies"),
                };
                group.passed("karmada", format!("Karmada, with {policies} for Connectors"));
            }
            report_failed(group, "ResourceBinding", &bindings, kubectl);
            report_failed(group, "Work", &works, kubectl);
            if policies.iter().any(|policy| policy.gateways) {
                report_retention(group, retention_rules.len(), kubectl);
            }
            for_connectors == 0
        }
        Err(error) => {
            let detail = format!(
                "{error}; this check needs list on Karmada's policies, bindings, works and \
                 customizations; a live run does not"
            );
            group.skipped("karmada", "Karmada is installed, and we may not read it", detail);
            false
        }
    }
}

/// For a hub whose Karmada carries Gateways.
fn report_retention(group: &mut FindingGroup, rules: usize, kubectl: &str) {
    if rules > 0 {
        group.passed("retention", "has a retention rule for Gateways");
        return;
    }
    group.warned(
        "retention",
        "no retention rule protects the triggers that throughline writes to Gateways",
        "a policy selects Gateways, and no ResourceInterpreterCustomization has a retention for them",
        format!(
            "Karmada sometimes restores an older trigger; install the retention rule at the hub, from \
             the folder of throughline's source:\n\
             {kubectl} apply -f deploy/karmada/retain-trigger.yaml"
        ),
    );
}

fn selects(policy: &Value, kind: &str) -> bool {
    let selectors = policy["resourceSelectors"].as_array();
    selectors.into_iter().flatten().any(|s| s["kind"] == kind)
}

fn retains_gateways(rule: &Value) -> bool {
    rule["target"]["kind"] == "Gateway" && !rule["customizations"]["retention"].is_null()
}

/// Reason and message of a condition that is False; `None` where it is not.
fn failed_condition(status: &Value, condition: &str) -> Option<String> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let found =
        conditions.into_iter().find(|c| c["type"] == condition && c["status"] == "False")?;
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    Some(format!("{} {}", text("reason"), text("message")).trim().to_owned())
}

fn failed_binding(item: ListItem) -> Option<(String, String)> {
    (item.spec["resource"]["kind"] == "Connector").then_some(())?;
    let why = failed_condition(&item.status, "Scheduled")
        .or_else(|| failed_condition(&item.status, "FullyApplied"))?;
    Some((item.metadata.key(), why))
}

fn failed_work(item: ListItem) -> Option<(String, String)> {
    let manifests = item.spec["workload"]["manifests"].as_array();
    manifests.into_iter().flatten().any(|m| m["kind"] == "Connector").then_some(())?;
    Some((item.metadata.key(), failed_condition(&item.status, "Applied")?))
}

fn report_failed(group: &mut FindingGroup, kind: &str, failed: &[(String, String)], kubectl: &str) {
    let Some((first, why)) = failed.first() else {
        group.passed("applied", format!("no {kind} of a Connector reports a failure"));
        return;
    };
    let names: Vec<_> = failed.iter().map(|(name, _)| name).collect();
    let (namespace, name) = first.split_once('/').unwrap_or(("", first));
    group.failed(
        "applied",
        format!("{} not applied: {}", count(failed.len(), kind), join_first(&names)),
        format!("{first}: {why}"),
        format!(
            "at the hub, check the member cluster and the events of these objects:\n\
             {kubectl} get clusters\n\
             {kubectl} -n {namespace} describe {} {name}",
            kind.to_lowercase()
        ),
    );
}

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
    use serde_json::json;

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

    #[test]
    fn a_binding_or_work_with_a_false_condition_has_failed() {
        let item = |kind: &str, condition: &str, status: &str| -> ListItem {
            let manifest = json!({ "kind": kind });
            serde_json::from_value(json!({
                "metadata": { "namespace": "n", "name": "x" },
                "spec": { "resource": manifest, "workload": { "manifests": [manifest] } },
                "status": { "conditions": [
                    { "type": condition, "status": status, "reason": "R", "message": "m" }] },
            }))
            .unwrap()
        };
        let failed = Some(("n/x".to_owned(), "R m".to_owned()));
        assert_eq!(failed_binding(item("Connector", "Scheduled", "False")), failed);
        assert_eq!(failed_binding(item("Connector", "FullyApplied", "False")), failed);
        assert_eq!(failed_binding(item("Connector", "FullyApplied", "True")), None);
        assert_eq!(failed_binding(item("Secret", "FullyApplied", "False")), None);
        assert_eq!(failed_work(item("Connector", "Applied", "False")), failed);
        assert_eq!(failed_work(item("Gateway", "Applied", "False")), None);
    }
}
