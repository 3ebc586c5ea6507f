//! A list that usually has at most one entry, which it then stores without an allocation.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum OneOrMany<T> {
    #[default]
    None,
    One(T),
    /// Boxed, so that the usual cases take little memory.
    #[allow(clippy::box_collection)]
    Many(Box<Vec<T>>),
}

impl<T> OneOrMany<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            OneOrMany::None => &[],
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub(crate) fn push(&mut self, new: T) {
        *self = match std::mem::take(self) {
            OneOrMany::None => OneOrMany::One(new),
            OneOrMany::One(one) => OneOrMany::Many(Box::new(vec![one, new])),
            OneOrMany::Many(mut many) => {
                many.push(new);
                OneOrMany::Many(many)
            }
        };
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        match self {
            OneOrMany::None => {}
            OneOrMany::One(one) if keep(one) => {}
            OneOrMany::One(_) => *self = OneOrMany::None,
            OneOrMany::Many(many) => many.retain(keep),
        }
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut list = OneOrMany::None;
        entries.into_iter().for_each(|entry| list.push(entry));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_behaves_like_a_list() {
        let mut list: OneOrMany<u32> = OneOrMany::default();
        assert!(list.is_empty());
        for n in 1..=3 {
            list.push(n);
            assert_eq!(list.as_slice(), (1..=n).collect::<Vec<_>>());
        }
        list.retain(|n| *n != 2);
        assert_eq!(list.as_slice(), [1, 3]);
        list.retain(|n| *n > 3);
        assert!(list.is_empty());
        let mut one: OneOrMany<u32> = [7].into_iter().collect();
        one.retain(|n| *n == 7);
        assert_eq!(one, OneOrMany::One(7));
        one.retain(|n| *n != 7);
        assert_eq!(one, OneOrMany::None);
        assert_eq!(size_of::<OneOrMany<u64>>(), 16);
    }
}
