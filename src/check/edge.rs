//! Checks an edge's Envoy Gateway: whether it is installed, whether touches reach it, what they cost.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::election::not_reached;
use super::envoy_gateway::{self, Deployed, is_too_old};
use super::finding::{FindingGroup, join_with_and};
use super::probe_client::{ListItem, ProbeClient};
use crate::client::{CallError, path};
use crate::config::Config;
use crate::core::contract::settings::{TouchScope, TouchSettings};
use crate::core::data::ids::Kind;
use crate::core::data::objects::EXTENSION_PREFIX;
use crate::report::count;

/// The API group of Envoy Gateway's kinds; its default controllerName begins with it, too.
const GROUP: &str = "gateway.envoyproxy.io";

/// A GatewayClass that belongs to Envoy Gateway.
#[derive(Debug, PartialEq, Eq)]
struct EnvoyGatewayClass {
    name: String,
    /// The EnvoyProxy that it takes its parameters from, as `namespace/name`.
    proxy: Option<String>,
}

/// What was read at an edge.
struct EdgeObjects {
    classes: Result<Vec<EnvoyGatewayClass>, CallError>,
    /// Whether Envoy Gateway's kinds are served.
    has_kind: Result<bool, CallError>,
    /// The EnvoyProxies with `mergeGateways: true`.
    merged: Result<BTreeSet<String>, CallError>,
    /// How many Gateways have connectors and so are touched, by GatewayClass.
    touched: Result<BTreeMap<String, usize>, CallError>,
    /// Its Deployment; `None` where we may not list it.
    deployed: Option<Deployed>,
}

pub(super) async fn check(
    config: &Config,
    cluster: &CheckedCluster,
    commands: &Commands,
) -> FindingGroup {
    let mut group = FindingGroup::new(format!("Envoy Gateway at {}", cluster.name()));
    if !config.touch.enabled {
        group.passed("touch", "touching is disabled (touch.enabled)");
    } else if cluster.reached {
        let objects = read(&cluster.client).await;
        report(&mut group, config, cluster.name(), &objects, commands);
    } else {
        group.skipped("envoy-gateway", "cannot be checked", not_reached(cluster));
    }
    group
}

async fn read(client: &ProbeClient) -> EdgeObjects {
    let classes =
        client.list("/apis/gateway.networking.k8s.io/v1/gatewayclasses", envoy_gateway_class);
    let merged = async {
        let merged = |item: ListItem| {
            (item.spec["mergeGateways"] == Value::Bool(true)).then(|| item.metadata.key())
        };
        let proxies =
            client.list("/apis/gateway.envoyproxy.io/v1alpha1/envoyproxies", merged).await?;
        Ok(proxies.into_iter().collect())
    };
    let has_kind = client.is_served(GROUP, "v1alpha1", "envoyproxies");
    let (classes, has_kind, merged, touched, deployed) =
        tokio::join!(classes, has_kind, merged, touched(client), envoy_gateway::deployed(client));
    EdgeObjects { classes, has_kind, merged, touched, deployed }
}

fn envoy_gateway_class(item: ListItem) -> Option<EnvoyGatewayClass> {
    let (controller, parameters) = (&item.spec["controllerName"], &item.spec["parametersRef"]);
    let has_proxy = parameters["group"] == GROUP && parameters["kind"] == "EnvoyProxy";
    let is_default = controller.as_str().is_some_and(|c| c.starts_with(EXTENSION_PREFIX));
    let text = |field: &str| parameters[field].as_str().unwrap_or_default();
    let proxy = has_proxy.then(|| format!("{}/{}", text("namespace"), text("name")));
    (is_default || has_proxy).then_some(EnvoyGatewayClass { name: item.metadata.name, proxy })
}

/// Counts, by class, the Gateways whose HTTPProxy (of the same name) references a connector.
async fn touched(client: &ProbeClient) -> Result<BTreeMap<String, usize>, CallError> {
    let proxies = client.list(path(Kind::HttpProxy, None), |item| {
        let rules = item.spec["rules"].as_array().into_iter().flatten();
        let mut backends = rules.flat_map(|r| r["backends"].as_array().into_iter().flatten());
        backends.any(|b| b["connector"]["name"].is_string()).then(|| item.metadata.key())
    });
    let proxies: BTreeSet<String> = proxies.await?.into_iter().collect();
    let classes = client.list(path(Kind::Gateway, None), |item| {
        let class = item.spec["gatewayClassName"].as_str().unwrap_or_default();
        proxies.contains(&item.metadata.key()).then(|| class.to_owned())
    });
    let mut touched = BTreeMap::new();
    for class in classes.await? {
        *touched.entry(class).or_default() += 1;
    }
    Ok(touched)
}

