//! Keys of annotations and labels, and other names in objects.

use crate::data::ids::{ClusterName, NamespacedName};

/// The status annotation of a hub Connector: the upstream `.status` as compact JSON.
pub const UPSTREAM_STATUS: &str = "networking.datumapis.com/upstream-status";
/// The platform stamp: the platform's extension server writes it once its cache has a change.
pub const PLATFORM_KEY: &str = "networking.datumapis.com/connector-ready-generation";
/// Label: the upstream cluster, encoded (see [`upstream_cluster_name`]).
pub const UPSTREAM_CLUSTER_NAME: &str = "meta.datumapis.com/upstream-cluster-name";
pub const UPSTREAM_GROUP: &str = "meta.datumapis.com/upstream-group";
pub const UPSTREAM_KIND: &str = "meta.datumapis.com/upstream-kind";
pub const UPSTREAM_NAME: &str = "meta.datumapis.com/upstream-name";
/// Label: the upstream object's namespace. On a Namespace, it marks one for hub or edge objects.
pub const UPSTREAM_NAMESPACE: &str = "meta.datumapis.com/upstream-namespace";
/// Annotation of a hub namespace: `true` allows the removal of its Connectors' status annotations,
/// even while a breaker is tripped.
pub const ALLOW_REMOVALS: &str = "throughline.datumapis.com/allow-removals";
/// Annotation of a hub Connector, an edge Gateway or a hub HTTPRoute: `true` stops every write to it.
pub const PAUSED: &str = "throughline.datumapis.com/paused";
/// Label: Karmada's deletion protection; the value `Always` forbids deletion. Karmada enforces it only
/// in its webhook, so throughline respects it too.
pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
/// The field manager of throughline's writes in `managedFields`.
pub const FIELD_MANAGER: &str = "throughline";
/// Envoy Gateway calls its extension servers only when its intermediate representation changes. Of
/// a Gateway's annotations, the representation contains only those with this prefix (observed with
/// version 1.8.1).
pub const EXTENSION_PREFIX: &str = "gateway.envoyproxy.io/";
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// Whether the key of a label or an annotation is Karmada's. An object that Karmada carries has one.
pub fn is_karmadas_key(key: &str) -> bool {
    key.contains("karmada.io/")
}

/// The name of the ResourceBinding with which Karmada carries a Connector.
pub fn karmada_binding(connector: &NamespacedName) -> String {
    format!("{}-connector", connector.name())
}

/// Decodes an `upstream-cluster-name` label: `_` means `/`. One leading `cluster-` is removed, then
/// one leading `/`, which older hub objects have. `None` if nothing is left.
pub fn upstream_cluster_name(label: &str) -> Option<String> {
    let name = label.replace('_', "/");
    let name = name.strip_prefix("cluster-").unwrap_or(&name);
    let name = name.strip_prefix('/').unwrap_or(name);
    (!name.is_empty()).then(|| name.to_owned())
}

/// The label selector for what was made from an upstream; older hub objects have the second form.
pub fn upstream_selector(name: &ClusterName) -> String {
    let name = name.as_str().replace('/', "_");
    format!("{UPSTREAM_CLUSTER_NAME} in (cluster-{name},cluster-_{name})")
}
