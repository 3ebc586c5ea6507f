//! The oracle's own test: for each thing that must hold, a run that breaks it, which is rejected, and
//! right ones, which are accepted.

mod own_account;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::data::ids::{ClusterName, ObjectKey};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::environment::within;
use tokio::time::{Instant, advance};

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

/// Requests by hand.
struct Trace(Oracle);

impl Trace {
    /// The upstream Connector says 1, 2 and 3, in this order.
    fn new() -> Self {
        let mut oracle = Oracle::new(&ClusterName::from("hub"));
        (1..=3).for_each(|n| oracle.upstream_says(&ObjectKey::new("n", "c"), &json!(n)));
        Self(oracle)
    }

    /// Instance 1 leads.
    fn led() -> Self {
        Self::new().holds_lease(1)
    }

    fn write_in(
        mut self,
        cluster: &str,
        (client, method, path): (u32, &str, &str),
        body: &Value,
    ) -> Self {
        let (at, is_hub, cluster) = (Instant::now(), cluster == "hub", &ClusterName::from(cluster));
        self.0.judge(&Write { at, client, cluster, is_hub, method, path, body });
        self
    }

    /// A write that an API server refuses.
    fn refused_write(mut self, client: u32, method: &str, path: &str) -> Self {
        let (at, cluster, body) = (Instant::now(), &ClusterName::from("hub"), &Value::Null);
        self.0.tried(&Write { at, client, cluster, is_hub: true, method, path, body });
        self
    }

    fn write(self, client: u32, method: &str, path: &str, body: &Value) -> Self {
        let cluster = if path == GATEWAY { "edge" } else { "hub" };
        self.write_in(cluster, (client, method, path), body)
    }

    fn holds_lease(self, client: u32) -> Self {
        let body = json!({ "spec": { "holderIdentity": format!("instance-{client}") } });
        self.write(client, "PUT", LEASE, &body)
    }

    fn mirrors(self, client: u32, value: Value) -> Self {
        self.write(client, "PATCH", HUB_CONNECTOR, &annotated(UPSTREAM_STATUS, value))
    }

    fn deletes_route(self) -> Self {
        let preconditions = json!({ "uid": "u", "resourceVersion": "1" });
        self.write(1, "DELETE", ROUTE, &json!({ "preconditions": preconditions }))
    }

    fn removes(self) -> Self {
        let orphan = HUB_CONNECTOR.replace("/connectors/c", "/connectors/orphan");
        self.write(1, "PATCH", &orphan, &annotated(UPSTREAM_STATUS, Value::Null))
    }

    #[track_caller]
    fn assert_right(self) -> Self {
        assert_eq!(self.0.broken, Vec::<String>::new());
        self
    }

    #[track_caller]
    fn assert_broken(self, how: &str) {
        assert_eq!(self.0.broken.len(), 1, "{:?}", self.0.broken);
        assert!(self.0.broken[0].contains(how), "{:?}", self.0.broken);
    }
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    let annotations = json!({ key: value.into() });
    json!({ "metadata": { "uid": "u", "resourceVersion": "1", "annotations": annotations } })
}

/// A JSON Patch that sets an annotation.
fn patch(tests: &[&str], key: &str) -> Value {
    let test = |path: &&str| json!({ "op": "test", "path": path, "value": "x" });
    let mut operations: Vec<_> = tests.iter().map(test).collect();
    let at = format!("/metadata/annotations/{}", key.replace('/', "~1"));
    operations.push(json!({ "op": "add", "path": at, "value": "0-1-0" }));
    operations.into()
}

