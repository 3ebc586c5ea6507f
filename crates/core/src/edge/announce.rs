//! The edge's side of the touch rule: which target has to announce a change, the bundles in which
//! an edge's touches are written, and the connectors that wait for their announcement.

use crate::context::WriteTarget;
use crate::contract::event::Outcome;
use crate::contract::note::{Hop, NoteKind, Stall, StallCause};
use crate::contract::settings::TouchScope;
use crate::contract::touches_waiting::TouchesWaiting;
use crate::data::ids::{ActionId, ClusterId, Kind};
use crate::data::interner::Key;
use crate::data::time::UnixMillis;
use crate::edge::Edge;
use crate::edge::pending::{Subject, TouchCause};
use crate::edge::touch_state::TouchTarget;
use crate::machine::Machine;
use crate::timers::Due;
use crate::write_queue::QueueKey;

impl Machine {
    pub(crate) fn evaluate_gateway(&mut self, id: ClusterId, gateway: Key) {
        if let Some(mut edge) = self.edge(id)
            && let Some(target) = edge.state.target_of(gateway)
        {
            edge.evaluate_target(target);
        }
    }

    pub(crate) fn evaluate_touch(&mut self, id: ClusterId, target: TouchTarget) {
        if let Some(mut edge) = self.edge(id) {
            edge.evaluate_target(target);
        }
    }

    /// The window closed: writes everything of the edge that is due, in one bundle.
    pub(crate) fn emit_bundle(&mut self, id: ClusterId) {
        if let Some(mut edge) = self.edge_of_timer(Due::Bundle(id), id) {
            edge.write_bundle();
        }
    }

    pub(crate) fn touch_finished(
        &mut self,
        id: ClusterId,
        target: TouchTarget,
        action: ActionId,
        outcome: &Outcome,
    ) {
        if let Some(mut edge) = self.edge(id) {
            edge.touch_finished(target, action, outcome);
        }
    }

    /// Some time after an edge's outage, what was announced around it is confirmed once more: the
    /// extension server's cache may be back later than everybody else's.
    pub(crate) fn confirm_after_outage(&mut self, id: ClusterId) {
        if let Some(mut edge) = self.edge_of_timer(Due::Outage(id), id) {
            edge.confirm_after_outage();
        }
    }

    /// A connector's change is not announced by all its targets in time.
    pub(crate) fn announcement_overdue(&mut self, id: ClusterId, connector: Key) {
        if let Some(mut edge) = self.edge_of_timer(Due::Announce(id, connector), id) {
            edge.announcement_overdue(connector);
        }
    }
}

