//! From the hub to the edges: whether every edge Connector says what the hub says, the nudge that
//! makes the carrier try again, and the stall of a hop that takes too long.

use super::desired::DesiredStatus;
use super::limits::{REPEAT_MS, SILENT_EVERY_MS};
use super::mirror::Mirror;
use super::{HubWrite, Repair};
use crate::context::WriteTarget;
use crate::contract::event::Outcome;
use crate::contract::note::{Hop, NoteKind, Stall, StallCause};
use crate::data::cluster::ClusterState;
use crate::data::ids::Kind;
use crate::data::time::UnixMillis;
use crate::flight::doubled;
use crate::status::digest::Digest;
use crate::write_queue::QueueKey;

/// The edges whose Connector does not say what the hub says.
struct Behind<'m> {
    /// The first of them, and since when it is behind.
    edge: &'m ClusterState,
    since: UnixMillis,
    /// Since when an edge whose watch is live is seen to be behind; `None` when there is none.
    observed_since: Option<UnixMillis>,
}

impl<'m> Mirror<'m> {
    /// The hub says what upstream says. Every edge should come to say it, too.
    pub(super) fn mirrored(&mut self, desired: DesiredStatus) {
        let was_deferred = self.end_deferral();
        if was_deferred {
            self.connector.mirrored_at = None;
        }
        let mirrored_at = self.routes_right(desired, !was_deferred);
        if self.is_carried(desired, mirrored_at) {
            self.carried();
        }
    }

    /// The hub routes as upstream says. Returns since when. What was deferred was late by intention, so
    /// how long it took is not reported.
    pub(super) fn routes_right(&mut self, desired: DesiredStatus, is_timed: bool) -> UnixMillis {
        let now = self.ctx.now;
        let online = self.is_online(desired);
        if let Some(mirrored_at) = self.connector.mirrored_at {
            return mirrored_at;
        }
        self.connector.mirrored_at = Some(now);
        if let Some(repair) = &mut self.connector.repair {
            repair.nudges = 0;
        }
        if self.unsettled.contains(&self.at.key) {
            // A change that came with a list happened at an unknown time before.
            let is_observed = now > self.hub.live_since(Kind::Connector);
            let is_timed = is_timed && self.connector.upstream_changed && is_observed;
            let after_ms = is_timed.then(|| now.since(desired.changed_at));
            self.note_hop(self.hub, Hop::Mirrored, online, after_ms);
            if self.is_also_at_this_edge() {
                self.note_hop(self.hub, Hop::Arrived, online, is_timed.then_some(0));
            }
        }
        now
    }

    /// Whether every edge says what the hub says since `mirrored_at`. Those that do not are expected to,
    /// and are nudged.
    pub(super) fn is_carried(&mut self, says: DesiredStatus, mirrored_at: UnixMillis) -> bool {
        let live_since = self.hub.live_since(Kind::Connector);
        let observed_at = (mirrored_at > live_since).then_some(mirrored_at);
        let Some(behind) = self.edges_behind(says, observed_at) else {
            self.end_nudges();
            return true;
        };
        self.unsettled.insert(self.at.key);
        self.expect(Hop::Arrived, mirrored_at.max(behind.since), behind.edge);
        // An edge whose watch is lost shows nothing, and a change made during its outage makes the
        // outage longer (DOMAIN.md, section 5): nudge only for an edge that is seen to be behind.
        if let Some(since) = behind.observed_since
            && self.ctx.settings.mirror.nudge
            && self.leads()
        {
            self.nudge_when_due(since.max(mirrored_at));
        }
        false
    }

    /// Whether hub and edge are one cluster, so that the hub Connector is the edge Connector, too.
    fn is_also_at_this_edge(&self) -> bool {
        let edge = self.edges.get(&self.at.cluster);
        edge.is_some_and(|edge| edge.connectors.contains_key(&self.at.key))
    }

