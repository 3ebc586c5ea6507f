//! What rules decide about.

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

/// What one touch covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Gateway(ObjectRef),
    /// Every Gateway of a class, through the one that carries the trigger.
    Class(ClusterId, Arc<str>),
}

impl Subject {
    /// Queues serve namespaces in turn. A class belongs to no namespace and stands for its own.
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

    /// The kind of object that is written for it.
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
