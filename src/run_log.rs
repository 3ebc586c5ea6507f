//! The observer interface of a live run, and the observer that writes the log for people: one line
//! for each write, and one for each cause of trouble, however many objects suffer from it.

mod naming;

use tracing::{debug, error, info, trace, warn};

use crate::clock::millis;
use crate::core::contract::action::{Decision, Verb};
use crate::core::contract::event::{Event, Outcome};
use crate::core::contract::keep_reason::KeepReason;
use crate::core::contract::note::{Anomaly, AnomalyKind, Note, NoteKind, Stall};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::ObjectKey;
use crate::core::data::time::UnixMillis;
use crate::core::view::involved_object::InvolvedObject;
use crate::executor::FinishedAction;
use crate::grouping::{Cause, Group, Groups, Stage};
use crate::report::style;

/// Sees everything that enters and leaves the machine of a live run, in order. Its methods are
/// called in the loop and must not block.
pub trait Observer: Send {
    /// An event entered the machine.
    fn on_event(&mut self, _event: &Event) {}
    /// The machine decided on an action.
    fn on_decision(&mut self, _decision: &Decision) {}
    /// An action ended.
    fn on_finished(&mut self, _at: UnixMillis, _finished: &FinishedAction) {}
    /// The machine emitted a note.
    fn on_note(&mut self, _note: &Note) {}
    /// Called after [`Observer::on_note`] when the object that the note is about exists.
    fn on_object_note(&mut self, _note: &Note, _object: &InvolvedObject) {}
    /// When [`Observer::on_due`] is to be called, if nothing changes before.
    fn due(&self) -> Option<UnixMillis> {
        None
    }
    /// The time that [`Observer::due`] returned has come.
    fn on_due(&mut self, _now: UnixMillis) {}
}

/// What a group's lines say of an object.
#[derive(Clone, Debug)]
enum Entry {
    Stall { at: UnixMillis, stall: Stall },
    Anomaly(Anomaly),
    Orphan,
    Write { error: String },
}

/// Writes a log line for each action and each note of interest; none while nothing changes.
#[derive(Debug)]
pub struct RunLog {
    /// The longest pause between two attempts at a write.
    retry_max_s: u64,
    groups: Groups<Entry>,
}

impl RunLog {
    pub fn new(settings: &Settings) -> Self {
        Self { retry_max_s: settings.retry.max_ms.div_ceil(1_000), groups: Groups::new(0) }
    }

    /// Whether this write's failure gets a line of its own, as the first of its kind.
    fn is_first_failure(&mut self, at: UnixMillis, finished: &FinishedAction) -> bool {
        let Some(error) = finished.outcome.error() else { return true };
        let action = &finished.decision.action;
        let cause = Cause::Write {
            cluster: action.cluster.clone(),
            verb: action.verb,
            error: error.cause,
            is_refused: matches!(finished.outcome, Outcome::Refused { .. }),
        };
        let member = (action.cluster.clone(), action.object.clone());
        let entry = Entry::Write { error: error.text.to_string() };
        self.groups.happen_again(at, cause, member, entry)
    }
}

/// The hop that an action completes, as the log names it.
fn hop(verb: Verb) -> &'static str {
    match verb {
        Verb::Mirror => "mirrored",
        Verb::Nudge => "arrived",
        Verb::Touch => "touched",
        Verb::Delete => "none",
    }
}

fn names(connectors: &[ObjectKey]) -> String {
    let names: Vec<_> = connectors.iter().map(ToString::to_string).collect();
    names.join(",")
}

/// Logs an action with all its fields. A macro, because tracing needs level and message at compile
/// time.
macro_rules! action_line {
    ($level:ident, $finished:expr, $error:expr, $($text:tt)+) => {{
        let finished: &FinishedAction = $finished;
        let action = &finished.decision.action;
        $level!(
            action = action.id.0,
            verb = action.verb.as_str(),
            cluster = %action.cluster,
            kind = %action.kind,
            object = %action.object,
            connector = names(&action.connectors),
            hop = hop(action.verb),
            because = finished.decision.because,
            outcome = finished.outcome.name(),
            waited_ms = millis(finished.waited),
            duration_ms = millis(finished.took),
            error = $error,
            $($text)+
        )
    }};
}

