//! Verify: the recorded lines alone drive the machine, and its actions must be the recorded ones.

use std::collections::VecDeque;
use std::io::Write;

use super::Story;
use crate::core::action::Decision;
use crate::core::event::{Event, Happened};
use crate::core::machine::Machine;
use crate::event_log::{Line, LogError, Writer};

/// At most so many differences are told one by one.
const DIFFERENCES_MAX: usize = 5;

pub(super) fn run<W: Write>(
    story: &mut Story,
    mut next: impl FnMut() -> Result<Option<Line>, LogError>,
    mut log: Option<Writer<W>>,
) -> anyhow::Result<()> {
    let mut machine = Machine::new(story.replay.settings.clone());
    // Decided but not yet seen in the log.
    let mut decided: VecDeque<Decision> = VecDeque::new();
    let mut compared = 0_usize;
    let mut differences = Vec::new();
    while let Some(line) = next()? {
        match line {
            Line::Event(event) => {
                if story.replay.events == 0 {
                    story.begin(event.at);
                    for cluster in story.replay.clusters.clone() {
                        let what =
                            Happened::ClusterAdded { cluster: cluster.name, roles: cluster.roles };
                        machine.handle_event(&Event { at: event.at, what });
                    }
                }
                if let Some(log) = &mut log {
                    log.event(&event)?;
                }
                story.recorded(&event);
                story.replayed(&event);
                machine.handle_event(&event);
                story.replay.last_at = event.at;
                while let Some(decision) = machine.poll_action() {
                    if let Some(log) = &mut log {
                        log.action(&decision)?;
                    }
                    decided.push_back(decision.clone());
                    story.acted(decision);
                }
                while let Some(note) = machine.poll_note() {
                    story.replay.notes.push(note);
                }
            }
            Line::Action(recorded) => {
                compared += 1;
                let ours = decided.pop_front();
                if ours.as_ref() != Some(&recorded) {
                    differences.push(difference(compared, &recorded, ours.as_ref()));
                }
            }
        }
    }
    for decision in decided {
        compared += 1;
        differences.push(format!(
            "action {compared}: the log has none, the machine decides to {}",
            told(&decision)
        ));
    }
    if let Some(log) = &mut log {
        log.flush()?;
    }
    story.end(story.replay.last_at);
    let more = differences.len().saturating_sub(DIFFERENCES_MAX);
    differences.truncate(DIFFERENCES_MAX);
    if more > 0 {
        differences.push(format!("and {more} more actions that differ"));
    }
    story.problems(differences);
    Ok(())
}

fn told(decision: &Decision) -> String {
    let action = &decision.action;
    let annotations: Vec<_> = action
        .annotations
        .iter()
        .map(|(k, v)| format!("{k}={}", v.as_deref().unwrap_or("(removed)")))
        .collect();
    format!(
        "{} {} {} in {} at {} {}",
        action.verb.as_str(),
        action.kind,
        action.object,
        action.cluster,
        decision.at,
        annotations.join(" ")
    )
}

fn difference(number: usize, recorded: &Decision, ours: Option<&Decision>) -> String {
    let log = told(recorded);
    match ours {
        None => format!("action {number}: the log says {log}; the machine decides nothing"),
        Some(ours) if told(ours) != log => {
            format!("action {number}: the log says {log}; the machine decides to {}", told(ours))
        }
        Some(ours) => format!(
            "action {number}: {log}: id, precondition or reason differ: the log has {:?} {:?} {:?}, the machine {:?} {:?} {:?}",
            recorded.action.id.0,
            recorded.action.precondition,
            recorded.because,
            ours.action.id.0,
            ours.action.precondition,
            ours.because
        ),
    }
}
