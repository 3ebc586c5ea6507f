//! Checks an edge: whether touches reach Envoy Gateway's extension servers, and whether `touch.scope` fits.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::json;

use super::client::{Cluster, annotation, key};
use super::finding::{Check, Draft, about_objects};
use super::permissions::{ENVOY_PROXIES, GATEWAY_CLASSES, split_resource};
use crate::clock::wall_clock_now;
use crate::config::Config;
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::settings::TouchScope;
use crate::core::data::ids::{Kind, NamespacedName};
use crate::core::data::objects::{EXTENSION_PREFIX, FIELD_MANAGER};
use crate::field_owner::field_owners;
use crate::report::style::join_first;

/// The first version of Envoy Gateway that copies Gateway annotations into its configuration, as
/// metadata of the virtual hosts (envoyproxy/gateway#3602).
const VERSION_MIN: (u32, u32) = (1, 1);

/// An older write of another writer is no evidence about today.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A GatewayClass of Envoy Gateway.
struct Class {
    name: String,
    /// The EnvoyProxy with its parameters.
    proxy: Option<NamespacedName>,
}

/// The objects of an edge; an error says why some are not visible.
struct Edge<'a> {
    cluster: &'a Cluster,
    classes: Result<Vec<Class>, String>,
    /// The EnvoyProxies with `mergeGateways: true`.
    merged: Result<BTreeSet<NamespacedName>, String>,
    /// Whether Envoy Gateway's kinds are served; `None` if that is not visible.
    has_kind: Option<bool>,
    gateways: Result<Vec<DynamicObject>, String>,
    /// The HTTPProxies that name a connector: their Gateways have the same names.
    proxies: Result<BTreeSet<NamespacedName>, String>,
    /// The version of Envoy Gateway, from its image; `None` if that is not visible.
    version: Option<String>,
}

pub(super) async fn check(config: &Config, cluster: &Cluster) -> Vec<Draft> {
    let checks = [Check::Trigger, Check::TouchScope];
    if !config.touch.enabled {
        let why = "`touch.enabled` is false";
        return checks.map(|check| Draft::passed(check, Some(cluster.name()), why)).into();
    }
    if !cluster.is_reached {
        return checks
            .map(|check| Draft::skipped(check, Some(cluster.name()), cluster.unseen()))
            .into();
    }
    let edge = Edge::read(cluster).await;
    let mut drafts = edge.trigger(&config.touch.key);
    // If touches have no effect, their scope does not matter.
    let has_no_effect = drafts.iter().any(|draft| draft.level == super::Level::Failed);
    if !has_no_effect {
        drafts.push(edge.scope(config.touch.scope));
    }
    drafts
}

impl<'a> Edge<'a> {
    async fn read(cluster: &'a Cluster) -> Self {
        let (classes, proxies, has_kind, gateways, http_proxies, version) = tokio::join!(
            cluster.others(GATEWAY_CLASSES, "v1"),
            cluster.others(ENVOY_PROXIES, "v1alpha1"),
            cluster.serves(ENVOY_PROXIES, "v1alpha1"),
            cluster.objects(Kind::Gateway),
            cluster.objects(Kind::HttpProxy),
            version(cluster),
        );
        let is_merged = |proxy: &&DynamicObject| proxy.data["spec"]["mergeGateways"] == true;
        let keys = |objects: Vec<DynamicObject>, keep: &dyn Fn(&&DynamicObject) -> bool| {
            objects.iter().filter(keep).map(|object| key(&object.metadata)).collect()
        };
        Self {
            cluster,
            classes: classes.map(|classes| classes.iter().filter_map(class).collect()),
            merged: proxies.map(|proxies| keys(proxies, &is_merged)),
            has_kind: has_kind.ok(),
            gateways,
            proxies: http_proxies.map(|proxies| keys(proxies, &|proxy| names_connector(proxy))),
            version,
        }
    }

