//! The logs of the repository, through today's core and the new one.

use std::fs;
use std::path::{Path, PathBuf};

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::event::Event;
use throughline::core::contract::membership::Membership;
use throughline::core::contract::note::Note;
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings, TouchScope};
use throughline::core::data::time::UnixMillis;
use throughline::core::status::trigger::NodeIds;
use throughline::event_log::LogReader;
use throughline::replay::{ReplayMode, ReplayOptions, replay};

#[path = "../support/two_cores.rs"]
mod support;

use support::{Compared, Core, Differs, Scope, Start, assert_none, compare, new_core};

/// Every log under a folder, or the log itself.
fn logs_under(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let is_log = |path: &PathBuf| path.to_str().unwrap().contains(".jsonl");
    let mut files: Vec<_> = files.filter(is_log).collect();
    files.sort();
    files
}

fn repository_logs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["fixtures", "tests/commands/surface/corpus"];
    folders.iter().flat_map(|folder| logs_under(&root.join(folder))).collect()
}

type Variant = (&'static str, fn(&mut Settings));

/// Settings of which each changes what the rules do with the same events.
const VARIANTS: [Variant; 6] = [
    ("as-it-is", |_| {}),
    ("deleting", |settings| settings.orphans.mode = OrphanMode::Delete),
    ("deleting-all", |settings| {
        settings.orphans.mode = OrphanMode::Delete;
        settings.orphans.max_share = Fraction::per_mille(1_000);
    }),
    ("by-class", |settings| settings.touch.scope = TouchScope::GatewayClass),
    ("nothing-deferred", |settings| settings.mirror.defer_ms = 0),
    ("few-deferred", |settings| settings.mirror.deferrable_per_second = 1),
];

/// What a replay makes of a log: with actions, outcomes and wakeups.
fn replayed(path: &Path, change: fn(&mut Settings)) -> Vec<u8> {
    let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
    let options = ReplayOptions { mode: Some(ReplayMode::WhatIf), ..ReplayOptions::default() };
    let mut log = Vec::new();
    let settings = |settings: &mut Settings| {
        change(settings);
        Ok(())
    };
    replay(&mut reader, "log", settings, &options, Some(&mut log), |_| {}).unwrap();
    log
}

/// What is compared: by default all that reaches a cluster.
fn scope() -> Scope {
    Scope::from_env().unwrap_or_else(Scope::actions)
}

/// Each log as it is and as a replay goes on from it, with each variant of the settings.
fn compare_all(paths: &[PathBuf], start: Start, scope: &Scope) -> (Compared, Vec<Differs>) {
    let (mut sum, mut differences) = (Compared::default(), Vec::new());
    for path in paths {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        for (variant, change) in VARIANTS {
            let name = format!("{stem}-{variant}");
            let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
            let recorded = compare(&name, &mut reader, change, (start, scope.clone()));
            let log = replayed(path, change);
            let mut reader = LogReader::new(&name, log.as_slice()).unwrap();
            let name = format!("{name}-replayed");
            let what_if = compare(&name, &mut reader, |_| {}, (start, scope.clone()));
            for result in [recorded, what_if] {
                match result {
                    Ok(compared) => sum += compared,
                    Err(differs) => differences.push(differs),
                }
            }
        }
    }
    (sum, differences)
}

#[test]
fn two_cores_make_the_same_of_every_log() {
    let (compared, differences) = compare_all(&repository_logs(), new_core, &scope());
    assert_none(compared, &differences);
    assert!(compared.actions > 0);
}

/// The log that `TWO_CORES_LOG` names, or all of that folder.
#[test]
fn two_cores_make_the_same_of_a_log_by_name() {
    let Some(path) = std::env::var_os("TWO_CORES_LOG") else { return };
    let (mut sum, mut differences) = (Compared::default(), Vec::new());
    for path in logs_under(Path::new(&path)) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
        match compare(&format!("{name}-again"), &mut reader, |_| {}, (new_core, scope())) {
            Ok(compared) => sum += compared,
            Err(differs) => differences.push(differs),
        }
    }
    assert_none(sum, &differences);
}

/// The core with a mistake, so that the comparison can be trusted.
struct Mistaken {
    core: Box<dyn Core>,
    mistake: Mistake,
}

#[derive(Clone, Copy, Debug)]
enum Mistake {
    /// The reason of touches is another.
    Because,
    /// What is deferred goes as something urgent.
    Urgency,
    /// It needs a millisecond more.
    Late,
    /// It never wakes by itself.
    Asleep,
    /// Its deadline stays in the past.
    Restless,
    /// It forgets a nudge.
    NoNudge,
}

impl Mistaken {
    fn change(&self, mut decision: Decision) -> Option<Decision> {
        let verb = decision.action.verb;
        match self.mistake {
            Mistake::Because if verb == Verb::Touch => decision.because.push('!'),
            Mistake::Urgency if verb == Verb::Mirror => {
                decision.urgency = throughline::core::contract::action::Urgency::Delete;
            }
            Mistake::Late => decision.at = decision.at.plus(1),
            Mistake::NoNudge if verb == Verb::Nudge => return None,
            _ => {}
        }
        Some(decision)
    }
}

impl Core for Mistaken {
    fn handle_event(&mut self, event: &Event) {
        self.core.handle_event(event);
    }

    fn handle_timeout(&mut self, at: UnixMillis) {
        self.core.handle_timeout(at);
    }

    fn poll_action(&mut self) -> Option<Decision> {
        self.core.poll_action().and_then(|decision| self.change(decision))
    }

    fn poll_note(&mut self) -> Option<Note> {
        self.core.poll_note()
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.core.poll_membership()
    }

    fn poll_deadline(&self) -> Option<UnixMillis> {
        match self.mistake {
            Mistake::Asleep => None,
            Mistake::Restless => self.core.poll_deadline().map(|_| UnixMillis(1)),
            _ => self.core.poll_deadline(),
        }
    }

    fn view(&self) -> serde_json::Value {
        self.core.view()
    }
}

macro_rules! mistaken {
    ($($mistake:ident),*) => {
        [$((Mistake::$mistake, |settings: &Settings, node_ids: NodeIds| -> Box<dyn Core> {
            let core = new_core(settings, node_ids);
            Box::new(Mistaken { core, mistake: Mistake::$mistake })
        })),*]
    };
}

#[test]
fn every_mistake_of_a_core_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["three-tiers-through-the-carrier", "member-copy-tampered-is-nudged"];
    let paths = names.map(|name| root.join(format!("fixtures/{name}.jsonl")));
    let mistakes: [(Mistake, Start); 6] =
        mistaken![Because, Urgency, Late, Asleep, Restless, NoNudge];
    for (mistake, start) in mistakes {
        let (_, differences) = compare_all(&paths, start, &Scope::actions());
        assert!(!differences.is_empty(), "{mistake:?} is not found");
        println!("{mistake:?}: {}\n{}", differences[0].topic, differences[0].text);
    }
}
