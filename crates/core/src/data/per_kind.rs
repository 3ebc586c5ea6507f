//! A table with one entry for each [`Kind`]. Its size follows from the enum.

use std::ops::{Index, IndexMut};

use crate::data::ids::Kind;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerKind<T>([T; Kind::ALL.len()]);

impl<T> PerKind<T> {
    pub fn from_fn(entry: impl FnMut(Kind) -> T) -> Self {
        Self(Kind::ALL.map(entry))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

impl<T> Index<Kind> for PerKind<T> {
    type Output = T;

    fn index(&self, kind: Kind) -> &T {
        &self.0[kind as usize]
    }
}

impl<T> IndexMut<Kind> for PerKind<T> {
    fn index_mut(&mut self, kind: Kind) -> &mut T {
        &mut self.0[kind as usize]
    }
}
