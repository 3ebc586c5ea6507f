//! The content of a recording without a replay: the impact on users, and the connectors.

use std::collections::BTreeMap;

use super::{Outage, Replay};
use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::contract::note::Note;
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{Kind, NamespacedName};
use crate::core::status::trigger::NodeIds;
use crate::core::symptoms::Bystander;
use crate::event_log::LogEntry;

#[derive(Default)]
pub(crate) struct Recording {
    /// The header's clusters, until the first event gives the start.
    clusters: Vec<ClusterSpec>,
    /// `None` if the symptoms come from the notes of a machine that handles the same events.
    bystander: Option<Bystander>,
    notes: Vec<Note>,
    /// Upstream cluster and Connector of each hub or edge Connector with upstream labels.
    upstreams: BTreeMap<NamespacedName, (String, NamespacedName)>,
}

impl Recording {
    /// A recording that also finds the symptoms.
    pub(crate) fn with_symptoms(
        clusters: &[ClusterSpec],
        settings: &Settings,
        node_ids: NodeIds,
    ) -> Self {
        let bystander = Some(Bystander::new(settings, node_ids));
        Self { clusters: clusters.to_vec(), bystander, ..Self::default() }
    }

    /// Handles the next line.
    pub(crate) fn add(&mut self, line: &LogEntry) {
        let LogEntry::Event(event) = line else { return };
        if let Some(bystander) = &mut self.bystander {
            for cluster in std::mem::take(&mut self.clusters) {
                let added = Event { at: event.at, kind: cluster.added() };
                self.notes.extend(bystander.observe(&added));
            }
            self.notes.extend(bystander.observe(event));
        }

        if let EventKind::Listed { object, .. } | EventKind::Applied { object, .. } = &event.kind
            && object.kind() == Kind::Connector
            && let Ok((cluster, namespace, name)) = object.meta.upstream()
        {
            let hub = NamespacedName::new(&*object.meta.namespace, &*object.meta.name);
            let upstream = || (cluster, NamespacedName::new(namespace, name));
            self.upstreams.entry(hub).or_insert_with(upstream);
        }
    }

    /// Handles the end of the recording.
    pub(crate) fn finish(self, replay: &mut Replay) {
        replay.upstreams = self.upstreams;
        let notes = if self.bystander.is_some() { &self.notes } else { &replay.notes };
        replay.recorded = Outage::all(notes);
    }
}
