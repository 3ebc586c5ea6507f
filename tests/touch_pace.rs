//! How fast touches leave: when a platform stamp ends the window, what one object's budget allows, and
//! what one edge takes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/stage.rs"]
mod stage;

use std::collections::BTreeMap;

use stage::{START, Stage, UID, status};
use throughline::core::contract::action::{Decision, Urgency, Verb};
use throughline::core::contract::event::Outcome;
use throughline::core::contract::note::{NoteKind, StallCause};
use throughline::core::contract::settings::{Settings, TouchScope};
use throughline::core::data::time::UnixMillis;
use throughline::core::status::trigger::Trigger;

const KEY: &str = "gateway.envoyproxy.io/connector-liveness";
const STAMP: &str = "networking.datumapis.com/connector-ready-generation";
/// When the edge's lists are complete, after the start.
const LISTED: u64 = 100;

/// An edge with many Gateways, which keeps what is written to them.
struct Edge {
    stage: Stage,
    /// By name: the connectors, the trigger, when it was written, and the stamp.
    gateways: BTreeMap<String, Site>,
    /// Every touch: when, of which Gateway, and the value.
    touches: Vec<(u64, String, Trigger)>,
}

#[derive(Clone)]
struct Site {
    connectors: Vec<String>,
    trigger: Option<(Trigger, u64)>,
    stamp: String,
}

/// A Connector at the edge, and the times of its writers.
fn connector(name: &str, version: u64, node: Option<&str>, managed_fields: &str) -> String {
    let text = serde_json::to_string(&status(node)).unwrap();
    format!(
        r#"{{"kind":"Connector","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-{name}","resourceVersion":"{version}","annotations":{{"networking.datumapis.com/upstream-status":{text}}},"managedFields":[{managed_fields}]}}}}"#
    )
}

