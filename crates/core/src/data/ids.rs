//! Names and numbers as types: clusters, roles, kinds, objects, uids, resourceVersions.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::data::closed_list::closed_list;

/// The name of a cluster, as in the configuration or the header of a log, e.g. `org/team-1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ClusterName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl Borrow<str> for ClusterName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The tier of a cluster. One cluster may have several roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Role {
    /// A project control plane: the source of every status. throughline never writes there.
    Upstream,
    /// The federation hub. Logs and reports say `downstream`, as version 1 of the event log does.
    /// Both names are read.
    #[strum(to_string = "downstream", serialize = "hub")]
    Hub,
    /// A member cluster with Envoy Gateway.
    Edge,
}

/// The kinds of object that throughline watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames
)]
#[strum(const_into_str)]
pub enum Kind {
    Connector,
    #[strum(serialize = "HTTPProxy")]
    HttpProxy,
    Gateway,
    #[strum(serialize = "HTTPRoute")]
    HttpRoute,
    Namespace,
}

closed_list!(Role, Kind);

impl Role {
    /// The kinds that the mirror and the touch read in a cluster of this role.
    pub const fn liveness_kinds(self) -> &'static [Kind] {
        match self {
            // A hub namespace is named after the uid of the upstream namespace. Where tiers share a
            // cluster, the labels of its namespaces distinguish them.
            Role::Upstream => &[Kind::Connector, Kind::Namespace],
            // An operator allows removals by an annotation on the hub namespace.
            Role::Hub => &[Kind::Connector, Kind::Namespace],
            Role::Edge => &[Kind::Connector, Kind::HttpProxy, Kind::Gateway],
        }
    }

    /// The kinds that the orphan rule reads in a cluster of this role.
    pub const fn orphan_kinds(self) -> &'static [Kind] {
        match self {
            Role::Upstream => &[Kind::Namespace, Kind::Gateway],
            Role::Hub => &[Kind::HttpRoute],
            Role::Edge => &[],
        }
    }
}

impl Kind {
    pub const fn api_version(self) -> &'static str {
        match self {
            Kind::Connector => "networking.datumapis.com/v1alpha1",
            Kind::HttpProxy => "networking.datumapis.com/v1alpha",
            Kind::Gateway | Kind::HttpRoute => "gateway.networking.k8s.io/v1",
            Kind::Namespace => "v1",
        }
    }

    /// The resource as RBAC and CRDs name it: `connectors.networking.datumapis.com`.
    pub const fn resource(self) -> &'static str {
        match self {
            Kind::Connector => "connectors.networking.datumapis.com",
            Kind::HttpProxy => "httpproxies.networking.datumapis.com",
            Kind::Gateway => "gateways.gateway.networking.k8s.io",
            Kind::HttpRoute => "httproutes.gateway.networking.k8s.io",
            Kind::Namespace => "namespaces",
        }
    }

    /// Whether the absence of such an object in a cluster with these roles can justify a delete.
    /// The shell then passes bookmarks on, so that the machine knows how old the watch's state is.
    pub fn can_prove_absence(self, roles: &[Role]) -> bool {
        self == Kind::Gateway && roles.contains(&Role::Upstream)
    }

    /// The kind's name in request paths, e.g. `connectors`.
    pub fn plural(self) -> &'static str {
        self.resource().split('.').next().unwrap_or_default()
    }
}

/// Namespace and name of an object, the key of sorted tables. Printed as `namespace/name`. They are in
/// one shared text, so a key takes a pointer and a length.
///
/// The separator sorts before every other character. So the text order is the order of (namespace,
/// name), and the objects of one namespace are adjacent in a sorted table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "NamespacedNameParts", into = "NamespacedNameParts")]
pub struct NamespacedName(Arc<str>);

/// Namespace and name in JSON.
#[derive(Serialize, Deserialize)]
struct NamespacedNameParts {
    namespace: String,
    name: String,
}

impl NamespacedName {
    const SEPARATOR: char = '\0';
    const AFTER_SEPARATOR: char = '\u{1}';

    /// The namespace is empty for cluster-scoped objects.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        let (namespace, name) = (namespace.as_ref(), name.as_ref());
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push(Self::SEPARATOR);
        text.push_str(name);
        Self(text.into())
    }

    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// The names of one namespace, as a range of a sorted table.
    pub fn all_in(namespace: &str) -> (Bound<Self>, Bound<Self>) {
        let end = format!("{namespace}{}", Self::AFTER_SEPARATOR);
        (Bound::Included(Self::new(namespace, "")), Bound::Excluded(Self(end.into())))
    }

    fn parts(&self) -> (&str, &str) {
        // `new` writes the separator.
        self.0.split_once(Self::SEPARATOR).unwrap_or_default()
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.name())
    }
}

