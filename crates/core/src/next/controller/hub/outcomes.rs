//! Writes to hub Connectors: decided, started, ended.

use super::super::Controller;
use super::reports::report_refused;
use super::{is_paused, on_overwritten, on_population_changed, restart_nudges};
use crate::contract::action::Verb;
use crate::contract::event::Outcome;
use crate::data::ids::{ActionId, ResourceVersion};
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::next::plan::{Job, PlannedWrite};
use crate::next::rules::mirror::Writing;
use crate::next::rules::nudge::SILENT_EVERY_MS;
use crate::next::world::World;
use crate::next::write_state::{Completion, written_version};
use crate::status::liveness::StatusDigest;

/// A write is decided. It gets its number when the moment ends.
pub(in super::super) fn on_decided(c: &mut Controller, planned: &PlannedWrite, now: UnixMillis) {
    match &planned.write.job {
        Job::Mirror(at, _) => {
            c.memory.hub.entry(at.clone()).or_default().mirror.on_decided(planned, now);
        }
        Job::Nudge(at, _) => {
            if c.memory.carriers.entry(at.cluster).or_default().on_nudged() {
                restart_nudges(c, at.cluster, now.plus(SILENT_EVERY_MS));
            }
        }
        Job::Touch(..) | Job::Delete(_) => {}
    }
}

/// An action ended. An outcome of one that was given up changes nothing.
pub(in super::super) fn on_finished(
    c: &mut Controller,
    at: &ObjectRef,
    id: ActionId,
    outcome: &Outcome,
    now: UnixMillis,
) {
    let Some(memory) = c.memory.hub.get_mut(at) else { return };
    let finished = memory.mirror.on_finished(id, outcome, &c.settings, now);
    let Some((completion, writing)) = finished else { return };

    match completion {
        Completion::Written { object_changed } => {
            on_written(c, at, writing, outcome, object_changed, now);
        }
        Completion::Refused { is_news: true } => {
            let verb = if writing.is_some() { Verb::Mirror } else { Verb::Nudge };
            report_refused(c, at, verb, outcome);
        }
        Completion::Refused { is_news: false } | Completion::NotWritten => {}
    }
    if writing.is_some_and(|writing| writing.shows_overwrite(outcome)) && !is_paused(c, at) {
        let memory = c.memory.hub.get(at);
        let contention = memory.and_then(|memory| memory.mirror.write.contention());
        let manager = contention.and_then(|contention| contention.manager.clone());
        on_overwritten(c, at, manager.as_deref(), now);
    }
}

/// A write succeeded. The watch may have shown it, and even a later one, before its outcome.
fn on_written(
    c: &mut Controller,
    at: &ObjectRef,
    writing: Option<Writing>,
    outcome: &Outcome,
    object_changed: bool,
    now: UnixMillis,
) {
    let version = written_version(outcome);
    let Some(memory) = c.memory.hub.get_mut(at) else { return };
    let Some(Writing { job, .. }) = writing else {
        c.world.on_nudged(at, version, object_changed);
        return memory.nudge.on_written(&c.settings.mirror, now);
    };

    let is_known = version != ResourceVersion::Absent;
    let is_newest = c.world.on_mirrored(at, version, object_changed, job.digest);
    if is_newest {
        on_population_changed(c, at);
    } else if !is_known && annotation_of(&c.world, at) != job.digest {
        // Which of the two came first is not known: let the watch catch up.
        memory.mirror.write.pause(now.plus(c.settings.retry.first_ms));
    }
}

fn annotation_of(world: &World, at: &ObjectRef) -> Option<StatusDigest> {
    world.clusters.get(&at.cluster)?.hub_connectors.get(&at.name)?.seen.annotation
}
