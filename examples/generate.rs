//! Generates the man pages and shell completions of a release.
//!
//! `cargo run --example generate -- DIR` writes `DIR/man` and `DIR/completions`.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "only the definition of the command line is used"
)]

#[path = "../src/cli/mod.rs"]
mod cli;

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::{Generator, Shell};
use clap_mangen::Man;
use roff::{Roff, bold, roman};

const NAME: &str = "throughline";
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os().nth(1).context("usage: generate DIR")?;
    generate(Path::new(&folder))
}

fn generate(folder: &Path) -> anyhow::Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let mut command = cli::Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &man)?;
    for shell in SHELLS {
        let file = completions.join(shell.file_name(NAME));
        fs::write(&file, cli::completion::script(shell))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Writes the man page of a command and those of the commands below it.
fn write_pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for below in command.get_subcommands() {
        write_pages(below, folder)?;
    }
    let file = folder.join(Man::new(command.clone()).get_filename());
    fs::write(&file, page(command)?).with_context(|| format!("writing {}", file.display()))
}

/// The page carries no date, so the same source produces the same bytes.
fn page(command: &Command) -> anyhow::Result<Vec<u8>> {
    let (about, exit_codes) = about_and_exit_codes(command);
    let mut command = command.clone();
    if let Some(about) = about {
        command = command.long_about(about);
    }
    let has_commands = command.has_subcommands();
    let examples = command.get_after_long_help().map(ToString::to_string);
    let mut out = Vec::new();
    let man = Man::new(command);
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_commands {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(codes) = exit_codes {
        let mut roff = Roff::new();
        roff.control("SH", ["EXIT STATUS"]);
        for (code, meaning) in exit_code_list(&codes) {
            roff.control("TP", []).text([bold(code)]).text([roman(meaning)]);
        }
        roff.to_writer(&mut out)?;
    }
    if let Some(examples) = examples {
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines().skip(1) {
            roff.text([roman(line.trim_start())]);
        }
        roff.control("fi", []).to_writer(&mut out)?;
    }
    Ok(out)
}

const EXIT_CODES: &str = "Exit codes: ";

/// The paragraphs of the long help, without the one that lists the exit codes; and that one.
fn about_and_exit_codes(command: &Command) -> (Option<String>, Option<String>) {
    let Some(about) = command.get_long_about() else { return (None, None) };
    let about = about.to_string();
    let (codes, rest): (Vec<_>, Vec<_>) =
        about.split("\n\n").partition(|paragraph| paragraph.starts_with(EXIT_CODES));
    let codes = codes.first().and_then(|codes| codes.strip_prefix(EXIT_CODES));
    (Some(rest.join("\n\n")), codes.map(|codes| codes.replace('\n', " ")))
}

/// Each code with its meaning, of `0 good, 1 bad, 2 bad usage or input.`
fn exit_code_list(codes: &str) -> Vec<(String, String)> {
    let mut list: Vec<(String, String)> = Vec::new();
    for part in codes.trim_end_matches('.').split(", ") {
        match part.split_once(' ') {
            Some((code, meaning)) if code.bytes().all(|b| b.is_ascii_digit()) => {
                list.push((code.to_owned(), meaning.to_owned()));
            }
            _ => {
                if let Some((_, meaning)) = list.last_mut() {
                    meaning.push_str(", ");
                    meaning.push_str(part);
                }
            }
        }
    }
    list
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn names(command: &Command, name: &str, to: &mut Vec<String>) {
        to.push(name.to_owned());
        for below in command.get_subcommands().filter(|c| c.get_name() != "help") {
            names(below, &format!("{name}-{}", below.get_name()), to);
        }
    }

    #[test]
    fn every_command_has_a_man_page_and_completions() {
        let folder =
            std::env::temp_dir().join(format!("throughline-generate-{}", std::process::id()));
        generate(&folder).unwrap();
        let mut commands = Vec::new();
        names(&cli::Cli::command(), NAME, &mut commands);
        assert!(commands.len() > 6, "{commands:?}");
        for command in &commands {
            let page = fs::read_to_string(folder.join(format!("man/{command}.1"))).unwrap();
            let name = command.replace('-', "\\-");
            assert!(page.contains(".SH SYNOPSIS") && page.contains(&name), "{command}: {page}");
            if page.contains(".SH SUBCOMMANDS") {
                continue;
            }
            // Each code has a line of its own.
            for section in [".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\n", ".SH EXAMPLES\n"] {
                assert!(page.contains(section), "{command} has no {section}: {page}");
            }
            assert!(!page.contains("Exit codes:"), "{command}: {page}");
        }
        assert_eq!(fs::read_dir(folder.join("man")).unwrap().count(), commands.len());
        for file in ["throughline.bash", "_throughline", "throughline.fish"] {
            let script = fs::read_to_string(folder.join("completions").join(file)).unwrap();
            for command in &commands {
                let last = command.rsplit('-').next().unwrap();
                assert!(script.contains(last), "{file} has no command {last}");
            }
            assert!(script.contains("dry-run"), "{file} has no flags");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
