//! The build of throughline.

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that the program was built from. `release/build` sets it; other builds say `unknown`,
/// because they may contain uncommitted changes.
pub const COMMIT: &str = match option_env!("THROUGHLINE_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => "unknown",
};
