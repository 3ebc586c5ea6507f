//! What every rule needs besides its own tables: settings, time, names, timers, and the ways out
//! for actions and notes.

use std::collections::{BTreeSet, VecDeque};

use super::clusters::Place;
use super::contention::Contention;
use super::contract::action::{Action, Decision, Precondition, Urgency, Verb};
use super::contract::event::Outcome;
use super::contract::note::{Anomaly, AnomalyKind, Hop, Note, NoteKind};
use super::contract::settings::Settings;
use super::data::cluster::ClusterState;
use super::data::ids::{ActionId, ClusterId, ClusterName, Kind, ObjectKey};
use super::data::interner::{Key, Names, Sym};
use super::data::map::{Map, keys_where};
use super::data::objects::FIELD_MANAGER;
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};
use super::edge::touch_state::TouchTarget;
use super::leadership::Leadership;
use super::naming::Naming;
use super::status::trigger::NodeIds;
use super::timers::{Due, Timers};
use super::waiting::Releases;
use super::write_queue::QueueKey;
use super::write_queues::WriteQueues;

/// What an action in flight was decided for; its outcome goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WriteTarget {
    HubConnector(Place),
    Touch(ClusterId, TouchTarget),
    Route(ClusterId, Key),
}

/// An action without an outcome.
pub(crate) struct Submitted {
    pub(crate) target: WriteTarget,
    /// The queue that admitted it.
    queue: QueueKey,
    /// When it was decided.
    at: UnixMillis,
}

/// What every rule needs besides its own tables.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    /// Whether what is read comes from clusters or from a redacted log.
    pub(crate) node_ids: NodeIds,
    pub(crate) now: UnixMillis,
    pub(crate) names: Names,
    pub(crate) leadership: Leadership,
    pub(crate) timers: Timers,
    pub(crate) releases: Releases,
    pub(crate) queues: WriteQueues,
    pub(crate) naming: Naming,
    pub(crate) actions: VecDeque<Decision>,
    /// What the present moment has decided so far. Empty between two moments.
    decided: Vec<(Submitted, Decision)>,
    pub(crate) notes: VecDeque<Note>,
    last_id: u64,
    /// Where each outcome goes. What an action writes stands in its target's `Flight`.
    in_flight: Map<ActionId, Submitted>,
    /// Whether the roster has to know which upstreams hub objects name.
    pub(crate) follows_references: bool,
    /// Upstreams that a hub object names now, or that none names any longer.
    pub(crate) references_changed: BTreeSet<ClusterName>,
}

/// A write that a rule asks for: to which object, under which preconditions, and why.
pub(crate) struct WriteRequest {
    pub(crate) target: WriteTarget,
    pub(crate) verb: Verb,
    pub(crate) cluster: ClusterName,
    pub(crate) kind: Kind,
    pub(crate) object: ObjectKey,
    pub(crate) annotations: Vec<(String, Option<String>)>,
    pub(crate) precondition: Precondition,
    pub(crate) connectors: Vec<ObjectKey>,
    /// The queue that admitted it.
    pub(crate) queue: QueueKey,
    pub(crate) urgency: Urgency,
    pub(crate) because: String,
}

impl HoldsNames for WriteTarget {
    fn mark(&self, used: &mut UsedNames) {
        match self {
            Self::HubConnector(at) => at.mark(used),
            Self::Touch(_, target) => target.mark(used),
            Self::Route(_, key) => key.mark(used),
        }
    }
}

impl HoldsNames for Submitted {
    fn mark(&self, used: &mut UsedNames) {
        let Self { target, queue: _, at: _ } = self;
        target.mark(used);
    }
}

