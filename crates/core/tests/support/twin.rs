//! Two cores see the same events, and must decide the same: today's, and the one that replaces it.
//!
//! A [`Twin`] stands where a test drives a `Machine`. Today's core answers the test; the new one
//! follows, and the test ends at the first event at which it decides otherwise. Whoever includes
//! this file provides `super::keep`, which stores the events for a replay.
//!
//! It goes with today's core.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use throughline_core::contract::action::{Action, Decision, Verb};
use throughline_core::contract::event::{Event, EventKind};
use throughline_core::contract::membership::Membership;
use throughline_core::contract::note::Note;
use throughline_core::contract::settings::Settings;
use throughline_core::data::ids::ActionId;
use throughline_core::data::time::UnixMillis;
use throughline_core::machine::Machine;
use throughline_core::next;
use throughline_core::status::trigger::NodeIds;

/// What is compared, as a list: `delete,mirror` while the new core has no other rules, and of
/// `memberships`, `notes`, `view`. `actions` are all four verbs and the memberships.
pub(crate) const SCOPE: &str = "TWO_CORES";

/// Shows every event, and what both cores wait for after it.
pub(crate) const TRACE: &str = "TWO_CORES_TRACE";

/// Wakeups at which nothing is due, one after the other.
const WAKEUPS_MAX: u32 = 1_000;

thread_local! {
    static IS_ALWAYS_COMPARED: Cell<bool> = const { Cell::new(false) };
}

/// From now on every [`Twin`] of this thread compares, without [`SCOPE`].
pub(crate) fn always_compare() {
    IS_ALWAYS_COMPARED.set(true);
}

/// What drives a core, whichever it is.
pub(crate) trait Core {
    fn handle_event(&mut self, event: &Event);
    fn handle_timeout(&mut self, at: UnixMillis);
    fn poll_action(&mut self) -> Option<Decision>;
    fn poll_note(&mut self) -> Option<Note>;
    fn poll_membership(&mut self) -> Option<Membership>;
    fn poll_deadline(&self) -> Option<UnixMillis>;
    fn view(&self) -> Value;
}

/// A view without what the new core forgets of a Connector that is at rest: when the annotation was
/// written that says what upstream says, and nudges of long ago.
fn comparable(mut view: Value) -> Value {
    for connector in view["connectors"].as_array_mut().into_iter().flatten() {
        for hub in connector["hubs"].as_array_mut().into_iter().flatten() {
            hub["rightSinceMs"] = Value::Null;
            hub["nudged"] = Value::Null;
        }
    }
    view
}

/// Begins a core.
pub(crate) type Start = fn(&Settings, NodeIds) -> Box<dyn Core>;

macro_rules! core {
    ($machine:ty, $start:ident, $view:expr) => {
        impl Core for $machine {
            fn handle_event(&mut self, event: &Event) {
                self.handle_event(event);
            }

            fn handle_timeout(&mut self, at: UnixMillis) {
                self.handle_timeout(at);
            }

            fn poll_action(&mut self) -> Option<Decision> {
                self.poll_action()
            }

            fn poll_note(&mut self) -> Option<Note> {
                self.poll_note()
            }

            fn poll_membership(&mut self) -> Option<Membership> {
                self.poll_membership()
            }

            fn poll_deadline(&self) -> Option<UnixMillis> {
                self.poll_deadline().map(|(at, _)| at)
            }

            fn view(&self) -> Value {
                let view: fn(&$machine) -> Value = $view;
                comparable(view(self))
            }
        }

        pub(crate) fn $start(settings: &Settings, node_ids: NodeIds) -> Box<dyn Core> {
            Box::new(<$machine>::new(settings.clone()).with_node_ids(node_ids))
        }
    };
}

core!(Machine, todays_core, |machine| serde_json::to_value(machine.view()).unwrap());
core!(next::machine::Machine, new_core, |machine| serde_json::to_value(machine.view()).unwrap());

