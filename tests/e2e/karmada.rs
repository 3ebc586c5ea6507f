//! Karmada's resources.

use crate::cluster::rest::Resource;

pub(crate) const POLICIES: Resource = Resource {
    group_version: "policy.karmada.io/v1alpha1",
    plural: "propagationpolicies",
    kind: "PropagationPolicy",
};
pub(crate) const CLUSTER_POLICIES: Resource = Resource {
    group_version: "policy.karmada.io/v1alpha1",
    plural: "clusterpropagationpolicies",
    kind: "ClusterPropagationPolicy",
};
pub(crate) const RESOURCE_BINDINGS: Resource = Resource {
    group_version: "work.karmada.io/v1alpha2",
    plural: "resourcebindings",
    kind: "ResourceBinding",
};
