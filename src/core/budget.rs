//! How many orphans may go: so many a minute, and none of an upstream cluster of which too many are.
//!
//! A cluster whose routes are orphans by the dozen has more likely lost its Gateways than its
//! tenants. So what a moment brings is counted first ([`Due::Share`]), and only then is anything
//! deleted ([`Due::Deletes`]).

use std::collections::{BTreeSet, VecDeque};

use super::action::{AnomalyKind, Noted};
use super::ids::{ClusterId, Key, Kind, Sym};
use super::machine::Machine;
use super::route::Verdict;
use super::settings::OrphanMode;
use super::time::UnixMillis;
use super::timers::Due;

const MINUTE_MS: u64 = 60_000;

/// A route's place in the queue: who waits longest comes first.
type Turn = (UnixMillis, ClusterId, Key);

/// The deletes of the last minute, and the routes that wait for theirs.
#[derive(Default)]
pub(crate) struct Budget {
    /// How many routes have each verdict, by [`Verdict::index`].
    pub(super) counts: [u64; Verdict::COUNT],
    /// When each delete of the last minute was decided.
    decided: VecDeque<UnixMillis>,
    /// Not looked at yet.
    ready: BTreeSet<Turn>,
    /// Found no room. All of them were there before all that are ready.
    waiting: BTreeSet<Turn>,
}

impl Budget {
    pub(super) fn queue(&mut self, since: UnixMillis, id: ClusterId, key: Key) {
        self.ready.insert((since, id, key));
    }

    pub(super) fn forget(&mut self, since: Option<UnixMillis>, id: ClusterId, key: Key) {
        if let Some(since) = since {
            self.ready.remove(&(since, id, key));
            self.waiting.remove(&(since, id, key));
        }
    }

    /// It waits because there is no room.
    pub(super) fn is_full_for(&self, since: UnixMillis, id: ClusterId, key: Key) -> bool {
        self.waiting.contains(&(since, id, key))
    }

    fn next(&mut self) -> Option<Turn> {
        self.waiting.pop_first().or_else(|| self.ready.pop_first())
    }
}

/// The orphans among the routes of one upstream cluster.
#[derive(Default)]
pub(crate) struct Share {
    /// Routes that name it.
    pub(super) routes: u64,
    /// Those of them none of whose parents exists, of whatever age.
    pub(super) orphans: u64,
    /// There are too many of them: none is deleted.
    pub(super) held: bool,
    /// When that was last over; they settle anew from then on.
    pub(super) released_at: UnixMillis,
    /// The cluster went back to an older state: its Gateways may be lost, not deleted.
    pub(super) went_back: bool,
}

impl Share {
    /// Another cluster may come in its place.
    pub(super) fn forget_state(&mut self) {
        self.went_back = false;
    }
}

impl Machine {
    /// A route came, went, became an orphan or is none any longer.
    pub(super) fn share_changed(&mut self, sym: Sym) {
        let share = self.upstreams.get(&sym).map(|u| &u.share);
        if share.is_some_and(|share| share.held || share.orphans > 0) {
            self.desk.timers.no_later(Due::Share(sym), self.desk.now);
        }
    }

    /// Everything of this moment is counted: are there too many orphans?
    pub(crate) fn look_at_share(&mut self, sym: Sym) {
        let settings = &self.desk.settings.orphans;
        let Some(upstream) = self.upstreams.get(&sym) else { return };
        let (routes, orphans) = (upstream.share.routes, upstream.share.orphans);
        let held = routes > u64::from(settings.share_from)
            && settings.max_share.is_exceeded(orphans, routes);
        // What can't be seen is not over.
        if held == upstream.share.held || (!held && !self.sees_routes_of(upstream.id)) {
            return;
        }
        let cluster = self.desk.names.text(sym).into();
        if held && self.desk.settings.orphans.mode == OrphanMode::Delete {
            let detail = format!(
                "{orphans} of its {routes} routes at the hub are orphans, more than {}: none of \
                 them is deleted until there are fewer, or orphans.maxShare is raised",
                settings.max_share
            );
            self.desk.anomaly(AnomalyKind::TooManyOrphans, &cluster, None, detail);
        }
        self.desk.note(Noted::DeletesHeld { cluster, held, orphans, routes });
        let now = self.desk.now;
        if let Some(upstream) = self.upstreams.get_mut(&sym) {
            upstream.share.held = held;
            if !held {
                upstream.share.released_at = now;
            }
        }
        self.evaluate_routes_naming(sym);
    }

    fn sees_routes_of(&self, upstream: Option<ClusterId>) -> bool {
        let Some(cluster) = upstream.and_then(|id| self.cluster(id)) else { return true };
        let fresh_until = cluster.heard_at().plus(self.desk.settings.orphans.fresh_ms);
        let mut hubs = self.hubs.keys().filter_map(|id| self.cluster(*id));
        cluster.is_live(Kind::Gateway)
            && cluster.is_live(Kind::Namespace)
            && self.desk.now <= fresh_until
            && hubs.all(|hub| hub.is_live(Kind::HttpRoute))
    }

    /// The cluster's versions are lower than they were: it was restored from an older state.
    pub(crate) fn cluster_went_back(&mut self, id: ClusterId) {
        let Some((sym, name)) = self.cluster(id).map(|c| (c.sym, c.name.clone())) else { return };
        let Some(upstream) = self.upstreams.get_mut(&sym) else { return };
        if std::mem::replace(&mut upstream.share.went_back, true) {
            return;
        }
        let detail = "its resourceVersions are lower than they were, as after a restore from an \
                      older state: no orphan of it is deleted until throughline is started anew"
            .to_owned();
        self.desk.anomaly(AnomalyKind::WentBack, &name, None, detail);
        self.evaluate_routes_naming(sym);
    }

    /// Deletes as many of those that wait as there is room for.
    pub(crate) fn spend_budget(&mut self) {
        let now = self.desk.now;
        let most = usize::try_from(self.desk.settings.orphans.max_per_minute).unwrap_or(usize::MAX);
        while self.budget.decided.front().is_some_and(|at| at.plus(MINUTE_MS) <= now) {
            self.budget.decided.pop_front();
        }
        while (self.budget.decided.len() < most || !self.may_delete())
            && let Some((_, id, key)) = self.budget.next()
        {
            let Some(route) = self.route_mut(id, key) else { continue };
            route.turn = None;
            let is_free = route.flight.is_free(now);
            let route = self.hubs.get(&id).and_then(|h| h.routes.get(&key));
            // What it stood on when it was queued may be out of sight by now.
            let stands = route.is_some_and(|r| self.judge(id, key, r).0 == Verdict::Orphan);
            if stands && is_free && self.may_delete() {
                self.budget.decided.push_back(now);
                self.delete_route(id, key);
            }
            self.evaluate_route(id, key);
        }
        for turn in std::mem::take(&mut self.budget.ready) {
            self.budget.waiting.insert(turn);
            self.evaluate_route(turn.1, turn.2);
        }
        if !self.budget.waiting.is_empty()
            && let Some(first) = self.budget.decided.front()
        {
            self.desk.timers.no_later(Due::Deletes, first.plus(MINUTE_MS));
        }
    }

    /// Nothing is deleted any longer: nothing waits for its turn.
    pub(crate) fn stop_deleting(&mut self) {
        if !self.budget.ready.is_empty() || !self.budget.waiting.is_empty() {
            self.desk.timers.no_later(Due::Deletes, self.desk.now);
        }
    }
}
