//! How far each connector is on its way, in one word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::data::closed_list::closed_list;

/// How far a connector's status has come: the first hop that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Phase {
    /// Every hop is done, and the connector is online.
    Settled,
    /// Every hop is done, and the connector is offline.
    Offline,
    /// It exists upstream, but no hub has it.
    Unreplicated,
    /// The hub's annotation differs from the upstream status.
    Mirroring,
    /// The same, while this instance waits before it may lead by a Lease that it created.
    Waiting,
    /// An edge's annotation differs from the hub's.
    Carrying,
    /// A gateway does not yet announce the liveness at its edge.
    Touching,
    /// Everything that routes is done. The rest of the status, such as an address, is mirrored later.
    Deferred,
    /// Upstream seems to have nothing to say, or something else, and that is not proven or not acted
    /// on; [`HoldReason`](crate::contract::hold_reason::HoldReason) says why.
    Unproven,
    /// A hop is late; the view says which one, and why.
    Stalled,
    /// A hub Connector names an upstream that is not a cluster of this run: it never was, or it left.
    /// The hub's annotation stays as it is.
    Unconfigured,
    /// A person has paused its hub Connector, or a Gateway that announces it: nothing is written there,
    /// and nothing is late.
    Paused,
    /// A watch that is needed to tell is not live.
    Unknown,
}

closed_list!(Phase);

/// How many connectors are in each phase; every phase has an entry.
pub type Phases = BTreeMap<Phase, u64>;

/// Whether a hub's annotation equals the upstream status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnnotationState {
    Right,
    /// It differs, or will soon have to be removed.
    Wrong,
    /// It routes as upstream says; the rest differs and is written later.
    Deferred,
    /// A watch is not live, or the labels name no upstream.
    Unknown,
    /// The labels name an upstream that is not a cluster of this run.
    Unconfigured,
    /// Upstream seems to say otherwise, which is not acted on.
    Held,
    /// A person has paused the hub Connector.
    Paused,
    /// `mirror.enabled` is false.
    Off,
}

/// Whether a gateway announces the liveness of its connectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AnnouncementState {
    Announced,
    /// It has to be touched.
    Pending,
    /// No Gateway has the HTTPProxy's name. That is not an error.
    NoGateway,
    /// A watch of the edge is not live.
    Unknown,
    /// It has to be touched, but a person has paused it.
    Paused,
    /// `touch.enabled` is false.
    Off,
}
