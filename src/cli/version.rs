//! `throughline version`.

use std::process::ExitCode;

use throughline::build_info::{COMMIT, VERSION};

use super::out::print;

pub(super) fn run() -> anyhow::Result<ExitCode> {
    print(&format!("throughline {VERSION} (commit {COMMIT})\n"))?;
    Ok(ExitCode::SUCCESS)
}
