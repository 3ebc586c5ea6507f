//! The annotation limit: all annotations of one object together have a size that they may not exceed.

use super::mirror::Mirror;
use crate::contract::note::AnomalyKind;
use crate::data::objects::UPSTREAM_STATUS;
use crate::status::digest::Digest;
use crate::status::go_json;

/// A status under the annotation limit.
pub(super) enum Fitted {
    Whole,
    /// Reduced to what routing needs.
    Reduced(String),
    /// Not even that fits. No annotation is better than a stale one.
    Nothing,
}

impl Mirror<'_> {
    /// Fits a status under the annotation limit: whole, or reduced to what routing needs.
    pub(super) fn fit(&mut self, desired: Digest) -> Fitted {
        let Some(upstream) = self.upstream.filter(|_| desired != Digest::ABSENT) else {
            self.connector.oversize_reported = false;
            return Fitted::Whole;
        };
        let limit = self.ctx.settings.mirror.annotation_limit_bytes;
        let used = self.connector.other_bytes as usize + UPSTREAM_STATUS.len();
        let room = limit.saturating_sub(used);
        let fits = upstream.connector.bytes as usize <= room;
        let is_reported = std::mem::replace(&mut self.connector.oversize_reported, !fits);
        if fits {
            return Fitted::Whole;
        }
        let text = upstream.text().unwrap_or_default();
        let reduced = go_json::reduce(&text).filter(|reduced| reduced.len() <= room);
        if !is_reported {
            let done = match reduced {
                Some(_) => "only its Ready condition and connectionDetails are mirrored",
                None => "no part of it fits, so the annotation is removed",
            };
            let bytes = text.len();
            let detail = format!(
                "the status takes {bytes} bytes, but {room} bytes are left of the annotation limit \
                 of {limit} bytes; {done}"
            );
            let kind = AnomalyKind::OversizedStatus;
            self.ctx.anomaly(kind, &self.hub.name, Some(self.at.key), detail);
        }
        reduced.map_or(Fitted::Nothing, Fitted::Reduced)
    }
}
