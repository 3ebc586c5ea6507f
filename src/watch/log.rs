//! What the log for people says about watches: a line for each while there are few clusters, and one
//! for each cause while there are many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout_at;
use tracing::{debug, info, warn};

use super::shared::MembershipId;
use crate::clock::Clock;
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::grouping::{Cause, Group, Groups, Member, Stage};
use crate::report::style::count;

/// While many lists are complete, a line says how many, at most this often.
const PROGRESS_EVERY_MS: u64 = 10_000;

/// The watches that are lost, by cause.
#[derive(Debug)]
pub(super) struct WatchLog {
    state: Mutex<State>,
    /// Something is due sooner than before.
    sooner: Notify,
}

/// One watch, for as long as its task runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchName<'a> {
    pub(super) membership: MembershipId,
    pub(super) cluster: &'a ClusterName,
    pub(super) kind: Kind,
}

impl WatchName<'_> {
    /// A cluster that joins again has other watches than before.
    fn member(self) -> Member {
        let object = ObjectKey::new(self.membership.0.to_string(), self.kind.as_str());
        (self.cluster.clone(), object)
    }
}

#[derive(Debug)]
struct State {
    clock: Clock,
    lost: BTreeMap<(MembershipId, Kind), ErrorCause>,
    groups: Groups<Loss>,
    /// How many watches left a group without being live again: they are lost for another cause now, or
    /// their cluster left.
    unresumed: BTreeMap<ErrorCause, u64>,
    progress: Progress,
    /// A task writes what is due, and sleeps until then.
    sleeps_until: Option<UnixMillis>,
}

/// Why a watch is lost.
#[derive(Clone, Debug)]
struct Loss {
    kind: Kind,
    error: String,
    remedy: Option<String>,
}

/// Lists that were completed since the last line about them.
#[derive(Debug, Default)]
struct Progress {
    lists: usize,
    objects: u64,
    since: Option<UnixMillis>,
}

impl WatchLog {
    pub(super) fn new() -> Self {
        let state = State {
            clock: Clock::start(),
            lost: BTreeMap::new(),
            groups: Groups::new(0),
            unresumed: BTreeMap::new(),
            progress: Progress::default(),
            sleeps_until: None,
        };
        Self { state: Mutex::new(state), sooner: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A watch is lost, or could not be resumed. Called for each new error.
    pub(super) fn lost(
        self: &Arc<Self>,
        watch: WatchName<'_>,
        failure: &RequestFailure,
        remedy: Option<String>,
    ) {
        let kind = watch.kind;
        debug!(error = %failure, "watch lost, one of many; retrying");
        let mut state = self.state();
        let now = state.clock.now();
        let before = state.lost.insert((watch.membership, kind), failure.cause);
        if before == Some(failure.cause) {
            return;
        }
        if let Some(error) = before {
            state.leave_group(error, watch, false);
        }
        let loss = Loss { kind, error: failure.to_string(), remedy };
        state.groups.begin(now, Cause::Watch { error: failure.cause }, watch.member(), loss);
        self.write_soon(state);
    }

    /// A watch is live again. Returns whether it was lost as one of many.
    pub(super) fn resumed(self: &Arc<Self>, watch: WatchName<'_>) -> bool {
        self.end(self.state(), watch, true)
    }

    /// A list is complete.
    pub(super) fn listed(self: &Arc<Self>, watch: WatchName<'_>, objects: u64) {
        debug!(objects, "listed, one of many");
        let mut state = self.state();
        let now = state.clock.now();
        state.progress.lists += 1;
        state.progress.objects += objects;
        state.progress.since.get_or_insert(now);
        self.end(state, watch, true);
    }

    /// The cluster of a watch left, or the run ends.
    pub(super) fn ended(self: &Arc<Self>, watch: WatchName<'_>) {
        self.end(self.state(), watch, false);
    }

    fn end(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        watch: WatchName<'_>,
        is_live: bool,
    ) -> bool {
        let error = state.lost.remove(&(watch.membership, watch.kind));
        if let Some(error) = error {
            state.leave_group(error, watch, is_live);
        }
        self.write_soon(state);
        error.is_some()
    }

    /// Makes sure that a task writes what is due, when it is due.
    fn write_soon(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let Some(due) = state.due() else { return };
        match state.sleeps_until {
            Some(until) if until <= due => {}
            Some(_) => self.sooner.notify_one(),
            None => {
                // A task that is dropped with its runtime has none any longer.
                let Ok(runtime) = Handle::try_current() else { return };
                state.sleeps_until = Some(due);
                drop(state);
                runtime.spawn(self.clone().write_all());
            }
        }
    }

    /// Writes all that is due, until nothing is.
    async fn write_all(self: Arc<Self>) {
        loop {
            let due = {
                let mut state = self.state();
                state.write();
                state.sleeps_until = state.due();
                let Some(due) = state.sleeps_until else { return };
                state.clock.instant(due)
            };
            // Either way, what is due is evaluated again.
            let _ = timeout_at(due, self.sooner.notified()).await;
        }
    }
}

impl State {
    fn due(&self) -> Option<UnixMillis> {
        let progress = self.progress.since.map(|since| since.plus(PROGRESS_EVERY_MS));
        self.groups.due().into_iter().chain(progress).min()
    }

    /// A watch is no longer lost for this cause.
    fn leave_group(&mut self, error: ErrorCause, watch: WatchName<'_>, is_live: bool) {
        if !is_live {
            *self.unresumed.entry(error).or_default() += 1;
        }
        self.groups.end(self.clock.now(), &Cause::Watch { error }, &watch.member());
    }

    fn write(&mut self) {
        let now = self.clock.now();
        let Self { groups, unresumed, .. } = self;
        groups.poll(now, |cause, stage, group| {
            let Cause::Watch { error } = cause else { return };
            let unresumed = if stage == Stage::Ended { unresumed.remove(error) } else { None };
            write_losses(stage, group, unresumed.unwrap_or_default());
        });
        if self.progress.since.is_some_and(|since| now.since(since) >= PROGRESS_EVERY_MS) {
            let Progress { lists, objects, .. } = std::mem::take(&mut self.progress);
            info!(lists, objects, "listed: {}", count(lists, "watch"));
        }
    }
}

fn write_losses(stage: Stage, group: &Group<Loss>, unresumed: u64) {
    let Loss { kind, error, remedy } = &group.first;
    let watches = group.members.len();
    let clusters: BTreeSet<_> = group.members.keys().map(|(cluster, _)| cluster).collect();
    let of = || format!("{} of {}", count(watches, "watch"), count(clusters.len(), "cluster"));
    match stage {
        Stage::Began if group.is_about_one() => {
            if let Some((cluster, _)) = group.members.keys().next() {
                warn!(%cluster, %kind, error, remedy, "watch lost; retrying");
            }
        }
        // They came back before anything was logged.
        Stage::Began if watches == 0 => {}
        Stage::Began => warn!(error, remedy, "watch lost; retrying: {}", of()),
        Stage::Changed if watches == group.reported_members => {}
        Stage::Changed => warn!(error, remedy, "watch still lost; retrying: {}", of()),
        Stage::Ended if group.total <= unresumed => {}
        Stage::Ended => {
            let resumed = usize::try_from(group.total - unresumed).unwrap_or(usize::MAX);
            info!(error, "watch resumed: {}", count(resumed, "watch"));
        }
    }
}
