//! The content of a recording without a replay: the impact on users, and the connectors.

use std::collections::BTreeMap;

use super::{ConnectorNames, Outage, Replay};
use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::contract::note::Note;
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{Kind, ObjectKey};
use crate::core::status::trigger::NodeIds;
use crate::core::symptoms::Bystander;
use crate::event_log::LogEntry;

pub(crate) struct Recording {
    /// The header's clusters, until the first event gives the start.
    clusters: Vec<ClusterSpec>,
    /// `None` if a machine handles the same events.
    bystander: Option<Bystander>,
    notes: Vec<Note>,
    /// Upstream cluster and Connector of each hub or edge Connector with upstream labels.
    upstreams: BTreeMap<ObjectKey, (String, ObjectKey)>,
}

impl Recording {
    pub(crate) fn new(clusters: &[ClusterSpec], settings: &Settings, node_ids: NodeIds) -> Self {
        Self {
            clusters: clusters.to_vec(),
            bystander: Some(Bystander::new(settings, node_ids)),
            notes: Vec::new(),
            upstreams: BTreeMap::new(),
        }
    }

    /// A recording whose symptoms come from a machine's notes.
    pub(super) fn of_names() -> Self {
        Self {
            clusters: Vec::new(),
            bystander: None,
            notes: Vec::new(),
            upstreams: BTreeMap::new(),
        }
    }

    pub(super) fn add_line(&mut self, line: &LogEntry) {
        if let LogEntry::Event(event) = line {
            self.add(event);
        }
    }

    /// Handles the next event.
    pub(crate) fn add(&mut self, event: &Event) {
        if let Some(bystander) = &mut self.bystander {
            for cluster in std::mem::take(&mut self.clusters) {
                let added = Event { at: event.at, kind: cluster.added() };
                self.notes.extend(bystander.observe(&added));
            }
            self.notes.extend(bystander.observe(event));
        }

        if let EventKind::Listed { object, .. } | EventKind::Applied { object, .. } = &event.kind
            && object.kind() == Kind::Connector
            && let Some((cluster, namespace, name)) = object.meta.upstream()
        {
            let hub = ObjectKey::new(&*object.meta.namespace, &*object.meta.name);
            let upstream = || (cluster, ObjectKey::new(namespace, name));
            self.upstreams.entry(hub).or_insert_with(upstream);
        }
    }

    /// Handles the end of the recording.
    pub(crate) fn finish(self, replay: &mut Replay) {
        let names = |(hub, upstream)| ConnectorNames { upstream: Some(upstream), hub };
        replay.connectors = self.upstreams.into_iter().map(names).collect();
        replay.connectors.sort_unstable();
        let notes = if self.bystander.is_some() { &self.notes } else { &replay.notes };
        replay.recorded = Outage::all(notes);
    }
}
