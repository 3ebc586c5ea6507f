//! Checks the carrier between hub and edges: whether Connectors have the hub's value at the edges, and
//! whether Karmada keeps the triggers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::client::{Cluster, annotation, key};
use super::finding::{Check, Draft, about_objects};
use super::permissions::{
    CLUSTER_PROPAGATION_POLICIES, CUSTOMIZATIONS, PROPAGATION_POLICIES, RESOURCE_BINDINGS, WORKS,
};
use crate::client::CallError;
use crate::config::Config;
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::data::ids::{ClusterName, Kind, NamespacedName, Role, Uid};
use crate::core::data::objects::{UPSTREAM_STATUS, is_karmadas_key, karmada_binding};
use crate::report::style::{count, join_first};

/// The pause between two comparisons of hub and edges: a difference in only one of them is a change
/// that is being carried.
const COMPARE_AGAIN_AFTER: Duration = Duration::from_secs(3);

pub(super) async fn check(config: &Config, clusters: &[Cluster]) -> Vec<Draft> {
    let checks = [Check::Carrier, Check::Retention];
    let hub = clusters.iter().find(|cluster| cluster.has(Role::Hub));
    let edges: Vec<_> = clusters.iter().filter(|cluster| cluster.has(Role::Edge)).collect();
    let nothing = match hub {
        Some(hub) if edges.iter().any(|edge| !edge.has(Role::Hub)) => {
            return check_hub(hub, &edges).await;
        }
        Some(hub) if config.discovery.may_find(Role::Edge) => {
            let unseen = "an edge (discovery shows none)";
            return checks.map(|check| Draft::skipped(check, Some(hub.name()), unseen)).into();
        }
        Some(hub) if hub.has(Role::Edge) => "hub and edge are one cluster",
        _ => "no hub or no edge is configured here",
    };
    let pass = |check| Draft::passed(check, None, format!("{nothing}: nothing to carry"));
    checks.map(pass).into()
}

async fn check_hub(hub: &Cluster, edges: &[&Cluster]) -> Vec<Draft> {
    if !hub.is_reached {
        let skip = |check| Draft::skipped(check, Some(hub.name()), hub.unseen());
        return [Check::Carrier, Check::Retention].map(skip).into();
    }
    let (karmada, differences) = tokio::join!(Karmada::at(hub), compare_twice(hub, edges));
    let mut drafts = carrier(hub, differences, &karmada);
    drafts.push(retention(hub, &karmada));
    drafts
}

/// The Connectors of a cluster: by key, the status annotation and whether Karmada carries it.
type Annotations = BTreeMap<NamespacedName, (Option<String>, bool)>;

/// # Errors
/// The Connectors are not visible.
async fn annotations(cluster: &Cluster) -> Result<Annotations, String> {
    let of = |DynamicObject { metadata: meta, .. }: &DynamicObject| {
        let mut keys =
            [&meta.labels, &meta.annotations].into_iter().flatten().flat_map(BTreeMap::keys);
        let is_karmadas = keys.any(|key| is_karmadas_key(key));
        (key(meta), (annotation(meta, UPSTREAM_STATUS).map(str::to_owned), is_karmadas))
    };
    Ok(cluster.objects(Kind::Connector).await?.iter().map(of).collect())
}

/// The differences between the edges and the hub.
#[derive(Default)]
struct Differences {
    /// The number of hub Connectors.
    connectors: usize,
    /// Connectors that no edge has.
    missing: BTreeSet<NamespacedName>,
    /// By edge, the Connectors with another value there, and whether Karmada carries them.
    different: BTreeMap<ClusterName, BTreeSet<(NamespacedName, bool)>>,
}

impl Differences {
    fn between(hub: &Annotations, edges: &[(ClusterName, Annotations)]) -> Self {
        let mut differences = Self::default();
        let copied = hub.iter().filter(|(key, _)| Uid::names_hub_namespace(key.namespace()));
        for (key, (at_hub, is_karmadas)) in copied {
            differences.connectors += 1;
            let mut is_missing = true;
            for (edge, annotations) in edges {
                let Some((at_edge, _)) = annotations.get(key) else { continue };
                is_missing = false;
                if at_edge != at_hub {
                    let different = differences.different.entry(edge.clone()).or_default();
                    different.insert((key.clone(), *is_karmadas));
                }
            }
            if is_missing {
                differences.missing.insert(key.clone());
            }
        }
        differences
    }