    fn trigger(&self, trigger: &str) -> Vec<Draft> {
        let name = self.cluster.name();
        let ineffective = |error: String, evidence: String| {
            let facts = Facts {
                edge: Some(name.clone()),
                error: Some(RequestFailure::new(ErrorCause::Other, error)),
                ..Facts::default()
            };
            let about = About::cluster(name);
            vec![Draft::failed(Check::Trigger, Cause::TouchIneffective, about, facts, evidence)]
        };
        let absent = |evidence| ineffective("no Envoy Gateway is there".to_owned(), evidence);
        let classes = match (&self.classes, self.has_kind) {
            (Ok(classes), _) if classes.is_empty() => {
                return absent(format!(
                    "no GatewayClass has a controllerName that begins with {EXTENSION_PREFIX}"
                ));
            }
            (Ok(classes), _) => {
                format!("GatewayClass {}", join_first(classes.iter().map(|class| &class.name)))
            }
            (Err(_), Some(true)) => "EnvoyProxy is served".to_owned(),
            (Err(_), Some(false)) => return absent("EnvoyProxy is not served".to_owned()),
            (Err(unseen), None) => {
                return vec![Draft::skipped(Check::Trigger, Some(name), unseen)];
            }
        };
        let version = self.version.as_deref();
        let found = format!("Envoy Gateway {}, {classes}", version.unwrap_or("(version unknown)"));
        if let Some(version) = version.filter(|version| is_too_old(version)) {
            let (major, minor) = VERSION_MIN;
            let error = format!("Envoy Gateway {version} is older than v{major}.{minor}");
            return ineffective(error, found);
        }
        if !trigger.starts_with(EXTENSION_PREFIX) {
            let error = format!(
                "it calls its hook for keys that begin with {EXTENSION_PREFIX}, not {trigger}"
            );
            return ineffective(error, found);
        }
        let mut drafts = self.writers(trigger);
        if drafts.is_empty() {
            let evidence = format!("{found}; calls its hook for {trigger}");
            drafts.push(Draft::passed(Check::Trigger, Some(name), evidence));
        }
        drafts
    }

    /// Other writers of the trigger in the last day.
    fn writers(&self, trigger: &str) -> Vec<Draft> {
        let name = self.cluster.name();
        let gateways = match &self.gateways {
            Ok(gateways) => gateways,
            Err(unseen) => {
                let unseen = format!("who writes {trigger}: {unseen}");
                return vec![Draft::skipped(Check::Trigger, Some(name), unseen)];
            }
        };
        let now = wall_clock_now();
        let path = ["metadata", "annotations", trigger];
        let mut others = BTreeMap::<String, Vec<NamespacedName>>::new();
        for meta in gateways.iter().map(|gateway| &gateway.metadata) {
            if annotation(meta, trigger).is_none() {
                continue;
            }
            for (manager, time) in field_owners(&json!(meta.managed_fields), &path) {
                let manager = manager.unwrap_or_default();
                // A write at an unknown time may be recent.
                if manager != FIELD_MANAGER && time.is_none_or(|at| now.since(at) < DAY_MS) {
                    others.entry(manager.to_owned()).or_default().push(key(meta));
                }
            }
        }
        let draft = |(manager, keys): (String, Vec<NamespacedName>)| {
            let keys: Vec<_> = keys.iter().collect();
            let facts = Facts {
                manager: Some(manager.into()),
                key: Some(trigger.into()),
                ..Facts::default()
            };
            let evidence = format!("managedFields of {}", join_first(&keys));
            let subject = about_objects(name, Kind::Gateway, &keys);
            Draft::failed(Check::Trigger, Cause::Overwritten, subject, facts, evidence)
                .into_warning()
        };
        others.into_iter().map(draft).collect()
    }

