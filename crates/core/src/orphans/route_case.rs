//! What a verdict on a route changes: its place in the queue, the counts, and in the end the delete.

use std::collections::BTreeSet;

use crate::context::{Context, WriteRequest, WriteTarget};
use crate::contract::action::{AbsentObjects, AbsentProject, Precondition, Urgency, Verb};
use crate::contract::event::Outcome;
use crate::contract::keep_reason::KeepReason;
use crate::contract::note::NoteKind;
use crate::contract::settings::OrphanMode;
use crate::data::cluster::ClusterState;
use crate::data::ids::{ActionId, ClusterId, ClusterName, Kind};
use crate::data::interner::Key;
use crate::fleet::GoneFacts;
use crate::flight::WriteResult;
use crate::machine::Machine;
use crate::orphans::budget::OrphanTotals;
use crate::orphans::judge::RouteFacts;
use crate::orphans::route::{Route, RouteVerdict};
use crate::timers::Due;
use crate::upstream::UpstreamState;
use crate::write_queue::{self, QueueKey, QueueLimit};

/// A hub HTTPRoute and everything that a verdict on it changes.
pub(super) struct RouteCase<'m> {
    id: ClusterId,
    key: Key,
    route: &'m mut Route,
    hub: &'m ClusterState,
    /// The orphans among the hub's routes.
    orphans: &'m mut BTreeSet<Key>,
    /// The upstream cluster that the route names, configured or not.
    upstream: Option<&'m mut UpstreamState>,
    upstream_cluster: Option<&'m ClusterState>,
    gone: Option<GoneFacts>,
    totals: &'m mut OrphanTotals,
    ctx: &'m mut Context,
    /// The queue of deletes has room for it.
    is_admitted: bool,
}

impl RouteCase<'_> {
    fn facts(&self) -> RouteFacts<'_> {
        RouteFacts {
            now: self.ctx.now,
            settings: &self.ctx.settings.orphans,
            names: &self.ctx.names,
            key: self.key,
            route: self.route,
            hub: self.hub,
            upstream: self.upstream_cluster.zip(self.upstream.as_deref()),
            gone: self.gone,
        }
    }

    /// Judges the route and acts on the verdict.
    fn evaluate(&mut self) {
        let due = Due::Route(self.id, self.key);
        self.ctx.timers.clear(due);
        let (verdict, changes_at) = self.facts().judge();
        if let Some(at) = changes_at {
            self.ctx.timers.no_later(due, at);
        }
        let was_absent = self.route.orphan_since.is_some();
        self.route.orphan_since = match verdict.is_absent() {
            true => self.route.orphan_since.or(Some(self.ctx.now)),
            false => None,
        };
        let may_delete = self.may_delete(verdict);
        if may_delete && self.is_admitted {
            self.delete();
        }
        let verdict = match may_delete && !self.is_admitted && !self.wait_in_queue() {
            true => RouteVerdict::Kept(KeepReason::Budget),
            false => verdict,
        };
        if !may_delete || self.is_admitted {
            let target = self.target();
            self.ctx.withdraw(target);
        }
        self.count(verdict);
        self.report(verdict, was_absent);
        if matches!(verdict, RouteVerdict::Orphan | RouteVerdict::Kept(KeepReason::Budget)) {
            self.orphans.insert(self.key);
        } else {
            self.orphans.remove(&self.key);
        }
    }

    /// Whether the route may be deleted now. If a pause forbids it, the route is judged again after it.
    fn may_delete(&mut self, verdict: RouteVerdict) -> bool {
        if verdict != RouteVerdict::Orphan || !self.ctx.may_delete_orphans() {
            return false;
        }
        let flight = &self.route.flight;
        if !flight.is_free(self.ctx.now) && !flight.is_in_flight() {
            self.ctx.timers.no_later(Due::Route(self.id, self.key), flight.not_before());
        }
        flight.is_free(self.ctx.now)
    }

    /// Puts the route into the queue. Returns whether that may have room for it in this moment.
    fn wait_in_queue(&mut self) -> bool {
        let limit = QueueLimit::at_most_per_minute(self.ctx.settings.orphans.max_per_minute);
        let due = write_queue::Due::at(self.ctx.now);
        let target = self.target();
        self.ctx.enqueue(target, QueueKey::Deletes, due, limit);
        self.ctx.has_room(QueueKey::Deletes, limit)
    }

    fn target(&self) -> WriteTarget {
        WriteTarget::Route(self.id, self.key)
    }

    fn count(&mut self, verdict: RouteVerdict) {
        let before = self.route.verdict.replace(verdict);
        self.totals.verdicts.add(verdict);
        if let Some(before) = before {
            self.totals.verdicts.remove(before);
        }
        let at = (self.id, self.key);
        let is_of_upstream = verdict.is_absent() && self.upstream_cluster.is_some();
        let is_of_deleted_project = verdict.is_absent() && self.upstream_cluster.is_none();
        if let Some(parents) = self.route.parents.gateways()
            && let Some(upstream) = &mut self.upstream
        {
            upstream.share.breaker.set_wanted(at, is_of_upstream);
            upstream.share.schedule_check(parents.cluster, self.ctx);
        }
        let is_counted = self.totals.deleted_projects.set_wanted(at, is_of_deleted_project);
        if is_counted || (self.gone.is_some() && !self.totals.deleted_projects.is_idle()) {
            self.ctx.timers.no_later(Due::GoneShare, self.ctx.now);
        }
    }

    /// Reports a verdict that changed, if the route is an orphan, or was one, or would be one but for
    /// its age and the like. Reporting every route would be noise.
    fn report(&mut self, verdict: RouteVerdict, was_absent: bool) {
        let is_absent = verdict.is_absent();
        let is_new = self.route.reported != Some(verdict);
        self.route.reported = is_absent.then_some(verdict);
        if is_new && (is_absent || was_absent) {
            self.ctx.note(NoteKind::Orphan {
                cluster: self.hub.name.clone(),
                route: self.ctx.names.object_key(self.key),
                kept: verdict.keep_reason(),
            });
        }
    }

    fn delete(&mut self) {
        let Some(parents) = self.route.parents.gateways() else {
            let detail = "a route without parents was taken for an orphan".to_owned();
            return self.ctx.impossible(&self.hub.name, detail);
        };
        let text = |sym| self.ctx.names.text(sym).to_owned();
        let mut names: Vec<_> = parents.names.iter().copied().map(text).collect();
        names.sort_unstable();
        let (upstream, namespace) = (text(parents.cluster), text(parents.ns));
        // The rule has proved that this is the uid of the upstream namespace.
        let namespace_uid = text(self.key.ns).strip_prefix("ns-").map(str::to_owned);
        let gone = self.gone.filter(|_| self.upstream_cluster.is_none());
        if let Some(gone) = gone {
            let because = format!(
                "its project {upstream} was deleted: the root, which shows every project, no longer \
                 has it"
            );
            let cluster = upstream.as_str().into();
            let project = AbsentProject { source: gone.source, cluster };
            return self.submit_delete(because, None, Some(project));
        }
        let because = format!(
            "none of its parents ({}) exists in {namespace} of {upstream}, whose Gateways are \
             fully listed",
            names.join(", ")
        );
        let absent = AbsentObjects {
            cluster: upstream.as_str().into(),
            namespace,
            namespace_uid,
            namespace_deleted: false,
            kind: Kind::Gateway,
            names,
        };
        self.submit_delete(because, Some(absent), None);
    }

    fn submit_delete(
        &mut self,
        because: String,
        absent: Option<AbsentObjects>,
        absent_project: Option<AbsentProject>,
    ) {
        let request = WriteRequest {
            target: self.target(),
            verb: Verb::Delete,
            annotations: Vec::new(),
            because,
            cluster: self.hub.name.clone(),
            kind: Kind::HttpRoute,
            object: self.ctx.names.object_key(self.key),
            precondition: Precondition {
                uid: self.route.uid.text(),
                resource_version: self.route.rv.text(),
                annotation: None,
                absent,
                absent_project,
            },
            connectors: Vec::new(),
            queue: QueueKey::Deletes,
            urgency: Urgency::Delete,
        };
        let action = self.ctx.submit(request);
        self.route.flight.started(action, ());
    }

    fn delete_finished(&mut self, action: ActionId, outcome: &Outcome) {
        let (now, retry) = (self.ctx.now, self.ctx.settings.retry);
        let flight = &mut self.route.flight;
        let Some((result, ())) = flight.finished(action, now, outcome, &retry) else { return };
        match result {
            // The watch will show that it is gone; do not delete it twice in the meantime.
            WriteResult::Written => {
                self.route.flight.pause_until(now.plus(retry.outcome_timeout_ms))
            }
            WriteResult::NotWritten | WriteResult::RefusedAgain => {}
            WriteResult::Refused => {
                let error = self.route.flight.error().cloned().unwrap_or_default();
                let next = self.ctx.next_attempt();
                self.ctx.report_refused(self.hub, self.key, Verb::Delete, &error, &next);
            }
        }
        self.evaluate();
    }
}

