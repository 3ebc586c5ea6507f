//! What throughline remembers of its touches: for each Gateway, or for each GatewayClass.

use std::collections::BTreeSet;

use crate::core::contention::Contention;
use crate::core::contract::settings::TouchSettings;
use crate::core::data::interner::{Key, Sym};
use crate::core::data::optional_millis::OptionalMillis;
use crate::core::data::time::UnixMillis;
use crate::core::data::used_names::{HoldsNames, UsedNames};
use crate::core::flight::Flight;
use crate::core::status::trigger::Trigger;

/// What one touch covers: a Gateway, or every Gateway of a class through one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TouchTarget {
    Gateway(Key),
    Class(Sym),
}

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
        }
    }
}

/// A change that the target has not announced yet.
#[derive(Clone, Copy)]
pub(super) struct PendingChange {
    pub(super) first_at: UnixMillis,
    pub(super) last_at: UnixMillis,
    pub(super) cause: TouchCause,
    /// The highest `n` known when the change came: a trigger with a higher one announces it.
    pub(super) n: u32,
}

impl PendingChange {
    pub(super) fn new(now: UnixMillis, cause: TouchCause) -> Self {
        Self { first_at: now, last_at: now, cause, n: 0 }
    }

    /// When the change has settled in the edge's caches. A connector that never stops changing is
    /// announced nevertheless.
    pub(super) fn due_at(&self, settings: &TouchSettings) -> UnixMillis {
        let settled_at = self.last_at.plus(settings.window_ms);
        settled_at.min(self.first_at.plus(settings.window_ms.max(settings.min_interval_ms)))
    }
}

/// The touches of one target. Of a Gateway that has announced and confirmed everything, only the
/// few values in [`SettledTouch`] are kept: an edge may have 100,000 of them.
pub(crate) enum TouchRecord {
    Open(Box<TouchState>),
    Settled(SettledTouch),
}

impl Default for TouchRecord {
    fn default() -> Self {
        Self::Open(Box::default())
    }
}

impl TouchRecord {
    pub(super) fn open(&self) -> Option<&TouchState> {
        match self {
            Self::Open(state) => Some(state),
            Self::Settled(_) => None,
        }
    }

    pub(super) fn open_mut(&mut self) -> Option<&mut TouchState> {
        match self {
            Self::Open(state) => Some(state),
            Self::Settled(_) => None,
        }
    }

    /// Makes it [`TouchRecord::Open`]. `observed`: the trigger that the Gateway carries.
    pub(super) fn reopen(&mut self, observed: Option<Trigger>) -> &mut Self {
        if let Self::Settled(settled) = self {
            *self = Self::Open(Box::new(settled.reopened(observed)));
        }
        self
    }

    /// Makes it [`TouchRecord::Settled`] if nothing is open.
    pub(super) fn settle(&mut self) {
        if let Self::Open(state) = self
            && let Some(settled) = state.settled()
        {
            *self = Self::Settled(settled);
        }
    }

    /// Makes the next look the first one. Returns the connectors that waited.
    pub(super) fn start_over(&mut self) -> Vec<Key> {
        self.reopen(None).open_mut().map(TouchState::start_over).unwrap_or_default()
    }

    /// The highest `n` ever written or seen, and when it was last touched.
    pub(super) fn latest(&self) -> (u32, Option<UnixMillis>) {
        match self {
            Self::Open(state) => (state.highest_n, state.last_touch_at),
            Self::Settled(settled) => (settled.highest_n, settled.last_touch_at.get()),
        }
    }

    /// A target that nobody has looked at yet, after others of its edge were touched.
    pub(super) fn after((highest_n, last_touch_at): (u32, Option<UnixMillis>)) -> Self {
        Self::Open(Box::new(TouchState { highest_n, last_touch_at, ..TouchState::default() }))
    }

    /// Whether an announcement is still to be made or has no outcome yet.
    pub(super) fn is_pending(&self) -> bool {
        self.open().is_some_and(|state| {
            let is_announcing = state.flight.writing().is_some_and(|write| write.trigger.c == 0);
            !state.is_adopted || state.pending.is_some() || is_announcing
        })
    }

    pub(super) fn platform_digest(&self) -> Option<u64> {
        match self {
            Self::Open(state) => state.platform_digest,
            Self::Settled(settled) => settled.platform_digest,
        }
    }
}

/// A trigger in flight, and the Gateway that it is written to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TriggerWrite {
    pub(super) gateway: Key,
    pub(super) trigger: Trigger,
}

#[derive(Default)]
pub(crate) struct TouchState {
    pub(crate) flight: Flight<TriggerWrite>,
    pub(super) pending: Option<PendingChange>,
    /// The first look is done: it was decided whether the Gateway's trigger can be trusted.
    pub(super) is_adopted: bool,
    /// The digest that the platform's stamp stood for at the first look. It counts as announced
    /// while the Gateway carries no trigger.
    pub(super) platform_digest: Option<u64>,
    /// The highest `n` ever written or seen.
    pub(super) highest_n: u32,
    pub(super) last_touch_at: Option<UnixMillis>,
    /// When the latest announcement (`c` = 0) was made; confirmations are counted from it.
    pub(super) announced_at: Option<UnixMillis>,
    /// One more confirmation is due, after an outage.
    pub(super) confirms_again: bool,
    pub(super) contention: Contention,
    /// Its time in the [`TouchQueue`].
    pub(crate) scheduled: Option<UnixMillis>,
    /// Connectors whose latest change waits for this target.
    pub(super) waiting: Vec<Key>,
}

