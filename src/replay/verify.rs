//! Verify: only the recorded events drive the machine, and its actions must equal the recorded ones, up
//! to the first retired event.

use super::Rerun;
use crate::core::contract::action::Decision;
use crate::event_log::{LogEntry, LogError};

/// The most differences that are listed; further ones are only counted.
const DIFFERENCES_MAX: usize = 5;

pub(super) fn run(
    rerun: &mut Rerun<'_>,
    lines: impl Iterator<Item = Result<LogEntry, LogError>>,
) -> anyhow::Result<()> {
    // The number of decisions from the latest event.
    let mut by_latest_event = 0_usize;
    let mut compared = 0_usize;
    let mut is_comparing = true;
    let mut differences = Vec::new();
    for line in lines {
        match line? {
            LogEntry::Event(event) => {
                if rerun.replay.events == 0 {
                    rerun.begin(event.at);
                }
                rerun.count_recorded(&event);
                rerun.replay.last_at = event.at;
                by_latest_event = rerun.feed(event)?;
            }
            LogEntry::Retired => is_comparing = false,
            LogEntry::Action(recorded) if is_comparing => {
                let ours = rerun.replay.actions.get(compared).map(|record| &record.decision);
                compared += 1;
                if !ours.is_some_and(|ours| ours.is_logged_as(&recorded)) {
                    differences.push(difference(compared, &recorded, ours));
                }
            }
            LogEntry::Action(_) => {}
        }
    }
    // A process that was killed may not have logged the decisions of its last event.
    let missing = rerun.replay.actions.get(compared..).unwrap_or_default();
    let is_cut_off = missing.len() <= by_latest_event || !is_comparing;
    for (at, record) in missing.iter().enumerate().filter(|_| !is_cut_off) {
        differences.push(format!(
            "action {}: missing in the log; the machine decides {}",
            compared + at + 1,
            describe(&record.decision)
        ));
    }
    rerun.flush()?;
    rerun.replay.ended_at = rerun.replay.last_at;
    let more = differences.len().saturating_sub(DIFFERENCES_MAX);
    differences.truncate(DIFFERENCES_MAX);
    if more > 0 {
        let nouns = if more == 1 { "action differs" } else { "actions differ" };
        differences.push(format!("{more} more {nouns}"));
    }
    rerun.replay.problems = differences;
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
