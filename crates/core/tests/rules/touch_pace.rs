//! How fast touches leave: when a platform stamp ends the window, what one edge takes, and what a Gateway that
//! comes back costs.

use crate::stage::*;

/// An edge with many Gateways, which keeps what is written to them.
struct Edge {
    stage: Stage,
    gateways: BTreeMap<String, Site>,
    /// Every touch: when, of which Gateway, and the value.
    touches: Vec<(u64, String, Trigger)>,
    /// What times are counted from.
    since: u64,
}

/// A Gateway's connector, its trigger and when that was written after the start, and its stamp.
struct Site {
    connector: String,
    trigger: Option<(Trigger, u64)>,
    stamp: &'static str,
}

impl Site {
    fn object(&self, name: &str) -> Value {
        let gateway = UP.gateway(name, json!({ STAMP: self.stamp }));
        let Some((trigger, at)) = self.trigger else { return gateway };
        let entry = wrote("throughline", at / 1_000 * 1_000, json!({}));
        let annotations = json!({ TRIGGER: trigger.to_string() });
        with(gateway, json!({"metadata": {"annotations": annotations, "managedFields": [entry]}}))
    }
}

/// An entry of `managedFields`.
fn wrote(manager: &str, at: u64, fields: Value) -> Value {
    json!({"manager": manager, "time": UnixMillis(START + at).to_string(), "fieldsV1": fields})
}

impl Edge {
    fn settled(gateways: usize, connectors: usize) -> Self {
        Self::settled_with(TouchScope::Gateway, gateways, connectors)
    }

    /// Gateways `g0000` and so on, the n-th with connector `c` of n modulo `connectors`, once everything is
    /// announced and confirmed, which times are counted from.
    fn settled_with(scope: TouchScope, gateways: usize, connectors: usize) -> Self {
        let site = |n: usize| {
            let connector = format!("c{}", n % connectors);
            (format!("g{n:04}"), Site { connector, trigger: None, stamp: "true/n1" })
        };
        let gateways: BTreeMap<_, _> = (0..gateways).map(site).collect();
        let mut stage = Stage::before_the_edge(with_scope(scope));
        let names: BTreeSet<_> = gateways.values().map(|site| &site.connector).collect();
        let status = json!({"f:metadata": {"f:annotations": {format!("f:{STATUS}"): {}}}});
        let fields = json!({"metadata": {"managedFields": [wrote("carrier", 0, status)]}});
        let connectors = names.into_iter().map(|name| with(UP.copy(name, N1), fields.clone()));
        stage.pass_to(100).list("edge", "Connector", connectors);
        let proxies = gateways.iter().map(|(name, site)| UP.proxy(name, &[&site.connector]));
        stage.list("edge", "HTTPProxy", proxies);
        let mut edge = Self { stage, gateways, touches: Vec::new(), since: 0 };
        edge.relist().pass_to(1_000_000).touches.clear();
        edge.since = 1_000_000;
        edge.stage.notes();
        edge
    }

    /// The edge's Gateways are listed.
    fn relist(&mut self) -> &mut Self {
        self.stage.list("edge", "Gateway", self.gateways.iter().map(|(n, site)| site.object(n)));
        self
    }

    fn gateway(&self, name: &str) -> Value {
        self.gateways[name].object(name)
    }

    fn flip(&mut self, name: &str, status: Option<&str>) -> &mut Self {
        self.stage.applied("edge", UP.copy(name, status));
        self
    }

    fn stamp(&mut self, gateway: &str, value: &'static str) -> &mut Self {
        self.gateways.get_mut(gateway).unwrap().stamp = value;
        self.stage.applied("edge", self.gateway(gateway));
        self
    }

    /// Lets time pass. Each touch succeeds, and the watch shows it.
    fn pass_to(&mut self, ms: u64) -> &mut Self {
        let Self { stage, gateways, touches, since } = self;
        stage.run_to(*since + ms, |stage, touch| {
            assert_eq!(touch.action.verb, Verb::Touch);
            let trigger = Trigger::parse(written(touch).unwrap()).unwrap();
            let (at, name) = (time_of(touch), name_of(touch));
            let site = gateways.get_mut(name).unwrap();
            site.trigger = Some((trigger, at));
            stage.succeed(touch).applied("edge", site.object(name));
            touches.push((at - *since, name.to_owned(), trigger));
        });
        self
    }

    /// When which Gateway was touched since the last call.
    fn touched(&mut self) -> Vec<(u64, String)> {
        self.pass_to(self.stage.time() - self.since);
        self.touches.drain(..).map(|(at, name, _)| (at, name)).collect()
    }
}

/// The first `gateways` are touched at one moment.
fn all_at(at: u64, gateways: usize) -> Vec<(u64, String)> {
    (0..gateways).map(|n| (at, format!("g{n:04}"))).collect()
}

#[test]
fn while_changes_fill_the_pace_one_touch_in_sixteen_is_another() {
    let mut edge = Edge::settled(401, 401);
    edge.flip("c400", OFFLINE);
    // Every Gateway changes each second: more than the edge takes.
    for second in 0..30 {
        edge.pass_to(4_500 + second * 1_000);
        let status = if second % 2 == 1 { N1 } else { OFFLINE };
        (0..400).for_each(|n| _ = edge.flip(&format!("c{n}"), status));
    }
    let mut touches = edge.touches.iter();
    let confirmed = touches.find(|(_, name, t)| name == "g0400" && t.c == 1).unwrap();
    assert!(confirmed.0 <= 6_000, "{}", confirmed.0);
}

