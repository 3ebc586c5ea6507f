//! Connectors that wait too long for their announcement, and why they do.

use super::state::Controller;
use super::touch::{gateways_of, targets_of, targets_waiting};
use crate::contract::error_cause::RequestFailure;
use crate::contract::note::{Hop, NoteKind, Stall, StallCause};
use crate::contract::touches_waiting::TouchesWaiting;
use crate::data::object_ref::ObjectRef;
use crate::plan::Agenda;
use crate::rules::touch;
use crate::subject::{Subject, Target};
use crate::write_queue::QueueKey;

/// A connector is late once it has waited too long for its announcement. It writes nothing.
pub(super) fn plan(c: &mut Controller, at: &ObjectRef) -> Option<Agenda> {
    let is_paused = waits_for_pause(c, at);
    let edge = c.memory.edges.get_mut(&at.cluster)?;
    let waiting = edge.waiting.get_mut(&at.name)?;
    if is_paused {
        c.notes.stall_ended(waiting.stall.take());
        return Some(Agenda::default());
    }
    if waiting.stall.is_some() {
        return Some(Agenda::default());
    }

    let late_at = waiting.since.plus(c.settings.stall.touched_ms);
    if c.now < late_at {
        return Some(Agenda::default().requeue_at(Some(late_at)));
    }
    let stall = stall(c, at, targets_waiting(c, at))?;
    let edge = c.memory.edges.get_mut(&at.cluster)?;
    edge.waiting.get_mut(&at.name)?.stall = Some(Box::new(stall.clone()));
    c.notes.push(NoteKind::Stalled(stall));
    Some(Agenda::default())
}

fn stall(c: &mut Controller, at: &ObjectRef, targets: usize) -> Option<Stall> {
    let cluster = c.world.clusters.get(&at.cluster)?;
    let changed_at = cluster.edge.connectors.get(&at.name)?.seen.changed_at;
    let is_ready = cluster.edge.ready_since.is_some();
    let name = cluster.name.clone();
    let kind = if cluster.edge.is_by_class { "GatewayClass" } else { "Gateway" };

    let (cause, reason) = if let Some(error) = touch_error(c, at) {
        let reason = format!("writing the trigger fails: {error}");
        (StallCause::WritesFail { cluster: name.clone(), error: error.cause }, reason)
    } else if !is_ready {
        let reason = "a watch of the edge is not live, so its Gateways are not touched";
        (StallCause::WatchLost { cluster: name.clone() }, reason.to_owned())
    } else if let Some(waiting) = touches_before(c, at) {
        let reason = format!("the edge takes no more touches: {waiting}");
        (StallCause::TouchesWait { cluster: name.clone() }, reason)
    } else {
        (StallCause::NotTouched { cluster: name.clone() }, not_touched(targets, kind))
    };
    Some(Stall {
        cluster: name,
        connector: at.name.key(),
        hop: Hop::Touched,
        since: changed_at.unwrap_or(c.now),
        cause,
        reason,
    })
}

fn not_touched(targets: usize, kind: &str) -> String {
    match (targets, kind) {
        (1, kind) => format!("1 {kind} is not touched yet"),
        (n, "GatewayClass") => format!("{n} GatewayClasses are not touched yet"),
        (n, kind) => format!("{n} {kind}s are not touched yet"),
    }
}

/// The error of a failed write to one of a connector's Gateways.
fn touch_error<'c>(c: &'c Controller, connector: &ObjectRef) -> Option<&'c RequestFailure> {
    let edge = &c.world.clusters.get(&connector.cluster)?.edge;
    gateways_of(c, connector).find_map(|gateway| {
        let memory = c.memory.targets.get(&edge.target_of(&gateway)?)?;
        Some(&memory.write.failure()?.error)
    })
}

/// All touches that wait for the edge's limit, where those that a connector waits for are among
/// them.
fn touches_before(c: &mut Controller, connector: &ObjectRef) -> Option<TouchesWaiting> {
    let targets = targets_of(c, connector);
    let queue = c.scheduler.queue(QueueKey::Touches(connector.cluster));
    let is_waiting = targets.into_iter().any(|target| {
        let due = queue.and_then(|queue| queue.due_of(&Subject::Target(target)));
        due.is_some_and(|due| due.at < c.now)
    });

    let report = &mut c.memory.edges.get_mut(&connector.cluster)?.report;
    let per_second = c.settings.touch.max_per_second;
    if is_waiting { report.lately(queue, per_second, c.now) } else { None }
}

/// Whether a connector's announcement waits for nothing but paused Gateways.
fn waits_for_pause(c: &Controller, connector: &ObjectRef) -> bool {
    let Controller { world, memory, settings, .. } = c;
    let has_change =
        |target: &Target| memory.targets.get(target).is_some_and(|memory| memory.has_change());
    let is_paused = |target: &Target| {
        touch::view(world, target, settings, c.now).is_some_and(|view| view.is_paused())
    };
    let mut pending = targets_of(c, connector).into_iter().filter(has_change).peekable();
    pending.peek().is_some() && pending.all(|target| is_paused(&target))
}
