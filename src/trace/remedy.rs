//! The words: why a hop is not as it should be, and what a person can do about it.

use super::diagnose::Problem;
use super::{Cause, Source, State, Writer};
use crate::client::CallError;
use crate::core::ids::{ClusterName, Kind, ObjectKey};
use crate::core::objects::UPSTREAM_STATUS;
use crate::core::view::{HubView, UpstreamView};

fn problem<const N: usize>(
    state: State,
    cause: Cause,
    why: String,
    remedies: [String; N],
) -> Problem {
    Problem { state, cause, why, remedies: remedies.into() }
}

fn named(object: Option<&ObjectKey>) -> String {
    object.map_or_else(|| "the Connector".to_owned(), ToString::to_string)
}

/// As kubectl wants it.
fn get(kind: Kind, object: Option<&ObjectKey>) -> String {
    let resource = kind.plural();
    let namespace = object.map_or("NAMESPACE", |o| &o.namespace);
    let name = object.map_or("NAME", |o| &o.name);
    format!("kubectl -n {namespace} get {resource} {name} -o yaml --show-managed-fields")
}

/// An error that was kept as text, and begins with the HTTP status where there was an answer.
fn remedy_of(error: &str, verb: &str, kind: Kind) -> Option<String> {
    let code = error.split(' ').next().and_then(|code| code.parse().ok());
    let error = match code {
        Some(code) => CallError::Status {
            code,
            reason: String::new(),
            message: String::new(),
            about: String::new(),
            retry_after: None,
        },
        None if error.starts_with("no way to the cluster") => CallError::NoClient(String::new()),
        None => return None,
    };
    error.remedy(verb, kind)
}

/// The API server said no, and will say so again.
fn is_refusal(error: &str) -> bool {
    let code = error.split(' ').next().and_then(|code| code.parse::<u16>().ok());
    code.is_some_and(|code| matches!(code, 400 | 401 | 403 | 405 | 413 | 415 | 422))
}

pub(super) fn unseen(cluster: &ClusterName, kind: Kind, error: Option<&str>) -> Vec<String> {
    let mut remedies: Vec<_> =
        error.and_then(|e| remedy_of(e, "list and watch", kind)).into_iter().collect();
    if remedies.is_empty() {
        remedies.push(format!(
            "see whether the API server of {cluster} is up, and can be reached from where \
             throughline runs: network, DNS, NetworkPolicy, the server's address in the kubeconfig"
        ));
    }
    remedies
}

pub(super) fn not_configured(cluster: &ClusterName) -> Problem {
    problem(
        State::Unknown,
        Cause::NotConfigured,
        format!("{cluster} is not among the configured upstream clusters: nothing is mirrored"),
        [format!(
            "add {cluster} to clusters, with the role upstream and a kubeconfig; or see who wrote a \
             wrong name into the replica's label meta.datumapis.com/upstream-cluster-name"
        )],
    )
}

pub(super) fn no_labels(hub: &ClusterName, place: Option<&ObjectKey>) -> Problem {
    let place = named(place);
    problem(
        State::Unknown,
        Cause::NoLabels,
        format!("the labels of {place} at {hub} name no upstream Connector: nothing is mirrored"),
        ["the replicator writes the labels meta.datumapis.com/upstream-*: see whether it made this \
          object, and let it write it again"
            .to_owned()],
    )
}

pub(super) fn identity(hub: &ClusterName, place: Option<&ObjectKey>, up: &UpstreamView) -> Problem {
    problem(
        State::Wrong,
        Cause::Identity,
        format!(
            "the labels of {} at {hub} name {} in {}, but its namespace is not ns-UID of that \
             namespace: it is left as it is",
            named(place),
            up.object,
            up.cluster
        ),
        [format!(
            "the namespace {} was deleted and made again in {}, or the labels are wrong: let the \
             replicator make the replica anew",
            up.object.namespace, up.cluster
        )],
    )
}

pub(super) fn unreplicated(
    state: State,
    hub: &ClusterName,
    upstream: Option<&ObjectKey>,
) -> Problem {
    problem(
        state,
        Cause::Unreplicated,
        format!("{hub} has no replica of {}", named(upstream)),
        [
            "replicas are made by the platform's replicator, not by throughline: see whether it runs, \
             and what its log says of this Connector"
                .to_owned(),
            format!("see whether {hub} has its namespace ns-UID, and room under its quotas"),
        ],
    )
}

pub(super) fn off(key: &str) -> Problem {
    problem(
        State::Unknown,
        Cause::Off,
        format!("{key} is false here: nothing is compared"),
        [format!("ask the instance that does it, or set {key} to true")],
    )
}

