//! What an event changed, as far as somebody has to know.

use std::sync::Arc;

use crate::data::ids::{ClusterName, Kind};
use crate::data::name::NamespacedName;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::{Object, UPSTREAM_STATUS};
use crate::data::time::UnixMillis;
use crate::status::liveness::StatusDigest;
use crate::subject::{Subject, Target};

/// A subject that an event concerns comes as `Changed` or `Gone`, once or several times. The other
/// variants say what cannot be read from the tables afterwards.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// What concerns the subject changed: itself, an object that it names, or evidence about one.
    Changed(Subject),
    /// The object is gone, or another one has its name. `named`: the upstream that it named, whose
    /// breakers it leaves; a hub Connector of the same name and link stays in them.
    Gone {
        subject: Subject,
        named: Option<ClusterName>,
    },
    /// The labels of the object name something else than before.
    Relinked {
        subject: Subject,
        from: ClusterName,
    },
    Hub(HubChange),
    /// The watch or a list showed a route again, in a version that is not older.
    RouteSeen {
        at: ObjectRef,
    },
    Edge(EdgeChange),
    /// An object cannot be read, or the status of an upstream Connector cannot be spelled as an
    /// annotation.
    Unreadable {
        at: ObjectRef,
    },
    /// An object that could not be read can be, or is gone.
    Readable {
        at: ObjectRef,
    },
    /// What is reported to people.
    Report(Report),

    /// A watch is live, so writes reach the cluster again, and what it does not show is absent.
    ClusterAnswers {
        id: ClusterId,
        name: ClusterName,
        kind: Kind,
    },
    /// A watch is lost that is evidence about removals of this upstream.
    EvidenceLost {
        upstream: ClusterName,
    },
    /// The cluster left the run: nothing is kept of it, and another one may take its name.
    ClusterLeft {
        id: ClusterId,
        name: ClusterName,
    },
    /// The first hub object names this upstream, or the last one went.
    ReferenceChanged {
        upstream: ClusterName,
    },
    /// Something changed that decides whether hub Connectors and this upstream find each other.
    NamingChanged {
        upstream: ClusterName,
    },
}

/// What concerns a hub Connector.
#[derive(Clone, Debug)]
pub(crate) enum HubChange {
    /// The watch or a list showed it, in a version that is not older.
    Seen(HubConnectorSeen),
    /// Upstream says something else than before, so a pause about the old value is over.
    UpstreamChanged { at: ObjectRef },
    /// Its upstream cluster left the run, so nobody knows any longer what is desired.
    UpstreamLeft { at: ObjectRef },
}

#[derive(Clone, Debug)]
pub(crate) struct HubConnectorSeen {
    pub(crate) at: ObjectRef,
    /// It is the object that had the name before.
    pub(crate) is_same_object: bool,
    /// Its annotation before.
    pub(crate) before: Option<StatusDigest>,
    /// A person's pause ended.
    pub(crate) is_resumed: bool,
    pub(super) object: Arc<Object>,
}

/// What concerns the touches of an edge.
#[derive(Clone, Debug)]
pub(crate) enum EdgeChange {
    /// The liveness of a Connector changed, or it went while it was online. `is_unseen`: it was
    /// only written while its watch was lost, and may have changed and changed back. `is_ordered`:
    /// the watch showed it as it came.
    Liveness { connector: ObjectRef, is_unseen: bool, is_ordered: bool },
    /// The liveness of a Connector changed that no hub of this instance has.
    Arrived { connector: ObjectRef, is_online: bool },
    /// The HTTPProxy of this Gateway references other connectors than before.
    References { gateway: ObjectRef },
    /// `is_later`: after the list of Gateways had been complete.
    GatewayAppeared { gateway: ObjectRef, is_later: bool },
    /// The trigger's key has another value.
    TriggerChanged { gateway: ObjectRef },
    /// Another writer changed the platform's stamp on a Gateway of this connector, its last one.
    /// `is_present`: it says what the connector says now; `is_first`: none has said so before.
    Stamped { gateway: ObjectRef, connector: NamespacedName, is_present: bool, is_first: bool },
    /// The trigger of a class moved from a Gateway that is not programmed to one that is: what was
    /// announced on the former may be lost.
    CarrierLost { class: Target },
    /// The Gateway, its HTTPProxy or one of its connectors changed.
    Served { gateway: ObjectRef },
    /// What the Gateways of this edge serve cannot be seen.
    WatchLost { edge: ClusterId },
    /// Connectors may have waited for this target that none of its Gateways references any longer.
    Unreferenced { target: Target },
    /// All lists of the edge are complete again, after a watch was lost then.
    OutageOver { edge: ClusterId, since: UnixMillis },
}

#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// An upstream Connector says something else, or went while it was online.
    UpstreamSays { cluster: ClusterName, connector: NamespacedName, is_online: bool },
    /// The upstream was restored from an older state, for the first time in this run.
    Restored { cluster: ClusterName },
}

impl HubConnectorSeen {
    /// The annotation to the byte. No table keeps it.
    pub(crate) fn annotation(&self) -> Option<&str> {
        self.object.meta.annotations.get(UPSTREAM_STATUS)
    }

    /// The field manager of the writer that changed the annotation, if one did.
    pub(crate) fn manager(&self) -> Option<&str> {
        self.object.meta.overwritten_by(self.annotation().is_some())
    }
}
