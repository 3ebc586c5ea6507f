//! The clusters that a log has named, so that each name is allocated once.

use super::LineError;
use super::line::Text;
use crate::core::contract::event::EventName;
use crate::core::data::ids::ClusterName;
use crate::core::data::map::Map;

/// How many cluster names an error lists.
const CLUSTERS_SHOWN_MAX: usize = 10;

/// Removed clusters stay, because events may trail the removal.
#[derive(Default)]
pub(super) struct NamedClusters {
    names: Map<Box<str>, ClusterName>,
    /// Lines are missing. They may have named any cluster.
    pub(super) has_gaps: bool,
}

impl NamedClusters {
    pub(super) fn add(&mut self, name: &str) -> ClusterName {
        self.names.entry(name.into()).or_insert_with(|| ClusterName::from(name)).clone()
    }

    pub(super) fn find(
        &mut self,
        event: EventName,
        name: Option<Text<'_>>,
    ) -> Result<ClusterName, LineError> {
        let Text(name) = name.ok_or_else(|| LineError::missing(event.as_str(), "cluster"))?;
        if let Some(known) = self.names.get(&*name) {
            return Ok(known.clone());
        }
        if self.has_gaps && !name.is_empty() {
            return Ok(self.add(&name));
        }
        let mut known: Vec<_> = self.names.values().map(|c| c.as_str()).collect();
        known.sort_unstable();
        let more = known.len().saturating_sub(CLUSTERS_SHOWN_MAX);
        known.truncate(CLUSTERS_SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let known = known.join(", ") + &more;
        Err(LineError::UnknownCluster { cluster: name.into_owned(), known })
    }
}