pub(super) fn not_leading(state: State, hub: &ClusterName, holder: Option<&str>) -> Problem {
    let why = "the replica does not say what upstream says, and this replica does not lead";
    let (why, remedy) = match holder {
        Some(holder) => (
            format!("{why}; {holder} does"),
            format!("ask {holder}: its log, or throughline trace --state at its admin port"),
        ),
        None => (
            format!("{why}; nobody is known to"),
            format!(
                "see who holds the Lease at {hub} (kubectl get lease throughline -o yaml), and \
                 whether the replicas may get, create and update it"
            ),
        ),
    };
    problem(state, Cause::NotLeading, why, [remedy])
}

pub(super) fn write_fails(state: State, cluster: &ClusterName, kind: Kind, error: &str) -> Problem {
    let verb = if kind == Kind::Gateway { "touch" } else { "write of the annotation" };
    let remedy = remedy_of(error, "patch", kind).map(|r| format!("{r} at {cluster}"));
    if is_refusal(error) {
        let remedy = remedy.unwrap_or_else(|| {
            format!("see which webhook, policy or quota of {cluster} refuses it; it is tried again")
        });
        let why = format!("{cluster} refuses the {verb}: {error}");
        return problem(State::Wrong, Cause::Refused, why, [remedy]);
    }
    let remedy = remedy.unwrap_or_else(|| {
        format!("it is tried again; see the health and the load of the API server of {cluster}")
    });
    let why = format!("the {verb} fails at {cluster}: {error}");
    problem(state, Cause::Failing, why, [remedy])
}

pub(super) fn contention(state: State, hub: &HubView, other: Option<&Writer>) -> Problem {
    let often = match hub.spoiled {
        0 => String::new(),
        1 => ", once of late".to_owned(),
        n => format!(", {n} times of late"),
    };
    let who = other.map_or("another writer", |writer| &writer.manager);
    let find = match other {
        Some(other) => format!("find who {} is", other.manager),
        None => "find who it is (metadata.managedFields of the replica)".to_owned(),
    };
    problem(
        state,
        Cause::Contention,
        format!("{who} wrote {UPSTREAM_STATUS} at {} after upstream changed{often}", hub.cluster),
        [format!(
            "{find}, and stop it from writing this key, or let it write what upstream says; \
             throughline writes again, with growing pauses"
        )],
    )
}

pub(super) fn under_way(state: State, hub: &ClusterName) -> Problem {
    problem(
        state,
        Cause::UnderWay,
        format!("a write to {hub} is under way, without an answer yet"),
        [format!("wait; if it stays so, see the health and the load of the API server of {hub}")],
    )
}

pub(super) fn not_mirrored(
    state: State,
    source: Source,
    hub: &ClusterName,
    holder: Option<&str>,
) -> Problem {
    let why = format!("the replica at {hub} does not say what upstream says");
    let (more, remedies) = match (source, holder) {
        (Source::Recording, _) => (
            "no throughline was writing in this recording".to_owned(),
            vec!["throughline replay shows what it would have done".to_owned()],
        ),
        (Source::Live, Some(holder)) => (
            format!("{holder} holds the Lease, and has not written it"),
            vec![
                format!("see why in the log of {holder}, or by throughline trace --state there"),
                format!(
                    "see whether its ServiceAccount may: kubectl auth can-i patch {} -n NAMESPACE \
                     --as system:serviceaccount:…",
                    Kind::Connector.resource()
                ),
            ],
        ),
        (Source::Live, None) => (
            "nobody is known to lead".to_owned(),
            vec![
                "see whether a throughline with the roles upstream and downstream runs: its pods, \
                 their logs, the Lease"
                    .to_owned(),
                format!(
                    "see whether its ServiceAccount may patch {} at {hub}",
                    Kind::Connector.resource()
                ),
            ],
        ),
        _ => (
            "it is to be written".to_owned(),
            vec!["wait; if it stays so, see the log of this instance".to_owned()],
        ),
    };
    Problem { state, cause: Cause::NotWritten, why: format!("{why}; {more}"), remedies }
}

pub(super) fn not_carried(
    state: State,
    edge: &ClusterName,
    place: Option<&ObjectKey>,
    hub_says: &str,
    nudged: u32,
) -> Problem {
    let nudges = match nudged {
        0 => String::new(),
        1 => "; nudged once of late".to_owned(),
        n => format!("; nudged {n} times of late"),
    };
    let (namespace, name) = place.map_or(("NAMESPACE", "NAME"), |p| (&p.namespace, &p.name));
    problem(
        state,
        Cause::NotCarried,
        format!(
            "the copy at {edge} does not say what the hub says ({hub_says}): the carrier has not \
             brought it{nudges}"
        ),
        [
            format!(
                "at the hub: kubectl -n {namespace} describe resourcebinding {name}-connector, for its \
                 conditions; and karmada-controller-manager's log, which backs off for up to 1000 s"
            ),
            format!(
                "see whether the member cluster {edge} is Ready for the carrier, and nobody writes \
                 the copy there: {}",
                get(Kind::Connector, place)
            ),
        ],
    )
}

