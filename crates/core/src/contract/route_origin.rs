//! The origin of a hub HTTPRoute, by its labels and parentRefs.

use std::collections::BTreeSet;

use crate::contract::cause::Cause;
use crate::data::ids::Kind;
use crate::data::objects::{
    Body, DELETION_PROTECTED, GATEWAY_GROUP, Object, ParentRef, UPSTREAM_GROUP, UPSTREAM_KIND,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteOrigin {
    /// The upstream cluster.
    pub cluster: String,
    /// The upstream namespace.
    pub namespace: String,
    /// The Gateways that are its parents; never empty.
    pub gateways: BTreeSet<String>,
}

/// Reads the origin of a route.
///
/// # Errors
/// The cause for keeping the route in any case, or `None` if it was not made from an upstream
/// HTTPRoute.
pub fn origin_of(object: &Object) -> Result<RouteOrigin, Option<Cause>> {
    let Body::HttpRoute { parents } = &object.body else { return Err(None) };
    let labels = &object.meta.labels;
    let (cluster, namespace, _) = object.meta.upstream().ok_or(None)?;
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
    let gateways = parents.iter().map(|parent| parent.name.clone()).collect();
    Ok(RouteOrigin { cluster, namespace: namespace.to_owned(), gateways })
}
