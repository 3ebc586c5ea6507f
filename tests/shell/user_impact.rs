//! The metrics of what users see: for how long Gateways answered wrongly, as far as watches show it.

use std::time::Duration;

use throughline::core::status::trigger::{connector_part, digest, gateway_part};
use throughline::metrics::{Format, Metrics};

use crate::stage::{N1, N2, Role, Settings, Stage, TRIGGER, TouchScope, Trigger, UP, Value, json};
use crate::stage::{with_scope, with_uid};

const OFFLINE: Option<&str> = Some(r#"{"conditions":[{"type":"Ready","status":"False"}]}"#);
const EDGE_KINDS: [&str; 3] = ["Connector", "HTTPProxy", "Gateway"];

/// One upstream, one edge, and one Gateway in front of one connector.
struct World {
    stage: Stage,
    metrics: Metrics,
}

impl World {
    /// Everything is listed; the connector is offline, and the Gateway's trigger has this value.
    fn new(trigger: Option<&str>) -> Self {
        Self::with(Settings::default(), trigger)
    }

    fn with(settings: Settings, trigger: Option<&str>) -> Self {
        let mut world = Self { stage: Stage::before_the_edge(settings), metrics: Metrics::new() };
        world.change(|stage| _ = stage.hub(OFFLINE).upstream(OFFLINE));
        for (kind, object) in std::iter::zip(EDGE_KINDS, edge(OFFLINE, trigger)) {
            world.list("edge", kind, [object]);
        }
        world
    }

    fn change(&mut self, change: impl FnOnce(&mut Stage)) {
        change(&mut self.stage);
        while let Some((edge, answers)) = self.stage.machine.poll_answers() {
            self.metrics.set_answers(&edge, answers);
        }
    }

    fn upstream(&mut self, status: Option<&str>) {
        self.change(|stage| _ = stage.upstream(status));
    }

    fn edge(&mut self, status: Option<&str>) {
        self.change(|stage| _ = stage.edge(status));
    }

    fn gateway(&mut self, trigger: &str) {
        self.change(|stage| _ = stage.applied("edge", gateway(Some(trigger))));
    }

    fn list(&mut self, cluster: &str, kind: &str, objects: impl IntoIterator<Item = Value>) {
        self.change(|stage| _ = stage.list(cluster, kind, objects));
    }

    fn lose(&mut self, cluster: &str, kind: &str) {
        self.change(|stage| _ = stage.lost(cluster, kind));
    }

    /// Seconds: 503, dead tunnel, online, unknown; and how many answer wrongly now, by symptom.
    fn sums(&self) -> ([u64; 4], [u64; 2]) {
        let text = self.metrics.text(None, Format::Plain);
        let value = |name: &str, more: &str| -> u64 {
            let series = format!("throughline_user_visible_{name}{{cluster=\"edge\"{more}}} ");
            let found = text.lines().find_map(|line| line.strip_prefix(&series));
            let value = found.unwrap_or_else(|| panic!("no {series} in {text}"));
            value.parse::<f64>().unwrap().round() as u64
        };
        let symptoms = [",symptom=\"503\"", ",symptom=\"dead_tunnel\""];
        let [down, dead_tunnel] = symptoms.map(|symptom| value("wrong_seconds_total", symptom));
        let [online, unknown] =
            ["online_seconds_total", "unknown_seconds_total"].map(|name| value(name, ""));
        ([down, dead_tunnel, online, unknown], symptoms.map(|symptom| value("wrong", symptom)))
    }
}

/// The edge's objects, in the order of their kinds.
fn edge(status: Option<&str>, trigger: Option<&str>) -> [Value; 3] {
    [with_uid(UP.copy("lab", status), "u-edge"), UP.proxy("app", &["lab"]), gateway(trigger)]
}

fn gateway(trigger: Option<&str>) -> Value {
    UP.gateway("app", trigger.map_or(json!({}), |trigger| json!({ TRIGGER: trigger })))
}

fn trigger(node: Option<&str>, n: u32) -> String {
    let part = connector_part("lab", node.is_some(), node.unwrap_or_default());
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
    world.upstream(N1);
    pass(4).await;
    assert_eq!(world.sums(), ([4, 0, 4, 0], [1, 0]));
    // Carried, but no Gateway announces it yet.
    world.edge(N1);
    pass(6).await;
    assert_eq!(world.sums(), ([10, 0, 10, 0], [1, 0]));
    world.gateway(&trigger(Some("n1"), 1));
    pass(50).await;
    assert_eq!(world.sums(), ([10, 0, 60, 0], [0, 0]));
    // Another node: a 503 again. Then offline: a dead tunnel.
    world.upstream(N2);
    pass(5).await;
    assert_eq!(world.sums(), ([15, 0, 65, 0], [1, 0]));
    world.upstream(OFFLINE);
    pass(7).await;
    assert_eq!(world.sums(), ([15, 7, 65, 0], [0, 1]));
    // The HTTPProxy goes: nobody asks any longer.
    world.list("edge", "HTTPProxy", []);
    pass(10).await;
    assert_eq!(world.sums(), ([15, 7, 65, 0], [0, 0]));
}

#[tokio::test(start_paused = true)]
async fn time_in_which_nothing_is_seen_is_unknown() {
    let [connector, proxy, gateway] = edge(OFFLINE, None);
    for (cluster, kind, object) in [
        ("up", "Connector", with_uid(UP.connector("lab", N1), "u-up")),
        ("edge", "Connector", connector),
        ("edge", "HTTPProxy", proxy),
        ("edge", "Gateway", gateway),
    ] {
        let mut world = World::new(None);
        world.upstream(N1);
        pass(3).await;
        world.lose(cluster, kind);
        pass(20).await;
        assert_eq!(world.sums(), ([3, 0, 3, 20], [0, 0]), "{kind} in {cluster}");
        world.change(|stage| _ = stage.resumed(cluster, kind));
        pass(4).await;
        assert_eq!(world.sums(), ([7, 0, 7, 20], [1, 0]), "{kind} in {cluster}");
        // A new list, too, ends the blindness.
        world.lose(cluster, kind);
        pass(5).await;
        world.list(cluster, kind, [object]);
        pass(2).await;
        assert_eq!(world.sums(), ([9, 0, 9, 25], [1, 0]), "{kind} in {cluster}");
    }
    // HTTPRoutes at an edge tell nothing about what it answers.
    let mut world = World::new(None);
    world.lose("edge", "HTTPRoute");
    pass(9).await;
    assert_eq!(world.sums(), ([0; 4], [0, 0]));
}

/// Nobody knows what is right for a connector whose upstream is not configured.
#[tokio::test(start_paused = true)]
async fn a_connector_whose_upstream_is_not_followed_is_unknown() {
    let mut world = World::new(None);
    world.upstream(N1);
    world.edge(N1);
    world.gateway("touched");
    pass(3).await;
    world.change(|stage| _ = stage.leave("up"));
    pass(7).await;
    assert_eq!(world.sums(), ([0, 0, 3, 7], [0, 0]));
    world.change(|stage| _ = stage.join("another", Role::Upstream));
    pass(2).await;
    assert_eq!(world.sums(), ([0, 0, 3, 9], [0, 0]));
}

/// Its edge Connector is all that it will ever know.
#[tokio::test(start_paused = true)]
async fn an_edge_alone_trusts_its_own_connectors() {
    let mut world = World::new(None);
    world.change(|stage| _ = stage.leave("up").leave("hub"));
    world.list("edge", "Connector", [with_uid(UP.copy("lab", N1), "u-edge")]);
    world.list("edge", "Gateway", []);
    world.list("edge", "Gateway", [gateway(None)]);
    pass(4).await;
    assert_eq!(world.sums(), ([0, 0, 4, 0], [0, 0]));
    world.change(|stage| _ = stage.join("another", Role::Upstream));
    pass(2).await;
    assert_eq!(world.sums(), ([0, 0, 4, 2], [0, 0]));
    world.change(|stage| _ = stage.leave("another"));
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
    world.upstream(N1);
    world.edge(N1);
    world.list("edge", "Gateway", []);
    world.list("edge", "Gateway", [gateway(Some(&trigger(None, 3)))]);
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
    world.upstream(N1);
    pass(2).await;
    world.gateway(&trigger(Some("n1"), 1));
    pass(1).await;
    world.edge(N1);
    pass(60).await;
    assert_eq!(world.sums(), ([3, 0, 63, 0], [0, 0]));
}

/// A trigger for a whole class does not say what one Gateway announces.
#[tokio::test(start_paused = true)]
async fn with_the_scope_of_a_class_a_new_list_is_a_new_look() {
    let mut world = World::with(with_scope(TouchScope::GatewayClass), None);
    world.upstream(N1);
    pass(3).await;
    for kind in EDGE_KINDS {
        world.lose("edge", kind);
    }
    pass(5).await;
    // Meanwhile another instance touched, and the Gateways are listed first.
    let of_one = digest([connector_part("lab", true, "n1")]);
    let of_class = digest([gateway_part(&UP.hub_namespace(), "app", of_one)]);
    let trigger = Trigger { digest: of_class, n: 1, c: 0 }.to_string();
    for (kind, object) in std::iter::zip(EDGE_KINDS, edge(N1, Some(&trigger))).rev() {
        world.list("edge", kind, [object]);
    }
    pass(40).await;
    assert_eq!(world.sums(), ([3, 0, 43, 5], [0, 0]));
}

#[tokio::test(start_paused = true)]
async fn an_edge_that_leaves_takes_its_series_along_but_no_sum_falls() {
    let text = Metrics::new().text(None, Format::Plain);
    assert!(!text.contains("throughline_user_visible"), "a run without edges: {text}");
    let mut world = World::new(None);
    world.upstream(N1);
    pass(5).await;
    world.metrics.set_clusters(201);
    let sum = "throughline_user_visible_wrong_seconds_total{symptom=\"503\"} 5";
    let text = world.metrics.text(None, Format::Plain);
    assert!(text.contains(sum) && !text.contains("cluster=\"edge\",symptom"), "{text}");
    world.change(|stage| _ = stage.leave("edge"));
    pass(5).await;
    let text = world.metrics.text(None, Format::Plain);
    assert!(text.contains(sum), "{text}");
    world.metrics.set_clusters(1);
    let text = world.metrics.text(None, Format::Plain);
    assert!(!text.contains("throughline_user_visible_wrong_seconds_total{"), "{text}");
}
