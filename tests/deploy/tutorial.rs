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
//! matter; see `transcript`. With `UPDATE_EXPECT=1`, a block that no longer fits is replaced by the
//! whole output: shorten it again by hand.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cluster::SOON;
use crate::cluster::process::Process;
use crate::cluster::throughline::binary;
use crate::tools::{repo, tools_folder, without_cargo};
use crate::transcript::{fits, found_within, lines_of, normalized};

const PAGE: &str = "docs/tutorial.md";
/// The page's own folder; the test uses another one.
const FOLDER: &str = "target/tutorial";
/// Long enough for `make tutorial` to build what is missing.
const BUILD: Duration = Duration::from_secs(900);

/// An empty folder whose path is as long as the page's, so that output wraps where the page's does.
fn folder() -> PathBuf {
    let folder = format!("/tmp/tl-{:07}", std::process::id());
    assert_eq!(folder.len(), FOLDER.len());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    Path::new(&folder).to_owned()
}

fn is_update() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

/// How long to wait until the output fits. In an update, many blocks never will.
fn patience() -> Duration {
    if is_update() { SOON / 2 } else { SOON }
}

/// The lines of a `text` block, and where they stand in the page.
#[derive(Debug)]
struct Promise {
    lines: Vec<String>,
    at: Range<usize>,
}

#[derive(Debug)]
enum Step {
    /// A command, and what it prints.
    Run(String, Option<Promise>),
    /// A command that runs in a terminal until Ctrl-C.
    Start(u32, String),
    Prints(u32, Promise),
    Interrupt(u32),
}

fn steps(page: &str) -> Vec<Step> {
    let lines: Vec<_> = page.lines().collect();
    let mut steps = Vec::new();
    let mut terminal = None;
    let mut i = 0;
    while i < lines.len() {
        let line = lines[i];
        i += 1;
        if let Some(comment) = line.strip_prefix("<!-- ") {
            let number = |text: &str| text.strip_suffix(" -->")?.parse::<u32>().ok();
            if let Some(number) = comment.strip_prefix("terminal ").and_then(number) {
                terminal = Some(number);
            } else if let Some(number) =
                comment.strip_prefix("Ctrl-C in terminal ").and_then(number)
            {
                steps.push(Step::Interrupt(number));
            }
            continue;
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let first = i;
        i += lines[first..].iter().position(|line| *line == "```").expect("the block ends");
        let block = &lines[first..i];
        let at = first..i;
        i += 1;
        let promise = || Promise { lines: block.iter().map(|line| line.to_string()).collect(), at };
        match (language, terminal.take()) {
            ("sh", None) => steps.push(Step::Run(block.join("\n"), None)),
            ("sh", Some(number)) => steps.push(Step::Start(number, block.join("\n"))),
            ("text", Some(number)) => steps.push(Step::Prints(number, promise())),
            ("text", None) => match steps.last_mut() {
                Some(Step::Run(_, output @ None)) => *output = Some(promise()),
                _ => panic!("{PAGE}:{first}: no command for this output"),
            },
            _ => {}
        }
    }
    steps
}

/// A terminal in which a command runs.
struct Terminal {
    process: Process,
    log: PathBuf,
    /// Lines of its output that the page has promised so far.
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
        assert!(self.process.ended().is_some(), "still running after Ctrl-C");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The test failed. A SIGKILL, which `Process` would send, leaves the API servers running.
        if self.process.ended().is_none() {
            self.process.interrupt();
            std::thread::sleep(Duration::from_secs(5));
        }
    }
}

/// One reader at work.
struct Reader {
    /// The reader's files, instead of `target/tutorial`.
    folder: PathBuf,
    /// The `export` lines so far: each new shell begins with them.
    exports: String,
    terminals: Vec<(u32, Terminal)>,
    /// Blocks to be replaced in the page, with `UPDATE_EXPECT=1`.
    updates: Vec<(Range<usize>, String)>,
}

impl Reader {
    fn shell(&self, script: &str) -> Command {
        let path = format!("{}:{}", tools_folder().display(), std::env::var("PATH").unwrap());
        let script = format!("{}{script}", self.exports)
            .replace(FOLDER, self.folder.to_str().unwrap())
            .replace("$PWD/target/debug", binary().parent().unwrap().to_str().unwrap())
            .replace(&format!("$PWD/{}", self.folder.display()), self.folder.to_str().unwrap());
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(repo("."));
        // A reader's shell has none of it.
        without_cargo(&mut command);
        for name in ["RUST_LOG", "KUBECONFIG", "THROUGHLINE_CONFIG"] {
            command.env_remove(name);
        }
        command.env("PATH", path).env("TUTORIAL", &self.folder);
        command
    }

