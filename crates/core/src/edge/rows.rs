//! The rows of an edge's tables: what is kept of each Connector, HTTPProxy and Gateway. An edge may have
//! 100,000 of each.

use crate::contract::note::Stall;
use crate::data::ids::{ResourceVersion, Uid};
use crate::data::interner::Sym;
use crate::data::one_or_many::OneOrMany;
use crate::data::optional_millis::OptionalMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::edge::touch_state::TouchRecord;
use crate::status::digest::Digest;
use crate::status::trigger::Trigger;

#[derive(Default)]
pub(crate) struct EdgeConnector {
    pub(crate) uid: Uid,
    pub(crate) rv: ResourceVersion,
    pub(crate) listed_in: u32,
    /// The digest of its status annotation; only kept where a hub is watched, too.
    pub(crate) digest: Digest,
    /// Since when its digest differs from the hub's.
    pub(crate) missing_since: OptionalMillis,
    pub(crate) online: bool,
    /// A stamp has shown that the extension server's cache has its present liveness.
    pub(super) is_cached: bool,
    /// Its part of a Gateway's digest: name, online, node id.
    pub(crate) part: u64,
    /// A hash of what the platform's extension server would stamp for it.
    pub(crate) stamp: u64,
    /// Only kept where throughline writes the platform's key.
    pub(crate) node_id: Option<Box<str>>,
    pub(crate) changed_at: OptionalMillis,
    /// When others that write its liveness last wrote it, by the API server's clock.
    pub(crate) others_wrote_at: OptionalMillis,
    /// How many targets have not announced its latest change.
    pub(crate) unannounced: u32,
    /// Its announcement waited for a Gateway that was paused, so how long it took says nothing.
    pub(super) has_paused: bool,
    pub(crate) touch_stall: Option<Box<Stall>>,
}

pub(crate) struct EdgeGateway {
    pub(crate) observed: ObservedGateway,
    /// Its part of its class's digest; 0 while it is no member.
    pub(super) class_part: u64,
    /// Unused in scope `gatewayClass`, where the class has a record of its own.
    pub(super) touch: TouchRecord,
}

impl EdgeGateway {
    pub(super) fn new(observed: ObservedGateway) -> Self {
        Self { observed, class_part: 0, touch: TouchRecord::default() }
    }
}

/// A Gateway as the watch last showed it.
pub(crate) struct ObservedGateway {
    pub(crate) uid: Uid,
    pub(crate) rv: ResourceVersion,
    pub(crate) listed_in: u32,
    pub(crate) class: Sym,
    pub(crate) trigger: Option<Trigger>,
    /// A person has paused it: nothing is written to it.
    pub(crate) is_paused: bool,
    /// One of its listeners is programmed. Any other Gateway may be missing in Envoy Gateway's
    /// representation, where a touch heals nothing (DOMAIN.md, section 7).
    pub(crate) is_programmed: bool,
    /// The trigger's key holds a value that throughline did not write.
    pub(crate) has_foreign_value: bool,
    pub(crate) has_annotations: bool,
    /// A hash of the platform's key; 0 where it is absent.
    pub(crate) platform_stamp: u64,
    /// When throughline last wrote the Gateway, by the API server's clock.
    pub(crate) we_wrote_at: OptionalMillis,
}

impl ObservedGateway {
    /// A trigger was stored. It is taken over unless the watch has shown what came after; where the
    /// versions don't tell, unless the watch has shown another value at all since the write.
    pub(super) fn trigger_written(
        &mut self,
        trigger: Trigger,
        version: ResourceVersion,
        changed_since_write: bool,
    ) {
        let is_newest = match (&self.rv, &version) {
            (ResourceVersion::Number(_), ResourceVersion::Number(_)) => {
                self.rv.is_older_than(&version)
            }
            _ => !changed_since_write,
        };
        if is_newest {
            self.trigger = Some(trigger);
            (self.has_foreign_value, self.has_annotations) = (false, true);
            if version != ResourceVersion::Absent {
                self.rv = version;
            }
        }
    }
}

pub(crate) struct Proxy {
    pub(crate) rv: ResourceVersion,
    pub(crate) listed_in: u32,
    pub(crate) connectors: OneOrMany<Sym>,
}

impl HoldsNames for EdgeConnector {
    fn mark(&self, _: &mut UsedNames) {
        let Self {
            uid: _,
            rv: _,
            listed_in: _,
            digest: _,
            missing_since: _,
            online: _,
            is_cached: _,
            part: _,
            stamp: _,
            node_id: _,
            changed_at: _,
            others_wrote_at: _,
            unannounced: _,
            has_paused: _,
            touch_stall: _,
        } = self;
    }
}

impl HoldsNames for EdgeGateway {
    fn mark(&self, used: &mut UsedNames) {
        let Self { observed, class_part: _, touch } = self;
        observed.mark(used);
        touch.mark(used);
    }
}

impl HoldsNames for ObservedGateway {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            uid: _,
            rv: _,
            listed_in: _,
            class,
            trigger: _,
            is_paused: _,
            is_programmed: _,
            has_annotations: _,
            has_foreign_value: _,
            platform_stamp: _,
            we_wrote_at: _,
        } = self;
        class.mark(used);
    }
}

impl HoldsNames for Proxy {
    fn mark(&self, used: &mut UsedNames) {
        let Self { rv: _, listed_in: _, connectors } = self;
        connectors.mark(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::touch_state::TouchState;

    #[test]
    fn a_row_that_an_edge_has_100_000_times_stays_small() {
        assert!(size_of::<EdgeConnector>() <= 136, "{}", size_of::<EdgeConnector>());
        assert!(size_of::<EdgeGateway>() <= 136, "{}", size_of::<EdgeGateway>());
        assert!(size_of::<TouchState>() <= 264, "{}", size_of::<TouchState>());
    }
}
