//! The texts for the hops at the edges, written as those in [`remedy`](super::remedy).

use super::diagnose::Diagnosis;
use super::remedy::{
    Remedy, check_may_patch, check_server_health, connector_name, diagnosis, for_command,
    get_with_managed_fields, see_instance_log, see_replay,
};
use super::{HopCause, HopState, SnapshotSource};
use crate::core::contract::touches_waiting::TouchesWaiting;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::objects::UPSTREAM_NAMESPACE;
use crate::core::data::time::UnixMillis;
use crate::report::style::moment;

/// What may keep a Connector from an edge.
pub(super) struct Carriage<'a> {
    pub(super) hub: &'a ClusterName,
    pub(super) edge: &'a ClusterName,
    pub(super) key: Option<&'a ObjectKey>,
    /// The hub serves Karmada's API.
    pub(super) is_karmada: bool,
    pub(super) nudges: u32,
    /// When the edge last sent anything, where that was before the hub came to say it.
    pub(super) silent_since: Option<UnixMillis>,
}

impl Carriage<'_> {
    pub(super) fn not_carried(&self, state: HopState, hub_says: &str) -> Diagnosis {
        let Self { hub, edge, key, .. } = *self;
        let nudged = match self.nudges {
            0 => String::new(),
            1 => "; nudged once recently".to_owned(),
            n => format!("; nudged {n} times recently"),
        };
        let blame = match self.silent_since {
            None => "the carrier has not delivered it".to_owned(),
            Some(at) => format!(
                "the carrier has not delivered it, or {edge} does not answer: it has sent nothing since \
                 {} UTC",
                moment(at)
            ),
        };
        let mut remedies = Vec::new();
        if self.silent_since.is_some() {
            remedies.push(check_server_health(edge, &format!("at {edge}")));
        }
        if self.is_karmada {
            let (namespace, name) = for_command(key);
            remedies.push(Remedy::kubectl(
                hub,
                format!("at {hub}, read the conditions of its ResourceBinding"),
                format!("-n {namespace} describe resourcebinding {name}-connector"),
            ));
            remedies.push(Remedy::kubectl(
                hub,
                format!("at {hub}, check that the member cluster for {edge} is Ready"),
                "get clusters".to_owned(),
            ));
            let log = "read the log of karmada-controller-manager, which waits up to 1000 s between \
                       attempts";
            remedies.push(log.into());
        } else {
            remedies.push(
                format!(
                    "read the log of the carrier that copies Connectors from {hub} to {edge}, and \
                     check that it reaches {edge}"
                )
                .into(),
            );
        }
        remedies.push(Remedy::kubectl(
            edge,
            format!("at {edge}, check that nobody else writes the Connector"),
            get_with_managed_fields(Kind::Connector, key),
        ));
        let why = format!(
            "the edge Connector does not say what the hub Connector says ({hub_says}): {blame}{nudged}"
        );
        Diagnosis { state, cause: HopCause::NotCarried, why, remedies }
    }

    pub(super) fn no_edge_connector(&self) -> Diagnosis {
        let Self { hub, edge, key, .. } = *self;
        let (namespace, name) = for_command(key);
        let remedy = if self.is_karmada {
            Remedy::kubectl(
                hub,
                format!(
                    "at {hub}, check that a PropagationPolicy selects it and that its \
                     ResourceBinding is scheduled to an edge"
                ),
                format!("-n {namespace} describe resourcebinding {name}-connector"),
            )
        } else {
            format!(
                "check that the carrier that copies Connectors from {hub} to the edges runs, and that \
                 it selects this one"
            )
            .into()
        };
        diagnosis(
            HopState::Wrong,
            HopCause::NoEdgeConnector,
            format!("neither {edge} nor another edge has the Connector {}", connector_name(key)),
            [remedy],
        )
    }
}

pub(super) fn not_referenced(edge: &ClusterName, key: Option<&ObjectKey>) -> Diagnosis {
    let (namespace, name) = for_command(key);
    diagnosis(
        HopState::Wrong,
        HopCause::NotReferenced,
        format!(
            "no HTTPProxy in {namespace} references {name}, so there is no Gateway to announce it"
        ),
        [Remedy::kubectl(
            edge,
            format!(
                "if it should be reachable at {edge}, check that an HTTPProxy names {name} in \
                 spec.rules[].backends[].connector there, at the hub and upstream"
            ),
            format!("-n {namespace} get httpproxies -o yaml"),
        )],
    )
}

pub(super) fn no_gateway(edge: &ClusterName, gateway: &ObjectKey) -> Diagnosis {
    let ObjectKey { namespace, name } = gateway;
    diagnosis(
        HopState::Wrong,
        HopCause::NoGateway,
        format!("the HTTPProxy {gateway} references the connector, but has no Gateway"),
        [Remedy::kubectl(
            edge,
            format!(
                "the platform creates Gateways from HTTPProxies: read the log of its controller and, \
                 at {edge}, the HTTPProxy's status"
            ),
            format!("-n {namespace} get httpproxies {name} -o yaml"),
        )],
    )
}

pub(super) fn no_namespace(edge: &ClusterName, namespace: &str) -> Diagnosis {
    diagnosis(
        HopState::Unknown,
        HopCause::Identity,
        format!("it is not known whether namespace {namespace} holds replicated objects"),
        [Remedy::kubectl(
            edge,
            format!("at {edge}, check that it exists and has the label {UPSTREAM_NAMESPACE}"),
            format!("get namespace {namespace} --show-labels"),
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
    diagnosis(state, HopCause::WriteInFlight, why, [remedy.into()])
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
            )
            .into(),
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
        )
        .into()],
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
        [Remedy::kubectl(
            edge,
            format!(
                "if a tunnel should answer at {edge}, check spec.rules[].backends[].connector there, \
                 at the hub and upstream"
            ),
            format!("-n {} get httpproxies {} -o yaml", key.namespace, key.name),
        )],
    )
}
