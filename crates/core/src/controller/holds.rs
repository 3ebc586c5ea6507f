//! How many annotations of an upstream are held, and for which reason. What holds one often holds a
//! thousand, so a reason is reported when it begins and when it ends.

use std::collections::BTreeMap;

use crate::contract::hold_reason::HoldReason;

#[derive(Debug, Default)]
pub(crate) struct Holds {
    counts: BTreeMap<HoldReason, u64>,
    /// How many there were when that was last reported.
    reported: BTreeMap<HoldReason, u64>,
}

impl Holds {
    /// One annotation is held for another reason than before.
    pub(super) fn count(&mut self, before: Option<HoldReason>, held: Option<HoldReason>) {
        if let Some(before) = before.and_then(|reason| self.counts.get_mut(&reason)) {
            *before = before.saturating_sub(1);
        }
        if let Some(held) = held {
            *self.counts.entry(held).or_default() += 1;
        }
        self.counts.retain(|_, count| *count > 0);
    }

    pub(super) fn has_news(&self) -> bool {
        !self.counts.keys().eq(self.reported.keys())
    }

    /// The reasons that began or ended since the last report, and how many they hold now. Who only
    /// waits for its turn needs nobody.
    pub(super) fn take_news(&mut self) -> Vec<(HoldReason, u64)> {
        let before = std::mem::replace(&mut self.reported, self.counts.clone());
        let is_news = |reason: &HoldReason| {
            self.counts.contains_key(reason) != before.contains_key(reason) && !reason.is_turn()
        };
        let count = |reason| (reason, self.counts.get(&reason).copied().unwrap_or_default());
        HoldReason::ALL.into_iter().filter(is_news).map(count).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.reported.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_news_when_it_begins_and_when_it_ends() {
        let missing = HoldReason::NamespaceMissing;
        let mut holds = Holds::default();
        holds.count(None, Some(missing));
        holds.count(None, Some(missing));
        assert!(holds.has_news());
        assert_eq!(holds.take_news(), [(missing, 2)]);

        holds.count(Some(missing), None);
        assert!(!holds.has_news(), "one is left");
        holds.count(Some(missing), Some(HoldReason::TooMany));
        assert_eq!(holds.take_news(), [(missing, 0), (HoldReason::TooMany, 1)]);

        holds.count(Some(HoldReason::TooMany), Some(HoldReason::Budget));
        assert_eq!(holds.take_news(), [(HoldReason::TooMany, 0)], "a turn is no news");
        holds.count(Some(HoldReason::Budget), None);
        assert_eq!(holds.take_news(), []);
        assert!(holds.is_empty());
    }
}
