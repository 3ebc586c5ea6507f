//! Finds another throughline by its Lease: one that does not share ours and is renewed.

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::election::{LeaseLocation, ObservedLease, server_time};
use super::finding::FindingGroup;
use super::permissions::{LEASES, split_resource};
use super::probe_client::ListItem;
use crate::core::data::objects::FIELD_MANAGER;
use crate::core::data::time::UnixMillis;
use crate::leader::GROUP_LABEL;
use crate::report::duration;

/// A Lease that a throughline other than ours holds.
#[derive(Debug, PartialEq, Eq)]
struct OtherLease {
    namespace: String,
    /// As `leaderElection.leaseName` has it: the Leases of shards and members add to that.
    name: String,
    holder: String,
    renewed: UnixMillis,
}

/// Reports the first Lease in the hub, other than `own`, that a throughline holds and renews. Returns
/// false where there is none, or where Leases of all namespaces may not be listed.
pub(super) async fn report_other(
    group: &mut FindingGroup,
    hub: &CheckedCluster,
    own: &LeaseLocation,
    commands: &Commands,
) -> bool {
    let (plural, api_group) = split_resource(LEASES);
    let now = server_time(hub);
    let other = |item: ListItem| live(item, now);
    let found = hub.client.list(format!("/apis/{api_group}/v1/{plural}"), other).await;
    let is_other = |lease: &OtherLease| lease.namespace != own.namespace || lease.name != own.name;
    let Some(other) = found.unwrap_or_default().into_iter().find(is_other) else {
        return false;
    };
    let OtherLease { namespace, name, holder, renewed } = &other;
    let settings = [
        format!("leaderElection.leaseNamespace={namespace}"),
        format!("leaderElection.leaseName={name}"),
    ];
    group.warned(
        "second-writer",
        format!("another throughline leads at {}: {holder}, by a Lease of its own", hub.name()),
        format!(
            "Lease {namespace}/{name}, renewed {} ago; this configuration uses {own}",
            duration(now.since(*renewed))
        ),
        format!(
            "stop one of the two, or let them take turns by one Lease: both lead, and both write. To \
             share the other one's Lease, set leaderElection.leaseNamespace and leaseName; to try \
             it:\n{}",
            commands.check_with(&settings)
        ),
    );
    true
}

/// Whether throughline wrote the Lease, and it has not expired.
fn live(item: ListItem, now: UnixMillis) -> Option<OtherLease> {
    let is_ours = item.metadata.managers().any(|manager| manager == FIELD_MANAGER);
    let lease = ObservedLease::of(&serde_json::json!({ "spec": item.spec }));
    let renewed = lease.renewed.filter(|at| now.since(*at) <= lease.duration_ms)?;
    let is_held = is_ours && !lease.holder.is_empty();
    let mut meta = item.metadata;
    let name = meta.labels.remove(GROUP_LABEL).unwrap_or(meta.name);
    is_held.then_some(OtherLease { namespace: meta.namespace, name, holder: lease.holder, renewed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_lease_that_a_throughline_renews_counts() {
        let now = UnixMillis(1_795_252_772_000);
        let lease = |manager: &str, holder: &str, age_ms: u64| {
            let renewed = UnixMillis(now.0 - age_ms).to_string();
            let item = json!({
                "metadata": { "namespace": "a", "name": "l",
                    "managedFields": [{ "manager": manager }] },
                "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15,
                    "renewTime": renewed },
            });
            live(serde_json::from_value(item).unwrap(), now).map(|lease| lease.holder)
        };
        assert_eq!(lease("throughline", "pod-1", 2_000).as_deref(), Some("pod-1"));
        assert_eq!(lease("throughline", "pod-1", 16_000), None);
        assert_eq!(lease("throughline", "", 2_000), None);
        assert_eq!(lease("kube-scheduler", "pod-1", 2_000), None);
    }

    #[test]
    fn the_leases_of_shards_and_members_have_the_name_of_their_group() {
        let now = UnixMillis(1_795_252_772_000);
        let named = |name: &str| {
            let item = json!({
                "metadata": { "namespace": "a", "name": name, "labels": { GROUP_LABEL: "fleet" },
                    "managedFields": [{ "manager": "throughline" }] },
                "spec": { "holderIdentity": "pod-1", "leaseDurationSeconds": 15,
                    "renewTime": now.to_string() },
            });
            live(serde_json::from_value(item).unwrap(), now).map(|lease| lease.name)
        };
        for name in ["fleet", "fleet-7", "fleet-member-0123456789abcdef"] {
            assert_eq!(named(name).as_deref(), Some("fleet"), "{name}");
        }
    }
}