    /// The differences that also exist later.
    fn persisting(mut self, later: &Self) -> Self {
        self.connectors = later.connectors;
        self.missing.retain(|key| later.missing.contains(key));
        self.different.retain(|edge, keys| {
            let later = later.different.get(edge);
            keys.retain(|key| later.is_some_and(|later| later.contains(key)));
            !keys.is_empty()
        });
        self
    }

    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.different.is_empty()
    }
}

async fn compare(hub: &Cluster, edges: &[&Cluster]) -> Result<Differences, String> {
    let at_edges = edges.iter().map(|edge| annotations(edge));
    let (at_hub, at_edges) = tokio::join!(annotations(hub), join_all(at_edges));
    let mut by_edge = Vec::new();
    for (edge, annotations) in edges.iter().zip(at_edges) {
        by_edge.push((edge.name().clone(), annotations?));
    }
    Ok(Differences::between(&at_hub?, &by_edge))
}

async fn compare_twice(hub: &Cluster, edges: &[&Cluster]) -> Result<Differences, String> {
    let first = compare(hub, edges).await?;
    if first.is_empty() {
        return Ok(first);
    }
    tokio::time::sleep(COMPARE_AGAIN_AFTER).await;
    Ok(first.persisting(&compare(hub, edges).await?))
}

/// Karmada's objects for Connectors and Gateways.
struct Karmada {
    connector_policies: usize,
    gateway_policies: usize,
    /// The failures of bindings and works of Connectors.
    failed: Vec<String>,
    retention_rules: usize,
}

impl Karmada {
    /// `None` if the hub does not serve its API.
    ///
    /// # Errors
    /// The objects are not visible.
    async fn at(hub: &Cluster) -> Result<Option<Self>, String> {
        match hub.serves(PROPAGATION_POLICIES, "v1alpha1").await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => return Err(format!("whether {} is Karmada: {error}", hub.name())),
        }
        let (policies, cluster_policies, bindings, works, rules) = tokio::try_join!(
            objects(hub, PROPAGATION_POLICIES, "v1alpha1"),
            objects(hub, CLUSTER_PROPAGATION_POLICIES, "v1alpha1"),
            objects(hub, RESOURCE_BINDINGS, "v1alpha2"),
            objects(hub, WORKS, "v1alpha1"),
            objects(hub, CUSTOMIZATIONS, "v1alpha1"),
        )?;
        let selecting = |kind: &str| {
            let all = policies.iter().chain(&cluster_policies);
            all.filter(|policy| selects(&policy.data["spec"], kind)).count()
        };
        let failed = bindings.iter().chain(&works).filter_map(failed).collect();
        let retention_rules = rules.iter().filter(|rule| retains_gateways(&rule.data["spec"]));
        Ok(Some(Self {
            connector_policies: selecting("Connector"),
            gateway_policies: selecting("Gateway"),
            failed,
            retention_rules: retention_rules.count(),
        }))
    }
}

/// Lists one of Karmada's resources; a resource that is not served has no objects.
async fn objects(
    hub: &Cluster,
    resource: &str,
    version: &str,
) -> Result<Vec<DynamicObject>, String> {
    match hub.serves(resource, version).await {
        Ok(false) => Ok(Vec::new()),
        Ok(true) | Err(CallError::Status { .. }) => hub.others(resource, version).await,
        Err(error) => Err(error.to_string()),
    }
}

fn selects(policy: &Value, kind: &str) -> bool {
    policy["resourceSelectors"].as_array().into_iter().flatten().any(|s| s["kind"] == kind)
}

fn retains_gateways(rule: &Value) -> bool {
    rule["target"]["kind"] == "Gateway" && !rule["customizations"]["retention"].is_null()
}

/// For a binding or work of a Connector with a condition that is False: its name, reason and message.
fn failed(object: &DynamicObject) -> Option<String> {
    let spec = &object.data["spec"];
    let manifests = spec["workload"]["manifests"].as_array().into_iter().flatten();
    let mut kinds = manifests.chain([&spec["resource"]]);
    kinds.any(|manifest| manifest["kind"] == "Connector").then_some(())?;
    let conditions = object.data["status"]["conditions"].as_array()?;
    let is_it = |c: &&Value| {
        let named = ["Scheduled", "FullyApplied", "Applied"].iter().any(|name| c["type"] == *name);
        named && c["status"] == "False"
    };
    let condition = conditions.iter().find(is_it)?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    Some(format!("{}: {} {}", key(&object.metadata), text("reason"), text("message")))
}