/// What a core says to one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) decisions: Vec<Decision>,
    pub(crate) memberships: Vec<Membership>,
    pub(crate) notes: Vec<Note>,
}

impl Answer {
    fn of(core: &mut dyn Core) -> Self {
        Self {
            decisions: std::iter::from_fn(|| core.poll_action()).collect(),
            memberships: std::iter::from_fn(|| core.poll_membership()).collect(),
            notes: std::iter::from_fn(|| core.poll_note()).collect(),
        }
    }
}

/// What is compared.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    verbs: Vec<Verb>,
    has_memberships: bool,
    has_notes: bool,
    has_view: bool,
}

impl Scope {
    /// The actions and the memberships: what reaches a cluster.
    pub(crate) fn actions() -> Self {
        let verbs = [Verb::Mirror, Verb::Nudge, Verb::Touch, Verb::Delete].to_vec();
        Self { verbs, has_memberships: true, has_notes: false, has_view: false }
    }

    /// What [`SCOPE`] says; `None` where it is not set.
    pub(crate) fn from_env() -> Option<Self> {
        let text = match std::env::var(SCOPE) {
            Ok(text) => text,
            Err(_) if IS_ALWAYS_COMPARED.get() => return Some(Self::actions()),
            Err(_) => return None,
        };
        let nothing =
            Self { verbs: Vec::new(), has_memberships: false, has_notes: false, has_view: false };
        let scope = text.split(',').fold(nothing, |scope, word| match word {
            "actions" => {
                Self { has_notes: scope.has_notes, has_view: scope.has_view, ..Self::actions() }
            }
            "memberships" => Self { has_memberships: true, ..scope },
            "notes" => Self { has_notes: true, ..scope },
            "view" => Self { has_view: true, ..scope },
            verb => scope.with(verb.parse().unwrap_or_else(|_| panic!("{SCOPE}={verb}"))),
        });
        Some(scope)
    }

    fn with(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Whether the two number their actions alike.
    fn has_every_verb(&self) -> bool {
        Self::actions().verbs.iter().all(|verb| self.verbs.contains(verb))
    }

    fn of<'a>(&self, answer: &'a Answer) -> Vec<&'a Decision> {
        let decisions = answer.decisions.iter();
        decisions.filter(|decision| self.verbs.contains(&decision.action.verb)).collect()
    }

    fn is_same(&self, expected: &Decision, found: &Decision) -> bool {
        let mut found = found.clone();
        if !self.has_every_verb() {
            found.action.id = expected.action.id;
        }
        *expected == found
    }
}

/// The first event at which the cores differ.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The number of the event, from 1.
    pub(crate) number: usize,
    pub(crate) event: Event,
    pub(crate) found: Found,
}

#[derive(Debug)]
pub(crate) enum Found {
    Decisions {
        expected: Vec<Decision>,
        found: Vec<Decision>,
    },
    Memberships {
        expected: Vec<Membership>,
        found: Vec<Membership>,
    },
    Notes {
        expected: Vec<Note>,
        found: Vec<Note>,
    },
    View {
        expected: Value,
        found: Value,
    },
    /// It acts at its own deadline, at which today's core does nothing.
    ActsAlone {
        at: UnixMillis,
        found: Vec<Decision>,
    },
    /// Today's core acts, and nothing would have woken the new one.
    Sleeps {
        until: Option<UnixMillis>,
        expected: Vec<Decision>,
    },
    /// Its deadline has passed, and stays.
    StandsStill {
        deadline: UnixMillis,
    },
    Panics(String),
}

/// Makes of an action one line.
fn line(decision: &Decision) -> String {
    let Decision { at, action, urgency, because } = decision;
    let action = serde_json::to_string::<Action>(action).unwrap_or_default();
    format!("{} {urgency:?} {action} because {because:?}", at.0)
}

