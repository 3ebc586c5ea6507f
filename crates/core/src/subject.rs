//! What waits in a queue: what a write is decided for, and the names by which queues order it.

use std::sync::Arc;

use super::context::WriteTarget;
use super::data::interner::Names;
use super::data::used_names::{HoldsNames, UsedNames};
use super::edge::touch_state::TouchTarget;

/// A target in the order of its names, which no order of interned symbols follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    /// `namespace\0name`: the separator sorts before every other character, so the order of the texts
    /// is that of the two names.
    names: Arc<str>,
    pub(crate) target: WriteTarget,
}

impl Subject {
    const SEPARATOR: char = '\0';

    pub(crate) fn new(target: WriteTarget, names: &Names) -> Self {
        let (namespace, name) = match target {
            WriteTarget::HubConnector(at) => (names.text(at.key.ns), names.text(at.key.name)),
            WriteTarget::Touch(_, TouchTarget::Gateway(key)) | WriteTarget::Route(_, key) => {
                (names.text(key.ns), names.text(key.name))
            }
            // A class belongs to no namespace and stands for its own.
            WriteTarget::Touch(_, TouchTarget::Class(class)) => (names.text(class), ""),
        };
        Self { names: format!("{namespace}{}{name}", Self::SEPARATOR).into(), target }
    }

    /// Queues serve namespaces in turn.
    pub(crate) fn namespace(&self) -> &str {
        self.names.split_once(Self::SEPARATOR).map_or(&*self.names, |(namespace, _)| namespace)
    }
}

impl HoldsNames for Subject {
    fn mark(&self, used: &mut UsedNames) {
        let Self { names: _, target } = self;
        target.mark(used);
    }
}
