//! What we may do in a cluster, beside what we need.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::Asked;
use super::finding::{Group, and, some};
use super::need::{LOOKED_AT, Need, Place, parts};
use crate::client::CallError;
use crate::config::Config;

/// Questions under way at a time.
const AT_A_TIME: usize = 8;

/// Asked for where an API server can't list our rules: what nobody should give away.
const GRAVE: [(&str, &str); 8] = [
    ("*", "*.*"),
    ("get", "secrets"),
    ("delete", "connectors.networking.datumapis.com"),
    ("update", "connectors.networking.datumapis.com"),
    ("patch", "connectors.networking.datumapis.com"),
    ("delete", "gateways.gateway.networking.k8s.io"),
    ("delete", "httproutes.gateway.networking.k8s.io"),
    ("delete", "namespaces"),
];

/// What was answered.
pub(super) struct Rights {
    /// Who we are, where that can be told.
    user: Option<String>,
    /// To each need in its order: whether it is given, and what was said.
    given: Vec<Result<(bool, String), CallError>>,
    /// What is given and not needed: verbs by resource.
    more: Result<BTreeMap<String, BTreeSet<String>>, CallError>,
    /// The namespace by which the rules were read.
    namespace: String,
}

/// A rule as a SelfSubjectRulesReview tells it.
#[derive(Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Rule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
}

/// Asks for each need, and for everything else that is given.
pub(super) async fn look(asked: &Asked, config: &Config, needs: &[&Need]) -> Rights {
    let own = asked.cluster.default_namespace().await;
    let own = own.unwrap_or_else(|_| "default".to_owned());
    let namespace = config.leader_election.lease_namespace.clone().unwrap_or_else(|| own.clone());
    let each = needs.iter().map(|need| {
        let within = match &need.place {
            Place::Everywhere => None,
            Place::LeaseNamespace(named) => Some(named.as_deref().unwrap_or(&own)),
        };
        asked.may(need.verb, need.resource, within)
    });
    let each = futures::stream::iter(each).buffered(AT_A_TIME).collect::<Vec<_>>();
    let (given, user, more) = tokio::join!(each, who(asked), beyond(asked, &namespace, needs));
    Rights { user, given, more, namespace }
}

async fn who(asked: &Asked) -> Option<String> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer: Value = asked.post(path, &review).await.ok()?;
    answer["status"]["userInfo"]["username"].as_str().map(str::to_owned)
}

/// What is given and not needed.
async fn beyond(
    asked: &Asked,
    namespace: &str,
    needs: &[&Need],
) -> Result<BTreeMap<String, BTreeSet<String>>, CallError> {
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": namespace } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer: Value = asked.post(path, &review).await?;
    let rules = answer["status"]["resourceRules"].clone();
    let rules: Vec<Rule> =
        serde_json::from_value(rules).map_err(|e| CallError::Unreadable(e.to_string()))?;
    let mut more = superfluous(&rules, needs);
    if answer["status"]["incomplete"].as_bool().unwrap_or(false) {
        for (verb, resource) in GRAVE {
            if !is_needed(needs, resource, verb) && asked.may(verb, resource, None).await?.0 {
                let everything = resource == "*.*";
                let resource = if everything { "everything" } else { resource };
                more.entry(resource.to_owned()).or_default().insert(verb.to_owned());
            }
        }
    }
    Ok(more)
}

/// Verbs by resource that rules give beyond needs.
fn superfluous(rules: &[Rule], needs: &[&Need]) -> BTreeMap<String, BTreeSet<String>> {
    let mut more: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        for group in &rule.api_groups {
            // Everybody may ask who they are and what they may.
            if group == "authorization.k8s.io" || group == "authentication.k8s.io" {
                continue;
            }
            for resource in &rule.resources {
                let name = match (group.as_str(), resource.as_str()) {
                    ("*", "*") => "everything".to_owned(),
                    ("", resource) => resource.to_owned(),
                    (group, resource) => format!("{resource}.{group}"),
                };
                let extra = rule.verbs.iter().filter(|verb| !is_needed(needs, &name, verb));
                for verb in extra {
                    more.entry(name.clone()).or_default().insert(verb.clone());
                }
            }
        }
    }
    more
}

/// A run needs it, or a check looks at it. Who may list may as well get: it shows nothing more.
fn is_needed(needs: &[&Need], resource: &str, verb: &str) -> bool {
    let reads = ["get", "list", "watch"].contains(&verb);
    let listed = |verb: &str| {
        verb == "get" && needs.iter().any(|n| n.resource == resource && n.verb == "list")
    };
    needs.iter().any(|need| need.resource == resource && need.verb == verb)
        || listed(verb)
        || (reads && LOOKED_AT.contains(&resource))
}

/// Tells of them: one finding a resource.
pub(super) fn tell(group: &mut Group, rights: &Rights, needs: &[&Need]) {
    let user = rights.user.as_deref().unwrap_or("the user or ServiceAccount");
    let mut at = 0;
    while let Some(first) = needs.get(at) {
        let same = |need: &&&Need| (need.resource, &need.place) == (first.resource, &first.place);
        let end = at + needs[at..].iter().take_while(same).count();
        tell_one(group, user, &needs[at..end], &rights.given[at..end]);
        at = end;
    }
    tell_more(group, user, rights);
}

