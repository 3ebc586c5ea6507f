//! A GatewayClass as one target of touches: its Gateways, and which of them carries the trigger for
//! all.

use std::collections::{BTreeMap, BTreeSet};

use crate::data::interner::Key;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::edge::touch_state::TouchRecord;
use crate::status::trigger::digest;

/// The Gateways of one class, for scope `gatewayClass`.
#[derive(Default)]
pub(super) struct GatewayClassState {
    sum: u64,
    pub(super) members: ClassMembers,
    /// How often the API server refused to write a member, for those that it did.
    refusals: BTreeMap<Key, u32>,
    /// Members that were refused since one was written.
    refused_in_a_row: u32,
    pub(super) touch: TouchRecord,
}

/// The Gateways of a class that have connectors: those that are not paused first, then those that were
/// refused least often, then those that carry the trigger, then by namespace and name.
pub(super) type ClassMembers = BTreeSet<((bool, u32), bool, Box<str>, Box<str>, Key)>;

/// What decides whether a Gateway carries the trigger of its class.
#[derive(Clone, Copy, Default)]
pub(super) struct ClassMember {
    pub(super) has_trigger: bool,
    pub(super) is_paused: bool,
}

/// So many other Gateways of a class are tried at once when one is refused, then one after each pause:
/// most likely the refusal is about all of them.
const OTHERS_AT_ONCE: u32 = 3;

impl HoldsNames for GatewayClassState {
    fn mark(&self, used: &mut UsedNames) {
        let Self { sum: _, members, refusals, refused_in_a_row: _, touch } = self;
        members.mark(used);
        refusals.mark(used);
        touch.mark(used);
    }
}

impl GatewayClassState {
    pub(super) fn update(
        &mut self,
        key: Key,
        (ns, name): (&str, &str),
        ClassMember { has_trigger, is_paused }: ClassMember,
        old_part: u64,
        new_part: u64,
    ) {
        self.sum = self.sum.wrapping_sub(old_part).wrapping_add(new_part);
        let refusals = self.refusals.get(&key).copied().unwrap_or_default();
        for (paused, last) in [(false, false), (false, true), (true, false), (true, true)] {
            self.members.remove(&((paused, refusals), last, ns.into(), name.into(), key));
        }
        if new_part != 0 {
            let rank = (is_paused, refusals);
            self.members.insert((rank, !has_trigger, ns.into(), name.into(), key));
        } else {
            self.refusals.remove(&key);
        }
        debug_assert!(!self.members.is_empty() || self.sum == 0, "a sum of no Gateways");
    }

    /// The API server does not let the representative be written. Returns whether another Gateway is
    /// to carry the trigger at once.
    pub(super) fn representative_refused(&mut self, gateway: Key) -> bool {
        if self.representative() == Some(gateway)
            && let Some(((paused, refusals), last, ns, name, key)) = self.members.pop_first()
        {
            let refusals = refusals.saturating_add(1);
            self.members.insert(((paused, refusals), last, ns, name, key));
            self.refusals.insert(key, refusals);
        }
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        let has_another = self.representative().is_some_and(|next| next != gateway);
        has_another && self.refused_in_a_row <= OTHERS_AT_ONCE
    }

    pub(super) fn representative_written(&mut self) {
        self.refused_in_a_row = 0;
    }

    /// The Gateway that carries the trigger for the whole class.
    pub(super) fn representative(&self) -> Option<Key> {
        self.members.first().map(|(.., key)| *key)
    }

    pub(super) fn digest(&self) -> Option<u64> {
        (!self.members.is_empty()).then(|| digest([self.sum]))
    }
}
