//! Touches that wait because their edge takes no more of them at a time.

use serde::{Deserialize, Serialize};

/// How many touches of an edge are due and wait, and how fast they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TouchesWaiting {
    /// Each is of one Gateway; 0 when it is over.
    pub touches: u64,
    pub per_second: u32,
}

impl TouchesWaiting {
    /// How long they take, in seconds, if no more come.
    pub fn seconds(self) -> u64 {
        self.touches.div_ceil(u64::from(self.per_second).max(1))
    }
}

impl std::fmt::Display for TouchesWaiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.touches == 0 {
            return f.write_str("no touch waits any longer");
        }
        let (nouns, verb) =
            if self.touches == 1 { ("touch", "waits") } else { ("touches", "wait") };
        let Self { touches, per_second, .. } = self;
        let seconds = self.seconds();
        write!(f, "{touches} {nouns} {verb}; about {seconds} s at {per_second} a second")
    }
}