impl Found {
    /// What it is about, to count differences of a kind.
    pub(crate) fn topic(&self) -> String {
        let of = |decision: Option<&Decision>| {
            decision.map_or("nothing".to_owned(), |d| {
                format!("{} ({})", d.action.verb.as_str(), d.because)
            })
        };
        match self {
            Self::Decisions { expected, found } => {
                let at = expected.iter().zip(found).take_while(|(one, two)| one == two).count();
                format!("{} / {}", of(expected.get(at)), of(found.get(at)))
            }
            Self::Memberships { .. } => "memberships".to_owned(),
            Self::Notes { expected, found } => topic_of_notes(expected, found),
            Self::View { expected, found } => format!("view: {}", topic_of_views(expected, found)),
            Self::ActsAlone { found, .. } => format!("acts alone: {}", of(found.first())),
            Self::Sleeps { expected, .. } => format!("sleeps: {}", of(expected.first())),
            Self::StandsStill { .. } => "time stands still".to_owned(),
            Self::Panics(text) => format!("panics: {text}"),
        }
    }
}

fn write_both<T>(
    f: &mut fmt::Formatter<'_>,
    (expected, found): (&[T], &[T]),
    text: impl Fn(&T) -> String,
) -> fmt::Result {
    let lines = |all: &[T]| all.iter().map(&text).collect::<Vec<_>>();
    let (expected, found) = (lines(expected), lines(found));
    for line in expected.iter().filter(|line| !found.contains(line)) {
        writeln!(f, "  today: {line}")?;
    }
    for line in found.iter().filter(|line| !expected.contains(line)) {
        writeln!(f, "  new:   {line}")?;
    }
    match expected.len() == found.len() && expected.iter().all(|line| found.contains(line)) {
        true => writeln!(f, "  the same {}, in another order: {found:#?}", found.len()),
        false => Ok(()),
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decisions { expected, found } => write_both(f, (expected, found), line),
            Self::Memberships { expected, found } => {
                write_both(f, (expected, found), |m| format!("{m:?}"))
            }
            Self::Notes { expected, found } => {
                write_both(f, (expected, found), |n| format!("{n:?}"))
            }
            Self::View { expected, found } => write_views(f, "", expected, found),
            Self::ActsAlone { at, found } => {
                writeln!(f, "  at its deadline {}, the new core acts alone:", at.0)?;
                write_both(f, (&[], found), line)
            }
            Self::Sleeps { until, expected } => {
                writeln!(f, "  the new core sleeps until {until:?}, but today's acts:")?;
                write_both(f, (expected, &[]), line)
            }
            Self::StandsStill { deadline } => {
                writeln!(f, "  the new core's deadline {} has passed, and stays", deadline.0)
            }
            Self::Panics(text) => writeln!(f, "  the new core panics: {text}"),
        }
    }
}

/// The kinds of the first notes that differ.
fn topic_of_notes(expected: &[Note], found: &[Note]) -> String {
    let kind_of = |note: Option<&Note>| {
        let text = note.map_or("nothing".to_owned(), |note| format!("{:?}", note.kind));
        text.split([' ', '(']).next().unwrap_or_default().to_owned()
    };
    let missing = expected.iter().find(|note| !found.contains(note));
    let more = found.iter().find(|note| !expected.contains(note));
    format!("notes: {} / {}", kind_of(missing), kind_of(more))
}

/// The names of the first leaf that differs.
fn topic_of_views(one: &Value, two: &Value) -> String {
    let first = match (one, two) {
        (Value::Object(one), Value::Object(two)) => one.iter().find_map(|(name, one)| {
            let two = two.get(name).unwrap_or(&Value::Null);
            (one != two).then(|| format!(".{name}{}", topic_of_views(one, two)))
        }),
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            let mut pairs = one.iter().zip(two);
            pairs.find(|(one, two)| one != two).map(|(one, two)| topic_of_views(one, two))
        }
        _ => None,
    };
    first.unwrap_or_default()
}

