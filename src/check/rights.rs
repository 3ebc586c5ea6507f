//! Checks the permissions in a cluster: those that are missing, and those that a run does not need.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::finding::{FindingGroup, join_first, join_with_and};
use super::permissions::{PermissionScope, READ_BY_CHECK_ONLY, RequiredPermission, split_resource};
use super::probe_client::ProbeClient;
use crate::client::CallError;
use crate::config::Config;
use crate::core::cause::shell_word;

const REVIEWS_IN_FLIGHT_MAX: usize = 8;

/// Dangerous permissions, asked for one by one where an API server cannot list all of our rules.
const DANGEROUS: [(&str, &str); 8] = [
    ("*", "*.*"),
    ("get", "secrets"),
    ("delete", "connectors.networking.datumapis.com"),
    ("update", "connectors.networking.datumapis.com"),
    ("patch", "connectors.networking.datumapis.com"),
    ("delete", "gateways.gateway.networking.k8s.io"),
    ("delete", "httproutes.gateway.networking.k8s.io"),
    ("delete", "namespaces"),
];

type VerbsByResource = BTreeMap<String, BTreeSet<String>>;

/// What is granted to us in one cluster.
pub(super) struct GrantedPermissions {
    /// Our user name, where the API server tells it.
    user: Option<String>,
    /// For each required permission, in its order: whether it is granted, and the reason.
    reviews: Vec<Result<(bool, String), CallError>>,
    /// What is granted and not required.
    excess: Result<VerbsByResource, CallError>,
    /// The namespace of the rules review.
    namespace: String,
}

impl GrantedPermissions {
    /// The resources for which a permission is missing.
    pub(super) fn denied(&self, needed: &[&RequiredPermission]) -> Vec<&'static str> {
        let denied = needed.iter().zip(&self.reviews);
        denied
            .filter(|(_, review)| matches!(review, Ok((false, _))))
            .map(|(n, _)| n.resource)
            .collect()
    }
}

/// A rule of a SelfSubjectRulesReview.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
}

/// Asks for each required permission, and for everything else that is granted.
pub(super) async fn fetch(
    client: &ProbeClient,
    config: &Config,
    needed: &[&RequiredPermission],
) -> GrantedPermissions {
    let default = client.cluster.default_namespace().await;
    let default = default.unwrap_or_else(|_| "default".to_owned());
    let lease_namespace = config.leader_election.lease_namespace.clone();
    let namespace = lease_namespace.unwrap_or_else(|| default.clone());
    let reviews = needed.iter().map(|permission| {
        let namespace = match &permission.scope {
            PermissionScope::AllNamespaces => None,
            PermissionScope::LeaseNamespace(named) => Some(named.as_deref().unwrap_or(&default)),
            PermissionScope::Namespace(named) => Some(named.as_str()),
        };
        client.is_allowed(permission.verb, permission.resource, namespace)
    });
    let reviews = futures::stream::iter(reviews).buffered(REVIEWS_IN_FLIGHT_MAX);
    let (reviews, user, excess) = tokio::join!(
        reviews.collect::<Vec<_>>(),
        fetch_user(client),
        fetch_excess(client, &namespace, needed)
    );
    GrantedPermissions { user, reviews, excess, namespace }
}

async fn fetch_user(client: &ProbeClient) -> Option<String> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer: Value = client.post(path, &review).await.ok()?;
    answer["status"]["userInfo"]["username"].as_str().map(str::to_owned)
}

async fn fetch_excess(
    client: &ProbeClient,
    namespace: &str,
    needed: &[&RequiredPermission],
) -> Result<VerbsByResource, CallError> {
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": namespace } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer: Value = client.post(path, &review).await?;
    let rules = answer["status"]["resourceRules"].clone();
    let rules: Vec<ResourceRule> =
        serde_json::from_value(rules).map_err(|e| CallError::Unreadable(e.to_string()))?;
    let mut excess = excess_of(&rules, needed);
    if answer["status"]["incomplete"].as_bool().unwrap_or(false) {
        for (verb, resource) in DANGEROUS {
            if !is_needed(needed, resource, verb)
                && client.is_allowed(verb, resource, None).await?.0
            {
                let everything = resource == "*.*";
                let resource = if everything { "everything" } else { resource };
                excess.entry(resource.to_owned()).or_default().insert(verb.to_owned());
            }
        }
    }
    Ok(excess)
}

