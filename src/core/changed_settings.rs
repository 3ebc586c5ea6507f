//! Settings change while the machine runs: all that depends on them is evaluated again. The end is the
//! same as with a machine that had them from the start.

use std::collections::BTreeSet;

use super::contract::settings::Settings;
use super::data::ids::ClusterId;
use super::data::map::sorted_keys;
use super::machine::Machine;

impl Machine {
    /// From now on the machine decides with these settings, but for those that
    /// [`Settings::needs_restart`] names.
    pub(super) fn settings_changed(&mut self, settings: &Settings) {
        let mut settings = settings.clone();
        settings.keep_until_restart(&self.ctx.settings);
        if settings == self.ctx.settings {
            return;
        }
        self.ctx.settings = settings;
        if !self.ctx.settings.mirror.enabled {
            self.removals.forget_all(&mut self.ctx);
        }
        let edges: Vec<_> = self.edges.keys().copied().collect();
        for edge in edges {
            self.touch_settings_changed(edge);
        }
        let hubs: BTreeSet<ClusterId> = self.hubs.keys().copied().collect();
        for hub in hubs {
            self.hub_listed(hub);
            self.routes_listed(hub);
        }
        // What is counted over all of them comes after each of them.
        self.removals.schedule_all(&mut self.ctx);
        for upstream in sorted_keys(&self.upstreams) {
            if let Some(upstream_state) = self.upstreams.get(&upstream) {
                upstream_state.share.schedule_check(upstream, &mut self.ctx);
            }
        }
        self.spend_budget_again();
    }
}
