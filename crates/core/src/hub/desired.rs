//! What should stand in a hub Connector's status annotation, by its upstream Connector.

use super::{HubConnector, UpstreamRef, Upstreams};
use crate::clusters::{Clusters, Place};
use crate::context::Context;
use crate::contract::hold_reason::HoldReason;
use crate::data::cluster::{ClusterState, NamespaceIdentity};
use crate::data::ids::{ClusterId, Kind};
use crate::data::interner::Key;
use crate::data::packed::Packed;
use crate::data::time::UnixMillis;
use crate::status::digest::Digest;
use crate::status::liveness::Routing;
use crate::upstream::{Presence, UpstreamConnector};

/// The upstream Connector that a hub Connector's labels name, in a cluster that is configured.
#[derive(Clone, Copy)]
pub(crate) struct UpstreamCase<'m> {
    pub(super) id: ClusterId,
    pub(super) cluster: &'m ClusterState,
    /// Also there for a Connector that does not exist upstream.
    pub(super) connector: &'m UpstreamConnector,
    pub(super) key: Key,
    /// How many hub Connectors name the upstream cluster.
    pub(super) named: u64,
    /// When the cluster was last restored from an older state.
    restored_at: Option<UnixMillis>,
}

/// What should stand in a hub Connector's status annotation.
pub(crate) enum Desired {
    /// What upstream says is not known now: change nothing.
    Unknown,
    /// What upstream seems to say is not acted on, for this reason; at most until this moment.
    Held(HoldReason, Option<UnixMillis>),
    /// Nothing, but not before this moment.
    NotBefore(UnixMillis),
    Status(DesiredStatus),
}

/// What upstream says.
#[derive(Clone, Copy)]
pub(crate) struct DesiredStatus {
    pub(super) digest: Digest,
    /// What an edge reads from it; `None` when it does not decode, or is absent.
    pub(super) routing: Option<Routing>,
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
        let id = upstream.id?;
        let cluster = clusters.get(id)?;
        let connector = upstream.connectors.get(&named.key);
        debug_assert!(connector.is_some(), "a linked upstream Connector has its place");
        let (connector, restored_at) = (connector?, upstream.restored_at.get());
        let (named, key) = (upstream.named, named.key);
        Some(Self { id, cluster, connector, key, named, restored_at })
    }

    /// What should stand in the status annotation of the hub Connector `at`.
    ///
    /// Whatever upstream says counts only in the namespace that the hub Connector was copied from:
    /// its uid is in the name of the hub Connector's namespace. A control plane with namespaces of the
    /// same names is another place.
    pub(crate) fn desired(
        &self,
        ctx: &Context,
        hub: &ClusterState,
        at: Place,
        observed: &HubConnector,
    ) -> Desired {
        let UpstreamCase { cluster, key, .. } = *self;
        if !hub.is_hub_namespace(at.key.ns) || !cluster.is_live(Kind::Connector) {
            return Desired::Unknown;
        }
        let deleted_at = observed.namespace_deleted_at.get();
        match cluster.namespace_identity(&ctx.names, at.key.ns, key.ns) {
            NamespaceIdentity::Agrees if !cluster.is_upstream_namespace(key.ns) => Desired::Unknown,
            NamespaceIdentity::Agrees if self.connector.exists() => self.present(ctx, observed),
            NamespaceIdentity::Agrees => self.absent(ctx, observed, self.connector.changed_at),
            _ if deleted_at.is_some() => self.absent(ctx, observed, deleted_at.unwrap_or(ctx.now)),
            _ if !cluster.is_live(Kind::Namespace) => Desired::Unknown,
            NamespaceIdentity::Disagrees => Desired::Held(HoldReason::NamespaceDiffers, None),
            NamespaceIdentity::Unknown => Desired::Held(HoldReason::NamespaceMissing, None),
        }
    }

    /// The Connector exists: it says what its status says.
    fn present(&self, ctx: &Context, observed: &HubConnector) -> Desired {
        let connector = self.connector;
        if matches!(connector.presence, Presence::Unreadable | Presence::StatusUnreadable) {
            return Desired::Held(HoldReason::Unreadable, None);
        }
        if let Some(restored_at) = self.restored_at
            && connector.is_before_restore
            && connector.digest != observed.digest
        {
            let settled_at = restored_at.plus(ctx.settings.mirror.restored_settle_ms);
            if ctx.now < settled_at {
                return Desired::Held(HoldReason::Restored, Some(settled_at));
            }
        }
        let live_since = self.cluster.live_since(Kind::Connector);
        if connector.digest == Digest::ABSENT {
            // A Connector without a status takes its users offline, as one that is missing does.
            return self.nothing(ctx, observed, connector.changed_at.max(live_since));
        }
        Desired::Status(DesiredStatus {
            digest: connector.digest,
            routing: connector.routing,
            since: connector.changed_at.max(live_since),
            changed_at: connector.changed_at,
            is_change_observed: connector.changed_at > live_since,
        })
    }

    /// The Connector is missing since a moment, in a namespace that is the right one, or was.
    fn absent(&self, ctx: &Context, observed: &HubConnector, since: UnixMillis) -> Desired {
        let cluster = self.cluster;
        if observed.digest == Digest::ABSENT {
            return self.nothing(ctx, observed, since);
        }
        let kinds = [Kind::Connector, Kind::Namespace];
        if !cluster.is_live(Kind::Namespace) {
            return Desired::Unknown;
        }
        if kinds.into_iter().any(|kind| !cluster.proves_absence(kind)) {
            return Desired::Held(HoldReason::Unreadable, None);
        }
        let is_deleted = self.connector.presence == Presence::Deleted;
        if self.restored_at.is_some() && !is_deleted {
            return Desired::Held(HoldReason::Restored, None);
        }
        let live_since = kinds.map(|kind| cluster.live_since(kind));
        self.nothing(ctx, observed, since.max(live_since[0]).max(live_since[1]))
    }

    /// Upstream has nothing to say since a moment.
    fn nothing(&self, ctx: &Context, observed: &HubConnector, since: UnixMillis) -> Desired {
        let changed_at = self.connector.changed_at;
        let due_at = since.plus(ctx.settings.mirror.absent_grace_ms);
        if due_at > ctx.now && observed.digest != Digest::ABSENT {
            return Desired::NotBefore(due_at);
        }
        Desired::Status(DesiredStatus {
            digest: Digest::ABSENT,
            routing: None,
            since: due_at,
            changed_at,
            is_change_observed: changed_at > self.cluster.live_since(Kind::Connector),
        })
    }

    /// The status as the annotation spells it.
    pub(super) fn text(&self) -> Option<String> {
        self.connector.text.as_ref().map(Packed::text)
    }
}
