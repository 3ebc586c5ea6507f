//! The executor: order, superseding, retries, preconditions, fates.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use throughline::apply::Apply;
use throughline::config::ExecutorConfig;
use throughline::core::action::{Action, Decision, Precondition, Verb};
use throughline::core::event::Outcome;
use throughline::core::ids::{ActionId, ClusterName, Kind, ObjectKey};
use throughline::core::time::UnixMillis;
use throughline::executor::{Executor, Finished};
use throughline::front::{Fault, FrontSettings, Mode};
use throughline::gate::Gate;
use throughline::metrics::Metrics;

use crate::front::{Served, serve};
use crate::{Kubeconfig, cluster};

struct Bench {
    served: Served,
    executor: Executor,
    _kubeconfig: Kubeconfig,
}

fn quick() -> ExecutorConfig {
    ExecutorConfig {
        backoff_first_ms: 1,
        backoff_max_ms: 20,
        timeout_ms: 500,
        ..Default::default()
    }
}

async fn bench(config: ExecutorConfig) -> Bench {
    let served = serve(FrontSettings::default()).await;
    for name in ["a", "b", "c"] {
        let metadata = json!({"namespace": "n", "name": name});
        served.put(json!({"kind": "Gateway", "metadata": metadata}));
    }
    let kubeconfig = Kubeconfig::of(&served);
    let clusters = [(served.cluster.clone(), cluster(&served, &kubeconfig))].into();
    let apply = Apply::new(clusters, Duration::from_millis(config.timeout_ms));
    let metrics = Arc::new(Metrics::new());
    let executor = Executor::new(apply, Gate::always_open(), config, false, metrics);
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
    Decision { at: UnixMillis(1), action, because: "of a test".into() }
}

impl Bench {
    fn object(&self, name: &str) -> Option<Arc<throughline::core::objects::Object>> {
        let world = self.served.world.lock().unwrap();
        world.get(&self.served.cluster, Kind::Gateway, &ObjectKey::new("n", name)).cloned()
    }

    fn value(&self, name: &str) -> Option<String> {
        self.object(name)?.meta.annotations.get("k").map(str::to_owned)
    }

    async fn one(&mut self, decision: Decision) -> Finished {
        self.executor.submit(decision);
        self.executor.finished().await
    }

    /// The same with preconditions on the object as it is.
    fn conditioned(&self, mut decision: Decision) -> Decision {
        let object = self.object(&decision.action.object.name).unwrap();
        decision.action.precondition.uid = Some(object.meta.uid.to_string());
        decision.action.precondition.resource_version =
            Some(object.meta.resource_version.to_string());
        decision
    }
}

#[tokio::test]
async fn a_write_lands_and_brings_the_new_resource_version_back() {
    let mut bench = bench(quick()).await;
    let finished = bench.one(bench.conditioned(touch(1, "a", "1"))).await;
    let version = bench.object("a").unwrap().meta.resource_version.to_string();
    assert_eq!(
        finished.outcome,
        Outcome::Applied { resource_version: Some(version), deleted: None }
    );
    assert_eq!((finished.tries, bench.value("a").as_deref()), (1, Some("1")));
    let again = bench.one(bench.conditioned(touch(2, "a", "1"))).await;
    assert_eq!(again.outcome, Outcome::Unchanged);
    assert_eq!(bench.served.front.writes(), 2);
}

#[tokio::test]
async fn an_old_view_another_object_and_none_at_all_are_told_apart() {
    let mut bench = bench(quick()).await;
    let old = bench.conditioned(touch(1, "a", "old"));
    bench.one(touch(2, "a", "new")).await;
    assert!(matches!(bench.one(old).await.outcome, Outcome::Conflict { .. }));
    let mut other = bench.conditioned(touch(3, "b", "1"));
    other.action.precondition.resource_version = None;
    other.action.precondition.uid = Some("11111111-1111-4111-8111-111111111111".into());
    let outcome = bench.one(other).await.outcome;
    assert!(matches!(outcome, Outcome::Conflict { .. }), "{outcome:?}");
    assert_eq!(bench.one(touch(4, "nowhere", "1")).await.outcome, Outcome::NotFound);
    assert_eq!(bench.value("a").as_deref(), Some("new"));
    assert_eq!(bench.value("b"), None);
}

#[tokio::test]
async fn what_may_succeed_later_is_tried_again_and_what_never_will_is_not() {
    let mut bench = bench(quick()).await;
    for (code, times, tries, name) in [
        (503, 2, 3, "applied"),
        (429, 1, 2, "applied"),
        (500, 3, 3, "failed"),
        (403, 1, 1, "refused"),
        (422, 1, 1, "refused"),
        (409, 1, 1, "conflict"),
    ] {
        bench.served.front.fail(&Fault::of_writes(code), times);
        let finished = bench.one(touch(code.into(), "a", &code.to_string())).await;
        assert_eq!((finished.outcome.name(), finished.tries), (name, tries), "{code}");
    }
}