/// The leaves of the views that differ.
fn write_views(f: &mut fmt::Formatter<'_>, at: &str, one: &Value, two: &Value) -> fmt::Result {
    match (one, two) {
        _ if one == two => Ok(()),
        (Value::Object(one), Value::Object(two)) => {
            let names = one.keys().chain(two.keys().filter(|name| !one.contains_key(*name)));
            let of = |all: &serde_json::Map<String, Value>, name| {
                all.get(name).cloned().unwrap_or_default()
            };
            names.into_iter().try_for_each(|name| {
                write_views(f, &format!("{at}.{name}"), &of(one, name), &of(two, name))
            })
        }
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            let mut pairs = one.iter().zip(two).enumerate();
            pairs.try_for_each(|(n, (one, two))| write_views(f, &format!("{at}[{n}]"), one, two))
        }
        _ => writeln!(f, "  {at}\n    today: {one}\n    new:   {two}"),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, event, found } = self;
        let text = format!("{:?}", event.kind);
        let text: String = text.chars().take(300).collect();
        write!(f, "event {number} at {}: {text}\n{found}", event.at.0)
    }
}

/// The new core, which sees what today's sees.
pub(crate) struct Follower {
    core: Box<dyn Core>,
    scope: Scope,
    /// While the cores number their actions differently: today's number, and the new one.
    ids: BTreeMap<ActionId, ActionId>,
    events: usize,
    /// Actions that were equal.
    pub(crate) compared: usize,
    /// Deadlines of the new core at which today's had none.
    pub(crate) wakeups: usize,
}

/// What today's core made of an event.
struct Expected<'a> {
    /// Its deadline before.
    deadline: Option<UnixMillis>,
    answer: &'a Answer,
    view: Option<Value>,
}

impl Follower {
    pub(crate) fn new(core: Box<dyn Core>, scope: Scope) -> Self {
        Self { core, scope, ids: BTreeMap::new(), events: 0, compared: 0, wakeups: 0 }
    }

    /// A view costs as much as everything that there is.
    fn looks_at_view(&self) -> bool {
        self.scope.has_view && (self.events < 300 || self.events.is_multiple_of(97))
    }

