//! Limits on removals: status annotations that would go because upstream has nothing to say. A hub
//! Connector without one is offline at every edge.
//!
//! An upstream in which many Connectors vanish at once has more likely lost its objects than its
//! tenants. So what would be removed is counted from the moment it goes missing; the grace period of
//! each lets the others be counted first.
//!
//! Two breakers must let a removal go: that of its upstream, and that of the fleet, because a mistake
//! that takes every connector of sixty small projects is within the limits of each. They count what can
//! be harmed: hub Connectors that have an annotation, or lost it within the window.
//!
//! | wrong input | effect | bound |
//! |---|---|---|
//! | an upstream's list lacks most of its Connectors | none | [`BreakerLimit::share`] of those that have an annotation, dead ones left out |
//! | an upstream of less than `share_from` shows none of them, or an older state | none, also after a restart | [`BreakerLimit::guards_all`]: nobody saw one of them deleted |
//! | every small upstream does so | none | the breaker of the fleet |
//! | an upstream's watches are lost while its removals are held | none of its own; those of others wait for the window at most | its own breaker stays tripped, its entries of the fleet's expire |
//! | a person allows a namespace by mistake | those of its Connectors that have nothing to say upstream | the live read before each |
//! | all of this within the limits | ten a minute | the queue of removals |

use std::collections::BTreeSet;

use crate::circuit_breaker::{BreakerLimit, BreakerState, CircuitBreaker};
use crate::clusters::Place;
use crate::context::Context;
use crate::contract::hold_reason::HoldReason;
use crate::contract::note::NoteKind;
use crate::contract::settings::MirrorSettings;
use crate::data::ids::{ClusterId, ClusterName, Kind};
use crate::data::interner::Sym;
use crate::data::map::Map;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::machine::Machine;
use crate::status::digest::Digest;
use crate::timers::Due;

/// What was removed within this time counts with what would be.
const WINDOW_MS: u64 = 600_000;
/// How long the holds of one cause are counted before they are reported.
const COUNT_MS: u64 = 1_000;

/// Whether the annotation of a hub Connector is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// `is_seen`: a watch showed that upstream has nothing to say any more. It is not only that a list
    /// lacks it.
    Wanted { is_seen: bool },
    /// A person agreed to it.
    Allowed,
    /// It is to be absent, and it is.
    Done,
    /// It stays.
    No,
    /// What upstream says is not known.
    Unknown,
}

/// The removals and holds of one upstream cluster.
#[derive(Default)]
pub(crate) struct UpstreamRemovals {
    breaker: CircuitBreaker<Place>,
    /// Those that would go, and that a person agreed to.
    allowed: BTreeSet<Place>,
    /// How many hub Connectors that name it have an annotation.
    annotated: u64,
    /// How many hub Connectors are held for each reason.
    holds: [u64; HoldReason::ALL.len()],
    /// How many there were when that was last reported.
    reported: [u64; HoldReason::ALL.len()],
}

impl UpstreamRemovals {
    /// Whether it remembers nothing. The end of a hold that was reported is still to be reported.
    fn is_unused(&self) -> bool {
        let counts = self.holds.iter().chain(&self.reported);
        self.breaker.is_idle()
            && self.breaker.state().reset_at.is_none()
            && self.allowed.is_empty()
            && self.annotated == 0
            && counts.copied().all(|count| count == 0)
    }
}

/// The removals of all upstreams.
#[derive(Default)]
pub(crate) struct Removals {
    by_upstream: Map<Sym, UpstreamRemovals>,
    /// The removals of all upstreams, live or not.
    fleet: CircuitBreaker<Place>,
    /// How many hub Connectors that name an upstream have an annotation.
    annotated: u64,
    /// Those that would go, and that a person agreed to.
    allowed: u64,
}

impl HoldsNames for UpstreamRemovals {
    fn mark(&self, used: &mut UsedNames) {
        let Self { breaker, allowed, annotated: _, holds: _, reported: _ } = self;
        breaker.mark(used);
        allowed.mark(used);
    }
}

impl HoldsNames for Removals {
    fn mark(&self, used: &mut UsedNames) {
        let Self { by_upstream, fleet, annotated: _, allowed: _ } = self;
        by_upstream.mark(used);
        fleet.mark(used);
    }
}