fn report(
    group: &mut FindingGroup,
    config: &Config,
    edge: &str,
    objects: &EdgeObjects,
    commands: &Commands,
) {
    if let Some(deployed) = objects.deployed.as_ref().filter(|d| is_too_old(&d.version)) {
        envoy_gateway::report_too_old(group, edge, deployed, commands);
        return;
    }
    let is_installed = report_envoy_gateway(group, objects);
    report_trigger_key(group, &config.touch.key, is_installed, commands);
    let scope = config.touch.scope_of(&edge.into());
    let writes_per_change = 1 + config.touch.confirm_after_ms.len();
    report_scope(group, edge, (scope, writes_per_change), objects, commands);
}

/// Returns whether Envoy Gateway is installed; `None` where that is not known.
fn report_envoy_gateway(group: &mut FindingGroup, objects: &EdgeObjects) -> Option<bool> {
    let version = match &objects.deployed {
        Some(Deployed { version, .. }) => format!("Envoy Gateway {version}"),
        None => "Envoy Gateway, version unknown".to_owned(),
    };
    let has_kind = match &objects.has_kind {
        Ok(has_kind) => *has_kind,
        Err(error) => {
            group.skipped("envoy-gateway", "not known whether it is installed", error.to_string());
            return None;
        }
    };
    let is_installed = match &objects.classes {
        Ok(classes) if !classes.is_empty() => {
            let names: Vec<_> = classes.iter().map(|c| &c.name).collect();
            group.passed(
                "envoy-gateway",
                format!("{version}: GatewayClass {}", join_with_and(&names)),
            );
            return Some(true);
        }
        Ok(_) => false,
        Err(_) => has_kind,
    };
    if is_installed {
        group.passed("envoy-gateway", format!("{version}: EnvoyProxy is served"));
    } else {
        let is_served = if has_kind { "is" } else { "is not" };
        group.warned(
            "envoy-gateway",
            "no Envoy Gateway found",
            format!(
                "no GatewayClass has a controllerName that begins with {GROUP}/; EnvoyProxy \
                 {is_served} served"
            ),
            "check that this is the right cluster for the role edge: only Envoy Gateway reacts to \
             touches",
        );
    }
    Some(is_installed)
}

fn report_trigger_key(
    group: &mut FindingGroup,
    key: &str,
    is_installed: Option<bool>,
    commands: &Commands,
) {
    if key.starts_with(EXTENSION_PREFIX) {
        let what = format!("touch.key {key} makes it call its extension servers");
        group.passed("trigger-key", what);
        return;
    }
    let what = format!("touch.key {key} never makes it call its extension servers");
    let detail = format!(
        "only annotations that begin with {EXTENSION_PREFIX} change its configuration: touches \
         would have no effect"
    );
    let default = TouchSettings::default().key;
    let settings = [format!("touch.key={default}")];
    let remedy = format!(
        "set touch.key to its default, {default}; to try it:\n{}",
        commands.check_with(&settings)
    );
    if is_installed == Some(false) {
        group.warned("trigger-key", what, detail, remedy);
    } else {
        group.failed("trigger-key", what, detail, remedy);
    }
}

