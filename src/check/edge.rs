//! An edge's Envoy Gateway: whether there is one, whether touches reach it, and at what cost.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::ask::{Asked, Item};
use super::cluster::Look;
use super::election::unreached;
use super::finding::{Group, and};
use crate::client::{CallError, path};
use crate::config::Config;
use crate::core::ids::Kind;
use crate::core::settings::TouchScope;
use crate::report::count;

/// Annotations with this prefix alone reach Envoy Gateway's extension servers.
const REACHES_HOOK: &str = "gateway.envoyproxy.io/";
/// Of Envoy Gateway's own kinds, and of the controllers that it is by default.
const GROUP: &str = "gateway.envoyproxy.io";

/// A GatewayClass of Envoy Gateway's.
#[derive(Debug, PartialEq, Eq)]
struct Class {
    name: String,
    /// The EnvoyProxy that it takes its parameters from, as `namespace/name`.
    proxy: Option<String>,
}

/// What there is at an edge; what could not be asked is an error.
struct Seen {
    classes: Result<Vec<Class>, CallError>,
    /// Envoy Gateway's kinds are served.
    has_kind: Result<bool, CallError>,
    /// EnvoyProxies with `mergeGateways: true`.
    merged: Result<BTreeSet<String>, CallError>,
    /// Gateways to be touched, by class: those whose HTTPProxy names a connector.
    touched: Result<BTreeMap<String, usize>, CallError>,
    version: Option<String>,
}

/// Looks at one edge.
pub(super) async fn look(config: &Config, look: &Look) -> Group {
    let mut group = Group::new(format!("Envoy Gateway at {}", look.name()));
    if !config.touch.enabled {
        group.passed("touch", "nothing is touched (touch.enabled)");
    } else if look.reached {
        judge(&mut group, config, look.name(), &see(&look.asked).await);
    } else {
        group.skipped("envoy-gateway", "can't be looked at", unreached(look));
    }
    group
}

async fn see(asked: &Asked) -> Seen {
    let classes = asked.list("/apis/gateway.networking.k8s.io/v1/gatewayclasses", class);
    let merged = async {
        let merged = |item: Item| {
            (item.spec["mergeGateways"] == Value::Bool(true)).then(|| item.metadata.key())
        };
        let proxies =
            asked.list("/apis/gateway.envoyproxy.io/v1alpha1/envoyproxies", merged).await?;
        Ok(proxies.into_iter().collect())
    };
    let has_kind = asked.serves(GROUP, "v1alpha1", "envoyproxies");
    let (classes, has_kind, merged, touched, version) =
        tokio::join!(classes, has_kind, merged, touched(asked), version(asked));
    Seen { classes, has_kind, merged, touched, version }
}

fn class(item: Item) -> Option<Class> {
    let (controller, of) = (&item.spec["controllerName"], &item.spec["parametersRef"]);
    let is_proxy = of["group"] == GROUP && of["kind"] == "EnvoyProxy";
    let ours = controller.as_str().is_some_and(|c| c.starts_with(REACHES_HOOK));
    let text = |field: &str| of[field].as_str().unwrap_or_default();
    let proxy = is_proxy.then(|| format!("{}/{}", text("namespace"), text("name")));
    (ours || is_proxy).then_some(Class { name: item.metadata.name, proxy })
}

/// Gateways whose HTTPProxy, of the same name, names a connector.
async fn touched(asked: &Asked) -> Result<BTreeMap<String, usize>, CallError> {
    let proxies = asked.list(path(Kind::HttpProxy, None), |item| {
        let rules = item.spec["rules"].as_array().into_iter().flatten();
        let mut backends = rules.flat_map(|r| r["backends"].as_array().into_iter().flatten());
        backends.any(|b| b["connector"]["name"].is_string()).then(|| item.metadata.key())
    });
    let proxies: BTreeSet<String> = proxies.await?.into_iter().collect();
    let classes = asked.list(path(Kind::Gateway, None), |item| {
        let class = item.spec["gatewayClassName"].as_str().unwrap_or_default();
        proxies.contains(&item.metadata.key()).then(|| class.to_owned())
    });
    let mut touched = BTreeMap::new();
    for class in classes.await? {
        *touched.entry(class).or_default() += 1;
    }
    Ok(touched)
}

