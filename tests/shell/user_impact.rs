//! The metrics of what users see: for how long Gateways answered wrongly, as far as watches show it.

use std::time::Duration;

use throughline::core::status::trigger::{connector_part, digest, gateway_part};
use throughline::metrics::{Format, Metrics};

use crate::admin::sample;
use crate::stage::{
    N1, N2, OFFLINE, Role, Settings, Stage, TRIGGER, TouchScope, Trigger, UP, Value,
};
use crate::stage::{json, with_scope, with_uid};

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
        let mut stage = Stage::before_the_edge(settings);
        stage.hub(OFFLINE).upstream(OFFLINE);
        for (kind, object) in std::iter::zip(EDGE_KINDS, edge(OFFLINE, trigger)) {
            stage.list("edge", kind, [object]);
        }
        Self { stage, metrics: Metrics::new() }
    }

    /// The metrics get what has changed, and time passes.
    async fn pass(&mut self, seconds: u64) {
        while let Some((edge, answers)) = self.stage.machine.poll_answers() {
            self.metrics.set_answers(&edge, answers);
        }
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// After so many seconds more, the sums are these: of 503, dead tunnel, online and unknown; and so many
    /// answer wrongly now, by symptom.
    async fn after(&mut self, seconds: u64, sums: [u64; 4], wrong: [u64; 2]) {
        self.pass(seconds).await;
        let text = self.metrics.text(None, Format::Plain);
        let found = [
            r#"wrong_seconds_total{cluster="edge",symptom="503"}"#,
            r#"wrong_seconds_total{cluster="edge",symptom="dead_tunnel"}"#,
            r#"online_seconds_total{cluster="edge"}"#,
            r#"unknown_seconds_total{cluster="edge"}"#,
            r#"wrong{cluster="edge",symptom="503"}"#,
            r#"wrong{cluster="edge",symptom="dead_tunnel"}"#,
        ]
        .map(|series| format!("throughline_user_visible_{series}"))
        .map(|series| sample(&text, &series).expect(&series).round() as u64);
        assert_eq!(found[..], [&sums[..], &wrong].concat(), "after {seconds} s more");
    }
}

/// The edge's objects, in the order of their kinds.
fn edge(status: Option<&str>, trigger: Option<&str>) -> [Value; 3] {
    [with_uid(UP.copy("lab", status), "u-edge"), UP.proxy("app", &["lab"]), gateway(trigger)]
}

fn gateway(trigger: Option<&str>) -> Value {
    UP.gateway("app", trigger.map_or(json!({}), |trigger| json!({ TRIGGER: trigger })))
}

/// The Gateway with the trigger that announces this.
fn announcing(node: Option<&str>, n: u32) -> Value {
    gateway(Some(&trigger(node, n)))
}

fn trigger(node: Option<&str>, n: u32) -> String {
    let part = connector_part("lab", node.is_some(), node.unwrap_or_default());
    Trigger { digest: digest([part]), n, c: 0 }.to_string()
}

#[tokio::test(start_paused = true)]
async fn an_outage_counts_from_the_upstream_change_to_the_touch() {
    let mut world = World::new(None);
    // Offline everywhere: nothing is wrong.
    world.after(100, [0, 0, 0, 0], [0, 0]).await;
    world.stage.upstream(N1);
    world.after(4, [4, 0, 4, 0], [1, 0]).await;
    // Carried, but no Gateway announces it yet.
    world.stage.edge(N1);
    world.after(6, [10, 0, 10, 0], [1, 0]).await;
    world.stage.applied("edge", announcing(Some("n1"), 1));
    world.after(50, [10, 0, 60, 0], [0, 0]).await;
    // Another node: a 503 again. Then offline: a dead tunnel.
    world.stage.upstream(N2);
    world.after(5, [15, 0, 65, 0], [1, 0]).await;
    world.stage.upstream(OFFLINE);
    world.after(7, [15, 7, 65, 0], [0, 1]).await;
    // The HTTPProxy goes: nobody asks any longer.
    world.stage.list("edge", "HTTPProxy", []);
    world.after(10, [15, 7, 65, 0], [0, 0]).await;

    // Two watches have no common order: the touch of another instance may be seen before what it announces.
    let mut world = World::new(None);
    world.stage.upstream(N1);
    world.pass(2).await;
    world.stage.applied("edge", announcing(Some("n1"), 1));
    world.pass(1).await;
    world.stage.edge(N1);
    world.after(60, [3, 0, 63, 0], [0, 0]).await;
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
        println!("{kind} in {cluster}");
        let mut world = World::new(None);
        world.stage.upstream(N1);
        world.pass(3).await;
        world.stage.lost(cluster, kind);
        world.after(20, [3, 0, 3, 20], [0, 0]).await;
        world.stage.resumed(cluster, kind);
        world.after(4, [7, 0, 7, 20], [1, 0]).await;
        // A new list, too, ends the blindness.
        world.stage.lost(cluster, kind);
        world.pass(5).await;
        world.stage.list(cluster, kind, [object]);
        world.after(2, [9, 0, 9, 25], [1, 0]).await;
    }
    // HTTPRoutes at an edge tell nothing about what it answers.
    let mut world = World::new(None);
    world.stage.lost("edge", "HTTPRoute");
    world.after(9, [0; 4], [0, 0]).await;
}

