//! What carries replicas from the hub to the edges: whether it is set up, and whether it carries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::ask::{Asked, Item};
use super::cluster::Look;
use super::election::unreached;
use super::finding::{Group, and, some};
use super::need::parts;
use super::need::{
    CLUSTER_PROPAGATION_POLICIES, CUSTOMIZATIONS, PROPAGATION_POLICIES, RESOURCE_BINDINGS, WORKS,
};
use crate::client::{CallError, path};
use crate::core::ids::{Kind, Role};
use crate::core::objects::UPSTREAM_STATUS;
use crate::report::count;

/// What differs between hub and edge is looked at once more after this: it may be under way.
const UNDER_WAY: Duration = Duration::from_secs(3);

/// Looks at what is between the hub and the edges.
pub(super) async fn look(looks: &[Look]) -> Group {
    let mut group = Group::new("carrier, hub to edges");
    let hub = looks.iter().find(|look| look.has(Role::Downstream));
    let edges: Vec<_> = looks.iter().filter(|look| look.has(Role::Edge)).collect();
    let (Some(hub), false) = (hub, edges.is_empty()) else {
        group.passed("carrier", "this process sees one end only: nothing to compare");
        return group;
    };
    if hub.has(Role::Edge) && edges.len() == 1 {
        group.passed("carrier", "hub and edge are one cluster: there is nothing to carry");
        return group;
    }
    let unseen: Vec<_> = std::iter::once(&hub).chain(&edges).filter(|l| !l.reached).collect();
    if hub.reached {
        karmada(&mut group, &hub.asked).await;
    }
    match unseen.first() {
        Some(unseen) => {
            group.skipped("arrival", "whether replicas arrive can't be told", unreached(unseen))
        }
        None => arrival(&mut group, hub, &edges).await,
    }
    group
}

/// Lists a resource of Karmada's.
async fn list<T>(
    asked: &Asked,
    version: &str,
    resource: &str,
    keep: impl Fn(Item) -> Option<T>,
) -> Result<Vec<T>, CallError> {
    let (plural, group) = parts(resource);
    match asked.list(format!("/apis/{group}/{version}/{plural}"), keep).await {
        Err(CallError::Status { code: 404, .. }) => Ok(Vec::new()),
        found => found,
    }
}

async fn karmada(group: &mut Group, hub: &Asked) {
    let (plural, of) = parts(PROPAGATION_POLICIES);
    match hub.serves(of, "v1alpha1", plural).await {
        Ok(true) => {}
        Ok(false) => {
            group.passed(
                "karmada",
                "no Karmada at the hub: something else carries, or nothing does",
            );
            return;
        }
        Err(error) => {
            group.skipped("karmada", "whether there is a Karmada can't be told", error.to_string());
            return;
        }
    }
    let selects = |item: Item| selects(&item.spec, "Connector").then_some(());
    let retains = |item: Item| retains_gateways(&item.spec).then_some(());
    let found = tokio::try_join!(
        list(hub, "v1alpha1", PROPAGATION_POLICIES, selects),
        list(hub, "v1alpha1", CLUSTER_PROPAGATION_POLICIES, selects),
        list(hub, "v1alpha2", RESOURCE_BINDINGS, stuck_binding),
        list(hub, "v1alpha1", WORKS, stuck_work),
        list(hub, "v1alpha1", CUSTOMIZATIONS, retains),
    );
    match found {
        Ok((some, wide, bindings, works, rules)) => {
            policies(group, some.len() + wide.len());
            stuck(group, "ResourceBinding", &bindings);
            stuck(group, "Work", &works);
            retention(group, rules.len());
        }
        Err(error) => {
            let detail = format!(
                "{error}; whoever runs this check needs list on Karmada's policies, bindings, works \
                 and customizations, a live run does not"
            );
            group.skipped("karmada", "Karmada is there, and can't be looked at", detail);
        }
    }
}

fn policies(group: &mut Group, found: usize) {
    if found == 0 {
        group.warned(
            "karmada",
            "no PropagationPolicy selects Connectors",
            "looked through PropagationPolicies and ClusterPropagationPolicies at the hub",
            "let one select Connector of networking.datumapis.com/v1alpha1, with the edges as its \
             placement: without one Karmada carries none of them",
        );
        return;
    }
    let policies = if found == 1 { "1 policy".to_owned() } else { format!("{found} policies") };
    group.passed("karmada", format!("Karmada, with {policies} for Connectors"));
}

fn retention(group: &mut Group, rules: usize) {
    if rules > 0 {
        group.passed("retention", "a retention rule for Gateways is there");
        return;
    }
    group.warned(
        "retention",
        "no rule retains annotations that are written to Gateways at the edge",
        "looked for a ResourceInterpreterCustomization with a retention for Gateway",
        "where Karmada carries the Gateways, too, it now and then puts an older trigger back: \
         install the retention rule of deploy/",
    );
}

