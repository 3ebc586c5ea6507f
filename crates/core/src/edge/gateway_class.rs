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
    /// How fit each of them is.
    fitness: BTreeMap<Key, Fitness>,
    /// How often the API server refused to write a member, for those that it did.
    refusals: BTreeMap<Key, u32>,
    /// Members that were refused since one was written.
    refused_in_a_row: u32,
    pub(super) touch: TouchRecord,
}

/// The Gateways of a class that have connectors. The first carries the trigger.
pub(super) type ClassMembers = BTreeSet<Member>;

/// What decides whether a Gateway carries the trigger of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fitness {
    pub(super) is_paused: bool,
    pub(super) is_programmed: bool,
    pub(super) has_trigger: bool,
}

/// In the order in which they carry the trigger: false comes before true.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    is_paused: bool,
    is_unprogrammed: bool,
    refusals: u32,
    has_no_trigger: bool,
    ns: Box<str>,
    name: Box<str>,
    pub(super) key: Key,
}

/// So many other Gateways of a class are tried at once when one is refused, then one after each pause:
/// most likely the refusal is about all of them.
const OTHERS_AT_ONCE: u32 = 3;

impl HoldsNames for GatewayClassState {
    fn mark(&self, used: &mut UsedNames) {
        let Self { sum: _, members, fitness, refusals, refused_in_a_row: _, touch } = self;
        members.mark(used);
        fitness.keys().for_each(|key| key.mark(used));
        refusals.mark(used);
        touch.mark(used);
    }
}

impl HoldsNames for Member {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            is_paused: _,
            is_unprogrammed: _,
            refusals: _,
            has_no_trigger: _,
            ns: _,
            name: _,
            key,
        } = self;
        key.mark(used);
    }
}

impl GatewayClassState {
    /// Takes over what a Gateway says, and how fit it is to carry the trigger. `new_part` is 0 for one that
    /// is no member.
    pub(super) fn update(
        &mut self,
        key: Key,
        (ns, name): (&str, &str),
        fitness: Option<Fitness>,
        old_part: u64,
        new_part: u64,
    ) {
        self.sum = self.sum.wrapping_sub(old_part).wrapping_add(new_part);
        let fitness = fitness.filter(|_| new_part != 0);
        let refusals = self.refusals.get(&key).copied().unwrap_or_default();
        let member = |Fitness { is_paused, is_programmed, has_trigger }| Member {
            is_paused,
            is_unprogrammed: !is_programmed,
            refusals,
            has_no_trigger: !has_trigger,
            ns: ns.into(),
            name: name.into(),
            key,
        };

        if self.fitness.get(&key).copied() != fitness {
            if let Some(before) = self.fitness.remove(&key) {
                let was_member = self.members.remove(&member(before));
                debug_assert!(was_member, "a member of a class is not in its place");
            }
            if let Some(fitness) = fitness {
                self.members.insert(member(fitness));
                self.fitness.insert(key, fitness);
            }
        }
        if fitness.is_none() {
            self.refusals.remove(&key);
        }
        debug_assert!(!self.members.is_empty() || self.sum == 0, "a sum of no Gateways");
    }

    /// The API server does not let the representative be written. Returns whether another Gateway is
    /// to carry the trigger at once.
    pub(super) fn representative_refused(&mut self, gateway: Key) -> bool {
        if self.representative() == Some(gateway)
            && let Some(mut member) = self.members.pop_first()
        {
            member.refusals = member.refusals.saturating_add(1);
            self.refusals.insert(gateway, member.refusals);
            self.members.insert(member);
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
        self.members.first().map(|member| member.key)
    }

    pub(super) fn digest(&self) -> Option<u64> {
        (!self.members.is_empty()).then(|| digest([self.sum]))
    }
}
