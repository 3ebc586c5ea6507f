//! The routes that are or may be orphans, and the manifests of deleted ones. Uses the machine and the
//! watches of a live run, and writes nothing.

mod restore;

use crate::config::Config;
use crate::core::contract::settings::{OrphanMode, Settings};
use crate::core::data::ids::{ClusterName, Role};
use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::Source;
use crate::core::view::orphans::OrphanCandidate;
use crate::inspect::read_only::ReadOnlyEngine;

pub use restore::{DeletedRoute, DeletedRoutesFound, deleted_routes};

/// The routes that are or may be orphans, as far as the clusters can be read.
#[derive(Debug)]
pub struct Candidates {
    pub found: Vec<OrphanCandidate>,
    /// The time of that state.
    pub at: UnixMillis,
    /// The missing clusters: one line for each reason.
    pub not_shown: Vec<String>,
    /// Whether a cluster is missing, or was not read in whole.
    pub is_partly_unseen: bool,
}

/// Lists the clusters, and of the upstreams only those in `upstreams` unless it is empty.
///
/// # Errors
/// `upstreams` names one that is not configured, and there is no discovery.
pub async fn candidates(config: &Config, upstreams: &[ClusterName]) -> anyhow::Result<Candidates> {
    let config = config.narrowed(upstreams)?;
    let kinds = |roles: &[Role]| roles.iter().flat_map(|r| r.orphan_kinds()).copied().collect();
    let mut clusters = ReadOnlyEngine::start(&config, settings(&config), kinds, upstreams);
    while !clusters.pending_lists.is_empty() {
        clusters.handle_next(|kind| kind).await;
    }
    clusters.ask_for_unknown().await;
    let not_shown = clusters.not_shown();
    let engine = &mut clusters.engine;
    engine.report_rest();
    let fleet = engine.machine.fleet(Source::Clusters, &|_| None);
    let is_partly_unseen = !not_shown.is_empty() || fleet.is_partly_unseen();
    let mut found = engine.machine.candidates();
    let is_named = |upstream: &str| upstreams.iter().any(|named| named.as_str() == upstream);
    found.retain(|candidate| {
        upstreams.is_empty() || candidate.evidence.as_ref().is_some_and(|e| is_named(&e.upstream))
    });
    Ok(Candidates { found, at: engine.clock.now(), not_shown, is_partly_unseen })
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
