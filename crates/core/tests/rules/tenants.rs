//! One tenant's many changes make no other tenant wait: queues serve namespaces in turn, and a Connector
//! that changes again and again waits behind those of its own project alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use throughline_core::contract::action::{Decision, Verb};
use throughline_core::contract::event::EventKind;
use throughline_core::contract::note::{Hop, NoteKind, Stall, StallCause};
use throughline_core::contract::settings::Settings;
use throughline_core::data::ids::Role;

use crate::stage::{START, Stage, UID, status};

const ANNOTATION: &str = "networking.datumapis.com/upstream-status";
const SECOND: u64 = 1_000;

/// A namespace of one project.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Tenant {
    cluster: &'static str,
    namespace: &'static str,
    uid: &'static str,
}

const BUSY: Tenant = Tenant { cluster: "up", namespace: "default", uid: UID };
/// Another namespace of the same project.
const NEIGHBOUR: Tenant =
    Tenant { cluster: "up", namespace: "second", uid: "6bcb0b35-0000-4000-8000-000000000002" };
/// Another project.
const OTHER: Tenant =
    Tenant { cluster: "other", namespace: "default", uid: "6bcb0b35-0000-4000-8000-000000000003" };

/// A write of the hub: when, whose, and what it made of the annotation.
#[derive(Clone)]
struct Written {
    at: u64,
    verb: Verb,
    connector: (String, String),
    text: Option<String>,
}

/// Connectors of three tenants at a hub, which carries out each write at once.
struct Tenants {
    stage: Stage,
    written: Vec<Written>,
    /// What upstream says, by hub Connector.
    upstream: BTreeMap<(String, String), String>,
    hub: BTreeMap<(String, String), String>,
    of: BTreeMap<(String, String), (Tenant, usize)>,
}

fn place(tenant: Tenant, number: usize) -> (String, String) {
    (format!("ns-{}", tenant.uid), format!("c{number:04}"))
}

