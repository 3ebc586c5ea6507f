//! The oracle's own test: what must not happen is rejected, and what may happen is accepted.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use throughline::core::contract::action::Action;
use throughline::core::contract::event::Outcome;
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, NamespacedName};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::environment::within;
use throughline_sim::apiserver::AuditedRequest;
use tokio::time::Instant;

use crate::assert_right;
use crate::computer::Computer;
use crate::instance::{CompleteList, Done, Instance, Tape, verify_log};
use crate::network::SentWrite;
use crate::oracle::Oracle;
use crate::orphans::{RouteGuard, Site};
use crate::plan::Plan;
use crate::random::Random;
use crate::stage::{Stage, simulate, simulate_with};
use crate::verdict::{AtRest, QUIET_FOR, grown};
use crate::world::{NUDGE, TRIGGER};

const HUB_CONNECTOR: &str = "/apis/networking.datumapis.com/v1alpha1/namespaces/n/connectors/c";
const CONNECTORS: &str = "/apis/networking.datumapis.com/v1alpha1/connectors";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/gateways/g";
const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/httproutes/r";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/throughline";
/// Upstream, the namespace and the parent of the route.
const NAMESPACE: &str = "/api/v1/namespaces/default";
const PARENT: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/parent";
const MILO: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/project/control-plane";

/// Requests by hand.
struct Trace {
    oracle: Oracle,
    now: Instant,
}

impl Trace {
    /// The upstream Connector says 1, 2 and 3, in this order.
    fn new() -> Self {
        let site = Site {
            upstream: 0,
            cluster: "project".into(),
            route: NamespacedName::new("n", "r"),
            parents: vec!["parent".to_owned()],
            is_protected: false,
            deleted: vec![true],
        };
        let routes = RouteGuard::new(&[site], OrphanMode::Delete);
        let mut oracle = Oracle::new(&ClusterName::from("hub"), routes);
        (1..=3).for_each(|n| oracle.upstream_says(&NamespacedName::new("n", "c"), &json!(n)));
        Self { oracle, now: Instant::now() }
    }

    fn wait(mut self, ms: u64) -> Self {
        self.now += Duration::from_millis(ms);
        self
    }

    fn does(mut self, what: impl FnOnce(&mut Oracle, Instant)) -> Self {
        what(&mut self.oracle, self.now);
        self
    }

    fn stands_still(self, client: u32) -> Self {
        self.does(|oracle, now| oracle.frozen(client, now))
    }

    fn goes_on(self, client: u32) -> Self {
        self.does(|oracle, now| oracle.thawed(client, now))
    }

    /// A request and its answer: what is not found is not there, and what fails is not executed.
    fn sends(
        mut self,
        (client, method, path): (u32, &str, &str),
        cluster: &str,
        body: &Value,
        code: u16,
    ) -> Self {
        let (cluster, executed) = (ClusterName::from(cluster), code == 200);
        let body = body.to_string().into();
        let request = Request::builder().method(method).uri(path).body(body).unwrap();
        let is_repeat = false;
        let audited = AuditedRequest { cluster, client, request, code, executed, is_repeat };
        self.oracle.see(self.now, &audited, code != 404);
        self
    }

    fn writes(self, client: u32, method: &str, path: &str, body: &Value) -> Self {
        self.sends((client, method, path), cluster_of(path), body, 200)
    }

    fn tries(self, client: u32, method: &str, path: &str) -> Self {
        self.sends((client, method, path), cluster_of(path), &Value::Null, 409)
    }

    fn gets(self, client: u32, cluster: &str, path: &str, code: u16) -> Self {
        self.sends((client, "GET", path), cluster, &Value::Null, code)
    }

    /// Asks for the namespace, and for the parent, which is answered with this code.
    fn proves(self, client: u32, at: &str, code: u16) -> Self {
        let [namespace, parent] = [NAMESPACE, PARENT].map(|path| format!("{at}{path}"));
        self.gets(client, "project", &namespace, 200).gets(client, "project", &parent, code)
    }

