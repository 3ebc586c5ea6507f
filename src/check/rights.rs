//! Checks the permissions in a cluster: the missing ones and the unnecessary ones.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use super::client::{Cluster, call_error};
use super::finding::{Check, Draft};
use super::permissions::{
    READ_BY_CHECK_ONLY, RequiredPermission, required_permissions, split_resource,
};
use crate::client::CallError;
use crate::config::Config;
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::data::ids::{Kind, NamespacedName};
use crate::report::style::{count, join_first};

const REVIEWS_IN_FLIGHT_MAX: usize = 8;

/// Dangerous permissions, reviewed one by one if an API server cannot list all of our rules.
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

/// Checks each needed permission, and finds further ones.
pub(super) async fn check(cluster: &mut Cluster, config: &Config) -> Vec<Draft> {
    let name = cluster.name().clone();
    if !cluster.is_reached {
        let checks = [Check::Permissions, Check::LeastPrivilege];
        return checks.map(|check| Draft::skipped(check, Some(&name), cluster.unseen())).into();
    }
    cluster.account = account(cluster).await;
    let namespace = cluster.lease_namespace(config).await;
    let needed = required_permissions(config, &name, cluster.client.roles(), &namespace);
    let reviews =
        needed.iter().map(|n| is_allowed(cluster, n.verb, n.resource, n.namespace.as_deref()));
    let reviews = futures::stream::iter(reviews).buffered(REVIEWS_IN_FLIGHT_MAX);
    let (reviews, excess) =
        tokio::join!(reviews.collect::<Vec<_>>(), excess(cluster, &namespace, &needed));
    let mut drafts = missing(cluster, &needed, &reviews);
    drafts.push(superfluous(cluster, &namespace, excess));
    let denied = needed.iter().zip(&reviews).filter(|(_, review)| matches!(review, Ok((false, _))));
    cluster.denied = denied.map(|(need, _)| need.resource).collect();
    drafts
}

/// Our user name; `None` if the API server does not return it.
async fn account(cluster: &Cluster) -> Option<Box<str>> {
    let api: Api<SelfSubjectReview> = Api::all(cluster.kube.clone());
    let answer = api.create(&PostParams::default(), &SelfSubjectReview::default()).await.ok()?;
    Some(answer.status?.user_info?.username?.into())
}

/// Whether our user has this permission, and the authorizer's reason.
async fn is_allowed(
    cluster: &Cluster,
    verb: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<(bool, String), CallError> {
    let (plural, group) = split_resource(resource);
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(plural.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(cluster.kube.clone());
    let answer = api.create(&PostParams::default(), &review).await.map_err(call_error)?;
    let status = answer.status.unwrap_or_default();
    Ok((status.allowed, status.reason.unwrap_or_default()))
}

/// One failure for each resource.
fn missing(
    cluster: &Cluster,
    needed: &[RequiredPermission],
    reviews: &[Result<(bool, String), CallError>],
) -> Vec<Draft> {
    let name = cluster.name();
    let mut denied = BTreeMap::<_, Vec<(&RequiredPermission, &str)>>::new();
    let mut unseen = None;
    for (need, review) in needed.iter().zip(reviews) {
        match review {
            Ok((true, _)) => {}
            Ok((false, reason)) => {
                denied.entry((need.resource, &need.namespace)).or_default().push((need, reason));
            }
            Err(error) => unseen = Some(error),
        }
    }
    let mut drafts: Vec<_> = denied
        .into_iter()
        .map(|((resource, namespace), denied)| {
            let (plural, _) = split_resource(resource);
            let verbs: Vec<_> = denied.iter().map(|(need, _)| need.verb).collect();
            let is_it = |kind: &Kind| kind.resource() == resource;
            let subject = About {
                kind: Kind::ALL.into_iter().find(is_it),
                object: namespace.as_deref().map(|namespace| NamespacedName::new(namespace, "")),
                ..About::cluster(name)
            };
            let facts = Facts {
                verb: Some(verbs.join(",").into()),
                key: Some(resource.into()),
                role: Some(format!("throughline-{plural}-{}", verbs.join("-")).into()),
                account: cluster.account.clone(),
                ..Facts::default()
            };
            let mut without: Vec<_> = denied.iter().map(|(need, _)| need.without).collect();
            without.dedup();
            let mut reasons: Vec<_> = denied.iter().map(|(_, reason)| *reason).collect();
            reasons.dedup();
            let evidence = format!(
                "SelfSubjectAccessReview for {} {resource}: not allowed{}; without it {}",
                verbs.join(","),
                reasons.iter().map(|reason| format!(" {reason}")).collect::<String>().trim_end(),
                without.join("; ")
            );
            Draft::failed(Check::Permissions, Cause::PermissionMissing, subject, facts, evidence)
        })
        .collect();
    if let Some(error) = unseen {
        let unseen = format!("SelfSubjectAccessReview: {error}");
        drafts.push(Draft::skipped(Check::Permissions, Some(name), unseen));
    } else if drafts.is_empty() {
        let granted = format!("all that a run needs: {}", count(needed.len(), "permission"));
        drafts.push(Draft::passed(Check::Permissions, Some(name), granted));
    }
    drafts
}

async fn excess(
    cluster: &Cluster,
    namespace: &str,
    needed: &[RequiredPermission],
) -> Result<VerbsByResource, CallError> {
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let api: Api<SelfSubjectRulesReview> = Api::all(cluster.kube.clone());
    let answer = api.create(&PostParams::default(), &review).await.map_err(call_error)?;
    let status = answer.status.unwrap_or_default();
    let mut excess = excess_of(&status.resource_rules, needed);
    if status.incomplete {
        for (verb, resource) in DANGEROUS {
            if !is_needed(needed, resource, verb)
                && is_allowed(cluster, verb, resource, None).await?.0
            {
                let resource = if resource == "*.*" { "everything" } else { resource };
                excess.entry(resource.to_owned()).or_default().insert(verb.to_owned());
            }
        }
    }
    Ok(excess)
}

/// The permissions that the rules grant and throughline does not need.
fn excess_of(rules: &[ResourceRule], needed: &[RequiredPermission]) -> VerbsByResource {
    let mut excess = VerbsByResource::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            // Kubernetes lets every authenticated user review their own identity and permissions.
            if group == "authorization.k8s.io" || group == "authentication.k8s.io" {
                continue;
            }
            for resource in rule.resources.iter().flatten() {
                let name = match (group.as_str(), resource.as_str()) {
                    ("*", "*") => "everything".to_owned(),
                    ("", resource) => resource.to_owned(),
                    (group, resource) => format!("{resource}.{group}"),
                };
                for verb in rule.verbs.iter().filter(|verb| !is_needed(needed, &name, verb)) {
                    excess.entry(name.clone()).or_default().insert(verb.clone());
                }
            }
        }
    }
    excess
}

