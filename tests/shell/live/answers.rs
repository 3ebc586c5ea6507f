//! One write and its outcome: what each answer proves, and the precondition that is an annotation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::apply::{self, Applier};
use throughline::core::contract::action::{Action, AnnotationBefore, Verb};
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::core::data::objects::Object;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, ServerMode, SimApiServerSettings};

use crate::cluster::{Kubeconfig, write};
use crate::live::cluster;
use crate::sim_apiserver::{TestServer, serve};

const KEY: &str = "networking.datumapis.com/upstream-status";

/// A cluster with the Gateways `a` and `b`.
struct Bench {
    served: TestServer,
    applier: Applier,
    _kubeconfig: Kubeconfig,
}

impl Bench {
    async fn new(timeout: Duration) -> Self {
        let served = serve(SimApiServerSettings::default()).await;
        for name in ["a", "b"] {
            served.put(json!({"kind": "Gateway", "metadata": {"namespace": "n", "name": name}}));
        }
        let kubeconfig = Kubeconfig::of(&served);
        let clusters = [(served.cluster.clone(), cluster(&served, &kubeconfig))].into();
        Self { served, applier: Applier::new(clusters, timeout), _kubeconfig: kubeconfig }
    }

    async fn apply(&self, action: &Action) -> Outcome {
        let done = self.applier.apply(action, || true).await;
        done.unwrap_or_else(|error| apply::outcome(&error))
    }

    fn object(&self, kind: Kind, name: &str) -> Arc<Object> {
        let sim = self.served.sim.lock().unwrap();
        sim.get(&self.served.cluster, kind, &ObjectKey::new("n", name)).unwrap().clone()
    }

    fn value(&self, name: &str) -> Option<String> {
        self.object(Kind::Gateway, name).meta.annotations.get("k").map(str::to_owned)
    }

    /// A touch as long as the object is as it is now.
    fn touch_now(&self, name: &str, value: &str) -> Action {
        let (object, mut touch) = (self.object(Kind::Gateway, name), touch(name, value));
        touch.precondition.uid = Some(object.meta.uid.to_string());
        touch.precondition.resource_version = Some(object.meta.resource_version.to_string());
        touch
    }
}

fn touch(name: &str, value: &str) -> Action {
    let annotations = vec![("k".into(), Some(value.into()))];
    Action { annotations, ..write(1, Verb::Touch, Kind::Gateway, name) }
}

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_write_returns_the_new_resource_version_and_one_on_an_old_version_is_a_conflict() {
    let bench = Bench::new(PATIENCE).await;
    let outcome = bench.apply(&bench.touch_now("a", "1")).await;
    let version = bench.object(Kind::Gateway, "a").meta.resource_version.to_string();
    assert_eq!(outcome, Outcome::Applied { resource_version: Some(version) });
    let old = bench.touch_now("a", "2");
    assert_eq!(bench.apply(&bench.touch_now("a", "1")).await, Outcome::Unchanged);
    assert_eq!(bench.served.handle.writes(), 2);
    bench.apply(&touch("a", "3")).await;
    assert_eq!(bench.apply(&old).await.name(), "conflict");
    assert_eq!(bench.value("a").as_deref(), Some("3"));
}

/// What fails is left to the machine, which decides again on what it sees by then.
#[tokio::test]
async fn an_action_is_attempted_once_whatever_the_answer() {
    let bench = Bench::new(PATIENCE).await;
    for (code, name) in [
        (503, "failed"),
        (429, "failed"),
        (500, "failed"),
        (403, "refused"),
        (422, "refused"),
        (409, "conflict"),
        (404, "not_found"),
    ] {
        let before = bench.served.handle.writes();
        bench.served.handle.inject(&Fault::on_writes(code), 1);
        assert_eq!(bench.apply(&touch("a", "1")).await.name(), name, "{code}");
        assert_eq!(bench.served.handle.writes() - before, 1, "{code}");
    }
    assert_eq!(bench.value("a"), None);
    // A pause of a day is cut.
    bench.served.handle.inject(&Fault::on_writes(429).retry_after(86_400), 1);
    let outcome = bench.apply(&touch("a", "1")).await;
    let Outcome::Failed { retry_after_ms, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(retry_after_ms, Some(30_000));
}

#[tokio::test]
async fn a_write_without_an_answer_fails_and_may_have_been_done() {
    let bench = Bench::new(PATIENCE).await;
    bench.served.handle.inject(&Fault::on_writes(504).but_executed(), 1);
    let outcome = bench.apply(&bench.touch_now("a", "1")).await;
    assert_eq!((outcome.name(), bench.value("a").as_deref()), ("failed", Some("1")));
    let bench = Bench::new(Duration::from_millis(200)).await;
    bench.served.handle.set_mode(ServerMode::Frozen);
    let outcome = bench.apply(&touch("b", "2")).await;
    let Outcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("within 200 ms"), "{error}");
    bench.served.handle.set_mode(ServerMode::Down);
    assert_eq!(bench.apply(&touch("b", "3")).await.name(), "failed");
}

