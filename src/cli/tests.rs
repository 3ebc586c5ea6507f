//! Tests of the commands' definitions.

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::Cli;

#[test]
fn the_definitions_of_all_commands_fit_each_other() {
    Cli::command().debug_assert();
}

/// The examples of a command use existing commands and flags.
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

/// A flag without effect, because of other flags or without one, is refused because it misleads users.
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