fn limit(settings: &MirrorSettings) -> BreakerLimit {
    let share = BreakerLimit::of_share(settings.max_share, settings.share_from.into());
    BreakerLimit { window_ms: WINDOW_MS, guards_all: true, ..share }
}

impl Removals {
    /// Counts a hub Connector whose annotation is to be removed, or is no longer.
    pub(super) fn track(&mut self, ctx: &mut Context, upstream: Sym, at: Place, removal: Removal) {
        let Some(removals) = self.by_upstream.get_mut(&upstream) else { return };
        let UpstreamRemovals { breaker, allowed, .. } = removals;

        let was_allowed = match removal {
            Removal::Allowed => !allowed.insert(at),
            // It is decided again once more is known.
            Removal::Unknown => allowed.contains(&at),
            _ => allowed.remove(&at),
        };
        let is_allowed = allowed.contains(&at);
        self.allowed += u64::from(is_allowed);
        self.allowed -= u64::from(was_allowed);

        let (is_upstreams_changed, is_fleets_changed) = match removal {
            Removal::Wanted { is_seen } => {
                (breaker.want(at, is_seen), self.fleet.want(at, is_seen))
            }
            // Whoever did it: a standby counts what its leader removes.
            Removal::Done => (breaker.expire(&at, ctx.now), self.fleet.expire(&at, ctx.now)),
            Removal::Allowed | Removal::No => (breaker.unwant(&at), self.fleet.unwant(&at)),
            // The breaker of the upstream waits for its watches. The fleet must not wait with it.
            Removal::Unknown => (false, self.fleet.expire(&at, ctx.now)),
        };
        let is_population_changed = is_allowed != was_allowed;
        if is_upstreams_changed || is_population_changed || breaker.state().is_tripped {
            ctx.timers.no_later(Due::Removals(upstream), ctx.now);
        }
        if is_fleets_changed || is_population_changed {
            ctx.timers.no_later(Due::FleetRemovals, ctx.now);
        }
    }

    /// Counts a hub Connector whose annotation came or went, or that names another upstream: the
    /// upstream that it named with an annotation, and the one that it names with one now.
    pub(super) fn count_annotated(
        &mut self,
        ctx: &mut Context,
        before: Option<Sym>,
        now: Option<Sym>,
    ) {
        if before == now {
            return;
        }
        if let Some(upstream) = before {
            self.annotated -= 1;
            self.by_upstream.entry(upstream).or_default().annotated -= 1;
        }
        if let Some(upstream) = now {
            self.annotated += 1;
            self.by_upstream.entry(upstream).or_default().annotated += 1;
        }
        for upstream in [before, now].into_iter().flatten() {
            self.population_changed(ctx, upstream);
            self.drop_unused(upstream);
        }
    }

    fn population_changed(&self, ctx: &mut Context, upstream: Sym) {
        if self.by_upstream.get(&upstream).is_some_and(|removals| !removals.breaker.is_idle()) {
            ctx.timers.no_later(Due::Removals(upstream), ctx.now);
        }
        if !self.fleet.is_idle() {
            ctx.timers.no_later(Due::FleetRemovals, ctx.now);
        }
    }

    /// A hub Connector is gone, or names another upstream: the platform may have cleaned up after what a
    /// breaker holds.
    pub(super) fn forget(
        &mut self,
        ctx: &mut Context,
        upstream: Sym,
        at: Place,
        held: Option<HoldReason>,
    ) {
        self.count_hold(ctx, upstream, held, None);
        self.population_changed(ctx, upstream);
        self.fleet.forget(&at);
        if let Some(removals) = self.by_upstream.get_mut(&upstream) {
            removals.breaker.forget(&at);
            self.allowed -= u64::from(removals.allowed.remove(&at));
        }
        self.drop_unused(upstream);
    }

