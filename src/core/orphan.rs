//! Orphaned routes: a downstream HTTPRoute none of whose parents exists upstream any longer.
//!
//! "Does not exist" is a strong claim. Every step of [`Machine::judge`] that can't be proved keeps
//! the route, and says why. How many of those that are orphans may go is `budget`'s.

use super::action::{AbsentGateways, AnomalyKind, Noted, Precondition, Verb};
use super::desk::{Aim, Target};
use super::event::Outcome;
use super::flight::Landed;
use super::ids::{ActionId, ClusterId, Key, Kind, ResourceVersion, Uid};
use super::keep::{Candidate, Evidence, Keep, OrphanCounts};
use super::machine::Machine;
use super::mirror::Identity;
use super::route::{Route, Verdict};
use super::settings::OrphanMode;
use super::time::UnixMillis;
use super::timers::Due;

/// The rule's answer, and when it may be another if nothing happens.
type Judged = (Verdict, Option<UnixMillis>);

const fn kept(keep: Keep) -> Judged {
    (Verdict::Kept(keep), None)
}

impl Machine {
    /// The rule and all its evidence.
    pub(super) fn judge(&self, id: ClusterId, key: Key, route: &Route) -> Judged {
        let parents = match &route.parents {
            Ok(parents) => parents,
            Err(keep) => return kept(*keep),
        };
        let now = self.desk.now;
        let settings = &self.desk.settings.orphans;
        let hub = self.cluster(id);
        let Some(upstream) = self.upstreams.get(&parents.cluster) else {
            return kept(Keep::ClusterUnknown);
        };
        let Some(cluster) = upstream.id.and_then(|id| self.cluster(id)) else {
            return kept(Keep::ClusterUnknown);
        };
        if upstream.share.went_back {
            return kept(Keep::WentBack);
        }
        let listed = hub.is_some_and(|c| c.is_live(Kind::HttpRoute))
            && cluster.is_live(Kind::Gateway)
            && cluster.is_live(Kind::Namespace);
        if !listed {
            return kept(Keep::ListsIncomplete);
        }
        if now > cluster.heard_at().plus(settings.fresh_ms) {
            return kept(Keep::Stale);
        }
        let in_place = hub.and_then(|c| c.is_replica_namespace(key.ns)) == Some(true)
            && cluster.is_source_namespace(parents.ns) == Some(true)
            && self.identity(cluster, key.ns, parents.ns) == Identity::Agrees;
        if !in_place {
            return kept(Keep::NamespaceUnproved);
        }
        let ns = parents.ns;
        if parents.names.iter().any(|&name| upstream.gateways.contains_key(&Key { ns, name })) {
            return kept(Keep::ParentExists);
        }
        let Some(created_at) = route.created_at else { return kept(Keep::Anonymous) };
        if route.uid == Uid::Absent || route.rv == ResourceVersion::Absent {
            return kept(Keep::Anonymous);
        }
        let old_at = created_at.plus(settings.min_age_ms);
        if now < old_at {
            return (Verdict::Kept(Keep::Young), Some(old_at));
        }
        // What was not watched was not seen to be an orphan without a break.
        let since = [
            cluster.live_since(Kind::Gateway),
            cluster.live_since(Kind::Namespace),
            upstream.share.released_at,
        ];
        let since = since.into_iter().fold(route.orphan_since.unwrap_or(now), UnixMillis::max);
        let settled_at = since.plus(settings.settle_ms);
        if now < settled_at {
            return (Verdict::Kept(Keep::Settling), Some(settled_at));
        }
        if upstream.share.held {
            return kept(Keep::ShareExceeded);
        }
        (Verdict::Orphan, None)
    }

