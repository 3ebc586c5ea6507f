//! Checks whether two clusters have each other's role. Then hardly any check passes, and each would say
//! something else: so this is found by what the clusters hold, and reported alone.

use futures::future::join_all;

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::finding::FindingGroup;
use super::permissions::{ENVOY_PROXIES, PROPAGATION_POLICIES, split_resource};
use crate::client::path;
use crate::config::role_name;
use crate::core::data::ids::{Kind, Role};
use crate::report::count;

/// What a cluster holds that shows its role.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// Connectors whose labels name an upstream one.
    copies: usize,
    /// Connectors without such labels.
    originals: usize,
    serves_envoy_gateway: bool,
    serves_karmada: bool,
}

/// Why two clusters seem to have each other's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// The upstream cluster holds copies, and the other one originals.
    Connectors,
    /// Envoy Gateway is at the hub and not at the edge, or Karmada at the edge and not at the hub.
    Software,
}

/// `None` if no clusters are swapped, as far as their objects can be read.
pub(super) async fn check(
    clusters: &[CheckedCluster],
    commands: &Commands,
) -> Option<FindingGroup> {
    let evidence = join_all(clusters.iter().map(evidence)).await;
    let held: Vec<_> = clusters.iter().zip(evidence).filter_map(|(c, e)| Some((c, e?))).collect();
    let pairs = held.iter().flat_map(|a| held.iter().map(move |b| (a, b)));
    let (a, b, sign) = pairs
        .filter_map(|(a, b)| {
            let roles = |of: &CheckedCluster| of.client.cluster.roles().to_vec();
            Some((a, b, sign((&roles(a.0), a.1), (&roles(b.0), b.1))?))
        })
        .next()?;
    let mut group = FindingGroup::new("roles");
    report(&mut group, (a.0, a.1), (b.0, b.1), sign, commands);
    Some(group)
}

async fn evidence(cluster: &CheckedCluster) -> Option<Evidence> {
    if !cluster.reached {
        return None;
    }
    let is_copy = |item: super::probe_client::ListItem| Some(item.metadata.has_upstream());
    let serves = async |resource: &str| {
        let (plural, group) = split_resource(resource);
        cluster.client.is_served(group, "v1alpha1", plural).await.unwrap_or(false)
    };
    let (connectors, serves_envoy_gateway, serves_karmada) = tokio::join!(
        cluster.client.list(path(Kind::Connector, None), is_copy),
        serves(ENVOY_PROXIES),
        serves(PROPAGATION_POLICIES)
    );
    let connectors = connectors.unwrap_or_default();
    let copies = connectors.iter().filter(|is_copy| **is_copy).count();
    let originals = connectors.len() - copies;
    Some(Evidence { copies, originals, serves_envoy_gateway, serves_karmada })
}

/// Whether `a` seems to have the role of `b`, and `b` that of `a`.
fn sign((a, at_a): (&[Role], Evidence), (b, at_b): (&[Role], Evidence)) -> Option<Sign> {
    let is_only_upstream = |roles: &[Role]| roles == [Role::Upstream];
    let is_no_upstream = |roles: &[Role]| !roles.contains(&Role::Upstream);
    if is_only_upstream(a) && is_no_upstream(b) {
        let a_is_a_target = at_a.copies > 0 && at_a.originals == 0;
        let b_is_a_source = at_b.originals > 0 && at_b.copies == 0;
        return (a_is_a_target && b_is_a_source).then_some(Sign::Connectors);
    }
    if a == [Role::Hub] && b == [Role::Edge] {
        let edge_at_a = at_a.serves_envoy_gateway && !at_a.serves_karmada;
        let no_edge_at_b = !at_b.serves_envoy_gateway;
        let hub_at_b = at_b.serves_karmada && !at_a.serves_karmada;
        return ((edge_at_a && no_edge_at_b) || hub_at_b).then_some(Sign::Software);
    }
    None
}

fn report(
    group: &mut FindingGroup,
    (a, at_a): (&CheckedCluster, Evidence),
    (b, at_b): (&CheckedCluster, Evidence),
    sign: Sign,
    commands: &Commands,
) {
    let roles = |of: &CheckedCluster| -> Vec<_> {
        of.client.cluster.roles().iter().map(|role| role_name(*role)).collect()
    };
    let (roles_a, roles_b) = (roles(a), roles(b));
    let (name_a, name_b) = (a.name(), b.name());
    let what = format!(
        "{name_a} and {name_b} seem to be swapped: {name_a} has the role {}, and {name_b} the role {}",
        roles_a.join("+"),
        roles_b.join("+")
    );
    let detail = match sign {
        Sign::Connectors => format!(
            "{name_a} holds {} with labels that name an upstream Connector, and {name_b} {} without",
            count(at_a.copies, "Connector"),
            count(at_b.originals, "Connector")
        ),
        Sign::Software if at_b.serves_karmada => {
            format!("{name_b} serves Karmada's policies, as a hub does, and {name_a} does not")
        }
        Sign::Software => {
            format!("{name_a} serves Envoy Gateway's kinds, as an edge does, and {name_b} does not")
        }
    };
    let exchange = "exchange the roles of the two clusters in the configuration, or their \
                    kubeconfigs if the names belong to the roles; nothing else is checked before";
    let keys = commands.cluster_key(name_a).zip(commands.cluster_key(name_b));
    let remedy = match keys {
        Some((key_a, key_b)) => {
            let set =
                |key: &str, roles: &[&str]| format!("{key}.roles={}", serde_json::json!(roles));
            let settings = [set(&key_a, &roles_b), set(&key_b, &roles_a)];
            format!("{exchange}. To try it:\n{}", commands.check_with(&settings))
        }
        None => exchange.to_owned(),
    };
    group.failed("roles", what, detail, remedy);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_clusters_that_each_look_like_the_other_are_swapped() {
        use Role::{Edge, Hub, Upstream};
        let connectors = |copies, originals| Evidence { copies, originals, ..Evidence::default() };
        let software = |serves_envoy_gateway, serves_karmada| Evidence {
            copies: 3,
            serves_envoy_gateway,
            serves_karmada,
            ..Evidence::default()
        };
        let sign = |a: Role, at_a, b: Role, at_b| super::sign((&[a], at_a), (&[b], at_b));
        let swapped = Some(Sign::Connectors);
        assert_eq!(sign(Upstream, connectors(3, 0), Hub, connectors(0, 3)), swapped);
        assert_eq!(sign(Upstream, connectors(3, 0), Edge, connectors(0, 1)), swapped);
        for (at_a, at_b) in [((0, 3), (3, 0)), ((0, 0), (0, 3)), ((3, 0), (0, 0)), ((3, 1), (0, 3))]
        {
            let (a, b) = (connectors(at_a.0, at_a.1), connectors(at_b.0, at_b.1));
            assert_eq!(sign(Upstream, a, Hub, b), None, "{at_a:?} {at_b:?}");
        }
        // Karmada or Envoy Gateway alone may be at both.
        for (hub, edge, found) in [
            ((false, true), (true, false), None),
            ((true, true), (true, false), None),
            ((true, true), (false, false), None),
            ((true, false), (true, false), None),
            ((false, false), (false, false), None),
            ((true, false), (false, false), Some(Sign::Software)),
            ((true, false), (false, true), Some(Sign::Software)),
            ((false, false), (false, true), Some(Sign::Software)),
        ] {
            let (at_hub, at_edge) = (software(hub.0, hub.1), software(edge.0, edge.1));
            assert_eq!(sign(Hub, at_hub, Edge, at_edge), found, "{hub:?} {edge:?}");
        }
    }
}
