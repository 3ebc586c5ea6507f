//! Causes: each that begins is one that a fault of the plan may open, and is over once the faults are.

use std::collections::BTreeSet;
use std::time::Duration;

use throughline::config::Config;
use throughline::core::contract::cause::{Cause, Problem};
use throughline::core::contract::settings::OrphanMode;

use crate::assert_right;
use crate::discovery::{Discovery, STRANGER};
use crate::fault_kind::FaultKind;
use crate::instance::Instance;
use crate::plan::Plan;
use crate::stage::{Stage, simulate_with};

/// What begins in runs without faults, too: agents roam, and that is deferred.
const OF_ANY_RUN: [Cause; 1] = [Cause::Deferred];

/// Whoever creates the Lease waits for its duration first: meanwhile nothing is mirrored.
const MIRRORS_WITHIN: Duration = Duration::from_secs(20);

impl Stage {
    /// The causes that began in any life.
    pub(crate) fn began(&self) -> BTreeSet<Cause> {
        let began = |life: &Instance| life.tape.lock().unwrap().began.keys().copied().collect();
        self.lives().flat_map::<Vec<_>, _>(began).collect()
    }

    /// What began, and no fault of the plan opens.
    pub(crate) fn unexplained(&self) -> Vec<String> {
        let faults = self.plan.faults.iter().flat_map(|kind| kind.causes()).copied();
        let explained: BTreeSet<_> = faults.flatten().chain(&OF_ANY_RUN).collect();
        let waits_until = self.ledger.lock().unwrap().started + MIRRORS_WITHIN;
        let mut found = Vec::new();
        for life in self.lives() {
            for (cause, (at, sentence)) in &life.tape.lock().unwrap().began {
                let waits = *cause == Cause::NotMirrored && *at < waits_until;
                if !explained.contains(cause) && !waits {
                    let client = life.computer.client;
                    found.push(format!("instance {client}: no fault opens {cause:?}: {sentence}"));
                }
            }
        }
        found
    }

    /// Whether a problem is true for good after the last fault.
    pub(crate) fn may_stay(&self, problem: &Problem) -> bool {
        let Problem { cause, about, .. } = problem;
        match cause {
            // Until a restart.
            Cause::UpstreamRestored => {
                let name = |upstream: &usize| &self.world.names.upstreams[*upstream];
                self.held_upstreams.iter().map(name).any(|name| *name == about.cluster)
            }
            Cause::Orphaned if self.config.orphans.mode == OrphanMode::Report => {
                let mut orphans = self.world.sites.iter().filter(|site| site.is_orphan());
                orphans.any(|site| about.object.as_ref() == Some(&site.route))
            }
            Cause::KubeconfigInvalid => about.cluster.as_str() == STRANGER,
            _ => false,
        }
    }
}

/// Kinds of faults, the average seconds between two of them, a seed, and a cause that they open then.
const CERTAIN: [(FaultKind, u64, u64, Cause); 17] = [
    (FaultKind::ServerDown, 3, 7, Cause::ClusterUnavailable),
    (FaultKind::LinkBlocked, 3, 7, Cause::LeaseUnusable),
    (FaultKind::RequestsHang, 3, 7, Cause::WriteFailing),
    (FaultKind::RequestsRefused, 3, 14, Cause::WriteRefused),
    (FaultKind::RequestsRefused, 2, 25, Cause::CredentialsRejected),
    (FaultKind::KindNotServed, 3, 7, Cause::KindNotServed),
    (FaultKind::InstanceKilled, 3, 7, Cause::NotMirrored),
    (FaultKind::DiskFull, 8, 7, Cause::EventLogFailing),
    (FaultKind::TriggerOverwritten, 3, 7, Cause::Overwritten),
    (FaultKind::CarrierStuck, 15, 2, Cause::NotCarried),
    (FaultKind::TenantLeaves, 3, 7, Cause::RouteSettling),
    (FaultKind::TenantLeaves, 3, 5, Cause::Orphaned),
    (FaultKind::UpstreamLeaves, 3, 7, Cause::UpstreamUnknown),
    (FaultKind::UpstreamRestored, 3, 7, Cause::UpstreamRestored),
    (FaultKind::EtcdLost, 3, 7, Cause::NamespaceMissing),
    (FaultKind::OfferUndecodable, 3, 7, Cause::KubeconfigInvalid),
    (FaultKind::SourceHangs, 3, 7, Cause::DiscoveryFailing),
];

#[test]
fn a_fault_opens_its_cause_which_ends_after_it() {
    for (kind, every_s, seed, cause) in CERTAIN {
        let is_of_discovery = FaultKind::OF_DISCOVERY.contains(&kind);
        let plan = Plan {
            seed,
            instances: 1,
            upstreams: 1,
            edges: 1,
            connectors: 1,
            page_size: 500,
            lasts_s: 40,
            fault_every_ms: every_s * 1_000,
            change_every_ms: every_s * 2_000,
            discovery: if is_of_discovery { Discovery::Secrets } else { Discovery::None },
            faults: vec![kind],
            without: BTreeSet::new(),
        };
        let ends_soon = |config: &mut Config| {
            config.constants.settings.mirror.contention_quiet_ms = 10_000;
        };
        let report = simulate_with(&plan, ends_soon, async |stage: &mut Stage| {
            stage.becomes_right().await;
            stage.happens().await;
            stage.becomes_right().await;
            stage.stays_right(Duration::from_secs(40), Duration::ZERO).await;
            stage.ends(Duration::from_secs(15)).await;
        });
        assert_right(&report);
        assert!(report.began.contains(&cause), "{kind:?} opened {:?}", report.began);
    }
}
