//! The `throughline` program: runs a command and sets the exit code.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use throughline::outside_text::lines;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // A log error already includes its cause; other errors need the chain.
            if error.is::<throughline::event_log::LogError>() {
                eprintln!("throughline: {}", lines(&error.to_string()));
            } else {
                eprintln!("throughline: {}", lines(&format!("{error:#}")));
            }
            ExitCode::from(cli::BAD_INPUT)
        }
    }
}