#[test]
fn a_touch_that_is_not_due_does_not_wait_for_the_edge() {
    let mut edge = Edge::settled(1_000, 2);
    edge.flip("c0", OFFLINE).pass_to(1_000).flip("c1", OFFLINE);
    let causes = |edge: &Edge| {
        let fleet = edge.stage.fleet();
        let changed = fleet.connectors.iter().find(|c| c.name.as_ref().unwrap().name() == "c1");
        let hops = changed.unwrap().hops_of(Hop::Announced).map(|hop| (hop.state, hop.cause));
        hops.collect::<BTreeSet<_>>()
    };
    let pending = |cause| (State::Pending, cause);
    assert_eq!(causes(&edge), [pending(None)].into());
    edge.pass_to(1_100);
    assert!(causes(&edge).contains(&pending(Some(Cause::TouchesQueued))));
    // What waits is one problem for all, and late for none.
    assert_eq!(edge.pass_to(6_000).stage.wrong(), [Cause::TouchesQueued]);
    let message = edge.stage.fleet().connectors[0].worst().unwrap().message.clone().unwrap();
    assert!(message.contains("touches wait at edge; they take about"), "{message}");
    assert_eq!(edge.pass_to(60_000).stage.wrong(), []);
}

#[test]
fn a_stamp_on_one_gateway_ends_the_window_of_all_that_wait_for_its_connector() {
    let mut edge = Edge::settled(5, 1);
    edge.flip("c0", OFFLINE).pass_to(40).stamp("g0003", "false/");
    assert_eq!(edge.touched(), all_at(40, 5), "one bundle");
    // The stamps on the others show nothing new, whether they come before or after the window.
    for (ms, name) in [(43, "g0000"), (60, "g0001"), (90, "g0002"), (300, "g0004")] {
        edge.pass_to(ms).stamp(name, "false/");
    }
    assert_eq!(edge.pass_to(5_040).touched(), all_at(5_040, 5), "the first confirmation");
}

/// The extension server sees Connectors in the same order as the watch: a stamp for the one that changed
/// last stands for the others, and one for an earlier one does not.
#[test]
fn in_a_class_the_stamp_for_the_latest_change_counts() {
    for (stamped, touched_at) in [("g0000", 120), ("g0001", 40)] {
        let mut edge = Edge::settled_with(TouchScope::GatewayClass, 2, 2);
        edge.flip("c0", OFFLINE).pass_to(20).flip("c1", OFFLINE);
        edge.pass_to(40).stamp(stamped, "false/").pass_to(1_000);
        assert_eq!(edge.touched(), all_at(touched_at, 1), "{stamped}");
    }
}

#[test]
fn a_gateway_that_vanishes_and_comes_back_with_its_trigger_is_announced_and_confirmed_twice() {
    let expected = [(10_100, 0), (15_100, 1), (70_100, 2)];
    // When it was touched, and the number of the confirmation.
    let touches_of = |edge: &Edge| -> Vec<_> {
        edge.touches.iter().map(|(at, _, trigger)| (*at, trigger.c)).collect()
    };
    for scope in [TouchScope::Gateway, TouchScope::GatewayClass] {
        let mut edge = Edge::settled_with(scope, 1, 1);
        edge.stage.list("edge", "Gateway", []);
        edge.pass_to(10_000).relist().pass_to(400_000);
        assert_eq!(touches_of(&edge), expected, "{scope:?}");
    }
    // A watch shows it.
    let mut edge = Edge::settled(2, 1);
    let gateway = edge.gateway("g0000");
    edge.stage.deleted("edge", &gateway);
    edge.pass_to(10_000).stage.applied("edge", &gateway);
    assert_eq!(touches_of(edge.pass_to(400_000)), expected);
}

/// An API server that shows no Gateways once, and then all of them again, costs a touch and two
/// confirmations for each at the edge's pace. A change does not wait behind them.
#[test]
fn an_edge_that_was_empty_once_is_announced_behind_changes() {
    const COUNT: usize = 5_000;
    let mut edge = Edge::settled(COUNT, 1_000);
    edge.stage.list("edge", "Gateway", []);
    edge.pass_to(1_000).relist().pass_to(11_000);
    edge.flip("c7", OFFLINE).pass_to(12_200);
    let is_of_c7 = |(at, name, _): &&(_, String, _)| *at >= 11_000 && name.ends_with("007");
    let changed = edge.touches.iter().filter(is_of_c7).count();
    assert_eq!(changed, 5, "those of c7, before thousands that wait");
    let touches = &edge.pass_to(400_000).touches;
    assert!(touches.len() <= 3 * (COUNT + 5), "{}", touches.len());
    let confirmed = touches.iter().filter(|(.., trigger)| trigger.c == 2);
    let confirmed: BTreeSet<_> = confirmed.map(|(_, name, _)| name).collect();
    assert_eq!(confirmed.len(), COUNT, "each is confirmed to the end");
}

#[test]
fn a_confirmation_that_would_follow_within_the_window_goes_along() {
    let mut edge = Edge::settled(2, 2);
    edge.flip("c0", OFFLINE).pass_to(4_930).flip("c1", OFFLINE).pass_to(6_000);
    let first = |n: usize, ms| (ms, format!("g{n:04}"));
    assert_eq!(edge.touched(), [first(0, 100), first(0, 5_030), first(1, 5_030)]);
}