/// 200, and nothing is done.
#[tokio::test]
async fn a_status_with_code_200_is_no_success_either() {
    let bench = Bench::new(PATIENCE).await;
    bench.served.handle.inject(&Fault::on_writes(200), 1);
    assert_eq!(bench.apply(&touch("a", "1")).await.name(), "refused");
    assert_eq!(bench.apply(&touch("a", "1")).await.name(), "applied");
}

/// A mirror of the hub Connector with the uid `u-a`, as long as its annotation is the old one.
fn mirror(before: Option<&str>, value: Option<&str>) -> Action {
    let mut mirror = write(1, Verb::Mirror, Kind::Connector, "a");
    mirror.annotations = vec![(KEY.to_owned(), value.map(str::to_owned))];
    mirror.precondition.uid = Some("u-a".to_owned());
    let value = before.map(str::to_owned);
    let before = AnnotationBefore { key: KEY.to_owned(), value, no_annotations: false };
    mirror.precondition.annotation = Some(Box::new(before));
    mirror
}

/// The outcome for a hub Connector with these annotations; its annotation afterwards, and how many
/// requests that took.
async fn mirrored(annotations: &Value, mirror: &Action) -> (Outcome, Option<String>, u64) {
    let bench = Bench::new(PATIENCE).await;
    let metadata = json!({"namespace": "n", "name": "a", "uid": "u-a", "annotations": annotations});
    bench.served.put(json!({"kind": "Connector", "metadata": metadata}));
    let outcome = bench.apply(mirror).await;
    let patches = bench.served.handle.requests()[&(ApiVerb::Patch, Resource::Connectors)];
    let stored = bench.object(Kind::Connector, "a").meta.annotations.get(KEY).map(str::to_owned);
    (outcome, stored, patches)
}

#[tokio::test]
async fn a_write_that_asks_for_the_old_annotation_overwrites_no_other() {
    for (annotations, before, expected, patches) in [
        (json!({KEY: "old", "busy": "7"}), Some("old"), "applied", 1),
        (json!({KEY: "newer"}), Some("old"), "conflict", 1),
        (json!({"busy": "7"}), Some("old"), "conflict", 1),
        (json!({}), Some("old"), "conflict", 1),
        (json!({"busy": "7"}), None, "applied", 1),
        // Whether an object has annotations at all takes a request of its own to find out.
        (json!({}), None, "applied", 2),
        (json!({KEY: "newer"}), None, "conflict", 2),
    ] {
        let (outcome, stored, sent) = mirrored(&annotations, &mirror(before, Some("new"))).await;
        let told = format!("{annotations} before: {before:?}: {outcome:?}");
        assert_eq!((outcome.name(), sent), (expected, patches), "{told}");
        let untouched = annotations[KEY].as_str();
        let wanted = if expected == "applied" { Some("new") } else { untouched };
        assert_eq!(stored.as_deref(), wanted, "{told}");
    }
    let old = json!({KEY: "old"});
    let (outcome, stored, _) = mirrored(&old, &mirror(Some("old"), None)).await;
    assert_eq!((outcome.name(), stored), ("applied", None));

    let mut of_another = mirror(Some("old"), Some("new"));
    of_another.precondition.uid = Some("u-old".to_owned());
    assert_eq!(mirrored(&old, &of_another).await.0.name(), "conflict");
    // What is wrong with the result is no conflict.
    let too_long = mirror(Some("old"), Some(&"x".repeat(300_000)));
    assert_eq!(mirrored(&old, &too_long).await.0.name(), "refused");
    let mut nowhere = mirror(Some("old"), Some("new"));
    nowhere.object = ObjectKey::new("n", "nowhere");
    assert_eq!(mirrored(&old, &nowhere).await.0, Outcome::NotFound);
}