#[tokio::test]
async fn retry_after_is_kept_or_left_to_the_machine() {
    let config = ExecutorConfig { backoff_max_ms: 1_500, ..quick() };
    let mut bench = bench(config).await;
    bench.served.front.fail(&Fault::of_writes(429).retry_after(1), 1);
    let began = std::time::Instant::now();
    let finished = bench.one(touch(1, "a", "1")).await;
    assert_eq!((finished.outcome.name(), finished.tries), ("applied", 2));
    // Not a timing of ours: the server forbade an earlier try.
    assert!(began.elapsed() >= Duration::from_secs(1));
    bench.served.front.fail(&Fault::of_writes(429).retry_after(30), 1);
    let finished = bench.one(touch(2, "a", "2")).await;
    assert_eq!(finished.tries, 1);
    match finished.outcome {
        Outcome::Failed { retry_after_ms, .. } => assert_eq!(retry_after_ms, Some(30_000)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_answer_is_a_failure_and_the_next_try_finds_what_the_first_did() {
    let mut bench = bench(ExecutorConfig { tries: 2, timeout_ms: 200, ..quick() }).await;
    bench.served.front.fail(&Fault::of_writes(504).carried_out(), 1);
    let finished = bench.one(bench.conditioned(touch(1, "a", "1"))).await;
    assert!(matches!(finished.outcome, Outcome::Conflict { .. }), "{:?}", finished.outcome);
    assert_eq!((finished.tries, bench.value("a").as_deref()), (2, Some("1")));
    bench.served.front.set_mode(Mode::Frozen);
    let finished = bench.one(touch(2, "b", "2")).await;
    match &finished.outcome {
        Outcome::Failed { error, .. } => assert!(error.contains("within 200 ms"), "{error}"),
        other => panic!("{other:?}"),
    }
    bench.served.front.set_mode(Mode::Down);
    let finished = bench.one(touch(3, "b", "3")).await;
    assert_eq!((finished.outcome.name(), finished.tries), ("failed", 2));
}

#[tokio::test]
async fn one_object_keeps_its_order_and_a_newer_action_supersedes_one_that_waits() {
    let mut bench = bench(ExecutorConfig { timeout_ms: 10_000, ..quick() }).await;
    bench.served.front.set_latency(Duration::from_millis(100));
    for (id, value) in [(1, "1"), (2, "2"), (3, "3")] {
        bench.executor.submit(touch(id, "a", value));
    }
    bench.executor.submit(touch(4, "b", "4"));
    let mut fates = Vec::new();
    for _ in 0..4 {
        let finished = bench.executor.finished().await;
        fates.push((finished.decision.action.id.0, finished.outcome.name()));
    }
    // 2 never reached the wire: 1 was under way, and 3 took its place. b waited for neither.
    assert_eq!(fates[0], (2, "superseded"));
    assert_eq!(fates[3], (3, "applied"));
    fates.sort_unstable();
    assert_eq!(fates, [(1, "applied"), (2, "superseded"), (3, "applied"), (4, "applied")]);
    assert_eq!(bench.value("a").as_deref(), Some("3"));
    assert_eq!(bench.served.front.writes(), 3);
}

#[tokio::test]
async fn at_most_so_many_at_a_time_and_the_queue_says_when_it_is_full() {
    let config = ExecutorConfig { parallel: 2, queue: 1, timeout_ms: 10_000, ..quick() };
    let mut bench = bench(config).await;
    bench.served.front.set_latency(Duration::from_millis(50));
    bench.executor.submit(touch(1, "a", "1"));
    bench.executor.submit(touch(2, "b", "1"));
    assert_eq!((bench.executor.load(), bench.executor.has_room()), ((0, 2), true));
    bench.executor.submit(touch(3, "c", "1"));
    assert_eq!((bench.executor.load(), bench.executor.has_room()), ((1, 2), false));
    for _ in 0..3 {
        assert_eq!(bench.executor.finished().await.outcome.name(), "applied");
    }
    assert_eq!((bench.executor.load(), bench.executor.has_room()), ((0, 0), true));
    bench.executor.submit(touch(4, "a", "2"));
    bench.executor.submit(touch(5, "b", "2"));
    bench.executor.submit(touch(6, "c", "2"));
    assert_eq!(bench.executor.clear(), 1);
    for _ in 0..2 {
        assert_ne!(bench.executor.finished().await.decision.action.id, ActionId(6));
    }
    assert_eq!((bench.executor.load(), bench.value("c").as_deref()), ((0, 0), Some("1")));
}

#[tokio::test]
async fn a_dry_run_sends_nothing() {
    let bench = bench(quick()).await;
    let metrics = Arc::new(Metrics::new());
    let clusters = [(bench.served.cluster.clone(), cluster(&bench.served, &bench._kubeconfig))];
    let apply = Apply::new(clusters.into(), Duration::from_secs(1));
    let mut executor = Executor::new(apply, Gate::always_open(), quick(), true, metrics);
    executor.submit(touch(1, "a", "1"));
    let finished = executor.finished().await;
    assert_eq!((finished.outcome, finished.tries), (Outcome::DryRun, 0));
    assert_eq!(bench.served.front.requests().values().sum::<u64>(), 0);
}

/// A run that gives back at once whatever was dropped must still hear that it lost leadership.
#[tokio::test]
async fn a_closed_gate_starves_nobody() {
    let (gate, _keeper) = Gate::closed();
    let apply = Apply::new(std::collections::BTreeMap::new(), Duration::from_secs(1));
    let mut executor = Executor::new(apply, gate, quick(), false, Arc::new(Metrics::new()));
    let (lost, mut hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move { lost.send(()) });
    let mut mirror = touch(1, "a", "v");
    mirror.action.verb = Verb::Mirror;
    executor.submit(mirror);
    for _ in 0..100_000 {
        tokio::select! {
            finished = executor.finished() => {
                assert_eq!(finished.outcome, Outcome::Dropped);
                executor.submit(finished.decision);
            }
            Some(()) = hears.recv() => return,
        }
    }
    panic!("nobody else had a turn");
}
