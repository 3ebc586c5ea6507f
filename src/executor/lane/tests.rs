use super::*;
use crate::apply::Applier;
use crate::core::contract::action::{Action, Decision, Precondition, Urgency, Verb};
use crate::core::data::ids::{ActionId, ClusterName, Kind};
use crate::core::data::time::UnixMillis;
use Urgency::{Confirmation, Deferrable, Delete, Nudge, Routing};
use proptest::prelude::*;
use proptest::sample::select;

fn object(name: &str) -> ObjectKey {
    ObjectKey::new("n", name)
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
    let concerned = Applier::default().concerned(&action);
    let decision = Decision { at: UnixMillis(1), action, urgency, because: "of a test".into() };
    PendingAction::new(decision, concerned)
}

/// Queues actions named by their objects; returns those that they replaced.
fn queue(lane: &mut Lane, actions: &[(&str, Urgency)]) -> Vec<String> {
    let mut replaced = Vec::new();
    for (name, urgency) in actions {
        let older = lane.queue(object(name), action(0, name, *urgency));
        replaced.extend(older.map(|older| older.decision.action.object.name.to_string()));
    }
    replaced
}

fn queue_many(lane: &mut Lane, prefix: &str, urgency: Urgency, count: usize) {
    for i in 0..count {
        queue(lane, &[(&format!("{prefix}{i}"), urgency)]);
    }
}

/// Sends the next one, which ends at once.
fn next(lane: &mut Lane) -> Option<String> {
    let (object, _) = lane.start_next(1)?;
    lane.attempt_ended(&object);
    Some(object.name.to_string())
}

fn rest(lane: &mut Lane) -> Vec<String> {
    std::iter::from_fn(|| next(lane)).collect()
}

#[test]
fn the_more_urgent_leaves_first_and_equals_in_the_order_in_which_they_came() {
    let mut lane = Lane::default();
    let queued = [
        ("route", Delete),
        ("address", Deferrable),
        ("stuck", Nudge),
        ("again", Confirmation),
        ("flip", Routing),
        ("flip 2", Routing),
        ("address 2", Deferrable),
    ];
    queue(&mut lane, &queued);
    assert_eq!(lane.ready(), 7);
    let order = ["flip", "flip 2", "again", "stuck", "address", "address 2", "route"];
    assert_eq!(rest(&mut lane), order);
    assert!(lane.is_empty());
}

#[test]
fn a_flip_is_next_though_500_deferrable_writes_wait() {
    let mut lane = Lane::default();
    queue_many(&mut lane, "address", Deferrable, 500);
    for round in 0..40 {
        assert_eq!(next(&mut lane), Some(format!("address{round}")));
        queue(&mut lane, &[("flip", Routing)]);
        assert_eq!(next(&mut lane).as_deref(), Some("flip"), "round {round}");
    }
}

#[test]
fn of_sixteen_starts_one_goes_to_the_longest_waiting_of_the_less_urgent() {
    let mut lane = Lane::default();
    queue(&mut lane, &[("old delete", Delete), ("nudge", Nudge), ("late delete", Delete)]);
    queue_many(&mut lane, "flip", Routing, 100);
    let order = rest(&mut lane);
    for (turn, name) in [(16, "old delete"), (32, "nudge"), (48, "late delete")] {
        assert_eq!(order[turn - 1], name);
    }
    assert_eq!(order.len(), 103);
}

#[test]
fn flips_without_end_delay_a_deletion_by_fifteen_starts() {
    let mut lane = Lane::default();
    queue(&mut lane, &[("route", Delete)]);
    queue_many(&mut lane, "first", Routing, 4);
    let mut starts = 0;
    while lane.slots.contains_key(&object("route")) {
        starts += 1;
        queue(&mut lane, &[(&format!("flip{starts}"), Routing)]);
        next(&mut lane);
    }
    assert_eq!(starts, 16);
}

#[test]
fn a_newer_action_has_its_own_urgency_and_the_older_ones_place_in_time() {
    let mut lane = Lane::default();
    queue(&mut lane, &[("a", Deferrable), ("b", Routing), ("c", Deferrable), ("d", Routing)]);
    // The address waited first, so its flip goes before the others, as it would without classes.
    assert_eq!(queue(&mut lane, &[("a", Routing)]), ["a"]);
    assert_eq!((lane.ready(), next(&mut lane).as_deref()), (4, Some("a")));
    // This one flipped and flipped back: what is left to write routes nothing.
    assert_eq!(queue(&mut lane, &[("b", Deferrable)]), ["b"]);
    assert_eq!(rest(&mut lane), ["d", "b", "c"]);
}

