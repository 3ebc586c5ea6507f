//! A reference to an object in a cluster.

use crate::data::ids::{Kind, NamespacedName};

/// Counts up and is never reused, so data of a cluster that left cannot be mistaken for that of
/// another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterId(pub(crate) u32);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectRef {
    pub(crate) cluster: ClusterId,
    pub(crate) kind: Kind,
    pub(crate) name: NamespacedName,
}