    fn scope(&self, scope: TouchScope) -> Draft {
        let name = self.cluster.name();
        let seen = (self.classes.as_ref(), self.merged.as_ref(), self.touched());
        let (classes, merged, touched) = match seen {
            (Ok(classes), Ok(merged), Ok(touched)) => (classes, merged, touched),
            (Err(unseen), _, _) | (_, Err(unseen), _) | (_, _, Err(unseen)) => {
                return Draft::skipped(Check::TouchScope, Some(name), unseen);
            }
        };
        let is_merged = |class: &&Class| class.proxy.as_ref().is_some_and(|p| merged.contains(p));
        let gateways = |class: &Class| touched.get(&class.name).copied().unwrap_or(0);
        let is_used = |class: &&Class| gateways(class) > 0 || touched.is_empty();
        let used: Vec<_> = classes.iter().filter(is_used).collect();
        let counts = used.iter().map(|class| {
            let merged = if is_merged(class) { "merged" } else { "not merged" };
            format!("{} ({merged}, {} touched)", class.name, gateways(class))
        });
        let evidence = format!("GatewayClass {}", join_first(counts));
        if scope == TouchScope::GatewayClass
            && let Some(class) = used.iter().find(|class| !is_merged(class))
        {
            let facts = Facts {
                edge: Some(name.clone()),
                what: Some(class.name.as_str().into()),
                ..Facts::default()
            };
            let cause = Cause::TouchScopeWrong;
            return Draft::failed(Check::TouchScope, cause, About::cluster(name), facts, evidence);
        }
        let many = used.iter().any(|class| gateways(class) > 1);
        let advice = if scope == TouchScope::Gateway && many && used.iter().all(is_merged) {
            "; all are merged, so with `touch.scope: gatewayClass` one touch would do for all"
        } else {
            ""
        };
        Draft::passed(Check::TouchScope, Some(name), format!("{evidence}{advice}"))
    }

    /// The number of Gateways with connectors, which are touched, by GatewayClass.
    fn touched(&self) -> Result<BTreeMap<String, usize>, &String> {
        let gateways = self.gateways.as_ref()?;
        let proxies = self.proxies.as_ref()?;
        let mut touched = BTreeMap::new();
        for gateway in gateways.iter().filter(|g| proxies.contains(&key(&g.metadata))) {
            let class = gateway.data["spec"]["gatewayClassName"].as_str().unwrap_or_default();
            *touched.entry(class.to_owned()).or_default() += 1;
        }
        Ok(touched)
    }
}

fn class(object: &DynamicObject) -> Option<Class> {
    let spec = &object.data["spec"];
    let parameters = &spec["parametersRef"];
    let (_, group) = split_resource(ENVOY_PROXIES);
    let has_proxy = parameters["group"] == group && parameters["kind"] == "EnvoyProxy";
    let controller = spec["controllerName"].as_str().unwrap_or_default();
    let text = |field: &str| parameters[field].as_str().unwrap_or_default();
    let proxy = has_proxy.then(|| NamespacedName::new(text("namespace"), text("name")));
    let name = object.metadata.name.clone().unwrap_or_default();
    (has_proxy || controller.starts_with(EXTENSION_PREFIX)).then_some(Class { name, proxy })
}

fn names_connector(proxy: &DynamicObject) -> bool {
    let rules = proxy.data["spec"]["rules"].as_array().into_iter().flatten();
    let mut backends = rules.flat_map(|rule| rule["backends"].as_array().into_iter().flatten());
    backends.any(|backend| backend["connector"]["name"].is_string())
}

async fn version(cluster: &Cluster) -> Option<String> {
    let api: Api<Deployment> = Api::all(cluster.kube.clone());
    let found = super::client::list(&api, Some("control-plane=envoy-gateway")).await.ok()?;
    let pod = found.into_iter().next()?.spec.template.spec?;
    let image = pod.containers.into_iter().next()?.image?;
    let (name, tag) = image.rsplit_once(':')?;
    (!name.is_empty() && !tag.contains('/')).then(|| tag.to_owned())
}

/// Whether touches have no effect with this version. A tag that is no version may be any version.
fn is_too_old(version: &str) -> bool {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let numbers = (numbers.next(), numbers.next(), numbers.next());
    matches!(numbers, (Some(Ok(major)), Some(Ok(minor)), Some(_)) if (major, minor) < VERSION_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_1_1_are_too_old() {
        for old in ["v1.0.2", "1.0.0", "v0.6.0", "v1.0.0-rc.1"] {
            assert!(is_too_old(old), "{old}");
        }
        for fits in ["v1.1.0", "v1.8.1", "v1.8.1-rc.1", "v2.0.0", "latest", "v0", "f973bfa"] {
            assert!(!is_too_old(fits), "{fits}");
        }
    }
}
