//! The command line; exit codes.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("throughline: {error:#}");
            ExitCode::from(cli::BAD_INPUT)
        }
    }
}