/// An entry of `managedFields`.
fn wrote(manager: &str, at: u64, fields: &str) -> String {
    let time = UnixMillis(START + at);
    format!(r#"{{"manager":"{manager}","time":"{time}","fieldsV1":{fields}}}"#)
}

const OWNS_ANNOTATION: &str =
    r#"{"f:metadata":{"f:annotations":{"f:networking.datumapis.com/upstream-status":{}}}}"#;
const OWNS_LABEL: &str = r#"{"f:metadata":{"f:labels":{"f:team":{}}}}"#;

impl Edge {
    /// Every Gateway references one of the connectors. `managed_fields`: those of every connector.
    fn listed(
        settings: Settings,
        gateways: BTreeMap<String, Site>,
        managed_fields: &str,
        at: u64,
    ) -> Self {
        let mut stage = Stage::before_the_edge(settings);
        stage.pass_to(at);
        let names: std::collections::BTreeSet<_> =
            gateways.values().flat_map(|site| site.connectors.clone()).collect();
        let connectors: Vec<_> = names
            .iter()
            .map(|name| connector(name, stage.version(), Some("n1"), managed_fields))
            .collect();
        let mut edge = Self { stage, gateways, touches: Vec::new() };
        let text = |list: &[String]| list.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        let proxies: Vec<_> = edge.gateways.keys().cloned().collect();
        let proxies: Vec<_> = proxies.iter().map(|name| edge.proxy(name)).collect();
        let names: Vec<_> = edge.gateways.keys().cloned().collect();
        let gateways: Vec<_> = names.iter().map(|name| edge.gateway(name)).collect();
        for (kind, list) in
            [("Connector", connectors), ("HTTPProxy", proxies), ("Gateway", gateways)]
        {
            let list = text(&list);
            edge.stage.list("edge", kind, &list.lines().collect::<Vec<_>>());
        }
        edge
    }

    /// Gateways `g0000` and so on, the n-th with connector `c` of n modulo `connectors`.
    fn new(settings: Settings, gateways: usize, connectors: usize) -> Self {
        let site = |n: usize| Site {
            connectors: vec![format!("c{}", n % connectors)],
            trigger: None,
            stamp: "true/n1".into(),
        };
        let gateways = (0..gateways).map(|n| (format!("g{n:04}"), site(n))).collect();
        Self::listed(settings, gateways, &wrote("carrier", 0, OWNS_ANNOTATION), LISTED)
    }

    /// The same once everything is announced and confirmed.
    fn settled(settings: Settings, gateways: usize, connectors: usize) -> Self {
        let mut edge = Self::new(settings, gateways, connectors);
        edge.pass_to(1_000_000);
        edge.touches.clear();
        edge.stage.notes();
        edge
    }

    fn proxy(&mut self, name: &str) -> String {
        let v = self.stage.version();
        let connectors = &self.gateways[name].connectors;
        let backends: Vec<_> =
            connectors.iter().map(|c| format!(r#"{{"connector":{{"name":"{c}"}}}}"#)).collect();
        format!(
            r#"{{"kind":"HTTPProxy","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-p-{name}","resourceVersion":"{v}"}},"spec":{{"rules":[{{"backends":[{}]}}]}}}}"#,
            backends.join(",")
        )
    }

    fn gateway(&mut self, name: &str) -> String {
        let v = self.stage.version();
        let Site { trigger, stamp, .. } = &self.gateways[name];
        let (value, entry) = match trigger {
            Some((trigger, at)) => {
                (format!(r#""{KEY}":"{trigger}","#), wrote("throughline", at / 1_000 * 1_000, "{}"))
            }
            None => (String::new(), String::new()),
        };
        format!(
            r#"{{"kind":"Gateway","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-{name}","resourceVersion":"{v}","annotations":{{{value}"{STAMP}":"{stamp}"}},"managedFields":[{entry}]}},"spec":{{"gatewayClassName":"edge"}}}}"#
        )
    }

    fn flip(&mut self, name: &str, node: Option<&str>) {
        let object = connector(name, self.stage.version(), node, "");
        self.stage.applied("edge", &object);
        self.take();
    }

    fn stamp(&mut self, gateway: &str, value: &str) {
        self.gateways.get_mut(gateway).unwrap().stamp = value.to_owned();
        let object = self.gateway(gateway);
        self.stage.applied("edge", &object);
        self.take();
    }

    fn now(&self) -> u64 {
        self.stage.now - START
    }

    /// Takes the touches that the machine has decided; each succeeds, and the watch shows it.
    fn take(&mut self) -> Vec<Decision> {
        let decided: Vec<_> =
            self.stage.actions().into_iter().filter(|d| d.action.verb == Verb::Touch).collect();
        for decision in &decided {
            let value = decision.action.annotations[0].1.as_deref().unwrap();
            let trigger = Trigger::parse(value).unwrap();
            let (at, name) = (decision.at.0 - START, decision.action.object.name.to_string());
            self.stage.succeed(decision);
            self.gateways.get_mut(&name).unwrap().trigger = Some((trigger, at));
            let object = self.gateway(&name);
            self.stage.applied("edge", &object);
            self.touches.push((at, name, trigger));
        }
        decided
    }

    fn pass_to(&mut self, ms: u64) {
        loop {
            self.take();
            let next = self.stage.machine.poll_deadline().map(|(at, _)| at.0);
            match next.filter(|at| *at <= START + ms) {
                Some(at) => self.stage.pass_to(at.max(self.stage.now) - START),
                None => break,
            }
        }
        self.stage.pass_to(ms);
        self.take();
    }

    /// When which Gateway was touched since the last call, counted from `since`.
    fn touched(&mut self, since: u64) -> Vec<(u64, String)> {
        self.touches.drain(..).map(|(at, name, _)| (at - since, name)).collect()
    }
}

fn all_at(at: u64, gateways: usize) -> Vec<(u64, String)> {
    (0..gateways).map(|n| (at, format!("g{n:04}"))).collect()
}

fn class_scope() -> Settings {
    let mut settings = Settings::default();
    settings.touch.scope = TouchScope::GatewayClass;
    settings
}

#[test]
fn a_stamp_on_one_gateway_ends_the_window_of_all_that_wait_for_its_connector() {
    let mut edge = Edge::settled(Settings::default(), 5, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 40);
    edge.stamp("g0003", "false/");
    assert_eq!(edge.touched(at), all_at(40, 5), "one bundle");
    // The stamps on the others show nothing new, whether they come before or after the window.
    for (ms, name) in [(43, "g0000"), (60, "g0001"), (90, "g0002"), (300, "g0004")] {
        edge.pass_to(at + ms);
        edge.stamp(name, "false/");
    }
    edge.pass_to(at + 5_000);
    assert_eq!(edge.touched(at), []);
    edge.pass_to(at + 5_040);
    assert_eq!(edge.touched(at), all_at(5_040, 5), "the first confirmation");
}

#[test]
fn a_stamp_ends_the_window_of_its_class() {
    let mut edge = Edge::settled(class_scope(), 5, 2);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 30);
    edge.stamp("g0004", "false/");
    assert_eq!(edge.touched(at), all_at(30, 1), "c0 is the connector of g0000, g0002 and g0004");
    for (ms, name) in [(40, "g0000"), (50, "g0002")] {
        edge.pass_to(at + ms);
        edge.stamp(name, "false/");
    }
    edge.pass_to(at + 5_000);
    assert_eq!(edge.touched(at), []);
}

/// The extension server sees Connectors in the same order as the watch: a stamp for the one that changed
/// last stands for the others, and one for an earlier one does not.
#[test]
fn in_a_class_the_stamp_for_the_latest_change_counts() {
    for (stamped, touched_at) in [("g0000", 120), ("g0001", 40)] {
        let mut edge = Edge::settled(class_scope(), 2, 2);
        let at = edge.now();
        edge.flip("c0", None);
        edge.pass_to(at + 20);
        edge.flip("c1", None);
        edge.pass_to(at + 40);
        edge.stamp(stamped, "false/");
        edge.pass_to(at + 1_000);
        assert_eq!(edge.touched(at), all_at(touched_at, 1), "{stamped}");
    }
}

#[test]
fn a_stamp_of_an_old_value_neither_ends_nor_prolongs_the_window() {
    for scope in [TouchScope::Gateway, TouchScope::GatewayClass] {
        let mut settings = Settings::default();
        settings.touch.scope = scope;
        let mut edge = Edge::settled(settings, 1, 1);
        let at = edge.now();
        edge.flip("c0", Some("n3"));
        for (ms, stamp) in [(30, "false/"), (60, "true/n2"), (90, "true/n1")] {
            edge.pass_to(at + ms);
            edge.stamp("g0000", stamp);
        }
        edge.pass_to(at + 1_000);
        assert_eq!(edge.touched(at), all_at(100, 1));
    }
}

#[test]
fn a_stamp_that_was_there_before_the_change_shows_nothing() {
    let mut edge = Edge::settled(Settings::default(), 1, 1);
    let at = edge.now();
    // Away and back: the stamp still says what it said.
    edge.flip("c0", None);
    edge.flip("c0", Some("n1"));
    edge.pass_to(at + 99);
    assert_eq!(edge.touched(at), []);
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at), all_at(100, 1));
}

#[test]
fn a_stamp_after_a_touch_that_nothing_had_shown_to_be_late_enough_touches_again() {
    let mut edge = Edge::settled(Settings::default(), 2, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at), all_at(100, 2));
    edge.pass_to(at + 400);
    edge.stamp("g0001", "false/");
    edge.stamp("g0000", "false/");
    assert_eq!(
        edge.touched(at).into_iter().collect::<std::collections::BTreeSet<_>>(),
        all_at(400, 2).into_iter().collect(),
        "the cache was late: both again, once"
    );
    edge.pass_to(at + 1_400);
    assert_eq!(edge.touched(at), []);
}

#[test]
fn a_stamp_for_one_connector_says_nothing_of_a_gateway_that_waits_for_another() {
    let site = |connectors: &[&str]| Site {
        connectors: connectors.iter().map(|&name| name.to_owned()).collect(),
        trigger: None,
        stamp: "true/n1".into(),
    };
    let gateways = [("g0000", site(&["c0", "c1"])), ("g0001", site(&["c1"]))];
    let gateways = gateways.into_iter().map(|(name, site)| (name.to_owned(), site)).collect();
    let mut edge = Edge::listed(Settings::default(), gateways, "", LISTED);
    edge.pass_to(1_000_000);
    edge.touches.clear();
    let at = edge.now();
    edge.flip("c1", None);
    edge.flip("c0", None);
    edge.pass_to(at + 20);
    edge.stamp("g0001", "false/");
    assert_eq!(edge.touched(at), [(20, "g0001".to_owned())], "g0000 waits for c0, too");
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at), [(100, "g0000".to_owned())]);
}