    /// Finds the edges that are behind, and notes the hop of each that has caught up.
    /// `mirrored_at` is when the hub was seen to come to say it.
    fn edges_behind(
        &mut self,
        desired: DesiredStatus,
        mirrored_at: Option<UnixMillis>,
    ) -> Option<Behind<'m>> {
        let (at, now, online) = (self.at, self.ctx.now, self.is_online(desired));
        let clusters = self.clusters;
        let mut behind: Option<Behind<'m>> = None;
        let mut has_arrived = false;
        for (&id, edge) in self.edges.iter_mut().filter(|(id, _)| **id != at.cluster) {
            let (Some(connector), Some(cluster)) =
                (edge.connectors.get_mut(&at.key), clusters.get(id))
            else {
                continue;
            };
            let is_live = cluster.is_live(Kind::Connector);
            let live_since = cluster.live_since(Kind::Connector);
            if connector.digest == desired.digest {
                if let Some(missing_since) = connector.missing_since.take() {
                    has_arrived = true;
                    // An edge Connector that went wrong later was somebody else's doing.
                    let carried = mirrored_at.filter(|at| is_live && *at >= missing_since);
                    let after_ms = carried.map(|at| now.since(at));
                    self.ctx.note_hop(&cluster.name, at.key, Hop::Arrived, online, after_ms);
                }
            } else if is_live || live_since > UnixMillis(0) {
                let since = connector.missing_since.get().unwrap_or(now);
                connector.missing_since = since.into();
                let behind =
                    behind.get_or_insert(Behind { edge: cluster, since, observed_since: None });
                if is_live {
                    let observed = since.max(live_since);
                    let earlier = behind.observed_since.unwrap_or(observed);
                    behind.observed_since = Some(earlier.min(observed));
                }
            }
        }
        if has_arrived && self.carrier.answered() {
            self.restart_nudges(now);
        }
        behind
    }

    /// Every edge says what the hub says.
    fn carried(&mut self) {
        let quiet_ms = self.ctx.settings.mirror.contention_quiet_ms;
        let now = self.ctx.now;
        self.unsettled.remove(&self.at.key);
        self.end_stall();
        let Some(repair) = &self.connector.repair else { return };
        let nudges_count = repair.nudges > 0;
        let is_contended = repair.contention.is_recent(now, quiet_ms);
        if !repair.flight.is_in_flight() && !is_contended && !nudges_count {
            self.connector.repair = None;
        }
    }

    /// No edge needs a nudge.
    fn end_nudges(&mut self) {
        let quiet_ms = self.ctx.settings.mirror.contention_quiet_ms;
        let Some(repair) = &mut self.connector.repair else { return };
        // Somebody at the edge may undo it again: the pauses grow until that is over.
        if !repair.nudges_count(self.ctx.now, quiet_ms) {
            repair.nudges = 0;
        }
    }

    fn nudge_when_due(&mut self, behind_since: UnixMillis) {
        let now = self.ctx.now;
        let settings = &self.ctx.settings.mirror;
        let (quiet_ms, after_ms) = (settings.contention_quiet_ms, settings.nudge_after_ms);
        let nudge_key = settings.nudge_key.clone();
        let repair = self.repair();
        if !repair.nudges_count(now, quiet_ms) {
            repair.nudges = 0;
        }
        if repair.flight.is_in_flight() {
            return;
        }
        let mut due_at = behind_since.plus(after_ms).max(repair.flight.not_before());
        if repair.nudges > 0 {
            due_at = due_at.max(repair.next_nudge_at);
        }
        if now < due_at {
            return self.look_again(due_at);
        }
        let queue = QueueKey::Nudges(self.at.cluster);
        if !self.is_admitted(queue, due_at) {
            return;
        }
        let waited_s = now.since(behind_since) / 1000;
        let because = format!(
            "an edge whose watch is live has not shown the mirrored value for {waited_s} s; any change \
             of the object makes the carrier try again"
        );
        let counter = self.connector.nudge.wrapping_add(1).to_string();
        let annotation = (nudge_key, Some(counter));
        self.write(queue, annotation, because, HubWrite::Nudge, None);
        if self.carrier.nudged() {
            self.restart_nudges(now.plus(SILENT_EVERY_MS));
        }
    }

    /// A nudge was written: the next one waits longer than this one did.
    pub(super) fn nudged(&mut self, outcome: &Outcome) {
        self.is_newest(outcome);
        let settings = &self.ctx.settings.mirror;
        let (first_ms, max_ms) = (settings.nudge_after_ms, settings.nudge_max_ms);
        let now = self.ctx.now;
        let repair = self.repair();
        repair.nudges += 1;
        repair.next_nudge_at = now.plus(doubled(first_ms, repair.nudges, max_ms));
    }

    /// Expects a hop that is open since a moment, and reports a stall when it takes too long.
    pub(super) fn expect(&mut self, hop: Hop, since: UnixMillis, cluster: &ClusterState) {
        let limits = &self.ctx.settings.stall;
        let limit_ms = match hop {
            Hop::Mirrored if self.deferred_since().is_some() => limits.deferred_ms,
            Hop::Mirrored => limits.mirrored_ms,
            _ => limits.arrived_ms,
        };
        // While this instance waits for its first Lease, nobody may write: the hop starts after that.
        let since = since.max(self.ctx.lease_wait().until);
        let late_at = since.plus(limit_ms);
        if self.ctx.now < late_at {
            self.look_again(late_at);
            self.end_stall_of(|stall| stall.hop != hop);
            return;
        }
        let (is_leader, hub) = (self.leads(), self.hub);
        let waits_in = self.ctx.queues.queue_of(WriteTarget::HubConnector(self.at));
        let repeats_per_second =
            matches!(waits_in, Some(QueueKey::Repeats(_))).then(|| self.repeats_per_second());
        let connector = self.ctx.names.object_key(self.at.key);
        let repair = self.repair();
        if repair.stall.as_ref().is_some_and(|stall| stall.hop == hop) {
            return;
        }
        let (cause, reason) = stall_cause(hop, hub, cluster, repair, repeats_per_second, is_leader);
        let stall = Stall { cluster: cluster.name.clone(), connector, hop, since, cause, reason };
        if let Some(old) = repair.stall.replace(stall.clone()) {
            self.ctx.note(NoteKind::StallEnded(old));
        }
        self.ctx.note(NoteKind::Stalled(stall));
    }

    pub(super) fn end_stall(&mut self) {
        self.end_stall_of(|_| true);
    }

    pub(super) fn end_stall_of(&mut self, ends: impl Fn(&Stall) -> bool) {
        let Some(repair) = &mut self.connector.repair else { return };
        if let Some(stall) = repair.stall.take_if(|stall| ends(stall)) {
            self.ctx.note(NoteKind::StallEnded(stall));
        }
    }

    fn is_online(&self, desired: DesiredStatus) -> bool {
        let says = |online| desired.digest != Digest::ABSENT && online;
        self.upstream.is_some_and(|upstream| says(upstream.connector.online))
    }

    fn note_hop(&mut self, cluster: &ClusterState, hop: Hop, online: bool, after_ms: Option<u64>) {
        self.ctx.note_hop(&cluster.name, self.at.key, hop, online, after_ms);
    }
}

