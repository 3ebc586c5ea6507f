//! One write and its outcome: what each answer proves, and the precondition that is an annotation.

use std::time::Duration;

use serde_json::{Value, json};
use throughline::apply::{self, Applier};
use throughline::core::contract::action::{Action, AnnotationBefore, Verb};
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{Kind, NamespacedName};
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, ServerMode, SimApiServerSettings};

use crate::cluster::{client_at, write};
use crate::sim_apiserver::{TestServer, serve};
use crate::stage::{STATUS as KEY, object, with};

/// A cluster with the Gateway `a`.
struct Bench {
    served: TestServer,
    applier: Applier,
}

impl Bench {
    async fn new(timeout: Duration) -> Self {
        let served = serve(SimApiServerSettings::default()).await;
        served.put(object("Gateway", "n", "a"));
        let one = client_at("one", &served.handle.url());
        Self { served, applier: Applier::new([one].into_iter().collect(), timeout, None) }
    }

    async fn apply(&self, action: &Action) -> Outcome {
        let done = self.applier.apply(action, || true).await;
        done.unwrap_or_else(|error| apply::outcome(&error))
    }

    /// An annotation of `a`.
    fn annotation(&self, kind: Kind, key: &str) -> Option<String> {
        let sim = self.served.sim.lock().unwrap();
        let object = sim.get(&self.served.cluster, kind, &NamespacedName::new("n", "a")).unwrap();
        object.meta.annotations.get(key).map(str::to_owned)
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// What fails is left to the machine, which decides again on what it sees by then. A Status with code 200 is
/// no success, and a write without an answer may have been done.
#[tokio::test]
async fn an_action_is_attempted_once_and_done_only_if_its_answer_proves_it() {
    let touch = write(Verb::Touch, Kind::Gateway, "a");
    let bench = Bench::new(PATIENCE).await;
    for (code, executes, name) in [
        (503, false, "failed"),
        (429, false, "failed"),
        (500, false, "failed"),
        (403, false, "refused"),
        (422, false, "refused"),
        (409, false, "conflict"),
        (404, false, "not_found"),
        (200, false, "refused"),
        (504, true, "failed"),
    ] {
        let before = bench.served.handle.writes();
        let fault = Fault { executes, ..Fault::on_writes(code) };
        bench.served.handle.inject(&fault, 1);
        assert_eq!(bench.apply(&touch).await.name(), name, "{code}");
        assert_eq!(bench.served.handle.writes() - before, 1, "{code}");
        assert_eq!(bench.annotation(Kind::Gateway, "k").is_some(), executes, "{code}");
    }
    // A pause of a day is cut.
    bench.served.handle.inject(&Fault::on_writes(429).retry_after(86_400), 1);
    let outcome = bench.apply(&touch).await;
    let Outcome::Failed { retry_after_ms, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(retry_after_ms, Some(30_000));

    let bench = Bench::new(Duration::from_millis(200)).await;
    bench.served.handle.set_mode(ServerMode::Frozen);
    let outcome = bench.apply(&touch).await;
    let Outcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("within 200 ms"), "{error}");
    bench.served.handle.set_mode(ServerMode::Down);
    assert_eq!(bench.apply(&touch).await.name(), "failed");
}

/// A mirror of the hub Connector with the uid `u-a`, as long as its annotation is the old one.
fn mirror(before: Option<&str>, value: Option<&str>) -> Action {
    let mut mirror = write(Verb::Mirror, Kind::Connector, "a");
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
    let metadata = json!({"metadata": {"annotations": annotations}});
    bench.served.put(with(object("Connector", "n", "a"), metadata));
    let outcome = bench.apply(mirror).await;
    let patches = bench.served.handle.requests()[&(ApiVerb::Patch, Resource::Connectors)];
    (outcome, bench.annotation(Kind::Connector, KEY), patches)
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
    nowhere.object = NamespacedName::new("n", "nowhere");
    assert_eq!(mirrored(&old, &nowhere).await.0, Outcome::NotFound);
}
