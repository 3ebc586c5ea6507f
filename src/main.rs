//! The `throughline` program: runs a command and sets the exit code.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // A log error already includes its cause; for other errors, print the chain.
            if error.is::<throughline::event_log::LogError>() {
                eprintln!("throughline: {error}");
            } else {
                eprintln!("throughline: {error:#}");
            }
            ExitCode::from(cli::BAD_INPUT)
        }
    }
}
