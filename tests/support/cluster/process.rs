//! Child processes that never outlive a test, and the folders and ports that they use.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

/// A child process in its own process group. Dropping it kills the whole group.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`. Its output goes to `NAME.log` in `folder`, and its process id to `pids`, for
    /// [`Folder::new`] of a later run.
    pub(crate) fn start(name: &str, mut command: Command, folder: &Path) -> Self {
        let path = folder.join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(&path).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        Self::spawned(name, command, folder, path)
    }

    /// Like `start`, with standard error as a pipe for the caller.
    pub(crate) fn start_piped(name: &str, mut command: Command, folder: &Path) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        Self::spawned(name, command, folder, PathBuf::new())
    }

    fn spawned(name: &str, mut command: Command, folder: &Path, log: PathBuf) -> Self {
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("starting {}: {error}", command.get_program().display());
        });
        let pids = folder.join("pids");
        let mut known = fs::read_to_string(&pids).unwrap_or_default();
        known.push_str(&format!("{}\n", child.id()));
        fs::write(pids, known).unwrap();
        Self { name: name.to_owned(), child, log }
    }

    pub(crate) fn stderr(&mut self) -> std::process::ChildStderr {
        self.child.stderr.take().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. It is no error if the process has ended already.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(pid(self.child.id()), signal);
    }

    /// Sends SIGINT to the whole group, as Ctrl-C in a terminal does.
    pub(crate) fn interrupt(&self) {
        let _ = kill_process_group(pid(self.child.id()), Signal::INT);
    }

    /// The exit status; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the exit status; `None` if it still runs after `timeout`.
    pub(crate) async fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() > until {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends SIGKILL to the whole group and waits for the end.
    pub(crate) fn kill(&mut self) {
        let _ = kill_process_group(pid(self.child.id()), Signal::KILL);
        let _ = self.child.wait();
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let Ok(mut file) = File::open(&self.log) else { return String::new() };
        let length = file.metadata().map_or(0, |m| m.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(4_000)));
        let mut text = Vec::new();
        let _ = file.read_to_end(&mut text);
        format!("the last output of {}: {}", self.name, String::from_utf8_lossy(&text))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pid(raw: u32) -> Pid {
    Pid::from_raw(i32::try_from(raw).unwrap()).unwrap()
}

/// A temporary folder, removed when dropped. It is kept if the test panics or `THROUGHLINE_KEEP` is
/// set.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// The first call in a process also ends the processes of earlier runs that were killed.
    pub(crate) fn new(name: &str) -> Self {
        static CLEAN: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = std::env::temp_dir().join("throughline-live");
        CLEAN.call_once(|| end_leftovers(&root));
        let own = std::process::id();
        let path = root.join(format!("{own}-{}-{name}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() || std::env::var_os("THROUGHLINE_KEEP").is_some() {
            eprintln!("kept: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Kills processes that ended runs left behind. Process ids are reused, so a process counts only if its
/// command line names the folder.
fn end_leftovers(root: &Path) {
    let Ok(folders) = fs::read_dir(root) else { return };
    for folder in folders.flatten().map(|entry| entry.path()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(owner) = name.split('-').next().and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        if Path::new(&format!("/proc/{owner}")).exists() {
            continue;
        }
        let mut killed = false;
        for raw in fs::read_to_string(folder.join("pids")).unwrap_or_default().lines() {
            let command = fs::read(format!("/proc/{raw}/cmdline")).unwrap_or_default();
            let ours = String::from_utf8_lossy(&command).contains(&*folder.to_string_lossy());
            if let (true, Some(pid)) = (ours, raw.parse().ok().and_then(Pid::from_raw)) {
                let _ = kill_process_group(pid, Signal::KILL);
                killed = true;
            }
        }
        // The folder of a failed test is kept for a day.
        let old = folder.metadata().and_then(|m| m.modified()).ok().and_then(|m| m.elapsed().ok());
        if killed || old.is_some_and(|age| age > Duration::from_secs(86_400)) {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// A free loopback port. It is below the range of outgoing connections, so it stays free while an API
/// server restarts.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(101) % 12_000;
    for _ in 0..12_000 {
        let place = (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        let port = 20_000 + u16::try_from(place).unwrap();
        if is_free(port) {
            return port;
        }
    }
    panic!("no free port between 20000 and 32000");
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
