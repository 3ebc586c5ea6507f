//! Notes: what the machine reports besides its actions.

use serde::Serialize;

use crate::contract::cause::{Hop, Problem};
use crate::contract::symptom::{Symptom, SymptomChange};
use crate::data::ids::{ClusterName, ObjectKey};
use crate::data::time::UnixMillis;

/// A report that asks for no write. Notes leave the machine in the order in which they arose.
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
    /// Something is wrong with a subject. For one that is open already: its facts have changed.
    Began(Problem),
    /// It is no longer so: the subject is right again, gone, or its cluster left.
    Ended(Problem),
    /// A connector passed a hop.
    HopPassed {
        /// The cluster in which the hop ends.
        cluster: ClusterName,
        /// The connector's name in that cluster.
        connector: ObjectKey,
        hop: Hop,
        /// The liveness that was passed on.
        online: bool,
        /// How long the hop took, as this machine saw it: `Mirrored` counts from the upstream
        /// change, `Carried` from the mirrored annotation, `Announced` from the carried one. `None` when
        /// the machine did not see the hop begin: the value came with a list, or another writer
        /// made the change.
        #[serde(skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
    /// What users get from a Gateway for a connector begins or stops to differ from what upstream says.
    Symptom {
        edge: ClusterName,
        gateway: ObjectKey,
        /// Its name at the edge.
        connector: ObjectKey,
        symptom: Symptom,
        change: SymptomChange,
    },
}