    pub(crate) fn evaluate_route(&mut self, id: ClusterId, key: Key) {
        let now = self.desk.now;
        let due = Due::Route(id, key);
        self.desk.timers.clear(due);
        let Some(route) = self.hubs.get(&id).and_then(|h| h.routes.get(&key)) else { return };
        let (mut verdict, mut again_at) = self.judge(id, key, route);
        let absent = verdict.is_absent();
        let was_absent = route.orphan_since.is_some();
        if absent && !was_absent {
            if let Some(route) = self.route_mut(id, key) {
                route.orphan_since = Some(now);
            }
            let route = self.hubs.get(&id).and_then(|h| h.routes.get(&key));
            if let Some(route) = route {
                (verdict, again_at) = self.judge(id, key, route);
            }
        }
        let Some(route) = self.route_mut(id, key) else { return };
        if !absent {
            route.orphan_since = None;
        }
        if let Some(at) = again_at {
            self.desk.timers.no_later(due, at);
        }
        let verdict = self.take_turn(id, key, verdict);
        self.count_route(id, key, verdict);
        let Some(route) = self.route_mut(id, key) else { return };
        // Told: orphans, and what was one or would be but for its age. Not: every route there is.
        let tell = route.told != Some(verdict) && (absent || was_absent);
        if tell || !absent {
            route.told = absent.then_some(verdict);
        }
        if tell && let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) {
            let route = self.desk.names.object_key(key);
            self.desk.note(Noted::Orphan { cluster, route, kept: verdict.keep() });
        }
        let Some(hub) = self.hubs.get_mut(&id) else { return };
        if matches!(verdict, Verdict::Orphan | Verdict::Kept(Keep::Budget)) {
            hub.orphans.insert(key);
        } else {
            hub.orphans.remove(&key);
        }
    }

    /// An orphan that may be deleted waits for its turn; all others don't. Gives what is thought of
    /// it now.
    fn take_turn(&mut self, id: ClusterId, key: Key, verdict: Verdict) -> Verdict {
        let now = self.desk.now;
        let wanted = verdict == Verdict::Orphan && self.may_delete();
        let Some(route) = self.hubs.get_mut(&id).and_then(|h| h.routes.get_mut(&key)) else {
            return verdict;
        };
        if !wanted || !route.flight.is_free(now) {
            self.budget.forget(route.turn.take(), id, key);
            if wanted && route.flight.in_flight.is_none() {
                self.desk.timers.no_later(Due::Route(id, key), route.flight.not_before);
            }
            return verdict;
        }
        match route.turn {
            None => {
                route.turn = Some(now);
                self.budget.queue(now, id, key);
                self.desk.timers.no_later(Due::Deletes, now);
                verdict
            }
            Some(turn) if self.budget.is_full_for(turn, id, key) => Verdict::Kept(Keep::Budget),
            Some(_) => verdict,
        }
    }

    pub(super) fn may_delete(&self) -> bool {
        self.desk.settings.orphans.mode == OrphanMode::Delete && self.desk.leader
    }

    fn count_route(&mut self, id: ClusterId, key: Key, verdict: Verdict) {
        let Some(route) = self.hubs.get_mut(&id).and_then(|h| h.routes.get_mut(&key)) else {
            return;
        };
        let before = route.verdict.replace(verdict);
        let parents = route.parents.as_ref().ok().map(|p| p.cluster);
        if before != Some(verdict) {
            self.budget.counts[verdict.index()] += 1;
            if let Some(before) = before {
                self.budget.counts[before.index()] -= 1;
            }
        }
        let Some(sym) = parents else { return };
        let Some(upstream) = self.upstreams.get_mut(&sym) else { return };
        upstream.share.orphans += u64::from(verdict.is_absent());
        upstream.share.orphans -= u64::from(before.is_some_and(Verdict::is_absent));
        self.share_changed(sym);
    }

    pub(super) fn delete_route(&mut self, id: ClusterId, key: Key) {
        let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) else { return };
        let Some(route) = self.hubs.get(&id).and_then(|h| h.routes.get(&key)) else { return };
        let Ok(parents) = &route.parents else { return };
        let names: Vec<_> = {
            let mut names: Vec<_> =
                parents.names.iter().map(|&n| self.desk.names.text(n).to_owned()).collect();
            names.sort_unstable();
            names
        };
        let upstream = self.desk.names.text(parents.cluster).to_owned();
        let namespace = self.desk.names.text(parents.ns).to_owned();
        // Proved to be the upstream namespace's uid: that is what it was judged by.
        let namespace_uid = self.desk.names.text(key.ns).strip_prefix("ns-").map(str::to_owned);
        let because = format!(
            "none of its parents ({}) exists in {namespace} of {upstream}, whose Gateways are \
             fully listed",
            names.join(", ")
        );
        let aim = Aim {
            target: Target::Route(id, key),
            cluster,
            kind: Kind::HttpRoute,
            object: self.desk.names.object_key(key),
            precondition: Precondition {
                uid: route.uid.text(),
                resource_version: route.rv.text(),
                absent: Some(AbsentGateways {
                    cluster: upstream.as_str().into(),
                    namespace,
                    namespace_uid,
                    names,
                }),
            },
            connectors: Vec::new(),
        };
        let action = self.desk.submit(aim, Verb::Delete, Vec::new(), because);
        if let Some(route) = self.route_mut(id, key) {
            route.flight.launch(action);
        }
    }

    pub(crate) fn route_deleted(
        &mut self,
        id: ClusterId,
        key: Key,
        action: ActionId,
        outcome: &Outcome,
    ) {
        let now = self.desk.now;
        let retry = self.desk.settings.retry;
        let Some(route) = self.route_mut(id, key) else { return };
        if route.flight.in_flight != Some(action) {
            return;
        }
        match route.flight.land(now, outcome, &retry) {
            // Its going is seen by the watch; until then it is not deleted again.
            Landed::Yes => route.flight.pause_until(now.plus(retry.outcome_timeout_ms)),
            Landed::No => {}
            Landed::Refused => {
                let error = route.flight.error.clone().unwrap_or_default();
                if let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) {
                    let detail = format!(
                        "the API server refuses the delete: {error}; it is tried again in {} s",
                        retry.refused_ms / 1000
                    );
                    self.desk.anomaly(AnomalyKind::Refused, &cluster, Some(key), detail);
                }
            }
        }
        self.evaluate_route(id, key);
    }

    /// How many routes are orphans, or can't be told not to be.
    pub fn orphan_counts(&self) -> OrphanCounts {
        let of = |verdict: Verdict| self.budget.counts[verdict.index()];
        let kept = Keep::ALL.into_iter().filter(|k| k.is_counted());
        OrphanCounts {
            orphans: of(Verdict::Orphan),
            kept: kept.map(|keep| (keep, of(Verdict::Kept(keep)))).collect(),
        }
    }

    /// The routes that are orphans, or can't be told not to be, by hub, namespace and name. A look
    /// at this moment; costs O(all routes).
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (&id, hub) in &self.hubs {
            let Some(cluster) = self.cluster(id).map(|c| &c.name) else { continue };
            for (&key, route) in &hub.routes {
                let verdict = match (self.judge(id, key, route).0, route.verdict) {
                    (Verdict::Orphan, Some(waiting @ Verdict::Kept(Keep::Budget))) => waiting,
                    (judged, _) => judged,
                };
                if verdict.keep().is_some_and(|keep| !keep.is_counted()) {
                    continue;
                }
                candidates.push(Candidate {
                    cluster: cluster.clone(),
                    route: self.desk.names.object_key(key),
                    created_at: route.created_at,
                    kept: verdict.keep(),
                    kept_because: verdict.keep().map(Keep::text),
                    evidence: self.evidence(key, route),
                    in_flight: route.flight.in_flight,
                    error: route.flight.error.as_deref().map(str::to_owned),
                });
            }
        }
        candidates.sort_unstable_by(|a, b| (&a.cluster, &a.route).cmp(&(&b.cluster, &b.route)));
        candidates
    }

    fn evidence(&self, key: Key, route: &Route) -> Option<Evidence> {
        let parents = route.parents.as_ref().ok()?;
        let text = |sym| self.desk.names.text(sym).to_owned();
        let upstream = self.upstreams.get(&parents.cluster);
        let cluster = upstream.and_then(|u| u.id).and_then(|id| self.cluster(id));
        let listed = cluster.filter(|c| c.is_live(Kind::Gateway));
        let exists = |name| {
            let gateway = Key { ns: parents.ns, name };
            Some(listed.and(upstream)?.gateways.contains_key(&gateway))
        };
        let mut names: Vec<_> =
            parents.names.iter().map(|&name| (text(name), exists(name))).collect();
        names.sort_unstable();
        Some(Evidence {
            upstream: text(parents.cluster),
            upstream_namespace: text(parents.ns),
            parents: names,
            namespace_proved: cluster
                .is_some_and(|c| self.identity(c, key.ns, parents.ns) == Identity::Agrees),
            heard_at: listed.map(super::cluster::Cluster::heard_at),
            orphan_since: route.orphan_since,
        })
    }
}