impl From<NamespacedNameParts> for NamespacedName {
    fn from(parts: NamespacedNameParts) -> Self {
        Self::new(parts.namespace, parts.name)
    }
}

impl From<NamespacedName> for NamespacedNameParts {
    fn from(name: NamespacedName) -> Self {
        let (namespace, name) = name.parts();
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// The number of an action. Each machine counts from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(pub u64);

/// A `metadata.uid`. As a UUID, its usual form, it takes 16 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Uid {
    #[default]
    Absent,
    Uuid([u8; 16]),
    Text(Box<str>),
}

impl Uid {
    pub fn new(text: &str) -> Uid {
        if text.is_empty() {
            return Uid::Absent;
        }
        let number = u128::from_str_radix(&text.replace('-', ""), 16);
        let uuid = number.map(u128::to_be_bytes).ok();
        // Only the canonical form, so that `text` returns the same bytes.
        let uuid = uuid.filter(|uuid| uuid_text(*uuid) == text);
        uuid.map_or_else(|| Uid::Text(text.into()), Uid::Uuid)
    }

    /// The uid of the upstream namespace that a hub namespace is made for, from its name.
    pub fn of_hub_namespace(name: &str) -> Option<Uid> {
        name.strip_prefix("ns-").map(Uid::new)
    }

    /// Whether a namespace has the name of a hub namespace, with a UUID.
    pub fn names_hub_namespace(name: &str) -> bool {
        matches!(Uid::of_hub_namespace(name), Some(Uid::Uuid(_)))
    }

    /// The name of the hub namespace that is made for the upstream namespace with this uid.
    pub(crate) fn hub_namespace(&self) -> Option<String> {
        Some(format!("ns-{}", self.text()?))
    }

    pub fn text(&self) -> Option<String> {
        match self {
            Uid::Absent => None,
            Uid::Text(text) => Some(text.to_string()),
            Uid::Uuid(uuid) => Some(uuid_text(*uuid)),
        }
    }
}

/// In lower case, as `8-4-4-4-12` digits.
fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = format!("{:032x}", u128::from_be_bytes(uuid));
    for at in [8, 13, 18, 23] {
        text.insert(at, '-');
    }
    text
}

/// A `metadata.resourceVersion`. Two numbers can be compared: Kubernetes has promised their order
/// since 1.35, and they were etcd revisions long before.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum ResourceVersion {
    #[default]
    Absent,
    Number(u64),
    /// Not a number. Rare, so a second pointer is acceptable.
    #[allow(clippy::box_collection)]
    Text(Box<String>),
}

impl ResourceVersion {
    pub(crate) fn new(text: &str) -> Self {
        if text.is_empty() {
            return Self::Absent;
        }
        match text.parse::<u64>() {
            Ok(number) if !text.starts_with(['0', '+']) => Self::Number(number),
            _ => Self::Text(Box::new(text.to_owned())),
        }
    }

    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Absent => None,
            Self::Number(number) => Some(number.to_string()),
            Self::Text(text) => Some(text.to_string()),
        }
    }

    /// `false` if the two cannot be compared.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Number(a), Self::Number(b)) if a < b)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_uid_returns_the_text_it_was_made_from() {
        for text in
            ["7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c", "7A0F3B4A-dbd4-4c7d-91a3-d1688bc3926c", "u1"]
        {
            assert_eq!(Uid::new(text).text().as_deref(), Some(text));
        }
        assert_eq!(Uid::new("").text(), None);
        assert!(matches!(Uid::new("7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c"), Uid::Uuid(_)));
    }

    #[test]
    fn only_numeric_versions_can_be_compared() {
        let v = ResourceVersion::new;
        assert!(v("9").is_older_than(&v("10")));
        assert!(!v("10").is_older_than(&v("10")));
        assert!(!v("a").is_older_than(&v("b")));
        assert!(!v("").is_older_than(&v("1")));
        assert_eq!(v("007").text().as_deref(), Some("007"));
    }

    #[test]
    fn a_namespace_is_a_range_of_a_sorted_table() {
        let names = [("a", "x"), ("a-b", "x"), ("a", "y"), ("b", "x"), ("", "x")];
        let all: BTreeSet<_> = names
            .into_iter()
            .map(|(namespace, name)| NamespacedName::new(namespace, name))
            .collect();

        let in_a: Vec<_> =
            all.range(NamespacedName::all_in("a")).map(NamespacedName::name).collect();

        assert_eq!(in_a, ["x", "y"]);
        assert_eq!(size_of::<NamespacedName>(), 16);
    }
}