#[test]
fn four_flips_of_a_gateway_are_announced_as_they_come_and_then_one_a_second() {
    let mut edge = Edge::settled(Settings::default(), 1, 1);
    let at = edge.now();
    for n in 0..6 {
        edge.pass_to(at + n * 150);
        edge.flip("c0", (n % 2 == 1).then_some("n1"));
    }
    edge.pass_to(at + 4_000);
    let times: Vec<_> = edge.touched(at).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [100, 250, 400, 550, 1_100], "the last two flips in one");
}

#[test]
fn a_connector_that_flaps_for_a_minute_costs_64_touches_and_ends_right() {
    for scope in [TouchScope::Gateway, TouchScope::GatewayClass] {
        let mut settings = Settings::default();
        settings.touch.scope = scope;
        let mut edge = Edge::settled(settings, 1, 1);
        let at = edge.now();
        for n in 0..600_u64 {
            edge.pass_to(at + n * 100);
            edge.flip("c0", (n % 2 == 1).then_some("n1"));
            // The extension server keeps up, which makes each flip due 20 ms later.
            edge.pass_to(at + n * 100 + 20);
            edge.stamp("g0000", if n % 2 == 1 { "true/n1" } else { "false/" });
        }
        edge.pass_to(at + 60_000);
        let touches = edge.touches.len();
        assert!((60..=64).contains(&touches), "{touches}");
        let values: std::collections::BTreeSet<_> =
            edge.touches.iter().map(|(.., trigger)| trigger.to_string()).collect();
        assert_eq!(values.len(), touches, "no value is used twice");
        edge.pass_to(at + 200_000);
        let confirmed = edge.touches.last().unwrap().2;
        assert_eq!(confirmed.c, 2, "{scope:?}");
        let whole = edge.stage.machine.view();
        let announced = format!("{:?}", whole.connectors[0].edges[0].gateways[0].announcement);
        assert_eq!(announced, "Announced");
    }
}

