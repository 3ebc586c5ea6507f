//! Gateways that a person has paused: nothing is written to them. What they would announce waits, and is
//! not late. In scope `gatewayClass` a paused Gateway does not carry the trigger, so that its class goes
//! on through another one; the class waits only while all its Gateways are paused.

use crate::contention::Contention;
use crate::contract::note::NoteKind;
use crate::data::interner::Key;
use crate::edge::Edge;
use crate::edge::tables::EdgeState;
use crate::edge::touch_state::TouchTarget;
use crate::timers::Due;

impl EdgeState {
    /// Whether the Gateway that is written for a target is paused.
    pub(crate) fn is_paused(&self, target: TouchTarget) -> bool {
        let gateway = self.object_of(target).and_then(|object| self.gateways.get(&object));
        gateway.is_some_and(|gateway| gateway.observed.is_paused)
    }

    /// Whether a connector's announcement waits for nothing but paused Gateways.
    pub(super) fn waits_for_pause(&self, connector: Key) -> bool {
        let targets = self.gateways_of(connector).filter_map(|gateway| self.target_of(gateway));
        let is_pending = |target: &TouchTarget| {
            self.open_touch(*target).is_some_and(|touch| touch.pending.is_some())
        };
        let mut pending = targets.filter(is_pending).peekable();
        pending.peek().is_some() && pending.all(|target| self.is_paused(target))
    }
}

impl Edge<'_> {
    /// Takes over whether a target is paused.
    pub(super) fn update_pause(&mut self, target: TouchTarget) {
        let is_paused = self.state.is_paused(target);
        let Some(touch) = self.state.open_touch_mut(target) else { return };
        if std::mem::replace(&mut touch.is_paused, is_paused) == is_paused {
            return;
        }
        if !is_paused {
            touch.flight.end_pauses();
            touch.contention = Contention::default();
        }
        for connector in touch.waiting.clone() {
            if is_paused {
                self.end_stall_of_paused(connector);
            } else {
                self.wait_again(connector);
            }
        }
    }

    /// A connector that waits for paused Gateways alone is not late.
    pub(super) fn end_stall_of_paused(&mut self, key: Key) {
        if !self.state.waits_for_pause(key) {
            return;
        }
        let connector = self.state.connectors.get_mut(&key);
        if let Some(stall) = connector.and_then(|connector| connector.touch_stall.take()) {
            self.ctx.note(NoteKind::StallEnded(*stall));
        }
    }

    /// A connector's announcement is late when it takes too long from now on.
    fn wait_again(&mut self, key: Key) {
        let Some(connector) = self.state.connectors.get_mut(&key) else { return };
        connector.has_paused = true;
        if connector.unannounced > 0 && connector.touch_stall.is_none() {
            let (due, limit_ms) = (Due::Announce(self.id, key), self.ctx.settings.stall.touched_ms);
            self.ctx.timers.clear(due);
            self.ctx.timers.no_later(due, self.ctx.now.plus(limit_ms));
        }
    }
}
