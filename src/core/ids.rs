//! Names as types: clusters, kinds, objects, and the interner that makes a name four bytes.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The name of a cluster as the configuration or the log's header gives it, e.g. `org/team-1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ClusterName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a cluster is to us; one cluster may hold several roles (a project control plane, the
/// federation hub, a member next to Envoy Gateway).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A project control plane; owns the truth. Nothing is ever written there.
    Upstream,
    /// The federation hub, which holds the replicas.
    Downstream,
    /// A member cluster next to Envoy Gateway.
    Edge,
}

/// The kinds the machine takes events for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// `networking.datumapis.com/v1alpha1` Connector.
    Connector,
    /// `networking.datumapis.com/v1alpha` HTTPProxy.
    #[serde(rename = "HTTPProxy")]
    HttpProxy,
    /// `gateway.networking.k8s.io/v1` Gateway.
    Gateway,
    /// `gateway.networking.k8s.io/v1` HTTPRoute.
    #[serde(rename = "HTTPRoute")]
    HttpRoute,
    /// `v1` Namespace.
    Namespace,
}

impl Kind {
    /// Every kind, in the order of its index.
    pub const ALL: [Kind; 5] =
        [Kind::Connector, Kind::HttpProxy, Kind::Gateway, Kind::HttpRoute, Kind::Namespace];

    /// The kind as an object spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Connector => "Connector",
            Kind::HttpProxy => "HTTPProxy",
            Kind::Gateway => "Gateway",
            Kind::HttpRoute => "HTTPRoute",
            Kind::Namespace => "Namespace",
        }
    }

    /// The `apiVersion` of the kind.
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

    /// Its name in paths, e.g. `connectors`.
    pub fn plural(self) -> &'static str {
        self.resource().split('.').next().unwrap_or_default()
    }

    /// Reads `kind`; `None` for kinds that mean nothing here.
    pub fn parse(kind: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.as_str() == kind)
    }

    /// 0 to 4, for arrays with a place per kind.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Namespace and name of an object. Printed as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The number of an action, counted up from 1 within one run of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(pub u64);

/// A `metadata.uid` or a `metadata.resourceVersion` in as few bytes as its usual form allows.
/// Both are opaque to their readers; only equality is asked of a uid.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum Uid {
    #[default]
    Absent,
    Uuid([u8; 16]),
    Text(Box<str>),
}

impl Uid {
    pub(crate) fn new(text: &str) -> Uid {
        if text.is_empty() {
            return Uid::Absent;
        }
        parse_uuid(text).map_or_else(|| Uid::Text(text.into()), Uid::Uuid)
    }

    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Uid::Absent => None,
            Uid::Text(text) => Some(text.to_string()),
            Uid::Uuid(bytes) => {
                let mut out = String::with_capacity(36);
                for (i, byte) in bytes.iter().enumerate() {
                    if matches!(i, 4 | 6 | 8 | 10) {
                        out.push('-');
                    }
                    out.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
                    out.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
                }
                Some(out)
            }
        }
    }
}

/// Reads the canonical lower-case form only, so that [`Uid::text`] gives the same bytes back.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 {
        return None;
    }
    let mut out = [0; 16];
    let mut nibbles = 0;
    for (i, &byte) in text.iter().enumerate() {
        if matches!(i, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        let nibble = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        out[nibbles / 2] = out[nibbles / 2] << 4 | nibble;
        nibbles += 1;
    }
    Some(out)
}

/// A `metadata.resourceVersion`. Compared only for being older, and only when both are numbers
/// (comparable since Kubernetes 1.35, and in fact an etcd revision ever before).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum ResourceVersion {
    #[default]
    Absent,
    Number(u64),
    /// Not a number; rare, so that it may cost a second pointer.
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

    /// Known to be from before `other`. Not comparable means no.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Number(a), Self::Number(b)) if a < b)
    }
}

/// A name, interned: equal names have equal symbols within one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sym(u32);

/// Namespace and name, interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) ns: Sym,
    pub(crate) name: Sym,
}

/// A place in the machine's table of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterId(pub(crate) u16);

/// Strings once each. Fleets name the same things in every tier; here that costs four bytes.
#[derive(Default)]
pub(crate) struct Names {
    /// By hash; a name whose hash is taken by another stands at the next free one.
    by_hash: Map<u64, Sym>,
    /// All names, one after another, and where each ends.
    texts: String,
    ends: Vec<u32>,
}

impl Names {
    pub(crate) fn intern(&mut self, text: &str) -> Sym {
        let hash = match self.place(text) {
            Ok(sym) => return sym,
            Err(free) => free,
        };
        let sym = Sym(u32::try_from(self.ends.len()).unwrap_or(u32::MAX));
        self.texts.push_str(text);
        self.ends.push(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.by_hash.insert(hash, sym);
        sym
    }

    /// The symbol of a name, or the hash under which it would stand.
    fn place(&self, text: &str) -> Result<Sym, u64> {
        let mut hash = xxh3_64(text.as_bytes());
        while let Some(&sym) = self.by_hash.get(&hash) {
            if self.text(sym) == text {
                return Ok(sym);
            }
            hash = hash.wrapping_add(1);
        }
        Err(hash)
    }

    pub(crate) fn key(&mut self, namespace: &str, name: &str) -> Key {
        Key { ns: self.intern(namespace), name: self.intern(name) }
    }

    /// The key of names that were interned before.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Key> {
        let find = |text| self.place(text).ok();
        Some(Key { ns: find(namespace)?, name: find(name)? })
    }

    pub(crate) fn text(&self, sym: Sym) -> &str {
        let at = sym.0 as usize;
        let start =
            at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |e| *e as usize);
        let end = self.ends.get(at).map_or(start, |e| *e as usize);
        self.texts.get(start..end).unwrap_or_default()
    }

    pub(crate) fn object_key(&self, key: Key) -> ObjectKey {
        ObjectKey::new(self.text(key.ns), self.text(key.name))
    }
}

/// A hasher without a random seed: the machine may not depend on anything but its events.
/// Map iteration order still never reaches an output.
#[derive(Default)]
pub(crate) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(23) ^ xxh3_64(bytes);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

pub(crate) type FixedState = BuildHasherDefault<FixedHasher>;
pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;

/// A 128-bit fingerprint of bytes; stable across versions and machines.
pub(crate) fn fingerprint(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_gives_back_the_text_it_was_made_of() {
        for text in
            ["7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c", "7A0F3B4A-dbd4-4c7d-91a3-d1688bc3926c", "u1"]
        {
            assert_eq!(Uid::new(text).text().as_deref(), Some(text));
        }
        assert_eq!(Uid::new("").text(), None);
        assert!(matches!(Uid::new("7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c"), Uid::Uuid(_)));
    }

    #[test]
    fn only_numbers_have_an_age() {
        let v = ResourceVersion::new;
        assert!(v("9").is_older_than(&v("10")));
        assert!(!v("10").is_older_than(&v("10")));
        assert!(!v("a").is_older_than(&v("b")));
        assert!(!v("").is_older_than(&v("1")));
        assert_eq!(v("007").text().as_deref(), Some("007"));
    }

    #[test]
    fn a_name_is_interned_once() {
        let mut names = Names::default();
        let a = names.key("ns", "x");
        assert_eq!(a, names.key("ns", "x"));
        assert_ne!(a, names.key("x", "ns"));
        assert_eq!(names.object_key(a).to_string(), "ns/x");
    }
}
