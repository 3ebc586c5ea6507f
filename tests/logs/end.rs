//! The clusters as a log shows them at its end.

use std::collections::{BTreeMap, BTreeSet};

use throughline::core::contract::action::Action;
use throughline::core::contract::event::{ClusterSpec, EventKind};
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::Object;
use throughline::event_log::{Header, LogEntry, LogReader};
use throughline_sim::{SimClusters, WatchNotice};

use crate::oracle::Oracle;

pub(crate) struct LogEnd {
    header: Header,
    clusters: SimClusters,
    listing: BTreeMap<(ClusterName, Kind), BTreeSet<ObjectKey>>,
    /// The objects that the machine decided to write.
    written: BTreeSet<(ClusterName, ObjectKey)>,
}

impl LogEnd {
    /// Reads a log; `look` sees each action, and the clusters at that time.
    pub(crate) fn read(log: &[u8], mut look: impl FnMut(&SimClusters, &Action)) -> Self {
        let mut reader = LogReader::new("log", log).unwrap();
        let header = reader.header().clone();
        let clusters = SimClusters::new(&header.clusters, 0);
        let (listing, written) = (BTreeMap::new(), BTreeSet::new());
        let mut end = Self { header, clusters, listing, written };
        while let Some(entry) = reader.next_line().unwrap() {
            match entry {
                LogEntry::Event(event) => end.apply(event.kind),
                LogEntry::Action(decision) => {
                    look(&end.clusters, &decision.action);
                    let Action { cluster, object, .. } = decision.action;
                    end.written.insert((cluster, object));
                }
                LogEntry::Retired => {}
            }
        }
        end
    }

    fn apply(&mut self, event: EventKind) {
        match event {
            EventKind::ClusterAdded { cluster: name, roles } => {
                self.clusters.add_cluster(&ClusterSpec { name, roles }, None);
            }
            EventKind::ClusterRemoved { cluster } => self.clusters.remove_cluster(&cluster),
            EventKind::ListStarted { cluster, kind } => {
                self.listing.insert((cluster, kind), BTreeSet::new());
            }
            EventKind::Listed { cluster, object } => {
                let listing = self.listing.entry((cluster.clone(), object.kind())).or_default();
                listing.insert(object.meta.key());
                self.put(&cluster, &object);
            }
            EventKind::ListFinished { cluster, kind } => {
                let listed = self.listing.remove(&(cluster.clone(), kind)).unwrap_or_default();
                let known = self.clusters.objects(&cluster, kind).map(|object| object.meta.key());
                let known: BTreeSet<_> = known.collect();
                for key in known.difference(&listed) {
                    self.clusters.remove_unlisted(&cluster, kind, key);
                }
            }
            EventKind::Applied { cluster, object } => self.put(&cluster, &object),
            EventKind::Deleted { cluster, object } => {
                self.clusters.remove(&cluster, object.kind(), &object.meta.key());
            }
            _ => {}
        }
    }

    fn put(&mut self, cluster: &ClusterName, object: &Object) {
        // The carrier ignores what is listed.
        self.clusters.put(cluster, object.clone(), "log", WatchNotice::Listed);
    }

    /// A sentence for each object with a wrong annotation or trigger. `held`: hub Connectors that are held.
    pub(crate) fn problems(&self, held: &BTreeSet<ObjectKey>) -> Vec<String> {
        let settings = self.header.settings.clone().unwrap_or_default();
        let has_written = |edge: &ClusterName, gateway: &Object| {
            self.written.contains(&(edge.clone(), gateway.meta.key()))
        };
        let oracle = Oracle {
            clusters: &self.clusters,
            settings: &settings,
            node_ids: self.header.node_ids(),
            has_written: Box::new(has_written),
        };
        let mut problems = Vec::new();
        if settings.mirror.enabled {
            problems.extend(oracle.mirror_problems(held));
        }
        if settings.touch.enabled {
            problems.extend(oracle.touch_problems());
        }
        problems
    }
}
