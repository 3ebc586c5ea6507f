//! The parts that a live run and the one-shot commands share: the machine, the executor that
//! carries out its actions, and the event log of everything that enters and leaves the machine.
//! The owner of an engine runs its loop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tracing::debug;

use crate::admin::RecentHops;
use crate::apply::Applier;
use crate::build_info;
use crate::client::ClusterClient;
use crate::clock::{Clock, sleep_until_opt};
use crate::config::{Config, EventLogConfig};
use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::contract::note::{Note, NoteKind};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::core::machine::Machine;
use crate::event_log::Header;
use crate::events::Poster;
use crate::executor::{Executor, FinishedAction};
use crate::fleet::{ClusterTable, Fleet, Member};
use crate::leader::gate::Gate;
use crate::live_log::{DeletedRoutes, LiveLog};
use crate::metrics::Metrics;
use crate::observer::Observer;
use crate::problems::{self, GATHER_MS, Outside, Problems};
use crate::watch::WatchMessage;

/// The machine, with its inputs and outputs.
pub(crate) struct Engine {
    pub(crate) fleet: Fleet,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
    pub(crate) machine: Machine,
    pub(crate) executor: Executor,
    pub(crate) hops: RecentHops,
    /// `None` until it is opened, or if no file is configured.
    log: Option<LiveLog>,
    observer: Option<Box<dyn Observer>>,
    pub(crate) problems: Problems,
    /// The sender of problems outside the machine; `reported` receives them.
    pub(crate) outside: Outside,
    pub(crate) reported: UnboundedReceiver<NoteKind>,
    /// `None` if no Kubernetes Events are posted.
    pub(crate) poster: Option<Poster>,
}

/// The event log's header for these clusters.
pub(crate) fn log_header(clusters: &ClusterTable, settings: &Settings) -> Header {
    let spec =
        |c: &Arc<ClusterClient>| ClusterSpec { name: c.name().clone(), roles: c.roles().to_vec() };
    let clusters = clusters.all().iter().map(spec).collect();
    let release = Some(build_info::VERSION.into());
    Header { clusters, settings: Some(settings.clone()), release, ..Header::default() }
}

impl Engine {
    /// An engine for the clusters of `config`. Actions that only the leader may take are sent while
    /// `gate` is open. Nothing is connected yet, and the event log is not open.
    pub(crate) fn new(
        config: &Config,
        settings: Settings,
        gate: Gate,
        observer: Option<Box<dyn Observer>>,
    ) -> Self {
        let metrics = Arc::new(Metrics::new());
        let fleet = Fleet::new(config, &metrics);
        let timeout = Duration::from_millis(config.constants.executor.timeout_ms);
        let backup = config.event_log.file.as_deref().map(DeletedRoutes::beside);
        let applier = Applier::new(fleet.table().clone(), timeout, backup);
        let constants = config.constants.executor.clone();
        let executor = Executor::new(applier, gate, constants, config.dry_run, metrics.clone());
        let header = log_header(fleet.table(), &settings);
        let (outside, reported) = Outside::channel();
        let mut machine = Machine::new(settings);
        let clock = Clock::start();
        let at = clock.now();
        for cluster in &header.clusters {
            // Not logged: the header names these clusters.
            machine.handle_event(&Event { at, kind: cluster.added() });
        }
        Self {
            fleet,
            metrics,
            clock,
            machine,
            executor,
            hops: RecentHops::default(),
            log: None,
            observer,
            problems: Problems::default(),
            poster: None,
            outside,
            reported,
        }
    }

    /// Opens the event log, if one is configured. Call it after everything else that can fail at a
    /// start, because a start that fails must leave the previous log alone, and before the machine
    /// handles an event.
    ///
    /// # Errors
    /// The event log can't be created.
    pub(crate) fn open_log(&mut self, config: &EventLogConfig) -> anyhow::Result<()> {
        let header = log_header(self.fleet.table(), self.machine.settings());
        self.log = LiveLog::start(config, &header, self.metrics.clone(), self.outside.clone())?;
        Ok(())
    }

    /// Adds a cluster to the machine and starts its watches. A cluster of the same name leaves first.
    pub(crate) fn join(&mut self, member: Member) -> Arc<ClusterClient> {
        self.leave(&member.name);
        let cluster = member.name.clone();
        let roles = member.roles.clone();
        // Before its watches can send an event.
        self.handle_event(EventKind::ClusterAdded { cluster, roles });
        self.fleet.join(member)
    }

