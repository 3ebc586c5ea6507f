//! docs/how-to/incident.md, played on real API servers: what the commands print is what the page shows.
//!
//! A `text` block after a `<!-- transcript: … -->` comment is compared word by word, so that lines may
//! break elsewhere; `…` stands for any text, and numbers that differ from run to run don't matter. With
//! `UPDATE_EXPECT=1`, a block that no longer fits is replaced: shorten it again by hand.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::throughline::binary;
use crate::prelude::*;
use crate::tools::repo;
use crate::transcript::{line_fits, normalized};

const PAGE: &str = "docs/how-to/incident.md";
/// The address of `--state` on the page.
const STATE: &str = "http://127.0.0.1:8080";

/// A transcript on the page: where it is, and its lines.
type Transcript = (Range<usize>, Vec<String>);

fn transcripts(page: &str) -> Vec<Transcript> {
    let lines: Vec<_> = page.lines().collect();
    let begins = |line: &&str| line.starts_with("<!-- transcript: ");
    let mut transcripts = Vec::new();
    for (i, _) in lines.iter().enumerate().filter(|(_, line)| begins(line)) {
        assert_eq!(lines[i + 1], "```text", "{PAGE}:{}", i + 2);
        let first = i + 2;
        let end = first + lines[first..].iter().position(|line| *line == "```").unwrap();
        let block = lines[first..end].iter().map(|line| (*line).to_owned());
        transcripts.push((first..end, block.collect()));
    }
    transcripts
}

/// Whether the words are the same, with `…` for any.
fn fits(expected: &str, found: &str) -> bool {
    let words = |text: &str| normalized(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    line_fits(&words(expected), &words(found))
}

/// The page, and what has to change in it.
struct Page {
    text: String,
    transcripts: std::vec::IntoIter<Transcript>,
    updates: Vec<(Range<usize>, String)>,
}

impl Page {
    fn read() -> Self {
        let text = std::fs::read_to_string(repo(PAGE)).unwrap();
        let transcripts = transcripts(&text).into_iter();
        Self { text, transcripts, updates: Vec::new() }
    }

    /// Waits until `print` gives what the next transcript shows below its command, if it has one.
    async fn shows(&mut self, print: impl Fn(&str) -> String) {
        let (at, lines) = self.transcripts.next().expect("one more transcript");
        let (command, promised) = match lines.first().and_then(|line| line.strip_prefix("$ ")) {
            Some(command) => (command.to_owned(), lines[1..].join("\n")),
            None => (String::new(), lines.join("\n")),
        };
        let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
        let until = Instant::now() + if is_update { SOON / 20 } else { SOON };
        loop {
            let found = print(&command);
            if fits(&promised, &found) {
                return;
            }
            if Instant::now() > until {
                let place = format!("{PAGE}:{}", at.start);
                assert!(
                    is_update,
                    "{place}: {command}\nprints:\n{found}\nand the page shows:\n{promised}"
                );
                let command =
                    if command.is_empty() { String::new() } else { format!("$ {command}\n") };
                self.updates.push((at, format!("{command}{}", found.trim_end())));
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn finish(mut self) {
        assert!(self.transcripts.next().is_none(), "the page has a transcript that nobody plays");
        let mut lines: Vec<_> = self.text.lines().map(str::to_owned).collect();
        for (at, text) in self.updates.iter().rev() {
            lines.splice(at.clone(), text.lines().map(str::to_owned));
        }
        if !self.updates.is_empty() {
            std::fs::write(repo(PAGE), lines.join("\n") + "\n").unwrap();
        }
    }
}

/// Runs a command of the page.
fn run(command: &str, throughline: &Throughline, folder: &Path) -> String {
    let address = format!("http://{}", throughline.admin());
    let words: Vec<_> =
        command.split_whitespace().skip(1).map(|w| w.replace(STATE, &address)).collect();
    let mut command = Command::new(binary());
    command.args(words).current_dir(folder).env("COLUMNS", "100").env_remove("RUST_LOG");
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn incident_md_shows_what_is_printed_today() {
    let mut page = Page::read();
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec { per_namespace: 3, gateways: 2, ..Spec::of(6) }).await;
    let throughline = Setup::of(&testbed).provokes(&[Cause::NotCarried]).print_log().ready().await;
    oracle::converges(&testbed).await;
    let folder: PathBuf = testbed.hub().server.folder().to_owned();

    // The carrier stops, and a connector goes offline.
    testbed.carrier().set_stuck(true);
    fleet.flip(2).await.unwrap();
    let until = Instant::now() + SOON;
    while !throughline.logged("verb=\"nudge\"") && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    page.shows(|command| run(command, &throughline, &folder)).await;
    page.shows(|command| run(command, &throughline, &folder)).await;

    // It starts again, and the next nudge makes it carry what it missed.
    let before = throughline.log().len();
    testbed.carrier().set_stuck(false);
    oracle::converges(&testbed).await;
    let is_shown = |line: &&String| {
        line.contains("verb=\"nudge\"")
            || line.contains("resolved cause=")
            || line.contains("verb=\"touch\"")
    };
    let log = || {
        let log = throughline.log();
        log[before..].iter().filter(is_shown).cloned().collect::<Vec<_>>().join("\n")
    };
    page.shows(|_| log()).await;
    page.shows(|command| run(command, &throughline, &folder)).await;

    std::fs::copy(throughline.event_log(), folder.join("live.jsonl")).unwrap();
    page.shows(|command| run(command, &throughline, &folder)).await;
    throughline.stop().await;
    page.finish();
}

#[test]
fn words_are_compared_and_not_lines() {
    assert!(fits("a\n  b 1.5 s\n…\nz", "a b\n  2.25 s c z") && fits("ns-… b", "ns-x b"));
    assert!(!fits("a … c", "a b") && !fits("a", "a b") && !fits("2 gateways", "3 gateways"));
}