impl HoldsNames for Context {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            settings: _,
            node_ids: _,
            now: _,
            names: _,
            leadership: _,
            timers,
            releases: _,
            queues,
            naming,
            actions: _,
            decided: _,
            notes: _,
            last_id: _,
            in_flight,
            follows_references: _,
            references_changed: _,
        } = self;
        timers.mark(used);
        queues.mark(used);
        naming.mark(used);
        in_flight.mark(used);
    }
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            node_ids: NodeIds::default(),
            now: UnixMillis(0),
            names: Names::default(),
            leadership: Leadership::default(),
            timers: Timers::default(),
            releases: Releases::default(),
            queues: WriteQueues::default(),
            naming: Naming::default(),
            actions: VecDeque::new(),
            decided: Vec::new(),
            notes: VecDeque::new(),
            last_id: 0,
            in_flight: Map::default(),
            follows_references: false,
            references_changed: BTreeSet::new(),
        }
    }

    /// Decides an action. The moment's end gives it its final id ([`Machine::end_moment`]); the one
    /// returned stands for it until then.
    ///
    /// [`Machine::end_moment`]: super::machine::Machine::end_moment
    pub(crate) fn submit(&mut self, request: WriteRequest) -> ActionId {
        let WriteRequest { target, verb, cluster, kind, object, annotations, .. } = request;
        let WriteRequest { precondition, connectors, queue, urgency, because, .. } = request;
        let may_write = self.leads() || verb == Verb::Touch;
        debug_assert!(may_write, "{verb:?} is decided only while leader");
        debug_assert_eq!(annotations.is_empty(), verb == Verb::Delete, "{verb:?} {annotations:?}");
        debug_assert!(
            verb != Verb::Delete
                || precondition.absent.is_some() != precondition.absent_project.is_some()
        );
        let id = ActionId(self.last_id + 1 + self.decided.len() as u64);
        let action =
            Action { id, verb, cluster, kind, object, annotations, precondition, connectors };
        let decision = Decision { at: self.now, action, urgency, because };
        self.decided.push((Submitted { target, queue, at: self.now }, decision));
        self.queues.on_started(queue, self.now);
        id
    }

    pub(crate) fn take_decided(&mut self) -> Vec<(Submitted, Decision)> {
        std::mem::take(&mut self.decided)
    }

    /// Emits an action under the next id. It is in flight until [`Context::take_in_flight`].
    pub(crate) fn emit(&mut self, submitted: Submitted, mut decision: Decision) -> ActionId {
        self.last_id += 1;
        let id = ActionId(self.last_id);
        decision.action.id = id;
        self.in_flight.insert(id, submitted);
        let timeout_ms = self.settings.retry.outcome_timeout_ms;
        self.timers.no_later(Due::Outcome(id), self.now.plus(timeout_ms));
        self.actions.push_back(decision);
        id
    }

    /// The first hub object names an upstream, or the last one does no longer.
    pub(crate) fn reference_changed(&mut self, upstream: Sym) {
        if self.follows_references {
            self.references_changed.insert(self.names.text(upstream).into());
        }
    }

    /// Ends an action: what it was decided for, `None` when it has ended before.
    pub(crate) fn take_in_flight(
        &mut self,
        id: ActionId,
        outcome: Option<&Outcome>,
    ) -> Option<WriteTarget> {
        self.timers.clear(Due::Outcome(id));
        let Submitted { target, queue, at } = self.in_flight.remove(&id)?;
        if queue.is_scarce() && outcome.is_some_and(Outcome::changed_nothing) {
            self.queues.give_back(queue, at, self.now);
        }
        self.write_ended(queue);
        Some(target)
    }

    /// The cluster left: nobody waits for the outcomes of its actions.
    pub(crate) fn forget_in_flight(&mut self, cluster: ClusterId) {
        let of_cluster = |action: &Submitted| action.target.group().cluster == cluster;
        let actions: Vec<_> = keys_where(&self.in_flight, of_cluster).collect();
        for id in actions {
            self.take_in_flight(id, None);
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether this machine ever decided an action of this number.
    pub(crate) fn has_decided(&self, id: ActionId) -> bool {
        id.0 <= self.last_id
    }

    pub(crate) fn note(&mut self, kind: NoteKind) {
        self.notes.push_back(Note { at: self.now, kind });
    }

    pub(crate) fn note_hop(
        &mut self,
        cluster: &ClusterName,
        key: Key,
        hop: Hop,
        online: bool,
        after_ms: Option<u64>,
    ) {
        let (cluster, connector) = (cluster.clone(), self.names.object_key(key));
        self.note(NoteKind::HopPassed { cluster, connector, hop, online, after_ms });
    }

    pub(crate) fn anomaly(
        &mut self,
        anomaly: AnomalyKind,
        cluster: &ClusterName,
        object: Option<Key>,
        detail: String,
    ) {
        let object = object.map(|key| self.names.object_key(key));
        let (cluster, manager) = (cluster.clone(), None);
        self.note(NoteKind::Anomaly(Anomaly { anomaly, cluster, object, detail, manager }));
    }

    /// When a write that was refused is tried again, in words.
    pub(crate) fn next_attempt(&self) -> String {
        format!("next attempt in {} s", self.settings.retry.max_ms.div_ceil(1_000))
    }

    /// Reports a write that the API server refuses. `next` says what follows.
    pub(crate) fn report_refused(
        &mut self,
        cluster: &ClusterState,
        key: Key,
        verb: Verb,
        error: &str,
        next: &str,
    ) {
        let verb = verb.as_str();
        let detail = format!("{verb} refused: {error}; fix the permission or webhook; {next}");
        self.anomaly(AnomalyKind::Refused, &cluster.name, Some(key), detail);
    }

    /// Reports a contention when it becomes one, and then ever more rarely while it goes on.
    pub(crate) fn report_contention(
        &mut self,
        cluster: &ClusterState,
        key: Key,
        annotation: &str,
        contention: &Contention,
        pause_ms: u64,
    ) {
        let overwrites = contention.overwrites();
        if !self.settings.mirror.is_contention_reported(overwrites) {
            return;
        }
        let manager = contention.manager();
        let (who, by) = match manager {
            Some(FIELD_MANAGER) => ("another throughline", String::new()),
            Some(manager) => ("another writer", format!("; field manager {manager}")),
            None => ("another writer", String::new()),
        };
        let detail = format!(
            "{who} keeps changing {annotation} ({overwrites} times so far{by}); next write in {pause_ms} ms"
        );
        self.note(NoteKind::Anomaly(Anomaly {
            anomaly: AnomalyKind::Contention,
            cluster: cluster.name.clone(),
            object: Some(self.names.object_key(key)),
            detail,
            manager: manager.map(Box::from),
        }));
    }

    /// Something that the tables rule out: a defect of throughline. A debug build stops here; a
    /// release build goes on without the object and says so.
    pub(crate) fn impossible(&mut self, cluster: &ClusterName, detail: String) {
        debug_assert!(false, "{cluster}: {detail}");
        self.anomaly(AnomalyKind::Impossible, cluster, None, detail);
    }
}
