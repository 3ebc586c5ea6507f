//! The end of the text report: writes, outages for users, API requests of a live run, the verdict.

use std::collections::BTreeMap;
use std::io;

use super::model::Report;
use super::story_entry::is_confirmation;
use super::style::Style::{Bold, Dim, Green, Plain, Red, Yellow};
use super::style::{TextWriter, count, duration, grouped};
use super::user_impact::{LISTED_MAX, user_impact};
use super::verdict;
use crate::core::contract::action::Verb;
use crate::core::data::ids::Role;
use crate::replay::ReplayMode;

pub(super) fn summary(report: &Report<'_>, writer: &mut TextWriter<'_>) -> io::Result<()> {
    writer.gap()?;
    writer.put(0, 2, &[(Bold, "Summary")])?;
    writes(report, writer)?;
    user_impact(report, writer)?;
    requests(report, writer)?;
    verdict(report, writer)
}

fn writes(report: &Report<'_>, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let replay = report.replay;
    let mut by_verb: BTreeMap<Verb, usize> = BTreeMap::new();
    let mut by_outcome: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = 0;
    let mut confirmations = 0;
    for record in &report.actions.covered {
        all += 1;
        *by_verb.entry(record.decision.action.verb).or_default() += 1;
        let outcome = record.outcome_name();
        *by_outcome.entry(outcome).or_default() += 1;
        confirmations += usize::from(is_confirmation(record, &replay.settings));
    }
    let scope = if report.only.is_some() { " for this connector" } else { "" };
    if all == 0 {
        return writer.put(2, 4, &[(Plain, &format!("no writes{scope}"))]);
    }
    let verbs: Vec<_> = by_verb
        .iter()
        .map(|(verb, n)| match (verb, confirmations) {
            (Verb::Touch, 1..) => {
                format!("{} ({} of them to confirm)", count(*n, "touch"), grouped(confirmations))
            }
            _ => count(*n, verb.as_str()),
        })
        .collect();
    let (style, outcomes) = match by_outcome.get("applied") {
        Some(n) if *n == all && all == 1 => (Plain, "applied".to_owned()),
        Some(n) if *n == all => (Plain, "all applied".to_owned()),
        _ => {
            let outcomes: Vec<_> = by_outcome
                .iter()
                .map(|(outcome, n)| format!("{} {outcome}", grouped(*n)))
                .collect();
            (Yellow, outcomes.join(", "))
        }
    };
    let text = format!("{}{scope}: {}; ", count(all, "action"), verbs.join(", "));
    writer.put(2, 4, &[(Plain, &text), (style, &outcomes)])?;
    let pauses = &replay.settings.touch.confirm_after_ms;
    if let (ReplayMode::WhatIf, 1.., [_, .., last]) = (replay.mode, confirmations, &pauses[..]) {
        let text = format!(
            "(each touch is confirmed {} times, the last after {}; `throughline demo` confirms once, \
             so it shows fewer touches)",
            pauses.len(),
            duration(*last),
        );
        writer.put(4, 4, &[(Dim, &text)])?;
    }
    Ok(())
}

/// The requests of a live run.
fn requests(report: &Report<'_>, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let replay = report.replay;
    if replay.requests.is_empty() {
        return Ok(());
    }
    let mut by_verb: BTreeMap<&str, u64> = BTreeMap::new();
    for requests in &replay.requests {
        *by_verb.entry(requests.verb).or_default() += requests.count;
    }
    let verbs: Vec<_> = by_verb.iter().map(|(verb, n)| count(*n, verb)).collect();
    let (style, needless) = match replay.needless_writes() {
        0 => (Plain, "no needless writes".to_owned()),
        n => (Yellow, count(n, "write") + " changed nothing"),
    };
    let text = format!("API requests: {}; ", verbs.join(", "));
    writer.put(2, 4, &[(Plain, &text), (style, &needless)])?;
    let unwritten = report.connectors.iter().filter(|story| story.actions.is_empty());
    let mut labels: Vec<_> = unwritten.map(|story| story.label.as_str()).collect();
    if labels.is_empty() {
        return Ok(());
    }
    let more = match labels.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {}", count(more, "more connector")),
    };
    labels.truncate(LISTED_MAX);
    writer.put(2, 4, &[(Plain, &format!("no writes for: {}{more}", labels.join(", ")))])
}

fn verdict(report: &Report<'_>, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let replay = report.replay;
    let word = if replay.mode == ReplayMode::Verify { "verified" } else { "converged" };
    if replay.is_good() {
        let wrong = verdict::text(&report.verdict.still_wrong);
        let why = format!(": {}", why_good(report));
        if wrong.is_empty() {
            return writer.put(2, 4, &[(Green, word), (Plain, &why)]);
        }
        return writer.put(2, 4, &[(Green, word), (Plain, "; "), (Red, &wrong), (Plain, &why)]);
    }
    let problems = &replay.problems;
    let how_many = format!(" {}", count(problems.len(), "problem"));
    writer.put(2, 4, &[(Red, &format!("NOT {word}:")), (Plain, &how_many)])?;
    writer.rows(4, problems.iter().map(|problem| vec![(Plain, problem.clone())]))
}

fn why_good(report: &Report<'_>) -> String {
    let replay = report.replay;
    if replay.mode == ReplayMode::Verify {
        return match replay.actions.len() {
            0 => "no actions, and none in the log".to_owned(),
            1 => "1 action, equal to the one in the log".to_owned(),
            n => format!("{}, all equal to those in the log", count(n, "action")),
        };
    }
    let hub = "every hub annotation matches the upstream status";
    let edge = "every gateway announces the state at its edge";
    match (report.has(Role::Hub), report.has(Role::Edge)) {
        _ if replay.held > 0 => "everything else is as it should be".to_owned(),
        (true, false) => hub.to_owned(),
        (false, true) => edge.to_owned(),
        _ => format!("{hub}, and {edge}"),
    }
}
