//! Handles changes of hub Connectors: what the watch shows, and the writes that end.

use super::hub;
use super::state::Machine;
use crate::contract::event::Outcome;
use crate::data::ids::{ActionId, Kind, ResourceVersion};
use crate::data::object_ref::ObjectRef;
use crate::data::objects::FIELD_MANAGER;
use crate::plan::{Intent, MirrorJob};
use crate::rules::mirror::{MirrorMemory, Place, SyncState};
use crate::subject::Subject;
use crate::world::Change;
use crate::world::change::HubConnectorSeen;
use crate::write_state::{Completion, written_version};

pub(super) fn on_change(m: &mut Machine, change: &Change) {
    match change {
        Change::HubConnectorSeen(seen) => on_seen(m, seen),
        Change::UpstreamChanged { at } => {
            if let Some(memory) = m.memory.hub.get_mut(at) {
                memory.mirror.write.on_desired_changed();
            }
        }
        Change::UpstreamLeft { at } => {
            if let Some(memory) = m.memory.hub.get_mut(at) {
                memory.mirror.sync = SyncState::NotSeen;
                memory.hop.on_upstream_left();
            }
        }
        Change::EvidenceLost { upstream } => {
            let pending_removals = m.breakers.pending_removals(upstream).into_iter();
            m.dirty.extend(pending_removals.map(Subject::HubConnector));
        }
        _ => {}
    }
}

/// The watch showed the object in a version that is not older.
fn on_seen(m: &mut Machine, seen: &HubConnectorSeen) {
    let at = &seen.at;
    let Some(place) = Place::find(&m.world, at) else {
        return debug_assert!(false, "a hub Connector that was shown is not in the tables");
    };
    if let Some(memory) = m.memory.hub.get_mut(at) {
        memory.mirror.on_seen(seen.annotation());
    }

    let at_rest = MirrorMemory::default();
    let memory = m.memory.hub.get(at).map_or(&at_rest, |memory| &memory.mirror);
    let is_continued = seen.is_same_object && !seen.is_resumed && !place.row.seen.is_paused;
    let is_overwritten = is_continued && memory.is_overwritten(place, seen.before);
    let is_leaders = !m.is_leader && seen.manager() == Some(FIELD_MANAGER);
    // The hub's watch may show the leader's mirror before upstream's watch shows the reason for it.
    let is_ahead = is_overwritten && is_leaders;
    let is_new = !seen.is_same_object && place.hub.is_live(Kind::Connector);

    if is_overwritten && !is_leaders {
        on_overwritten(m, at, seen.manager());
    }
    if is_ahead || seen.is_resumed || is_new {
        m.memory.hub.entry(at.clone()).or_default().mirror.on_resumed(m.now);
    }
    if seen.before.is_some() != seen.annotation().is_some() {
        on_population_changed(m, at);
    }
}

/// An annotation appeared or disappeared.
fn on_population_changed(m: &mut Machine, at: &ObjectRef) {
    if let Some(upstream) = Place::find(&m.world, at).and_then(Place::named) {
        m.breakers.on_population_changed(upstream);
    }
}

/// Another writer changed an annotation that was in sync.
fn on_overwritten(m: &mut Machine, at: &ObjectRef, manager: Option<&str>) {
    let memory = &mut m.memory.hub.entry(at.clone()).or_default().mirror;
    memory.on_overwritten(manager, &m.world.settings.mirror, m.now);
}

/// An action ended. The outcome of an abandoned one changes nothing.
pub(super) fn on_finished(m: &mut Machine, at: &ObjectRef, id: ActionId, outcome: &Outcome) {
    let is_absent = Place::find(&m.world, at).is_some_and(Place::is_source_absent);
    let Some(memory) = m.memory.hub.get_mut(at) else { return };
    let finished = memory.mirror.on_finished(id, outcome, &m.world.settings, m.now);
    let Some((completion, mirror)) = finished else { return };
    let manager = memory.mirror.write.contention().and_then(|last| last.manager.clone());

    match (completion, mirror) {
        (Completion::Written { object_changed }, Some(job)) => {
            if job.intent == Intent::Removal && is_absent {
                memory.hop.on_removed();
            }
            on_mirrored(m, at, job, outcome, object_changed);
        }
        (Completion::Written { object_changed }, None) => {
            memory.nudge.on_written(&m.world.settings.mirror, m.now);
            m.world.on_nudged(at, written_version(outcome), object_changed);
            hub::on_nudged(m, at.cluster);
        }
        // A hub that is too slow to answer may have written it, and more nudges make it slower.
        (Completion::NotWritten, None) if outcome.is_time_out() => {
            memory.nudge.on_written(&m.world.settings.mirror, m.now);
            hub::on_nudged(m, at.cluster);
        }
        (Completion::NotWritten, _) => {}
    }

    // Not only the object but the annotation itself differs from what the watch showed, so another
    // writer contends for it. If this did not count, the two would overwrite each other at full
    // speed.
    let compares_annotation = mirror.is_some_and(|job| job.compares_annotation);
    let is_conflict = matches!(outcome, Outcome::Conflict { .. });
    let is_paused = || Place::find(&m.world, at).is_some_and(|place| place.row.seen.is_paused);
    if compares_annotation && is_conflict && !is_paused() {
        on_overwritten(m, at, manager.as_deref());
    }
}

/// A mirror succeeded. The watch may have shown it, or even a later one, before its outcome.
fn on_mirrored(
    m: &mut Machine,
    at: &ObjectRef,
    job: MirrorJob,
    outcome: &Outcome,
    object_changed: bool,
) {
    let version = written_version(outcome);
    let is_known = version != ResourceVersion::Absent;
    if m.world.on_mirrored(at, version, object_changed, job.digest) {
        return on_population_changed(m, at);
    }

    let shown = Place::find(&m.world, at).and_then(Place::digest);
    let is_shown = shown == job.digest.map(|digest| digest.all);
    if !is_known
        && !is_shown
        && let Some(memory) = m.memory.hub.get_mut(at)
    {
        // Which of the two came first is unknown, so wait for the watch.
        memory.mirror.write.pause(m.now.plus(m.world.settings.retry.first_ms));
    }
}
