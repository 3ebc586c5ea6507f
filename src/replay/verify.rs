//! Verify: only the recorded events drive the machine, and its actions must equal the recorded ones, up
//! to the first retired event.

use std::io::Write;

use super::ReplayBuilder;
use crate::core::contract::action::Decision;
use crate::core::contract::event::Event;
use crate::core::machine::Machine;
use crate::event_log::{LogEntry, LogError, LogWriter};

/// The most differences that are listed; further ones are only counted.
const DIFFERENCES_MAX: usize = 5;

pub(super) fn run<W: Write>(
    builder: &mut ReplayBuilder,
    mut next: impl FnMut() -> Result<Option<LogEntry>, LogError>,
    mut log: Option<LogWriter<W>>,
) -> anyhow::Result<()> {
    let mut machine = Machine::new(builder.replay.settings.clone()).with_node_ids(builder.node_ids);
    // The number of decisions from the latest event.
    let mut by_latest_event = 0_usize;
    let mut compared = 0_usize;
    let mut is_comparing = true;
    let mut differences = Vec::new();
    while let Some(line) = next()? {
        match line {
            LogEntry::Event(event) => {
                if builder.replay.events == 0 {
                    builder.begin(event.at);
                    for cluster in &builder.replay.clusters {
                        machine.handle_event(&Event { at: event.at, kind: cluster.added() });
                    }
                }
                if let Some(log) = &mut log {
                    log.event(&event)?;
                }
                builder.count_recorded(&event);
                machine.handle_event(&event);
                builder.replay.last_at = event.at;
                let at = event.at;
                builder.take(event);
                by_latest_event = 0;
                while let Some(decision) = machine.poll_action() {
                    if let Some(log) = &mut log {
                        log.action(&decision)?;
                    }
                    by_latest_event += 1;
                    builder.add_decision(decision);
                }
                while let Some(note) = machine.poll_note() {
                    builder.replay.notes.push(note);
                }
                while let Some(change) = machine.poll_membership() {
                    builder.replay.memberships.push((at, change));
                }
            }
            LogEntry::Retired => is_comparing = false,
            LogEntry::Action(recorded) if is_comparing => {
                let ours = builder.replay.actions.get(compared).map(|record| &record.decision);
                compared += 1;
                if !ours.is_some_and(|ours| ours.is_logged_as(&recorded)) {
                    differences.push(difference(compared, &recorded, ours));
                }
            }
            LogEntry::Action(_) => {}
        }
    }
    // A process that was killed may not have logged the decisions of its last event.
    let missing = builder.replay.actions.get(compared..).unwrap_or_default();
    let is_cut_off = missing.len() <= by_latest_event || !is_comparing;
    for (at, record) in missing.iter().enumerate().filter(|_| !is_cut_off) {
        differences.push(format!(
            "action {}: missing in the log; the machine decides {}",
            compared + at + 1,
            describe(&record.decision)
        ));
    }
    if let Some(log) = &mut log {
        log.flush()?;
    }
    builder.replay.ended_at = builder.replay.last_at;
    let more = differences.len().saturating_sub(DIFFERENCES_MAX);
    differences.truncate(DIFFERENCES_MAX);
    if more > 0 {
        let nouns = if more == 1 { "action differs" } else { "actions differ" };
        differences.push(format!("{more} more {nouns}"));
    }
    builder.add_problems(differences);
    Ok(())
}

fn describe(decision: &Decision) -> String {
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
    let log = describe(recorded);
    match ours {
        None => format!("action {number}: the log has {log}; the machine decides nothing"),
        Some(ours) if describe(ours) != log => {
            format!("action {number}: the log has {log}; the machine decides {}", describe(ours))
        }
        Some(ours) => format!(
            "action {number}: {log}: the id, precondition or reason differs: the log has {:?} {:?} {:?}, the machine {:?} {:?} {:?}",
            recorded.action.id.0,
            recorded.action.precondition,
            recorded.because,
            ours.action.id.0,
            ours.action.precondition,
            ours.because
        ),
    }
}
