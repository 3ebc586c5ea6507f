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
use clap::CommandFactory;
use clap_complete::Shell;

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
    // The pages carry no date, so the same source produces the same bytes.
    clap_mangen::generate_to(cli::Cli::command(), &man)
        .with_context(|| format!("writing into {}", man.display()))?;
    let mut command = cli::Cli::command();
    for shell in SHELLS {
        let made = clap_complete::generate_to(shell, &mut command, NAME, &completions);
        made.with_context(|| format!("writing into {}", completions.display()))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use clap::Command;

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
        }
        assert_eq!(fs::read_dir(folder.join("man")).unwrap().count(), commands.len());
        for file in ["throughline.bash", "_throughline", "throughline.fish"] {
            let script = fs::read_to_string(folder.join("completions").join(file)).unwrap();
            for command in &commands {
                let last = command.rsplit('-').next().unwrap();
                assert!(script.contains(last), "{file} has no command {last}");
            }
            assert!(script.contains("admin-address"), "{file} has no flags");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
