//! A change that a target has not announced yet: why there is one, and when the edge's caches have it.

use crate::contract::settings::TouchSettings;
use crate::data::interner::Key;
use crate::data::time::UnixMillis;
use crate::write_queue::Rank;

/// Why a target has something to announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TouchCause {
    LivenessChanged,
    /// A connector was written while its watch was lost: its liveness may have changed and changed
    /// back.
    WrittenWhileWatchLost,
    ReferencesChanged,
    NotAnnounced,
    /// The extension server wrote the platform's key, which it does once its cache has the change.
    PlatformStamp,
    Overwritten,
    /// Found at the first look: others wrote a connector after the Gateway was last touched.
    WrittenSinceTouch,
    /// Found at the first look: the Gateway came with its trigger after the edge was listed.
    CameWithTrigger,
}

impl TouchCause {
    /// The cause as an action's `because` states it.
    pub(super) fn because(self) -> &'static str {
        match self {
            Self::LivenessChanged => "liveness changed at the edge",
            Self::WrittenWhileWatchLost => "a connector was written while its watch was lost",
            Self::ReferencesChanged => "the HTTPProxy references other connectors than before",
            Self::NotAnnounced => "the Gateway does not announce its connectors yet",
            Self::PlatformStamp => {
                "the extension server updated its own key, so its cache is current; touching once \
                 more"
            }
            Self::Overwritten => "another writer changed the trigger",
            Self::WrittenSinceTouch => "a connector was written after the Gateway's last touch",
            Self::CameWithTrigger => {
                "the Gateway appeared with this trigger after the edge was listed, and a cache may \
                 have been late"
            }
        }
    }

    /// How urgent the announcement is.
    pub(super) fn rank(self) -> Rank {
        match self {
            Self::LivenessChanged
            | Self::ReferencesChanged
            | Self::PlatformStamp
            | Self::Overwritten => Rank::Urgent,
            Self::WrittenWhileWatchLost
            | Self::NotAnnounced
            | Self::WrittenSinceTouch
            | Self::CameWithTrigger => Rank::Low,
        }
    }

    /// Nothing is known to have changed, and the state may be as old as the Gateway.
    pub(super) fn is_first_look(self) -> bool {
        matches!(self, Self::NotAnnounced | Self::WrittenSinceTouch | Self::CameWithTrigger)
    }
}

/// What a platform stamp has to show before the extension server's cache is known to have a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The connector that changed last. The extension server's watch shows Connectors in the same
    /// order as ours, so its cache then has the earlier changes, too.
    Connector(Key),
    /// Something else than liveness; only a stamp on the target itself says anything about it.
    Target,
    /// Changes in an unknown order, such as those that a list brings: no stamp shows them all.
    Several,
}

/// A change that the target has not announced yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingChange {
    pub(super) first_at: UnixMillis,
    pub(super) last_at: UnixMillis,
    pub(super) cause: TouchCause,
    /// The latest `n` known when the change came: a trigger with a later one announces it.
    pub(super) n: u32,
    pub(super) subject: Subject,
    /// A stamp has shown that the extension server's cache has the change.
    pub(super) is_cached: bool,
    /// Found at the start: the extension server's cache has had it for at least as long as ours, so the
    /// last confirmation alone is enough.
    pub(super) only_last: bool,
}

impl PendingChange {
    pub(super) fn new(now: UnixMillis, cause: TouchCause, subject: Subject) -> Self {
        Self {
            first_at: now,
            last_at: now,
            cause,
            n: 0,
            subject,
            is_cached: false,
            only_last: false,
        }
    }

    /// A further change before the former is announced.
    pub(super) fn add(&mut self, now: UnixMillis, cause: TouchCause, subject: Subject) {
        let is_first_change = self.cause.is_first_look();
        if is_first_change {
            self.first_at = now;
        }
        let replaces = self.subject == subject
            || is_first_change
            || matches!((self.subject, subject), (Subject::Connector(_), Subject::Connector(_)));
        self.subject = if replaces { subject } else { Subject::Several };
        self.last_at = now;
        self.is_cached = false;
        self.only_last = false;
        if cause.rank() <= self.cause.rank() {
            self.cause = cause;
        }
    }

    /// A change among several that a list brought.
    pub(super) fn add_unordered(&mut self, now: UnixMillis, cause: TouchCause, subject: Subject) {
        let before = self.subject;
        self.add(now, cause, subject);
        if before != subject {
            self.subject = Subject::Several;
        }
    }

    /// When the edge's caches have the change: once a stamp shows it, else when the window is over. A
    /// connector that never stops changing is announced nevertheless.
    pub(super) fn due_at(&self, settings: &TouchSettings) -> UnixMillis {
        if self.is_cached {
            return self.last_at;
        }
        let settled_at = self.last_at.plus(settings.window_ms);
        settled_at.min(self.first_at.plus(settings.window_ms.max(settings.min_interval_ms)))
    }
}
