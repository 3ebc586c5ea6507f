//! The state of the machine. Its parts do not know each other.

use std::collections::{BTreeMap, BTreeSet};

use super::breakers::Breakers;
use super::in_flight::InFlight;
use super::memory::Memory;
use super::notes::Notes;
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::roster::Roster;
use crate::rules::orphan::Verdict;
use crate::scheduler::Scheduler;
use crate::subject::Subject;
use crate::symptoms::Symptoms;
use crate::world::World;

/// The connector-liveness state machine. Pure: the same events give the same actions.
#[derive(Default)]
pub struct Machine {
    /// The objects as the watches show them.
    pub(crate) world: World,
    /// What throughline did, and what it waits for.
    pub(crate) memory: Memory,
    /// Timers and write queues.
    pub(crate) scheduler: Scheduler,
    /// Hold writes while too many are due together.
    pub(crate) breakers: Breakers,
    /// Actions without an outcome.
    pub(crate) in_flight: InFlight,
    /// Which clusters are in the run.
    pub(crate) roster: Roster,
    /// The answers that users get.
    pub(crate) symptoms: Symptoms,
    pub(crate) notes: Notes,

    /// Whether this instance may mirror, nudge and delete.
    pub(crate) is_leader: bool,
    /// Until then this instance waits before it may lead, because it created the Lease: the old one
    /// may have been deleted while its holder still writes. Meanwhile no instance may write, so
    /// nothing is late.
    pub(crate) lease_wait_until: UnixMillis,

    /// The time of the current step.
    pub(crate) now: UnixMillis,
    /// Subjects to plan again in this step. Empty between two steps, as are the fields below.
    pub(crate) dirty: BTreeSet<Subject>,
    /// Removals queued in this step. Those not admitted by its end are held.
    pub(crate) awaiting_turn: BTreeSet<Subject>,
    /// The verdicts on the routes planned in this step.
    pub(crate) route_verdicts: BTreeMap<ObjectRef, Verdict>,
}