    /// Lists the edge's Connectors, a page a second.
    fn lists(self, client: u32, codes: &[u16]) -> Self {
        codes.iter().fold(self, |t, code| t.gets(client, "edge", CONNECTORS, *code).wait(1_000))
    }

    /// Instance 1 takes the edge's list for complete. What it asks for later says nothing about it.
    fn completes(self, kind: Kind) -> Self {
        let list = CompleteList { at: self.now, cluster: "edge".into(), kind };
        let later = self.wait(1).gets(1, "edge", CONNECTORS, 500);
        later.does(|oracle, _| oracle.complete(1, &list))
    }

    /// An instance takes a mirror for carried out that it decided a second ago.
    fn done(self, client: u32, kind: &str, name: &str) -> Self {
        let (ended, action) = (self.now, mirror(1, kind, name));
        let done = Done { decided: ended - Duration::from_secs(1), ended, action };
        self.does(|oracle, _| oracle.done(client, &done))
    }

    fn leads(self, client: u32) -> Self {
        let body = json!({ "spec": { "holderIdentity": format!("instance-{client}") } });
        self.writes(client, "PUT", LEASE, &body)
    }

    fn releases(self, client: u32) -> Self {
        self.writes(client, "PUT", LEASE, &json!({ "spec": { "holderIdentity": "" } }))
    }

    fn mirrors(self, client: u32, value: impl Into<Value>) -> Self {
        self.writes(client, "PATCH", HUB_CONNECTOR, &annotated(UPSTREAM_STATUS, value))
    }

    fn annotates(self, path: &str, key: &str) -> Self {
        self.writes(1, "PATCH", path, &annotated(key, "x"))
    }

    fn patches(self, path: &str, tests: &[&str], key: &str) -> Self {
        self.writes(1, "PATCH", path, &json_patch(tests, key))
    }

    fn deletes(self, count: usize) -> Self {
        let body = json!({ "preconditions": { "uid": "u", "resourceVersion": "1" } });
        (0..count).fold(self, |trace, _| trace.writes(1, "DELETE", ROUTE, &body))
    }

    fn removes(self, count: usize) -> Self {
        let orphan = HUB_CONNECTOR.replace("/connectors/c", "/connectors/orphan");
        let body = annotated(UPSTREAM_STATUS, Value::Null);
        (0..count).fold(self, |trace, _| trace.writes(1, "PATCH", &orphan, &body))
    }

    fn asks(self, count: usize) -> Self {
        (0..count).fold(self, |trace, _| trace.tries(1, "PATCH", GATEWAY))
    }

    fn stores(self, gateway: &str, trigger: &str) -> Self {
        self.does(|oracle, _| oracle.trigger_stored(&"edge".into(), gateway, trigger))
    }

    /// What is broken, and nothing else; empty for nothing.
    #[track_caller]
    fn assert(self, how: &str) {
        let broken = self.oracle.broken;
        assert_eq!(broken.len(), usize::from(!how.is_empty()), "{how}: {broken:?}");
        assert!(broken.iter().all(|broken| broken.contains(how)), "{how}: {broken:?}");
    }
}

fn cluster_of(path: &str) -> &str {
    if path == GATEWAY { "edge" } else { "hub" }
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    let annotations = json!({ key: value.into() });
    json!({ "metadata": { "uid": "u", "resourceVersion": "1", "annotations": annotations } })
}

/// A JSON Patch that sets an annotation.
fn json_patch(tests: &[&str], key: &str) -> Value {
    let test = |path: &&str| json!({ "op": "test", "path": path, "value": "x" });
    let mut operations: Vec<_> = tests.iter().map(test).collect();
    let at = format!("/metadata/annotations/{}", key.replace('/', "~1"));
    operations.push(json!({ "op": "add", "path": at, "value": "0-1-0" }));
    operations.into()
}

const UID: &str = "/metadata/uid";
const ANNOTATION: &str = "/metadata/annotations/x";