/// What the rules grant and nothing needs.
fn excess_of(rules: &[ResourceRule], needed: &[&RequiredPermission]) -> VerbsByResource {
    let mut excess = VerbsByResource::new();
    for rule in rules {
        for group in &rule.api_groups {
            // Kubernetes lets every authenticated user review their own identity and permissions.
            if group == "authorization.k8s.io" || group == "authentication.k8s.io" {
                continue;
            }
            for resource in &rule.resources {
                let name = match (group.as_str(), resource.as_str()) {
                    ("*", "*") => "everything".to_owned(),
                    ("", resource) => resource.to_owned(),
                    (group, resource) => format!("{resource}.{group}"),
                };
                let extra = rule.verbs.iter().filter(|verb| !is_needed(needed, &name, verb));
                for verb in extra {
                    excess.entry(name.clone()).or_default().insert(verb.clone());
                }
            }
        }
    }
    excess
}

/// Whether a run or a check uses a permission. Get counts with list: it shows nothing more.
fn is_needed(needed: &[&RequiredPermission], resource: &str, verb: &str) -> bool {
    let is_read = ["get", "list", "watch"].contains(&verb);
    let requires = |verb: &str| needed.iter().any(|n| n.resource == resource && n.verb == verb);
    requires(verb)
        || (verb == "get" && requires("list"))
        || (is_read && READ_BY_CHECK_ONLY.contains(&resource))
}

/// Reports one finding for each resource, and one for what is not needed.
pub(super) fn report(
    group: &mut FindingGroup,
    granted: &GrantedPermissions,
    needed: &[&RequiredPermission],
    kubectl: &str,
) {
    let to = Grantee { kubectl, user: granted.user.as_deref(), namespace: &granted.namespace };
    let mut start = 0;
    while let Some(first) = needed.get(start) {
        let same_resource = |need: &&&RequiredPermission| {
            (need.resource, &need.scope) == (first.resource, &first.scope)
        };
        let end = start + needed[start..].iter().take_while(same_resource).count();
        report_resource(group, &to, &needed[start..end], &granted.reviews[start..end]);
        start = end;
    }
    report_excess(group, to.name(), granted);
}

/// To whom a missing permission is to be granted, and with which command.
struct Grantee<'a> {
    kubectl: &'a str,
    user: Option<&'a str>,
    /// Of the Lease.
    namespace: &'a str,
}

impl Grantee<'_> {
    fn name(&self) -> &str {
        self.user.unwrap_or("the user or ServiceAccount")
    }

    /// One line for the role, one for its binding; nothing where the user is not known.
    fn commands(&self, verbs: &[&str], resource: &str, scope: &PermissionScope) -> String {
        let Some(user) = self.user else { return String::new() };
        let subject = match user.strip_prefix("system:serviceaccount:") {
            Some(account) => format!("--serviceaccount={}", shell_word(account)),
            None => format!("--user={}", shell_word(user)),
        };
        let (kind, at) = match scope {
            PermissionScope::AllNamespaces => ("clusterrole", String::new()),
            PermissionScope::Namespace(namespace)
            | PermissionScope::LeaseNamespace(Some(namespace)) => {
                ("role", format!(" -n {namespace}"))
            }
            PermissionScope::LeaseNamespace(None) => ("role", format!(" -n {}", self.namespace)),
        };
        let (plural, _) = split_resource(resource);
        let name = format!("throughline-{plural}-{}", verbs.join("-"));
        let (kubectl, verbs) = (self.kubectl, verbs.join(","));
        format!(
            ":\n{kubectl}{at} create {kind} {name} --verb={verbs} --resource={resource}\n\
             {kubectl}{at} create {kind}binding {name} --{kind}={name} {subject}"
        )
    }
}

