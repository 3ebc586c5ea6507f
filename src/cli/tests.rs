//! Which flags each command has.

use std::fmt::Write as _;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use super::Cli;

/// A line for each command and for each of its arguments.
fn describe(command: &Command, path: &str, text: &mut String) {
    let _ = writeln!(text, "{path}");
    for argument in command.get_arguments() {
        let names = [
            argument.get_short().map(|short| format!("-{short}")),
            argument.get_long().map(|long| format!("--{long}")),
        ];
        let names: Vec<_> = names.into_iter().flatten().collect();
        let id = argument.get_id();
        if id == "help" || id == "version" {
            continue;
        }
        let name = if names.is_empty() { id.to_string() } else { names.join(", ") };
        let values: Vec<_> = argument.get_possible_values();
        let values: Vec<_> = values.iter().map(|value| value.get_name()).collect();
        let takes =
            if argument.get_action().takes_values() { values.join("|") } else { String::new() };
        let _ = writeln!(text, "{}", format!("  {name} {takes}").trim_end());
    }
    for below in command.get_subcommands().filter(|c| c.get_name() != "help") {
        describe(below, &format!("{path} {}", below.get_name()), text);
    }
}

/// A flag that does nothing for a command misleads whoever reads its help. After a change, read the
/// difference: does each flag have an effect there?
#[test]
fn each_command_has_the_flags_that_mean_something_to_it() {
    let mut command = Cli::command();
    command.build();
    command.clone().debug_assert();
    let mut text = String::new();
    describe(&command, "throughline", &mut text);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli_flags.expected");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&golden, &text).expect("the golden can be written");
    }
    let expected = std::fs::read_to_string(&golden).expect("tests/cli_flags.expected can be read");
    assert_eq!(text, expected, "UPDATE_EXPECT=1 writes the new ones");
}

/// The examples of a command are commands that this program has, with flags that they have.
#[test]
fn the_examples_of_each_command_parse() {
    let command = Cli::command();
    for below in command.get_subcommands() {
        let name = below.get_name();
        let examples = below.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let mut lines = examples.lines();
        assert_eq!(lines.next(), Some("Examples:"), "{name}");
        let mut shown = 0;
        for line in lines {
            let at = line.rfind("throughline ").filter(|_| !line.contains("kubectl exec"));
            let Some(at) = at else { continue };
            let words = line[at..].split_whitespace();
            let words: Vec<_> = words
                .map(|w| w.trim_end_matches(')'))
                .take_while(|w| !matches!(*w, "|" | ">"))
                .collect();
            assert_eq!(words.get(1), Some(&name), "{line}");
            let parsed = Cli::command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
            shown += 1;
        }
        assert!(shown > 0, "{name} has no example");
    }
}

/// A flag that changes nothing beside these others, or without one of them, misleads who wrote it.
#[test]
fn a_flag_without_effect_is_refused() {
    let refusal = |line: &str| {
        let words = std::iter::once("throughline").chain(line.split(' '));
        Cli::command().try_get_matches_from(words).err().map(|error| error.kind())
    };
    for line in ["status --at +1s", "trace connector a/b --at +1s"] {
        assert_eq!(refusal(line), Some(ErrorKind::MissingRequiredArgument), "{line}");
    }
    for source in ["--state URL", "--log FILE"] {
        for flag in ["--kubeconfig FILE", "--context a", "--upstream a", "--set a=1"] {
            for command in ["status", "trace connector a/b", "trace gateway a/b"] {
                let line = format!("{command} {source} {flag}");
                assert_eq!(refusal(&line), Some(ErrorKind::ArgumentConflict), "{line}");
            }
        }
    }
    assert_eq!(refusal("status --log FILE --timeout 1s"), Some(ErrorKind::ArgumentConflict));
    for line in [
        "status --watch --state URL",
        "status --watch --config FILE",
        "status --state URL --timeout 1s",
        "status --log FILE --at +1s",
        "status --config FILE --set a=1 --timeout 1s",
    ] {
        assert_eq!(refusal(line), None, "{line}");
    }
}