impl Observer for RunLog {
    fn on_finished(&mut self, at: UnixMillis, finished: &FinishedAction) {
        let error = finished.outcome.error();
        let error = error.map(|error| &*error.text);
        match &finished.outcome {
            Outcome::Applied { .. } => action_line!(info, finished, error, "written"),
            Outcome::Unchanged => {
                action_line!(info, finished, error, "not changed: it already had this value");
            }
            Outcome::DryRun => action_line!(info, finished, error, "dry run: would write"),
            Outcome::Superseded => {
                action_line!(info, finished, error, "not sent: superseded by a newer write");
            }
            Outcome::Dropped => {
                action_line!(
                    info,
                    finished,
                    error,
                    "not sent: this instance is not the leader, or the cluster has left"
                );
            }
            Outcome::NotFound => action_line!(info, finished, error, "the object no longer exists"),
            Outcome::Conflict { .. } => action_line!(
                info,
                finished,
                error,
                "not written: the object has changed; waiting for the watch to show it"
            ),
            Outcome::Unanswered { .. } => action_line!(
                warn,
                finished,
                error,
                "delete sent, but no response came; the watch will show whether it was done"
            ),
            Outcome::Failed { .. } | Outcome::Refused { .. }
                if !self.is_first_failure(at, finished) =>
            {
                action_line!(debug, finished, error, "write failed, as others before");
            }
            Outcome::Failed { .. } => {
                action_line!(
                    warn,
                    finished,
                    error,
                    "write failed; it is tried again within {} s",
                    self.retry_max_s
                );
            }
            Outcome::Refused { .. } => action_line!(
                error,
                finished,
                error,
                "write refused; fix the permission or webhook; next attempt in {} s",
                self.retry_max_s
            ),
        }
    }

    fn on_note(&mut self, note: &Note) {
        match &note.kind {
            NoteKind::Began(_) | NoteKind::Ended(_) => {}
            NoteKind::HopPassed { cluster, connector, hop, online, after_ms } => {
                debug!(%cluster, %connector, hop = hop.as_str(), online, after_ms, "hop passed");
            }
            NoteKind::Deferred { cluster, connector, deferred } => {
                debug!(%cluster, %connector, deferred, "mirror of what routes nothing");
            }
            NoteKind::Stalled(stall) => {
                trace!(cluster = %stall.cluster, connector = %stall.connector,
                    hop = stall.hop.as_str(), reason = stall.reason, "stalled, one of its group");
                let member = (stall.cluster.clone(), stall.connector.clone());
                let entry = Entry::Stall { at: note.at, stall: stall.clone() };
                self.groups.begin(note.at, Cause::of_stall(stall), member, entry);
            }
            NoteKind::StallEnded(stall) => {
                let member = (stall.cluster.clone(), stall.connector.clone());
                self.groups.end(note.at, &Cause::of_stall(stall), &member);
            }
            NoteKind::Anomaly(anomaly) if anomaly.anomaly == AnomalyKind::TooManyOrphans => {
                error!(cluster = %anomaly.cluster, detail = anomaly.detail,
                    "too many orphans: no route of this upstream cluster is deleted");
            }
            NoteKind::Anomaly(anomaly) => match &anomaly.object {
                Some(object) => {
                    let member = (anomaly.cluster.clone(), object.clone());
                    let entry = Entry::Anomaly(anomaly.clone());
                    self.groups.happen(note.at, Cause::of_anomaly(anomaly), member, entry);
                }
                None => log_anomaly(anomaly),
            },
            NoteKind::Orphan { cluster, route, kept } => {
                let cause = Cause::Orphan { hub: cluster.clone(), kept: *kept };
                let member = (cluster.clone(), route.clone());
                self.groups.happen(note.at, cause, member, Entry::Orphan);
            }
            NoteKind::OrphanGone { cluster, route } => {
                debug!(%cluster, %route, "an orphaned route no longer exists");
            }
            NoteKind::Held { cluster, reason, held: 0, .. } => {
                info!(upstream = %cluster, reason = reason.as_str(), "annotations are no longer held");
            }
            NoteKind::Held { cluster, reason, held, named } => {
                warn!(upstream = %cluster, reason = reason.as_str(), held, of = named,
                    because = reason.text(), remedy = reason.remedy(),
                    "annotations are left as they are");
            }
            NoteKind::Discovery { source, problem, clusters: 0, .. } => {
                info!(%source, problem = problem.as_str(), "discovery: no longer a problem");
            }
            NoteKind::Discovery { source, problem, clusters, of, detail } => {
                warn!(%source, problem = problem.as_str(), clusters, of, detail,
                    because = problem.text(), remedy = problem.remedy(), "discovery");
            }
            NoteKind::ClusterGone { cluster, connectors: 0, routes: 0 } => {
                info!(upstream = %cluster, "no hub object names the deleted project any longer");
            }
            NoteKind::ClusterGone { cluster, connectors, routes } => {
                warn!(upstream = %cluster, connectors, routes,
                    "a deleted project can still serve traffic: hub objects name it");
            }
            NoteKind::Naming { problem, over, upstreams, unnamed } => {
                naming::log(*problem, *over, upstreams, unnamed);
            }
            NoteKind::TouchesWaiting { cluster, waiting } => {
                info!(%cluster, touches = waiting.touches, "{waiting}");
            }
            NoteKind::DeletesHeld { cluster, held, orphans, routes } => {
                info!(%cluster, held, orphans, routes, "orphaned routes of an upstream cluster");
            }
        }
    }

