//! Annotations that no rule reads. A log keeps their keys and the lengths of their values, because a
//! value may contain a token, as `last-applied-configuration` may, and no rule needs it. The length
//! matters, because the limit for all annotations of one object leaves less room for the status
//! annotation.

use std::sync::Arc;

use super::Header;
use crate::core::data::objects::{ALLOW_REMOVALS, Object, PAUSED, PLATFORM_KEY, UPSTREAM_STATUS};

/// The prefix of a value's length, in bytes.
const MARK: &str = "redacted:";

/// The most bytes of one object's fillers. An API server allows a quarter of that.
const FILLERS_BYTES_MAX: usize = 1024 * 1024;

/// The annotations that rules read, which the log keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadAnnotations {
    nudge: String,
    trigger: String,
}

impl ReadAnnotations {
    pub(super) fn of(header: &Header) -> Self {
        let settings = header.settings.clone().unwrap_or_default();
        Self { nudge: settings.mirror.nudge_key, trigger: settings.touch.key }
    }

    fn contains(&self, key: &str) -> bool {
        key == self.nudge
            || key == self.trigger
            || [UPSTREAM_STATUS, PLATFORM_KEY, PAUSED, ALLOW_REMOVALS].contains(&key)
    }

    /// The object for the log; `None` if that is the unchanged object.
    pub(super) fn withhold(&self, object: &Object) -> Option<Arc<Object>> {
        let annotations = &object.meta.annotations;
        if annotations.iter().all(|(key, _)| self.contains(key)) {
            return None;
        }
        let mut object = object.clone();
        object.meta.annotations.replace_values(|key, value| {
            (!self.contains(key)).then(|| format!("{MARK}{}", value.len()).into())
        });
        Some(Arc::new(object))
    }

    /// Replaces each withheld value with a filler of the same length.
    pub(super) fn fill(&self, object: &mut Object) {
        let mut room = FILLERS_BYTES_MAX;
        object.meta.annotations.replace_values(|key, value| {
            if self.contains(key) {
                return None;
            }
            let bytes = value.strip_prefix(MARK)?.parse::<usize>().ok()?.min(room);
            room -= bytes;
            Some(".".repeat(bytes).into())
        });
    }
}
