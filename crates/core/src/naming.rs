//! Whether hub Connectors and upstreams find each other by name. An upstream that is configured as
//! `proj-a` and that hub labels call `project-a` is two upstreams: one that nobody follows, and one that
//! nothing comes from. Neither fails, so it is reported.

use std::collections::BTreeMap;

use super::contract::note::{NamedUpstream, NamingProblem, NoteKind};
use super::data::ids::Kind;
use super::data::interner::Sym;
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};
use super::machine::Machine;
use super::timers::Due;

/// How long hub Connectors name an upstream that is not configured before that is reported: they come one
/// by one. Where clusters are discovered, theirs may be about to join.
const UNCONFIGURED_MS: u64 = 5_000;
const UNDISCOVERED_MS: u64 = 60_000;
/// How long the hub may lack every Connector of an upstream: the replicator needs some time.
const UNREPLICATED_MS: u64 = 60_000;
/// What ends is gathered for so long.
const OVER_MS: u64 = 1_000;
/// More names than that help nobody to find the one that is meant.
const UNNAMED_MAX: usize = 100;

/// The upstreams whose names are to be looked at, and what was reported about them.
#[derive(Default)]
pub(crate) struct Naming {
    due: BTreeMap<Sym, UnixMillis>,
    reported: BTreeMap<Sym, NamingProblem>,
}

impl HoldsNames for Naming {
    fn mark(&self, used: &mut UsedNames) {
        let Self { due, reported } = self;
        due.keys().chain(reported.keys()).for_each(|upstream| upstream.mark(used));
    }
}

impl Naming {
    fn take_due(&mut self, now: UnixMillis) -> Vec<Sym> {
        let due: Vec<_> = self.due.iter().filter(|(_, at)| **at <= now).map(|(s, _)| *s).collect();
        self.due.retain(|_, at| *at > now);
        due
    }
}

impl super::context::Context {
    /// Something changed that decides whether hub Connectors and an upstream of this name find each other.
    /// `problem`: the one that may have begun.
    pub(crate) fn look_at_name(&mut self, upstream: Sym, problem: NamingProblem) {
        let wait_ms = match problem {
            _ if self.naming.reported.contains_key(&upstream) => OVER_MS,
            NamingProblem::Unreplicated => UNREPLICATED_MS,
            NamingProblem::Unconfigured if self.follows_references => UNDISCOVERED_MS,
            NamingProblem::Unconfigured => UNCONFIGURED_MS,
        };
        let at = self.now.plus(wait_ms);
        let due = self.naming.due.entry(upstream).or_insert(at);
        *due = at.min(*due);
        self.timers.no_later(Due::Naming, at);
    }

    /// What was reported about a name may be over.
    pub(crate) fn look_at_name_again(&mut self, upstream: Sym) {
        if let Some(problem) = self.naming.reported.get(&upstream) {
            self.look_at_name(upstream, *problem);
        }
    }

    /// A source begins to list its clusters: those that hub Connectors name may be among them.
    pub(crate) fn await_discovered_names(&mut self) {
        let not_before = self.now.plus(UNDISCOVERED_MS);
        self.naming.due.values_mut().for_each(|at| *at = not_before.max(*at));
    }

    /// Has the names looked at that are due, and those that could not be judged before.
    pub(crate) fn schedule_naming(&mut self) {
        if let Some(at) = self.naming.due.values().min() {
            self.timers.no_later(Due::Naming, self.now.max(*at));
        }
    }
}

impl Machine {
    /// Reports the upstreams whose names do not fit, all at once. Costs O(upstreams that are due).
    pub(crate) fn evaluate_naming(&mut self) {
        let is_live = |id| self.cluster(id).is_some_and(|hub| hub.is_live(Kind::Connector));
        if self.hubs.is_empty() || !self.hubs.keys().all(|id| is_live(*id)) {
            // The hub's next list has them evaluated.
            return;
        }
        let mut began = BTreeMap::<NamingProblem, Vec<NamedUpstream>>::new();
        let mut ended = began.clone();
        for upstream in self.ctx.naming.take_due(self.ctx.now) {
            let Some(found) = self.naming_problem(upstream) else { continue };
            let cluster = || self.ctx.names.text(upstream).into();
            let (problem, connectors) = found.unzip();
            let before = self.ctx.naming.reported.get(&upstream).copied();
            if problem == before {
                continue;
            }
            if let Some(before) = before {
                let over = NamedUpstream { cluster: cluster(), connectors: 0 };
                ended.entry(before).or_default().push(over);
                self.ctx.naming.reported.remove(&upstream);
            }
            if let (Some(problem), Some(connectors)) = (problem, connectors) {
                let new = NamedUpstream { cluster: cluster(), connectors };
                began.entry(problem).or_default().push(new);
                self.ctx.naming.reported.insert(upstream, problem);
            }
        }
        self.note_naming(ended, true);
        self.note_naming(began, false);
        self.ctx.schedule_naming();
    }

    fn note_naming(&mut self, found: BTreeMap<NamingProblem, Vec<NamedUpstream>>, over: bool) {
        for (problem, mut upstreams) in found {
            upstreams.sort_unstable_by(|a, b| a.cluster.cmp(&b.cluster));
            let helps = problem == NamingProblem::Unconfigured && !over;
            let unnamed = if helps { self.unnamed_upstreams() } else { Vec::new() };
            self.ctx.note(NoteKind::Naming { problem, over, upstreams, unnamed });
        }
    }

    /// The clusters of this run that could be meant: no hub Connector names them.
    fn unnamed_upstreams(&self) -> Vec<super::data::ids::ClusterName> {
        let unnamed = self.upstreams.values().filter(|upstream| upstream.named == 0);
        let names = unnamed.filter_map(|upstream| Some(&self.cluster(upstream.id?)?.name));
        let mut names: Vec<_> = names.take(UNNAMED_MAX + 1).cloned().collect();
        if names.len() > UNNAMED_MAX {
            names.clear();
        }
        names.sort_unstable();
        names
    }

    /// What is wrong with a name, and how many Connectors that concerns. `None` while that is not known.
    fn naming_problem(&self, upstream: Sym) -> Option<Option<(NamingProblem, u64)>> {
        let Some(found) = self.upstreams.get(&upstream) else { return Some(None) };
        let Some(cluster) = found.id.and_then(|id| self.cluster(id)) else {
            // A project that was deleted has a report of its own.
            let is_named = found.named > 0 && !self.roster.is_gone(self.ctx.names.text(upstream));
            return Some(is_named.then_some((NamingProblem::Unconfigured, found.named)));
        };
        if found.named > 0 {
            return Some(None);
        }
        let kinds = [Kind::Connector, Kind::Namespace];
        kinds.into_iter().all(|kind| cluster.is_live(kind)).then_some(())?;
        let here = found
            .connectors
            .iter()
            .filter(|(key, connector)| connector.exists() && cluster.is_upstream_namespace(key.ns));
        let connectors = here.count() as u64;
        Some((connectors > 0).then_some((NamingProblem::Unreplicated, connectors)))
    }
}