fn selects(policy: &Value, kind: &str) -> bool {
    let selectors = policy["resourceSelectors"].as_array();
    selectors.into_iter().flatten().any(|s| s["kind"] == kind)
}

fn retains_gateways(rule: &Value) -> bool {
    rule["target"]["kind"] == "Gateway" && !rule["customizations"]["retention"].is_null()
}

/// What a condition says against an object; `None` where nothing.
fn against(status: &Value, condition: &str) -> Option<String> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let found =
        conditions.into_iter().find(|c| c["type"] == condition && c["status"] == "False")?;
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    Some(format!("{} {}", text("reason"), text("message")).trim().to_owned())
}

fn stuck_binding(item: Item) -> Option<(String, String)> {
    (item.spec["resource"]["kind"] == "Connector").then_some(())?;
    let why =
        against(&item.status, "Scheduled").or_else(|| against(&item.status, "FullyApplied"))?;
    Some((item.metadata.key(), why))
}

fn stuck_work(item: Item) -> Option<(String, String)> {
    let manifests = item.spec["workload"]["manifests"].as_array();
    manifests.into_iter().flatten().any(|m| m["kind"] == "Connector").then_some(())?;
    Some((item.metadata.key(), against(&item.status, "Applied")?))
}

fn stuck(group: &mut Group, kind: &str, stuck: &[(String, String)]) {
    let Some((first, why)) = stuck.first() else {
        group.passed("applied", format!("no {kind} of a Connector says that it is stuck"));
        return;
    };
    let names: Vec<_> = stuck.iter().map(|(name, _)| name).collect();
    group.failed(
        "applied",
        format!("{} not applied: {}", count(stuck.len(), kind), some(&names)),
        format!("{first}: {why}"),
        "see the member cluster and Karmada's controllers: kubectl get clusters, and the events of \
         the objects named",
    );
}

/// Connectors, by what their annotation says.
type Copies = BTreeMap<String, String>;

async fn copies(asked: &Asked, replicas_only: bool) -> Result<Copies, CallError> {
    let found = asked.list(path(Kind::Connector, None), |item: Item| {
        let said = item.metadata.annotations.get(UPSTREAM_STATUS).cloned().unwrap_or_default();
        let is_replica = item.metadata.is_replica();
        (is_replica || !replicas_only).then(|| (item.metadata.key(), said))
    });
    Ok(found.await?.into_iter().collect())
}

/// What of the hub's is at no edge, and what is at an edge with another value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Apart {
    replicas: usize,
    absent: BTreeSet<String>,
    other: BTreeSet<String>,
}

impl Apart {
    fn of(hub: &Copies, edges: &[Copies]) -> Self {
        let mut apart = Self { replicas: hub.len(), ..Self::default() };
        for (key, said) in hub {
            let mut at = edges.iter().filter_map(|edge| edge.get(key)).peekable();
            if at.peek().is_none() {
                apart.absent.insert(key.clone());
            } else if at.any(|copy| copy != said) {
                apart.other.insert(key.clone());
            }
        }
        apart
    }

    /// What is so at both moments.
    fn still(self, later: Self) -> Self {
        Self {
            replicas: later.replicas,
            absent: self.absent.intersection(&later.absent).cloned().collect(),
            other: self.other.intersection(&later.other).cloned().collect(),
        }
    }

    fn is_none(&self) -> bool {
        self.absent.is_empty() && self.other.is_empty()
    }
}

async fn compare(hub: &Look, edges: &[&Look]) -> Result<Apart, CallError> {
    let at_edges = edges.iter().map(|edge| copies(&edge.asked, false));
    let (at_hub, at_edges) =
        tokio::join!(copies(&hub.asked, true), futures::future::join_all(at_edges));
    let at_edges: Vec<_> = at_edges.into_iter().collect::<Result<_, _>>()?;
    Ok(Apart::of(&at_hub?, &at_edges))
}

async fn arrival(group: &mut Group, hub: &Look, edges: &[&Look]) {
    let compared = async {
        let first = compare(hub, edges).await?;
        if first.is_none() {
            return Ok(first);
        }
        tokio::time::sleep(UNDER_WAY).await;
        Ok(first.still(compare(hub, edges).await?))
    };
    let names: Vec<_> = edges.iter().map(|edge| edge.name()).collect();
    match compared.await {
        Ok(apart) => tell_arrival(group, &apart, hub.name(), &and(&names)),
        Err(error @ CallError::Status { .. }) => {
            group.skipped("arrival", "whether replicas arrive can't be told", error.to_string());
        }
        Err(error) => {
            let remedy = "see the cluster's own findings, and try again";
            group.failed("arrival", "replicas can't be counted", error.to_string(), remedy);
        }
    }
}

