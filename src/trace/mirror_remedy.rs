//! The texts for the hop from upstream to the hub, written as those in [`remedy`](super::remedy).

use super::diagnose::Diagnosis;
use super::remedy::{
    Remedy, check_may_patch, check_server_health, connector_name, diagnosis, for_command,
    get_with_managed_fields, see_instance_log, see_replay,
};
use super::{HopCause, HopState, LastWriter, SnapshotSource};
use crate::core::contract::hold_reason::HoldReason;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::objects::{UPSTREAM_NAMESPACE, UPSTREAM_STATUS};
use crate::core::view::{HubView, LeaseWaitView, UpstreamView};
use crate::report::style::duration;

fn get_lease(cluster: &ClusterName, what: String) -> Remedy {
    let arguments = "get leases -A --field-selector metadata.name=throughline";
    Remedy::kubectl(cluster, what, arguments.to_owned())
}

fn see_holder(holder: &str) -> Remedy {
    format!("read the log of {holder}, or trace it through its admin port (--state URL)").into()
}

pub(super) fn held(upstream: &ClusterName, reason: HoldReason) -> Diagnosis {
    diagnosis(
        HopState::Unknown,
        HopCause::Held,
        format!("the annotation stays as it is: {} ({upstream})", reason.text()),
        [reason.remedy().into()],
    )
}

pub(super) fn identity(hub: &ClusterName, key: Option<&ObjectKey>, up: &UpstreamView) -> Diagnosis {
    let (namespace, cluster) = (&up.object.namespace, &up.cluster);
    diagnosis(
        HopState::Wrong,
        HopCause::Identity,
        format!(
            "the labels of {} name {} in {cluster}, but its namespace is not ns-UID of that \
             namespace, so throughline leaves it alone",
            connector_name(key),
            up.object
        ),
        [
            Remedy::kubectl(
                cluster,
                format!("at {cluster}, compare the uid"),
                format!("get namespace {namespace} -o jsonpath='{{.metadata.uid}}'"),
            ),
            format!(
                "if namespace {namespace} was deleted and created again, let the replicator create \
                 the Connector at {hub} again; if not, correct the labels"
            )
            .into(),
        ],
    )
}

pub(super) fn unreplicated(
    state: HopState,
    hub: &ClusterName,
    upstream: Option<&ObjectKey>,
) -> Diagnosis {
    let (namespace, _) = for_command(upstream);
    diagnosis(
        state,
        HopCause::Unreplicated,
        format!("{hub} has no Connector for {}", connector_name(upstream)),
        [
            "hub Connectors are created by the platform's replicator, not by throughline: check \
             that it runs, and what it logs about this Connector"
                .into(),
            Remedy::kubectl(
                hub,
                format!(
                    "at {hub}, check that the namespace ns-UID exists and is within its quotas"
                ),
                format!("get namespaces -l {UPSTREAM_NAMESPACE}={namespace}"),
            ),
        ],
    )
}

pub(super) fn not_leading(state: HopState, hub: &ClusterName, holder: Option<&str>) -> Diagnosis {
    let why = "the hub Connector does not have the upstream status, and this instance is not the \
               leader";
    match holder {
        Some(holder) => diagnosis(
            state,
            HopCause::NotLeading,
            format!("{why}; {holder} is"),
            [see_holder(holder)],
        ),
        None => diagnosis(
            state,
            HopCause::NotLeading,
            format!("{why}; no leader is known"),
            [
                get_lease(hub, format!("at {hub}, find out who holds the Lease")),
                Remedy::command(
                    "check that the instances may get, create and update it",
                    "throughline check",
                ),
            ],
        ),
    }
}

pub(super) fn waiting_for_lease(
    state: HopState,
    hub: &ClusterName,
    wait: &LeaseWaitView,
) -> Diagnosis {
    let why = format!(
        "{wait}; if it was deleted instead, its holder may still write until then. After that this \
         instance leads and writes the upstream status"
    );
    let remedy = get_lease(hub, "wait until then; to see who holds the Lease".to_owned());
    diagnosis(state, HopCause::WaitingForLease, why, [remedy])
}

pub(super) fn contention(
    state: HopState,
    hub: &HubView,
    key: Option<&ObjectKey>,
    other: Option<&LastWriter>,
) -> Diagnosis {
    let often = match hub.overwrites {
        0 => String::new(),
        1 => ", once recently".to_owned(),
        n => format!(", {n} times recently"),
    };
    let who = other.map_or("another writer", |writer| &writer.manager);
    diagnosis(
        state,
        HopCause::Contention,
        format!("{who} overwrote {UPSTREAM_STATUS} after the upstream status changed{often}"),
        [
            Remedy::kubectl(
                &hub.cluster,
                format!("at {}, find the writer among the managedFields", hub.cluster),
                get_with_managed_fields(Kind::Connector, key),
            ),
            "stop it from writing this annotation, or let it write the upstream status; throughline \
             writes again, at growing intervals"
                .into(),
        ],
    )
}

pub(super) fn mirror_in_flight(state: HopState, hub: &ClusterName) -> Diagnosis {
    let why = format!("the mirror write to {hub} has no answer yet");
    let remedy = check_server_health(hub, "wait; if no answer comes");
    diagnosis(state, HopCause::WriteInFlight, why, [remedy])
}

pub(super) fn deferred(hub: &ClusterName, waited_ms: u64) -> Diagnosis {
    let waited = duration(waited_ms);
    let why = format!(
        "the annotation at {hub} routes as upstream says; the rest of the status, such as an address, \
         has been deferred for {waited}"
    );
    let remedy = "nothing: it is written with the next change that routes, or after mirror.deferMs";
    diagnosis(HopState::Deferred, HopCause::Deferred, why, [remedy.into()])
}

pub(super) fn not_mirrored(
    state: HopState,
    source: SnapshotSource,
    hub: &ClusterName,
    key: Option<&ObjectKey>,
    holder: Option<&str>,
) -> Diagnosis {
    let (detail, remedies) = match (source, holder) {
        (SnapshotSource::Recording, _) => {
            ("no throughline was writing in this recording".to_owned(), vec![see_replay()])
        }
        (SnapshotSource::Live, Some(holder)) => (
            format!("{holder} holds the Lease and has not written it"),
            vec![see_holder(holder), check_may_patch(hub, Kind::Connector, key)],
        ),
        (SnapshotSource::Live, None) => (
            "no leader is known".to_owned(),
            vec![
                get_lease(
                    hub,
                    format!(
                        "check that a throughline with the roles upstream and hub runs: its pods, \
                         their logs and, at {hub}, its Lease"
                    ),
                ),
                check_may_patch(hub, Kind::Connector, key),
            ],
        ),
        (SnapshotSource::State | SnapshotSource::Log, _) => {
            ("the write is due".to_owned(), vec![see_instance_log()])
        }
    };
    let why = format!("the hub Connector does not have the upstream status; {detail}");
    Diagnosis { state, cause: HopCause::NotWritten, why, remedies }
}
