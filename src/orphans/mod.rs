//! The routes that are or may be orphans, and the manifests of deleted ones. Uses the machine and the
//! watches of a live run, and writes nothing.

mod restore;

use tokio::sync::mpsc;

use crate::config::{Config, EventLogConfig};
use crate::core::contract::event::EventKind;
use crate::core::contract::settings::{OrphanMode, Settings};
use crate::core::data::ids::{ClusterName, Role};
use crate::core::data::time::UnixMillis;
use crate::core::view::orphans::OrphanCandidate;
use crate::discovery::joiner::Joiner;
use crate::engine::{Engine, PendingLists};
use crate::leader::gate::Gate;

pub use restore::{DeletedRoute, DeletedRoutesFound, deleted_routes};

/// Lists the clusters, and of the upstreams only those in `upstreams` unless it is empty. Returns the
/// routes that are or may be orphans, and the time of that state.
pub async fn candidates(
    config: &Config,
    upstreams: &[ClusterName],
) -> (Vec<OrphanCandidate>, UnixMillis) {
    // The dry run prevents writes even if these settings are wrong.
    let config = Config { dry_run: true, ..config.narrowed(upstreams) };
    let (gate, _) = Gate::closed();
    let no_log = EventLogConfig::default();
    let mut engine = Engine::new(&config, settings(&config), gate, &no_log, Vec::new());
    let (bus, mut events) = mpsc::channel(config.constants.watch.queue);
    let kinds = |roles: &[Role]| roles.iter().flat_map(|r| r.orphan_kinds()).copied().collect();
    engine.fleet.start_watches(kinds, bus);
    let mut joiner = Joiner::start(&config, &engine, upstreams);
    let mut pending_lists = PendingLists::new(&engine.fleet, joiner.sources().clone());
    while !pending_lists.is_empty() {
        let deadline = engine.deadline();
        let kind = tokio::select! {
            Some(message) = events.recv() => {
                if !engine.fleet.is_current(&message) {
                    continue;
                }
                message.kind
            }
            kind = joiner.next() => kind,
            () = deadline => EventKind::TimedOut,
        };
        pending_lists.observe(&kind);
        engine.handle_event(kind);
        joiner.carry_out(&mut engine, &mut pending_lists);
    }
    joiner.ask_for_unknown(&mut engine).await;
    engine.report_rest();
    let mut candidates = engine.machine.candidates();
    let is_named = |upstream: &str| upstreams.iter().any(|named| named.as_str() == upstream);
    candidates.retain(|candidate| {
        upstreams.is_empty() || candidate.evidence.as_ref().is_some_and(|e| is_named(&e.upstream))
    });
    (candidates, engine.clock.now())
}

/// An orphan counts at once, because nothing is deleted.
fn settings(config: &Config) -> Settings {
    let mut settings = config.settings();
    settings.mirror.enabled = false;
    settings.touch.enabled = false;
    settings.orphans.mode = OrphanMode::Report;
    settings.orphans.settle_ms = 0;
    settings
}