/// Online on a node, at an address.
fn at(node: &str, address: u64) -> String {
    status(Some(node)).replace(r#"{"id""#, &format!(r#"{{"homeRelay":"r-{address}","id""#))
}

impl Tenants {
    /// All online on node n1 and mirrored, a minute ago.
    fn new(tenants: &[(Tenant, usize)]) -> Self {
        let mut stage = Stage::new(Settings::default());
        stage.event(EventKind::ClusterAdded {
            cluster: OTHER.cluster.into(),
            roles: vec![Role::Upstream],
        });
        for (cluster, of) in [("up", vec![BUSY, NEIGHBOUR]), ("other", vec![OTHER])] {
            let namespaces: Vec<_> = of
                .iter()
                .map(|tenant| {
                    json!({"kind": "Namespace", "metadata": {
                        "name": tenant.namespace, "uid": tenant.uid, "resourceVersion": "9"}})
                    .to_string()
                })
                .collect();
            let namespaces: Vec<_> = namespaces.iter().map(String::as_str).collect();
            stage.list(cluster, "Namespace", &namespaces);
            stage.list(cluster, "Connector", &[]);
            stage.list(cluster, "Gateway", &[]);
        }
        let mut all = Self {
            stage,
            written: Vec::new(),
            upstream: BTreeMap::new(),
            hub: BTreeMap::new(),
            of: BTreeMap::new(),
        };
        all.stage.pass_to(1);
        for &(tenant, size) in tenants {
            for number in 0..size {
                all.of.insert(place(tenant, number), (tenant, number));
                all.hub.insert(place(tenant, number), status(Some("n1")));
                all.says(tenant, number, &status(Some("n1")));
                all.show_hub(&place(tenant, number));
            }
        }
        all.pass_to(60 * SECOND);
        assert_eq!(all.written.len(), 0);
        all
    }

    /// The upstream Connector says this.
    fn says(&mut self, tenant: Tenant, number: usize, text: &str) {
        let (place, version) = (place(tenant, number), self.stage.version().to_string());
        self.upstream.insert(place.clone(), text.to_owned());
        let status: Value = serde_json::from_str(text).unwrap();
        let object = json!({"kind": "Connector", "metadata": {
            "namespace": tenant.namespace, "name": place.1, "uid": format!("u-{}", place.1),
            "resourceVersion": version}, "status": status});
        self.stage.applied(tenant.cluster, &object.to_string());
    }

    /// The watch of the hub shows the Connector.
    fn show_hub(&mut self, place: &(String, String)) {
        let object = self.copy(place, "u-hub");
        self.stage.applied("hub", &object);
    }

    /// The edge has what the hub has.
    fn show_edge(&mut self, place: &(String, String)) {
        let object = self.copy(place, "u-edge");
        self.stage.applied("edge", &object);
    }

    fn copy(&mut self, place: &(String, String), uid: &str) -> String {
        let (tenant, _) = self.of[place];
        json!({"kind": "Connector", "metadata": {
            "namespace": place.0, "name": place.1, "uid": format!("{uid}-{}", place.1),
            "resourceVersion": self.stage.version().to_string(),
            "annotations": {ANNOTATION: self.hub[place]},
            "labels": {
                "meta.datumapis.com/upstream-cluster-name": format!("cluster-{}", tenant.cluster),
                "meta.datumapis.com/upstream-namespace": tenant.namespace,
                "meta.datumapis.com/upstream-name": place.1}}})
        .to_string()
    }

    fn now(&self) -> u64 {
        self.stage.now - START
    }

    /// Lets time pass. Each write succeeds at once, and the hub's watch shows it.
    fn pass_to(&mut self, ms: u64) {
        loop {
            self.carry_out();
            let next = self.stage.machine.poll_deadline().map(|(at, _)| at.0);
            match next.filter(|at| *at <= START + ms) {
                Some(at) => self.stage.pass_to(at.max(self.stage.now) - START),
                None => break,
            }
        }
        self.stage.pass_to(ms);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        loop {
            let decided = self.stage.actions();
            if decided.is_empty() {
                return;
            }
            decided.iter().for_each(|decision| self.succeed(decision));
        }
    }

    fn succeed(&mut self, decision: &Decision) {
        let action = &decision.action;
        let connector = (action.object.namespace.to_string(), action.object.name.to_string());
        let text = action.annotations[0].1.clone();
        if let (Verb::Mirror, Some(text)) = (action.verb, &text) {
            self.hub.insert(connector.clone(), text.clone());
        }
        self.stage.succeed(decision);
        self.show_hub(&connector);
        let (at, verb) = (decision.at.0 - START, action.verb);
        self.written.push(Written { at, verb, connector, text });
    }

    /// When the Connectors of a tenant were written, since some time.
    fn times(&self, tenant: Tenant, since: u64) -> Vec<u64> {
        let of_tenant = |write: &&Written| self.of[&write.connector].0 == tenant;
        let written = self.written.iter().filter(of_tenant).filter(|write| write.at >= since);
        written.map(|write| write.at - since).collect()
    }

    fn wrong(&self) -> usize {
        let mean = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        self.upstream.iter().filter(|(at, text)| mean(text) != mean(&self.hub[*at])).count()
    }
}

/// The most that fall into one window of time.
fn most_within(times: &[u64], window_ms: u64) -> usize {
    let within =
        |start: u64| times.iter().filter(|at| (start..start + window_ms).contains(at)).count();
    times.iter().map(|start| within(*start)).max().unwrap_or(0)
}

/// 400 Connectors that all change again each second, until `until`: to another node, or on and off.
fn flap(tenants: &mut Tenants, tenant: Tenant, until: u64, node: impl Fn(u64) -> Option<String>) {
    let mut round = 1;
    while tenants.now() < until {
        round += 1;
        for number in 0..400 {
            tenants.says(tenant, number, &status(node(round).as_deref()));
            tenants.carry_out();
        }
        let next = tenants.now() + SECOND;
        tenants.pass_to(next);
    }
}

fn moves(round: u64) -> Option<String> {
    Some(format!("n{round}"))
}

fn flips(round: u64) -> Option<String> {
    (round % 2 == 1).then(|| "n1".to_owned())
}

#[test]
fn four_hundred_flapping_connectors_are_mirrored_at_twenty_a_second_and_end_right() {
    for node in [moves, flips] {
        let mut tenants = Tenants::new(&[(BUSY, 400), (OTHER, 1)]);
        let start = tenants.now();

        flap(&mut tenants, BUSY, start + 61 * SECOND, node);

        let times = tenants.times(BUSY, start);
        let first = times.iter().filter(|at| **at == 0).count();
        assert_eq!(first, 400, "the first change of each is written at once");
        let later: Vec<_> = times.iter().copied().filter(|at| *at > 0).collect();
        for (window_s, limit) in [(1, 40), (10, 220), (60, 1_220)] {
            let most = most_within(&later, window_s * SECOND);
            assert!(most <= limit, "{most} within {window_s} s");
        }
        // Those that flip may be right again when their turn comes.
        assert!(later.len() >= 20 * 55, "the queue is used: {}", later.len());

        let end = tenants.now();
        tenants.pass_to(end + 30 * SECOND);
        assert_eq!(tenants.wrong(), 0, "every last state is right");
    }
}

#[test]
fn another_project_does_not_wait_for_connectors_that_flap() {
    let mut tenants = Tenants::new(&[(BUSY, 400), (OTHER, 1)]);
    let start = tenants.now();
    flap(&mut tenants, BUSY, start + 10 * SECOND, moves);

    for flip in 0..5 {
        let at = tenants.now();
        tenants.says(OTHER, 0, &status(Some(&format!("n{}", flip + 2))));
        tenants.carry_out();
        assert_eq!(tenants.times(OTHER, at), [0], "flip {flip}");
        tenants.pass_to(at + SECOND);
    }
}

/// Within one project, too, namespaces take turns.
#[test]
fn another_namespace_of_the_same_project_waits_for_one_of_them_at_most() {
    let mut tenants = Tenants::new(&[(BUSY, 400), (NEIGHBOUR, 1)]);
    tenants.says(NEIGHBOUR, 0, &status(Some("n2")));
    let start = tenants.now();
    flap(&mut tenants, BUSY, start + 4 * SECOND, moves);

    let at = tenants.now();
    tenants.says(NEIGHBOUR, 0, &status(Some("n3")));
    tenants.pass_to(at + SECOND);

    let times = tenants.times(NEIGHBOUR, at);
    assert!(matches!(times[..], [ms] if ms <= 100), "{times:?}");
}

#[test]
fn a_thousand_connectors_that_change_once_are_written_at_once() {
    let mut tenants = Tenants::new(&[(BUSY, 1_000)]);
    let start = tenants.now();
    for number in 0..1_000 {
        tenants.says(BUSY, number, &status(None));
    }
    tenants.carry_out();
    assert_eq!(tenants.times(BUSY, start), [0; 1_000]);

    // Ten seconds later each is a first one again.
    tenants.pass_to(start + 10 * SECOND);
    for number in 0..1_000 {
        tenants.says(BUSY, number, &status(Some("n2")));
    }
    tenants.carry_out();
    assert_eq!(tenants.times(BUSY, start + 10 * SECOND), [0; 1_000]);

    // Earlier, they wait: 34 at once and 34 a second, so that all are right within 30 s.
    tenants.pass_to(start + 19_999);
    for number in 0..1_000 {
        tenants.says(BUSY, number, &status(Some("n3")));
    }
    tenants.carry_out();
    assert_eq!(tenants.times(BUSY, start + 19_999), [0; 34]);
    tenants.pass_to(start + 49_999);
    assert_eq!(tenants.wrong(), 0);
}

#[test]
fn a_connector_that_waits_for_the_others_of_its_upstream_is_late_like_any_other() {
    let mut tenants = Tenants::new(&[(BUSY, 400)]);
    let start = tenants.now();
    for node in ["n2", "n3"] {
        for number in 0..400 {
            tenants.says(BUSY, number, &status(Some(node)));
        }
        tenants.carry_out();
    }
    tenants.stage.notes();

    tenants.pass_to(start + 8 * SECOND);

    let stalls: Vec<_> = tenants
        .stage
        .notes()
        .into_iter()
        .filter_map(|note| match note.kind {
            NoteKind::Stalled(stall) => Some(stall),
            _ => None,
        })
        .collect();
    let Some(Stall { hop: Hop::Mirrored, cause, reason, since, .. }) = stalls.first() else {
        panic!("{stalls:?}");
    };
    assert_eq!(*cause, StallCause::NotMirrored { cluster: "hub".into() });
    assert_eq!(
        reason,
        "it changed again within 10 s of its last mirror, and waits for the other Connectors of its \
         upstream that did: 20 of them are mirrored a second"
    );
    assert_eq!(since.0, START + start);
    tenants.pass_to(start + 30 * SECOND);
    assert_eq!(tenants.wrong(), 0);
}

#[test]
fn what_waits_is_written_as_it_is_when_its_turn_comes() {
    let mut tenants = Tenants::new(&[(BUSY, 100)]);
    let start = tenants.now();
    for node in ["n2", "n3", "n4"] {
        for number in 0..100 {
            tenants.says(BUSY, number, &status(Some(node)));
        }
        tenants.carry_out();
    }
    // The last one comes to say again what the hub says: there is nothing left to write.
    tenants.says(BUSY, 99, &status(Some("n2")));

    tenants.pass_to(start + 30 * SECOND);

    let written: BTreeSet<_> = tenants.written.iter().filter_map(|w| w.text.clone()).collect();
    let of_last = tenants.written.iter().filter(|w| w.connector.1 == "c0099").count();
    assert_eq!((tenants.wrong(), of_last), (0, 1));
    // 20 were written a second time with n3, before the others changed to n4.
    assert_eq!(written, ["n2", "n3", "n4"].map(|node| status(Some(node))).into());
}

#[test]
fn a_change_that_routes_nothing_does_not_wait_for_another_tenants_hundred() {
    let mut tenants = Tenants::new(&[(BUSY, 300), (OTHER, 3)]);
    let start = tenants.now();
    for number in 0..300 {
        tenants.says(BUSY, number, &at("n1", 1));
    }
    tenants.pass_to(start + SECOND);
    for number in 0..3 {
        tenants.says(OTHER, number, &at("n1", 1));
    }

    tenants.pass_to(start + 60 * SECOND);

    let times = tenants.times(OTHER, start);
    assert_eq!(times.len(), 3);
    // Every other one of the 8 a second is theirs.
    assert!(times.iter().all(|at| (6_000..=6_750).contains(at)), "{times:?}");
    assert_eq!(tenants.wrong(), 0);
}

#[test]
fn a_nudge_does_not_wait_for_another_tenants_hundred() {
    let mut tenants = Tenants::new(&[(BUSY, 300), (OTHER, 1)]);
    let places: Vec<_> = tenants.of.keys().cloned().collect();
    for place in &places {
        tenants.show_edge(place);
    }
    let start = tenants.now();
    for number in 0..300 {
        tenants.says(BUSY, number, &status(Some("n2")));
    }
    tenants.carry_out();
    tenants.pass_to(start + 500);
    tenants.says(OTHER, 0, &status(Some("n2")));
    tenants.carry_out();

    let mut nudged = Vec::new();
    while nudged.len() < 30 {
        let seen = tenants.written.len();
        let next = tenants.now() + 100;
        tenants.pass_to(next);
        for write in tenants.written.split_off(seen) {
            assert_eq!(write.verb, Verb::Nudge);
            // The carrier takes each.
            tenants.show_edge(&write.connector);
            nudged.push(write);
        }
    }

    let at = nudged.iter().find(|write| write.connector.0.ends_with("003")).unwrap().at - start;
    assert!((10_500..=10_900).contains(&at), "{at}");
}

/// An edge whose Gateways each announce the one connector of their tenant.
struct Gateways {
    stage: Stage,
    /// When which Gateway was touched.
    touched: Vec<(u64, String)>,
}

impl Gateways {
    const KEY: &str = "gateway.envoyproxy.io/connector-liveness";

    fn new(tenants: &[(Tenant, usize)]) -> Self {
        let mut stage = Stage::new(Settings::default());
        stage.pass_to(1);
        let mut all = Self { stage, touched: Vec::new() };
        for &(tenant, size) in tenants {
            all.flip(tenant, "n1");
            for number in 0..size {
                let (namespace, name) = place(tenant, number);
                let version = all.stage.version().to_string();
                let proxy = json!({"kind": "HTTPProxy", "metadata": {
                    "namespace": namespace, "name": name, "uid": format!("u-p-{name}"),
                    "resourceVersion": version},
                    "spec": {"rules": [{"backends": [{"connector": {"name": "lab"}}]}]}});
                all.stage.applied("edge", &proxy.to_string());
                all.gateway(&namespace, &name, None);
            }
        }
        all.pass_to(600 * SECOND);
        all.touched.clear();
        all
    }

    fn flip(&mut self, tenant: Tenant, node: &str) {
        let version = self.stage.version().to_string();
        let object = json!({"kind": "Connector", "metadata": {
            "namespace": format!("ns-{}", tenant.uid), "name": "lab",
            "uid": format!("u-{}", tenant.uid), "resourceVersion": version,
            "annotations": {ANNOTATION: status(Some(node))}}});
        self.stage.applied("edge", &object.to_string());
        self.take();
    }

    fn gateway(&mut self, namespace: &str, name: &str, trigger: Option<&str>) {
        let version = self.stage.version().to_string();
        let annotations = trigger.map_or(json!({}), |value| json!({ Self::KEY: value }));
        let object = json!({"kind": "Gateway", "metadata": {
            "namespace": namespace, "name": name, "uid": format!("u-{namespace}-{name}"),
            "resourceVersion": version, "annotations": annotations},
            "spec": {"gatewayClassName": "edge"}});
        self.stage.applied("edge", &object.to_string());
    }

    fn take(&mut self) {
        loop {
            let decided = self.stage.actions();
            if decided.is_empty() {
                return;
            }
            for decision in decided {
                let object = &decision.action.object;
                let value = decision.action.annotations[0].1.as_deref();
                self.stage.succeed(&decision);
                self.gateway(&object.namespace, &object.name, value);
                self.touched.push((decision.at.0 - START, object.namespace.to_string()));
            }
        }
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
}

#[test]
fn a_tenant_whose_thousand_gateways_flip_each_second_makes_no_other_touch_wait() {
    let mut gateways = Gateways::new(&[(BUSY, 1_000), (OTHER, 1)]);
    let start = gateways.stage.now - START;
    for second in 0..30 {
        gateways.flip(BUSY, &format!("n{}", 2 + second));
        if second % 5 == 4 {
            let at = start + second * SECOND;
            gateways.flip(OTHER, &format!("n{}", 2 + second));
            gateways.touched.clear();
            gateways.pass_to(at + 999);

            let namespace = format!("ns-{}", OTHER.uid);
            let (touched_at, _) = gateways
                .touched
                .iter()
                .find(|(_, touched)| *touched == namespace)
                .expect("the other tenant's Gateway is touched within a second");
            // The window of 100 ms, and one touch of the busy tenant.
            assert!(touched_at - at <= 140, "{} ms", touched_at - at);
        }
        gateways.pass_to(start + (second + 1) * SECOND);
    }
}
