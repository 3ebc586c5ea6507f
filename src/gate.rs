//! The gate before leader-only work: asked at the queue and again before every try.

/// Whether leader-only work may go to the wire.
#[derive(Clone, Debug)]
pub struct Gate {}

impl Gate {
    /// A gate for a process that always leads (`leaderElection.enabled: false`).
    pub fn always_open() -> Self {
        Self {}
    }

    /// Whether it is open at this moment.
    pub fn is_open(&self) -> bool {
        true
    }
}
