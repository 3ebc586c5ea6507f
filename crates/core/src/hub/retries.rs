//! The mirrors of one hub whose last attempt failed: which of them is tried next, and when.
//!
//! Each is due when its pause ends, at no more than [`CARRIER_RATE`]. Namespaces are served in turn, so that no
//! tenant waits for another one's thousand.
//!
//! What was refused is tried in turn, spread over the pause: of n that wait, one every nth part of it.
//! Otherwise a thousand that are refused in one moment would all be tried in one moment, and a permission
//! that comes back right after that would go unnoticed for the whole pause.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::limits::CARRIER_RATE;
use super::mirror::Mirror;
use crate::clusters::Place;
use crate::context::WriteTarget;
use crate::data::ids::ClusterId;
use crate::data::interner::Key;
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::flight::Retry;
use crate::machine::Machine;
use crate::rate_limit::RateLimiter;
use crate::subject::Subject;
use crate::timers::Due;

/// A retry, by the end of its pause, and then by its names.
type Entry = (UnixMillis, Subject);

#[derive(Default)]
pub(crate) struct Retries {
    waiting: BTreeMap<Key, (Subject, Retry)>,
    /// Those whose pause is not over.
    paused: BTreeSet<Entry>,
    /// Those of them that were refused.
    refused: BTreeSet<Entry>,
    /// Those whose pause is over.
    due: BTreeMap<Box<str>, BTreeSet<Entry>>,
    /// The namespace that was served last.
    last_namespace: Option<Box<str>>,
    /// When one that was refused was last tried.
    tried_at: UnixMillis,
    limiter: RateLimiter,
    /// Whose turn it is.
    turn: Option<Key>,
}

impl HoldsNames for Retries {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            waiting,
            // These have the same keys.
            paused: _,
            refused: _,
            due: _,
            last_namespace: _,
            tried_at: _,
            limiter: _,
            turn,
        } = self;
        waiting.keys().for_each(|key| key.mark(used));
        turn.mark(used);
    }
}

impl Retries {
    fn insert(&mut self, key: Key, subject: Subject, retry: Retry) {
        let Retry { at, is_refused } = retry;
        self.waiting.insert(key, (subject.clone(), retry));
        self.paused.insert((at, subject.clone()));
        if is_refused {
            self.refused.insert((at, subject));
        }
    }

    /// Nobody waits without a Lease. Who comes to lead looks at each again.
    pub(crate) fn clear(&mut self) {
        let Self { tried_at, limiter, .. } = *self;
        *self = Self { tried_at, limiter, ..Self::default() };
    }

    pub(super) fn remove(&mut self, key: Key) {
        let Some((subject, Retry { at, .. })) = self.waiting.remove(&key) else { return };
        let entry = (at, subject);
        self.paused.remove(&entry);
        self.refused.remove(&entry);
        let namespace = entry.1.namespace();
        if let Some(of_namespace) = self.due.get_mut(namespace) {
            of_namespace.remove(&entry);
            if of_namespace.is_empty() {
                self.due.remove(namespace);
            }
        }
    }

    /// Gives the turn to the next one. Otherwise returns when to ask again; never while none waits.
    fn give_turn(&mut self, now: UnixMillis, pause_ms: u64) -> Result<Key, UnixMillis> {
        self.move_due(now);
        let ready_at = self.limiter.ready_at(CARRIER_RATE);
        let at = self.next_at(pause_ms).ok_or(UnixMillis::NEVER)?.max(ready_at);
        if at > now {
            return Err(at);
        }

        let next = self.next_due().or(self.refused.first());
        let (_, subject) = next.cloned().ok_or(UnixMillis::NEVER)?;
        let WriteTarget::HubConnector(Place { key, .. }) = subject.target else {
            return Err(UnixMillis::NEVER);
        };
        if self.waiting.get(&key).is_some_and(|(_, retry)| retry.is_refused) {
            self.tried_at = now;
        }
        self.remove(key);
        self.last_namespace = Some(subject.namespace().into());
        self.limiter.take(CARRIER_RATE, now);
        self.turn = Some(key);
        Ok(key)
    }