/// Envoy Gateway's version, where its Deployment may be seen: the tag of its image.
async fn version(asked: &Asked) -> Option<String> {
    let (path, labels) = ("/apis/apps/v1/deployments", Some("control-plane=envoy-gateway"));
    let tag = |item: Item| {
        let containers = &item.spec["template"]["spec"]["containers"];
        let image = containers.as_array()?.first()?["image"].as_str()?;
        let (name, tag) = image.rsplit_once(':')?;
        (!name.is_empty() && !tag.contains('/')).then(|| tag.to_owned())
    };
    asked.list_labelled(path, labels, tag).await.ok()?.into_iter().next()
}

fn judge(group: &mut Group, config: &Config, edge: &str, seen: &Seen) {
    let found = envoy_gateway(group, seen);
    key(group, &config.touch.key, found);
    let scope = config.touch.edge_scopes.iter().find(|(name, _)| name.as_str() == edge);
    let scope = scope.map_or(config.touch.scope, |(_, scope)| *scope);
    let each = 1 + config.touch.confirm_after_ms.len();
    scopes(group, edge, scope, each, seen);
}

/// Whether there is one; `None` where that can't be told.
fn envoy_gateway(group: &mut Group, seen: &Seen) -> Option<bool> {
    let version = match &seen.version {
        Some(version) => format!("Envoy Gateway {version}"),
        None => "Envoy Gateway (its version can't be seen)".to_owned(),
    };
    let has_kind = match &seen.has_kind {
        Ok(has_kind) => *has_kind,
        Err(error) => {
            group.skipped("envoy-gateway", "whether it is there can't be told", error.to_string());
            return None;
        }
    };
    let found = match &seen.classes {
        Ok(classes) if !classes.is_empty() => {
            let names: Vec<_> = classes.iter().map(|c| &c.name).collect();
            group.passed("envoy-gateway", format!("{version}, by GatewayClass {}", and(&names)));
            return Some(true);
        }
        Ok(_) => false,
        Err(_) => has_kind,
    };
    if found {
        group.passed("envoy-gateway", format!("{version}, by its kind EnvoyProxy"));
    } else {
        let kind = if has_kind { "is" } else { "is not" };
        group.warned(
            "envoy-gateway",
            "there is none to be seen",
            format!("no GatewayClass with a controllerName of {GROUP}/…; EnvoyProxy {kind} served"),
            "see whether this is the right cluster for role edge: touches reach nobody else",
        );
    }
    Some(found)
}

fn key(group: &mut Group, key: &str, found: Option<bool>) {
    if key.starts_with(REACHES_HOOK) {
        let what = format!("touch.key {key} makes it call its extension servers");
        group.passed("trigger-key", what);
        return;
    }
    let what = format!("touch.key {key} never makes it call its extension servers");
    let detail = format!(
        "only annotations that begin with {REACHES_HOOK} become part of what it translates: \
         touches would heal nothing"
    );
    let remedy = format!("set touch.key to {REACHES_HOOK}connector-liveness, its default");
    if found == Some(false) {
        group.warned("trigger-key", what, detail, remedy);
    } else {
        group.failed("trigger-key", what, detail, remedy);
    }
}

