//! One object in one cluster.

use crate::data::ids::Kind;
use crate::data::name::NamespacedName;

/// Counts up and is never used twice: nothing of a cluster that left can be taken for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterId(pub(crate) u32);

/// One object in one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectRef {
    pub(crate) cluster: ClusterId,
    pub(crate) kind: Kind,
    pub(crate) name: NamespacedName,
}
