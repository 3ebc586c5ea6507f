//! The state of the controller. Its parts know nothing of each other.

use std::collections::{BTreeMap, BTreeSet};

use super::breakers::Breakers;
use super::in_flight::InFlight;
use super::leadership::Leadership;
use super::memory::Memory;
use super::notes::Notes;
use crate::contract::settings::Settings;
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::roster::Roster;
use crate::rules::orphan::Verdict;
use crate::scheduler::Scheduler;
use crate::subject::Subject;
use crate::symptoms::Symptoms;
use crate::world::World;

/// Subjects that are planned again in this moment.
pub(crate) type Dirty = BTreeSet<Subject>;

#[derive(Default)]
pub(crate) struct Controller {
    /// What the watches show.
    pub(crate) world: World,
    /// What throughline did, and waits for.
    pub(crate) memory: Memory,
    /// When things happen.
    pub(crate) scheduler: Scheduler,
    /// What is too much at once.
    pub(crate) breakers: Breakers,
    /// What has no outcome yet.
    pub(crate) in_flight: InFlight,
    /// Which clusters are in the run.
    pub(crate) roster: Roster,
    /// What users get.
    pub(crate) symptoms: Symptoms,
    pub(crate) notes: Notes,
    pub(crate) leadership: Leadership,
    pub(crate) settings: Settings,

    /// The time of this moment.
    pub(crate) now: UnixMillis,
    /// Empty between two moments, as are the fields below.
    pub(crate) dirty: Dirty,
    /// Removals that were queued in this moment. Those that were not admitted by its end are held.
    pub(crate) awaiting_turn: Dirty,
    /// The verdicts on the routes that this moment planned.
    pub(crate) route_verdicts: BTreeMap<ObjectRef, Verdict>,
}
