//! The transcripts of README.md and docs/how-to/record-and-replay.md show what the program prints today.

use crate::program::printed;
use crate::transcript::found_within;

const PAGES: [&str; 2] = ["README.md", "docs/how-to/record-and-replay.md"];

/// Numbers that differ from run to run don't matter, nor do lines in between; see `transcript`. Transcripts
/// that need clusters are skipped.
#[test]
fn the_readme_shows_what_is_printed_today() {
    let mut played = 0;
    for name in PAGES {
        let page = std::fs::read_to_string(name).unwrap();
        for transcript in page.split("<!-- transcript: ").skip(1) {
            let (command, rest) = transcript.split_once(" -->\n```text\n").unwrap();
            let is_demo = command == "throughline demo";
            if !is_demo && !command.contains(" fixtures/") {
                continue;
            }

            let shown = rest.split("```").next().unwrap().replace(&format!("$ {command}\n"), "");
            let printed = printed(&command.split(' ').skip(1).collect::<Vec<_>>());
            let is_shown = found_within(&shown, &printed).is_some();
            assert!(is_shown, "{name}: {command}\nprints:\n{printed}\nnot:\n{shown}");

            // The recording does not change, so this number is exact.
            let outage = "503 in the recording: 52.2 s";
            assert_eq!(shown.contains(outage), printed.contains(outage), "{name}: {printed}");
            played += 1;
        }
    }
    assert_eq!(played, 3);
}