fn carrier(
    hub: &Cluster,
    differences: Result<Differences, String>,
    karmada: &Result<Option<Karmada>, String>,
) -> Vec<Draft> {
    let name = hub.name();
    let Differences { connectors, missing, different } = match differences {
        Ok(differences) => differences,
        Err(unseen) => return vec![Draft::skipped(Check::Carrier, Some(name), unseen)],
    };
    let (mut seen, has_no_policy) = match karmada {
        Ok(Some(karmada)) => {
            let policies = karmada.connector_policies;
            (format!("policies of Karmada that select Connectors: {policies}"), policies == 0)
        }
        Ok(None) => ("no Karmada".to_owned(), false),
        Err(unseen) => (format!("not visible: {unseen}"), false),
    };
    if let Ok(Some(Karmada { failed, .. })) = karmada
        && !failed.is_empty()
    {
        seen += &format!("; not applied: {}", join_first(failed));
    }
    let all = count(connectors, "Connector");
    let mut drafts = Vec::new();
    if !missing.is_empty() {
        let keys: Vec<_> = missing.iter().collect();
        let policy = has_no_policy.then(|| policy().to_string().into());
        let facts = Facts { hub: Some(name.clone()), what: policy, ..Facts::default() };
        let evidence = format!("{} of {all}; {seen}", keys.len());
        let subject = about_objects(name, Kind::Connector, &keys);
        drafts.push(Draft::failed(Check::Carrier, Cause::NotPlaced, subject, facts, evidence));
    }
    for (edge, keys) in different {
        let is_karmadas = keys.first().is_some_and(|(_, is_karmadas)| *is_karmadas);
        let keys: Vec<_> = keys.iter().map(|(key, _)| key).collect();
        let binding = keys.first().map(|key| karmada_binding(key).into());
        let subject = about_objects(&edge, Kind::Connector, &keys);
        let facts = Facts {
            hub: Some(name.clone()),
            edge: Some(edge),
            what: binding.filter(|_| is_karmadas),
            ..Facts::default()
        };
        let evidence = format!("{} of {all}, twice within 3 s; {seen}", keys.len());
        drafts.push(Draft::failed(Check::Carrier, Cause::NotCarried, subject, facts, evidence));
    }
    if drafts.is_empty() && connectors == 0 && has_no_policy {
        let unseen = "whether Connectors are carried: there are none, and no policy selects them";
        drafts.push(Draft::skipped(Check::Carrier, Some(name), unseen));
    } else if drafts.is_empty() {
        let evidence = format!("{all}, each with the hub's value at an edge; {seen}");
        drafts.push(Draft::passed(Check::Carrier, Some(name), evidence));
    }
    drafts
}

/// A policy that carries Connectors to every member cluster.
fn policy() -> Value {
    let selector = json!({ "apiVersion": Kind::Connector.api_version(), "kind": "Connector" });
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": { "name": "connectors" },
        "spec": { "resourceSelectors": [selector], "placement": { "clusterAffinity": {} } },
    })
}

fn retention(hub: &Cluster, karmada: &Result<Option<Karmada>, String>) -> Draft {
    let name = Some(hub.name());
    match karmada {
        Err(unseen) => Draft::skipped(Check::Retention, name, unseen),
        Ok(None) => Draft::passed(Check::Retention, name, "no Karmada"),
        Ok(Some(Karmada { gateway_policies: 0, .. })) => {
            Draft::passed(Check::Retention, name, "no policy of Karmada selects Gateways")
        }
        Ok(Some(Karmada { retention_rules: 0, .. })) => {
            let facts = Facts { hub: name.cloned(), ..Facts::default() };
            let evidence = "a policy selects Gateways, and no ResourceInterpreterCustomization has a \
                            retention for them";
            let cause = Cause::RetentionMissing;
            Draft::failed(Check::Retention, cause, About::cluster(hub.name()), facts, evidence)
                .into_warning()
        }
        Ok(Some(_)) => Draft::passed(Check::Retention, name, "a retention rule for Gateways"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_or_work_with_a_false_condition_has_failed() {
        let failed_with = |kind: &str, condition: &str, status: &str| {
            let manifest = json!({ "kind": kind });
            let object = json!({
                "metadata": { "namespace": "n", "name": "x" },
                "spec": { "resource": manifest, "workload": { "manifests": [manifest] } },
                "status": { "conditions": [
                    { "type": condition, "status": status, "reason": "R", "message": "m" }] },
            });
            failed(&serde_json::from_value(object).unwrap())
        };
        let expected = Some("n/x: R m".to_owned());
        assert_eq!(failed_with("Connector", "Scheduled", "False"), expected);
        assert_eq!(failed_with("Connector", "Applied", "False"), expected);
        assert_eq!(failed_with("Connector", "FullyApplied", "True"), None);
        assert_eq!(failed_with("Secret", "FullyApplied", "False"), None);
    }
}
