//! The hops of the last minutes, for the live page.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::core::contract::cause::Hop;
use crate::core::contract::note::{Note, NoteKind};
use crate::core::data::ids::{ClusterName, NamespacedName};
use crate::core::data::time::UnixMillis;

/// How long a hop is kept.
const KEPT_MS: u64 = 15 * 60 * 1_000;

/// The most hops to keep, well below a megabyte.
const KEPT_MAX: usize = 4_096;

/// A hop that a connector passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedHop {
    /// Increases by one with each hop of this instance, from 1.
    pub number: u64,
    pub at: UnixMillis,
    pub hop: Hop,
    /// The cluster in which the hop ends.
    pub cluster: ClusterName,
    /// The connector's name in that cluster.
    pub connector: NamespacedName,
    pub online: bool,
}

/// A tuple rather than an object, because there are thousands.
impl Serialize for PassedHop {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, hop, cluster, connector, online, .. } = self;
        (at, hop, cluster, connector.namespace(), connector.name(), online).serialize(serializer)
    }
}

/// The latest hops, stored by the loop as they happen: a page opened after an alert shows the minutes
/// before it.
#[derive(Debug, Default)]
pub(crate) struct RecentHops {
    hops: VecDeque<Arc<PassedHop>>,
    count: u64,
}

impl RecentHops {
    pub(crate) fn add(&mut self, note: &Note) {
        let NoteKind::HopPassed { cluster, connector, hop, online, after_ms } = &note.kind else {
            return;
        };
        // A value from a list gives no evidence of when it changed.
        if after_ms.is_none() && *hop != Hop::Upstream {
            return;
        }

        let oldest = UnixMillis(note.at.0.saturating_sub(KEPT_MS));
        while self.hops.front().is_some_and(|hop| hop.at < oldest) || self.hops.len() >= KEPT_MAX {
            self.hops.pop_front();
        }
        self.count += 1;
        self.hops.push_back(Arc::new(PassedHop {
            number: self.count,
            at: note.at,
            hop: *hop,
            cluster: cluster.clone(),
            connector: connector.clone(),
            online: *online,
        }));
    }

    /// All hops, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<PassedHop>> {
        self.hops.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(at: u64, hop: Hop, after_ms: Option<u64>) -> Note {
        let cluster = "hub".into();
        let connector = NamespacedName::new("ns", "c");
        let kind = NoteKind::HopPassed { cluster, connector, hop, online: true, after_ms };
        Note { at: UnixMillis(at), kind }
    }

    #[test]
    fn the_last_minutes_are_kept_and_no_more_than_a_limit() {
        let mut recent = RecentHops::default();
        recent.add(&passed(0, Hop::Mirrored, None));
        assert_eq!(recent.all(), [], "it came with a list");
        recent.add(&passed(1, Hop::Upstream, None));
        recent.add(&passed(2, Hop::Mirrored, Some(1)));
        let numbers =
            |recent: &RecentHops| recent.all().iter().map(|hop| hop.number).collect::<Vec<_>>();
        assert_eq!(numbers(&recent), [1, 2]);
        recent.add(&passed(2 + KEPT_MS, Hop::Announced, Some(1)));
        assert_eq!(numbers(&recent), [2, 3], "the first is older than a quarter of an hour");
        for _ in 0..2 * KEPT_MAX {
            recent.add(&passed(3 + KEPT_MS, Hop::Announced, Some(1)));
        }
        assert_eq!(recent.all().len(), KEPT_MAX);
        assert_eq!(recent.all().last().unwrap().number, recent.count);
    }
}
