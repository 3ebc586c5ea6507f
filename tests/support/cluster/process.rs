//! Child processes that never outlive a test, and the folders and ports that they use.

use std::fs::{self, File};
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
    /// Starts `command`. Its output goes to `NAME.log` in `folder`. It ends with the thread that starts it,
    /// also where that is killed; what it started itself does not.
    pub(crate) fn start(name: &str, command: Command, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut tied = Command::new("setpriv");
        tied.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => tied.env(key, value),
                None => tied.env_remove(key),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            tied.current_dir(folder);
        }
        tied.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        let child = tied.spawn().expect("setpriv, of util-linux");
        Self { name: name.to_owned(), child, log }
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

    /// The whole lines of its output so far.
    pub(crate) fn log(&self) -> String {
        let mut log = String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned();
        log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
        log
    }

    /// The end of its output.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let tail = log.get(log.len().saturating_sub(4_000)..).unwrap_or(&log);
        format!("the last output of {}: {tail}", self.name)
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
    /// The first call in a process also removes what others left behind a day ago.
    pub(crate) fn new(name: &str) -> Self {
        static CLEAN: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = std::env::temp_dir().join("throughline-live");
        CLEAN.call_once(|| remove_old(&root));
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

fn remove_old(root: &Path) {
    for folder in fs::read_dir(root).into_iter().flatten().flatten() {
        let age = folder.metadata().and_then(|m| m.modified()).ok().and_then(|m| m.elapsed().ok());
        if age.is_some_and(|age| age > Duration::from_secs(86_400)) {
            let _ = fs::remove_dir_all(folder.path());
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
