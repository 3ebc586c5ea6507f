//! What is remembered of the announcements on a gateway, or on a class of gateways.

use std::collections::BTreeSet;

use super::flight::Flight;
use super::ids::{Key, Sym};
use super::time::UnixMillis;
use super::trigger::{Trigger, digest};

/// What a touch covers: a gateway, or all gateways of a class through one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TargetKey {
    Gateway(Key),
    Class(Sym),
}

/// Why a target has something to announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A connector's liveness changed at the edge.
    Changed,
    /// A connector was written while its watch was lost; it may have changed and changed back.
    Unseen,
    /// The proxy references other connectors.
    Referenced,
    /// The gateway is new.
    Created,
    /// The extension server stamped the gateway: its cache has the change now.
    Sign,
    /// Another writer changed the trigger.
    Spoiled,
    /// Found on starting: others wrote a connector after the gateway was last announced.
    Distrusted,
}

/// The announcements of one target.
#[derive(Default)]
pub(crate) struct Touch {
    pub(crate) flight: Flight,
    /// The value in flight, and the gateway that it is written to.
    pub(super) writing: Option<(Key, Trigger)>,
    /// Something changed since the last announcement.
    pub(super) dirty: Option<Dirty>,
    /// It was decided once whether what the gateway carries is to be trusted.
    pub(super) known: bool,
    /// What the platform's key was taken for on first sight: announced, though not by us.
    pub(super) adopted: Option<u64>,
    /// The highest `n` ever written or seen.
    pub(super) highest_n: u32,
    pub(super) last_touch_at: UnixMillis,
    /// When the latest announcement (`c` = 0) was made; confirmations are counted from it.
    pub(super) announced_at: UnixMillis,
    /// One more confirmation is due, after an outage.
    pub(super) extra: bool,
    pub(super) spoils: u32,
    pub(super) spoiled_at: UnixMillis,
    pub(super) scheduled: Option<UnixMillis>,
    /// Connectors whose latest change waits for this target.
    pub(super) waiting: Vec<Key>,
}

/// What has to be remembered of a target whose announcements are all done and confirmed.
pub(crate) struct AtRest {
    pub(super) adopted: Option<u64>,
    pub(super) highest_n: u32,
    pub(super) last_touch_at: UnixMillis,
}

impl AtRest {
    pub(crate) fn wake(&self, value: Option<Trigger>) -> Touch {
        Touch {
            known: true,
            adopted: self.adopted,
            highest_n: self.highest_n.max(value.map_or(0, |v| v.n)),
            last_touch_at: self.last_touch_at,
            ..Touch::default()
        }
    }
}

/// A change that is to be announced.
#[derive(Clone, Copy)]
pub(super) struct Dirty {
    pub(super) first_at: UnixMillis,
    pub(super) last_at: UnixMillis,
    pub(super) cause: Cause,
    /// The gateway's `n` when it became dirty.
    pub(super) n: u32,
}

impl Touch {
    /// What is left of it when nothing is open.
    pub(crate) fn at_rest(&self) -> Option<AtRest> {
        let open = !self.known
            || self.dirty.is_some()
            || self.scheduled.is_some()
            || self.extra
            || self.spoils > 0
            || !self.waiting.is_empty()
            || !self.flight.is_idle();
        let (adopted, highest_n) = (self.adopted, self.highest_n);
        (!open).then_some(AtRest { adopted, highest_n, last_touch_at: self.last_touch_at })
    }

    pub(crate) fn take_waiting(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.waiting)
    }
}

/// The gateways of one class, for scope `gatewayClass`.
#[derive(Default)]
pub(crate) struct Class {
    pub(super) sum: u64,
    /// Gateways with connectors: those that carry the trigger first, then by namespace and name.
    pub(super) members: BTreeSet<(bool, Box<str>, Box<str>, Key)>,
    pub(crate) touch: Touch,
}

impl Class {
    pub(crate) fn update(
        &mut self,
        key: Key,
        (ns, name): (&str, &str),
        carries: bool,
        old: u64,
        new: u64,
    ) {
        self.sum = self.sum.wrapping_sub(old).wrapping_add(new);
        for first in [false, true] {
            self.members.remove(&(first, ns.into(), name.into(), key));
        }
        if new != 0 {
            self.members.insert((!carries, ns.into(), name.into(), key));
        }
    }

    pub(crate) fn representative(&self) -> Option<Key> {
        self.members.first().map(|(.., key)| *key)
    }

    pub(crate) fn digest(&self) -> Option<u64> {
        (!self.members.is_empty()).then(|| digest([self.sum]))
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = Key> + '_ {
        self.members.iter().map(|(.., key)| *key)
    }
}