const UNGUARDED: &str = "does not name what it replaces";
const UNPROVED: &str = "without proof of its upstream namespace";
const NOT_DONE: &str = "for carried out, which it was not";
const INCOMPLETE: &str = "did not get its last page";
const NEVER_HELD: &str = "without ever having held the Lease";
const AFTER_ANOTHER: &str = "after another instance led and wrote";
const EXPIRED: &str = "after its Lease expired or was released";

type Play = fn(Trace) -> Trace;

/// What instance 1, which leads, and others do, and how that is broken.
const PLAYS: &[(&str, Play)] = &[
    ("", |t| t.mirrors(1, "1").mirrors(1, "2").removes(1)),
    ("", |t| t.annotates(HUB_CONNECTOR, NUDGE)),
    // Writes that name what they replace, and others.
    ("", |t| t.patches(GATEWAY, &[UID, ANNOTATION], TRIGGER)),
    (UNGUARDED, |t| t.patches(GATEWAY, &[ANNOTATION], TRIGGER)),
    (UNGUARDED, |t| t.patches(GATEWAY, &[UID], TRIGGER)),
    // Leadership.
    (NEVER_HELD, |t| t.mirrors(2, "1")),
    ("", |t| t.mirrors(1, "1").leads(1).mirrors(1, "2").leads(2).mirrors(2, "1")),
    (AFTER_ANOTHER, |t| t.leads(2).mirrors(2, "1").mirrors(1, "3")),
    ("", |t| t.mirrors(1, "1").leads(2).mirrors(2, "2").leads(1).mirrors(1, "3")),
    ("", |t| t.wait(14_000).mirrors(1, "1").leads(1).wait(14_000).mirrors(1, "2")),
    (EXPIRED, |t| t.leads(1).wait(16_000).mirrors(1, "3")),
    ("", |t| t.mirrors(1, "1").releases(1)),
    (EXPIRED, |t| t.mirrors(1, "1").releases(1).mirrors(1, "2")),
    // A write that is refused needs the Lease just so.
    ("", |t| t.tries(1, "PATCH", HUB_CONNECTOR).tries(1, "DELETE", ROUTE)),
    (NEVER_HELD, |t| t.tries(2, "PATCH", HUB_CONNECTOR)),
    (NEVER_HELD, |t| t.tries(2, "DELETE", ROUTE)),
    (EXPIRED, |t| t.wait(16_000).tries(1, "DELETE", ROUTE)),
    ("", |t| t.leads(2).tries(1, "DELETE", ROUTE)),
    (AFTER_ANOTHER, |t| t.leads(2).mirrors(2, "1").tries(1, "DELETE", ROUTE)),
    // What was under way while the process stood still, and what was not.
    ("", |t| t.stands_still(1).leads(2).mirrors(2, "1").wait(9_000).mirrors(1, "2")),
    ("", |t| t.stands_still(1).leads(2).mirrors(2, "1").goes_on(1).mirrors(1, "2")),
    (AFTER_ANOTHER, |t| {
        t.stands_still(1).leads(2).mirrors(2, "1").goes_on(1).wait(30).mirrors(1, "3")
    }),
    (AFTER_ANOTHER, |t| t.stands_still(3).leads(2).mirrors(2, "1").mirrors(1, "3")),
    // What is written.
    ("another annotation", |t| t.annotates(HUB_CONNECTOR, "karmada.io/x")),
    ("another annotation", |t| {
        t.patches(HUB_CONNECTOR, &[UID, ANNOTATION], "networking.datumapis.com/other")
    }),
    ("writes no trigger", |t| t.annotates(GATEWAY, TRIGGER)),
    ("", |t| t.writes(7, "PATCH", GATEWAY, &annotated(TRIGGER, "0-1-0"))),
    ("never said", |t| t.mirrors(1, "4")),
    ("never said", |t| t.mirrors(1, "no JSON")),
    ("removes what an upstream Connector says", |t| t.mirrors(1, Value::Null)),
    // A route is deleted with a fresh proof of one's own. Neither a 403 nor another instance's proves it.
    (UNPROVED, |t| t.deletes(1)),
    ("", |t| t.proves(1, "", 404).deletes(1)),
    ("", |t| t.proves(1, MILO, 404).deletes(1)),
    (UNPROVED, |t| t.proves(2, "", 404).deletes(1)),
    ("without proof that its parent parent is gone", |t| {
        t.proves(1, "", 404).proves(1, "", 403).deletes(1)
    }),
    (UNPROVED, |t| t.proves(1, "", 404).wait(23_001).leads(1).deletes(1)),
    ("is protected", |t| {
        t.proves(1, "", 404).does(|o, _| o.routes.sites[0].is_protected = true).deletes(1)
    }),
    ("orphans.mode is not delete", |t| {
        t.does(|o, _| o.routes = RouteGuard::new(&o.routes.sites, OrphanMode::Report)).deletes(1)
    }),
    // How much is written.
    ("", |t| {
        let write = |t: Trace| t.leads(1).proves(1, "", 404).removes(10).deletes(10);
        write(write(t).wait(61_000))
    }),
    ("11 removals within a minute", |t| t.removes(11)),
    ("11 deletes within a minute", |t| t.proves(1, "", 404).deletes(11)),
    ("", |t| (0..30).fold(t, |t, _| t.asks(13).wait(1_000))),
    ("more than 150 requests", |t| (0..11).fold(t, |t, _| t.asks(14).wait(900))),
    ("", |t| t.stores("g", "1-1-0").stores("g", "1-2-1").stores("h", "1-1-0")),
    ("1-1-0 again", |t| t.stores("g", "1-1-0").stores("g", "1-2-1").stores("g", "1-1-0")),
    // What an instance takes for carried out, and for complete.
    ("", |t| t.mirrors(1, "1").wait(500).done(1, "Connector", "c")),
    (NOT_DONE, |t| t.mirrors(1, "1").wait(500).done(2, "Connector", "c")),
    (NOT_DONE, |t| t.mirrors(1, "1").wait(500).done(1, "Connector", "d")),
    (NOT_DONE, |t| t.mirrors(1, "1").wait(500).done(1, "HTTPRoute", "c")),
    (NOT_DONE, |t| t.mirrors(1, "1").wait(1_500).done(1, "Connector", "c")),
    ("", |t| t.lists(1, &[200, 500, 200, 200]).completes(Kind::Connector)),
    (INCOMPLETE, |t| t.lists(1, &[200, 500]).completes(Kind::Connector)),
    (INCOMPLETE, |t| t.completes(Kind::Connector)),
    (INCOMPLETE, |t| t.lists(2, &[200]).completes(Kind::Connector)),
    (INCOMPLETE, |t| t.lists(1, &[200]).completes(Kind::Gateway)),
];