#[test]
fn an_object_that_changes_all_the_time_is_not_put_off_by_that() {
    let mut lane = Lane::default();
    queue(&mut lane, &[("busy", Deferrable)]);
    queue_many(&mut lane, "address", Deferrable, 10);
    for _ in 0..100 {
        queue(&mut lane, &[("busy", Deferrable)]);
    }
    assert_eq!(next(&mut lane).as_deref(), Some("busy"));
}

#[test]
fn a_lane_that_hangs_probes_the_newest_urgent_one_and_the_oldest_in_turn() {
    let mut lane = Lane::default();
    queue_many(&mut lane, "address", Deferrable, 5);
    queue_many(&mut lane, "flip", Routing, 5);
    assert_eq!(lane.observe(Answer::TimedOut), None);
    assert_eq!(lane.observe(Answer::TimedOut), Some(HealthChange::Hangs));
    let probes: Vec<_> = (0..6).filter_map(|_| next(&mut lane)).collect();
    assert_eq!(probes, ["flip4", "address0", "flip3", "address1", "flip2", "address2"]);
    assert_eq!(lane.observe(Answer::Came), Some(HealthChange::Answers));
    assert_eq!(rest(&mut lane), ["flip0", "flip1", "address3", "address4"]);
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

/// A lane and what left it.
#[derive(Default)]
struct Run {
    lane: Lane,
    queued: u64,
    /// The ids of actions that ended or were returned.
    ended: Vec<u64>,
    in_flight: Vec<(ObjectKey, PendingAction)>,
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
                let older = self.lane.queue(object(&name), action(self.queued, &name, urgency));
                self.ended.extend(older.as_ref().map(id));
            }
            Step::Start => {
                let Some((object, action)) = self.lane.start_next(3) else { return };
                let others = self.in_flight.iter().all(|(other, _)| *other != object);
                assert!(others, "two attempts at {object}");
                self.in_flight.push((object, action));
                self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
            }
            Step::End if !self.in_flight.is_empty() => {
                let (object, action) = self.in_flight.remove(0);
                self.lane.attempt_ended(&object);
                self.ended.push(id(&action));
            }
            Step::Observe(answer) => drop(self.lane.observe(answer)),
            Step::RemoveWaiting(n) => {
                let named = object(&format!("{n}"));
                let removed = self.lane.remove_waiting(|a| a.decision.action.object == named);
                self.ended.extend(removed.iter().map(id));
            }
            Step::End => {}
        }
    }
}

proptest! {
    /// Whatever happens to a lane, each action is sent, replaced or removed, once.
    #[test]
    fn every_action_ends(steps in prop::collection::vec(step(), 1..200)) {
        let mut run = Run::default();
        steps.into_iter().for_each(|step| run.step(step));
        for _ in 0..run.queued {
            for step in [Step::Start, Step::End] {
                run.step(step);
            }
        }
        assert!(run.lane.is_empty(), "something is never sent");
        assert!(run.most_in_flight <= 3);
        assert_eq!(run.lane.ready(), 0);
        run.ended.sort_unstable();
        assert_eq!(run.ended, (1..=run.queued).collect::<Vec<_>>());
    }

    /// The promise against starvation, from outside: whatever else is queued, sixteen times as many
    /// starts as actions that began to wait earlier are enough.
    #[test]
    fn no_action_waits_longer_than_sixteen_starts_for_each_that_came_before(
        earlier in prop::collection::vec(select(vec![Routing, Nudge, Deferrable, Delete]), 0..20),
        urgency in select(vec![Routing, Confirmation, Nudge, Deferrable, Delete]),
        flood in select(vec![Routing, Confirmation]),
    ) {
        let mut lane = Lane::default();
        for (i, urgency) in earlier.iter().enumerate() {
            queue(&mut lane, &[(&format!("earlier{i}"), *urgency)]);
        }
        queue(&mut lane, &[("it", urgency)]);
        let mut starts = 0;
        let is_next = (0..16 * (earlier.len() + 1)).any(|i| {
            starts += 1;
            queue(&mut lane, &[(&format!("flood{i}"), flood), (&format!("more{i}"), Routing)]);
            next(&mut lane).as_deref() == Some("it")
        });
        assert!(is_next, "it still waits after {starts} starts");
    }
}
