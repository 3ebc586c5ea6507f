//! The names of roles in the configuration. Event logs and JSON reports still write `downstream` for
//! the hub, because version 1 of the event log fixes that name; the configuration writes `hub` and also
//! reads `downstream`.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use crate::core::data::ids::Role;

pub(crate) const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Upstream => "upstream",
        Role::Hub => "hub",
        Role::Edge => "edge",
    }
}

const NAMES: [&str; 3] = [role_name(Role::Upstream), role_name(Role::Hub), role_name(Role::Edge)];

pub(super) fn serialize<S: Serializer>(roles: &[Role], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(roles.iter().map(|role| role_name(*role)))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Role>, D::Error> {
    let roles = Vec::<NamedRole>::deserialize(from)?;
    Ok(roles.into_iter().map(|NamedRole(role)| role).collect())
}

struct NamedRole(Role);

impl<'de> Deserialize<'de> for NamedRole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(from)?;
        let named = Role::ALL.into_iter().find(|role| role_name(*role) == name);
        let role = named.or((name == "downstream").then_some(Role::Hub));
        role.map(Self).ok_or_else(|| D::Error::unknown_variant(&name, &NAMES))
    }
}