#[tokio::test(start_paused = true)]
async fn a_write_that_does_not_name_what_it_replaces_is_rejected() {
    let (uid, trigger) = ("/metadata/uid", "/metadata/annotations/x");
    let touches = |tests: &[&str]| Trace::new().write(1, "PATCH", GATEWAY, &patch(tests, TRIGGER));
    touches(&[uid, trigger]).assert_right();
    touches(&[trigger]).assert_broken("does not name what it replaces");
    touches(&[uid]).assert_broken("does not name what it replaces");
    for part in ["uid", "resourceVersion"] {
        let mut mirror = annotated(UPSTREAM_STATUS, "1");
        mirror["metadata"].as_object_mut().unwrap().remove(part);
        let trace = Trace::led().write(1, "PATCH", HUB_CONNECTOR, &mirror);
        trace.assert_broken("does not name what it replaces");
        let delete = json!({ "preconditions": { part: "1" } });
        let trace = Trace::led().write(1, "DELETE", ROUTE, &delete);
        trace.assert_broken("does not name what it replaces");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_writes_what_upstream_says() {
    let trace = Trace::led().mirrors(1, json!("1")).mirrors(1, json!("2"));
    let nudge = annotated("networking.datumapis.com/upstream-status-nudge", "1");
    trace.write(1, "PATCH", HUB_CONNECTOR, &nudge).removes().deletes_route().assert_right();
}

#[tokio::test(start_paused = true)]
async fn a_mirror_without_the_lease_is_rejected() {
    Trace::new().mirrors(1, json!("1")).assert_broken("without ever having held the Lease");
}

#[tokio::test(start_paused = true)]
async fn writes_of_two_leaders_in_force_at_once_are_rejected() {
    let trace = Trace::led().mirrors(1, json!("1")).holds_lease(1).mirrors(1, json!("2"));
    let trace = trace.holds_lease(2).mirrors(2, json!("1")).assert_right();
    trace.mirrors(1, json!("3")).assert_broken("after another instance led and wrote");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_leads_again_may_write_again() {
    let trace = Trace::led().mirrors(1, json!("1")).holds_lease(2).mirrors(2, json!("2"));
    trace.holds_lease(1).mirrors(1, json!("3")).assert_right();
}

#[tokio::test(start_paused = true)]
async fn a_write_after_the_lease_expired_is_rejected() {
    let trace = Trace::led();
    advance(Duration::from_secs(14)).await;
    let trace = trace.mirrors(1, json!("1")).assert_right().holds_lease(1);
    advance(Duration::from_secs(14)).await;
    let trace = trace.mirrors(1, json!("2")).assert_right();
    advance(Duration::from_secs(2)).await;
    trace.mirrors(1, json!("3")).assert_broken("after its Lease expired or was released");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_needs_the_lease_just_so() {
    for (method, path) in [("PATCH", HUB_CONNECTOR), ("DELETE", ROUTE)] {
        let trace = Trace::led().refused_write(1, method, path).assert_right();
        trace.refused_write(2, method, path).assert_broken("without ever having held the Lease");
        let trace = Trace::led();
        advance(Duration::from_secs(16)).await;
        trace.refused_write(1, method, path).assert_broken("after its Lease expired");
        let trace = Trace::led().holds_lease(2).refused_write(1, method, path).assert_right();
        let trace = trace.mirrors(2, json!("1"));
        trace.refused_write(1, method, path).assert_broken("after another instance led and wrote");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_under_way_while_the_process_stood_still_is_accepted_and_no_more() {
    let mut trace = Trace::led().holds_lease(2).mirrors(2, json!("1"));
    trace.0.thawed(1);
    let trace = trace.mirrors(1, json!("2")).assert_right();
    advance(Duration::from_millis(30)).await;
    trace.mirrors(1, json!("3")).assert_broken("after another instance led and wrote");
}

#[tokio::test(start_paused = true)]
async fn a_write_after_the_lease_was_released_is_rejected() {
    let released = json!({ "spec": { "holderIdentity": "" } });
    let trace = Trace::led().mirrors(1, json!("1")).write(1, "PUT", LEASE, &released);
    trace.assert_right().mirrors(1, json!("2")).assert_broken("expired or was released");
}

#[tokio::test(start_paused = true)]
async fn writes_outside_the_contract_are_rejected() {
    let outside = |method: &str, path: &str, cluster: &str, body: &Value| {
        let trace = Trace::led().write_in(cluster, (1, method, path), body);
        trace.assert_broken("outside the contract");
    };
    let status = annotated(UPSTREAM_STATUS, "1");
    outside("PATCH", HUB_CONNECTOR, "project", &status);
    outside("PATCH", HUB_CONNECTOR, "edge", &status);
    outside("PUT", HUB_CONNECTOR, "hub", &status);
    outside("PATCH", HUB_CONNECTOR, "hub", &json!({ "spec": {} }));
    outside("PATCH", HUB_CONNECTOR, "hub", &json!({ "metadata": { "labels": { "a": "b" } } }));
    outside("DELETE", HUB_CONNECTOR, "hub", &Value::Null);
    outside("POST", ROUTE, "hub", &json!({}));
    outside("DELETE", ROUTE, "project", &Value::Null);
    outside("DELETE", GATEWAY, "edge", &Value::Null);
    outside("PATCH", GATEWAY, "hub", &annotated(TRIGGER, "0-1-0"));
}

#[tokio::test(start_paused = true)]
async fn other_annotations_are_rejected() {
    let other = annotated("karmada.io/x", "x");
    Trace::led().write(1, "PATCH", HUB_CONNECTOR, &other).assert_broken("another annotation");
    let tests = ["/metadata/uid", "/metadata/annotations/x"];
    let operations = patch(&tests, "networking.datumapis.com/other");
    Trace::led().write(1, "PATCH", HUB_CONNECTOR, &operations).assert_broken("another annotation");
    let no_trigger = annotated(TRIGGER, "x");
    Trace::led().write(1, "PATCH", GATEWAY, &no_trigger).assert_broken("writes no trigger");
    let trigger = annotated(TRIGGER, "0-1-0");
    Trace::new().write(7, "PATCH", GATEWAY, &trigger).assert_right();
}

#[tokio::test(start_paused = true)]
async fn a_mirror_of_what_upstream_never_said_is_rejected() {
    Trace::led().mirrors(1, json!("4")).assert_broken("never said");
    Trace::led().mirrors(1, json!("no JSON")).assert_broken("never said");
}

#[tokio::test(start_paused = true)]
async fn a_removal_of_what_upstream_has_is_rejected() {
    Trace::led().mirrors(1, Value::Null).assert_broken("removes what an upstream Connector says");
}

#[tokio::test(start_paused = true)]
async fn more_than_ten_removals_a_minute_are_rejected() {
    let ten = |trace| (0..10).fold(trace, |trace: Trace, _| trace.removes());
    let trace = ten(Trace::led()).assert_right();
    advance(Duration::from_secs(61)).await;
    ten(trace.holds_lease(1)).assert_right().removes().assert_broken("11 removals within a minute");
}

#[tokio::test(start_paused = true)]
async fn more_than_ten_deletes_a_minute_are_rejected() {
    let ten = |trace| (0..10).fold(trace, |trace: Trace, _| trace.deletes_route());
    let trace = ten(Trace::led()).assert_right();
    advance(Duration::from_secs(61)).await;
    let trace = ten(trace.holds_lease(1)).assert_right();
    trace.deletes_route().assert_broken("11 deletes within a minute");
}

#[tokio::test(start_paused = true)]
async fn a_trigger_value_that_a_gateway_had_before_is_rejected() {
    let mut oracle = Oracle::new(&ClusterName::from("hub"));
    let edge = ClusterName::from("edge");
    for (gateway, value) in [("g", "1-1-0"), ("g", "1-2-1"), ("h", "1-1-0")] {
        oracle.trigger_stored(&edge, gateway, value);
    }
    let mut oracle = Trace(oracle).assert_right().0;
    oracle.trigger_stored(&edge, "g", "1-1-0");
    Trace(oracle).assert_broken("1-1-0 again");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_asks_without_a_pause_is_rejected() {
    let (mut oracle, edge) = (Oracle::new(&ClusterName::from("hub")), ClusterName::from("edge"));
    for _ in 0..30 {
        for _ in 0..13 {
            oracle.asked(1, &edge, GATEWAY);
        }
        oracle.asked(2, &edge, GATEWAY);
        advance(Duration::from_secs(1)).await;
    }
    let mut oracle = Trace(oracle).assert_right().0;
    (0..40).for_each(|_| oracle.asked(1, &edge, GATEWAY));
    Trace(oracle).assert_broken("more than 150 requests");
}

#[test]
fn an_event_log_that_leads_to_other_actions_is_rejected() {
    let plan = Plan { faults: Vec::new(), lasts: Duration::from_secs(2), ..Plan::from_seed(1) };
    let log = String::from_utf8(simulate(&plan).logs.remove(0)).unwrap();
    assert_eq!(verify_log("it", log.as_bytes()), Vec::<String>::new());
    let action = log.lines().find(|line| line.contains("\"action\":{")).unwrap();
    let without = log.replacen(&format!("{action}\n"), "", 1);
    assert!(!verify_log("it", without.as_bytes()).is_empty(), "an action is missing");
    let other = log.replacen(action, &action.replace("\"type\":\"", "\"type\":\"x"), 1);
    assert!(!verify_log("it", other.as_bytes()).is_empty(), "an action is another one");
    let shows_connector = |line: &str| {
        ["\"listed\"", "\"applied\""].iter().any(|event| line.contains(event))
            && line.contains("\"Connector\"")
    };
    let is_other = |line: &&str| !shows_connector(line);
    let without: String = log.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
    assert!(!verify_log("it", without.as_bytes()).is_empty(), "events are missing");
}

#[test]
fn at_the_end_nothing_is_late_open_or_wrong() {
    let ago = |seconds| Some(Duration::from_secs(seconds));
    let right = AtRest { last_write: ago(31), ..AtRest::default() };
    assert_eq!(right.broken(QUIET_FOR), Vec::<String>::new());
    assert_eq!(
        AtRest::default().broken(QUIET_FOR),
        Vec::<String>::new(),
        "nothing was ever written"
    );
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
        assert_eq!(broken.broken(QUIET_FOR).len(), 1, "{:?}", broken.broken(QUIET_FOR));
        assert!(broken.broken(QUIET_FOR)[0].contains(how), "{:?}", broken.broken(QUIET_FOR));
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
