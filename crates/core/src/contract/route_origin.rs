//! The origin of a hub HTTPRoute, by its labels and parentRefs.

use std::collections::BTreeSet;

use crate::contract::cause::Cause;
use crate::data::ids::{ClusterName, Kind, NamespacedName};
use crate::data::objects::{
    Body, DELETION_PROTECTED, GATEWAY_GROUP, Object, ParentRef, UPSTREAM_GROUP, UPSTREAM_KIND,
};

/// The Gateways that a route names as its parents, all in one upstream namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteOrigin {
    pub cluster: ClusterName,
    pub namespace: Box<str>,
    /// Never empty.
    pub gateways: BTreeSet<NamespacedName>,
}

/// Reads the origin of a route.
///
/// # Errors
/// The cause for keeping the route in any case, or `None` if it was not made from an upstream
/// HTTPRoute.
pub fn origin_of(object: &Object) -> Result<RouteOrigin, Option<Cause>> {
    let Body::HttpRoute { parents } = &object.body else { return Err(None) };
    let labels = &object.meta.labels;
    let (cluster, namespace, _) = object.meta.upstream().map_err(|_| None)?;
    if labels.get(UPSTREAM_KIND) != Some(Kind::HttpRoute.as_str())
        || labels.get(UPSTREAM_GROUP) != Some(GATEWAY_GROUP)
    {
        return Err(None);
    }
    if object.meta.deletion_timestamp.is_some() || labels.get(DELETION_PROTECTED) == Some("Always")
    {
        return Err(Some(Cause::RouteProtected));
    }
    if object.meta.is_paused() {
        return Err(Some(Cause::Paused));
    }
    if !object.meta.finalizers.is_empty() {
        return Err(Some(Cause::RouteProtected));
    }
    let is_local_gateway = |parent: &ParentRef| {
        let group = parent.group.as_deref().unwrap_or(GATEWAY_GROUP);
        let kind = parent.kind.as_deref().map_or(Some(Kind::Gateway), Kind::parse);
        let ns = parent.namespace.as_deref().unwrap_or(namespace);
        group == GATEWAY_GROUP
            && kind == Some(Kind::Gateway)
            && (ns == namespace || *ns == *object.meta.namespace)
            && !parent.name.is_empty()
    };
    if parents.is_empty() || !parents.iter().all(is_local_gateway) {
        return Err(Some(Cause::RouteNotOrphaned));
    }
    let gateway = |parent: &ParentRef| NamespacedName::new(namespace, &parent.name);
    let gateways = parents.iter().map(gateway).collect();
    Ok(RouteOrigin { cluster: cluster.as_str().into(), namespace: namespace.into(), gateways })
}