impl Edge<'_> {
    /// Something that a Gateway has to announce changed. `connector`: the one whose liveness it is.
    pub(super) fn gateway_changed(
        &mut self,
        gateway: Key,
        cause: TouchCause,
        connector: Option<Key>,
        is_ordered: bool,
    ) {
        // A proxy may have no Gateway yet.
        let Some(target) = self.state.target_of(gateway) else { return };
        let mut waiting = None;
        if let Some(mut touching) = self.touching(target) {
            let subject = connector.map_or(Subject::Target, Subject::Connector);
            touching.changed(gateway, cause, subject, is_ordered);
            waiting = connector.filter(|&connector| touching.add_waiting(connector));
            touching.evaluate();
        } else {
            self.unschedule(target);
        }
        // A deleted connector counts as offline; nobody waits for its announcement.
        if let Some(key) = waiting
            && let Some(connector) = self.state.connectors.get_mut(&key)
        {
            connector.unannounced += 1;
            let due = Due::Announce(self.id, key);
            let at = self.ctx.now.plus(self.ctx.settings.stall.touched_ms);
            self.ctx.timers.clear(due);
            self.ctx.timers.no_later(due, at);
        }
        self.evaluated(target);
    }

    pub(super) fn evaluate_target(&mut self, target: TouchTarget) {
        if let Some(mut touching) = self.touching(target) {
            touching.evaluate();
        } else {
            self.unschedule(target);
        }
        self.evaluated(target);
    }

    /// Nothing is left that the target could announce.
    pub(super) fn unschedule(&mut self, target: TouchTarget) {
        self.ctx.withdraw(WriteTarget::Touch(self.id, target));
    }

    /// Comes after every evaluation of a target.
    pub(super) fn evaluated(&mut self, target: TouchTarget) {
        self.update_pause(target);
        self.settle(target);
        self.report_end_of_waiting();
    }

    fn settle(&mut self, target: TouchTarget) {
        if self.ctx.queues.due_of(WriteTarget::Touch(self.id, target)).is_none() {
            self.state.settle(target, self.ctx.now);
        }
    }

    fn report_end_of_waiting(&mut self) {
        if self.state.waiting_report.has_ended(self.ctx, self.id) {
            let per_second = self.ctx.settings.touch.max_per_second;
            self.note_waiting(TouchesWaiting { touches: 0, per_second });
        }
    }

    fn note_waiting(&mut self, waiting: TouchesWaiting) {
        let cluster = self.cluster.name.clone();
        self.ctx.note(NoteKind::TouchesWaiting { cluster, waiting });
    }

    fn write_bundle(&mut self) {
        let queue = QueueKey::Touches(self.id);
        while let Some(WriteTarget::Touch(_, target)) = self.ctx.admit(queue) {
            if let Some(mut touching) = self.touching(target) {
                touching.write_if_due();
            }
            self.settle(target);
        }
        self.ctx.schedule_queue(queue);
        self.report_end_of_waiting();
        if let Some(waiting) = self.state.waiting_report.news(self.ctx, self.id) {
            self.note_waiting(waiting);
        }
    }

    /// All touches that wait for the edge's limit, where those that a connector waits for are among them.
    fn touches_waiting(&mut self, connector: Key) -> Option<TouchesWaiting> {
        let Self { id, state, ctx, .. } = self;
        let is_due = |target| {
            let due = ctx.queues.due_of(WriteTarget::Touch(*id, target));
            due.is_some_and(|due| due.at < ctx.now)
        };
        let is_waiting =
            state.gateways_of(connector).filter_map(|gateway| state.target_of(gateway)).any(is_due);
        is_waiting.then(|| state.waiting_report.waiting_lately(ctx, *id)).flatten()
    }

    /// A target has announced the latest change of these connectors, or has nothing to announce
    /// for them any longer.
    pub(super) fn announced(&mut self, connectors: Vec<Key>) {
        let live_since = self.cluster.live_since(Kind::Connector);
        for key in connectors {
            if !self.waits_no_longer(key) {
                continue;
            }
            let Some(connector) = self.state.connectors.get_mut(&key) else { continue };
            let has_paused = std::mem::take(&mut connector.has_paused);
            // What a list showed changed at an unknown time.
            let is_timed = |at: &UnixMillis| *at > live_since && !has_paused;
            let changed_at = connector.changed_at.get().filter(is_timed);
            let after_ms = changed_at.map(|at| self.ctx.now.since(at));
            let (name, online) = (&self.cluster.name, connector.online);
            self.ctx.note_hop(name, key, Hop::Touched, online, after_ms);
        }
    }

    /// A connector waits for one target less. Returns whether it waited for that one alone.
    fn waits_no_longer(&mut self, key: Key) -> bool {
        // The connector may have been deleted meanwhile.
        let Some(connector) = self.state.connectors.get_mut(&key) else { return false };
        connector.unannounced = connector.unannounced.saturating_sub(1);
        if connector.unannounced > 0 {
            self.end_stall_of_paused(key);
            return false;
        }
        self.ctx.timers.clear(Due::Announce(self.id, key));
        if let Some(stall) = connector.touch_stall.take() {
            self.ctx.note(NoteKind::StallEnded(*stall));
        }
        true
    }

    fn announcement_overdue(&mut self, key: Key) {
        let connector = self.state.connectors.get(&key).filter(|c| c.unannounced > 0);
        let Some(connector) = connector else {
            let detail = "a connector that waits for no announcement has a timer for it".to_owned();
            return self.ctx.impossible(&self.cluster.name, detail);
        };
        if connector.touch_stall.is_some() || self.state.waits_for_pause(key) {
            return;
        }
        let unannounced = connector.unannounced;
        let error = self.state.touch_error(key).cloned();
        let waiting = match self.state.ready && error.is_none() {
            true => self.touches_waiting(key),
            false => None,
        };
        let cluster = self.cluster.name.clone();
        let cause = match &error {
            Some(error) => StallCause::WritesFail { cluster, error: error.cause },
            None if !self.state.ready => StallCause::WatchLost { cluster },
            None if waiting.is_some() => StallCause::TouchesWait { cluster },
            None => StallCause::NotTouched { cluster },
        };
        let reason = match (error, unannounced, self.state.scope) {
            (Some(error), ..) => format!("writing the trigger fails: {error}"),
            _ if !self.state.ready => {
                "a watch of the edge is not live, so its Gateways are not touched".to_owned()
            }
            _ if let Some(waiting) = waiting => {
                format!("the edge takes no more touches: {waiting}")
            }
            (_, 1, TouchScope::Gateway) => "1 Gateway is not touched yet".to_owned(),
            (_, n, TouchScope::Gateway) => format!("{n} Gateways are not touched yet"),
            (_, 1, TouchScope::GatewayClass) => "1 GatewayClass is not touched yet".to_owned(),
            (_, n, TouchScope::GatewayClass) => format!("{n} GatewayClasses are not touched yet"),
        };
        let Some(connector) = self.state.connectors.get_mut(&key) else { return };
        let changed_at = connector.changed_at.get();
        debug_assert!(changed_at.is_some(), "a change without a time waits for its announcement");
        let stall = Stall {
            cluster: self.cluster.name.clone(),
            connector: self.ctx.names.object_key(key),
            hop: Hop::Touched,
            since: changed_at.unwrap_or(self.ctx.now),
            cause,
            reason,
        };
        connector.touch_stall = Some(Box::new(stall.clone()));
        self.ctx.note(NoteKind::Stalled(stall));
    }

    fn confirm_after_outage(&mut self) {
        let Some(since) = self.state.unconfirmed_outage_since.take() else {
            let detail = "a timer for the confirmation of an outage without an outage".to_owned();
            return self.ctx.impossible(&self.cluster.name, detail);
        };
        let confirm_after_ms = &self.ctx.settings.touch.confirm_after_ms;
        let window_ms = confirm_after_ms.last().copied().unwrap_or(0);
        for target in self.state.targets() {
            // What is settled was announced and confirmed before the outage.
            let Some(touch) = self.state.open_touch_mut(target) else { continue };
            let is_around = touch.announced_at.is_some_and(|at| at.plus(window_ms) >= since);
            if is_around && touch.last_touch_at.is_some() {
                touch.confirms_again = true;
                self.evaluate_target(target);
            }
        }
        if let Some(since) = self.state.next_outage_since.take() {
            self.outage_ended(since);
        }
    }
}
