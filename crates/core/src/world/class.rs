//! A GatewayClass whose Gateways are announced together by one trigger.

use std::collections::BTreeSet;

use super::edge::Gateway;
use crate::data::ids::NamespacedName;
use crate::status::trigger::{digest, gateway_part};

/// The Gateways of one class that reference connectors. There is at least one.
#[derive(Debug, Default)]
pub(crate) struct Class {
    /// Sum of the digests of all members, updated in constant time.
    sum: u64,
    members: BTreeSet<Member>,
}

/// Ordered by suitability to carry the trigger: false sorts before true.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    is_paused: bool,
    is_unprogrammed: bool,
    refusals: u32,
    has_no_trigger: bool,
    name: NamespacedName,
}

impl Class {
    /// The Gateway that carries the trigger for all. Programmed Gateways come first, but none is
    /// required.
    pub(crate) fn carrier(&self) -> Option<&NamespacedName> {
        self.gateways().next()
    }

    /// The digest of all its Gateways.
    pub(crate) fn digest(&self) -> u64 {
        digest([self.sum])
    }

    /// Its Gateways, the carrier first.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = &NamespacedName> {
        self.members.iter().map(|member| &member.name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// `desired`: the digest of the Gateway's connectors.
    pub(super) fn join(&mut self, name: &NamespacedName, gateway: &Gateway, desired: u64) {
        let part = gateway_part(name.namespace(), name.name(), desired);
        self.sum = self.sum.wrapping_add(part);
        self.members.insert(Member::new(name, gateway));
    }

    /// The arguments are the same as when the Gateway joined.
    pub(super) fn leave(&mut self, name: &NamespacedName, gateway: &Gateway, desired: u64) {
        let part = gateway_part(name.namespace(), name.name(), desired);
        self.sum = self.sum.wrapping_sub(part);
        let was_member = self.members.remove(&Member::new(name, gateway));
        debug_assert!(was_member, "a member of a class is not in its place");
        debug_assert!(!self.is_empty() || self.sum == 0, "a sum of no Gateways");
    }
}

impl Member {
    fn new(name: &NamespacedName, gateway: &Gateway) -> Self {
        Self {
            is_paused: gateway.is_paused,
            is_unprogrammed: !gateway.is_programmed,
            refusals: gateway.refusals,
            has_no_trigger: gateway.trigger.is_none(),
            name: name.clone(),
        }
    }
}
