//! Subjects: what rules plan.

use std::sync::Arc;

use crate::data::ids::Kind;
use crate::data::object_ref::{ClusterId, ObjectRef};

/// The key of timers, queues and memories. A subject has at most one write in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    HubConnector(ObjectRef),
    Target(Target),
    Route(ObjectRef),
}

/// The Gateways that one touch covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Gateway(ObjectRef),
    /// Every Gateway of a class, by the one that carries the trigger.
    Class(ClusterId, Arc<str>),
}

impl Subject {
    /// Namespaces take turns in a queue. A class has no namespace, so it counts as one.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::HubConnector(at) | Self::Route(at) => at.name.namespace(),
            Self::Target(Target::Gateway(at)) => at.name.namespace(),
            Self::Target(Target::Class(_, class)) => class,
        }
    }

    pub(crate) fn cluster(&self) -> ClusterId {
        match self {
            Self::HubConnector(at) | Self::Route(at) => at.cluster,
            Self::Target(target) => target.cluster(),
        }
    }

    /// The kind of the object that is written.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::HubConnector(_) => Kind::Connector,
            Self::Target(_) => Kind::Gateway,
            Self::Route(_) => Kind::HttpRoute,
        }
    }
}

impl Target {
    pub(crate) fn cluster(&self) -> ClusterId {
        match self {
            Self::Gateway(at) => at.cluster,
            Self::Class(cluster, _) => *cluster,
        }
    }
}
