//! A GatewayClass whose Gateways are announced together, through the one that carries the trigger.

use std::collections::{BTreeMap, BTreeSet};

use crate::data::name::NamespacedName;
use crate::status::trigger::{digest, gateway_part};

/// The Gateways of one class that reference connectors.
#[derive(Debug, Default)]
pub(crate) struct Class {
    /// Sum of what they say, updated in constant time with each of them.
    sum: u64,
    members: BTreeSet<Member>,
    /// How often the API server refused to write a member, for those that it did.
    refusals: BTreeMap<NamespacedName, u32>,
}

/// Ordered by how well it carries the trigger: false sorts before true.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    is_paused: bool,
    is_unprogrammed: bool,
    refusals: u32,
    has_no_trigger: bool,
    name: NamespacedName,
}

/// What a Gateway is to its class.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub(super) name: NamespacedName,
    /// What its connectors say together.
    pub(super) desired: u64,
    pub(super) is_paused: bool,
    pub(super) is_programmed: bool,
    pub(super) has_trigger: bool,
}

impl Class {
    /// The Gateway that carries the trigger for all. A programmed one is preferred and none is
    /// required.
    pub(crate) fn carrier(&self) -> Option<&NamespacedName> {
        self.members.first().map(|member| &member.name)
    }

    /// What its Gateways say together; `None` where none references a connector.
    pub(crate) fn digest(&self) -> Option<u64> {
        (!self.members.is_empty()).then(|| digest([self.sum]))
    }

    /// Its Gateways, the carrier first.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = &NamespacedName> {
        self.members.iter().map(|member| &member.name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn join(&mut self, membership: Membership) {
        self.sum = self.sum.wrapping_add(membership.part());
        self.members.insert(self.member(membership));
    }

    /// `for_good`: it is forgotten how often the API server refused to write it.
    pub(super) fn leave(&mut self, membership: Membership, for_good: bool) {
        self.sum = self.sum.wrapping_sub(membership.part());
        let member = self.member(membership);
        let was_member = self.members.remove(&member);
        debug_assert!(was_member, "a member of a class is not in its place");
        debug_assert!(!self.members.is_empty() || self.sum == 0, "a sum of no Gateways");
        if for_good {
            self.refusals.remove(&member.name);
        }
    }

    /// The API server refused to write a member: others carry the trigger better.
    pub(super) fn on_refused(&mut self, membership: Membership) {
        self.leave(membership.clone(), false);
        let refusals = self.refusals.entry(membership.name.clone()).or_default();
        *refusals = refusals.saturating_add(1);
        self.join(membership);
    }

    fn member(&self, membership: Membership) -> Member {
        Member {
            is_paused: membership.is_paused,
            is_unprogrammed: !membership.is_programmed,
            refusals: self.refusals.get(&membership.name).copied().unwrap_or_default(),
            has_no_trigger: !membership.has_trigger,
            name: membership.name,
        }
    }
}

impl Membership {
    /// Its part of the sum.
    fn part(&self) -> u64 {
        gateway_part(self.name.namespace(), self.name.name(), self.desired)
    }
}
