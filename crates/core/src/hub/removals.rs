//! Limits on removals: status annotations that would go because upstream has nothing to say. A hub
//! Connector without one is offline at every edge.
//!
//! An upstream in which many Connectors vanish at once has more likely lost its objects than its
//! tenants. So what would be removed is counted from the moment it goes missing; the grace period of
//! each lets the others be counted first.

use std::collections::{BTreeMap, VecDeque};

use crate::clusters::Place;
use crate::context::Context;
use crate::contract::hold_reason::HoldReason;
use crate::contract::note::NoteKind;
use crate::contract::settings::MirrorSettings;
use crate::data::ids::{ClusterId, ClusterName, Kind};
use crate::data::interner::Sym;
use crate::data::map::Map;
use crate::data::optional_millis::OptionalMillis;
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::machine::Machine;
use crate::timers::Due;

/// The share counts what was removed within this time.
const SHARE_WINDOW_MS: u64 = 600_000;
const MINUTE_MS: u64 = 60_000;
/// How long the holds of one cause are counted before they are reported.
const COUNT_MS: u64 = 1_000;

/// The removal of one hub Connector's annotation. It may be wanted again within the share's time.
#[derive(Clone, Copy, Debug, Default)]
struct Removal {
    is_wanted: bool,
    done_at: OptionalMillis,
}

/// Whether the annotation of a hub Connector is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Yes,
    No,
    /// It is to be absent, and it is.
    Done,
}

/// The removals and holds of one upstream cluster.
#[derive(Default)]
pub(crate) struct UpstreamRemovals {
    removals: BTreeMap<Place, Removal>,
    /// Whether they are too many, so that none is carried out.
    is_held: bool,
    /// When that last ended. The grace period of each starts again then.
    released_at: UnixMillis,
    /// How many hub Connectors are held for each reason.
    holds: [u64; HoldReason::ALL.len()],
    /// How many there were when that was last reported.
    reported: [u64; HoldReason::ALL.len()],
}

impl UpstreamRemovals {
    fn is_exceeded(&self, settings: &MirrorSettings, named: u64) -> bool {
        named >= u64::from(settings.share_from)
            && settings.max_share.is_exceeded(self.removals.len() as u64, named)
    }

    /// Whether it remembers nothing. The end of a hold that was reported is still to be reported.
    fn is_unused(&self) -> bool {
        let counts = self.holds.iter().chain(&self.reported);
        self.removals.is_empty()
            && !self.is_held
            && self.released_at == UnixMillis(0)
            && counts.copied().all(|count| count == 0)
    }

    fn wanted(&self) -> Vec<Place> {
        let wanted = self.removals.iter().filter(|(_, removal)| removal.is_wanted);
        wanted.map(|(place, _)| *place).collect()
    }
}

/// The removals of all upstreams.
#[derive(Default)]
pub(crate) struct Removals {
    by_upstream: Map<Sym, UpstreamRemovals>,
    /// When each removal of the last minute was decided.
    decided: VecDeque<UnixMillis>,
}

impl HoldsNames for Removal {
    fn mark(&self, _: &mut UsedNames) {
        let Self { is_wanted: _, done_at: _ } = self;
    }
}

impl HoldsNames for UpstreamRemovals {
    fn mark(&self, used: &mut UsedNames) {
        let Self { removals, is_held: _, released_at: _, holds: _, reported: _ } = self;
        removals.mark(used);
    }
}

impl HoldsNames for Removals {
    fn mark(&self, used: &mut UsedNames) {
        let Self { by_upstream, decided: _ } = self;
        by_upstream.mark(used);
    }
}

impl Removals {
    /// Counts a hub Connector whose annotation is to be removed, or is no longer, or is gone. `named`
    /// hub Connectors name the upstream; `is_current`: whether its absent objects are seen to be absent.
    pub(super) fn track(
        &mut self,
        ctx: &mut Context,
        upstream: Sym,
        at: Place,
        named: u64,
        wanted: Wanted,
        is_current: bool,
    ) {
        if wanted != Wanted::Yes && !self.by_upstream.contains_key(&upstream) {
            return;
        }
        let removals = self.by_upstream.entry(upstream).or_default();
        if wanted == Wanted::Yes {
            removals.removals.entry(at).or_default().is_wanted = true;
        } else if let Some(removal) = removals.removals.get_mut(&at) {
            let was_wanted = std::mem::take(&mut removal.is_wanted);
            if was_wanted && wanted == Wanted::Done {
                // Whoever did it: a standby counts what its leader removes.
                removal.done_at = ctx.now.into();
                ctx.timers.no_later(Due::Removals(upstream), ctx.now.plus(SHARE_WINDOW_MS));
            } else if removal.done_at.get().is_none() {
                removals.removals.remove(&at);
            }
        }
        let is_exceeded = removals.is_exceeded(&ctx.settings.mirror, named);
        // Removals stay held while the evidence is out of sight.
        let may_end = removals.is_held && is_current;
        if is_exceeded != removals.is_held && (is_exceeded || may_end) {
            // None may slip through before all of this moment are evaluated.
            removals.is_held = true;
            ctx.timers.no_later(Due::Removals(upstream), ctx.now);
        }
    }

    /// A hub Connector is gone, or names another upstream.
    pub(super) fn forget(
        &mut self,
        ctx: &mut Context,
        upstream: Sym,
        at: Place,
        held: Option<HoldReason>,
    ) {
        self.count_hold(ctx, upstream, held, None);
        let Some(removals) = self.by_upstream.get_mut(&upstream) else { return };
        removals.removals.remove(&at);
        if removals.is_held {
            ctx.timers.no_later(Due::Removals(upstream), ctx.now);
        }
        self.drop_unused(upstream);
    }

