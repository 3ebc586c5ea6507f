use super::*;
use crate::apply::Applier;
use crate::core::contract::action::{Action, Decision, Precondition, Urgency, Verb};
use crate::core::data::ids::{ActionId, ClusterName, Kind};
use crate::core::data::time::UnixMillis;
use Urgency::{Confirmation, Deferrable, Delete, Nudge, Routing};
use proptest::prelude::*;
use proptest::sample::select;

fn object(name: &str) -> NamespacedName {
    NamespacedName::new("n", name)
}

fn action(id: u64, name: &str, urgency: Urgency) -> PendingAction {
    let action = Action {
        id: ActionId(id),
        verb: Verb::Mirror,
        cluster: ClusterName::from("hub"),
        kind: Kind::Connector,
        object: object(name),
        annotations: Vec::new(),
        precondition: Precondition::default(),
        connectors: Vec::new(),
    };
    let clusters = Applier::default().clusters(&action);
    let decision = Decision { at: UnixMillis(1), action, urgency, because: "of a test".into() };
    PendingAction::new(decision, clusters)
}

/// Queues actions named by their objects; returns the actions that they replaced.
fn push(queue: &mut Queue, actions: &[(&str, Urgency)]) -> Vec<String> {
    let mut replaced = Vec::new();
    for (name, urgency) in actions {
        let older = queue.push(object(name), action(0, name, *urgency));
        replaced.extend(older.map(|older| older.decision.action.object.name().to_string()));
    }
    replaced
}

fn push_many(queue: &mut Queue, prefix: &str, urgency: Urgency, count: usize) {
    for i in 0..count {
        push(queue, &[(&format!("{prefix}{i}"), urgency)]);
    }
}

/// Sends the next action, which ends at once.
fn next(queue: &mut Queue) -> Option<String> {
    let PendingAction { decision, .. } = queue.start_next(1)?;
    let object = decision.action.object;
    queue.attempt_ended(&object);
    Some(object.name().to_string())
}

fn rest(queue: &mut Queue) -> Vec<String> {
    std::iter::from_fn(|| next(queue)).collect()
}

#[test]
fn routing_leaves_first_and_equals_in_the_order_in_which_they_came() {
    let mut queue = Queue::default();
    let queued = [
        ("route", Delete),
        ("address", Deferrable),
        ("flip", Routing),
        ("again", Confirmation),
        ("flip 2", Routing),
        ("stuck", Nudge),
    ];
    push(&mut queue, &queued);
    assert_eq!(queue.ready(), 6);
    assert_eq!(rest(&mut queue), ["flip", "flip 2", "route", "address", "again", "stuck"]);
    assert!(queue.is_empty());
}

#[test]
fn a_flip_is_next_though_500_deferrable_writes_wait() {
    let mut queue = Queue::default();
    push_many(&mut queue, "address", Deferrable, 500);
    for round in 0..40 {
        assert_eq!(next(&mut queue), Some(format!("address{round}")));
        push(&mut queue, &[("flip", Routing)]);
        assert_eq!(next(&mut queue).as_deref(), Some("flip"), "round {round}");
    }
}

#[test]
fn of_sixteen_starts_one_goes_to_what_does_not_route() {
    let mut queue = Queue::default();
    push(&mut queue, &[("old delete", Delete), ("nudge", Nudge), ("late delete", Delete)]);
    push_many(&mut queue, "flip", Routing, 100);
    let order = rest(&mut queue);
    for (turn, name) in [(16, "old delete"), (32, "nudge"), (48, "late delete")] {
        assert_eq!(order[turn - 1], name);
    }
    assert_eq!(order.len(), 103);
}

#[test]
fn namespaces_are_served_in_turn_and_the_oldest_of_each_goes_first() {
    let mut queue = Queue::default();
    for (namespace, names) in [("big", 0..1_000), ("small", 0..2), ("tiny", 0..1)] {
        for name in names {
            let key = NamespacedName::new(namespace, format!("{namespace}{name}"));
            queue.push(key, action(0, "of a test", Routing));
        }
    }
    let mut first = |n: usize| -> Vec<_> {
        (0..n).filter_map(|_| queue.pop().map(|object| object.name().to_owned())).collect()
    };
    assert_eq!(first(7), ["big0", "small0", "tiny0", "big1", "small1", "big2", "big3"]);
}

#[test]
fn a_newer_action_has_its_own_urgency_and_the_older_ones_place_in_time() {
    let mut queue = Queue::default();
    push(&mut queue, &[("a", Deferrable), ("b", Routing), ("c", Deferrable), ("d", Routing)]);
    // The write of an address waited first, so its liveness change goes before the others, as it would
    // without classes.
    assert_eq!(push(&mut queue, &[("a", Routing)]), ["a"]);
    assert_eq!((queue.ready(), next(&mut queue).as_deref()), (4, Some("a")));
    // Liveness changed and changed back, so the write that is left does not route.
    assert_eq!(push(&mut queue, &[("b", Deferrable)]), ["b"]);
    assert_eq!(rest(&mut queue), ["d", "b", "c"]);
}

