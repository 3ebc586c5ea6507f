//! The executor: order, superseding, one attempt, preconditions, outcomes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use throughline::apply::Applier;
use throughline::core::contract::action::{Action, Decision, Precondition, Urgency, Verb};
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey};
use throughline::core::data::time::UnixMillis;
use throughline::executor::ExecutorConstants;
use throughline::executor::{Executor, FinishedAction};
use throughline::fleet::ClusterTable;
use throughline::leader::gate::Gate;
use throughline::metrics::Metrics;
use throughline_sim::apiserver::{Fault, ServerMode, SimApiServerSettings};

use crate::live::{Kubeconfig, cluster};
use crate::sim_apiserver::{TestServer, serve};

struct Bench {
    served: TestServer,
    executor: Executor,
    _kubeconfig: Kubeconfig,
}

async fn bench(config: ExecutorConstants) -> Bench {
    let served = serve(SimApiServerSettings::default()).await;
    for name in ["a", "b", "c"] {
        let metadata = json!({"namespace": "n", "name": name});
        served.put(json!({"kind": "Gateway", "metadata": metadata}));
    }
    let kubeconfig = Kubeconfig::of(&served);
    let clusters = [(served.cluster.clone(), cluster(&served, &kubeconfig))].into();
    let applier = Applier::new(clusters, Duration::from_millis(config.timeout_ms));
    let metrics = Arc::new(Metrics::new());
    let executor = Executor::new(applier, Gate::always_open(), config, false, metrics);
    Bench { served, executor, _kubeconfig: kubeconfig }
}

fn touch(id: u64, name: &str, value: &str) -> Decision {
    let action = Action {
        id: ActionId(id),
        verb: Verb::Touch,
        cluster: ClusterName::from("one"),
        kind: Kind::Gateway,
        object: ObjectKey::new("n", name),
        annotations: vec![("k".into(), Some(value.into()))],
        precondition: Precondition::default(),
        connectors: Vec::new(),
    };
    Decision {
        at: UnixMillis(1),
        urgency: Urgency::of(action.verb),
        action,
        because: "of a test".into(),
    }
}

/// Actions queued and in flight.
fn load(bench: &Bench) -> (usize, usize) {
    (bench.executor.queued(), bench.executor.in_flight())
}

impl Bench {
    fn object(&self, name: &str) -> Option<Arc<throughline::core::data::objects::Object>> {
        let clusters = self.served.sim.lock().unwrap();
        clusters.get(&self.served.cluster, Kind::Gateway, &ObjectKey::new("n", name)).cloned()
    }

    fn value(&self, name: &str) -> Option<String> {
        self.object(name)?.meta.annotations.get("k").map(str::to_owned)
    }

    async fn run(&mut self, decision: Decision) -> FinishedAction {
        self.executor.submit(decision);
        self.executor.next_finished().await
    }

    /// Adds preconditions that hold for the object as it is now.
    fn with_preconditions(&self, mut decision: Decision) -> Decision {
        let object = self.object(&decision.action.object.name).unwrap();
        decision.action.precondition.uid = Some(object.meta.uid.to_string());
        decision.action.precondition.resource_version =
            Some(object.meta.resource_version.to_string());
        decision
    }
}

#[tokio::test]
async fn a_write_returns_the_new_resource_version() {
    let mut bench = bench(ExecutorConstants::default()).await;
    let finished = bench.run(bench.with_preconditions(touch(1, "a", "1"))).await;
    let version = bench.object("a").unwrap().meta.resource_version.to_string();
    assert_eq!(finished.outcome, Outcome::Applied { resource_version: Some(version) });
    assert_eq!(bench.value("a").as_deref(), Some("1"));
    let again = bench.run(bench.with_preconditions(touch(2, "a", "1"))).await;
    assert_eq!(again.outcome, Outcome::Unchanged);
    assert_eq!(bench.served.handle.writes(), 2);
}

#[tokio::test]
async fn a_changed_a_replaced_and_a_missing_object_have_different_outcomes() {
    let mut bench = bench(ExecutorConstants::default()).await;
    let old = bench.with_preconditions(touch(1, "a", "old"));
    bench.run(touch(2, "a", "new")).await;
    assert!(matches!(bench.run(old).await.outcome, Outcome::Conflict { .. }));
    let mut other = bench.with_preconditions(touch(3, "b", "1"));
    other.action.precondition.resource_version = None;
    other.action.precondition.uid = Some("11111111-1111-4111-8111-111111111111".into());
    let outcome = bench.run(other).await.outcome;
    assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");
    assert_eq!(bench.run(touch(4, "nowhere", "1")).await.outcome, Outcome::NotFound);
    assert_eq!(bench.value("a").as_deref(), Some("new"));
    assert_eq!(bench.value("b"), None);
}