impl TouchState {
    /// What must be kept of it; `None` while anything is open.
    fn settled(&self) -> Option<SettledTouch> {
        let is_settled = self.is_adopted
            && self.pending.is_none()
            && self.scheduled.is_none()
            && !self.confirms_again
            && self.contention.overwrites() == 0
            && self.waiting.is_empty()
            && self.flight.is_idle();
        is_settled.then_some(SettledTouch {
            platform_digest: self.platform_digest,
            highest_n: self.highest_n,
            last_touch_at: self.last_touch_at.into(),
        })
    }

    /// Makes the next look the first one. Returns the connectors that waited.
    fn start_over(&mut self) -> Vec<Key> {
        let old = std::mem::take(self);
        *self = Self {
            flight: old.flight,
            highest_n: old.highest_n,
            last_touch_at: old.last_touch_at,
            contention: old.contention,
            scheduled: old.scheduled,
            ..Self::default()
        };
        old.waiting
    }

    pub(super) fn take_waiting(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn raise_highest_n(&mut self, observed: Option<Trigger>) {
        self.highest_n = self.highest_n.max(observed.map_or(0, |trigger| trigger.n));
    }
}

impl HoldsNames for TouchTarget {
    fn mark(&self, used: &mut UsedNames) {
        match self {
            Self::Gateway(gateway) => gateway.mark(used),
            Self::Class(class) => class.mark(used),
        }
    }
}

impl HoldsNames for TouchRecord {
    fn mark(&self, used: &mut UsedNames) {
        match self {
            Self::Open(state) => state.mark(used),
            Self::Settled(SettledTouch { platform_digest: _, highest_n: _, last_touch_at: _ }) => {}
        }
    }
}

impl HoldsNames for TriggerWrite {
    fn mark(&self, used: &mut UsedNames) {
        let Self { gateway, trigger: _ } = self;
        gateway.mark(used);
    }
}

impl HoldsNames for TouchState {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            flight,
            pending: _,
            is_adopted: _,
            platform_digest: _,
            highest_n: _,
            last_touch_at: _,
            announced_at: _,
            confirms_again: _,
            contention: _,
            scheduled: _,
            waiting,
        } = self;
        flight.mark(used);
        waiting.mark(used);
    }
}

impl HoldsNames for TouchQueue {
    fn mark(&self, used: &mut UsedNames) {
        let Self { queue, last_bundle_at: _ } = self;
        queue.mark(used);
    }
}

/// What must be kept of a target that has announced and confirmed everything.
pub(crate) struct SettledTouch {
    platform_digest: Option<u64>,
    highest_n: u32,
    last_touch_at: OptionalMillis,
}

impl SettledTouch {
    fn reopened(&self, observed: Option<Trigger>) -> TouchState {
        let mut state = TouchState {
            is_adopted: true,
            platform_digest: self.platform_digest,
            highest_n: self.highest_n,
            last_touch_at: self.last_touch_at.get(),
            ..TouchState::default()
        };
        state.raise_highest_n(observed);
        state
    }
}

/// The targets that are to be written, by time.
#[derive(Default)]
pub(super) struct TouchQueue {
    queue: BTreeSet<(UnixMillis, TouchTarget)>,
    last_bundle_at: Option<UnixMillis>,
}

impl TouchQueue {
    /// Moves a target from one time to another; `None` stands for "not in the queue".
    pub(super) fn reschedule(
        &mut self,
        target: TouchTarget,
        from: Option<UnixMillis>,
        to: Option<UnixMillis>,
    ) {
        if from == to {
            return;
        }
        if let Some(at) = from {
            let was_queued = self.queue.remove(&(at, target));
            debug_assert!(was_queued, "{target:?} was scheduled but not in the queue");
        }
        if let Some(at) = to {
            let is_first = self.queue.insert((at, target));
            debug_assert!(is_first, "{target:?} was in the queue but not scheduled");
        }
    }

    pub(super) fn contains(&self, at: UnixMillis, target: TouchTarget) -> bool {
        self.queue.contains(&(at, target))
    }

    /// Takes every target that is due: one bundle.
    pub(super) fn take_due(&mut self, now: UnixMillis) -> Vec<TouchTarget> {
        let mut due = Vec::new();
        while self.queue.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(self.queue.pop_first().map(|(_, target)| target));
        }
        if !due.is_empty() {
            self.last_bundle_at = Some(now);
        }
        due
    }

    /// When the next bundle is due: bundles are at least a window apart.
    pub(super) fn next_at(&self, window_ms: u64) -> Option<UnixMillis> {
        let &(at, _) = self.queue.first()?;
        Some(self.last_bundle_at.map_or(at, |last| at.max(last.plus(window_ms))))
    }
}