    /// The upstream is no longer configured; another one may take its name.
    pub(crate) fn forget_upstream(&mut self, ctx: &mut Context, upstream: Sym) {
        ctx.timers.clear(Due::Removals(upstream));
        if let Some(removals) = self.by_upstream.get_mut(&upstream) {
            removals.removals.clear();
            removals.is_held = false;
            removals.released_at = UnixMillis(0);
        }
        self.drop_unused(upstream);
    }

    fn drop_unused(&mut self, upstream: Sym) {
        if self.by_upstream.get(&upstream).is_some_and(UpstreamRemovals::is_unused) {
            self.by_upstream.remove(&upstream);
        }
    }

    /// How many upstreams have something to remember.
    pub(crate) fn len(&self) -> usize {
        self.by_upstream.len()
    }

    pub(super) fn is_held(&self, upstream: Sym) -> bool {
        self.by_upstream.get(&upstream).is_some_and(|removals| removals.is_held)
    }

    pub(super) fn released_at(&self, upstream: Sym) -> UnixMillis {
        self.by_upstream.get(&upstream).map_or(UnixMillis(0), |removals| removals.released_at)
    }

    /// Takes one of the minute's removals. The error is when there is room for the next one.
    pub(super) fn take_turn(&mut self, now: UnixMillis, limit: u32) -> Result<(), UnixMillis> {
        while self.decided.front().is_some_and(|at| at.plus(MINUTE_MS) <= now) {
            self.decided.pop_front();
        }
        if self.decided.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
            let first = self.decided.front().copied().unwrap_or(now);
            return Err(first.plus(MINUTE_MS));
        }
        self.decided.push_back(now);
        Ok(())
    }

    /// Counts a hub Connector under its new reason, and has a reason that begins or ends reported.
    pub(super) fn count_hold(
        &mut self,
        ctx: &mut Context,
        upstream: Sym,
        old: Option<HoldReason>,
        new: Option<HoldReason>,
    ) {
        if old == new {
            return;
        }
        let removals = self.by_upstream.entry(upstream).or_default();
        if let Some(old) = old {
            removals.holds[old as usize] -= 1;
        }
        if let Some(new) = new {
            removals.holds[new as usize] += 1;
        }
        let differs = |reason: HoldReason| {
            let index = reason as usize;
            (removals.holds[index] == 0) != (removals.reported[index] == 0)
        };
        if HoldReason::ALL.into_iter().any(differs) {
            ctx.timers.no_later(Due::Holds(upstream), ctx.now.plus(COUNT_MS));
        }
    }
}

impl Machine {
    /// Something changed that decides whether an upstream's removals are too many: every one of them
    /// is evaluated.
    pub(crate) fn evaluate_removals(&mut self, upstream: Sym) {
        let now = self.ctx.now;
        let named = self.upstreams.get(&upstream).map_or(0, |upstream| upstream.named);
        let is_current = self.is_absence_current(upstream);
        let Some(removals) = self.removals.by_upstream.get_mut(&upstream) else { return };
        removals.removals.retain(|_, removal| {
            let is_over = |at: UnixMillis| at.plus(SHARE_WINDOW_MS) <= now;
            if removal.done_at.get().is_some_and(is_over) {
                removal.done_at = OptionalMillis::default();
            }
            removal.is_wanted || removal.done_at.get().is_some()
        });
        let oldest = removals.removals.values().filter_map(|removal| removal.done_at.get()).min();
        if let Some(oldest) = oldest {
            self.ctx.timers.no_later(Due::Removals(upstream), oldest.plus(SHARE_WINDOW_MS));
        }
        let is_exceeded = removals.is_exceeded(&self.ctx.settings.mirror, named);
        // Removals stay held while the evidence is out of sight.
        if removals.is_held && !is_exceeded && is_current {
            removals.is_held = false;
            removals.released_at = now;
        }
        let wanted = removals.wanted();
        self.evaluate_hub_connectors(wanted);
    }

    /// A person agreed to the removals in a hub namespace, or no longer.
    pub(crate) fn evaluate_removals_in(&mut self, hub: ClusterId, ns: Sym) {
        let wanted = self.removals.by_upstream.values().flat_map(UpstreamRemovals::wanted);
        let mut places: Vec<_> = wanted.filter(|at| at.cluster == hub && at.key.ns == ns).collect();
        places.extend(self.hub_connectors_held_in(hub, ns));
        self.evaluate_hub_connectors(places);
    }

    fn is_absence_current(&self, upstream: Sym) -> bool {
        let id = self.upstreams.get(&upstream).and_then(|upstream| upstream.id);
        let Some(cluster) = id.and_then(|id| self.cluster(id)) else { return true };
        cluster.is_live(Kind::Connector) && cluster.is_live(Kind::Namespace)
    }

    /// Reports the reasons for which an upstream's annotations are held, each when it begins and when
    /// it ends.
    pub(crate) fn report_holds(&mut self, upstream: Sym) {
        let named = self.upstreams.get(&upstream).map_or(0, |upstream| upstream.named);
        let Some(removals) = self.removals.by_upstream.get_mut(&upstream) else { return };
        let cluster = ClusterName::from(self.ctx.names.text(upstream));
        let mut notes = Vec::new();
        for reason in HoldReason::ALL {
            let held = removals.holds[reason as usize];
            let reported = std::mem::replace(&mut removals.reported[reason as usize], held);
            if (held == 0) != (reported == 0) && !reason.is_turn() {
                notes.push((reason, held));
            }
        }
        self.removals.drop_unused(upstream);
        for (reason, held) in notes {
            let cluster = cluster.clone();
            self.ctx.note(NoteKind::Held { cluster, reason, held, named });
        }
    }
}
