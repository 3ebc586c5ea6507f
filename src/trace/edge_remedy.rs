//! The texts for the hops at the edges, written as those in [`remedy`](super::remedy).

use super::diagnose::Diagnosis;
use super::remedy::{
    check_may_patch, check_server_health, connector_name, diagnosis, for_command,
    get_with_managed_fields, see_instance_log, see_replay,
};
use super::{HopCause, HopState, SnapshotSource};
use crate::core::contract::touches_waiting::TouchesWaiting;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::objects::UPSTREAM_NAMESPACE;

pub(super) fn not_carried(
    state: HopState,
    edge: &ClusterName,
    key: Option<&ObjectKey>,
    hub_says: &str,
    nudges: u32,
) -> Diagnosis {
    let nudged = match nudges {
        0 => String::new(),
        1 => "; nudged once recently".to_owned(),
        n => format!("; nudged {n} times recently"),
    };
    let (namespace, name) = for_command(key);
    diagnosis(
        state,
        HopCause::NotCarried,
        format!(
            "the edge Connector does not say what the hub Connector says ({hub_says}): the carrier \
             has not delivered it{nudged}"
        ),
        [
            format!(
                "at the hub, read the conditions of its ResourceBinding:\n\
                 kubectl -n {namespace} describe resourcebinding {name}-connector"
            ),
            format!(
                "at the hub, check that the member cluster for {edge} is Ready:\nkubectl get clusters"
            ),
            "read the log of karmada-controller-manager, which waits up to 1000 s between attempts"
                .to_owned(),
            format!(
                "at {edge}, check that nobody else writes the Connector:\n{}",
                get_with_managed_fields(Kind::Connector, key)
            ),
        ],
    )
}

pub(super) fn no_edge_connector(edge: &ClusterName, key: Option<&ObjectKey>) -> Diagnosis {
    let (namespace, name) = for_command(key);
    diagnosis(
        HopState::Wrong,
        HopCause::NoEdgeConnector,
        format!("neither {edge} nor another edge has the Connector {}", connector_name(key)),
        [format!(
            "at the hub, check that a PropagationPolicy selects it and that its ResourceBinding is \
             scheduled to an edge:\n\
             kubectl -n {namespace} describe resourcebinding {name}-connector"
        )],
    )
}

pub(super) fn not_referenced(edge: &ClusterName, key: Option<&ObjectKey>) -> Diagnosis {
    let (namespace, name) = for_command(key);
    diagnosis(
        HopState::Wrong,
        HopCause::NotReferenced,
        format!(
            "no HTTPProxy in {namespace} references {name}, so there is no Gateway to announce it"
        ),
        [format!(
            "if it should be reachable at {edge}, check that an HTTPProxy names {name} in \
             spec.rules[].backends[].connector there, at the hub and upstream:\n\
             kubectl -n {namespace} get httpproxies -o yaml"
        )],
    )
}

pub(super) fn no_gateway(edge: &ClusterName, gateway: &ObjectKey) -> Diagnosis {
    let ObjectKey { namespace, name } = gateway;
    diagnosis(
        HopState::Wrong,
        HopCause::NoGateway,
        format!("the HTTPProxy {gateway} references the connector, but has no Gateway"),
        [format!(
            "the platform creates Gateways from HTTPProxies: read the log of its controller and, at \
             {edge}, the HTTPProxy's status:\n\
             kubectl -n {namespace} get httpproxies {name} -o yaml"
        )],
    )
}

pub(super) fn no_namespace(edge: &ClusterName, namespace: &str) -> Diagnosis {
    diagnosis(
        HopState::Unknown,
        HopCause::Identity,
        format!("it is not known whether namespace {namespace} holds replicated objects"),
        [format!(
            "at {edge}, check that it exists and has the label {UPSTREAM_NAMESPACE}:\n\
             kubectl get namespace {namespace} --show-labels"
        )],
    )
}

pub(super) fn touch_in_flight(state: HopState, edge: &ClusterName) -> Diagnosis {
    let why = "the touch is due, or has no answer yet".to_owned();
    let remedy = check_server_health(edge, "wait; if no answer comes");
    diagnosis(state, HopCause::WriteInFlight, why, [remedy])
}

pub(super) fn touch_waits(state: HopState, waiting: TouchesWaiting) -> Diagnosis {
    let why = format!("the edge takes no more touches at a time: {waiting}");
    let remedy =
        "wait; changes go first. If Envoy Gateway has time to spare, raise touch.maxPerSecond";
    diagnosis(state, HopCause::WriteInFlight, why, [remedy.to_owned()])
}

pub(super) fn not_touched(
    state: HopState,
    source: SnapshotSource,
    edge: &ClusterName,
    gateway: &ObjectKey,
) -> Diagnosis {
    let why = "the trigger does not announce what the edge Connector says".to_owned();
    let remedies = match source {
        SnapshotSource::Recording => vec![see_replay()],
        SnapshotSource::Live => vec![
            format!(
                "check that a throughline with the role edge runs for {edge}, and read its log; \
                 touching needs no leader"
            ),
            check_may_patch(edge, Kind::Gateway, Some(gateway)),
        ],
        SnapshotSource::State | SnapshotSource::Log => vec![see_instance_log()],
    };
    Diagnosis { state, cause: HopCause::NotWritten, why, remedies }
}

pub(super) fn no_connector(edge: &ClusterName, proxy: &ObjectKey, name: &str) -> Diagnosis {
    diagnosis(
        HopState::Wrong,
        HopCause::NoConnector,
        format!(
            "the HTTPProxy {proxy} references the Connector {name}, which {edge} does not have"
        ),
        [format!(
            "create the Connector upstream, or correct the name in the HTTPProxy; until then {name} \
             counts as offline"
        )],
    )
}

pub(super) fn gateway_without_connectors(
    edge: &ClusterName,
    key: &ObjectKey,
    has_gateway: bool,
    has_proxy: bool,
) -> Diagnosis {
    let why = match (has_gateway, has_proxy) {
        (true, false) => format!("the Gateway has no HTTPProxy {key}, so it announces nothing"),
        (true, true) => {
            format!("the HTTPProxy {key} references no Connector, so nothing is announced")
        }
        _ => format!("the HTTPProxy {key} references no Connector and has no Gateway"),
    };
    diagnosis(
        HopState::Wrong,
        HopCause::NotReferenced,
        why,
        [format!(
            "if a tunnel should answer at {edge}, check spec.rules[].backends[].connector there, at \
             the hub and upstream:\n\
             kubectl -n {} get httpproxies {} -o yaml",
            key.namespace, key.name
        )],
    )
}
