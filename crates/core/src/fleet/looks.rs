//! What the roster looks at again later.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::membership::SourceName;
use crate::data::ids::ClusterName;
use crate::data::time::UnixMillis;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// A source's missing clusters: they leave, or are too many.
    Missing(SourceName),
    /// A cluster that nothing needs, or that may join only now.
    Cluster(ClusterName),
    /// The problems of a source.
    Report(SourceName),
}

/// At most one time for each thing to look at.
#[derive(Default)]
pub(super) struct Looks {
    at: BTreeMap<Look, UnixMillis>,
    queue: BTreeSet<(UnixMillis, Look)>,
}

impl Looks {
    pub(super) fn no_later(&mut self, look: Look, at: UnixMillis) {
        if let Some(&old) = self.at.get(&look) {
            if old <= at {
                return;
            }
            self.queue.remove(&(old, look.clone()));
        }
        self.at.insert(look.clone(), at);
        self.queue.insert((at, look));
    }

    pub(super) fn first_at(&self) -> Option<UnixMillis> {
        self.queue.first().map(|(at, _)| *at)
    }

    pub(super) fn pop(&mut self, now: UnixMillis) -> Option<Look> {
        if self.first_at()? > now {
            return None;
        }
        let (_, look) = self.queue.pop_first()?;
        self.at.remove(&look);
        Some(look)
    }
}
