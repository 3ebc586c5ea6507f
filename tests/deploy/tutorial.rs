//! docs/tutorial.md, followed command by command, with what it promises to print.
//!
//! A `sh` block is a command; a `text` block after it is what the command prints. These comments,
//! which a reader does not see, say what happens where:
//!
//! - `<!-- terminal 1 -->` before a `sh` block: it runs in that terminal until Ctrl-C. Before a
//!   `text` block: that terminal prints it.
//! - `<!-- Ctrl-C in terminal 1 -->`: what it says.
//!
//! In a `text` block, `…` stands for any text, and a line that is only `…` for any number of lines.
//! What a terminal prints may have other lines in between. Numbers that differ from run to run don't
//! matter; see `transcript`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use regex::Regex;

use crate::cluster::SOON;
use crate::cluster::process::Process;
use crate::cluster::throughline::binary;
use crate::tools::{output, repo, shell, without_cargo};
use crate::transcript::{fits, found_within, normalized};

const PAGE: &str = "docs/tutorial.md";
/// The page's own folder; the test uses another one.
const FOLDER: &str = "target/tutorial";
/// Long enough for `make tutorial` to build what is missing.
const BUILD: Duration = Duration::from_secs(900);

/// A terminal in which a command runs.
struct Terminal {
    process: Process,
    /// How much of its output, normalized, the page has promised so far.
    seen: usize,
}

impl Terminal {
    /// Ctrl-C; waits for the end.
    fn interrupt(&mut self) {
        self.process.interrupt();
        let until = Instant::now() + SOON;
        while self.process.ended().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The test failed. A SIGKILL, which `Process` would send, leaves the API servers running.
        if self.process.ended().is_none() {
            self.interrupt();
        }
    }
}

/// One reader at work.
struct Reader {
    /// The reader's files, instead of `target/tutorial`.
    folder: PathBuf,
    /// The `export` lines so far: each new shell begins with them.
    exports: String,
    terminals: BTreeMap<String, Terminal>,
}

impl Reader {
    fn shell(&self, script: &str) -> Command {
        let folder = self.folder.to_str().unwrap();
        let script = format!("{}{script}", self.exports)
            .replace(FOLDER, folder)
            .replace("$PWD/target/debug", binary().parent().unwrap().to_str().unwrap())
            .replace(&format!("$PWD/{folder}"), folder);
        let mut command = shell(&script);
        // A reader's shell has none of it.
        without_cargo(&mut command);
        for name in ["RUST_LOG", "KUBECONFIG", "THROUGHLINE_CONFIG"] {
            command.env_remove(name);
        }
        command.env("TUTORIAL", folder);
        command
    }

    /// A text as the page has it.
    fn on_the_page(&self, text: &str) -> String {
        normalized(&text.replace(self.folder.to_str().unwrap(), FOLDER))
    }

    /// Runs a command, again if need be, until it prints what the page promises.
    fn run(&mut self, script: &str, promise: Option<&str>) {
        let until = Instant::now() + SOON;
        loop {
            let (code, out, err) = output(&mut self.shell(script));
            let printed = out + &err;
            let is_kept = match promise {
                Some(promise) => fits(promise, &self.on_the_page(&printed)),
                None => code == Some(0),
            };
            if is_kept {
                break;
            }
            let is_over = promise.is_none() || Instant::now() > until;
            assert!(!is_over, "{PAGE}: {script}\nprints:\n{printed}\nand not:\n{promise:?}");
            std::thread::sleep(Duration::from_secs(1));
        }
        if script.lines().all(|line| line.starts_with("export ")) {
            self.exports += &format!("{script}\n");
        }
    }

    /// Starts a command that runs in a terminal until Ctrl-C.
    fn start(&mut self, name: &str, script: &str) {
        let process = Process::start(name, self.shell(script), &self.folder);
        self.terminals.insert(name.to_owned(), Terminal { process, seen: 0 });
    }

    /// Waits until a terminal prints what the page promises.
    fn wait_for(&mut self, name: &str, promise: &str) {
        let until = Instant::now() + if self.exports.is_empty() { BUILD } else { SOON };
        loop {
            let printed = fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap();
            let shown = self.on_the_page(&printed);
            let terminal = self.terminals.get_mut(name).unwrap();
            if let Some(end) = found_within(promise, &shown[terminal.seen..]) {
                terminal.seen += end;
                return;
            }
            let is_over = Instant::now() > until || terminal.process.ended().is_some();
            assert!(!is_over, "{PAGE}: {name}\nprints:\n{printed}\nand not:\n{promise}");
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

/// The comments and blocks of the page, each with its language; a comment has none.
fn steps(page: &str) -> Vec<(&str, &str)> {
    let step = Regex::new(r"(?ms)^(?:```([^\n]*)\n(.*?)\n```|<!-- (.*?) -->)$").unwrap();
    let steps = step.captures_iter(page).map(|found| {
        let text = |group| found.get(group).map(|text| text.as_str());
        text(3).map_or_else(|| (text(1).unwrap(), text(2).unwrap()), |comment| ("", comment))
    });
    steps.collect()
}

#[test]
#[ignore = "needs API servers and kubectl: make deploy-test"]
fn tutorial_md_can_be_followed() {
    let page = fs::read_to_string(repo(PAGE)).unwrap();
    // As long as the page's, so that output wraps where the page's does.
    let folder = format!("/tmp/tl-{:07}", std::process::id());
    assert_eq!(folder.len(), FOLDER.len());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let folder = PathBuf::from(folder);
    let mut reader = Reader { folder, exports: String::new(), terminals: BTreeMap::new() };
    let mut terminal = None;
    let mut steps = steps(&page).into_iter().peekable();
    while let Some((language, text)) = steps.next() {
        match (language, terminal.take()) {
            ("", _) => match text.strip_prefix("Ctrl-C in ") {
                Some(name) => reader.terminals.get_mut(name).unwrap().interrupt(),
                None => terminal = Some(text),
            },
            ("sh", None) => {
                let promise = steps.next_if(|(language, _)| *language == "text");
                reader.run(text, promise.map(|(_, text)| text));
            }
            ("sh", Some(name)) => reader.start(name, text),
            ("text", Some(name)) => reader.wait_for(name, text),
            _ => panic!("{PAGE}: no command for\n{text}"),
        }
    }
    for (name, terminal) in &mut reader.terminals {
        assert!(terminal.process.ended().is_some(), "the page leaves {name} running");
    }
    assert!(!reader.folder.exists(), "the page leaves files behind");
}
