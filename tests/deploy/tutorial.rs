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

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cluster::SOON;
use crate::cluster::process::Process;
use crate::cluster::throughline::binary;
use crate::tools::{repo, tools_folder, without_cargo};
use crate::transcript::{fits, found_within, lines_of};

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

/// The lines of a `text` block, and where it begins.
#[derive(Debug)]
struct Promise {
    text: String,
    line: usize,
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
    let mut steps = Vec::new();
    let mut terminal = None;
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|l| l.strip_suffix(" -->")) {
            let of = |prefix| comment.strip_prefix(prefix)?.parse::<u32>().ok();
            terminal = of("terminal ").or(terminal);
            steps.extend(of("Ctrl-C in terminal ").map(Step::Interrupt));
            continue;
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let text = block.collect::<Vec<_>>().join("\n");
        let promise = Promise { text: text.clone(), line: number + 2 };
        match (language, terminal.take()) {
            ("sh", None) => steps.push(Step::Run(text, None)),
            ("sh", Some(number)) => steps.push(Step::Start(number, text)),
            ("text", Some(number)) => steps.push(Step::Prints(number, promise)),
            ("text", None) => match steps.last_mut() {
                Some(Step::Run(_, output @ None)) => *output = Some(promise),
                _ => panic!("{PAGE}:{number}: no command for this output"),
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
        let promised = lines_of(&promise.text);
        let until = Instant::now() + SOON;
        loop {
            let text = self.as_on_page(&self.output(script).0);
            if fits(&promised, &lines_of(&text)) {
                return;
            }
            assert!(Instant::now() < until, "{}", promise.broken(script, &text));
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Waits until a terminal prints what the page promises.
    fn wait_for(&mut self, number: u32, promise: Promise) {
        let promised = lines_of(&promise.text);
        let until = Instant::now() + if self.exports.is_empty() { BUILD } else { SOON };
        loop {
            let log = fs::read_to_string(&self.terminal(number).log).unwrap();
            let log = self.as_on_page(&log);
            let terminal = self.terminal(number);
            if let Some(end) = found_within(&promised, &lines_of(&log)[terminal.seen..]) {
                terminal.seen += end;
                return;
            }
            let is_over = Instant::now() > until || terminal.process.ended().is_some();
            assert!(!is_over, "{}", promise.broken(&format!("terminal {number}"), &log));
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

impl Promise {
    fn broken(&self, what: &str, found: &str) -> String {
        let Self { text, line } = self;
        format!("{PAGE}:{line}: {what}\nprints:\n{found}\nand the page promises:\n{text}")
    }
}

#[test]
#[ignore = "needs API servers and kubectl: make deploy-test"]
fn tutorial_md_can_be_followed() {
    let page = fs::read_to_string(repo(PAGE)).unwrap();
    let mut reader = Reader { folder: folder(), exports: String::new(), terminals: Vec::new() };
    for step in steps(&page) {
        reader.take(step);
    }
    for (number, terminal) in &mut reader.terminals {
        assert!(terminal.process.ended().is_some(), "the page leaves terminal {number} running");
    }
    assert!(!reader.folder.exists(), "the page leaves files behind");
}
