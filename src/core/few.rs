//! A list that mostly has one entry, and then needs no memory beside its owner's.

/// None, one, or many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Few<T> {
    #[default]
    None,
    One(T),
    /// Boxed, so that the usual cases stay small.
    #[allow(clippy::box_collection)]
    Many(Box<Vec<T>>),
}

impl<T> Few<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Few::None => &[],
            Few::One(one) => std::slice::from_ref(one),
            Few::Many(many) => many,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub(crate) fn push(&mut self, new: T) {
        *self = match std::mem::take(self) {
            Few::None => Few::One(new),
            Few::One(one) => Few::Many(Box::new(vec![one, new])),
            Few::Many(mut many) => {
                many.push(new);
                Few::Many(many)
            }
        };
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        match self {
            Few::None => {}
            Few::One(one) if keep(one) => {}
            Few::One(_) => *self = Few::None,
            Few::Many(many) => many.retain(keep),
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut few = Few::None;
        entries.into_iter().for_each(|entry| few.push(entry));
        few
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list() {
        let mut few: Few<u32> = Few::default();
        assert!(few.is_empty());
        for n in 1..=3 {
            few.push(n);
            assert_eq!(few.as_slice(), (1..=n).collect::<Vec<_>>());
        }
        few.retain(|n| *n != 2);
        assert_eq!(few.as_slice(), [1, 3]);
        few.retain(|n| *n > 3);
        assert!(few.is_empty());
        let mut one: Few<u32> = [7].into_iter().collect();
        one.retain(|n| *n == 7);
        assert_eq!(one, Few::One(7));
        one.retain(|n| *n != 7);
        assert_eq!(one, Few::None);
        assert_eq!(size_of::<Few<u64>>(), 16);
    }
}
