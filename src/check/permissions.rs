//! The permissions that a configuration needs. This is the only table of them: `throughline check`
//! reviews each, and the e2e tests run with exactly these.

use crate::config::Config;
use crate::core::contract::settings::OrphanMode;
use crate::core::data::ids::{ClusterName, Kind, Role};
use crate::leader::lease::LEASES;

const EVENTS: &str = "events";
const SECRETS: &str = "secrets";

/// One verb on one resource of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequiredPermission {
    /// The name in RBAC and CRDs: `connectors.networking.datumapis.com`; without a dot in the core
    /// group.
    pub resource: &'static str,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    pub verb: &'static str,
    /// The function that fails without it.
    pub without: &'static str,
}

/// The plural and the group of a resource; the core group is empty.
pub fn split_resource(resource: &str) -> (&str, &str) {
    resource.split_once('.').unwrap_or((resource, ""))
}

/// Every permission that a live run with `config` uses in a cluster with these roles, and no other.
pub fn required_permissions(
    config: &Config,
    cluster: &ClusterName,
    roles: &[Role],
    lease_namespace: &str,
) -> Vec<RequiredPermission> {
    let connectors = Kind::Connector.resource();
    let namespaces = Kind::Namespace.resource();
    let routes = Kind::HttpRoute.resource();
    let gateways = Kind::Gateway.resource();
    let is = |role| roles.contains(&role);
    // One with this role may be discovered.
    let exists = |role| {
        config.clusters.iter().any(|c| c.roles.contains(&role)) || config.discovery.may_find(role)
    };
    let writes = !config.dry_run;
    let mirrors = writes && exists(Role::Upstream) && exists(Role::Hub);
    let deletes = writes && exists(Role::Hub) && config.orphans.mode == OrphanMode::Delete;

    let mut needed = Vec::new();
    let mut add = |resource, namespace: Option<&str>, verbs: &[&'static str], without| {
        needed.extend(verbs.iter().map(|&verb| {
            let namespace = namespace.map(str::to_owned);
            RequiredPermission { resource, namespace, verb, without }
        }));
    };
    for kind in config.settings().kinds_watched(roles) {
        let without =
            "throughline does not see these objects, and does nothing that depends on them";
        add(kind.resource(), None, &["list"], without);
        let without = "throughline does not see how these objects change";
        add(kind.resource(), None, &["watch"], without);
    }
    if is(Role::Hub) && mirrors {
        let without = "no status is mirrored, and the edges keep the last one they got";
        add(connectors, None, &["patch"], without);
    }
    if is(Role::Upstream) && mirrors {
        let without = "no Connector can be proven absent, and its annotation stays at the hub";
        add(connectors, None, &["get"], without);
        add(namespaces, None, &["get"], without);
    }
    if is(Role::Hub) && deletes {
        add(routes, None, &["get", "delete"], "no orphaned route is deleted");
    }
    if is(Role::Upstream) && deletes {
        let without = "no Gateway can be proven absent, and no orphaned route is deleted";
        add(gateways, None, &["get"], without);
        add(namespaces, None, &["get"], without);
    }
    if is(Role::Edge) && writes && config.touch.enabled {
        let without = "no Gateway is touched, and Envoy Gateway keeps its old configuration";
        add(gateways, None, &["patch"], without);
    }
    if (is(Role::Hub) || is(Role::Edge)) && writes && config.events.enabled {
        add(EVENTS, None, &["create"], "no Kubernetes Events are posted");
        add(EVENTS, None, &["patch"], "an Event that happens again is not counted up");
    }
    if config.election_cluster().is_some_and(|elects| elects.name == *cluster) {
        let without = "no leader is elected, and nothing is mirrored";
        add(LEASES, Some(lease_namespace), &["get", "create", "update"], without);
        if config.leader_election.shards > 1 {
            add(LEASES, Some(lease_namespace), &["list"], without);
        }
    }
    let secrets = config.discovery.kubeconfig_secrets.as_ref();
    if let Some(secrets) = secrets.filter(|secrets| secrets.cluster == *cluster) {
        let namespace = Some(&*secrets.namespace);
        add(SECRETS, namespace, &["list"], "no cluster joins by a kubeconfig Secret");
        add(SECRETS, namespace, &["watch"], "changes of kubeconfig Secrets are not followed");
    }
    needed.sort();
    needed
        .dedup_by(|a, b| (a.resource, &a.namespace, a.verb) == (b.resource, &b.namespace, b.verb));
    needed
}

/// Resources that `throughline check` also reads if it may. A live run never reads them.
pub const READ_BY_CHECK_ONLY: [&str; 8] = [
    GATEWAY_CLASSES,
    ENVOY_PROXIES,
    DEPLOYMENTS,
    PROPAGATION_POLICIES,
    CLUSTER_PROPAGATION_POLICIES,
    RESOURCE_BINDINGS,
    WORKS,
    CUSTOMIZATIONS,
];

pub(super) const GATEWAY_CLASSES: &str = "gatewayclasses.gateway.networking.k8s.io";
pub(super) const ENVOY_PROXIES: &str = "envoyproxies.gateway.envoyproxy.io";
const DEPLOYMENTS: &str = "deployments.apps";
pub(super) const PROPAGATION_POLICIES: &str = "propagationpolicies.policy.karmada.io";
pub(super) const CLUSTER_PROPAGATION_POLICIES: &str =
    "clusterpropagationpolicies.policy.karmada.io";
pub(super) const RESOURCE_BINDINGS: &str = "resourcebindings.work.karmada.io";
pub(super) const WORKS: &str = "works.work.karmada.io";
pub(super) const CUSTOMIZATIONS: &str = "resourceinterpretercustomizations.config.karmada.io";
