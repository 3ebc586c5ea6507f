//! What should stand in a hub Connector's status annotation, by its upstream Connector.

use super::{UpstreamRef, Upstreams};
use crate::core::clusters::{Clusters, Place};
use crate::core::context::Context;
use crate::core::data::cluster::{ClusterState, NamespaceIdentity};
use crate::core::data::ids::Kind;
use crate::core::data::interner::Key;
use crate::core::data::packed::Packed;
use crate::core::data::time::UnixMillis;
use crate::core::status::digest::Digest;
use crate::core::upstream::UpstreamConnector;

/// The upstream Connector that a hub Connector's labels name, in a cluster that is configured.
#[derive(Clone, Copy)]
pub(crate) struct UpstreamCase<'m> {
    pub(super) cluster: &'m ClusterState,
    /// Also there for a Connector that does not exist upstream.
    pub(super) connector: &'m UpstreamConnector,
    pub(super) key: Key,
}

/// What should stand in a hub Connector's status annotation.
pub(crate) enum Desired {
    /// What upstream says cannot be known now: change nothing.
    Unknown,
    /// Nothing, but not before this moment.
    NotBefore(UnixMillis),
    Status(DesiredStatus),
}

/// What upstream says.
#[derive(Clone, Copy)]
pub(crate) struct DesiredStatus {
    pub(super) digest: Digest,
    /// Since when it is desired: upstream said it, and its watch was live.
    pub(super) since: UnixMillis,
    /// When upstream's status came to say it.
    pub(super) changed_at: UnixMillis,
    /// The watch showed that change; it did not come with a list.
    pub(super) is_change_observed: bool,
}

impl<'m> UpstreamCase<'m> {
    pub(crate) fn find(
        upstreams: &'m Upstreams,
        clusters: &'m Clusters,
        named: UpstreamRef,
    ) -> Option<Self> {
        let upstream = upstreams.get(&named.cluster)?;
        let cluster = clusters.get(upstream.id?)?;
        let connector = upstream.connectors.get(&named.key);
        debug_assert!(connector.is_some(), "a linked upstream Connector has its place");
        Some(Self { cluster, connector: connector?, key: named.key })
    }

    /// What should stand in the status annotation of the hub Connector `at`.
    pub(crate) fn desired(
        &self,
        ctx: &Context,
        hub: &ClusterState,
        at: Place,
        observed: Digest,
    ) -> Desired {
        let UpstreamCase { cluster, connector, key } = *self;
        let identity = cluster.namespace_identity(&ctx.names, at.key.ns, key.ns);
        let is_known = hub.is_hub_namespace(at.key.ns)
            && cluster.is_live(Kind::Connector)
            && identity != NamespaceIdentity::Disagrees
            && (!connector.exists || cluster.is_upstream_namespace(key.ns));
        if !is_known {
            return Desired::Unknown;
        }
        let (changed_at, live_since) = (connector.changed_at, cluster.live_since(Kind::Connector));
        let mut since = changed_at.max(live_since);
        if !connector.exists {
            debug_assert_eq!(connector.digest, Digest::ABSENT);
            since = since.plus(ctx.settings.mirror.absent_grace_ms);
            if since > ctx.now && observed != Digest::ABSENT {
                return Desired::NotBefore(since);
            }
        }
        Desired::Status(DesiredStatus {
            digest: connector.digest,
            since,
            changed_at,
            is_change_observed: changed_at > live_since,
        })
    }

    /// The status as the annotation spells it.
    pub(super) fn text(&self) -> Option<String> {
        self.connector.text.as_ref().map(Packed::text)
    }
}
