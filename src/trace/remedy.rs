//! The texts: why a hop is not ok, and what a person can do about it.
//!
//! A remedy is one line of explanation; where a command helps, it follows on a line of its own, so
//! that it can be pasted, and says which cluster it is for.

use super::diagnose::Diagnosis;
use super::{HopCause, HopState};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::objects::PAUSED;
use crate::core::data::time::UnixMillis;
use crate::report::style::moment;

/// What a person can do.
#[derive(Clone, Debug)]
pub(super) struct Remedy {
    /// The explanation, without a full stop.
    pub(super) what: String,
    /// A cluster and arguments of kubectl; without a cluster, the whole command.
    pub(super) command: Option<(Option<ClusterName>, String)>,
}

impl Remedy {
    pub(super) fn kubectl(
        cluster: &ClusterName,
        what: impl Into<String>,
        arguments: String,
    ) -> Self {
        Self { what: what.into(), command: Some((Some(cluster.clone()), arguments)) }
    }

    pub(super) fn command(what: &str, command: &str) -> Self {
        Self { what: what.to_owned(), command: Some((None, command.to_owned())) }
    }
}

impl From<String> for Remedy {
    fn from(what: String) -> Self {
        Self { what, command: None }
    }
}

impl From<&str> for Remedy {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

pub(super) fn diagnosis<const N: usize>(
    state: HopState,
    cause: HopCause,
    why: String,
    remedies: [Remedy; N],
) -> Diagnosis {
    Diagnosis { state, cause, why, remedies: remedies.into() }
}

pub(super) fn connector_name(key: Option<&ObjectKey>) -> String {
    key.map_or_else(|| "the Connector".to_owned(), ToString::to_string)
}

/// Namespace and name for a command; placeholders where they are not known.
pub(super) fn for_command(key: Option<&ObjectKey>) -> (&str, &str) {
    key.map_or(("NAMESPACE", "NAME"), |key| (&key.namespace, &key.name))
}

pub(super) fn get_with_managed_fields(kind: Kind, key: Option<&ObjectKey>) -> String {
    let (namespace, name) = for_command(key);
    let resource = kind.plural();
    format!("-n {namespace} get {resource} {name} -o yaml --show-managed-fields")
}

pub(super) fn check_may_patch(
    cluster: &ClusterName,
    kind: Kind,
    key: Option<&ObjectKey>,
) -> Remedy {
    let (namespace, _) = for_command(key);
    let what = format!("at {cluster}, check that its ServiceAccount may patch {}", plural(kind));
    let arguments = format!(
        "auth can-i patch {} -n {namespace} --as=system:serviceaccount:NAMESPACE:NAME",
        kind.resource()
    );
    Remedy::kubectl(cluster, what, arguments)
}

pub(super) fn check_server_health(cluster: &ClusterName, when: &str) -> Remedy {
    let what = format!("{when}, check the health and load of the API server of {cluster}");
    Remedy::kubectl(cluster, what, "get --raw '/readyz?verbose'".to_owned())
}

/// `HTTPProxies`.
pub(super) fn plural(kind: Kind) -> String {
    match kind.as_str().strip_suffix('y') {
        Some(stem) if kind == Kind::HttpProxy => format!("{stem}ies"),
        _ => format!("{}s", kind.as_str()),
    }
}

pub(super) fn watch_not_live(
    cluster: &ClusterName,
    kind: Kind,
    failure: Option<&RequestFailure>,
    was_lost: bool,
    since: Option<UnixMillis>,
) -> Diagnosis {
    let objects = plural(kind);
    let since = since.map_or(String::new(), |at| format!("; unknown since {} UTC", moment(at)));
    let why = match failure {
        Some(failure) if failure.cause == ErrorCause::Forbidden => {
            format!("not allowed to list {objects} ({failure})")
        }
        Some(failure) => format!("{objects} cannot be listed ({failure})"),
        None if was_lost => format!("the watch of {objects} is lost"),
        None => format!("{objects} have not been listed yet"),
    };
    let why = format!("{why}{since}");
    let remedy = failure.and_then(|failure| failure.cause.remedy("list and watch", kind));
    let remedy = match remedy {
        Some(remedy) => format!("for {cluster}: {remedy}"),
        None => format!(
            "check that the API server of {cluster} is up and can be reached from where throughline \
             runs: the server address in the kubeconfig, DNS, NetworkPolicies, firewalls"
        ),
    };
    diagnosis(HopState::Unknown, HopCause::WatchNotLive, why, [remedy.into()])
}

pub(super) fn upstream_not_configured(cluster: &ClusterName) -> Diagnosis {
    diagnosis(
        HopState::Unknown,
        HopCause::UpstreamNotConfigured,
        format!("{cluster} is not a configured upstream cluster, so nothing is mirrored"),
        [
            format!("add {cluster} to `clusters`, with the role upstream and a kubeconfig").into(),
            "if that name is wrong, correct the label meta.datumapis.com/upstream-cluster-name of \
             the hub Connector"
                .into(),
        ],
    )
}

pub(super) fn no_labels(hub: &ClusterName, key: Option<&ObjectKey>) -> Diagnosis {
    diagnosis(
        HopState::Unknown,
        HopCause::NoLabels,
        format!(
            "the labels of {} do not name an upstream Connector, so nothing is mirrored",
            connector_name(key)
        ),
        [
            Remedy::kubectl(
                hub,
                format!("at {hub}, check whether the platform's replicator created it"),
                get_with_managed_fields(Kind::Connector, key),
            ),
            "if so, let the replicator restore the labels meta.datumapis.com/upstream-*".into(),
        ],
    )
}

pub(super) fn rule_disabled(key: &str) -> Diagnosis {
    diagnosis(
        HopState::Unknown,
        HopCause::RuleDisabled,
        format!("{key} is false here, so this hop is not checked"),
        [format!("trace the instance that does this work (--state URL), or set {key} to true")
            .into()],
    )
}

/// Nothing is late: somebody wants it so.
pub(super) fn paused(cluster: &ClusterName, kind: Kind, key: Option<&ObjectKey>) -> Diagnosis {
    let (namespace, name) = for_command(key);
    let resource = kind.plural();
    diagnosis(
        HopState::Pending,
        HopCause::Paused,
        "paused by annotation: throughline writes nothing to it".to_owned(),
        [Remedy::kubectl(
            cluster,
            format!("at {cluster}, have it written again"),
            format!("-n {namespace} annotate {resource} {name} {PAUSED}-"),
        )],
    )
}

pub(super) fn write_fails(
    state: HopState,
    cluster: &ClusterName,
    kind: Kind,
    failure: &RequestFailure,
) -> Diagnosis {
    let write = if kind == Kind::Gateway { "touch" } else { "mirror write" };
    let remedy = failure.cause.remedy("patch", kind);
    let remedy = remedy.map(|remedy| Remedy::from(format!("for {cluster}: {remedy}")));
    if failure.cause.is_refusal() {
        let remedy = remedy.unwrap_or_else(|| {
            format!(
                "find the webhook, policy or quota of {cluster} that refuses the write; throughline \
                 keeps trying"
            )
            .into()
        });
        let why = format!("{cluster} refuses the {write} ({failure})");
        return diagnosis(HopState::Wrong, HopCause::Refused, why, [remedy]);
    }
    let remedy = remedy
        .unwrap_or_else(|| check_server_health(cluster, "throughline tries again; meanwhile"));
    let why = format!("the {write} to {cluster} fails ({failure})");
    diagnosis(state, HopCause::Failing, why, [remedy])
}

pub(super) fn see_replay() -> Remedy {
    Remedy::command("see what throughline would have done", "throughline replay FILE")
}

pub(super) fn see_instance_log() -> Remedy {
    "wait; if nothing changes, read the log of this instance".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Credentials may be renewed in place, so a 401 is a failure that may pass; the client retries
    /// it in the same way.
    #[test]
    fn rejected_credentials_are_a_failure_and_no_refusal() {
        let diagnose = |text: &str| {
            let failure = RequestFailure::from(text);
            write_fails(HopState::Pending, &"hub".into(), Kind::Connector, &failure)
        };
        let expired = diagnose("401 Unauthorized: Unauthorized");
        assert_eq!((expired.state, expired.cause), (HopState::Pending, HopCause::Failing));
        assert!(expired.remedies[0].what.contains("renew the token"), "{:?}", expired.remedies);
        let forbidden = diagnose("403 Forbidden: no");
        assert_eq!((forbidden.state, forbidden.cause), (HopState::Wrong, HopCause::Refused));
    }

    #[test]
    fn kinds_have_english_plurals() {
        let plurals = Kind::ALL.map(plural);
        assert_eq!(plurals, ["Connectors", "HTTPProxies", "Gateways", "HTTPRoutes", "Namespaces"]);
    }
}
