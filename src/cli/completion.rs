//! `throughline completion`: scripts that complete commands and flags in a shell.

use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};
use clap_complete::{Shell, generate};

use super::{Cli, out};

#[derive(Debug, Args)]
pub(super) struct CompletionArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    out::print_with(|out| Ok(out.write_all(&script(args.shell))?))?;
    Ok(ExitCode::SUCCESS)
}

/// The script for one shell; a release also contains them.
pub(crate) fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    let mut command: Command = Cli::command();
    generate(shell, &mut command, "throughline", &mut script);
    script
}