#[test]
fn what_must_not_happen_is_rejected_and_nothing_else() {
    PLAYS.iter().for_each(|(how, play)| play(Trace::new().leads(1)).assert(how));
    for part in ["uid", "resourceVersion"] {
        let mut mirror = annotated(UPSTREAM_STATUS, "1");
        mirror["metadata"].as_object_mut().unwrap().remove(part);
        let leads = || Trace::new().leads(1);
        leads().writes(1, "PATCH", HUB_CONNECTOR, &mirror).assert(UNGUARDED);
        let delete = json!({ "preconditions": { part: "1" } });
        leads().proves(1, "", 404).writes(1, "DELETE", ROUTE, &delete).assert(UNGUARDED);
    }
    let status = annotated(UPSTREAM_STATUS, "1");
    for (method, path, cluster, body) in [
        ("PATCH", HUB_CONNECTOR, "project", &status),
        ("PATCH", HUB_CONNECTOR, "edge", &status),
        ("PUT", HUB_CONNECTOR, "hub", &status),
        ("PATCH", HUB_CONNECTOR, "hub", &json!({ "spec": {} })),
        ("PATCH", HUB_CONNECTOR, "hub", &json!({ "metadata": { "labels": { "a": "b" } } })),
        ("DELETE", HUB_CONNECTOR, "hub", &Value::Null),
        ("POST", ROUTE, "hub", &json!({})),
        ("DELETE", ROUTE, "project", &Value::Null),
        ("DELETE", GATEWAY, "edge", &Value::Null),
        ("PATCH", GATEWAY, "hub", &annotated(TRIGGER, "0-1-0")),
    ] {
        let trace = Trace::new().leads(1).sends((1, method, path), cluster, body, 200);
        trace.assert("outside the contract");
    }
}