    fn due(&self) -> Option<UnixMillis> {
        self.groups.due()
    }

    fn on_due(&mut self, now: UnixMillis) {
        self.groups.poll(now, |cause, stage, group| match &group.first {
            Entry::Stall { at, stall } => log_stalls(now, stage, group, (*at, stall)),
            Entry::Anomaly(anomaly) => log_anomalies(stage, group, anomaly),
            Entry::Orphan => log_orphans(cause, group),
            Entry::Write { error } => log_failures(cause, group, error),
        });
    }
}

/// The line of one stall names the connector; that of many has their number.
fn log_stalls(now: UnixMillis, stage: Stage, group: &Group<Entry>, first: (UnixMillis, &Stall)) {
    let (at, stall) = first;
    let (cluster, connector, hop) = (&stall.cluster, &stall.connector, stall.hop.as_str());
    let (count, connectors) = (group.members.len(), group.names());
    let total = usize::try_from(group.total).unwrap_or(usize::MAX);
    let many = |n| style::count(n, "connector");
    let (cause, reason) = (stall.cause.as_str(), &stall.reason);
    match stage {
        Stage::Began if group.is_about_one() => {
            let since_ms = at.since(stall.since);
            warn!(%cluster, %connector, hop, since_ms, reason, "stalled");
        }
        Stage::Ended if group.is_about_one() => {
            let after_ms = group.changed_at.since(stall.since);
            info!(%cluster, %connector, hop, after_ms, "no longer stalled");
        }
        Stage::Began => {
            let since_ms = now.since(stall.since);
            warn!(cause, %cluster, connectors, hop, since_ms, reason, "stalled: {}", many(total));
        }
        Stage::Changed if count == group.reported_members => {}
        Stage::Changed => {
            let since_ms = now.since(stall.since);
            warn!(cause, %cluster, connectors, hop, since_ms, reason,
                "still stalled: {}", many(count));
        }
        Stage::Ended => {
            let after_ms = group.changed_at.since(stall.since);
            info!(cause, %cluster, hop, after_ms, "no longer stalled: {}", many(total));
        }
    }
}

fn log_anomaly(anomaly: &Anomaly) {
    let object = anomaly.object.as_ref().map(ToString::to_string);
    warn!(anomaly = anomaly.anomaly.as_str(), cluster = %anomaly.cluster, object,
        detail = anomaly.detail, "anomaly");
}

fn log_anomalies(stage: Stage, group: &Group<Entry>, first: &Anomaly) {
    if stage == Stage::Began && group.is_about_one() {
        return log_anomaly(first);
    }
    let latest = group.members.values().find_map(|entry| match entry {
        Entry::Anomaly(anomaly) => Some(anomaly),
        _ => None,
    });
    let (anomaly, count) = (latest.unwrap_or(first), group.members.len());
    if count == 1 {
        return log_anomaly(anomaly);
    }
    warn!(anomaly = anomaly.anomaly.as_str(), cluster = %anomaly.cluster, objects = group.names(),
        detail = anomaly.detail, "anomaly: {}", style::count(count, "object"));
}

fn log_orphans(cause: &Cause, group: &Group<Entry>) {
    let Cause::Orphan { hub: cluster, kept } = cause else { return };
    let (count, route) = (group.members.len(), group.names());
    let kept_because = kept.map(KeepReason::text);
    let kept = kept.map(KeepReason::as_str);
    if count == 1 {
        info!(%cluster, route, kept, kept_because, "orphaned route");
    } else {
        info!(%cluster, routes = route, kept, kept_because, "orphaned routes: {count}");
    }
}

/// The writes that failed since the last line as one did that has a line of its own.
fn log_failures(cause: &Cause, group: &Group<Entry>, error: &str) {
    let Cause::Write { cluster, verb, is_refused, .. } = cause else { return };
    let (verb, writes, count) = (verb.as_str(), group.total, group.members.len());
    let (objects, many) = (group.names(), style::count(count, "object"));
    if *is_refused {
        error!(verb, %cluster, writes, objects, error, "write refused again: {many}");
    } else {
        warn!(verb, %cluster, writes, objects, error, "write failed again: {many}");
    }
}

#[cfg(test)]
mod tests;
