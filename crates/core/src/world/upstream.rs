//! Upstream Connectors: their status, encoded as the annotation encodes it.

use super::edge::Stamp;
use super::table::Shown;
use crate::data::objects::Object;
use crate::data::packed::Packed;
use crate::data::time::UnixMillis;
use crate::status::digest::Digest;
use crate::status::go_json;
use crate::status::liveness::{self, Liveness, StatusDigest};

#[derive(Debug, Default)]
pub(crate) struct UpstreamConnector {
    /// Its status, or the last one that could be read.
    pub(crate) status: Option<Status>,
    /// The object cannot be read, or its status cannot be encoded for the annotation. The latter
    /// does not affect other objects of the kind.
    pub(crate) is_unreadable: bool,
    /// When the status became this one.
    pub(crate) changed_at: UnixMillis,
    /// The cluster was restored from an older state, and the watch has not shown the object since.
    pub(crate) is_before_restore: bool,
    /// The watch showed that the status was removed. A list that lacks it is not enough.
    pub(crate) is_loss_seen: bool,
    /// Digest of the status as upstream encodes it, for a quick check that nothing changed.
    /// `Some(None)`: the object has no status. `None`: before the first look, and while the object
    /// cannot be read.
    raw: Option<Option<Digest>>,
}

#[derive(Debug)]
pub(crate) struct Status {
    /// As the annotation encodes it.
    pub(crate) text: Packed,
    /// The length of that text.
    pub(crate) bytes: u32,
    pub(crate) digest: StatusDigest,
    /// The stamp that the extension server would write for it.
    pub(crate) stamp: Stamp,
}

/// How an event changed a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusChange {
    None,
    /// The status differs, or the Connector is new.
    Changed,
    /// The status cannot be encoded.
    Unreadable,
}

impl UpstreamConnector {
    pub(crate) fn was_online(&self) -> bool {
        self.stamp().is_online()
    }

    /// The stamp that the extension server would write for its status, or for the last one that
    /// could be read.
    pub(crate) fn stamp(&self) -> Stamp {
        self.status.as_ref().map_or_else(Stamp::default, |status| status.stamp)
    }

    pub(super) fn on_seen(
        &mut self,
        object: &Object,
        shown: Shown,
        now: UnixMillis,
    ) -> StatusChange {
        let text = object.status();
        let raw = text.map(Digest::of_bytes);
        let was_readable = self.raw.is_some() && !self.is_unreadable;
        if self.raw.replace(raw) == Some(raw) {
            return StatusChange::None;
        }

        let text = text.map(go_json::canonical);
        self.is_unreadable = text == Some(None);
        if self.is_unreadable {
            return StatusChange::Unreadable;
        }

        let text = text.flatten();
        let all = text.as_deref().map(Digest::of_bytes);
        if was_readable && all == self.status.as_ref().map(|status| status.digest.all) {
            return StatusChange::None;
        }
        self.is_loss_seen = text.is_none() && shown == Shown::Watched;
        self.status = text.map(Status::from);
        self.changed_at = now;
        StatusChange::Changed
    }

    /// The object exists, but its status cannot be read.
    pub(super) fn on_unreadable(&mut self) {
        self.raw = None;
        self.is_unreadable = true;
    }

    pub(super) fn on_restored(&mut self) {
        self.is_before_restore = true;
        self.is_loss_seen = false;
    }
}

impl From<String> for Status {
    fn from(text: String) -> Self {
        let liveness = liveness::decode(&text);
        let routing = liveness.as_ref().map(Liveness::routing);
        Self {
            bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
            digest: StatusDigest { all: Digest::of_bytes(&text), routing },
            stamp: liveness.as_ref().map_or_else(Stamp::default, Stamp::of_liveness),
            text: Packed::new(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::fixture::connector;

    const ONLINE: &str = r#"{"conditions":[{"type":"Ready","status":"True"}]}"#;

    fn shows(row: &mut UpstreamConnector, status: Option<&str>) -> StatusChange {
        let object = connector("default", "lab", 1).status(status).object();
        row.on_seen(&object, Shown::Watched, UnixMillis(1_000))
    }

    #[test]
    fn a_status_changes_when_it_says_something_else() {
        let mut row = UpstreamConnector::default();
        let spaced = r#"{ "conditions": [ {"status":"True", "type":"Ready"} ] }"#;
        let steps = [
            ("it is new", None, StatusChange::Changed),
            ("the same", None, StatusChange::None),
            ("a status came", Some(ONLINE), StatusChange::Changed),
            ("the same bytes", Some(ONLINE), StatusChange::None),
            ("another spelling", Some(spaced), StatusChange::None),
            ("the status went", None, StatusChange::Changed),
        ];
        for (step, status, expected) in steps {
            assert_eq!(shows(&mut row, status), expected, "{step}");
        }
        assert!(row.is_loss_seen && row.status.is_none());

        shows(&mut row, Some(ONLINE));
        let without_status = connector("default", "lab", 1).object();
        row.on_seen(&without_status, Shown::Listed, UnixMillis(1_000));
        assert!(!row.is_loss_seen, "a list is not enough");
    }

    #[test]
    fn a_connector_that_can_be_read_again_has_changed() {
        let mut row = UpstreamConnector::default();
        shows(&mut row, Some(ONLINE));
        row.on_unreadable();
        assert!(row.is_unreadable && row.was_online());

        assert_eq!(shows(&mut row, Some(ONLINE)), StatusChange::Changed);
        assert!(!row.is_unreadable);
    }
}
