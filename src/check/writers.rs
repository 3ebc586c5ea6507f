//! Checks, by `managedFields`, whether anybody else writes what throughline writes.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::election::{LeaseLocation, ObservedLease, not_reached, server_time};
use super::finding::{FindingGroup, join_with_and};
use super::probe_client::{AnnotationOwner, ListItem};
use super::{karmada, leases};
use crate::client::path;
use crate::config::Config;
use crate::core::data::ids::{Kind, Role};
use crate::core::data::objects::{FIELD_MANAGER, UPSTREAM_STATUS};
use crate::core::data::time::UnixMillis;
use crate::report::count;

/// The clocks of the Lease's holder and of the API server may differ by this much.
const CLOCK_SKEW_MAX_MS: u64 = 10_000;

/// Older writes do not show which processes run now.
const RECENT_MS: u64 = 600_000;

/// Who owns one annotation, over all objects of a kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct OwnerCounts {
    /// By field manager, without throughline.
    others: BTreeMap<String, usize>,
    ours: usize,
    our_last_write: Option<UnixMillis>,
}

impl OwnerCounts {
    fn of(objects: Vec<Vec<AnnotationOwner>>) -> Self {
        let mut counts = Self::default();
        for AnnotationOwner { manager, at } in objects.into_iter().flatten() {
            if manager == FIELD_MANAGER {
                counts.ours += 1;
                counts.our_last_write = counts.our_last_write.max(at);
            } else {
                *counts.others.entry(manager).or_default() += 1;
            }
        }
        counts
    }
}

/// Checks the Connectors of the hub and the Gateways of the edges.
pub(super) async fn check(
    config: &Config,
    clusters: &[CheckedCluster],
    commands: &Commands,
) -> FindingGroup {
    let mut group = FindingGroup::new("other writers");
    let hub = clusters.iter().find(|cluster| cluster.has(Role::Hub) && cluster.reached);
    let karmada = match hub {
        Some(hub) if karmada::has_karmada(&hub.client).await.unwrap_or(false) => Some(hub.name()),
        _ => None,
    };
    let retain = karmada.map(|hub| commands.kubectl(hub));
    let written = clusters.iter().flat_map(|cluster| {
        let hub = cluster.has(Role::Hub).then_some((cluster, Kind::Connector, UPSTREAM_STATUS));
        let edge = cluster.has(Role::Edge).then_some((cluster, Kind::Gateway, &*config.touch.key));
        hub.into_iter().chain(edge)
    });
    let written: Vec<_> = written.collect();
    let counts = written.iter().map(|(cluster, kind, key)| count_owners(cluster, *kind, key));
    for ((cluster, kind, key), counts) in written.iter().zip(join_all(counts).await) {
        match counts {
            Err(why) => {
                let what = format!("not known who writes {key} at {}", cluster.name());
                group.skipped("second-writer", what, why);
            }
            Ok(counts) => {
                let retain = retain.as_deref();
                report_owners(&mut group, cluster.name(), (*kind, key), &counts, retain);
                if *kind == Kind::Connector {
                    check_leader_wrote(&mut group, config, cluster, &counts, commands).await;
                }
            }
        }
    }
    group
}

/// # Errors
/// Why the objects could not be listed.
async fn count_owners(
    cluster: &CheckedCluster,
    kind: Kind,
    key: &str,
) -> Result<OwnerCounts, String> {
    if !cluster.reached {
        return Err(not_reached(cluster));
    }
    let owners = |item: ListItem| Some(item.metadata.owners_of(key));
    let found = cluster.client.list(path(kind, None), owners).await;
    found.map(OwnerCounts::of).map_err(|error| error.to_string())
}

/// `karmada`: kubectl for the hub, where that serves Karmada's API.
fn report_owners(
    group: &mut FindingGroup,
    cluster: &str,
    (kind, key): (Kind, &str),
    counts: &OwnerCounts,
    karmada: Option<&str>,
) {
    if counts.others.is_empty() {
        let by = match counts.ours {
            0 => "not written yet".to_owned(),
            n => format!("written by throughline alone ({})", count(n, "object")),
        };
        group.passed("second-writer", format!("{key} at {cluster}: {by}"));
        return;
    }
    let others = counts.others.iter();
    let others: Vec<_> =
        others.map(|(manager, n)| format!("{manager} ({})", count(*n, "object"))).collect();
    let remedy = match (kind, karmada) {
        (Kind::Connector, _) => {
            "a replicator that writes the same value does no harm; throughline overwrites stale \
             values, and each overwrite costs the carrier a delivery: make the other writer leave \
             this annotation alone"
                .to_owned()
        }
        (_, Some(kubectl)) => format!(
            "let nobody else write the trigger: Envoy Gateway may ignore a value that it has \
             translated before. If the carrier writes it, install the retention rule at the hub, from \
             the folder of throughline's source:\n\
             {kubectl} apply -f deploy/karmada/retain-trigger.yaml"
        ),
        (_, None) => {
            "let nobody else write the trigger: Envoy Gateway may ignore a value that it has \
                      translated before"
                .to_owned()
        }
    };
    group.warned(
        "second-writer",
        format!("{key} at {cluster} is written by {}", join_with_and(&others)),
        format!(
            "by the managedFields of {kind}s; throughline wrote {}",
            count(counts.ours, "object")
        ),
        remedy,
    );
}

/// Finds another throughline that does not share the Lease: it writes while nobody holds this one.
async fn check_leader_wrote(
    group: &mut FindingGroup,
    config: &Config,
    cluster: &CheckedCluster,
    counts: &OwnerCounts,
    commands: &Commands,
) {
    let Some(election) = config.election_cluster() else { return };
    if election.name.as_str() != cluster.name() {
        return;
    }
    let Ok(location) = LeaseLocation::of(config, cluster).await else { return };
    if leases::report_other(group, cluster, &location, commands).await {
        return;
    }
    let is_recent = |at: &UnixMillis| server_time(cluster).since(*at) < RECENT_MS;
    let Some(written) = counts.our_last_write.filter(is_recent) else { return };
    let Ok(object) = location.read(cluster).await else { return };
    let lease = object.as_ref().map(ObservedLease::of);
    if !was_held_at(written, lease.as_ref()) {
        group.warned(
            "second-writer",
            format!(
                "a throughline wrote {UPSTREAM_STATUS} at {} without holding {location}",
                cluster.name()
            ),
            format!(
                "it wrote at {written}; {}",
                match lease.and_then(|lease| lease.renewed) {
                    Some(renewed) => format!("the Lease was last renewed at {renewed}"),
                    None => "the Lease does not exist, or was never renewed".to_owned(),
                }
            ),
            "if another throughline runs, make it share this Lease (leaderElection.leaseNamespace \
             and leaseName) or stop it: two leaders both write",
        );
    }
}

fn was_held_at(written: UnixMillis, lease: Option<&ObservedLease>) -> bool {
    let expires = lease.and_then(|lease| Some(lease.renewed?.plus(lease.duration_ms)));
    expires.is_some_and(|expires| written <= expires.plus(CLOCK_SKEW_MAX_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_write_after_the_lease_expired_was_not_the_leaders() {
        let renewed = UnixMillis(1_795_252_772_000);
        let lease =
            json!({ "spec": { "renewTime": renewed.to_string(), "leaseDurationSeconds": 15 } });
        let lease = ObservedLease::of(&lease);
        for (after_ms, held) in [(0, true), (24_000, true), (26_000, false)] {
            assert_eq!(was_held_at(renewed.plus(after_ms), Some(&lease)), held, "{after_ms}");
        }
        assert!(!was_held_at(renewed, None));
    }
}
