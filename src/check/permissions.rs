//! The permissions that a configuration needs. This is the only table of them: `throughline check`
//! reviews each, and the e2e tests run with exactly these.

use crate::config::Config;
use crate::core::contract::settings::OrphanMode;
use crate::core::data::ids::{ClusterName, Kind, Role};

pub const LEASES: &str = "leases.coordination.k8s.io";
pub const EVENTS: &str = "events";
pub const SECRETS: &str = "secrets";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PermissionScope {
    AllNamespaces,
    /// The Lease's namespace; `None` is the default namespace of the kubeconfig or the pod.
    LeaseNamespace(Option<String>),
    Namespace(String),
}

/// One verb on one resource of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequiredPermission {
    pub cluster: ClusterName,
    /// The name in RBAC and CRDs: `connectors.networking.datumapis.com`; without a dot in the core
    /// group.
    pub resource: &'static str,
    pub scope: PermissionScope,
    pub verb: &'static str,
    /// The function that fails without it.
    pub without: &'static str,
}

/// The plural and the group of a resource; the core group is empty.
pub fn split_resource(resource: &str) -> (&str, &str) {
    resource.split_once('.').unwrap_or((resource, ""))
}

/// Every permission that a live run with `config` uses, and no other.
///
/// | cluster | resource | verbs | when |
/// |---|---|---|---|
/// | each | the kinds of [`Settings::kinds_watched`](crate::core::contract::settings::Settings::kinds_watched) | list, watch | always |
/// | hub | connectors | patch | an upstream is configured, and it is no dry run |
/// | upstream | connectors, namespaces | get | as above, with a hub: absence is confirmed before an annotation is removed |
/// | hub | httproutes | get, delete | `orphans.mode` is `delete`, and it is no dry run |
/// | upstream | gateways, namespaces | get | as above: absence is confirmed before a delete |
/// | edge | gateways | patch | touching is enabled, and it is no dry run |
/// | hub, edge | events | create, patch | Events are enabled, and it is no dry run |
/// | hub | leases, in its namespace | get, create, update | there is an election |
/// | hub | leases, in its namespace | list | it has several shards |
/// | of the kubeconfig Secrets | secrets, in their namespace | list, watch | `discovery.kubeconfigSecrets` is set |
pub fn required_permissions(config: &Config) -> Vec<RequiredPermission> {
    let mut builder = PermissionsBuilder { config, permissions: Vec::new() };
    builder.add_watches();
    if !config.dry_run {
        builder.add_writes();
    }
    builder.add_election();
    builder.add_discovery();
    let mut permissions = builder.permissions;
    permissions.sort();
    permissions.dedup_by(|a, b| {
        (&a.cluster, a.resource, &a.scope, a.verb) == (&b.cluster, b.resource, &b.scope, b.verb)
    });
    permissions
}

const NOT_SEEN: &str =
    "throughline does not see these objects, and does nothing that depends on them";
const NOT_FOLLOWED: &str = "throughline does not see how these objects change";

struct PermissionsBuilder<'a> {
    config: &'a Config,
    permissions: Vec<RequiredPermission>,
}

impl PermissionsBuilder<'_> {
    fn add(
        &mut self,
        role: Role,
        resource: &'static str,
        verbs: &[&'static str],
        without: &'static str,
    ) {
        for cluster in self.config.clusters.iter().filter(|c| c.roles.contains(&role)) {
            for &verb in verbs {
                let cluster = cluster.name.clone();
                let scope = PermissionScope::AllNamespaces;
                let permission = RequiredPermission { cluster, resource, scope, verb, without };
                self.permissions.push(permission);
            }
        }
    }

    /// Whether a cluster has this role, or one with it may be discovered.
    fn has(&self, role: Role) -> bool {
        self.config.clusters.iter().any(|c| c.roles.contains(&role))
            || self.config.discovery.may_find(role)
    }

    fn add_discovery(&mut self) {
        let Some(secrets) = &self.config.discovery.kubeconfig_secrets else { return };
        let without = [
            ("list", "no cluster joins by a kubeconfig Secret"),
            ("watch", "changes of kubeconfig Secrets are not followed"),
        ];
        for (verb, without) in without {
            self.permissions.push(RequiredPermission {
                cluster: secrets.cluster.clone(),
                resource: SECRETS,
                scope: PermissionScope::Namespace(secrets.namespace.clone()),
                verb,
                without,
            });
        }
    }

    fn add_watches(&mut self) {
        let settings = self.config.settings();
        for cluster in &self.config.clusters {
            for kind in settings.kinds_watched(&cluster.roles) {
                for (verb, without) in [("list", NOT_SEEN), ("watch", NOT_FOLLOWED)] {
                    self.permissions.push(RequiredPermission {
                        cluster: cluster.name.clone(),
                        resource: kind.resource(),
                        scope: PermissionScope::AllNamespaces,
                        verb,
                        without,
                    });
                }
            }
        }
    }

    fn add_writes(&mut self) {
        let connectors = Kind::Connector.resource();
        let namespaces = Kind::Namespace.resource();
        let routes = Kind::HttpRoute.resource();
        let gateways = Kind::Gateway.resource();
        if self.has(Role::Upstream) {
            let without = "no status is mirrored, and the edges keep the last one they got";
            self.add(Role::Hub, connectors, &["patch"], without);
        }
        if self.has(Role::Hub) {
            let without = "no Connector can be proven absent, and its annotation stays at the hub";
            self.add(Role::Upstream, connectors, &["get"], without);
            self.add(Role::Upstream, namespaces, &["get"], without);
        }
        if self.config.orphans.mode == OrphanMode::Delete && self.has(Role::Hub) {
            self.add(Role::Hub, routes, &["get", "delete"], "no orphaned route is deleted");
            let without = "no Gateway can be proven absent, and no orphaned route is deleted";
            self.add(Role::Upstream, gateways, &["get"], without);
            self.add(Role::Upstream, namespaces, &["get"], without);
        }
        if self.config.events.enabled {
            for role in [Role::Hub, Role::Edge] {
                self.add(role, EVENTS, &["create"], "no Kubernetes Events are posted");
                self.add(role, EVENTS, &["patch"], "an Event that happens again is not counted up");
            }
        }
        if self.config.touch.enabled {
            let without = "no Gateway is touched, and Envoy Gateway keeps its old configuration";
            self.add(Role::Edge, gateways, &["patch"], without);
        }
    }

    fn add_election(&mut self) {
        let Some(cluster) = self.config.election_cluster() else { return };
        let scope =
            PermissionScope::LeaseNamespace(self.config.leader_election.lease_namespace.clone());
        let lists = (self.config.leader_election.shards > 1).then_some("list");
        for verb in ["get", "create", "update"].into_iter().chain(lists) {
            let cluster = cluster.name.clone();
            let scope = scope.clone();
            let without = "no leader is elected, and nothing is mirrored";
            let permission = RequiredPermission { cluster, resource: LEASES, scope, verb, without };
            self.permissions.push(permission);
        }
    }
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