#[test]
fn confirmations_take_no_turn_from_announcements() {
    let mut settings = Settings::default();
    settings.touch.burst = 1;
    let mut edge = Edge::settled(settings, 1, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 5_100);
    edge.flip("c0", Some("n1"));
    edge.pass_to(at + 5_200);
    let times: Vec<_> = edge.touched(at).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [100, 5_100, 5_200], "announced, confirmed, announced");
}

#[test]
fn a_confirmation_that_would_follow_within_the_window_goes_along() {
    let mut edge = Edge::settled(Settings::default(), 2, 2);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 4_930);
    edge.flip("c1", None);
    edge.pass_to(at + 6_000);
    let first = |n: usize, ms| (ms, format!("g{n:04}"));
    assert_eq!(edge.touched(at), [first(0, 100), first(1, 5_030), first(0, 5_030)]);
}

#[test]
fn three_hundred_gateways_of_one_flip_leave_in_an_even_stream() {
    let mut edge = Edge::settled(Settings::default(), 300, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at).len(), 200, "the burst");
    edge.pass_to(at + 1_100);
    assert_eq!(edge.touched(at).len(), 50);
    edge.pass_to(at + 2_100);
    assert_eq!(edge.touched(at).len(), 50);
    let waiting: Vec<_> = edge
        .stage
        .notes()
        .into_iter()
        .filter_map(|note| match note.kind {
            NoteKind::TouchesWaiting { waiting, .. } => Some(waiting.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(
        waiting,
        ["100 touches wait; about 2 s at 50 a second", "no touch waits any longer"]
    );
}

#[test]
fn a_flip_goes_ahead_of_what_a_start_finds_and_of_confirmations() {
    let mut edge = Edge::new(Settings::default(), 2_000, 2_000);
    edge.pass_to(LISTED + 10_000);
    let before = edge.touches.len();
    assert!((590..=600).contains(&before), "{before}");
    // The last one in the stream, and one that is touched already: both have room at once.
    let at = edge.now();
    edge.flip("c1999", None);
    edge.flip("c0", None);
    edge.touches.clear();
    edge.pass_to(at + 100);
    let touched: Vec<_> = edge.touched(at).into_iter().filter(|(ms, _)| *ms == 100).collect();
    assert!(touched.contains(&(100, "g1999".into())), "{touched:?}");
    assert!(touched.contains(&(100, "g0000".into())), "{touched:?}");
}

#[test]
fn while_changes_fill_the_pace_one_touch_in_sixteen_is_another() {
    let mut edge = Edge::settled(Settings::default(), 401, 401);
    let at = edge.now();
    edge.flip("c400", None);
    // Every Gateway changes each second: more than the edge takes.
    for second in 0..30_u64 {
        edge.pass_to(at + 4_500 + second * 1_000);
        for n in 0..400 {
            edge.flip(&format!("c{n}"), (second % 2 == 1).then_some("n1"));
        }
    }
    let confirmed = edge.touches.iter().find(|(_, name, t)| name == "g0400" && t.c == 1).unwrap();
    assert!(confirmed.0 - at <= 6_000, "{}", confirmed.0 - at);
}

#[test]
fn a_stall_says_that_the_edge_takes_no_more_and_how_long_it_takes() {
    let mut edge = Edge::settled(Settings::default(), 1_000, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 5_000);
    let stall = edge.stage.notes().into_iter().find_map(|note| match note.kind {
        NoteKind::Stalled(stall) => Some(stall),
        _ => None,
    });
    let stall = stall.unwrap();
    assert_eq!(stall.cause, StallCause::TouchesWait { cluster: "edge".into() });
    assert_eq!(
        stall.reason,
        "the edge takes no more touches: 555 touches wait; about 12 s at 50 a second"
    );
    let view = edge.stage.machine.view();
    let cluster = view.clusters.iter().find(|c| c.name == "edge".into()).unwrap();
    assert_eq!(cluster.touches_waiting.unwrap().touches, 555);
    edge.pass_to(at + 60_000);
    assert!(edge.stage.notes().iter().any(|note| matches!(note.kind, NoteKind::StallEnded(_))));
}

#[test]
fn without_a_limit_all_leave_at_once() {
    let mut settings = Settings::default();
    settings.touch.max_per_second = 0;
    let mut edge = Edge::settled(settings, 1_000, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at).len(), 1_000);
}

/// The most touches in any window of time, with what the limit allows.
fn assert_paced(touches: &[(u64, String, Trigger)]) {
    for first in 0..touches.len() {
        for last in (first..touches.len()).step_by(37) {
            let (count, ms) = (last - first + 1, touches[last].0 - touches[first].0);
            assert!(count as u64 <= 200 + ms * 50 / 1_000 + 1, "{count} in {ms} ms");
        }
    }
}

/// What 5,000 Gateways cost: at a first install; after a restart; after a label on every Connector and a
/// restart; after the status annotation of every Connector was written and a restart.
#[test]
fn five_thousand_gateways_cost_two_touches_each_at_a_first_install_and_none_after_a_label() {
    const COUNT: usize = 5_000;
    let mut edge = Edge::new(Settings::default(), COUNT, 1_000);
    edge.pass_to(400_000);
    assert_paced(&edge.touches);
    assert_eq!(edge.touches.len(), 2 * COUNT, "one touch and one confirmation");
    let all_done = edge.touches.last().unwrap().0;
    assert!(all_done <= 200_000, "{all_done}");

    let annotation = wrote("carrier", 0, OWNS_ANNOTATION);
    let label = wrote("kubectl-label", 500_000, OWNS_LABEL);
    let again = wrote("carrier", 500_000, OWNS_ANNOTATION);
    for (managed_fields, touches) in [
        (annotation.clone(), 0),
        (format!("{annotation},{label}"), 0),
        (format!("{again},{label}"), 2 * COUNT),
    ] {
        let gateways = edge.gateways.clone();
        let mut restarted = Edge::listed(Settings::default(), gateways, &managed_fields, 600_000);
        restarted.pass_to(1_000_000);
        assert_eq!(restarted.touches.len(), touches, "{managed_fields}");
        assert_paced(&restarted.touches);
    }
}

/// The API server's clock is thirty days ahead, and with it the time of our own write.
#[test]
fn a_clock_that_is_ahead_does_not_delay_a_confirmation() {
    let mut edge = Edge::new(Settings::default(), 1, 1);
    edge.pass_to(1_000);
    let mut gateways = edge.gateways.clone();
    let (trigger, written_at) = gateways["g0000"].trigger.unwrap();
    assert_eq!(trigger.c, 0);
    let ahead = 30 * 86_400_000;
    gateways.get_mut("g0000").unwrap().trigger = Some((trigger, written_at + ahead));
    let managed_fields = wrote("carrier", ahead, OWNS_ANNOTATION);
    let mut restarted = Edge::listed(Settings::default(), gateways, &managed_fields, 2_000);
    restarted.pass_to(70_000);
    let last = restarted.touches.last().unwrap();
    assert_eq!((last.2.digest, last.2.c), (trigger.digest, 2));
}

#[test]
fn a_relist_during_a_first_install_costs_one_more_touch_each() {
    const COUNT: usize = 1_000;
    let mut edge = Edge::new(Settings::default(), COUNT, 10);
    edge.pass_to(30_000);
    edge.stage.lost("edge", "Gateway");
    edge.pass_to(31_000);
    let names: Vec<_> = edge.gateways.keys().cloned().collect();
    let list: Vec<_> = names.iter().map(|name| edge.gateway(name)).collect();
    edge.stage.list("edge", "Gateway", &list.iter().map(String::as_str).collect::<Vec<_>>());
    edge.pass_to(600_000);
    assert_eq!(edge.touches.len(), 3 * COUNT);
    assert_paced(&edge.touches);
}

#[test]
fn an_announcement_that_the_api_server_refuses_keeps_its_place() {
    let mut edge = Edge::settled(Settings::default(), 1, 1);
    let at = edge.now();
    edge.stage.edge(None);
    let object = connector("c0", edge.stage.version(), None, "");
    edge.stage.applied("edge", &object);
    edge.stage.pass_to(at + 100);
    let touch = edge.stage.only_action();
    assert_eq!(touch.urgency, Urgency::Routing);
    edge.stage.finish(&touch, Outcome::Failed { error: "503".into(), retry_after_ms: None });
    edge.pass_to(at + 10_000);
    let times: Vec<_> = edge.touched(at).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [1_100, 6_100], "announced again, and confirmed 5 s later");
}
