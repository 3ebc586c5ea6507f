//! The machine, watches and discovery of a live run, for a command that writes nothing.

use std::pin::pin;

use futures::FutureExt;
use tokio::sync::mpsc;

use crate::config::{Config, EventLogConfig};
use crate::core::contract::event::{EventKind, Outcome};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ClusterName, Kind, Role};
use crate::discovery::joiner::Joiner;
use crate::engine::{Engine, PendingLists};
use crate::executor::FinishedAction;
use crate::leader::gate::Gate;
use crate::watch::WatchMessage;

/// An engine without leadership, whose executor is in dry-run mode.
pub(crate) struct ReadOnlyEngine {
    pub(crate) engine: Engine,
    pub(crate) joiner: Joiner,
    pub(crate) pending_lists: PendingLists,
    events: mpsc::Receiver<WatchMessage>,
}

impl ReadOnlyEngine {
    /// Starts discovery and the watches of these kinds. With these settings the machine should decide on
    /// nothing; the dry run prevents writes even if that is wrong. `config` is narrowed to `upstreams`; if
    /// there are any, no other upstream joins.
    pub(crate) fn start(
        config: &Config,
        settings: Settings,
        kinds: impl Fn(&[Role]) -> Vec<Kind> + Send + 'static,
        upstreams: &[ClusterName],
    ) -> Self {
        let config = Config { dry_run: true, ..config.clone() };
        let (gate, _) = Gate::closed();
        let no_log = EventLogConfig::default();
        let mut engine = Engine::new(&config, settings, gate, &no_log, Vec::new());
        let (bus, events) = mpsc::channel(config.constants.watch.queue);
        engine.fleet.start_watches(kinds, bus);
        let joiner = Joiner::start(&config, &engine, upstreams);
        let pending_lists = PendingLists::new(&engine.fleet, joiner.sources().clone());
        Self { engine, joiner, pending_lists, events }
    }

    /// Waits for the next event of a watch, a source or a timer, handles what `prepare` makes of it, and
    /// lets clusters join and leave. Cancel-safe.
    pub(crate) async fn handle_next(&mut self, prepare: impl FnOnce(EventKind) -> EventKind) {
        let mut deadline = pin!(self.engine.deadline());
        let kind = loop {
            tokio::select! {
                Some(message) = self.events.recv() => {
                    // Ignore events of a cluster that has left.
                    if self.engine.fleet.is_current(&message) {
                        break message.kind;
                    }
                }
                kind = self.joiner.next() => break kind,
                () = &mut deadline => break EventKind::TimedOut,
            }
        };
        self.pending_lists.observe(&kind);
        self.handle_event(prepare(kind));
        self.joiner.carry_out(&mut self.engine, &mut self.pending_lists);
    }

    /// Handles an event. The machine's decisions are not attempted.
    pub(crate) fn handle_event(&mut self, kind: EventKind) {
        self.engine.handle_event(kind);
        while let Some(finished) = self.engine.executor.next_finished().now_or_never() {
            self.engine.handle_finished(FinishedAction { outcome: Outcome::Dropped, ..finished });
        }
    }

    /// Once every list is complete or has failed: finds out which upstreams that no source offers are
    /// gone.
    pub(crate) async fn ask_for_unknown(&mut self) {
        self.joiner.ask_for_unknown(&mut self.engine).await;
    }
}
