//! The clusters named in a log so far, so that each name is allocated once.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::LineError;
use crate::core::contract::event::EventName;
use crate::core::data::ids::ClusterName;

/// The most cluster names that an error lists.
const CLUSTERS_SHOWN_MAX: usize = 10;

/// Removed clusters remain, because events may follow the removal.
#[derive(Default)]
pub(super) struct NamedClusters {
    names: BTreeSet<ClusterName>,
    /// Whether lines are missing. They may have named any cluster.
    pub(super) has_gaps: bool,
}

impl NamedClusters {
    pub(super) fn add(&mut self, name: &str) -> ClusterName {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new = ClusterName::from(name);
        self.names.insert(new.clone());
        new
    }

    pub(super) fn find(
        &mut self,
        event: EventName,
        name: Option<Cow<'_, str>>,
    ) -> Result<ClusterName, LineError> {
        let name = name.ok_or_else(|| LineError::missing(event.as_str(), "cluster"))?;
        if let Some(known) = self.names.get(&*name) {
            return Ok(known.clone());
        }
        if self.has_gaps && !name.is_empty() {
            return Ok(self.add(&name));
        }
        let known: Vec<_> =
            self.names.iter().map(ClusterName::as_str).take(CLUSTERS_SHOWN_MAX).collect();
        let more = self.names.len() - known.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let known = known.join(", ") + &more;
        Err(LineError::UnknownCluster { cluster: name.into_owned(), known })
    }
}