/// Whether a run or a check uses a permission. Get is covered by list: it shows nothing more.
fn is_needed(needed: &[RequiredPermission], resource: &str, verb: &str) -> bool {
    let is_read = ["get", "list", "watch"].contains(&verb);
    let requires = |verb: &str| needed.iter().any(|n| n.resource == resource && n.verb == verb);
    requires(verb)
        || (verb == "get" && requires("list"))
        || (is_read && READ_BY_CHECK_ONLY.contains(&resource))
}

fn superfluous(
    cluster: &Cluster,
    namespace: &str,
    excess: Result<VerbsByResource, CallError>,
) -> Draft {
    let name = cluster.name();
    let evidence = format!("SelfSubjectRulesReview in namespace {namespace}");
    match excess {
        Err(error) => {
            let unseen = format!("SelfSubjectRulesReview: {error}");
            Draft::skipped(Check::LeastPrivilege, Some(name), unseen)
        }
        Ok(excess) if excess.is_empty() => {
            Draft::passed(Check::LeastPrivilege, Some(name), evidence)
        }
        Ok(excess) => {
            let facts = Facts { what: Some(described(&excess).into()), ..Facts::default() };
            let check = Check::LeastPrivilege;
            let cause = Cause::PermissionsExcess;
            Draft::failed(check, cause, About::cluster(name), facts, evidence).into_warning()
        }
    }
}

fn described(excess: &VerbsByResource) -> String {
    let permission = |(resource, verbs): (&String, &BTreeSet<String>)| {
        let verbs: Vec<_> = verbs.iter().map(String::as_str).collect();
        let verbs = verbs.join(",").replace('*', "do anything with");
        format!("{verbs} {resource}")
    };
    join_first(excess.iter().map(permission))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, resource: &str, verbs: &[&str]) -> ResourceRule {
        ResourceRule {
            verbs: verbs.iter().map(|v| (*v).to_owned()).collect(),
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            resource_names: None,
        }
    }

    #[test]
    fn permissions_beyond_the_required_ones_are_found() {
        let resource = "connectors.networking.datumapis.com";
        let needed = ["list", "watch"].map(|verb| RequiredPermission {
            resource,
            namespace: None,
            verb,
            without: "",
        });
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
        let all = excess_of(&[rule("*", "*", &["*"]), rule("", "secrets", &["get"])], &needed);
        assert_eq!(described(&all), "do anything with everything, get secrets");
    }
}