/// Reports whether `touch.scope` suits the edge: whether each GatewayClass is merged, and what touches
/// cost. The writes for one change include the confirmations.
fn report_scope(
    group: &mut FindingGroup,
    edge: &str,
    (scope, writes_per_change): (TouchScope, usize),
    objects: &EdgeObjects,
    commands: &Commands,
) {
    if matches!(objects.has_kind, Ok(false)) {
        return;
    }
    let (classes, merged, touched) = match (&objects.classes, &objects.merged, &objects.touched) {
        (Ok(classes), Ok(merged), Ok(touched)) => (classes, merged, touched),
        (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
            let needs = "this check needs list on gatewayclasses of gateway.networking.k8s.io and on \
                         envoyproxies of";
            let detail = match error.code() {
                Some(403) => format!("{error}; {needs} {GROUP}; a live run does not"),
                _ => error.to_string(),
            };
            group.skipped("scope", "not known whether its gateways are merged", detail);
            return;
        }
    };
    let remedy = |scope: TouchScope, why: &str| {
        let setting = format!("touch.edgeScopes.{edge}={}", scope_word(scope));
        let scope = scope_word(scope);
        let command = commands.check_with(&[setting]);
        format!("set touch.edgeScopes.{edge} to {scope}{why}. To try it:\n{command}")
    };
    let is_merged =
        |class: &EnvoyGatewayClass| class.proxy.as_ref().is_some_and(|p| merged.contains(p));
    let gateways = |class: &EnvoyGatewayClass| touched.get(&class.name).copied().unwrap_or(0);
    let mut fits = true;
    for class in classes {
        let (n, name) = (gateways(class), &class.name);
        if scope == TouchScope::Gateway && is_merged(class) && n > 1 {
            fits = false;
            group.warned(
                "scope",
                format!(
                    "touch.scope is gateway, but the {n} gateways of GatewayClass {name} are merged"
                ),
                format!(
                    "each touch rebuilds the configuration of all {n}; when all change at once, that \
                     happens {n} times, and {writes_per_change} times as often with confirmations"
                ),
                remedy(TouchScope::GatewayClass, ": one touch is enough for a merged class"),
            );
        }
        if scope == TouchScope::GatewayClass && !is_merged(class) && (n > 0 || touched.is_empty()) {
            fits = false;
            group.failed(
                "scope",
                format!("touch.scope is gatewayClass, but GatewayClass {name} is not merged"),
                format!(
                    "it has no EnvoyProxy with mergeGateways: true; gateways with connectors: {n}; \
                     only one is touched, and the others keep their old configuration"
                ),
                remedy(TouchScope::Gateway, ", or mergeGateways in its EnvoyProxy to true"),
            );
        }
    }
    if fits {
        let scope = scope_word(scope);
        let gateways = count(touched.values().sum(), "gateway");
        group.passed("scope", format!("touch.scope {scope} fits: {gateways} with connectors"));
    }
}

fn scope_word(scope: TouchScope) -> &'static str {
    match scope {
        TouchScope::Gateway => "gateway",
        TouchScope::GatewayClass => "gatewayClass",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    fn objects(merged: bool, gateways: usize) -> EdgeObjects {
        let class = EnvoyGatewayClass { name: "edge".into(), proxy: Some("eg/shared".into()) };
        let merged =
            if merged { BTreeSet::from(["eg/shared".to_owned()]) } else { BTreeSet::new() };
        let touched = BTreeMap::from([("edge".to_owned(), gateways)]);
        EdgeObjects {
            classes: Ok(vec![class]),
            has_kind: Ok(true),
            merged: Ok(merged),
            touched: Ok(touched),
            deployed: None,
        }
    }

    fn levels(config: &Config, objects: &EdgeObjects) -> Vec<(&'static str, Level)> {
        let mut group = FindingGroup::new("g");
        report(&mut group, config, "edge", objects, &Commands::new("throughline check", config));
        group.into_findings().into_iter().map(|f| (f.check, f.level)).collect()
    }

    #[test]
    fn a_scope_that_does_not_suit_merged_gateways_is_reported() {
        use TouchScope::{Gateway, GatewayClass};
        for (scope, merged, gateways, level) in [
            (Gateway, false, 26, Level::Passed),
            (Gateway, true, 26, Level::Warning),
            (Gateway, true, 1, Level::Passed),
            (GatewayClass, true, 26, Level::Passed),
            (GatewayClass, false, 26, Level::Failed),
        ] {
            let mut config = Config::default();
            config.touch.scope = scope;
            let found = levels(&config, &objects(merged, gateways));
            assert_eq!(found[2], ("scope", level), "{scope:?} merged {merged} {gateways}");
        }
        // The scope of the edge overrides the general one.
        let mut config = Config::default();
        config.touch.edge_scopes.insert("edge".into(), GatewayClass);
        assert_eq!(levels(&config, &objects(true, 26))[2], ("scope", Level::Passed));
    }

    #[test]
    fn a_wrong_trigger_key_fails_only_where_envoy_gateway_is_installed() {
        let mut config = Config::default();
        assert_eq!(levels(&config, &objects(false, 1))[1], ("trigger-key", Level::Passed));
        config.touch.key = "example.com/liveness".into();
        assert_eq!(levels(&config, &objects(false, 1))[1], ("trigger-key", Level::Failed));
        let none = EdgeObjects { classes: Ok(Vec::new()), ..objects(false, 0) };
        assert_eq!(
            levels(&config, &none)[..2],
            [("envoy-gateway", Level::Warning), ("trigger-key", Level::Warning)]
        );
    }
}
