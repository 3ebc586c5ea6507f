//! What must hold once nothing fails any more, and everything has had its time.

use std::time::Duration;

/// Nothing is written for so long before the end.
pub(crate) const QUIET_FOR: Duration = Duration::from_secs(30);
/// An action has its outcome so long after it was decided and the last fault is over: requests that hang
/// time out, and the attempts that follow succeed.
const OUTCOME_WITHIN: Duration = Duration::from_secs(15);
/// An instance may hold so many times what one holds that has just started, and so much more: maps do not
/// give back their room, and a leader knows more than one that waits.
const HELD_TIMES: f64 = 2.0;
const HELD_MORE: i64 = 64 * 1024;
/// One cause often has many effects.
const SHOWN: usize = 8;

/// The world as it is some time after the last fault.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtRest {
    /// What differs from the truth upstream.
    pub(crate) deviations: Vec<String>,
    /// How long ago something was written.
    pub(crate) last_write: Option<Duration>,
    /// What is left over: watches that no instance needs.
    pub(crate) left: Vec<String>,
    /// What is still wrong, as an instance says.
    pub(crate) problems: Vec<String>,
    /// Actions without an outcome, and for how long they could have had one.
    pub(crate) open: Vec<(Duration, String)>,
    /// How many instances have ended though nobody stopped them.
    pub(crate) ended: usize,
}

impl AtRest {
    /// Actions that still have no outcome.
    pub(crate) fn late_outcomes(&self) -> Vec<String> {
        let late = self.open.iter().filter(|(open, _)| *open > OUTCOME_WITHIN);
        late.map(|(open, what)| format!("{what} has no outcome after {} s", open.as_secs()))
            .collect()
    }

    /// What must not be so at the end. `quiet_for`: for so long nothing was to be written.
    pub(crate) fn broken(&self, quiet_for: Duration) -> Vec<String> {
        let right = |deviation: &String| format!("right at first, and later {deviation}");
        let mut broken: Vec<_> = self.deviations.iter().take(SHOWN).map(right).collect();
        if let Some(ago) = self.last_write.filter(|ago| *ago < quiet_for) {
            broken.push(format!("a write {} s before the end", ago.as_secs()));
        }
        broken.extend(self.left.iter().cloned());
        let problem = |sentence: &String| format!("still wrong: {sentence}");
        broken.extend(self.problems.iter().take(SHOWN).map(problem));
        let open = |(_, what): &(Duration, String)| format!("{what} has no outcome");
        broken.extend(self.open.iter().take(SHOWN).map(open));
        if self.ended > 0 {
            broken.push(format!("{} instances ended by themselves", self.ended));
        }
        broken
    }
}

/// What an instance holds in memory at rest, beside what one holds that has just started in the same world.
pub(crate) fn grown(name: &str, held: i64, fresh: i64) -> Option<String> {
    let most = HELD_TIMES * fresh as f64 + HELD_MORE as f64;
    (held as f64 > most)
        .then(|| format!("{name} holds {held} bytes at rest; one that has just started {fresh}"))
}
