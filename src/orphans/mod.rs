//! The routes that are or may be orphans, and the manifests of deleted ones. Uses the machine and the
//! watches of a live run, and writes nothing.

mod restore;

use crate::config::Config;
use crate::core::contract::settings::{OrphanMode, Settings};
use crate::core::data::ids::{ClusterName, Role};
use crate::core::data::time::UnixMillis;
use crate::core::view::orphans::OrphanCandidate;
use crate::inspect::read_only::ReadOnlyEngine;

pub use restore::{DeletedRoute, DeletedRoutesFound, deleted_routes};

/// Lists the clusters, and of the upstreams only those in `upstreams` unless it is empty. Returns the
/// routes that are or may be orphans, and the time of that state.
pub async fn candidates(
    config: &Config,
    upstreams: &[ClusterName],
) -> (Vec<OrphanCandidate>, UnixMillis) {
    let config = config.narrowed(upstreams);
    let kinds = |roles: &[Role]| roles.iter().flat_map(|r| r.orphan_kinds()).copied().collect();
    let mut clusters = ReadOnlyEngine::start(&config, settings(&config), kinds, upstreams);
    while !clusters.pending_lists.is_empty() {
        clusters.handle_next(|kind| kind).await;
    }
    clusters.ask_for_unknown().await;
    let engine = &mut clusters.engine;
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