/// Nobody knows what is right for a connector whose upstream is not configured. Where no upstream is, an edge
/// trusts its own connectors: they are all that it will ever know.
#[tokio::test(start_paused = true)]
async fn a_connector_whose_upstream_is_not_followed_is_unknown_unless_none_is() {
    let mut world = World::new(None);
    world.stage.upstream(N1).edge(N1).applied("edge", gateway(Some("touched")));
    world.pass(3).await;
    world.stage.leave("up");
    world.after(7, [0, 0, 3, 7], [0, 0]).await;
    world.stage.join("another", Role::Upstream);
    world.after(2, [0, 0, 3, 9], [0, 0]).await;

    let mut world = World::new(None);
    world.stage.leave("up").leave("hub").edge(N1);
    world.stage.list("edge", "Gateway", []).list("edge", "Gateway", [gateway(None)]);
    world.after(4, [0, 0, 4, 0], [0, 0]).await;
    world.stage.join("another", Role::Upstream);
    world.after(2, [0, 0, 4, 2], [0, 0]).await;
    world.stage.leave("another");
    world.after(1, [0, 0, 5, 2], [0, 0]).await;
}

/// An instance that starts in the middle of an outage sees it by the Gateway's trigger.
#[tokio::test(start_paused = true)]
async fn an_outage_that_began_before_the_start_counts_from_the_start() {
    // The trigger says online, everything else offline: a dead tunnel.
    let mut world = World::new(Some(&trigger(Some("n1"), 3)));
    world.after(8, [0, 8, 0, 0], [0, 1]).await;
    // The trigger says offline; upstream and the edge Connector say online.
    let mut world = World::new(Some(&trigger(None, 3)));
    world.stage.upstream(N1).edge(N1);
    world.stage.list("edge", "Gateway", []).list("edge", "Gateway", [announcing(None, 3)]);
    world.after(8, [8, 0, 8, 0], [1, 0]).await;
    // Somebody else's value says nothing: the Gateway counts as translated when it was seen.
    World::new(Some("by-hand")).after(8, [0; 4], [0, 0]).await;
}

/// A trigger for a whole class does not say what one Gateway announces.
#[tokio::test(start_paused = true)]
async fn with_the_scope_of_a_class_a_new_list_is_a_new_look() {
    let mut world = World::with(with_scope(TouchScope::GatewayClass), None);
    world.stage.upstream(N1);
    world.pass(3).await;
    for kind in EDGE_KINDS {
        world.stage.lost("edge", kind);
    }
    world.pass(5).await;
    // Meanwhile another instance touched, and the Gateways are listed first.
    let of_one = digest([connector_part("lab", true, "n1")]);
    let of_class = digest([gateway_part(&UP.hub_namespace(), "app", of_one)]);
    let trigger = Trigger { digest: of_class, n: 1, c: 0 }.to_string();
    for (kind, object) in std::iter::zip(EDGE_KINDS, edge(N1, Some(&trigger))).rev() {
        world.stage.list("edge", kind, [object]);
    }
    world.after(40, [3, 0, 43, 5], [0, 0]).await;
}

#[tokio::test(start_paused = true)]
async fn an_edge_that_leaves_takes_its_series_along_but_no_sum_falls() {
    let text = Metrics::new().text(None, Format::Plain);
    assert!(!text.contains("throughline_user_visible"), "a run without edges: {text}");
    let mut world = World::new(None);
    world.stage.upstream(N1);
    world.pass(5).await;
    world.metrics.set_clusters(201);
    let sum = "throughline_user_visible_wrong_seconds_total{symptom=\"503\"} 5";
    let text = world.metrics.text(None, Format::Plain);
    assert!(text.contains(sum) && !text.contains("cluster=\"edge\",symptom"), "{text}");
    world.stage.leave("edge");
    world.pass(5).await;
    let text = world.metrics.text(None, Format::Plain);
    assert!(text.contains(sum), "{text}");
    world.metrics.set_clusters(1);
    let text = world.metrics.text(None, Format::Plain);
    assert!(!text.contains("throughline_user_visible_wrong_seconds_total{"), "{text}");
}
