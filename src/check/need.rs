//! Which permissions a configuration needs: the one table, which the checks ask for and manifests
//! are held against.

use crate::config::Config;
use crate::core::ids::{ClusterName, Kind, Role};
use crate::core::settings::OrphanMode;
use crate::run::kinds_watched;

/// `leases.coordination.k8s.io`
pub const LEASES: &str = "leases.coordination.k8s.io";
/// `events` of the core group.
pub const EVENTS: &str = "events";

/// Where a permission is needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In every namespace.
    Everywhere,
    /// In the Lease's namespace; `None` is the one that the way to the cluster names.
    LeaseNamespace(Option<String>),
}

/// One permission: a verb on a resource of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Where.
    pub cluster: ClusterName,
    /// The resource as RBAC and CRDs name it: `connectors.networking.datumapis.com`; without a dot
    /// in the core group.
    pub resource: &'static str,
    /// In which namespaces.
    pub place: Place,
    /// `list`, `watch`, `get`, `create`, `update`, `patch`, `delete`.
    pub verb: &'static str,
    /// What does not work without it.
    pub without: &'static str,
}

/// A resource's parts: the plural and the group, which is empty for the core's.
pub fn parts(resource: &str) -> (&str, &str) {
    resource.split_once('.').unwrap_or((resource, ""))
}

/// Every permission that a live run with `config` asks for, and none more.
///
/// | role | where | verbs | when |
/// |---|---|---|---|
/// | each | the kinds of [`kinds_watched`] | list, watch | |
/// | downstream | connectors | patch | mirroring, with an upstream to mirror from, and not dry |
/// | downstream | httproutes | get, delete | `orphans.mode: delete`, and not dry |
/// | upstream | namespaces, gateways | get | the same, with a downstream to delete at: what is absent is asked for once more |
/// | edge | gateways | patch | touching, and not dry |
/// | holds the Lease | leases, in its namespace | get, create, update | there is an election |
/// | holds the Lease | events, in its namespace | create | the same |
pub fn needs(config: &Config) -> Vec<Need> {
    let mut table = Table { config, needs: Vec::new() };
    table.watched();
    if !config.dry_run {
        table.written();
    }
    table.election();
    table.needs.sort();
    table.needs.dedup_by(|a, b| {
        (&a.cluster, a.resource, &a.place, a.verb) == (&b.cluster, b.resource, &b.place, b.verb)
    });
    table.needs
}

struct Table<'a> {
    config: &'a Config,
    needs: Vec<Need>,
}

impl Table<'_> {
    fn add(
        &mut self,
        role: Role,
        resource: &'static str,
        verbs: &[&'static str],
        without: &'static str,
    ) {
        for cluster in self.config.clusters.iter().filter(|c| c.roles.contains(&role)) {
            for &verb in verbs {
                let (cluster, place) = (cluster.name.clone(), Place::Everywhere);
                self.needs.push(Need { cluster, resource, place, verb, without });
            }
        }
    }

    fn has(&self, role: Role) -> bool {
        self.config.clusters.iter().any(|c| c.roles.contains(&role))
    }

    fn watched(&mut self) {
        let settings = self.config.settings();
        for cluster in &self.config.clusters {
            for kind in kinds_watched(&cluster.roles, &settings) {
                for verb in ["list", "watch"] {
                    self.needs.push(Need {
                        cluster: cluster.name.clone(),
                        resource: kind.resource(),
                        place: Place::Everywhere,
                        verb,
                        without: "nothing is known of this cluster's, and the process never gets ready",
                    });
                }
            }
        }
    }

    fn written(&mut self) {
        let connectors = Kind::Connector.resource();
        let (routes, gateways) = (Kind::HttpRoute.resource(), Kind::Gateway.resource());
        if self.config.mirror.enabled && self.has(Role::Upstream) {
            let without = "no status is mirrored, and edges keep what they knew last";
            self.add(Role::Downstream, connectors, &["patch"], without);
        }
        if self.config.orphans.mode == OrphanMode::Delete && self.has(Role::Downstream) {
            self.add(Role::Downstream, routes, &["get", "delete"], "no orphaned route is deleted");
            let without = "no absence can be proved, and no orphaned route is deleted";
            self.add(Role::Upstream, gateways, &["get"], without);
            self.add(Role::Upstream, Kind::Namespace.resource(), &["get"], without);
        }
        if self.config.events.enabled {
            let without = "what is the matter is not told on the objects concerned";
            self.add(Role::Downstream, EVENTS, &["create", "patch"], without);
            self.add(Role::Edge, EVENTS, &["create", "patch"], without);
        }
        if self.config.touch.enabled {
            let without = "no gateway is touched, and Envoy Gateway does not translate anew";
            self.add(Role::Edge, gateways, &["patch"], without);
        }
    }

    fn election(&mut self) {
        let Some(cluster) = self.config.election_cluster() else { return };
        let place = Place::LeaseNamespace(self.config.leader_election.lease_namespace.clone());
        let mut rows: Vec<(&'static str, &[&'static str], &'static str)> = vec![(
            LEASES,
            &["get", "create", "update"],
            "nobody is elected, and nothing is mirrored",
        )];
        // At a hub and at edges they are needed everywhere.
        let told_there = [Role::Downstream, Role::Edge];
        if self.config.events.enabled && !told_there.iter().any(|r| cluster.roles.contains(r)) {
            let without = "a change of leadership leaves no Event on the Lease";
            rows.push((EVENTS, &["create", "patch"], without));
        }
        for (resource, verbs, without) in rows {
            for &verb in verbs {
                let (cluster, place) = (cluster.name.clone(), place.clone());
                self.needs.push(Need { cluster, resource, place, verb, without });
            }
        }
    }
}

/// What `throughline check` looks at beside that, where it may: a run never asks for it.
pub const LOOKED_AT: [&str; 8] = [
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
pub(super) const DEPLOYMENTS: &str = "deployments.apps";
pub(super) const PROPAGATION_POLICIES: &str = "propagationpolicies.policy.karmada.io";
pub(super) const CLUSTER_PROPAGATION_POLICIES: &str =
    "clusterpropagationpolicies.policy.karmada.io";
pub(super) const RESOURCE_BINDINGS: &str = "resourcebindings.work.karmada.io";
pub(super) const WORKS: &str = "works.work.karmada.io";
pub(super) const CUSTOMIZATIONS: &str = "resourceinterpretercustomizations.config.karmada.io";