#[test]
fn an_event_log_that_leads_to_other_actions_is_rejected() {
    let plan = Plan { faults: Vec::new(), lasts_s: 2, ..Plan::from_seed(1) };
    let log = String::from_utf8(simulate(&plan).logs.remove(0)).unwrap();
    let is_right = |log: &str| verify_log("it", log.as_bytes()).is_empty();
    assert!(is_right(&log));
    let action = log.lines().find(|line| line.contains("\"action\":{")).unwrap();
    assert!(!is_right(&log.replacen(&format!("{action}\n"), "", 1)), "an action is missing");
    let other = action.replace("\"type\":\"", "\"type\":\"x");
    assert!(!is_right(&log.replacen(action, &other, 1)), "an action is another one");
}

#[test]
fn at_the_end_nothing_is_late_open_or_wrong() {
    let ago = |seconds| Some(Duration::from_secs(seconds));
    let right = AtRest { last_write: ago(31), ..AtRest::default() };
    assert_eq!(right.broken(QUIET_FOR), Vec::<String>::new());
    assert!(AtRest::default().broken(QUIET_FOR).is_empty(), "nothing was ever written");
    let open = |seconds| vec![(Duration::from_secs(seconds), "a touch".to_owned())];
    let words = |words: &str| vec![words.to_owned()];
    for (broken, how) in [
        (AtRest { deviations: words("edge-0: stale"), ..right.clone() }, "later edge-0: stale"),
        (AtRest { last_write: ago(29), ..right.clone() }, "a write 29 s before the end"),
        (AtRest { left: words("hub: 9 watches are left"), ..right.clone() }, "9 watches are left"),
        (AtRest { open: open(1), ..right.clone() }, "a touch has no outcome"),
    ] {
        let broken = broken.broken(QUIET_FOR);
        assert!(broken.len() == 1 && broken[0].contains(how), "{how}: {broken:?}");
    }
    assert!(AtRest { open: open(14), ..right.clone() }.late_outcomes().is_empty());
    assert_eq!(AtRest { open: open(16), ..right }.late_outcomes().len(), 1);
}

#[tokio::test]
async fn memory_that_is_not_given_back_is_rejected() {
    const KEPT: usize = 1 << 20;
    let computer = Arc::new(Computer::new(1, 0, Random::new(1), None));
    let kept = vec![0_u8; KEPT];
    let holds = async move {
        std::future::pending::<()>().await;
        drop(kept);
    };
    let task = tokio::spawn(within(computer.clone(), holds));
    tokio::task::yield_now().await;
    assert_eq!(computer.released(), 0);
    task.abort();
    assert!(task.await.is_err());
    let (held, kept) = (computer.released(), i64::try_from(KEPT).unwrap());
    assert!((kept..kept + 4_096).contains(&held), "{held}");
    assert!(grown("it", held, kept / 5).is_some());
    assert_eq!(grown("it", held, kept * 3 / 5), None);
}

fn mirror(id: u64, kind: &str, name: &str) -> Action {
    let action = json!({ "id": id, "type": "mirror", "cluster": "hub", "kind": kind,
        "namespace": "n", "name": name });
    serde_json::from_value(action).unwrap()
}

