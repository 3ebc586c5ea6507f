//! Checking a configuration where its other files are not: what nobody looked at.

use std::collections::{BTreeMap, BTreeSet};

/// What a check without the other files did not see.
#[derive(Debug, Default)]
pub(super) struct Unchecked {
    /// The contexts that each kubeconfig should have; `None` is its current one.
    kubeconfigs: BTreeMap<String, BTreeSet<Option<String>>>,
    others: Vec<String>,
}

impl Unchecked {
    pub(super) fn kubeconfig(&mut self, file: String, context: Option<&str>) {
        let contexts = self.kubeconfigs.entry(file).or_default();
        contexts.insert(context.map(ToOwned::to_owned));
    }

    pub(super) fn other(&mut self, what: String) {
        self.others.push(what);
    }

    /// A sentence part for each file: `/etc/kubeconfig: whether it can be read and has …`.
    pub(super) fn lines(self) -> Vec<String> {
        let kubeconfigs = self.kubeconfigs.into_iter().map(|(file, contexts)| {
            let mut parts = Vec::new();
            if contexts.contains(&None) {
                parts.push("a current context".to_owned());
            }
            let names: Vec<_> = contexts.into_iter().flatten().collect();
            match names.as_slice() {
                [] => {}
                [name] => parts.push(format!("the context {name}")),
                names => parts.push(format!("the contexts {}", names.join(", "))),
            }
            format!("{file}: whether it can be read and has {}", parts.join(" and "))
        });
        kubeconfigs.chain(self.others).collect()
    }
}
