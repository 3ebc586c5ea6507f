//! The command line; exit codes.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // A log's error tells its cause itself; of others the causes are told in a row.
            if error.is::<throughline::event_log::LogError>() {
                eprintln!("throughline: {error}");
            } else {
                eprintln!("throughline: {error:#}");
            }
            ExitCode::from(cli::BAD_INPUT)
        }
    }
}