/// The cause of a stall, as far as this instance can see it, and the same in words. `cluster` is
/// where the hop should have ended; `repeats_per_second` is known while the mirror waits for that limit.
fn stall_cause(
    hop: Hop,
    hub: &ClusterState,
    cluster: &ClusterState,
    repair: &Repair,
    repeats_per_second: Option<u32>,
    is_leader: bool,
) -> (StallCause, String) {
    let (hub, name) = (hub.name.clone(), cluster.name.clone());
    if !cluster.is_live(Kind::Connector) {
        let reason = format!("the watch of {name} is lost");
        return (StallCause::WatchLost { cluster: name }, reason);
    }
    if let Some(error) = repair.flight.error() {
        let reason = format!("writes to the hub fail: {error}");
        return (StallCause::WritesFail { cluster: hub, error: error.cause }, reason);
    }
    if !is_leader {
        let reason = "this instance is not the leader; the leader should write it";
        return (StallCause::NotLeading, reason.to_owned());
    }
    if hop != Hop::Mirrored {
        let nudges = repair.nudges;
        let times = if nudges == 1 { "time" } else { "times" };
        let reason = format!(
            "the Connector at {name} does not say what the hub says; nudged {nudges} {times}"
        );
        return (StallCause::NotCarried { cluster: name }, reason);
    }
    if let Some(per_second) = repeats_per_second {
        let reason = format!(
            "it changed again within {} s of its last mirror, and waits for the other Connectors of its \
             upstream that did: {per_second} of them are mirrored a second",
            REPEAT_MS / 1_000
        );
        return (StallCause::NotMirrored { cluster: hub }, reason);
    }
    let (cause, reason) = if repair.flight.is_in_flight() {
        let reason = "a write to the hub has not been answered yet";
        (StallCause::WriteInFlight { cluster: hub }, reason)
    } else if repair.contention.overwrites() > 0 {
        let manager = repair.contention.manager().map(Box::from);
        let reason = "another writer keeps changing the hub's annotation";
        (StallCause::Overwritten { cluster: hub, manager }, reason)
    } else if repair.deferred_since.get().is_some() {
        let reason = "what routes is mirrored; the rest of the status waits for its turn by \
                      mirror.deferrablePerSecond";
        (StallCause::Deferred { cluster: hub }, reason)
    } else {
        let reason = "the hub's annotation does not say what upstream says";
        (StallCause::NotMirrored { cluster: hub }, reason)
    };
    (cause, reason.to_owned())
}