    /// What a command prints now, as the page would have it.
    fn output(&self, script: &str) -> (String, bool) {
        let output = self.shell(script).output().unwrap();
        let [out, err] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
        (format!("{out}{err}"), output.status.success())
    }

    fn as_on_page(&self, text: &str) -> String {
        text.replace(self.folder.to_str().unwrap(), FOLDER)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Run(script, None) => {
                let (text, is_success) = self.output(&script);
                assert!(is_success, "{script}\n{text}");
                if script.lines().all(|line| line.starts_with("export ")) {
                    self.exports = format!("{}{script}\n", self.exports);
                }
            }
            Step::Run(script, Some(promise)) => self.run(&script, promise),
            Step::Start(number, script) => {
                let name = format!("terminal-{number}");
                let process = Process::start(&name, self.shell(&script), &self.folder);
                let log = self.folder.join(format!("{name}.log"));
                self.terminals.push((number, Terminal { process, log, seen: 0 }));
            }
            Step::Prints(number, promise) => self.wait_for(number, promise),
            Step::Interrupt(number) => self.terminal(number).interrupt(),
        }
    }

    fn terminal(&mut self, number: u32) -> &mut Terminal {
        let found = self.terminals.iter_mut().find(|(other, _)| *other == number);
        found.map(|(_, terminal)| terminal).expect("the page starts something in this terminal")
    }

    /// Runs a command, again if need be, until it prints what the page promises.
    fn run(&mut self, script: &str, promise: Promise) {
        let promised = lines_of(&promise.lines.join("\n"));
        let until = Instant::now() + patience();
        loop {
            let text = self.as_on_page(&self.output(script).0);
            let lines = lines_of(&text);
            if fits(&promised, &lines) {
                return;
            }
            if Instant::now() > until {
                return self.broken(script, promise, &text);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Waits until a terminal prints what the page promises.
    fn wait_for(&mut self, number: u32, promise: Promise) {
        let promised = lines_of(&promise.lines.join("\n"));
        let until = Instant::now() + if self.exports.is_empty() { BUILD } else { patience() };
        loop {
            let terminal = self.terminal(number);
            let (seen, log) = (terminal.seen, fs::read_to_string(&terminal.log).unwrap());
            let log = self.as_on_page(&log);
            let lines = lines_of(&log);
            let found = found_within(&promised, &lines[seen..]);
            let terminal = self.terminal(number);
            if let Some(end) = found {
                terminal.seen = seen + end;
                return;
            }
            if Instant::now() > until || terminal.process.ended().is_some() {
                terminal.seen = lines.len();
                let shown = log.lines().filter(|line| !normalized(line).is_empty()).skip(seen);
                let shown: Vec<_> = shown.collect();
                return self.broken(&format!("terminal {number}"), promise, &shown.join("\n"));
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn broken(&mut self, what: &str, promise: Promise, found: &str) {
        let place = format!("{PAGE}:{}", promise.at.start);
        if is_update() {
            eprintln!("{place}: the output of {what} is written in full; shorten it");
            self.updates.push((promise.at, found.trim_end().to_owned()));
            return;
        }
        let promised = promise.lines.join("\n");
        panic!("{place}: {what}\nprints:\n{found}\nand the page promises:\n{promised}");
    }
}

#[test]
#[ignore = "needs API servers and kubectl: make deploy-test"]
fn tutorial_md_can_be_followed() {
    let page = fs::read_to_string(repo(PAGE)).unwrap();
    let mut reader = Reader {
        folder: folder(),
        exports: String::new(),
        terminals: Vec::new(),
        updates: Vec::new(),
    };
    for step in steps(&page) {
        reader.take(step);
    }
    for (number, terminal) in &mut reader.terminals {
        assert!(terminal.process.ended().is_some(), "the page leaves terminal {number} running");
    }
    assert!(!reader.folder.exists(), "the page leaves files behind");
    if reader.updates.is_empty() {
        return;
    }
    let mut lines: Vec<_> = page.lines().map(str::to_owned).collect();
    for (at, text) in std::mem::take(&mut reader.updates).into_iter().rev() {
        lines.splice(at, text.lines().map(str::to_owned));
    }
    fs::write(repo(PAGE), lines.join("\n") + "\n").unwrap();
}
