//! The build of throughline, and the start of the running instance.

use serde::Serialize;

use crate::core::data::time::UnixMillis;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that the program was built from. `release/build` sets it; other builds say `unknown`,
/// because they may contain uncommitted changes.
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
    /// When it started to serve its admin port.
    pub since_ms: UnixMillis,
}

impl InstanceInfo {
    /// The instance of this process.
    pub fn since(since_ms: UnixMillis) -> Self {
        Self { version: VERSION.to_owned(), commit: COMMIT.to_owned(), since_ms }
    }
}
