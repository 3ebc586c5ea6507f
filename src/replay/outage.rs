//! Outages as users saw them, from beginning to end.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::core::contract::note::{Note, NoteKind};
use crate::core::contract::symptom::{Symptom, SymptomChange};
use crate::core::data::ids::{ClusterName, NamespacedName};
use crate::core::data::time::UnixMillis;

/// One outage of one connector at one edge, over all its gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outage {
    pub edge: ClusterName,
    /// Its name at the edge.
    #[serde(flatten)]
    pub connector: NamespacedName,
    #[serde(rename = "kind")]
    pub symptom: Symptom,
    /// When upstream reported a state other than the one Envoy was programmed with.
    #[serde(rename = "from_ms")]
    pub from: UnixMillis,
    /// When the first of the wrong gateways recovered; `None` if none did.
    #[serde(rename = "first_right_ms")]
    pub first_recovered: Option<UnixMillis>,
    /// When the last of the wrong gateways recovered; `None` if one did not.
    #[serde(rename = "until_ms")]
    pub until: Option<UnixMillis>,
    /// The number of wrong gateways.
    pub gateways: usize,
    /// Whether it counts as over only because the platform's key was written, which Envoy Gateway is
    /// known to ignore.
    pub by_platform_key: bool,
}

/// The start of an outage and its subject.
type Key<'n> = (UnixMillis, &'n ClusterName, &'n NamespacedName, Symptom);

/// The end at one Gateway: when, and whether by the platform's key.
type Ended = (Option<UnixMillis>, bool);

impl Outage {
    /// All outages in these notes, ordered by beginning. An open outage has no end.
    pub fn all<'n>(notes: impl IntoIterator<Item = &'n Note>) -> Vec<Self> {
        let mut open = BTreeMap::new();
        let mut found: BTreeMap<Key<'n>, Vec<Ended>> = BTreeMap::new();
        for note in notes {
            let NoteKind::Symptom { edge, gateway, connector, symptom, change } = &note.kind else {
                continue;
            };
            let key = (edge, gateway, connector, *symptom);
            if *change == SymptomChange::Began {
                open.insert(key, note.at);
            } else if let Some(from) = open.remove(&key) {
                let ended = (Some(note.at), *change == SymptomChange::EndedByPlatformKey);
                found.entry((from, edge, connector, *symptom)).or_default().push(ended);
            }
        }
        for ((edge, _, connector, symptom), from) in open {
            found.entry((from, edge, connector, symptom)).or_default().push((None, false));
        }

        let outage = |(key, gateways): (Key<'n>, Vec<Ended>)| {
            let (from, edge, connector, symptom) = key;
            let ends = gateways.iter().map(|(until, _)| *until);
            Self {
                edge: edge.clone(),
                connector: connector.clone(),
                symptom,
                from,
                first_recovered: ends.clone().flatten().min(),
                // One gateway that never recovers keeps the outage open.
                until: ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max()),
                gateways: gateways.len(),
                by_platform_key: gateways.iter().any(|(_, by_platform_key)| *by_platform_key),
            }
        };
        found.into_iter().map(outage).collect()
    }
}
