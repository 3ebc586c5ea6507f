//! A recorded log, driven through the machine.
//!
//! Two ways: *verify* feeds the recorded lines alone and compares the machine's actions with the
//! recorded ones; *what-if* carries the machine's actions out in a [`World`](crate::world::World)
//! on top of the recorded changes, and goes on after the last line until nothing is due.

use crate::core::action::{Decision, Note};
use crate::core::event::Outcome;
use crate::core::ids::ObjectKey;
use crate::core::settings::Settings;
use crate::core::time::UnixMillis;
use crate::event_log::ClusterSpec;
use crate::outage::Outage;

/// How a log is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Actions are carried out in memory on top of the recorded changes.
    WhatIf,
    /// The recorded lines alone; the actions must equal the recorded ones.
    Verify,
}

/// An action and its fate.
#[derive(Clone, Debug)]
pub struct Done {
    /// What was decided, when, and why.
    pub decision: Decision,
    /// When its outcome came, and which.
    pub finished: Option<(UnixMillis, Outcome)>,
}

/// Whether all ended well.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What-if: everything is as it should be at the end, and nothing is under way.
    /// Verify: every action equals the recorded one.
    pub good: bool,
    /// What is not, in words; empty when `good`.
    pub problems: Vec<String>,
}

/// Everything there is to tell of one replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The file's name as it was given.
    pub file: String,
    /// How it was replayed.
    pub mode: Mode,
    /// The clusters of the log.
    pub clusters: Vec<ClusterSpec>,
    /// The settings that were decided by.
    pub settings: Settings,
    /// Lines that were events.
    pub events: u64,
    /// The time of the first line.
    pub first_at: UnixMillis,
    /// The time of the last line.
    pub last_at: UnixMillis,
    /// When virtual time ended.
    pub ended_at: UnixMillis,
    /// Every action, in order.
    pub actions: Vec<Done>,
    /// Everything that was told, in order.
    pub notes: Vec<Note>,
    /// The reader's warnings.
    pub warnings: Vec<String>,
    /// Which upstream connectors are which replicas, for every replica seen.
    pub ways: Vec<Way>,
    /// When users saw the wrong thing, as recorded.
    pub recorded: Vec<Outage>,
    /// When they would have with throughline; what-if only.
    pub replayed: Vec<Outage>,
    /// Whether all ended well.
    pub verdict: Verdict,
}

/// One connector: what it is called upstream, and at hub and edges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The upstream cluster and connector, as the replica's labels say; `None` where no replica
    /// with labels was seen (an edge alone).
    pub upstream: Option<(String, ObjectKey)>,
    /// Its name at hub and edges.
    pub replica: ObjectKey,
}