    /// Removes a cluster: ends its watches, drops its queued writes, and forgets its objects.
    pub(crate) fn leave(&mut self, cluster: &ClusterName) {
        if !self.fleet.leave(cluster) {
            return;
        }
        self.executor.cluster_left(cluster);
        self.handle_event(EventKind::ClusterRemoved { cluster: cluster.clone() });
        self.metrics.remove_cluster(cluster);
    }

    /// Feeds an event of a watch to the machine, unless its cluster has left.
    pub(crate) fn handle_watch_message(&mut self, message: WatchMessage) {
        if self.fleet.is_current(&message) {
            self.handle_event(message.kind);
        }
    }

    /// Sleeps until the machine's current deadline; forever when it has none.
    pub(crate) fn deadline(&self) -> impl Future<Output = ()> + use<> {
        sleep_until_opt(self.machine.poll_deadline().map(|at| self.clock.instant(at)))
    }

    /// Sleeps until a report or an Event is due; forever if none is.
    pub(crate) fn reports_due(&self) -> impl Future<Output = ()> + use<> {
        let posts = self.poster.as_ref().and_then(Poster::due);
        let due = self.problems.due().into_iter().chain(posts).min();
        sleep_until_opt(due.map(|at| self.clock.instant(at)))
    }

    /// Reports the problems that are due.
    pub(crate) fn report_due(&mut self) {
        self.report_until(self.clock.now());
    }

    /// Reports, at the end of a run, also the problems that would be due soon.
    pub(crate) fn report_rest(&mut self) {
        self.report_until(self.clock.now().plus(GATHER_MS));
    }

    fn report_until(&mut self, now: UnixMillis) {
        for report in self.problems.poll(now) {
            problems::log(now, &report);
            if let Some(poster) = &mut self.poster {
                poster.report(now, &report);
            }
        }
        if let Some(poster) = &mut self.poster {
            poster.poll(now, &self.problems);
        }
    }

    /// Feeds one event to the machine and submits the resulting actions.
    pub(crate) fn handle_event(&mut self, kind: EventKind) {
        let event = Event { at: self.clock.now(), kind };
        if let Some(log) = &mut self.log {
            log.event(&event);
        }
        if let Some(observer) = &mut self.observer {
            observer.on_event(&event);
        }
        if let Some(poster) = &mut self.poster {
            poster.on_event(event.at, &event.kind);
        }
        let began = Instant::now();
        self.machine.handle_event(&event);
        self.metrics.event_handled(began.elapsed());
        while let Some(decision) = self.machine.poll_action() {
            if let Some(log) = &mut self.log {
                log.action(&decision);
            }
            if let Some(observer) = &mut self.observer {
                observer.on_decision(&decision);
            }
            self.executor.submit(decision);
        }
        while let Some(note) = self.machine.poll_note() {
            self.handle_note(&note);
        }
        while let Some((edge, answers)) = self.machine.poll_answers() {
            self.metrics.set_answers(&edge, answers);
        }
    }

    /// Opens or closes a problem outside the machine.
    pub(crate) fn handle_outside(&mut self, kind: NoteKind) {
        self.handle_note(&Note { at: self.clock.now(), kind });
    }

    /// Passes on a note of the machine, or about a problem outside it.
    fn handle_note(&mut self, note: &Note) {
        self.metrics.count_note(note);
        self.hops.add(note);
        match &note.kind {
            NoteKind::Began(problem) => {
                if let Some(poster) = &mut self.poster {
                    poster.begin(problem);
                }
                let object = self.machine.involved_object(&problem.about);
                self.problems.begin(note.at, problem.clone(), object);
            }
            NoteKind::Ended(problem) => {
                if let Some(poster) = &mut self.poster {
                    let is_there = self.machine.involved_object(&problem.about).is_some();
                    poster.end(note.at, problem, is_there);
                }
                self.problems.end(note.at, problem);
            }
            NoteKind::Symptom { .. } => {}
            NoteKind::HopPassed { cluster, connector, hop, online, after_ms } => {
                debug!(%cluster, %connector, hop = hop.as_str(), online, after_ms, "hop passed");
            }
        }
        if let Some(observer) = &mut self.observer {
            observer.on_note(note);
        }
    }

    /// Feeds the outcome of an action to the machine.
    pub(crate) fn handle_finished(&mut self, finished: FinishedAction) {
        let verb = finished.decision.action.verb;
        let after = finished.waited + finished.took;
        self.metrics.action_finished(verb, &finished.outcome, after);
        let id = finished.decision.action.id;
        let outcome = finished.outcome;
        self.handle_event(EventKind::ActionFinished { id, outcome });
    }

    /// Writes the rest of the event log, for at most `grace`.
    pub(crate) async fn finish_log(self, grace: Duration) {
        if let Some(log) = self.log {
            log.finish(grace).await;
        }
    }
}
