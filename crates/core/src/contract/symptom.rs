//! The answers that users get from Gateways, as far as the watches show them.

use serde::{Deserialize, Serialize};

/// How the state that a Gateway's Envoy is programmed with differs from upstream, for one
/// connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Symptom {
    /// Up upstream, programmed offline: users get 503.
    Offline,
    /// Up upstream on one node, programmed to another: users get 503 or a timeout.
    OtherNode,
    /// Down upstream, programmed online: users get a dead tunnel.
    StaleOnline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymptomChange {
    Began,
    Ended,
    /// It ended only because the platform's own key was written, which Envoy Gateway is known to
    /// ignore.
    EndedByPlatformKey,
}

/// The number of pairs of a Gateway and one of its connectors, by their answers, at one edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Up upstream, and programmed accordingly.
    pub right: u32,
    /// Up upstream, but programmed offline or to another node: users get 503.
    pub down: u32,
    /// Down upstream, but programmed online.
    pub dead_tunnel: u32,
    /// Down upstream, and programmed accordingly.
    pub offline: u32,
    /// A watch is lost that would show it, the connector's upstream is not in the run, or the state
    /// that the Gateway was programmed with was not seen.
    pub unknown: u32,
}

impl Symptom {
    pub const fn users_get(self) -> &'static str {
        match self {
            Self::Offline | Self::OtherNode => "503",
            Self::StaleOnline => "dead tunnel",
        }
    }
}

impl Answers {
    pub(crate) fn of(symptom: Option<Symptom>, is_online: bool) -> Self {
        let mut answers = Self::default();
        *match symptom {
            Some(Symptom::Offline | Symptom::OtherNode) => &mut answers.down,
            Some(Symptom::StaleOnline) => &mut answers.dead_tunnel,
            None if is_online => &mut answers.right,
            None => &mut answers.offline,
        } = 1;
        answers
    }

    pub(crate) const UNKNOWN: Self =
        Self { right: 0, down: 0, dead_tunnel: 0, offline: 0, unknown: 1 };

    /// The same pairs, all unknown while the edge is not watched.
    pub(crate) fn all_unknown(self) -> Self {
        let Self { right, down, dead_tunnel, offline, unknown } = self;
        Self { unknown: right + down + dead_tunnel + offline + unknown, ..Self::default() }
    }

    fn with(self, other: Self, f: fn(u32, u32) -> u32) -> Self {
        Self {
            right: f(self.right, other.right),
            down: f(self.down, other.down),
            dead_tunnel: f(self.dead_tunnel, other.dead_tunnel),
            offline: f(self.offline, other.offline),
            unknown: f(self.unknown, other.unknown),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.with(other, |a, b| a - b)
    }
}
