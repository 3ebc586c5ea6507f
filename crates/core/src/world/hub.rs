//! Hub objects: the upstream objects that they name, and the fields that rules read.

use crate::contract::cause::Cause;
use crate::contract::route_origin::{RouteOrigin, origin_of};
use crate::data::ids::{ClusterName, NamespacedName};
use crate::data::objects::{Meta, Object, UPSTREAM_STATUS};
use crate::data::time::UnixMillis;
use crate::status::digest::Digest;
use crate::status::liveness::{self, Liveness, StatusDigest};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubConnector {
    /// The upstream Connector that its labels name; an error is the first label that it lacks.
    pub(crate) upstream: Result<UpstreamRef, &'static str>,
    /// The status annotation.
    pub(crate) annotation: Option<StatusDigest>,
    /// The size of all other annotations, which count against the same limit.
    pub(crate) other_annotation_bytes: u32,
    /// The number in the nudge annotation.
    pub(crate) nudge: u32,
    /// An operator has paused it.
    pub(crate) is_paused: bool,
    /// Karmada carries it to the edges.
    pub(crate) is_karmadas: bool,
    /// When the watch showed that the upstream namespace that it was made from was deleted.
    pub(crate) namespace_deleted_at: Option<UnixMillis>,
}

#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) created_at: Option<UnixMillis>,
    /// `Err(Some(cause))`: the route is kept in any case. `Err(None)`: it was not made from an
    /// upstream HTTPRoute.
    pub(crate) parents: Result<RouteOrigin, Option<Cause>>,
}

/// An upstream object that a hub object names, whether or not it exists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UpstreamRef {
    pub(crate) cluster: ClusterName,
    pub(crate) name: NamespacedName,
}

impl HubConnector {
    /// `likely`: digests that the annotation probably has, which saves decoding it. The first one
    /// is upstream's.
    pub(super) fn new(
        meta: &Meta,
        nudge_key: &str,
        upstream: Result<UpstreamRef, &'static str>,
        likely: [Option<StatusDigest>; 2],
    ) -> Self {
        let text = meta.annotations.get(UPSTREAM_STATUS);
        let own_bytes = text.map_or(0, |text| UPSTREAM_STATUS.len() + text.len());
        let other_bytes = meta.annotations.bytes() - own_bytes;
        let nudge = meta.annotations.get(nudge_key);
        Self {
            upstream,
            annotation: text.map(|text| digest_of(text, likely)),
            other_annotation_bytes: u32::try_from(other_bytes).unwrap_or(u32::MAX),
            nudge: nudge.and_then(|number| number.parse().ok()).unwrap_or(0),
            is_paused: meta.is_paused(),
            is_karmadas: meta.is_karmadas(),
            namespace_deleted_at: None,
        }
    }

    /// The upstream that it names.
    pub(crate) fn cluster(&self) -> Option<&ClusterName> {
        self.upstream.as_ref().map(|named| &named.cluster).ok()
    }
}

fn digest_of(text: &str, likely: [Option<StatusDigest>; 2]) -> StatusDigest {
    let [upstream, _] = likely;
    if let Some(upstream) = upstream.filter(|upstream| upstream.all == Digest::of_bytes(text)) {
        return upstream;
    }

    let likely = likely.map(|digest| digest.map(|digest| digest.all));
    let routing = liveness::decode(text).as_ref().map(Liveness::routing);
    StatusDigest { all: Digest::of(text, likely), routing }
}

impl UpstreamRef {
    /// The upstream object that the labels of a hub object name.
    ///
    /// # Errors
    /// The first label that is missing.
    pub(super) fn of(meta: &Meta) -> Result<Self, &'static str> {
        let (cluster, namespace, name) = meta.upstream()?;
        let name = NamespacedName::new(namespace, name);
        Ok(Self { cluster: cluster.as_str().into(), name })
    }
}

impl Route {
    pub(super) fn new(object: &Object) -> Self {
        Self { created_at: object.meta.creation_timestamp, parents: origin_of(object) }
    }

    /// The upstream that it names.
    pub(crate) fn upstream(&self) -> Option<&ClusterName> {
        self.parents.as_ref().ok().map(|parents| &parents.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_a_hub_has_100_000_times_stays_small() {
        assert!(size_of::<HubConnector>() <= 96, "{}", size_of::<HubConnector>());
    }

    #[test]
    fn an_annotation_that_says_what_upstream_says_is_not_decoded() {
        let text = "{}";
        let upstream = StatusDigest { all: Digest::of_bytes(text), routing: None };

        assert_eq!(digest_of(text, [Some(upstream), None]), upstream);
        let decoded = digest_of(text, [None, None]);
        assert_eq!(decoded.all, upstream.all);
        assert!(decoded.routing.is_some());
    }
}
