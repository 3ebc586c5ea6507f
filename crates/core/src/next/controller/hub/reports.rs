//! What is reported of a plan: that a mirror is deferred, that a status does not fit, that a write
//! is refused.

use super::super::{Controller, Notes};
use super::HubMemory;
use crate::contract::action::Verb;
use crate::contract::event::Outcome;
use crate::contract::note::{AnomalyKind, Hop, NoteKind, StallCause};
use crate::contract::settings::MirrorSettings;
use crate::data::object_ref::ObjectRef;
use crate::next::rules::mirror::{Before, Oversize, Place, Plan, Verdict};

pub(super) fn report_deferral(
    notes: &mut Notes,
    place: Place<'_>,
    memory: &mut HubMemory,
    before: Before,
) {
    let deferred = memory.mirror.deferred_since.is_some();
    if deferred == before.is_deferred {
        return;
    }

    let (cluster, connector) = (place.hub.name.clone(), place.at.name.key());
    notes.push(NoteKind::Deferred { cluster, connector, deferred });
    let ended = match deferred {
        // What was late was another difference.
        true => memory.hop.end(|stall| stall.hop == Hop::Mirrored),
        false => memory.hop.end(|stall| matches!(stall.cause, StallCause::Deferred { .. })),
    };
    notes.extend(ended.map(NoteKind::StallEnded));
}

/// Reports once that a status does not fit.
pub(super) fn report_oversize(
    notes: &mut Notes,
    place: Place<'_>,
    memory: &mut HubMemory,
    plan: &Plan,
    settings: &MirrorSettings,
) {
    let Plan { verdict, oversize, .. } = plan;
    let is_fitted = verdict.is_right() || matches!(verdict, Verdict::OutOfSync { .. });
    if !is_fitted {
        return;
    }
    let was_reported = std::mem::replace(&mut memory.is_oversize_reported, oversize.is_some());

    if let Some(oversize) = oversize.filter(|_| !was_reported) {
        let detail = oversize_detail(oversize, settings.annotation_limit_bytes);
        let Place { at, hub, .. } = place;
        notes.anomaly(AnomalyKind::OversizedStatus, &hub.name, Some(&at.name), detail);
    }
}

fn oversize_detail(oversize: Oversize, limit: usize) -> String {
    let Oversize { bytes, room, is_reduced } = oversize;
    let done = match is_reduced {
        true => "only its Ready condition and connectionDetails are mirrored",
        false => "no part of it fits, so the annotation is removed",
    };
    format!(
        "the status takes {bytes} bytes, but {room} bytes are left of the annotation limit of {limit} \
         bytes; {done}"
    )
}

pub(super) fn report_refused(c: &mut Controller, at: &ObjectRef, verb: Verb, outcome: &Outcome) {
    let error = outcome.error().cloned().unwrap_or_default();
    let seconds = c.settings.retry.max_ms.div_ceil(1_000);
    let next = format!("next attempt in {seconds} s, or when upstream changes");
    let hub = c.world.name_of(at.cluster);
    c.notes.refused(&hub, &at.name, verb, &error, &next);
}