fn tell_arrival(group: &mut Group, apart: &Apart, hub: &str, edges: &str) {
    let Apart { replicas, absent, other } = apart;
    if apart.is_none() {
        let what = match replicas {
            0 => format!("there is no replica at {hub} yet"),
            n => format!(
                "each of {} at {hub} is at {edges}, with the same value",
                count(*n, "replica")
            ),
        };
        group.passed("arrival", what);
        return;
    }
    if !absent.is_empty() {
        let names: Vec<_> = absent.iter().collect();
        let detail = format!(
            "looked at {hub} and {edges} twice, {} s apart: {}",
            UNDER_WAY.as_secs(),
            some(&names)
        );
        if absent.len() == *replicas {
            group.failed(
                "arrival",
                format!(
                    "none of {} at {hub} is at {edges}: nothing is carried",
                    count(*replicas, "replica")
                ),
                detail,
                "see the carrier: its policy for Connectors, its controllers, whether it reaches \
                 the member; and whether these edges are its members",
            );
        } else {
            group.warned(
                "arrival",
                format!("{} of {} at {hub} not at {edges}", absent.len(), count(*replicas, "replica")),
                detail,
                "see the carrier's objects for them, or configure the edge that they are carried to",
            );
        }
    }
    if !other.is_empty() {
        let names: Vec<_> = other.iter().collect();
        group.warned(
            "arrival",
            format!(
                "{} at {edges} with another value than at {hub}",
                count(other.len(), "replica")
            ),
            format!("looked twice, {} s apart: {}", UNDER_WAY.as_secs(), some(&names)),
            "a live run nudges the carrier for them; where that goes on, see who writes \
             upstream-status at the edge, and the carrier's objects for them",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;
    use serde_json::json;

    fn copies(of: &[(&str, &str)]) -> Copies {
        of.iter().map(|(key, said)| ((*key).to_owned(), (*said).to_owned())).collect()
    }

    #[test]
    fn replicas_that_do_not_arrive_are_told_and_how_bad_it_is() {
        let hub = copies(&[("a", "1"), ("b", "1")]);
        for (edges, levels) in [
            (vec![copies(&[("a", "1"), ("b", "1"), ("own", "")])], vec![Level::Passed]),
            // Each is at an edge of its own.
            (vec![copies(&[("a", "1")]), copies(&[("b", "1")])], vec![Level::Passed]),
            (vec![copies(&[("a", "1")])], vec![Level::Warning]),
            (vec![copies(&[("a", "0"), ("b", "1")])], vec![Level::Warning]),
            (vec![copies(&[("a", "0")])], vec![Level::Warning, Level::Warning]),
            (vec![copies(&[])], vec![Level::Failed]),
        ] {
            let mut group = Group::new("g");
            tell_arrival(&mut group, &Apart::of(&hub, &edges), "hub", "edge");
            let found: Vec<_> = group.findings().iter().map(|f| f.level).collect();
            assert_eq!(found, levels, "{edges:?}");
        }
    }

    #[test]
    fn what_was_under_way_is_not_told() {
        let hub = copies(&[("a", "1"), ("b", "1")]);
        let before = Apart::of(&hub, &[copies(&[("a", "0")])]);
        let later = Apart::of(&hub, &[copies(&[("a", "1")])]);
        let still = before.still(later);
        assert_eq!((still.absent.len(), still.other.len()), (1, 0));
    }

    #[test]
    fn a_binding_or_work_that_says_no_is_stuck() {
        let item = |kind: &str, condition: &str, status: &str| -> Item {
            let manifest = json!({ "kind": kind });
            serde_json::from_value(json!({
                "metadata": { "namespace": "n", "name": "x" },
                "spec": { "resource": manifest, "workload": { "manifests": [manifest] } },
                "status": { "conditions": [
                    { "type": condition, "status": status, "reason": "R", "message": "m" }] },
            }))
            .unwrap()
        };
        let stuck = Some(("n/x".to_owned(), "R m".to_owned()));
        assert_eq!(stuck_binding(item("Connector", "Scheduled", "False")), stuck);
        assert_eq!(stuck_binding(item("Connector", "FullyApplied", "False")), stuck);
        assert_eq!(stuck_binding(item("Connector", "FullyApplied", "True")), None);
        assert_eq!(stuck_binding(item("Secret", "FullyApplied", "False")), None);
        assert_eq!(stuck_work(item("Connector", "Applied", "False")), stuck);
        assert_eq!(stuck_work(item("Gateway", "Applied", "False")), None);
    }
}
