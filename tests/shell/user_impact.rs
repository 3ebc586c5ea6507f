//! The metrics of what users see: for how long Gateways answered wrongly, as far as watches show it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::contract::event::{ClusterSpec, Event, EventKind};
use throughline::core::contract::settings::{Settings, TouchScope};
use throughline::core::data::ids::{Kind, Role};
use throughline::core::data::objects::{Object, WireObject};
use throughline::core::data::time::UnixMillis;
use throughline::core::machine::Machine;
use throughline::core::status::trigger::{Trigger, connector_part, digest, gateway_part};
use throughline::metrics::{Format, Metrics};

const EDGE_KINDS: [Kind; 3] = [Kind::Connector, Kind::HttpProxy, Kind::Gateway];

/// One upstream, one edge, and one Gateway in front of one connector.
struct World {
    metrics: Arc<Metrics>,
    machine: Machine,
}

impl World {
    /// Everything is listed; the connector is offline, and the Gateway's trigger has this value.
    fn new(trigger: Option<&str>) -> Self {
        Self::with(&Settings::default(), trigger)
    }

    fn with(settings: &Settings, trigger: Option<&str>) -> Self {
        let metrics = Arc::new(Metrics::new());
        let specs = [("up", Role::Upstream), ("hub", Role::Hub), ("edge", Role::Edge)]
            .map(|(name, role)| ClusterSpec { name: name.into(), roles: vec![role] });
        let mut world = Self { metrics, machine: Machine::new(settings.clone()) };
        specs.iter().for_each(|spec| world.feed(spec.added()));
        world.list("hub", Kind::Connector, &[copy(None)]);
        world.list("up", Kind::Connector, &[upstream(None)]);
        world.list("edge", Kind::Connector, &[copy(None)]);
        world.list("edge", Kind::HttpProxy, &[proxy()]);
        world.list("edge", Kind::Gateway, &[gateway(trigger)]);
        world
    }

    fn feed(&mut self, kind: EventKind) {
        self.machine.handle_event(&Event { at: UnixMillis(1_763_715_600_000), kind });
        while let Some((edge, answers)) = self.machine.poll_answers() {
            self.metrics.set_answers(&edge, answers);
        }
    }

    fn list(&mut self, cluster: &str, kind: Kind, objects: &[Value]) {
        self.feed(EventKind::ListStarted { cluster: cluster.into(), kind });
        for listed in objects {
            self.feed(EventKind::Listed { cluster: cluster.into(), object: object(listed) });
        }
        self.feed(EventKind::ListFinished { cluster: cluster.into(), kind });
    }

    fn put(&mut self, cluster: &str, value: &Value) {
        self.feed(EventKind::Applied { cluster: cluster.into(), object: object(value) });
    }

    fn join(&mut self, cluster: &str, role: Role) {
        let roles = vec![role];
        self.feed(EventKind::ClusterAdded { cluster: cluster.into(), roles });
    }

    fn lose(&mut self, cluster: &str, kind: Kind) {
        let error = "gone".to_owned().into();
        self.feed(EventKind::WatchLost { cluster: cluster.into(), kind, error });
    }

    fn resume(&mut self, cluster: &str, kind: Kind) {
        self.feed(EventKind::WatchResumed { cluster: cluster.into(), kind });
    }

    /// Seconds: 503, dead tunnel, online, unknown; and how many answer wrongly now, by symptom.
    fn sums(&self) -> ([u64; 4], [u64; 2]) {
        let text = self.metrics.text(None, Format::Plain);
        let value = |series: &str| -> u64 {
            let line = text.lines().find(|line| line.starts_with(&format!("{series} ")));
            let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap().round() as u64
        };
        let wrong = |name: &str| {
            ["503", "dead_tunnel"].map(|symptom| {
                value(&format!(
                    "throughline_user_visible_{name}{{cluster=\"edge\",symptom=\"{symptom}\"}}"
                ))
            })
        };
        let [down, dead_tunnel] = wrong("wrong_seconds_total");
        let [online, unknown] = ["online", "unknown"].map(|name| {
            value(&format!("throughline_user_visible_{name}_seconds_total{{cluster=\"edge\"}}"))
        });
        ([down, dead_tunnel, online, unknown], wrong("wrong"))
    }
}

fn object(value: &Value) -> Arc<Object> {
    let wire: WireObject = serde_json::from_value(value.clone()).unwrap();
    Arc::new(Object::try_from(wire).unwrap())
}

fn status(node: Option<&str>) -> Value {
    let ready = if node.is_some() { "True" } else { "False" };
    let details = node.map(|node| json!({ "type": "PublicKey", "publicKey": { "id": node } }));
    json!({ "conditions": [{ "type": "Ready", "status": ready }], "connectionDetails": details })
}

fn upstream(node: Option<&str>) -> Value {
    json!({ "kind": "Connector", "metadata": { "namespace": "shop", "name": "lab" },
        "status": status(node) })
}

