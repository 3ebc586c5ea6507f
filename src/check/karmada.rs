//! Checks Karmada at the hub: its policies for Connectors, what it reports of them, its retention rule.

use serde_json::Value;

use super::finding::{FindingGroup, join_first};
use super::permissions::{
    CLUSTER_PROPAGATION_POLICIES, CUSTOMIZATIONS, PROPAGATION_POLICIES, RESOURCE_BINDINGS, WORKS,
    split_resource,
};
use super::probe_client::{ListItem, ProbeClient};
use crate::client::CallError;
use crate::core::data::ids::Kind;
use crate::report::count;

pub(super) const NO_POLICY: &str = "no PropagationPolicy selects Connectors";
pub(super) const POLICIES_SEARCHED: &str =
    "searched the hub's PropagationPolicies and ClusterPropagationPolicies";

/// A policy that carries Connectors to every member cluster.
pub(super) fn policy_remedy(kubectl: &str) -> String {
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
pub(super) async fn check(group: &mut FindingGroup, hub: &ProbeClient, kubectl: &str) -> bool {
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
            "where it and throughline write a Gateway at the same time, Karmada was seen to put back an \
             older trigger; install the retention rule at the hub, from the folder of throughline's \
             source:\n\
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