#[test]
fn an_object_that_changes_all_the_time_is_not_put_off_by_that() {
    let mut queue = Queue::default();
    push(&mut queue, &[("busy", Deferrable)]);
    push_many(&mut queue, "address", Deferrable, 10);
    for _ in 0..100 {
        push(&mut queue, &[("busy", Deferrable)]);
    }
    assert_eq!(next(&mut queue).as_deref(), Some("busy"));
}

#[test]
fn a_queue_that_hangs_sends_the_newest_and_the_oldest_in_turn() {
    let mut queue = Queue::default();
    push_many(&mut queue, "flip", Routing, 7);
    queue.observe(Answer::TimedOut);
    assert!(!queue.is_hung());
    queue.observe(Answer::TimedOut);
    assert!(queue.is_hung());
    let sent: Vec<_> = (0..4).filter_map(|_| next(&mut queue)).collect();
    assert_eq!(sent, ["flip6", "flip0", "flip5", "flip1"]);
    queue.observe(Answer::Came);
    assert!(!queue.is_hung());
    assert_eq!(rest(&mut queue), ["flip2", "flip3", "flip4"]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Queue(usize, Urgency),
    Start,
    /// Ends the oldest attempt.
    End,
    Observe(Answer),
    RemoveWaiting(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let urgency = select(vec![Routing, Confirmation, Nudge, Deferrable, Delete]);
    let answer = select(vec![Answer::Came, Answer::TimedOut, Answer::None]);
    prop_oneof![
        6 => (0..12usize, urgency).prop_map(|(object, urgency)| Step::Queue(object, urgency)),
        4 => Just(Step::Start),
        4 => Just(Step::End),
        1 => answer.prop_map(Step::Observe),
        1 => (0..12usize).prop_map(Step::RemoveWaiting),
    ]
}

/// A queue and the actions that left it.
#[derive(Default)]
struct Run {
    queue: Queue,
    queued: u64,
    /// The ids of actions that ended or were returned.
    ended: Vec<u64>,
    in_flight: Vec<(NamespacedName, PendingAction)>,
    most_in_flight: usize,
}

fn id(action: &PendingAction) -> u64 {
    action.decision.action.id.0
}

impl Run {
    fn step(&mut self, step: Step) {
        match step {
            Step::Queue(n, urgency) => {
                self.queued += 1;
                let name = format!("{n}");
                let older = self.queue.push(object(&name), action(self.queued, &name, urgency));
                self.ended.extend(older.as_ref().map(id));
            }
            Step::Start => {
                let Some(action) = self.queue.start_next(3) else { return };
                let object = action.decision.action.object.clone();
                let others = self.in_flight.iter().all(|(other, _)| *other != object);
                assert!(others, "two attempts at {object}");
                self.in_flight.push((object, action));
                self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
            }
            Step::End if !self.in_flight.is_empty() => {
                let (object, action) = self.in_flight.remove(0);
                self.queue.attempt_ended(&object);
                self.ended.push(id(&action));
            }
            Step::Observe(answer) => self.queue.observe(answer),
            Step::RemoveWaiting(n) => {
                let named = object(&format!("{n}"));
                let removed = self.queue.remove_waiting(|a| a.decision.action.object == named);
                self.ended.extend(removed.iter().map(id));
            }
            Step::End => {}
        }
    }
}

proptest! {
    /// Whatever happens to a queue, each action is sent, replaced or removed exactly once.
    #[test]
    fn every_action_ends(steps in prop::collection::vec(step(), 1..200)) {
        let mut run = Run::default();
        steps.into_iter().for_each(|step| run.step(step));
        for _ in 0..run.queued {
            for step in [Step::Start, Step::End] {
                run.step(step);
            }
        }
        assert!(run.queue.is_empty(), "something is never sent");
        assert!(run.most_in_flight <= 3);
        assert_eq!(run.queue.ready(), 0);
        run.ended.sort_unstable();
        assert_eq!(run.ended, (1..=run.queued).collect::<Vec<_>>());
    }

    /// No starvation: whatever else is queued, an action starts after at most sixteen starts for each
    /// action that waited before it.
    #[test]
    fn no_action_waits_longer_than_sixteen_starts_for_each_that_came_before(
        earlier in prop::collection::vec(select(vec![Routing, Nudge, Deferrable, Delete]), 0..20),
        urgency in select(vec![Routing, Confirmation, Nudge, Deferrable, Delete]),
    ) {
        let mut queue = Queue::default();
        for (i, urgency) in earlier.iter().enumerate() {
            push(&mut queue, &[(&format!("earlier{i}"), *urgency)]);
        }
        push(&mut queue, &[("it", urgency)]);
        let mut starts = 0;
        let is_next = (0..16 * (earlier.len() + 1)).any(|i| {
            starts += 1;
            push(&mut queue, &[(&format!("flood{i}"), Routing), (&format!("more{i}"), Routing)]);
            next(&mut queue).as_deref() == Some("it")
        });
        assert!(is_next, "it still waits after {starts} starts");
    }
}
