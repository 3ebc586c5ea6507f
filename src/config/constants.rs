//! What no key sets: users have no reason to change it. Tests do.

use serde::{Deserialize, Serialize};

use crate::core::contract::settings::Settings;

/// Values that are not keys. The keys override the machine's settings among them
/// ([`Config::settings`](super::Config::settings)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Constants {
    pub settings: Settings,
    pub watch: WatchConstants,
    pub executor: ExecutorConstants,
    pub election: ElectionConstants,
    /// The most Events, in all clusters together, that are sent in any 60 seconds.
    pub events_per_minute: u32,
    /// How long a run that stops waits for writes in flight before abandoning them.
    pub shutdown_grace_ms: u64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            watch: WatchConstants::default(),
            executor: ExecutorConstants::default(),
            election: ElectionConstants::default(),
            events_per_minute: 30,
            shutdown_grace_ms: 10_000,
        }
    }
}

/// How watches list, wait and retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchConstants {
    /// Objects per page of an initial list.
    pub page_size: u32,
    /// First lists of one API server that may be under way at the same time.
    pub lists_in_parallel: usize,
    /// The limit for the answer to a request or one page of a list.
    pub timeout_ms: u64,
    /// A watch that delivers no byte, not even a bookmark, for this long is restarted. API servers
    /// send a bookmark about once a minute.
    pub silent_after_ms: u64,
    /// The first pause after a failure; it doubles, with jitter.
    pub backoff_first_ms: u64,
    pub backoff_max_ms: u64,
    /// Events that may wait for the machine; when the queue is full, the watches wait.
    pub queue: usize,
}

impl Default for WatchConstants {
    fn default() -> Self {
        Self {
            page_size: 500,
            lists_in_parallel: 8,
            timeout_ms: 15_000,
            silent_after_ms: 90_000,
            backoff_first_ms: 250,
            backoff_max_ms: 10_000,
            queue: 1024,
        }
    }
}

/// The limits on parallel writes and on the time of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecutorConstants {
    /// Writes in flight at the same time to one kind in one cluster, each to a different object.
    pub parallel: usize,
    /// The limit for one write.
    pub timeout_ms: u64,
}

impl Default for ExecutorConstants {
    fn default() -> Self {
        Self { parallel: 16, timeout_ms: 5_000 }
    }
}

/// Timings that do not follow from the Lease's duration alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ElectionConstants {
    /// Two thirds of the Lease's duration if absent.
    pub renew_deadline_ms: Option<u64>,
    /// Two fifteenths of the Lease's duration if absent.
    pub retry_ms: Option<u64>,
}
