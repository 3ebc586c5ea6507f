//! What changed settings mean at an edge: another scope, or touching switched on or off.

use crate::core::contract::settings::TouchScope;
use crate::core::data::ids::ClusterId;
use crate::core::data::interner::{Key, Names};
use crate::core::data::map::sorted_keys;
use crate::core::edge::Edge;
use crate::core::edge::tables::EdgeState;
use crate::core::edge::touch_state::{LatestTouch, TouchRecord};
use crate::core::machine::Machine;
use crate::core::timers::Due;

impl Machine {
    /// The settings changed: every target of the edge is evaluated.
    pub(crate) fn touch_settings_changed(&mut self, id: ClusterId) {
        let Some(mut edge) = self.edge(id) else { return };
        let scope = edge.ctx.settings.touch.scope_of(&edge.cluster.name);
        edge.state.next_scope = (scope != edge.state.scope).then_some(scope);
        if !edge.ctx.settings.touch.enabled {
            edge.stop_touching();
        }
        edge.rearm_announcements();
        edge.evaluate_all();
        edge.change_scope_when_free();
    }
}

impl Edge<'_> {
    fn evaluate_all(&mut self) {
        for target in self.state.targets() {
            self.evaluate_target(target);
        }
    }

    /// Touching is off: nobody waits for an announcement. Once it is on again, every target is looked
    /// at as if for the first time.
    fn stop_touching(&mut self) {
        let waiting = self.state.start_over();
        self.give_up(waiting);
    }

    /// Takes over the scope that the settings ask for, unless a touch in the old one is in flight: two
    /// writes to one Gateway may not be.
    pub(super) fn change_scope_when_free(&mut self) {
        if self.state.next_scope.is_none() || self.ctx.has_touch_in_flight(self.id) {
            return;
        }
        let Some(scope) = self.state.next_scope.take() else { return };
        let waiting = self.state.set_scope(&self.ctx.names, scope);
        self.give_up(waiting);
        self.evaluate_all();
    }

    fn give_up(&mut self, waiting: Vec<Key>) {
        for connector in waiting {
            self.waits_no_longer(connector);
        }
    }

    /// How late an announcement may be may have changed.
    fn rearm_announcements(&mut self) {
        let touched_ms = self.ctx.settings.stall.touched_ms;
        for key in sorted_keys(&self.state.connectors) {
            let Some(connector) = self.state.connectors.get(&key) else { continue };
            if connector.unannounced > 0
                && connector.touch_stall.is_none()
                && let Some(changed_at) = connector.changed_at.get()
            {
                let due = Due::Announce(self.id, key);
                self.ctx.timers.clear(due);
                self.ctx.timers.no_later(due, changed_at.plus(touched_ms));
            }
        }
    }
}

impl EdgeState {
    /// Makes the next look at every target the first one. Returns the connectors that waited, once
    /// for each target.
    fn start_over(&mut self) -> Vec<Key> {
        let mut waiting = Vec::new();
        for gateway in sorted_keys(&self.gateways) {
            if let Some(gateway) = self.gateways.get_mut(&gateway) {
                waiting.extend(gateway.touch.start_over());
            }
        }
        for class in self.classes.values_mut() {
            waiting.extend(class.touch.start_over());
        }
        waiting
    }

    /// Returns the connectors that waited, once for each target of the old scope.
    fn set_scope(&mut self, names: &Names, scope: TouchScope) -> Vec<Key> {
        let waiting = self.start_over();
        let gateways = self.gateways.values().map(|gateway| &gateway.touch);
        let touches = gateways.chain(self.classes.values().map(|class| &class.touch));
        // A Gateway may carry what was written for its class, and the other way round: the next
        // number is higher than any, and the next touch keeps its distance.
        let latest =
            touches.map(TouchRecord::latest).fold(LatestTouch::default(), LatestTouch::max);
        self.scope = scope;
        self.queue.clear();
        self.classes.clear();
        for gateway in self.gateways.values_mut() {
            gateway.class_part = 0;
            gateway.touch = TouchRecord::after(latest);
        }
        for gateway in sorted_keys(&self.gateways) {
            self.update_class(names, gateway);
        }
        for class in self.classes.values_mut() {
            class.touch = TouchRecord::after(latest);
        }
        waiting
    }
}