#[test]
fn an_action_that_a_newer_one_replaced_and_that_has_no_outcome_is_rejected() {
    const FORGOTTEN: &str = "has no outcome, and a newer one has";
    let (replaced, applied) = (|| Outcome::Superseded, || Outcome::Unchanged);
    for (older, ends, how) in [
        ("c", vec![(1, replaced()), (2, applied())], ""),
        ("d", vec![(2, applied())], ""),
        // The first one may be under way when the leadership is lost, which drops the second one at once.
        ("c", vec![(2, Outcome::Dropped), (1, replaced())], ""),
        ("c", vec![(2, applied())], FORGOTTEN),
        ("c", vec![(2, applied()), (1, replaced())], FORGOTTEN),
    ] {
        let mut tape = Tape::default();
        tape.decided(mirror(1, "Connector", older));
        tape.decided(mirror(2, "Connector", "c"));
        ends.iter().for_each(|(id, outcome)| tape.finished(ActionId(*id), outcome));
        let forgotten = tape.forgotten.iter();
        let trace = forgotten.fold(Trace::new(), |trace, action| {
            trace.does(|oracle, _| oracle.forgotten(1, action))
        });
        trace.assert(how);
    }
}

#[test]
fn a_write_that_an_instance_sends_when_it_knows_that_it_does_not_lead_is_rejected() {
    let began = Instant::now();
    let after = |ms| began + Duration::from_millis(ms);
    // It leads from 1 s to 5 s, and from 7 s on.
    let leadership =
        [(1_000, true), (5_000, false), (7_000, true)].map(|(ms, leads)| (after(ms), leads));
    let sent = |ms, path: &str| {
        let (at, host, path) = (after(ms), "hub".to_owned(), path.to_owned());
        let write = SentWrite { at, client: 1, host, path };
        Trace::new().does(|oracle, _| oracle.sent(&write, &leadership))
    };
    for path in [HUB_CONNECTOR, ROUTE] {
        for right in [995, 1_000, 4_999, 5_000, 5_010, 6_990, 7_000, 60_000] {
            sent(right, path).assert("");
        }
        for wrong in [500, 5_030, 6_000, 6_970] {
            sent(wrong, path).assert("does not lead, as it knows itself");
        }
    }
    sent(6_000, LEASE).assert("");
}

#[test]
fn a_world_that_says_something_else_than_upstream_is_rejected() {
    let plan = Plan { upstreams: 2, edges: 2, connectors: 3, ..Plan::from_seed(1) };
    let as_it_is = |_: &mut _| ();
    let report = simulate_with(&plan, as_it_is, async |stage: &mut Stage| {
        assert!(!stage.world.deviations().is_empty(), "nobody has mirrored anything");
        stage.becomes_right().await;
        // Nobody mends what is wrong from now on.
        stage.instances.iter().for_each(Instance::kill);
        let world = &stage.world;
        assert_eq!(world.deviations(), Vec::<String>::new());
        for cluster in [&world.names.hub, &world.names.edges[1]] {
            let write = |value| {
                let at = (UPSTREAM_STATUS, value);
                world.annotate(cluster, Kind::Connector, &world.hub_key(1), at);
                world.deviations()
            };
            for value in [None, Some("{}"), Some("no JSON")] {
                assert_eq!(write(value).len(), 1, "{value:?} in {cluster}");
            }
            assert_eq!(write(Some(&world.connectors[1].status().to_string())).len(), 0);
        }
        stage.world.flip(0);
        let world = &stage.world;
        assert!(world.deviations().len() >= 3, "{:?}", world.deviations());
        let status = world.connectors[0].status().to_string();
        for cluster in std::iter::once(&world.names.hub).chain(&world.names.edges) {
            let at = (UPSTREAM_STATUS, Some(status.as_str()));
            world.annotate(cluster, Kind::Connector, &world.hub_key(0), at);
        }
        stage.pass(Duration::from_secs(2)).await;
        // Envoy answers as before as long as no Gateway is touched.
        let deviations = stage.world.deviations();
        assert!(!deviations.is_empty());
        assert!(deviations.iter().all(|what| what.contains("Envoy answers")), "{deviations:?}");
    });
    assert_right(&report);
}
