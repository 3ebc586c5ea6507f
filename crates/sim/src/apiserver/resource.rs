//! The served resources, and the verbs of requests for them.

use throughline_core::data::ids::Kind;

/// The served resources: the machine's kinds, Lease for elections, and Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Connectors,
    HttpProxies,
    Gateways,
    HttpRoutes,
    Namespaces,
    Leases,
    Events,
    /// Served by [`SimMilo`](super::SimMilo) at its root.
    Projects,
    /// Served once enabled.
    ProjectControlPlanes,
    /// Served once enabled.
    Secrets,
}

impl Resource {
    pub const ALL: [Resource; 10] = [
        Resource::Connectors,
        Resource::HttpProxies,
        Resource::Gateways,
        Resource::HttpRoutes,
        Resource::Namespaces,
        Resource::Leases,
        Resource::Events,
        Resource::Projects,
        Resource::ProjectControlPlanes,
        Resource::Secrets,
    ];

    /// The kind in [`SimClusters`](crate::SimClusters); `None` for other resources.
    pub(super) const fn sim_kind(self) -> Option<Kind> {
        match self {
            Resource::Connectors => Some(Kind::Connector),
            Resource::HttpProxies => Some(Kind::HttpProxy),
            Resource::Gateways => Some(Kind::Gateway),
            Resource::HttpRoutes => Some(Kind::HttpRoute),
            Resource::Namespaces => Some(Kind::Namespace),
            Resource::Leases
            | Resource::Events
            | Resource::Projects
            | Resource::ProjectControlPlanes
            | Resource::Secrets => None,
        }
    }

    /// `GROUP/VERSION`, or `v1`.
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Resource::Leases => "coordination.k8s.io/v1",
            Resource::Projects => "resourcemanager.miloapis.com/v1alpha1",
            Resource::ProjectControlPlanes => "infrastructure.miloapis.com/v1alpha1",
            _ => self.sim_kind().map_or("v1", Kind::api_version),
        }
    }

    /// The API group; empty for the core group.
    pub(super) fn group(self) -> &'static str {
        self.api_version().rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// The value of `kind` in objects.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Resource::Leases => "Lease",
            Resource::Projects => "Project",
            Resource::ProjectControlPlanes => "ProjectControlPlane",
            Resource::Secrets => "Secret",
            _ => self.sim_kind().map_or("Event", Kind::as_str),
        }
    }

    /// The name in paths, for example `connectors`.
    pub fn plural(self) -> &'static str {
        match self {
            Resource::Leases => "leases",
            Resource::Events => "events",
            Resource::Projects => "projects",
            Resource::ProjectControlPlanes => "projectcontrolplanes",
            Resource::Secrets => "secrets",
            _ => self.sim_kind().map_or("", Kind::plural),
        }
    }

    pub(super) const fn is_cluster_scoped(self) -> bool {
        matches!(self, Resource::Namespaces | Resource::Projects)
    }

    /// Built into API servers rather than defined by a CRD. The form of some responses differs.
    pub(super) const fn is_built_in(self) -> bool {
        matches!(
            self,
            Resource::Namespaces | Resource::Leases | Resource::Events | Resource::Secrets
        )
    }
}

impl From<Kind> for Resource {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Connector => Resource::Connectors,
            Kind::HttpProxy => Resource::HttpProxies,
            Kind::Gateway => Resource::Gateways,
            Kind::HttpRoute => Resource::HttpRoutes,
            Kind::Namespace => Resource::Namespaces,
        }
    }
}

/// A verb of the Kubernetes API, as in RBAC rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiVerb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl ApiVerb {
    pub const fn as_str(self) -> &'static str {
        match self {
            ApiVerb::Get => "get",
            ApiVerb::List => "list",
            ApiVerb::Watch => "watch",
            ApiVerb::Create => "create",
            ApiVerb::Update => "update",
            ApiVerb::Patch => "patch",
            ApiVerb::Delete => "delete",
        }
    }

    pub const fn is_write(self) -> bool {
        matches!(self, ApiVerb::Create | ApiVerb::Update | ApiVerb::Patch | ApiVerb::Delete)
    }
}
