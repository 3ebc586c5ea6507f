//! docs/how-to/incident.md, played on real API servers: what the commands print is what the page shows.
//!
//! A `text` block after a `<!-- transcript: … -->` comment is compared word by word, so that lines may
//! break elsewhere; `…` stands for any text, and numbers that differ from run to run don't matter.

use std::process::Command;

use crate::cluster::throughline::binary;
use crate::prelude::*;
use crate::tools::repo;
use crate::transcript;

const PAGE: &str = "docs/how-to/incident.md";
/// The address of `--state` on the page.
const STATE: &str = "http://127.0.0.1:8080";

/// The command of a transcript, or nothing, and what it prints.
fn transcript(text: &str) -> (&str, &str) {
    let (_, block) = text.split_once("```text\n").unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    block.strip_prefix("$ ").map_or(("", block), |block| block.split_once('\n').unwrap())
}

/// Whether the words are the same, with `…` for any.
fn fits(expected: &str, found: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    transcript::fits(&words(expected), &words(found))
}

/// Waits until `print` gives what a transcript shows below its command, if it has one.
async fn shows((command, promised): (&str, &str), print: impl Fn(&str) -> String) {
    eventually(&format!("{PAGE}: {command}"), SOON, async || {
        let found = print(command);
        ensure(fits(promised, &found), || format!("prints\n{found}\nand shows\n{promised}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn incident_md_shows_what_is_printed_today() {
    let page = std::fs::read_to_string(repo(PAGE)).unwrap();
    let transcripts: Vec<_> = page.split("<!-- transcript: ").skip(1).map(transcript).collect();
    let [status, stuck, healed, fixed, replayed] = transcripts[..] else { panic!("{page}") };
    let spec = Spec { per_namespace: 3, gateways: 2, ..Spec::of(6) };
    let (testbed, fleet) = seeded(Topology::Three, spec).await;
    let throughline = Setup::of(&testbed).provokes(&[Cause::NotCarried]).text_log().ready().await;
    oracle::converges(&testbed).await;
    let folder = testbed.hub().server.folder();
    let address = format!("http://{}", throughline.admin());
    let run = |command: &str| {
        let words = command.split_whitespace().skip(1).map(|word| word.replace(STATE, &address));
        let mut command = Command::new(binary());
        command.args(words).current_dir(folder).env("COLUMNS", "100").env_remove("RUST_LOG");
        let output = command.output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };

    // The carrier stops, and a connector goes offline.
    testbed.carrier().set_stuck(true);
    fleet.flip(2).await.unwrap();
    throughline.logs("verb=\"nudge\"", 1).await;
    shows(status, run).await;
    shows(stuck, run).await;

    // It starts again, and the next nudge makes it carry what it missed.
    let before = throughline.log().len();
    testbed.carrier().set_stuck(false);
    oracle::converges(&testbed).await;
    let is_shown = |line: &&String| {
        let shown = ["verb=\"nudge\"", "resolved cause=", "verb=\"touch\""];
        shown.iter().any(|text| line.contains(text))
    };
    let log = |_: &str| {
        let log = throughline.log();
        log[before..].iter().filter(is_shown).cloned().collect::<Vec<_>>().join("\n")
    };
    shows(healed, log).await;
    shows(fixed, run).await;

    std::fs::copy(throughline.event_log(), folder.join("live.jsonl")).unwrap();
    shows(replayed, run).await;
    throughline.stop().await;
}
