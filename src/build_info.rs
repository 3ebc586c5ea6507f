//! Which build of throughline this is, and since when it runs.

use serde::Serialize;

use crate::core::data::time::UnixMillis;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that the program was built from. `release/build` names it; other builds say `unknown`,
/// because they may hold changes that no commit has.
pub const COMMIT: &str = match option_env!("THROUGHLINE_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => "unknown",
};

/// A running instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceInfo {
    pub version: String,
    pub commit: String,
    /// Since when it serves its admin port.
    pub since_ms: UnixMillis,
}

impl InstanceInfo {
    /// Of this process.
    pub fn since(since_ms: UnixMillis) -> Self {
        Self { version: VERSION.to_owned(), commit: COMMIT.to_owned(), since_ms }
    }
}