/// What fails is left to the machine, which decides again on what it sees by then.
#[tokio::test]
async fn an_action_is_attempted_once_whatever_the_answer() {
    let mut bench = bench(ExecutorConstants::default()).await;
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
        let finished = bench.run(touch(code.into(), "a", &code.to_string())).await;
        assert_eq!(finished.outcome.name(), name, "{code}");
        assert_eq!(bench.served.handle.writes() - before, 1, "{code}");
        assert!(!bench.executor.is_busy());
    }
    assert_eq!(bench.value("a"), None);
}

#[tokio::test]
async fn a_write_without_an_answer_fails_and_may_have_been_done() {
    let config = ExecutorConstants { timeout_ms: 200, ..Default::default() };
    let mut bench = bench(config).await;
    bench.served.handle.inject(&Fault::on_writes(504).but_executed(), 1);
    let finished = bench.run(bench.with_preconditions(touch(1, "a", "1"))).await;
    assert_eq!((finished.outcome.name(), bench.value("a").as_deref()), ("failed", Some("1")));
    bench.served.handle.set_mode(ServerMode::Frozen);
    let finished = bench.run(touch(2, "b", "2")).await;
    match &finished.outcome {
        Outcome::Failed { error, .. } => assert!(error.contains("within 200 ms"), "{error}"),
        other => panic!("{other:?}"),
    }
    bench.served.handle.set_mode(ServerMode::Down);
    assert_eq!(bench.run(touch(3, "b", "3")).await.outcome.name(), "failed");
}

#[tokio::test]
async fn one_objects_writes_keep_their_order_and_a_newer_one_supersedes_a_queued_one() {
    let mut bench = bench(ExecutorConstants { timeout_ms: 10_000, ..Default::default() }).await;
    bench.served.handle.set_latency(Duration::from_millis(100));
    for (id, value) in [(1, "1"), (2, "2"), (3, "3")] {
        bench.executor.submit(touch(id, "a", value));
    }
    bench.executor.submit(touch(4, "b", "4"));
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        let finished = bench.executor.next_finished().await;
        outcomes.push((finished.decision.action.id.0, finished.outcome.name()));
    }
    // 2 was never sent: 1 was in flight, and 3 replaced it. b waited for neither.
    assert_eq!(outcomes[0], (2, "superseded"));
    assert_eq!(outcomes[3], (3, "applied"));
    outcomes.sort_unstable();
    assert_eq!(outcomes, [(1, "applied"), (2, "superseded"), (3, "applied"), (4, "applied")]);
    assert_eq!(bench.value("a").as_deref(), Some("3"));
    assert_eq!(bench.served.handle.writes(), 3);
}

#[tokio::test]
async fn parallel_writes_are_limited_and_queued_ones_can_be_dropped() {
    let config = ExecutorConstants { parallel: 2, timeout_ms: 10_000 };
    let mut bench = bench(config).await;
    bench.served.handle.set_latency(Duration::from_millis(50));
    bench.executor.submit(touch(1, "a", "1"));
    bench.executor.submit(touch(2, "b", "1"));
    assert_eq!(load(&bench), (0, 2));
    bench.executor.submit(touch(3, "c", "1"));
    assert_eq!(load(&bench), (1, 2));
    for _ in 0..3 {
        assert_eq!(bench.executor.next_finished().await.outcome.name(), "applied");
    }
    assert_eq!(load(&bench), (0, 0));
    bench.executor.submit(touch(4, "a", "2"));
    bench.executor.submit(touch(5, "b", "2"));
    bench.executor.submit(touch(6, "c", "2"));
    assert_eq!(bench.executor.drop_queued(), 1);
    for _ in 0..2 {
        assert_ne!(bench.executor.next_finished().await.decision.action.id, ActionId(6));
    }
    assert_eq!((load(&bench), bench.value("c").as_deref()), ((0, 0), Some("1")));
    assert!(!bench.executor.is_busy());
}

/// A loop that submits each dropped action again must still receive the event that says why.
#[tokio::test]
async fn dropped_actions_do_not_starve_the_loop() {
    let (gate, _keeper) = Gate::closed();
    let applier = Applier::new(ClusterTable::default(), Duration::from_secs(1));
    let mut executor =
        Executor::new(applier, gate, ExecutorConstants::default(), false, Arc::new(Metrics::new()));
    let (send, mut received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move { send.send(()) });
    let mut mirror = touch(1, "a", "v");
    mirror.action.verb = Verb::Mirror;
    executor.submit(mirror);
    for _ in 0..100_000 {
        tokio::select! {
            finished = executor.next_finished() => {
                assert_eq!(finished.outcome, Outcome::Dropped);
                executor.submit(finished.decision);
            }
            Some(()) = received.recv() => return,
        }
    }
    panic!("the other task had no turn");
}