    /// The upstream is no longer configured; another one may take its name.
    pub(crate) fn forget_upstream(&mut self, ctx: &mut Context, upstream: Sym) {
        ctx.timers.clear(Due::Removals(upstream));
        if let Some(removals) = self.by_upstream.get_mut(&upstream) {
            removals.breaker = CircuitBreaker::default();
            self.allowed -= removals.allowed.len() as u64;
            removals.allowed.clear();
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

    /// What an upstream's removals must pass: its own breaker, and that of the fleet.
    pub(super) fn breaker(&self, upstream: Sym) -> BreakerState {
        let of_upstream = self.by_upstream.get(&upstream).map(|removals| removals.breaker.state());
        of_upstream.unwrap_or_default().and(self.fleet.state())
    }

    /// The absence of an upstream's objects is evidence again.
    pub(crate) fn evidence_is_back(&self, ctx: &mut Context, upstream: Sym) {
        if self.breaker(upstream).is_tripped {
            ctx.timers.no_later(Due::Removals(upstream), ctx.now);
        }
    }

    fn wanted_of(&self, upstream: Sym) -> Vec<Place> {
        let removals = self.by_upstream.get(&upstream).into_iter();
        removals.flat_map(|removals| removals.breaker.wanted()).copied().collect()
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
    /// All of one moment is counted that decides whether an upstream's removals are too many.
    pub(crate) fn evaluate_removals(&mut self, upstream: Sym) {
        let now = self.ctx.now;
        let limit = limit(&self.ctx.settings.mirror);
        let may_reset = self.is_absence_current(upstream);
        let Some(removals) = self.removals.by_upstream.get(&upstream) else { return };
        let lost = self.lost_annotations(&removals.breaker);
        let population = (removals.annotated + lost).saturating_sub(removals.allowed.len() as u64);

        let Some(removals) = self.removals.by_upstream.get_mut(&upstream) else { return };
        let change = removals.breaker.update(population, limit, may_reset, now);
        if let Some(at) = removals.breaker.next_expiry(limit) {
            self.ctx.timers.no_later(Due::Removals(upstream), at);
        }
        if change.is_some() {
            let wanted = self.removals.wanted_of(upstream);
            self.evaluate_hub_connectors(wanted);
        }
        self.removals.drop_unused(upstream);
    }

    /// The same for the removals of all upstreams. It waits for no upstream that is not live.
    pub(crate) fn evaluate_fleet_removals(&mut self) {
        let now = self.ctx.now;
        let limit = limit(&self.ctx.settings.mirror);
        let lost = self.lost_annotations(&self.removals.fleet);
        let Removals { fleet, annotated, allowed, .. } = &mut self.removals;
        let population = (*annotated + lost).saturating_sub(*allowed);

        let change = fleet.update(population, limit, true, now);
        if let Some(at) = fleet.next_expiry(limit) {
            self.ctx.timers.no_later(Due::FleetRemovals, at);
        }
        if change.is_some() {
            let wanted: Vec<_> = fleet.wanted().copied().collect();
            self.evaluate_hub_connectors(wanted);
        }
    }

    /// How many of a breaker's hub Connectors have no annotation any more. One that never had one is
    /// not part of the population.
    fn lost_annotations(&self, breaker: &CircuitBreaker<Place>) -> u64 {
        let is_lost = |at: &&Place| {
            let hub = self.hubs.get(&at.cluster);
            let connector = hub.and_then(|hub| hub.connectors.get(&at.key));
            connector.is_some_and(|connector| connector.digest == Digest::ABSENT)
        };
        breaker.entries().filter(is_lost).count() as u64
    }

    /// A watch that is evidence of an upstream's removals was lost.
    pub(crate) fn removal_evidence_lost(&mut self, id: ClusterId, kind: Kind) {
        if matches!(kind, Kind::Connector | Kind::Namespace)
            && let Some(sym) = self.cluster(id).map(|cluster| cluster.sym)
        {
            let wanted = self.removals.wanted_of(sym);
            self.evaluate_hub_connectors(wanted);
        }
    }

    /// A person agreed to the removals in a hub namespace, or no longer.
    pub(crate) fn evaluate_removals_in(&mut self, hub: ClusterId, ns: Sym) {
        let removals = self.removals.by_upstream.values();
        let would_go = removals.flat_map(|r| r.breaker.wanted().chain(&r.allowed)).copied();
        let mut places: Vec<_> =
            would_go.filter(|at| at.cluster == hub && at.key.ns == ns).collect();
        places.extend(self.hub_connectors_held_in(hub, ns));
        places.sort_unstable();
        places.dedup();
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