fn report_resource(
    group: &mut FindingGroup,
    to: &Grantee<'_>,
    needed: &[&RequiredPermission],
    reviews: &[Result<(bool, String), CallError>],
) {
    let Some(RequiredPermission { resource, scope, .. }) = needed.first() else { return };
    let place = match scope {
        PermissionScope::AllNamespaces => String::new(),
        PermissionScope::LeaseNamespace(Some(namespace))
        | PermissionScope::Namespace(namespace) => format!(" in {namespace}"),
        PermissionScope::LeaseNamespace(None) => " in its own namespace".to_owned(),
    };
    let (mut allowed, mut denied, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for (need, review) in needed.iter().zip(reviews) {
        match review {
            Ok((true, _)) => allowed.push(need.verb),
            Ok((false, reason)) => denied.push((*need, reason)),
            Err(error) => unknown.push((need.verb, error)),
        }
    }
    if let Some((_, error)) = unknown.first() {
        let verbs: Vec<_> = unknown.iter().map(|(verb, _)| verb).collect();
        let what = format!("not known whether we may {} {resource}{place}", join_with_and(&verbs));
        group.skipped("permission", what, format!("SelfSubjectAccessReview: {error}"));
    }
    if !allowed.is_empty() {
        group.passed("permission", format!("may {} {resource}{place}", join_with_and(&allowed)));
    }
    if !denied.is_empty() {
        let mut without: Vec<_> = denied.iter().map(|(need, _)| need.without).collect();
        without.dedup();
        let without = without.join("; ");
        let verbs: Vec<_> = denied.iter().map(|(need, _)| need.verb).collect();
        let commands = to.commands(&verbs, resource, scope);
        let verbs = join_with_and(&verbs);
        let reasons = denied.iter().map(|(_, reason)| reason.as_str());
        let advice = format!("to {}; without it {without}{commands}", to.name());
        report_denied(group, &advice, (&verbs, resource, &place), reasons);
    }
}

fn report_denied<'a>(
    group: &mut FindingGroup,
    advice: &str,
    (verbs, resource, place): (&str, &str, &str),
    reasons: impl Iterator<Item = &'a str>,
) {
    let mut reasons: Vec<_> = reasons.filter(|reason| !reason.is_empty()).collect();
    reasons.dedup();
    let why = if reasons.is_empty() { "not allowed".to_owned() } else { reasons.join("; ") };
    let of = match split_resource(resource) {
        (plural, "") => format!("{plural} of the core API group"),
        (plural, api_group) => format!("{plural} of API group {api_group}"),
    };
    group.failed(
        "permission",
        format!("may not {verbs} {resource}{place}"),
        format!("SelfSubjectAccessReview for {verbs}: {why}"),
        format!("grant {verbs} on {of}{place} {advice}"),
    );
}

fn report_excess(group: &mut FindingGroup, user: &str, granted: &GrantedPermissions) {
    match &granted.excess {
        Err(error) => {
            let detail = format!("SelfSubjectRulesReview: {error}");
            group.skipped("superfluous", "not known what else we may do", detail);
        }
        Ok(excess) if excess.is_empty() => {
            group.passed("superfluous", format!("{user} has no other permissions"));
        }
        Ok(excess) => {
            let permission = |(resource, verbs): (&String, &BTreeSet<String>)| {
                let verbs: Vec<_> =
                    verbs.iter().map(|v| if v == "*" { "do anything with" } else { v }).collect();
                format!("{} {resource}", join_with_and(&verbs))
            };
            let excess: Vec<_> = excess.iter().map(permission).collect();
            group.warned(
                "superfluous",
                format!("{user} has permissions that are not needed: {}", join_first(&excess)),
                format!("SelfSubjectRulesReview in namespace {}", granted.namespace),
                "remove them: whoever takes over the process could use them",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::data::ids::ClusterName;

    fn rule(group: &str, resource: &str, verbs: &[&str]) -> ResourceRule {
        ResourceRule {
            verbs: verbs.iter().map(|v| (*v).to_owned()).collect(),
            api_groups: vec![group.to_owned()],
            resources: vec![resource.to_owned()],
        }
    }

    #[test]
    fn permissions_beyond_the_required_ones_are_found() {
        let resource = "connectors.networking.datumapis.com";
        let need = |verb| RequiredPermission {
            cluster: ClusterName::from("hub"),
            resource,
            scope: PermissionScope::AllNamespaces,
            verb,
            without: "",
        };
        let needed = [need("list"), need("watch")];
        let needed: Vec<_> = needed.iter().collect();
        let group = "networking.datumapis.com";
        let harmless = [
            rule(group, "connectors", &["get", "list", "watch"]),
            rule("authorization.k8s.io", "selfsubjectaccessreviews", &["create"]),
            rule("work.karmada.io", "works", &["list"]),
        ];
        assert_eq!(excess_of(&harmless, &needed), BTreeMap::new());
        for (rule, verb, found) in [
            (rule(group, "connectors", &["list", "patch"]), "patch", resource),
            (rule(group, "connectors", &["*"]), "*", resource),
            (rule("", "secrets", &["get"]), "get", "secrets"),
            (rule("*", "*", &["*"]), "*", "everything"),
            (rule("work.karmada.io", "works", &["delete"]), "delete", "works.work.karmada.io"),
        ] {
            let one = BTreeSet::from([verb.to_owned()]);
            let expected = BTreeMap::from([(found.to_owned(), one)]);
            assert_eq!(excess_of(&[rule], &needed), expected);
        }
    }
}
