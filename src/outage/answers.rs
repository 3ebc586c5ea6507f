//! How many of an edge's Gateways answer rightly at one moment, for the metrics of a live run.

use std::ops::{AddAssign, SubAssign};

use super::OutageKind;

/// How the Gateways of an edge answer for the connectors behind them. A Gateway that routes to two
/// connectors counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Up upstream, and programmed so.
    pub right: u32,
    /// Up upstream, but programmed offline or to another node: users get 503.
    pub down: u32,
    /// Down upstream, but programmed online.
    pub dead_tunnel: u32,
    /// Down upstream, and programmed so.
    pub offline: u32,
    /// A watch that is needed to tell is lost, the connector's upstream is not followed, or what the
    /// Gateway was programmed with was not seen.
    pub unknown: u32,
}

impl Answers {
    pub(super) fn add_outage(&mut self, kind: OutageKind) {
        match kind {
            OutageKind::Offline | OutageKind::OtherNode => self.down += 1,
            OutageKind::StaleOnline => self.dead_tunnel += 1,
        }
    }

    pub(super) fn add_right(&mut self, online: bool) {
        *(if online { &mut self.right } else { &mut self.offline }) += 1;
    }

    /// The same Gateways, while nothing of the edge can be seen.
    pub(super) fn all_unknown(self) -> Self {
        let Self { right, down, dead_tunnel, offline, unknown } = self;
        Self { unknown: right + down + dead_tunnel + offline + unknown, ..Self::default() }
    }
}

impl AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        let Self { right, down, dead_tunnel, offline, unknown } = other;
        self.right += right;
        self.down += down;
        self.dead_tunnel += dead_tunnel;
        self.offline += offline;
        self.unknown += unknown;
    }
}

impl SubAssign for Answers {
    fn sub_assign(&mut self, other: Self) {
        let Self { right, down, dead_tunnel, offline, unknown } = other;
        self.right -= right;
        self.down -= down;
        self.dead_tunnel -= dead_tunnel;
        self.offline -= offline;
        self.unknown -= unknown;
    }
}