    fn move_due(&mut self, now: UnixMillis) {
        while self.paused.first().is_some_and(|(at, _)| *at <= now)
            && let Some(entry) = self.paused.pop_first()
        {
            self.refused.remove(&entry);
            self.due.entry(entry.1.namespace().into()).or_default().insert(entry);
        }
    }

    fn next_at(&self, pause_ms: u64) -> Option<UnixMillis> {
        if !self.due.is_empty() {
            return Some(UnixMillis(0));
        }
        let (first_end, _) = self.paused.first()?;
        Some(self.next_refused_at(pause_ms).map_or(*first_end, |at| at.min(*first_end)))
    }

    /// A share of the pause after the last one was tried, or the first of them was refused.
    fn next_refused_at(&self, pause_ms: u64) -> Option<UnixMillis> {
        let (first_end, _) = self.refused.first()?;
        let refused_at = UnixMillis(first_end.0.saturating_sub(pause_ms));
        let share_ms = pause_ms / self.refused.len() as u64;
        Some(self.tried_at.max(refused_at).plus(share_ms))
    }

    /// The oldest of the namespace after the one that was served last.
    fn next_due(&self) -> Option<&Entry> {
        let after_last = (self.last_namespace.as_deref().map_or(Unbounded, Excluded), Unbounded);
        let next = self.due.range::<str, _>(after_last).next();
        let (_, of_namespace) = next.or_else(|| self.due.first_key_value())?;
        of_namespace.first()
    }
}

impl Mirror<'_> {
    /// Whether a mirror that routes may be written by what became of the last one. A retry waits for its
    /// turn.
    pub(super) fn may_retry(&mut self) -> bool {
        let Some(repair) = &mut self.connector.repair else { return true };
        let Some(retry) = repair.flight.retry() else { return true };
        if self.retries.turn == Some(self.at.key) {
            repair.flight.on_turn();
            return true;
        }
        let subject = Subject::new(WriteTarget::HubConnector(self.at), &self.ctx.names);
        self.retries.insert(self.at.key, subject, retry);
        self.ctx.timers.no_later(Due::Retries(self.at.cluster), self.ctx.now);
        false
    }
}

