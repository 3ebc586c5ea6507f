//! Namespace and name of an object, as the key of sorted tables.

use std::ops::Bound;
use std::sync::Arc;

use crate::data::ids::ObjectKey;

/// Namespace and name in one shared text, so a key takes a pointer and a length.
///
/// The separator sorts before every other character. So the text order is the order of (namespace,
/// name), and the objects of one namespace are adjacent in a sorted table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName(Arc<str>);

impl NamespacedName {
    const SEPARATOR: char = '\0';
    const AFTER_SEPARATOR: char = '\u{1}';

    pub fn new(namespace: &str, name: &str) -> Self {
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

    /// The same name in the contract's form.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
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

impl From<&ObjectKey> for NamespacedName {
    fn from(key: &ObjectKey) -> Self {
        Self::new(&key.namespace, &key.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
