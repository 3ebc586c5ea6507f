//! What the measuring process says to the one that serves the clusters: a line of JSON each way.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The size of a fleet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct FleetSize {
    /// Projects with connectors.
    pub(crate) projects: usize,
    pub(crate) connectors_each: usize,
    /// Further projects, which are empty.
    pub(crate) idle: usize,
    /// Offer HTTP/2.
    pub(crate) http2: bool,
    /// Each resource of a control plane answers 429 for this long after it was first asked for.
    pub(crate) cold_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Answered by [`Load`].
    Load,
    /// Changes connectors, spread over all projects. Answered by [`Latencies`].
    Flips { per_second: u32, seconds: u64 },
    /// Adds this many projects with a connector each, one after the other. Answered by [`Latencies`].
    NewProjects(usize),
    /// Stops Milo. Answered by `null`.
    Stop,
    /// Starts it again. Answered by `null`.
    Resume,
}

/// Where the clusters are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    pub(crate) milo: String,
    pub(crate) hub: String,
    pub(crate) edge: String,
    /// The servers' certificate, in PEM.
    pub(crate) certificate: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Of Milo.
    pub(crate) connections: usize,
    pub(crate) connections_max: usize,
    pub(crate) requests_max: usize,
    /// Projects with a running watch, by resource.
    pub(crate) watched: BTreeMap<String, usize>,
    /// Requests to projects that do not exist.
    pub(crate) unknown: u64,
    /// Writes to hub and edge so far, without those of Leases and Events.
    pub(crate) writes: u64,
}

impl Load {
    /// Whether this many projects are watched, each for every resource.
    pub(crate) fn follows(&self, projects: usize) -> bool {
        !self.watched.is_empty() && self.watched.values().all(|watched| *watched == projects)
    }
}

/// Times in microseconds, in increasing order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    pub(crate) sorted_us: Vec<u64>,
    /// Changes that had not arrived at the end.
    pub(crate) missing: usize,
}

impl Latencies {
    /// In milliseconds.
    pub(crate) fn quantile_ms(&self, q: f64) -> f64 {
        let Some(last) = self.sorted_us.len().checked_sub(1) else { return f64::NAN };
        self.sorted_us[(last as f64 * q).round() as usize] as f64 / 1e3
    }
}

/// The process that serves; killed when dropped.
pub(crate) struct Serving {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    pub(crate) served: Served,
}

impl Serving {
    /// Runs this program again, as the server of such a fleet.
    pub(crate) fn start(size: &FleetSize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["serve", &serde_json::to_string(size).unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let mut from = BufReader::new(child.stdout.take().unwrap());
        let served = read(&mut from);
        Self { child, to, from, served }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn order<T: DeserializeOwned>(&mut self, order: &Order) -> T {
        writeln!(self.to, "{}", serde_json::to_string(order).unwrap()).unwrap();
        read(&mut self.from)
    }

    pub(crate) fn load(&mut self) -> Load {
        self.order(&Order::Load)
    }
}

fn read<T: DeserializeOwned>(from: &mut BufReader<ChildStdout>) -> T {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "the serving process has ended");
    serde_json::from_str(&line).unwrap()
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
