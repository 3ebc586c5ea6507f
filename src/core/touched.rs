//! What becomes of a touch: its outcome, whose change it announced, what an outage leaves open.

use super::action::{AnomalyKind, Hop, Noted};
use super::announcement::{Cause, Dirty, TargetKey};
use super::event::Outcome;
use super::flight::Landed;
use super::ids::{ActionId, ClusterId, Key, Kind};
use super::machine::Machine;
use super::time::UnixMillis;
use super::timers::Due;

impl Machine {
    pub(crate) fn target_touched(
        &mut self,
        id: ClusterId,
        target: TargetKey,
        action: ActionId,
        outcome: &Outcome,
    ) {
        let now = self.desk.now;
        let retry = self.desk.settings.retry;
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let Some(touch) = edge.touch(target) else { return };
        if touch.flight.in_flight != Some(action) {
            return;
        }
        let landed = touch.flight.land(now, outcome, &retry);
        let error = touch.flight.error.clone().unwrap_or_default();
        let (gateway, writing) = touch.writing.take().unzip();
        match landed {
            Landed::Yes => {
                touch.adopted = None;
                let clean = touch.dirty.is_none();
                let waiting = if clean { touch.take_waiting() } else { Vec::new() };
                if let Some(found) = gateway.and_then(|g| edge.gateways.get_mut(&g))
                    && found.value.is_none_or(|v| writing.is_some_and(|w| w.n > v.n))
                {
                    found.value = writing;
                }
                if let Some(gateway) = gateway {
                    // A gateway that carries the trigger comes first in its class.
                    edge.update_class(&self.desk.names, gateway);
                }
                self.announced(id, waiting);
            }
            Landed::No | Landed::Refused => {
                // It may have landed all the same; the next value differs in any case.
                if writing.is_some_and(|w| w.c == 0) {
                    let dirty = Dirty { first_at: now, last_at: now, cause: Cause::Changed, n: 0 };
                    touch.dirty.get_or_insert(dirty);
                }
            }
        }
        if landed == Landed::Refused
            && let Some(cluster) = self.cluster(id).map(|c| c.name.clone())
        {
            let detail = format!(
                "the API server refuses the touch: {error}; it is tried again in {} s, or when a \
                 connector changes",
                retry.refused_ms / 1000
            );
            self.desk.anomaly(AnomalyKind::Refused, &cluster, gateway, detail);
        }
        self.evaluate_target(id, target);
    }

    /// Targets have announced the latest change of these connectors.
    pub(crate) fn announced(&mut self, id: ClusterId, connectors: Vec<Key>) {
        let Some(cluster) = self.cluster(id) else { return };
        let (name, live_since) = (cluster.name.clone(), cluster.live_since(Kind::Connector));
        for key in connectors {
            let Some(edge) = self.edges.get_mut(&id) else { return };
            let Some(connector) = edge.connectors.get_mut(&key) else { continue };
            connector.unannounced = connector.unannounced.saturating_sub(1);
            if connector.unannounced > 0 {
                continue;
            }
            let (online, arrived_at) = (connector.online, connector.changed_at);
            let stall = connector.touch_stall.take();
            self.desk.timers.clear(Due::Announce(id, key));
            if let Some(stall) = stall {
                self.desk.note(Noted::StallEnded(*stall));
            }
            let after_ms = (arrived_at > live_since).then(|| self.desk.now.since(arrived_at));
            self.note_hop(&name, key, Hop::Touched, online, after_ms);
        }
    }

    /// An edge's outage is over for a while: what was announced around it is confirmed once more.
    pub(crate) fn confirm_after_outage(&mut self, id: ClusterId) {
        let window = self.desk.settings.touch.confirm_after_ms.last().copied().unwrap_or(0);
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let since = edge.outage_since;
        edge.outage_pending = false;
        for target in edge.targets() {
            let Some(touch) = self.edges.get_mut(&id).and_then(|e| e.touch(target)) else {
                continue;
            };
            if touch.announced_at.plus(window) >= since && touch.last_touch_at > UnixMillis(0) {
                touch.extra = true;
                self.evaluate_target(id, target);
            }
        }
    }
}