impl Machine {
    /// Retries of a hub may be due. Gives a turn to each.
    pub(crate) fn write_retries(&mut self, cluster: ClusterId) {
        loop {
            let Self { ctx, hubs, .. } = self;
            let Some(hub) = hubs.get_mut(&cluster) else { return };
            // Whoever comes to lead looks at each that waits.
            if !ctx.leads() {
                return;
            }
            let turn = hub.retries.give_turn(ctx.now, ctx.settings.retry.max_ms);
            let key = match turn {
                Ok(key) => key,
                Err(at) => return ctx.timers.no_later(Due::Retries(cluster), at),
            };
            self.evaluate_hub_connector(Place { cluster, key });
            if let Some(hub) = self.hubs.get_mut(&cluster) {
                hub.retries.turn = None;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crate::data::interner::Names;

    const NOW: u64 = 1_000_000;
    const PAUSE_MS: u64 = 30_000;

    struct Stage {
        names: Names,
        retries: Retries,
        now: UnixMillis,
        /// How long the API server takes to refuse a write.
        answer_ms: u64,
    }

    impl Stage {
        fn new() -> Self {
            let (names, retries) = (Names::default(), Retries::default());
            Self { names, retries, now: UnixMillis(NOW), answer_ms: 0 }
        }

        fn add(&mut self, ns: &str, n: u64, pause_ms: u64, is_refused: bool) -> Key {
            let key = self.names.key(ns, &n.to_string());
            let retry = Retry { at: self.now.plus(pause_ms), is_refused };
            self.insert(key, retry);
            key
        }

        fn insert(&mut self, key: Key, retry: Retry) {
            let at = Place { cluster: ClusterId(0), key };
            let subject = Subject::new(WriteTarget::HubConnector(at), &self.names);
            self.retries.insert(key, subject, retry);
        }

        /// Who is tried within so long, and when, in milliseconds after the start. What is refused is
        /// refused again.
        fn tried(&mut self, for_ms: u64, is_refused: bool) -> Vec<(u64, Key)> {
            let (end, mut tried) = (UnixMillis(NOW + for_ms), Vec::new());
            loop {
                match self.retries.give_turn(self.now, PAUSE_MS) {
                    Ok(key) => {
                        tried.push((self.now.0 - NOW, key));
                        if is_refused {
                            let at = self.now.plus(self.answer_ms + PAUSE_MS);
                            self.insert(key, Retry { at, is_refused: true });
                        }
                    }
                    Err(at) if at > end => return tried,
                    Err(at) => self.now = at,
                }
            }
        }
    }

    #[test]
    fn what_is_refused_in_one_moment_is_tried_evenly_over_each_pause() {
        for count in [1, 2, 7, 200, 600] {
            let mut stage = Stage::new();
            let keys: BTreeSet<_> = (0..count).map(|n| stage.add("a", n, PAUSE_MS, true)).collect();
            let tried = stage.tried(4 * PAUSE_MS, true);
            let times: Vec<_> = tried.iter().map(|(at, _)| *at).collect();
            assert_eq!(times[0], PAUSE_MS / count, "{count}");
            assert!(times.windows(2).all(|w| w[1] - w[0] <= PAUSE_MS / count), "{count}");
            for round in tried.chunks_exact(count as usize) {
                assert_eq!(round.iter().map(|(_, key)| *key).collect::<BTreeSet<_>>(), keys);
            }
            assert!(tried.len() as u64 >= 4 * count - 1, "{count}: {}", tried.len());
        }
    }

    #[test]
    fn they_stay_spread_however_long_the_answers_take() {
        for answer_ms in [3, 70, 2_000] {
            let mut stage = Stage { answer_ms, ..Stage::new() };
            (0..200).for_each(|n| _ = stage.add("a", n, PAUSE_MS, true));
            let tried = stage.tried(10 * PAUSE_MS, true);
            let gaps = tried.windows(2).map(|pair| pair[1].0 - pair[0].0);
            assert!(gaps.into_iter().all(|gap| gap == PAUSE_MS / 200), "{answer_ms}");
        }
    }

    #[test]
    fn at_most_twenty_a_second_are_tried_however_many_wait() {
        let mut stage = Stage::new();
        (0..3_000).for_each(|n| _ = stage.add("a", n, PAUSE_MS, true));
        let tried = stage.tried(2 * PAUSE_MS, true);
        for (i, (at, _)) in tried.iter().enumerate() {
            let within = tried[i..].iter().take_while(|(other, _)| *other < at + 1_000).count();
            assert!(within <= 40, "{within} in a second");
        }
        assert!((1_200..=1_240).contains(&tried.len()), "{}", tried.len());
    }

    #[test]
    fn what_could_not_be_reached_waits_for_the_end_of_its_pause() {
        let mut stage = Stage::new();
        (0..30).for_each(|n| _ = stage.add("a", n, 4_000, false));
        let times: Vec<_> = stage.tried(PAUSE_MS, false).iter().map(|(at, _)| *at).collect();
        assert!(times[..20].iter().all(|at| *at == 4_000), "{times:?}");
        assert_eq!((times[20], times[29], times.len()), (4_050, 4_500, 30));
    }

    #[test]
    fn a_tenant_does_not_wait_for_another_ones_thousand() {
        let mut stage = Stage::new();
        (0..1_000).for_each(|n| _ = stage.add("a", n, 1_000, false));
        let other = stage.add("b", 0, 1_001, false);
        let tried = stage.tried(PAUSE_MS, false);
        let place = tried.iter().position(|(_, key)| *key == other).unwrap();
        assert!(place <= 21, "{place}");
    }

    #[test]
    fn what_leaves_is_not_tried() {
        let mut stage = Stage::new();
        let keys =
            [false, true].map(|is_refused| stage.add("a", is_refused.into(), PAUSE_MS, is_refused));
        keys.into_iter().for_each(|key| stage.retries.remove(key));
        assert_eq!(stage.retries.give_turn(stage.now, PAUSE_MS), Err(UnixMillis::NEVER));
        assert!(stage.retries.waiting.is_empty() && stage.retries.refused.is_empty());
    }
}
