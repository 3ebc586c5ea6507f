//! The `throughline` program: runs a command and sets the exit code.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use throughline::outside_text::lines;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("throughline: {}", lines(&format!("{error:#}")));
            ExitCode::from(cli::BAD_INPUT)
        }
    }
}
