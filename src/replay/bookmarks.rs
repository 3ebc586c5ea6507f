//! The bookmarks of a what-if: a recording by other tools has none, and what comes after its last
//! line neither. So they come as API servers send them, while a watch lives.

use std::collections::{BTreeMap, HashSet};

use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Kind, Role};
use crate::core::time::UnixMillis;
use crate::event_log::ClusterSpec;

/// From bookmark to bookmark.
const BOOKMARK_MS: u64 = 60_000;

/// When upstreams whose Gateways are followed were last heard of.
pub(super) struct Bookmarks {
    upstreams: HashSet<ClusterName>,
    heard: BTreeMap<ClusterName, UnixMillis>,
}

impl Bookmarks {
    pub(super) fn new(clusters: &[ClusterSpec]) -> Self {
        let upstreams = clusters.iter().filter(|c| c.roles.contains(&Role::Upstream));
        let upstreams = upstreams.map(|c| c.name.clone()).collect();
        Self { upstreams, heard: BTreeMap::new() }
    }

    /// Takes note of what was recorded.
    pub(super) fn recorded(&mut self, event: &Event) {
        match &event.what {
            Happened::ListFinished { cluster, kind: Kind::Gateway }
            | Happened::WatchResumed { cluster, kind: Kind::Gateway }
            | Happened::WatchHeard { cluster, kind: Kind::Gateway }
                if self.upstreams.contains(cluster) =>
            {
                self.heard.insert(cluster.clone(), event.at);
            }
            Happened::ListStarted { cluster, kind: Kind::Gateway }
            | Happened::WatchLost { cluster, kind: Kind::Gateway, .. }
            | Happened::ClusterRemoved { cluster } => {
                self.heard.remove(cluster);
            }
            _ => {}
        }
    }

    /// The next bookmark, if it comes before `at`.
    pub(super) fn next_before(&mut self, at: UnixMillis, now: UnixMillis) -> Option<Event> {
        let due = self.heard.iter().map(|(cluster, at)| (at.plus(BOOKMARK_MS), cluster));
        let (due, cluster) = due.min().filter(|(due, _)| *due < at)?;
        let (at, cluster) = (due.max(now), cluster.clone());
        self.heard.insert(cluster.clone(), at);
        Some(Event { at, what: Happened::WatchHeard { cluster, kind: Kind::Gateway } })
    }
}