pub(super) fn no_copy(edge: &ClusterName, place: Option<&ObjectKey>) -> Problem {
    problem(
        State::Wrong,
        Cause::NoCopy,
        format!("{edge} has no copy of {}, nor has any other edge", named(place)),
        ["see whether a PropagationPolicy of the carrier selects it and places it on an edge, and its \
          ResourceBinding is scheduled"
            .to_owned()],
    )
}

pub(super) fn not_referenced(edge: &ClusterName, place: Option<&ObjectKey>) -> Problem {
    let (namespace, name) = place.map_or(("NAMESPACE", "NAME"), |p| (&p.namespace, &p.name));
    problem(
        State::Wrong,
        Cause::NotReferenced,
        format!("no HTTPProxy in {namespace} at {edge} references {name}: no gateway is concerned"),
        [format!(
            "if it should be reachable there: kubectl -n {namespace} get httpproxies, and see that one \
             names {name} in spec.rules[].backends[].connector, upstream and at the hub as well"
        )],
    )
}

pub(super) fn no_gateway(edge: &ClusterName) -> Problem {
    problem(
        State::Wrong,
        Cause::NoGateway,
        format!("its HTTPProxy references the connector, and {edge} has no Gateway of that name"),
        ["Gateways are made by the platform from HTTPProxies: see the HTTPProxy's status, and the log \
          of the platform's controller"
            .to_owned()],
    )
}

pub(super) fn no_namespace(edge: &ClusterName, namespace: &str) -> Problem {
    problem(
        State::Unknown,
        Cause::Identity,
        format!("whether the namespace {namespace} at {edge} holds replicas can't be told"),
        [format!(
            "see whether the namespace exists there, with the label \
             meta.datumapis.com/upstream-namespace: kubectl get namespace {namespace} -o yaml"
        )],
    )
}

pub(super) fn touch_under_way(state: State, edge: &ClusterName) -> Problem {
    problem(
        state,
        Cause::UnderWay,
        format!("the touch at {edge} is due, or under way without an answer yet"),
        [format!("wait; if it stays so, see the health and the load of the API server of {edge}")],
    )
}

pub(super) fn not_touched(state: State, source: Source, edge: &ClusterName) -> Problem {
    let why = format!("the trigger does not announce what the copy at {edge} says");
    let remedies = match source {
        Source::Recording => vec!["throughline replay shows what it would have done".to_owned()],
        Source::Live => vec![
            format!(
                "see whether a throughline with the role edge runs for {edge}, and its log; touching \
                 needs no leader"
            ),
            format!(
                "see whether its ServiceAccount may patch {} at {edge}",
                Kind::Gateway.resource()
            ),
        ],
        Source::State | Source::Log => {
            vec!["wait; if it stays so, see the log of this instance".to_owned()]
        }
    };
    Problem { state, cause: Cause::NotWritten, why, remedies }
}

pub(super) fn no_connector(edge: &ClusterName, proxy: &ObjectKey, name: &str) -> Problem {
    problem(
        State::Wrong,
        Cause::NoConnector,
        format!(
            "the HTTPProxy {proxy} at {edge} references the Connector {name}, which is not there"
        ),
        [format!(
            "make the Connector upstream, or correct the name in the HTTPProxy; until then {name} \
             counts as offline"
        )],
    )
}

pub(super) fn bare_gateway(
    edge: &ClusterName,
    object: &ObjectKey,
    gateway: bool,
    proxy: bool,
) -> Problem {
    let why = match (gateway, proxy) {
        (true, false) => format!("{edge} has no HTTPProxy {object}: the Gateway announces nothing"),
        (true, true) => {
            format!(
                "the HTTPProxy {object} at {edge} references no Connector: nothing is announced"
            )
        }
        _ => {
            format!("the HTTPProxy {object} at {edge} references no Connector, and has no Gateway")
        }
    };
    problem(
        State::Wrong,
        Cause::NotReferenced,
        why,
        [format!(
            "if a tunnel should answer there: kubectl -n {} get httpproxies {} -o yaml, and see \
             spec.rules[].backends[].connector, upstream and at the hub as well",
            object.namespace, object.name
        )],
    )
}
