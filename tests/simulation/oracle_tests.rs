//! The oracle's own test: what must not happen is rejected, and what may happen is accepted.

mod own_account;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::data::ids::{ClusterName, ObjectKey};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::environment::within;
use tokio::time::Instant;

use crate::computer::Computer;
use crate::instance::verify_log;
use crate::oracle::{Oracle, Write};
use crate::plan::Plan;
use crate::random::Random;
use crate::rest::{AtRest, QUIET_FOR, grown};
use crate::stage::simulate;
use crate::world::TRIGGER;

const HUB_CONNECTOR: &str = "/apis/networking.datumapis.com/v1alpha1/namespaces/n/connectors/c";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/gateways/g";
const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/httproutes/r";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/throughline";
const NUDGE: &str = "networking.datumapis.com/upstream-status-nudge";

/// Requests by hand.
struct Trace {
    oracle: Oracle,
    now: Instant,
}

impl Trace {
    /// The upstream Connector says 1, 2 and 3, in this order.
    fn new() -> Self {
        let mut oracle = Oracle::new(&ClusterName::from("hub"));
        (1..=3).for_each(|n| oracle.upstream_says(&ObjectKey::new("n", "c"), &json!(n)));
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

    /// `call`: [`Oracle::judge`], or what the oracle does with other requests.
    fn sends(
        mut self,
        call: fn(&mut Oracle, &Write<'_>),
        (client, method, path): (u32, &str, &str),
        cluster: &str,
        body: &Value,
    ) -> Self {
        let (at, is_hub, cluster) = (self.now, cluster == "hub", &ClusterName::from(cluster));
        call(&mut self.oracle, &Write { at, client, cluster, is_hub, method, path, body });
        self
    }

    fn writes(self, client: u32, method: &str, path: &str, body: &Value) -> Self {
        let cluster = if path == GATEWAY { "edge" } else { "hub" };
        self.sends(Oracle::judge, (client, method, path), cluster, body)
    }

    /// A write that is refused.
    fn tries(self, client: u32, method: &str, path: &str) -> Self {
        self.sends(Oracle::tried, (client, method, path), "hub", &Value::Null)
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

    fn deletes(mut self, count: usize) -> Self {
        let preconditions = json!({ "uid": "u", "resourceVersion": "1" });
        for _ in 0..count {
            self = self.writes(1, "DELETE", ROUTE, &json!({ "preconditions": preconditions }));
        }
        self
    }

    fn removes(mut self, count: usize) -> Self {
        let orphan = HUB_CONNECTOR.replace("/connectors/c", "/connectors/orphan");
        for _ in 0..count {
            self = self.writes(1, "PATCH", &orphan, &annotated(UPSTREAM_STATUS, Value::Null));
        }
        self
    }

    fn asks(mut self, count: usize) -> Self {
        for _ in 0..count {
            self = self.sends(Oracle::asked, (1, "PATCH", GATEWAY), "edge", &Value::Null);
        }
        self
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
const NEVER_HELD: &str = "without ever having held the Lease";
const AFTER_ANOTHER: &str = "after another instance led and wrote";
const EXPIRED: &str = "after its Lease expired or was released";

type Play = fn(Trace) -> Trace;

/// What instance 1, which leads, and others do, and how that is broken.
const PLAYS: &[(&str, Play)] = &[
    ("", |t| t.mirrors(1, "1").mirrors(1, "2").removes(1).deletes(1)),
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
    ("", |t| t.leads(2).mirrors(2, "1").does(|oracle, now| oracle.thawed(1, now)).mirrors(1, "2")),
    (AFTER_ANOTHER, |t| {
        let thawed = t.leads(2).mirrors(2, "1").does(|oracle, now| oracle.thawed(1, now));
        thawed.wait(30).mirrors(1, "3")
    }),
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
    // How much is written.
    ("", |t| t.removes(10).deletes(10).wait(61_000).leads(1).removes(10).deletes(10)),
    ("11 removals within a minute", |t| t.removes(11)),
    ("11 deletes within a minute", |t| t.deletes(11)),
    ("", |t| (0..30).fold(t, |t, _| t.asks(13).wait(1_000))),
    ("more than 150 requests", |t| (0..11).fold(t, |t, _| t.asks(14).wait(900))),
    ("", |t| t.stores("g", "1-1-0").stores("g", "1-2-1").stores("h", "1-1-0")),
    ("1-1-0 again", |t| t.stores("g", "1-1-0").stores("g", "1-2-1").stores("g", "1-1-0")),
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
        leads().writes(1, "DELETE", ROUTE, &delete).assert(UNGUARDED);
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
        let trace = Trace::new().leads(1);
        let trace = trace.sends(Oracle::judge, (1, method, path), cluster, body);
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
    let shows_connector = |line: &str| {
        ["\"listed\"", "\"applied\""].iter().any(|event| line.contains(event))
            && line.contains("\"Connector\"")
    };
    let is_other = |line: &&str| !shows_connector(line);
    let without: String = log.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
    assert!(!is_right(&without), "events are missing");
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
        (AtRest { problems: words("carried"), ..right.clone() }, "still wrong: carried"),
        (AtRest { open: open(1), ..right.clone() }, "a touch has no outcome"),
        (AtRest { ended: 1, ..right.clone() }, "1 instances ended"),
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