fn copy(node: Option<&str>) -> Value {
    let labels = json!({ "meta.datumapis.com/upstream-cluster-name": "cluster-up",
        "meta.datumapis.com/upstream-namespace": "shop", "meta.datumapis.com/upstream-name": "lab" });
    json!({ "kind": "Connector", "status": status(node),
        "metadata": { "namespace": "ns-1", "name": "home", "labels": labels } })
}

fn proxy() -> Value {
    json!({ "kind": "HTTPProxy", "metadata": { "namespace": "ns-1", "name": "app" },
        "spec": { "rules": [{ "backends": [{ "connector": { "name": "home" } }] }] } })
}

fn gateway(trigger: Option<&str>) -> Value {
    let key = Settings::default().touch.key;
    let annotations = trigger.map(|trigger| json!({ key: trigger }));
    json!({ "kind": "Gateway", "spec": { "gatewayClassName": "eg" },
        "metadata": { "namespace": "ns-1", "name": "app", "annotations": annotations } })
}

fn trigger(node: Option<&str>, n: u32) -> String {
    let part = connector_part("home", node.is_some(), node.unwrap_or_default());
    Trigger { digest: digest([part]), n, c: 0 }.to_string()
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_counts_from_the_upstream_change_to_the_touch() {
    let mut world = World::new(None);
    pass(100).await;
    assert_eq!(world.sums(), ([0, 0, 0, 0], [0, 0]), "offline everywhere: nothing is wrong");
    world.put("up", &upstream(Some("n1")));
    pass(4).await;
    assert_eq!(world.sums(), ([4, 0, 4, 0], [1, 0]));
    // Carried, but no Gateway announces it yet.
    world.put("edge", &copy(Some("n1")));
    pass(6).await;
    assert_eq!(world.sums(), ([10, 0, 10, 0], [1, 0]));
    world.put("edge", &gateway(Some(&trigger(Some("n1"), 1))));
    pass(50).await;
    assert_eq!(world.sums(), ([10, 0, 60, 0], [0, 0]));
    // Another node: a 503 again. Then offline: a dead tunnel.
    world.put("up", &upstream(Some("n2")));
    pass(5).await;
    assert_eq!(world.sums(), ([15, 0, 65, 0], [1, 0]));
    world.put("up", &upstream(None));
    pass(7).await;
    assert_eq!(world.sums(), ([15, 7, 65, 0], [0, 1]));
    // The HTTPProxy goes: nobody asks any longer.
    world.list("edge", Kind::HttpProxy, &[]);
    pass(10).await;
    assert_eq!(world.sums(), ([15, 7, 65, 0], [0, 0]));
}

#[tokio::test(start_paused = true)]
async fn time_in_which_nothing_is_seen_is_unknown() {
    for (cluster, kind) in
        [("up", Kind::Connector)].into_iter().chain(EDGE_KINDS.map(|kind| ("edge", kind)))
    {
        let mut world = World::new(None);
        world.put("up", &upstream(Some("n1")));
        pass(3).await;
        world.lose(cluster, kind);
        pass(20).await;
        assert_eq!(world.sums(), ([3, 0, 3, 20], [0, 0]), "{kind} in {cluster}");
        world.resume(cluster, kind);
        pass(4).await;
        assert_eq!(world.sums(), ([7, 0, 7, 20], [1, 0]), "{kind} in {cluster}");
        // A new list, too, ends the blindness.
        world.lose(cluster, kind);
        pass(5).await;
        let objects = match (cluster, kind) {
            ("up", _) => upstream(Some("n1")),
            (_, Kind::Connector) => copy(None),
            (_, Kind::HttpProxy) => proxy(),
            _ => gateway(None),
        };
        world.list(cluster, kind, &[objects]);
        pass(2).await;
        assert_eq!(world.sums(), ([9, 0, 9, 25], [1, 0]), "{kind} in {cluster}");
    }
    // HTTPRoutes at an edge tell nothing about what it answers.
    let mut world = World::new(None);
    world.lose("edge", Kind::HttpRoute);
    pass(9).await;
    assert_eq!(world.sums(), ([0; 4], [0, 0]));
}

/// Nobody knows what is right for a connector whose upstream is not configured.
#[tokio::test(start_paused = true)]
async fn a_connector_whose_upstream_is_not_followed_is_unknown() {
    let mut world = World::new(None);
    for value in [upstream(Some("n1")), copy(Some("n1")), gateway(Some("touched"))] {
        world.put(if value["metadata"]["namespace"] == "shop" { "up" } else { "edge" }, &value);
    }
    pass(3).await;
    world.feed(EventKind::ClusterRemoved { cluster: "up".into() });
    pass(7).await;
    assert_eq!(world.sums(), ([0, 0, 3, 7], [0, 0]));
    world.join("another", Role::Upstream);
    pass(2).await;
    assert_eq!(world.sums(), ([0, 0, 3, 9], [0, 0]));
}

/// Its edge Connector is all that it will ever know.
#[tokio::test(start_paused = true)]
async fn an_edge_alone_trusts_its_own_connectors() {
    let specs = [ClusterSpec { name: "edge".into(), roles: vec![Role::Edge] }];
    let metrics = Arc::new(Metrics::new());
    let mut world = World { metrics, machine: Machine::default() };
    specs.iter().for_each(|spec| world.feed(spec.added()));
    world.list("edge", Kind::Connector, &[copy(Some("n1"))]);
    world.list("edge", Kind::HttpProxy, &[proxy()]);
    world.list("edge", Kind::Gateway, &[gateway(None)]);
    pass(4).await;
    assert_eq!(world.sums(), ([0, 0, 4, 0], [0, 0]));
    world.join("another", Role::Upstream);
    pass(2).await;
    assert_eq!(world.sums(), ([0, 0, 4, 2], [0, 0]));
    world.feed(EventKind::ClusterRemoved { cluster: "another".into() });
    pass(1).await;
    assert_eq!(world.sums(), ([0, 0, 5, 2], [0, 0]));
}

/// An instance that starts in the middle of an outage sees it by the Gateway's trigger.
#[tokio::test(start_paused = true)]
async fn an_outage_that_began_before_the_start_counts_from_the_start() {
    // The trigger says online, everything else offline: a dead tunnel.
    let world = World::new(Some(&trigger(Some("n1"), 3)));
    pass(8).await;
    assert_eq!(world.sums(), ([0, 8, 0, 0], [0, 1]));
    // The trigger says offline; upstream and the edge Connector say online.
    let mut world = World::new(Some(&trigger(None, 3)));
    world.put("up", &upstream(Some("n1")));
    world.put("edge", &copy(Some("n1")));
    world.list("edge", Kind::Gateway, &[]);
    world.list("edge", Kind::Gateway, &[gateway(Some(&trigger(None, 3)))]);
    pass(8).await;
    assert_eq!(world.sums(), ([8, 0, 8, 0], [1, 0]));
    // Somebody else's value says nothing: the Gateway counts as translated when it was seen.
    let world = World::new(Some("by-hand"));
    pass(8).await;
    assert_eq!(world.sums(), ([0; 4], [0, 0]));
}

/// Two watches have no common order: the touch of another instance may be seen before what it
/// announces.
#[tokio::test(start_paused = true)]
async fn a_touch_that_is_seen_before_its_cause_ends_the_outage_all_the_same() {
    let mut world = World::new(None);
    world.put("up", &upstream(Some("n1")));
    pass(2).await;
    world.put("edge", &gateway(Some(&trigger(Some("n1"), 1))));
    pass(1).await;
    world.put("edge", &copy(Some("n1")));
    pass(60).await;
    assert_eq!(world.sums(), ([3, 0, 63, 0], [0, 0]));
}

/// A trigger for a whole class does not say what one Gateway announces.
#[tokio::test(start_paused = true)]
async fn with_the_scope_of_a_class_a_new_list_is_a_new_look() {
    let mut settings = Settings::default();
    settings.touch.scope = TouchScope::GatewayClass;
    let mut world = World::with(&settings, None);
    world.put("up", &upstream(Some("n1")));
    pass(3).await;
    for kind in EDGE_KINDS {
        world.lose("edge", kind);
    }
    pass(5).await;
    // Meanwhile another instance touched, and the Gateways are listed first.
    let of_one = digest([connector_part("home", true, "n1")]);
    let of_class = digest([gateway_part("ns-1", "app", of_one)]);
    let trigger = Trigger { digest: of_class, n: 1, c: 0 }.to_string();
    world.list("edge", Kind::Gateway, &[gateway(Some(&trigger))]);
    world.list("edge", Kind::HttpProxy, &[proxy()]);
    world.list("edge", Kind::Connector, &[copy(Some("n1"))]);
    pass(40).await;
    assert_eq!(world.sums(), ([3, 0, 43, 5], [0, 0]));
}

#[tokio::test(start_paused = true)]
async fn an_edge_that_leaves_takes_its_series_along_but_no_sum_falls() {
    let mut world = World::new(None);
    world.put("up", &upstream(Some("n1")));
    pass(5).await;
    world.metrics.set_clusters(201);
    let sum = "throughline_user_visible_wrong_seconds_total{symptom=\"503\"} 5";
    let text = world.metrics.text(None, Format::Plain);
    assert!(text.contains(sum) && !text.contains("cluster=\"edge\",symptom"), "{text}");
    world.feed(EventKind::ClusterRemoved { cluster: "edge".into() });
    pass(5).await;
    let text = world.metrics.text(None, Format::Plain);
    assert!(text.contains(sum), "{text}");
    world.metrics.set_clusters(1);
    let text = world.metrics.text(None, Format::Plain);
    assert!(!text.contains("throughline_user_visible_wrong_seconds_total{"), "{text}");
}

#[tokio::test]
async fn a_run_without_edges_has_no_such_series() {
    let text = Metrics::new().text(None, Format::Plain);
    assert!(!text.contains("throughline_user_visible"), "{text}");
}