fn tell_one(
    group: &mut Group,
    user: &str,
    needs: &[&Need],
    given: &[Result<(bool, String), CallError>],
) {
    let Some(Need { resource, place, .. }) = needs.first() else { return };
    let place = match place {
        Place::Everywhere => String::new(),
        Place::LeaseNamespace(Some(namespace)) => format!(" in {namespace}"),
        Place::LeaseNamespace(None) => " in its own namespace".to_owned(),
    };
    let (mut may, mut may_not, mut untold) = (Vec::new(), Vec::new(), Vec::new());
    for (need, given) in needs.iter().zip(given) {
        match given {
            Ok((true, _)) => may.push(need.verb),
            Ok((false, reason)) => may_not.push((*need, reason)),
            Err(error) => untold.push((need.verb, error)),
        }
    }
    if let Some((_, error)) = untold.first() {
        let verbs: Vec<_> = untold.iter().map(|(verb, _)| verb).collect();
        let what = format!("whether we may {} {resource} can't be told", and(&verbs));
        group.skipped("permission", what, format!("SelfSubjectAccessReview: {error}"));
    }
    if !may.is_empty() {
        group.passed("permission", format!("may {} {resource}{place}", and(&may)));
    }
    if let Some((Need { without, .. }, _)) = may_not.last() {
        let verbs: Vec<_> = may_not.iter().map(|(need, _)| need.verb).collect();
        let reasons = may_not.iter().map(|(_, reason)| reason.as_str());
        tell_refused(group, user, (&and(&verbs), resource, &place), reasons, without);
    }
}

fn tell_refused<'a>(
    group: &mut Group,
    user: &str,
    (verbs, resource, place): (&str, &str, &str),
    reasons: impl Iterator<Item = &'a str>,
    without: &str,
) {
    let mut reasons: Vec<_> = reasons.filter(|reason| !reason.is_empty()).collect();
    reasons.dedup();
    let why = if reasons.is_empty() { "not allowed".to_owned() } else { reasons.join("; ") };
    let of = match parts(resource) {
        (plural, "") => format!("{plural} of the core API group"),
        (plural, of) => format!("{plural} of API group {of}"),
    };
    group.failed(
        "permission",
        format!("may not {verbs} {resource}{place}"),
        format!("SelfSubjectAccessReview for {verbs}: {why}"),
        format!("grant {verbs} on {of}{place} to {user}; without it {without}"),
    );
}

fn tell_more(group: &mut Group, user: &str, rights: &Rights) {
    match &rights.more {
        Err(error) => {
            let detail = format!("SelfSubjectRulesReview: {error}");
            group.skipped("superfluous", "what else we may can't be told", detail);
        }
        Ok(more) if more.is_empty() => {
            group.passed("superfluous", format!("{user} may nothing else"));
        }
        Ok(more) => {
            let words = |(resource, verbs): (&String, &BTreeSet<String>)| {
                let verbs: Vec<_> =
                    verbs.iter().map(|v| if v == "*" { "do anything with" } else { v }).collect();
                format!("{} {resource}", and(&verbs))
            };
            let more: Vec<_> = more.iter().map(words).collect();
            group.warned(
                "superfluous",
                format!("{user} may more than is needed: {}", some(&more)),
                format!("SelfSubjectRulesReview in namespace {}", rights.namespace),
                "take it away: whoever takes over the process could use it",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::ClusterName;

    fn rule(group: &str, resource: &str, verbs: &[&str]) -> Rule {
        Rule {
            verbs: verbs.iter().map(|v| (*v).to_owned()).collect(),
            api_groups: vec![group.to_owned()],
            resources: vec![resource.to_owned()],
        }
    }

    #[test]
    fn what_is_given_beyond_the_needs_is_found() {
        let resource = "connectors.networking.datumapis.com";
        let need = |verb| Need {
            cluster: ClusterName::from("hub"),
            resource,
            place: Place::Everywhere,
            verb,
            without: "",
        };
        let needs = [need("list"), need("watch")];
        let needs: Vec<_> = needs.iter().collect();
        let group = "networking.datumapis.com";
        let harmless = [
            rule(group, "connectors", &["get", "list", "watch"]),
            rule("authorization.k8s.io", "selfsubjectaccessreviews", &["create"]),
            rule("work.karmada.io", "works", &["list"]),
        ];
        assert_eq!(superfluous(&harmless, &needs), BTreeMap::new());
        for (rule, verb, found) in [
            (rule(group, "connectors", &["list", "patch"]), "patch", resource),
            (rule(group, "connectors", &["*"]), "*", resource),
            (rule("", "secrets", &["get"]), "get", "secrets"),
            (rule("*", "*", &["*"]), "*", "everything"),
            (rule("work.karmada.io", "works", &["delete"]), "delete", "works.work.karmada.io"),
        ] {
            let one = BTreeSet::from([verb.to_owned()]);
            let expected = BTreeMap::from([(found.to_owned(), one)]);
            assert_eq!(superfluous(&[rule], &needs), expected);
        }
    }
}
