//! Notes: what the machine reports besides its actions.

use serde::Serialize;

use crate::contract::cause::{Hop, Problem};
use crate::contract::symptom::{Symptom, SymptomChange};
use crate::data::ids::{ClusterName, NamespacedName};
use crate::data::time::UnixMillis;

/// A report without a write. Notes leave the machine in the order in which they arose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    #[serde(rename = "at_ms")]
    pub at: UnixMillis,
    #[serde(flatten)]
    pub kind: NoteKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum NoteKind {
    /// A problem began, or the facts of an open one changed.
    Began(Problem),
    /// A problem ended: it is solved, the subject is gone, or its cluster left.
    Ended(Problem),
    /// A connector completed a hop.
    HopPassed {
        /// The cluster in which the hop ends.
        cluster: ClusterName,
        /// The connector's name in that cluster.
        connector: NamespacedName,
        hop: Hop,
        /// The liveness of the connector.
        online: bool,
        /// How long the hop took, as this machine saw it: `Mirrored` counts from the upstream
        /// change, `Carried` from the mirror, `Announced` from the change at the edge. `None` if
        /// the start was not seen: the value came with a list, or another writer made the change.
        #[serde(skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
    /// The answers that users get from a Gateway for a connector start or stop to differ from
    /// upstream's status.
    Symptom {
        edge: ClusterName,
        gateway: NamespacedName,
        /// Its name at the edge.
        connector: NamespacedName,
        symptom: Symptom,
        change: SymptomChange,
    },
}
