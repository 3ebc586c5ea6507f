//! Upstream Connectors: what their status says, spelled as the annotation spells it.

use super::table::Shown;
use crate::data::objects::Object;
use crate::data::packed::Packed;
use crate::data::time::UnixMillis;
use crate::status::digest::Digest;
use crate::status::go_json;
use crate::status::liveness::{self, Liveness, StatusDigest};

#[derive(Debug, Default)]
pub(crate) struct UpstreamConnector {
    pub(crate) status: UpstreamStatus,
    /// When it came to say this.
    pub(crate) changed_at: UnixMillis,
    /// The cluster was restored from an older state, and the watch has not shown the object since.
    pub(crate) is_before_restore: bool,
    /// The watch showed that it has no status any more. It is not only that a list lacks one.
    pub(crate) is_loss_seen: bool,
    /// The status as upstream spells it: the same bytes mean at once that nothing changed. `None`
    /// before the first look, and while the object cannot be read.
    raw: Option<Digest>,
}

#[derive(Debug, Default)]
pub(crate) enum UpstreamStatus {
    #[default]
    None,
    /// The object cannot be read, or its status cannot be spelled as an annotation. The latter says
    /// nothing about other objects of the kind.
    Unreadable {
        /// What it said before.
        before: Option<Status>,
    },
    Read(Status),
}

#[derive(Debug)]
pub(crate) struct Status {
    /// As the annotation spells it.
    pub(crate) text: Packed,
    /// The length of that text.
    pub(crate) bytes: u32,
    pub(crate) digest: StatusDigest,
    pub(crate) is_online: bool,
}

/// What an event changed of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusChange {
    None,
    /// It says something else, or the Connector is new.
    Changed,
    /// It cannot be spelled.
    Unreadable,
}

impl UpstreamConnector {
    /// The last status that could be read.
    pub(crate) fn said(&self) -> Option<&Status> {
        match &self.status {
            UpstreamStatus::None | UpstreamStatus::Unreadable { before: None } => None,
            UpstreamStatus::Read(status) | UpstreamStatus::Unreadable { before: Some(status) } => {
                Some(status)
            }
        }
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self.status, UpstreamStatus::Unreadable { .. })
    }

    pub(crate) fn was_online(&self) -> bool {
        self.said().is_some_and(|status| status.is_online)
    }

    pub(super) fn on_seen(
        &mut self,
        object: &Object,
        shown: Shown,
        now: UnixMillis,
    ) -> StatusChange {
        let text = object.status();
        let raw = text.map_or(Digest::ABSENT, Digest::of_bytes);
        let was_readable = self.raw.is_some() && !self.is_unreadable();
        if self.raw.replace(raw) == Some(raw) {
            return StatusChange::None;
        }
        let text = match text.map(go_json::canonical) {
            Some(None) => {
                self.set_unreadable();
                return StatusChange::Unreadable;
            }
            text => text.flatten(),
        };

        let all = text.as_deref().map(Digest::of_bytes);
        if was_readable && all == self.said().map(|status| status.digest.all) {
            return StatusChange::None;
        }
        self.is_loss_seen = text.is_none() && shown == Shown::Watched;
        self.status = text.map_or(UpstreamStatus::None, |text| UpstreamStatus::Read(text.into()));
        self.changed_at = now;
        StatusChange::Changed
    }

    /// It exists, and what it says cannot be read.
    pub(super) fn on_unreadable(&mut self) {
        self.raw = None;
        self.set_unreadable();
    }

    pub(super) fn on_restored(&mut self) {
        self.is_before_restore = true;
        self.is_loss_seen = false;
    }

    fn set_unreadable(&mut self) {
        let before = match std::mem::take(&mut self.status) {
            UpstreamStatus::None => None,
            UpstreamStatus::Read(status) => Some(status),
            UpstreamStatus::Unreadable { before } => before,
        };
        self.status = UpstreamStatus::Unreadable { before };
    }
}

impl From<String> for Status {
    fn from(text: String) -> Self {
        let liveness = liveness::decode(&text);
        let routing = liveness.as_ref().map(Liveness::routing);
        Self {
            bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
            digest: StatusDigest { all: Digest::of_bytes(&text), routing },
            is_online: liveness.is_some_and(|liveness| liveness.online),
            text: Packed::new(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next::world::fixture::connector;

    const ONLINE: &str = r#"{"conditions":[{"type":"Ready","status":"True"}]}"#;
    const NOW: UnixMillis = UnixMillis(1_000);

    /// What a Connector shows one after another, and what changes each time.
    fn changes<const N: usize>(
        statuses: [Option<&str>; N],
    ) -> (UpstreamConnector, [StatusChange; N]) {
        let mut row = UpstreamConnector::default();
        let changes = statuses.map(|status| {
            let object = connector("default", "lab", 1).status(status).object();
            row.on_seen(&object, Shown::Watched, NOW)
        });
        (row, changes)
    }

    #[test]
    fn the_same_status_in_another_spelling_changes_nothing() {
        let spaced = r#"{ "conditions": [ {"status":"True", "type":"Ready"} ] }"#;
        let (row, changes) = changes([Some(ONLINE), Some(ONLINE), Some(spaced), None]);

        let [new, same, spaced, lost] = changes;
        assert_eq!(new, StatusChange::Changed);
        assert_eq!(same, StatusChange::None);
        assert_eq!(spaced, StatusChange::None);
        assert_eq!(lost, StatusChange::Changed);
        assert!(row.is_loss_seen && row.said().is_none());
    }

    #[test]
    fn a_new_connector_without_a_status_says_something() {
        assert_eq!(changes([None, None]).1, [StatusChange::Changed, StatusChange::None]);
    }

    #[test]
    fn a_status_that_cannot_be_spelled_keeps_what_was_said_before() {
        let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let (row, changes) = changes([Some(ONLINE), Some(&nested)]);

        assert_eq!(changes[1], StatusChange::Unreadable);
        assert!(row.is_unreadable() && row.was_online());
    }

    #[test]
    fn a_connector_that_can_be_read_again_has_changed() {
        let (mut row, _) = changes([Some(ONLINE)]);
        row.on_unreadable();
        assert!(row.is_unreadable() && row.was_online());

        let object = connector("default", "lab", 2).status(Some(ONLINE)).object();
        assert_eq!(row.on_seen(&object, Shown::Watched, NOW), StatusChange::Changed);
        assert!(!row.is_unreadable());
    }
}
