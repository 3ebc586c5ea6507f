//! What throughline remembers of its touches: for each Gateway, or for each GatewayClass.

use crate::contention::Contention;
use crate::contract::settings::TouchSettings;
use crate::data::interner::{Key, Sym};
use crate::data::optional_millis::OptionalMillis;
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::edge::pending::{PendingChange, Subject, TouchCause};
use crate::flight::Flight;
use crate::rate_limit::{Rate, RateLimiter};
use crate::status::trigger::{Trigger, later_n, next_n};

/// What one touch covers: a Gateway, or every Gateway of a class through one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TouchTarget {
    Gateway(Key),
    Class(Sym),
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

    /// Makes it [`TouchRecord::Settled`] if nothing is open. The target waits in no queue.
    pub(super) fn settle(&mut self, now: UnixMillis) {
        if let Self::Open(state) = self
            && let Some(settled) = state.settled(now)
        {
            *self = Self::Settled(settled);
        }
    }

    /// Whether an announcement is still to be made or has no outcome yet.
    pub(super) fn is_pending(&self) -> bool {
        self.open().is_some_and(|state| {
            let is_announcing = state.flight.writing().is_some_and(|write| write.cause.is_some());
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
    /// Why it announces; `None` for a confirmation.
    pub(super) cause: Option<TouchCause>,
}

#[derive(Default)]
pub(crate) struct TouchState {
    pub(crate) flight: Flight<TriggerWrite>,
    pub(super) pending: Option<PendingChange>,
    /// The first look is done: it was decided whether the Gateway's trigger can be trusted.
    pub(super) is_adopted: bool,
    /// Its Gateway, or one of its class, appeared after the edge was listed: nobody knows for how long the
    /// extension server's cache has had the connectors.
    pub(super) appeared_later: bool,
    /// The digest that the platform's stamp stood for at the first look. It counts as announced
    /// while the Gateway carries no trigger.
    pub(super) platform_digest: Option<u64>,
    /// The latest `n` ever written or seen.
    pub(super) latest_n: u32,
    pub(super) last_touch_at: Option<UnixMillis>,
    /// Limits announcements. Confirmations keep their distance from the touch before.
    pub(super) limiter: RateLimiter,
    /// When the latest announcement was made; confirmations are counted from it.
    pub(super) announced_at: Option<UnixMillis>,
    /// What the latest announcement was about, where no stamp had shown before that the extension
    /// server's cache has it.
    pub(super) unproven: Option<Subject>,
    /// The latest announcement announced no change, or none was made yet.
    pub(super) is_unverified: bool,
    /// Of the latest announcement only the last confirmation is made.
    pub(super) is_confirmed_once: bool,
    /// One more confirmation is due, after an outage.
    pub(super) confirms_again: bool,
    /// The Gateway that carries the trigger was paused at the last evaluation.
    pub(super) is_paused: bool,
    /// The watch has shown another value of the trigger's key since the last write.
    pub(super) changed_since_write: bool,
    pub(super) contention: Contention,
    /// Connectors whose latest change waits for this target.
    pub(super) waiting: Vec<Key>,
}

impl TouchState {
    /// When it was last announced; `None` if that is not kept.
    pub(crate) fn announced_at(&self) -> Option<UnixMillis> {
        self.announced_at
    }

    /// What must be kept of it; `None` while anything is open.
    fn settled(&self, now: UnixMillis) -> Option<SettledTouch> {
        // Before the last confirmation the limiter is at rest again, unless few are configured.
        let is_settled = self.is_adopted
            && self.limiter.ready_at(Rate::UNLIMITED) <= now
            && self.pending.is_none()
            && !self.confirms_again
            && self.contention.overwrites() == 0
            && self.waiting.is_empty()
            && self.flight.is_idle();
        is_settled.then_some(SettledTouch {
            platform_digest: self.platform_digest,
            latest_n: self.latest_n,
            is_unproven: self.unproven.is_some(),
            last_touch_at: self.last_touch_at.into(),
        })
    }

    /// An announcement failed: it is still due.
    pub(super) fn announce_again(&mut self, now: UnixMillis, cause: TouchCause) {
        let subject = self.unproven.unwrap_or(Subject::Target);
        let mut pending = PendingChange::new(now, cause, subject);
        pending.is_cached = self.unproven.is_none();
        pending.only_last = self.is_confirmed_once;
        self.pending.get_or_insert(pending);
    }

    /// From the last confirmation on only a stamp on the target itself says that a cache was late.
    pub(super) fn trigger_written(&mut self, trigger: Trigger, settings: &TouchSettings) {
        let is_last = trigger.c as usize >= settings.confirm_after_ms.len();
        if is_last && self.unproven.is_some() {
            self.unproven = Some(Subject::Target);
        }
    }

    pub(super) fn take_waiting(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn take_over_n(&mut self, observed: Option<Trigger>) {
        self.latest_n = later_n(self.latest_n, observed.map_or(0, |trigger| trigger.n));
    }

    /// The number of the next touch.
    pub(super) fn next_n(&mut self, observed: Option<Trigger>) -> u32 {
        self.take_over_n(observed);
        self.latest_n = next_n(self.latest_n);
        self.latest_n
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
            Self::Settled(SettledTouch {
                platform_digest: _,
                latest_n: _,
                is_unproven: _,
                last_touch_at: _,
            }) => {}
        }
    }
}

impl HoldsNames for TriggerWrite {
    fn mark(&self, used: &mut UsedNames) {
        let Self { gateway, trigger: _, cause: _ } = self;
        gateway.mark(used);
    }
}

impl HoldsNames for TouchState {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            flight,
            pending,
            is_adopted: _,
            appeared_later: _,
            platform_digest: _,
            latest_n: _,
            last_touch_at: _,
            limiter: _,
            announced_at: _,
            unproven,
            is_unverified: _,
            is_confirmed_once: _,
            confirms_again: _,
            is_paused: _,
            changed_since_write: _,
            contention: _,
            waiting,
        } = self;
        flight.mark(used);
        waiting.mark(used);
        pending.map(|pending| pending.subject).mark(used);
        unproven.mark(used);
    }
}

impl HoldsNames for Subject {
    fn mark(&self, used: &mut UsedNames) {
        match self {
            Self::Connector(connector) => connector.mark(used),
            Self::Target | Self::Several => {}
        }
    }
}

/// What must be kept of a target that has announced and confirmed everything.
pub(crate) struct SettledTouch {
    platform_digest: Option<u64>,
    latest_n: u32,
    is_unproven: bool,
    last_touch_at: OptionalMillis,
}

impl SettledTouch {
    fn reopened(&self, observed: Option<Trigger>) -> TouchState {
        let mut state = TouchState {
            is_adopted: true,
            platform_digest: self.platform_digest,
            latest_n: self.latest_n,
            unproven: self.is_unproven.then_some(Subject::Target),
            last_touch_at: self.last_touch_at.get(),
            ..TouchState::default()
        };
        state.take_over_n(observed);
        state
    }
}
