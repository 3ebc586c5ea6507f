//! The changes that an event causes.

use std::sync::Arc;

use crate::contract::cause::Hop;
use crate::contract::error_cause::RequestFailure;
use crate::data::ids::{ClusterName, Kind, NamespacedName};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::{Object, UPSTREAM_STATUS};
use crate::data::time::UnixMillis;
use crate::status::liveness::StatusDigest;
use crate::subject::{Subject, Target};

/// Each subject that an event concerns appears in `Changed` or `Gone`, once or several times. The
/// other variants carry what the tables do not show afterwards.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The subject changed, or an object that it names, or evidence about one.
    Changed(Subject),
    /// The object is gone, or another one has its name.
    Gone(Subject),
    /// A hub object leaves the breakers of this upstream: its labels name another upstream object,
    /// or it is gone. A route also leaves them if another one has its name.
    Unlinked {
        at: ObjectRef,
        from: ClusterName,
    },
    /// The watch or a list showed a hub Connector, in a version that is not older.
    HubConnectorSeen(HubConnectorSeen),
    /// The upstream status of a hub Connector changed, so a pause because of the old value ends.
    UpstreamChanged {
        at: ObjectRef,
    },
    /// The upstream of a hub Connector left the run, so what is desired is unknown.
    UpstreamLeft {
        at: ObjectRef,
    },
    /// The watch or a list showed a route again, in a version that is not older.
    RouteSeen {
        at: ObjectRef,
        has_other_parents: bool,
    },
    Edge(EdgeChange),
    /// An object cannot be read, or the status of an upstream Connector cannot be written as an
    /// annotation.
    Unreadable {
        at: ObjectRef,
    },
    /// An object that could not be read is readable again, or is gone.
    Readable {
        at: ObjectRef,
    },
    /// A connector completed a hop: the status of an upstream Connector changed, or the Connector
    /// went while it was online; or the liveness of an edge Connector changed, and no hub of this
    /// instance has the Connector.
    HopPassed {
        cluster: ClusterName,
        connector: NamespacedName,
        hop: Hop,
        is_online: bool,
    },
    /// The upstream was restored from an older state, for the first time in this run.
    Restored {
        cluster: ClusterName,
    },

    /// A watch is live: writes reach the cluster again, and objects that it does not show are
    /// absent.
    ClusterAnswers {
        id: ClusterId,
        name: ClusterName,
        kind: Kind,
    },
    /// A watch is lost: what it showed is unknown.
    WatchLost {
        id: ClusterId,
        name: ClusterName,
        kind: Kind,
        error: RequestFailure,
    },
    /// A watch that gives evidence about removals of this upstream is lost.
    EvidenceLost {
        upstream: ClusterName,
    },
    /// The cluster left the run. Nothing of it is kept, because another one may take its name.
    ClusterLeft {
        id: ClusterId,
        name: ClusterName,
    },
    /// The first reference to an upstream appeared, or the last one went.
    ReferenceChanged {
        upstream: ClusterName,
    },
    /// The facts that decide whether hub Connectors and this upstream use the same names changed.
    NamingChanged {
        upstream: ClusterName,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct HubConnectorSeen {
    pub(crate) at: ObjectRef,
    /// The object is the one that had the name before.
    pub(crate) is_same_object: bool,
    /// The annotation before the event.
    pub(crate) before: Option<StatusDigest>,
    /// A pause by an operator ended.
    pub(crate) is_resumed: bool,
    pub(super) object: Arc<Object>,
}

/// Changes that concern the touches of an edge.
#[derive(Clone, Debug)]
pub(crate) enum EdgeChange {
    /// The liveness of a Connector changed, or the Connector went while it was online. `is_unseen`:
    /// it was written while its watch was lost, and may have changed and changed back.
    /// `is_ordered`: a live watch showed the change, so its order is known.
    Liveness { connector: ObjectRef, is_unseen: bool, is_ordered: bool },
    /// The HTTPProxy of this Gateway references other connectors than before.
    References { gateway: ObjectRef },
    /// `is_later`: the list of Gateways had already been complete.
    GatewayAppeared { gateway: ObjectRef, is_later: bool },
    /// The trigger changed.
    TriggerChanged { gateway: ObjectRef },
    /// The platform's stamp changed or was removed.
    StampChanged { gateway: ObjectRef },
    /// Another writer changed the platform's stamp on a Gateway whose last connector this is.
    /// `is_present`: the stamp matches the connector's current state; `is_first`: no earlier stamp
    /// did.
    Stamped { gateway: ObjectRef, connector: NamespacedName, is_present: bool, is_first: bool },
    /// The trigger of a class moved from a Gateway that is not programmed to one that is. The
    /// announcement on the first one may be lost.
    CarrierLost { class: Target },
    /// The Gateway, its HTTPProxy or one of its connectors changed.
    Served { gateway: ObjectRef },
    /// None of this target's Gateways references some connectors any longer, and they may be
    /// waiting for it.
    Unreferenced { target: Target },
    /// All lists of the edge are complete again. `since`: when a watch was lost.
    OutageOver { edge: ClusterId, since: UnixMillis },
}

impl HubConnectorSeen {
    /// The text of the annotation. The tables have only its digest.
    pub(crate) fn annotation(&self) -> Option<&str> {
        self.object.meta.annotations.get(UPSTREAM_STATUS)
    }

    /// The field manager of the writer that changed the annotation, if the change is another
    /// writer's.
    pub(crate) fn manager(&self) -> Option<&str> {
        self.object.meta.overwritten_by(self.annotation().is_some())
    }
}
