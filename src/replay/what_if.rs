//! What-if: the machine's actions are carried out in memory, on top of the recorded changes.

use std::collections::BTreeMap;
use std::io::Write;

use super::bookmarks::Bookmarks;
use super::land::carry_out;
use super::overlay::Overlay;
use super::{Options, Story, audit};
use crate::core::action::Action;
use crate::core::event::{Event, Happened};
use crate::core::ids::ActionId;
use crate::core::machine::Machine;
use crate::core::time::UnixMillis;
use crate::event_log::{Line, LogError, Writer};
use crate::world::World;

/// Replays in what-if mode; `foreign`: throughline did not write the log. Lines come from `next`; every event and action goes to `log`.
pub(super) fn run<W: Write>(
    story: &mut Story,
    options: &Options,
    foreign: bool,
    mut next: impl FnMut() -> Result<Option<Line>, LogError>,
    mut log: Option<Writer<W>>,
) -> anyhow::Result<()> {
    let mut overlay = Overlay::new(&story.replay.clusters);
    let mut world = World::new(&story.replay.clusters, options.carrier_delay_ms);
    let mut machine = Machine::new(story.replay.settings.clone());
    let mut bookmarks = Bookmarks::new(&story.replay.clusters);
    let mut writes: BTreeMap<(UnixMillis, ActionId), Action> = BTreeMap::new();
    let mut now = UnixMillis(0);
    let mut line = next_event(&mut next)?;
    if let Some(first) = &line {
        now = first.at;
        story.begin(now);
        for cluster in story.replay.clusters.clone() {
            let what = Happened::ClusterAdded { cluster: cluster.name, roles: cluster.roles };
            machine.handle_event(&Event { at: now, what });
        }
        let lead = Event { at: now, what: Happened::LeadershipAcquired };
        feed(&mut machine, story, &mut log, &lead, &mut writes, options)?;
    }
    let mut end = UnixMillis(u64::MAX);
    loop {
        let recorded_at = line.as_ref().map(|l| l.at);
        let write_at = writes.keys().next().map(|(at, _)| *at);
        let carrier_at = world.next_due();
        let deadline = machine.poll_deadline().map(|(at, _)| at);
        let Some(at) = [recorded_at, write_at, carrier_at, deadline].into_iter().flatten().min()
        else {
            break;
        };
        if at > end {
            break;
        }
        // A log of ours tells the bookmarks of its time.
        if (foreign || line.is_none())
            && machine.orphan_counts().is_any()
            && let Some(bookmark) = bookmarks.next_before(at, now)
        {
            now = now.max(bookmark.at);
            feed(&mut machine, story, &mut log, &bookmark, &mut writes, options)?;
            continue;
        }
        now = now.max(at);
        if recorded_at == Some(at) {
            let Some(event) = line.take() else { break };
            story.recorded(&event);
            bookmarks.recorded(&event);
            if let Some(event) = overlay.lay(&mut world, event) {
                feed(&mut machine, story, &mut log, &event, &mut writes, options)?;
            }
            line = next_event(&mut next)?;
            if line.is_none() {
                story.replay.last_at = now;
                end = now.plus(options.run_on_ms);
            }
        } else if write_at == Some(at) {
            world.advance(now);
            let Some(((_, id), action)) = writes.pop_first() else { break };
            let outcome = carry_out(&mut world, &action);
            drain(&mut world, &mut machine, story, &mut log, &mut writes, options)?;
            let event = Event { at: now, what: Happened::ActionFinished { id, outcome } };
            feed(&mut machine, story, &mut log, &event, &mut writes, options)?;
        } else if carrier_at == Some(at) {
            world.advance(now);
        } else {
            let event = Event { at: now, what: Happened::TimedOut };
            feed(&mut machine, story, &mut log, &event, &mut writes, options)?;
        }
        drain(&mut world, &mut machine, story, &mut log, &mut writes, options)?;
    }
    if let Some(log) = &mut log {
        log.flush()?;
    }
    story.end(now);
    let (written, settings) = (story.written(), story.replay.settings.clone());
    story.problems(audit::problems(&world, &settings, &written));
    if machine.in_flight() > 0 {
        story.problems(vec![format!("{} actions are still under way", machine.in_flight())]);
    }
    Ok(())
}

fn next_event(
    next: &mut impl FnMut() -> Result<Option<Line>, LogError>,
) -> Result<Option<Event>, LogError> {
    loop {
        match next()? {
            Some(Line::Event(event)) => return Ok(Some(event)),
            Some(Line::Action(_)) => {}
            None => return Ok(None),
        }
    }
}

/// Hands what the watches show to the machine.
fn drain<W: Write>(
    world: &mut World,
    machine: &mut Machine,
    story: &mut Story,
    log: &mut Option<Writer<W>>,
    writes: &mut BTreeMap<(UnixMillis, ActionId), Action>,
    options: &Options,
) -> anyhow::Result<()> {
    while let Some(event) = world.poll_event() {
        feed(machine, story, log, &event, writes, options)?;
    }
    Ok(())
}

fn feed<W: Write>(
    machine: &mut Machine,
    story: &mut Story,
    log: &mut Option<Writer<W>>,
    event: &Event,
    writes: &mut BTreeMap<(UnixMillis, ActionId), Action>,
    options: &Options,
) -> anyhow::Result<()> {
    if let Some(log) = log {
        log.event(event)?;
    }
    story.replayed(event);
    machine.handle_event(event);
    while let Some(decision) = machine.poll_action() {
        if let Some(log) = log {
            log.action(&decision)?;
        }
        let at = decision.at.plus(options.write_ms);
        writes.insert((at, decision.action.id), decision.action.clone());
        story.acted(decision);
    }
    while let Some(note) = machine.poll_note() {
        story.replay.notes.push(note);
    }
    Ok(())
}