    fn follow(&mut self, event: &Event, expected: &Expected<'_>) -> Result<(), Box<Difference>> {
        self.events += 1;
        let found = catch_unwind(AssertUnwindSafe(|| self.step(event, expected)));
        let found = found.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Found::Panics(text.unwrap_or("(no text)").to_owned()))
        });
        let number = self.events;
        found.map_err(|found| Box::new(Difference { number, event: event.clone(), found }))
    }

    fn step(&mut self, event: &Event, expected: &Expected<'_>) -> Result<(), Found> {
        self.wake_until(event.at, expected.deadline)?;
        let wanted = self.scope.of(expected.answer);
        let is_wakeup = matches!(event.kind, EventKind::TimedOut);
        let until = self.core.poll_deadline();
        if is_wakeup && !wanted.is_empty() && until.is_none_or(|until| until > event.at) {
            return Err(Found::Sleeps { until, expected: owned(&wanted) });
        }

        self.core.handle_event(&self.translated(event));
        let answer = Answer::of(self.core.as_mut());
        self.compare(expected, &answer)?;
        // Nothing is due at the end of time.
        let now = event.at.min(UnixMillis(UnixMillis::NEVER.0 - 1));
        match self.core.poll_deadline() {
            Some(deadline) if deadline <= now => Err(Found::StandsStill { deadline }),
            _ => Ok(()),
        }
    }

    /// Wakes it as its own deadlines say, where today's core has none.
    fn wake_until(&mut self, at: UnixMillis, deadline: Option<UnixMillis>) -> Result<(), Found> {
        let end = deadline.map_or(at, |deadline| deadline.min(at));
        let mut wakeups = 0;
        while let Some(due) = self.core.poll_deadline().filter(|due| *due < end) {
            wakeups += 1;
            self.core.handle_timeout(due);
            let answer = Answer::of(self.core.as_mut());
            let found = self.scope.of(&answer);
            if !found.is_empty() {
                return Err(Found::ActsAlone { at: due, found: owned(&found) });
            }
            if self.scope.has_memberships && !answer.memberships.is_empty() {
                return Err(Found::Memberships { expected: Vec::new(), found: answer.memberships });
            }
            if wakeups > WAKEUPS_MAX || self.core.poll_deadline().is_some_and(|next| next <= due) {
                return Err(Found::StandsStill { deadline: due });
            }
        }
        self.wakeups += usize::try_from(wakeups).unwrap_or_default();
        Ok(())
    }

    /// The event with the new core's own number of an action. One of an action that it does not take
    /// yet says nothing to it.
    fn translated(&self, event: &Event) -> Event {
        let kind = match &event.kind {
            EventKind::ActionFinished { id, outcome } if !self.scope.has_every_verb() => {
                let finished =
                    |id: &ActionId| EventKind::ActionFinished { id: *id, outcome: outcome.clone() };
                self.ids.get(id).map_or(EventKind::TimedOut, finished)
            }
            kind => kind.clone(),
        };
        Event { at: event.at, kind }
    }

    fn compare(&mut self, expected: &Expected<'_>, found: &Answer) -> Result<(), Found> {
        let today = self.scope.of(expected.answer);
        let new = self.scope.of(found);
        let mut pairs = today.iter().zip(&new);
        if today.len() != new.len() || !pairs.all(|(one, two)| self.scope.is_same(one, two)) {
            return Err(Found::Decisions { expected: owned(&today), found: owned(&new) });
        }
        if self.scope.has_memberships && expected.answer.memberships != found.memberships {
            let expected = expected.answer.memberships.clone();
            return Err(Found::Memberships { expected, found: found.memberships.clone() });
        }
        if self.scope.has_notes && !has_same_notes(&expected.answer.notes, &found.notes) {
            let expected = expected.answer.notes.clone();
            return Err(Found::Notes { expected, found: found.notes.clone() });
        }
        if let Some(today) = &expected.view {
            let found = self.core.view();
            if *today != found {
                return Err(Found::View { expected: today.clone(), found });
            }
        }
        self.compared += today.len();
        self.learn_ids(&expected.answer.decisions, &found.decisions);
        Ok(())
    }

    fn learn_ids(&mut self, today: &[Decision], new: &[Decision]) {
        let place = |decision: &Decision| {
            let Action { verb, cluster, object, .. } = &decision.action;
            (*verb, cluster.clone(), object.clone())
        };
        for decision in today.iter().filter(|_| !self.scope.has_every_verb()) {
            let same = new.iter().find(|other| place(other) == place(decision));
            self.ids.extend(same.map(|other| (decision.action.id, other.action.id)));
        }
    }
}

/// Notes of one moment may come in another order.
fn has_same_notes(one: &[Note], two: &[Note]) -> bool {
    let sorted = |notes: &[Note]| {
        let mut texts: Vec<_> = notes.iter().map(|note| format!("{note:?}")).collect();
        texts.sort_unstable();
        texts
    };
    one == two || sorted(one) == sorted(two)
}

fn owned(decisions: &[&Decision]) -> Vec<Decision> {
    decisions.iter().map(|decision| (*decision).clone()).collect()
}

/// What happened so far, for a log that repeats it.
pub(crate) struct History {
    pub(crate) settings: Settings,
    pub(crate) node_ids: NodeIds,
    pub(crate) events: Vec<Event>,
}

/// Today's core, and the new one that follows it.
pub(crate) struct Twin {
    today: Machine,
    follower: Option<Follower>,
    start: Start,
    scope: Option<Scope>,
    history: History,
    decisions: VecDeque<Decision>,
    notes: VecDeque<Note>,
    memberships: VecDeque<Membership>,
}