impl Context {
    pub(super) fn may_delete_orphans(&self) -> bool {
        self.settings.orphans.mode == OrphanMode::Delete && self.leads()
    }
}

impl Machine {
    /// Looks a route up, with everything that its rule reads and changes. `None` when the hub does
    /// not hold it.
    pub(super) fn route_case(&mut self, id: ClusterId, key: Key) -> Option<RouteCase<'_>> {
        let Self { ctx, clusters, upstreams, hubs, orphan_totals: totals, roster, .. } = self;
        let hub = hubs.get_mut(&id)?;
        let route = hub.routes.get_mut(&key)?;
        let parents = route.parents.gateways();
        let gone = parents.and_then(|parents| {
            roster.gone_facts(ctx.names.text(parents.cluster), totals.deleted_projects.state())
        });
        let upstream = parents.and_then(|parents| upstreams.get_mut(&parents.cluster));
        let upstream_cluster = upstream.as_ref().and_then(|upstream| clusters.get(upstream.id?));
        let Some(hub_cluster) = clusters.get(id) else {
            ctx.impossible(&ClusterName::from(""), format!("hub {} has no cluster", id.0));
            return None;
        };
        Some(RouteCase {
            id,
            key,
            route,
            hub: hub_cluster,
            orphans: &mut hub.orphans,
            upstream,
            upstream_cluster,
            gone,
            totals,
            ctx,
            is_admitted: false,
        })
    }

    /// Judges a route again. It may be gone: timers and namespaces outlive it.
    pub(crate) fn evaluate_route(&mut self, id: ClusterId, key: Key) {
        if let Some(mut case) = self.route_case(id, key) {
            case.evaluate();
        }
    }

    /// The queue of deletes has room for a route. The evidence may have gone out of sight while it waited.
    pub(crate) fn evaluate_admitted_route(&mut self, id: ClusterId, key: Key) {
        if let Some(mut case) = self.route_case(id, key) {
            case.is_admitted = true;
            case.evaluate();
        }
    }

    pub(crate) fn route_deleted(
        &mut self,
        id: ClusterId,
        key: Key,
        action: ActionId,
        outcome: &Outcome,
    ) {
        // By now the route may be gone, or another one may have its name.
        if let Some(mut case) = self.route_case(id, key) {
            case.delete_finished(action, outcome);
        }
    }
}
