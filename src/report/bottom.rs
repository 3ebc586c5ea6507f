//! The bottom line: what was written, what users saw and would have seen, the verdict.

use std::collections::BTreeMap;
use std::io;

use super::Options;
use super::index::Index;
use super::passage::confirms;
use super::style::Style::{Bold, Dim, Green, Plain, Red, Yellow};
use super::style::{Page, count, grouped};
use super::suffered::{SINGLY, suffered};
use crate::core::action::Verb;
use crate::core::ids::Role;
use crate::replay::{Mode, Replay};

const PROBLEMS: usize = 20;

/// What was written, what users saw, the verdict.
pub(super) fn line(
    replay: &Replay,
    index: &Index<'_>,
    options: &Options,
    page: &mut Page<'_>,
) -> io::Result<()> {
    page.gap()?;
    page.put(0, 2, &[(Bold, "Bottom line")])?;
    written(replay, index, options, page)?;
    suffered(replay, index, page)?;
    asked(replay, index, page)?;
    verdict(replay, page)
}

fn written(
    replay: &Replay,
    index: &Index<'_>,
    options: &Options,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let mut by_verb: BTreeMap<Verb, usize> = BTreeMap::new();
    let mut by_fate: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut all, mut confirmations) = (0, 0);
    for done in replay.actions.iter().filter(|done| index.wants(done)) {
        all += 1;
        *by_verb.entry(done.decision.action.verb).or_default() += 1;
        let fate = done.finished.as_ref().map_or("unfinished", |(_, outcome)| outcome.name());
        *by_fate.entry(fate).or_default() += 1;
        confirmations += usize::from(confirms(done, &replay.settings));
    }
    let about = if options.connector.is_some() { " for this connector" } else { "" };
    if all == 0 {
        return page.put(2, 4, &[(Plain, &format!("nothing written{about}"))]);
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
    let (style, fates) = match by_fate.get("applied") {
        Some(n) if *n == all && all == 1 => (Plain, "applied".to_owned()),
        Some(n) if *n == all => (Plain, "all applied".to_owned()),
        _ => {
            let fates: Vec<_> =
                by_fate.iter().map(|(fate, n)| format!("{} {fate}", grouped(*n))).collect();
            (Yellow, fates.join(", "))
        }
    };
    let what = format!("{}{about}: {}; ", count(all, "action"), verbs.join(", "));
    page.put(2, 4, &[(Plain, &what), (style, &fates)])
}

/// What the API servers of a live run were asked.
fn asked(replay: &Replay, index: &Index<'_>, page: &mut Page<'_>) -> io::Result<()> {
    if replay.requests.is_empty() {
        return Ok(());
    }
    let mut by_verb: BTreeMap<&str, u64> = BTreeMap::new();
    for requests in &replay.requests {
        *by_verb.entry(requests.verb).or_default() += requests.count;
    }
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let words: Vec<_> = by_verb.iter().map(|(verb, n)| count(number(*n), verb)).collect();
    let (style, needless) = match replay.needless_writes() {
        0 => (Plain, "no needless write".to_owned()),
        n => (Yellow, count(number(n), "write") + " that changed nothing"),
    };
    let words = format!("the API servers were asked for {}; ", words.join(", "));
    page.put(2, 4, &[(Plain, &words), (style, &needless)])?;
    let labels: Vec<_> = index
        .chapters
        .iter()
        .filter(|chapter| chapter.actions.is_empty())
        .map(|chapter| chapter.label.as_str())
        .collect();
    let more = match labels.len().saturating_sub(SINGLY) {
        0 => String::new(),
        more => format!(" and {}", count(more, "more connector")),
    };
    let some = labels.get(..labels.len().min(SINGLY)).unwrap_or_default().join(", ");
    match labels.is_empty() {
        true => Ok(()),
        false => page.put(2, 4, &[(Plain, &format!("never written: {some}{more}"))]),
    }
}

fn verdict(replay: &Replay, page: &mut Page<'_>) -> io::Result<()> {
    let has = |role| replay.clusters.iter().any(|cluster| cluster.roles.contains(&role));
    let (word, why) = match replay.mode {
        Mode::Verify => {
            let why = match replay.actions.len() {
                0 => "no actions, as recorded".to_owned(),
                n => format!("{}, the same as recorded", count(n, "action")),
            };
            ("verified", why)
        }
        Mode::WhatIf | Mode::Live => {
            let hub = "every hub annotation means what upstream says";
            let edge = "every gateway announces what its edge says";
            let why = match (has(Role::Downstream), has(Role::Edge)) {
                (true, false) => hub.to_owned(),
                (false, true) => edge.to_owned(),
                _ => format!("{hub}, {edge}"),
            };
            ("converged", why)
        }
    };
    if replay.verdict.good {
        return page.put(2, 4, &[(Green, word), (Plain, &format!(": {why}"))]);
    }
    let problems = &replay.verdict.problems;
    page.put(
        2,
        4,
        &[
            (Red, &format!("NOT {word}:")),
            (Plain, &format!(" {}", count(problems.len(), "problem"))),
        ],
    )?;
    for problem in problems.iter().take(PROBLEMS) {
        page.put(4, 6, &[(Plain, problem)])?;
    }
    if let more @ 1.. = problems.len().saturating_sub(PROBLEMS) {
        page.put(4, 6, &[(Dim, &format!("… {} more (--output json has all)", grouped(more)))])?;
    }
    Ok(())
}