/// Whether the scope fits how the gateways are programmed, and what it costs. `each` is how often a
/// change is written, confirmations included.
fn scopes(group: &mut Group, edge: &str, scope: TouchScope, each: usize, seen: &Seen) {
    if matches!(seen.has_kind, Ok(false)) {
        return;
    }
    let (classes, merged, touched) = match (&seen.classes, &seen.merged, &seen.touched) {
        (Ok(classes), Ok(merged), Ok(touched)) => (classes, merged, touched),
        (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
            let detail = format!(
                "{error}; whoever runs this check needs list on gatewayclasses of \
                 gateway.networking.k8s.io and on envoyproxies of {GROUP}, a live run does not"
            );
            group.skipped("scope", "whether its gateways are merged can't be told", detail);
            return;
        }
    };
    let is_merged = |class: &Class| class.proxy.as_ref().is_some_and(|p| merged.contains(p));
    let gateways = |class: &Class| touched.get(&class.name).copied().unwrap_or(0);
    let mut fits = true;
    for class in classes {
        let (n, name) = (gateways(class), &class.name);
        if scope == TouchScope::Gateway && is_merged(class) && n > 1 {
            fits = false;
            group.warned(
                "scope",
                format!(
                    "touch.scope is gateway, and the {n} gateways of GatewayClass {name} are merged"
                ),
                format!(
                    "each touch translates all {n} anew: when all change at once, that is {n} \
                     touches of {n} gateways each, {each} times with confirmations"
                ),
                format!(
                    "one touch heals a merged class: set touch.edgeScopes.{edge} to gatewayClass \
                     (--scope gateway-class)"
                ),
            );
        }
        if scope == TouchScope::GatewayClass && !is_merged(class) && (n > 0 || touched.is_empty()) {
            fits = false;
            group.failed(
                "scope",
                format!("touch.scope is gatewayClass, and GatewayClass {name} is not merged"),
                format!(
                    "no EnvoyProxy with mergeGateways: true stands behind it: of its {n} gateways \
                     with connectors one is touched, and the others stay as they are"
                ),
                format!("set touch.edgeScopes.{edge} to gateway, or merge the gateways"),
            );
        }
    }
    if fits {
        let (word, n) = match scope {
            TouchScope::Gateway => ("gateway", touched.values().sum()),
            TouchScope::GatewayClass => ("gatewayClass", touched.values().sum()),
        };
        let gateways = count(n, "gateway");
        group.passed("scope", format!("touch.scope {word} fits: {gateways} with connectors"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    fn seen(merged: bool, gateways: usize) -> Seen {
        let class = Class { name: "edge".into(), proxy: Some("eg/shared".into()) };
        let merged =
            if merged { BTreeSet::from(["eg/shared".to_owned()]) } else { BTreeSet::new() };
        let touched = BTreeMap::from([("edge".to_owned(), gateways)]);
        let version = Some("v1.8.1".to_owned());
        Seen {
            classes: Ok(vec![class]),
            has_kind: Ok(true),
            merged: Ok(merged),
            touched: Ok(touched),
            version,
        }
    }

    fn levels(config: &Config, seen: &Seen) -> Vec<(&'static str, Level)> {
        let mut group = Group::new("g");
        judge(&mut group, config, "edge", seen);
        group.findings().into_iter().map(|f| (f.check, f.level)).collect()
    }

    #[test]
    fn a_scope_fits_merged_gateways_or_it_is_told() {
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
            let found = levels(&config, &seen(merged, gateways));
            assert_eq!(found[2], ("scope", level), "{scope:?} merged {merged} {gateways}");
        }
        // An edge's own scope counts.
        let mut config = Config::default();
        config.touch.edge_scopes.insert("edge".into(), GatewayClass);
        assert_eq!(levels(&config, &seen(true, 26))[2], ("scope", Level::Passed));
    }

    #[test]
    fn a_key_that_reaches_nobody_is_worst_where_envoy_gateway_is() {
        let mut config = Config::default();
        assert_eq!(levels(&config, &seen(false, 1))[1], ("trigger-key", Level::Passed));
        config.touch.key = "example.com/liveness".into();
        assert_eq!(levels(&config, &seen(false, 1))[1], ("trigger-key", Level::Failed));
        let none = Seen { classes: Ok(Vec::new()), ..seen(false, 0) };
        assert_eq!(
            levels(&config, &none)[..2],
            [("envoy-gateway", Level::Warning), ("trigger-key", Level::Warning)]
        );
    }
}
