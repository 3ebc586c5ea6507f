//! The platform stamp as proof: the extension server writes it once its cache has what it says.
//!
//! It stamps a Gateway with the liveness of its last connector. A new stamp that says what that
//! connector says now shows that the cache has the connector's latest change, and every change of a
//! Connector that the watch showed before. The cache is one for the whole edge, so this holds for all
//! Gateways that wait for that connector, and they are touched together. A stamp that is there already
//! when a change comes shows nothing: it may be of the time before last. One of another value takes the
//! proof back: the cache is on its way. Where a stamp lies, confirmations put it right. After the last of
//! them, only a stamp on the target itself touches it again: on its Gateway, or on one of its class.

use crate::data::interner::Key;
use crate::edge::Edge;
use crate::edge::pending::{PendingChange, Subject, TouchCause};
use crate::edge::touch::Touching;

impl Edge<'_> {
    /// Another writer changed the stamp on `gateway`.
    pub(super) fn stamped(&mut self, gateway: Key) {
        let references = self.state.references();
        let Some(connector) = references.keys(gateway).last() else { return };
        let stamp = self.state.gateways.get(&gateway).map(|found| found.observed.platform_stamp);
        let is_present = stamp.is_some() && references.platform_stamp_hash(gateway) == stamp;
        let found = self.state.connectors.get_mut(&connector);
        let was_cached = found.map(|found| std::mem::replace(&mut found.is_cached, is_present));
        self.stamp_seen(gateway, connector, is_present, true);
        // The first proof concerns every Gateway that references the connector; the stamps on the
        // others follow and show nothing new.
        if is_present && was_cached == Some(false) {
            let others: Vec<_> = self.state.gateways_of(connector).collect();
            for other in others.into_iter().filter(|other| *other != gateway) {
                self.stamp_seen(other, connector, true, false);
            }
        }
    }

    fn stamp_seen(&mut self, gateway: Key, connector: Key, is_present: bool, is_own: bool) {
        let Some(target) = self.state.target_of(gateway) else { return };
        if let Some(mut touching) = self.touching(target) {
            if is_present {
                touching.cache_shown(connector, is_own);
            } else {
                touching.cache_not_shown(connector);
            }
            touching.evaluate();
        }
        self.evaluated(target);
    }
}

impl Touching<'_> {
    /// The extension server's cache has the present liveness of `connector`. `is_own`: the stamp is on
    /// the target itself.
    fn cache_shown(&mut self, connector: Key, is_own: bool) {
        let is_shown = |subject| match subject {
            Subject::Connector(key) => key == connector,
            Subject::Target => is_own,
            Subject::Several => false,
        };
        if let Some(pending) = &mut self.state.pending {
            pending.is_cached |= is_shown(pending.subject);
        } else if self.state.is_adopted
            && let Some(subject) = self.state.unproven.filter(|subject| is_shown(*subject))
        {
            // The last touch may have come before the cache had the change.
            let mut pending = PendingChange::new(self.ctx.now, TouchCause::PlatformStamp, subject);
            pending.n = self.latest_n();
            pending.is_cached = true;
            self.state.pending = Some(pending);
            self.state.flight.desired_changed();
        }
    }

    /// The extension server's cache has another liveness of `connector` than the present one.
    fn cache_not_shown(&mut self, connector: Key) {
        let subject = Subject::Connector(connector);
        match &mut self.state.pending {
            Some(pending) if pending.subject == subject => pending.is_cached = false,
            Some(_) => {}
            None => {
                self.state.unproven.get_or_insert(subject);
            }
        }
    }
}