impl Deref for Twin {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.today
    }
}

impl DerefMut for Twin {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.today
    }
}

impl Twin {
    /// Today's core, followed by the new one where [`SCOPE`] asks for it.
    pub(crate) fn new(settings: Settings) -> Self {
        Self::following(settings, NodeIds::Real, new_core, Scope::from_env())
    }

    pub(crate) fn following(
        settings: Settings,
        node_ids: NodeIds,
        start: Start,
        scope: Option<Scope>,
    ) -> Self {
        Self {
            today: Machine::new(settings.clone()).with_node_ids(node_ids),
            follower: scope.clone().map(|scope| Follower::new(start(&settings, node_ids), scope)),
            start,
            scope,
            history: History { settings, node_ids, events: Vec::new() },
            decisions: VecDeque::new(),
            notes: VecDeque::new(),
            memberships: VecDeque::new(),
        }
    }

    pub(crate) fn follower(&self) -> Option<&Follower> {
        self.follower.as_ref()
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn handle_event(&mut self, event: &Event) {
        if let Err(difference) = self.try_event(event) {
            panic!("the cores differ: {difference}{}", super::keep(&self.history));
        }
    }

    pub(crate) fn handle_timeout(&mut self, at: UnixMillis) {
        match self.follower {
            Some(_) => self.handle_event(&Event { at, kind: EventKind::TimedOut }),
            None => self.today.handle_timeout(at),
        }
    }

    /// The same after a restart: both know nothing.
    pub(crate) fn restarted(&self, settings: Settings) -> Self {
        Self::following(settings, self.history.node_ids, self.start, self.scope.clone())
    }

    /// Before any event.
    pub(crate) fn with_node_ids(self, node_ids: NodeIds) -> Self {
        Self::following(self.history.settings, node_ids, new_core, Scope::from_env())
    }

    pub(crate) fn try_event(&mut self, event: &Event) -> Result<(), Box<Difference>> {
        let deadline = Core::poll_deadline(&self.today);
        self.today.handle_event(event);
        let Some(follower) = &mut self.follower else { return Ok(()) };
        self.history.events.push(event.clone());
        let answer = Answer::of(&mut self.today);
        let view = follower.looks_at_view().then(|| Core::view(&self.today));
        let found = follower.follow(event, &Expected { deadline, answer: &answer, view });
        if std::env::var_os(TRACE).is_some() {
            let deadlines = (Core::poll_deadline(&self.today), follower.core.poll_deadline());
            let said = (&answer.memberships, answer.decisions.len());
            let kind: String = format!("{:?}", event.kind).chars().take(120).collect();
            eprintln!("{} {} {kind}\n  {said:?} {deadlines:?}", follower.events, event.at.0);
        }
        self.decisions.extend(answer.decisions);
        self.notes.extend(answer.notes);
        self.memberships.extend(answer.memberships);
        found
    }

    /// Goes on without outcomes, as far as something is due and at most for so long.
    pub(crate) fn run_on(&mut self, mut now: UnixMillis, ms: u64) -> Result<(), Box<Difference>> {
        let end = now.plus(ms);
        for _ in 0..WAKEUPS_MAX {
            let due = self.today.poll_deadline().map(|(at, _)| at.max(now));
            let Some(at) = due.filter(|at| *at <= end) else { break };
            now = at;
            self.try_event(&Event { at, kind: EventKind::TimedOut })?;
        }
        self.try_event(&Event { at: end, kind: EventKind::TimedOut })
    }

    pub(crate) fn poll_action(&mut self) -> Option<Decision> {
        self.decisions.pop_front().or_else(|| self.today.poll_action())
    }

    pub(crate) fn poll_note(&mut self) -> Option<Note> {
        self.notes.pop_front().or_else(|| self.today.poll_note())
    }

    pub(crate) fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front().or_else(|| self.today.poll_membership())
    }
}
