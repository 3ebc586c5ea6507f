//! Names: whether hub Connectors and upstreams find each other. An upstream that is configured as
//! `proj-a` and that hub labels call `project-a` is two upstreams: one that nobody follows, and one
//! that nothing comes from. Neither fails, so it is reported.
//!
//! [`judge`] reads the world alone. When a name is judged, [`NamingMemory`] knows: some time after
//! something changed about it, because objects come one by one.

use std::collections::BTreeMap;

use crate::contract::note::{NamedUpstream, NamingProblem, NoteKind};
use crate::data::ids::{ClusterName, Kind, Role};
use crate::data::time::UnixMillis;
use crate::next::world::World;

/// How long hub Connectors name an upstream that is not configured before that is reported. Where
/// clusters are discovered, theirs may be about to join.
const UNCONFIGURED_MS: u64 = 5_000;
const UNDISCOVERED_MS: u64 = 60_000;

/// How long the hub may lack every Connector of an upstream: the replicator needs some time.
const UNREPLICATED_MS: u64 = 60_000;

/// What ends is gathered for so long.
const OVER_MS: u64 = 1_000;

/// More names than that help nobody to find the one that is meant.
const UNNAMED_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fits,
    Wrong {
        problem: NamingProblem,
        /// How many Connectors that concerns.
        connectors: u64,
    },
    /// The watches that would tell are not live.
    Unknown,
}

/// `is_deleted`: it is a project that was deleted, which has a report of its own.
pub(crate) fn judge(world: &World, name: &ClusterName, is_deleted: bool) -> Verdict {
    let naming = world.counts_of(name).connectors;
    let Some(upstream) = world.upstream_named(name) else {
        let naming = if is_deleted { 0 } else { naming };
        return Verdict::of(NamingProblem::Unconfigured, naming);
    };

    if naming > 0 {
        return Verdict::Fits;
    }
    if !upstream.is_live(Kind::Connector) || !upstream.is_live(Kind::Namespace) {
        return Verdict::Unknown;
    }
    let names = upstream.upstream_connectors.keys();
    let here = names.filter(|name| upstream.is_upstream_namespace(name.namespace()));
    Verdict::of(NamingProblem::Unreplicated, here.count() as u64)
}

/// Whether every hub shows who is named.
pub(crate) fn is_judged(world: &World) -> bool {
    let mut hubs = world.hubs().peekable();
    hubs.peek().is_some() && hubs.all(|hub| hub.is_live(Kind::Connector))
}

/// The names that are to be judged, and what was reported about them.
#[derive(Debug, Default)]
pub(crate) struct NamingMemory {
    due: BTreeMap<ClusterName, UnixMillis>,
    next_at: Option<UnixMillis>,
    reported: BTreeMap<ClusterName, NamingProblem>,
}

impl NamingMemory {
    /// When [`NamingMemory::on_deadline`] must be called.
    pub(crate) fn next_at(&self) -> Option<UnixMillis> {
        self.next_at
    }

    /// Something changed that decides about a name. `is_discovering`: it may be about to join.
    pub(crate) fn on_changed(
        &mut self,
        name: &ClusterName,
        verdict: Verdict,
        is_discovering: bool,
        now: UnixMillis,
    ) {
        let wait_ms = match verdict {
            _ if self.reported.contains_key(name) => OVER_MS,
            // The lists that would tell have it judged once they are complete.
            Verdict::Fits | Verdict::Unknown => return,
            Verdict::Wrong { problem: NamingProblem::Unconfigured, .. } if is_discovering => {
                UNDISCOVERED_MS
            }
            Verdict::Wrong { problem: NamingProblem::Unconfigured, .. } => UNCONFIGURED_MS,
            Verdict::Wrong { problem: NamingProblem::Unreplicated, .. } => UNREPLICATED_MS,
        };

        let at = now.plus(wait_ms);
        let due = self.due.entry(name.clone()).or_insert(at);
        *due = at.min(*due);
        self.next_at = Some(self.next_at.map_or(at, |next_at| next_at.min(at)));
    }

    /// The first source begins to list its clusters: those that hub Connectors name may be among
    /// them.
    pub(crate) fn on_discovery_started(&mut self, now: UnixMillis) {
        let not_before = now.plus(UNDISCOVERED_MS);
        self.due.values_mut().for_each(|at| *at = not_before.max(*at));
        self.next_at = self.due.values().min().copied();
    }

    /// Judges the names that are due, and returns what began or ended, all of one kind together.
    pub(crate) fn on_deadline(
        &mut self,
        world: &World,
        is_deleted: impl Fn(&ClusterName) -> bool,
        now: UnixMillis,
    ) -> Vec<NoteKind> {
        let mut news = BTreeMap::<_, Vec<NamedUpstream>>::new();
        for name in self.take_due(now) {
            let verdict = judge(world, &name, is_deleted(&name));
            for (event, connectors) in self.on_verdict(&name, verdict) {
                let named = NamedUpstream { cluster: name.clone(), connectors };
                news.entry(event).or_default().push(named);
            }
        }
        news.into_iter().map(|(event, upstreams)| event.note(world, upstreams)).collect()
    }

    /// What begins or ends by a verdict, and how many Connectors that concerns.
    fn on_verdict(&mut self, name: &ClusterName, verdict: Verdict) -> Vec<(Event, u64)> {
        let found = match verdict {
            Verdict::Unknown => return Vec::new(),
            Verdict::Fits => None,
            Verdict::Wrong { problem, connectors } => Some((problem, connectors)),
        };
        let problem = found.map(|(problem, _)| problem);
        if problem == self.reported.get(name).copied() {
            return Vec::new();
        }

        let ended = self.reported.remove(name).map(|problem| (Event::Ended(problem), 0));
        if let Some(problem) = problem {
            self.reported.insert(name.clone(), problem);
        }
        let began = found.map(|(problem, connectors)| (Event::Began(problem), connectors));
        ended.into_iter().chain(began).collect()
    }

    fn take_due(&mut self, now: UnixMillis) -> Vec<ClusterName> {
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let due: Vec<_> = due.map(|(name, _)| name.clone()).collect();

        self.due.retain(|_, at| *at > now);
        self.next_at = self.due.values().min().copied();
        due
    }
}

/// What is reported. What ends comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ended(NamingProblem),
    Began(NamingProblem),
}

impl Event {
    fn note(self, world: &World, upstreams: Vec<NamedUpstream>) -> NoteKind {
        let unnamed = match self {
            Self::Began(NamingProblem::Unconfigured) => unnamed_upstreams(world),
            Self::Began(NamingProblem::Unreplicated) | Self::Ended(_) => Vec::new(),
        };
        let (Self::Began(problem) | Self::Ended(problem)) = self;
        NoteKind::Naming { problem, over: matches!(self, Self::Ended(_)), upstreams, unnamed }
    }
}

/// The clusters of this run that could be meant: no hub Connector names them.
fn unnamed_upstreams(world: &World) -> Vec<ClusterName> {
    let upstreams = world.clusters.values().filter(|cluster| cluster.has(Role::Upstream));
    let unnamed = upstreams.filter(|cluster| world.counts_of(&cluster.name).connectors == 0);

    let mut names: Vec<_> = unnamed.map(|c| c.name.clone()).take(UNNAMED_MAX + 1).collect();
    if names.len() > UNNAMED_MAX {
        names.clear();
    }
    names.sort_unstable();
    names
}

impl Verdict {
    fn of(problem: NamingProblem, connectors: u64) -> Self {
        if connectors == 0 { Self::Fits } else { Self::Wrong { problem, connectors } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::event::EventKind;
    use crate::contract::settings::Settings;
    use crate::next::world::fixture::{Stage, connector};

    const NOW: UnixMillis = UnixMillis(1_000_000);

    /// The upstream `up` has one Connector, and the hub has one of `project-a`.
    fn stage() -> Stage {
        let mut stage = Stage::new(&Settings::default());
        stage.add("up", &[Role::Upstream]);
        stage.add("hub", &[Role::Hub]);
        stage.shows("up", connector("default", "lab", 1));
        stage.shows("hub", connector("ns-1", "lab", 1).of("project-a", "default", "lab"));
        stage
    }

    fn wrong(problem: NamingProblem) -> Verdict {
        Verdict::Wrong { problem, connectors: 1 }
    }

    #[test]
    fn a_name_is_wrong_where_only_one_side_has_it() {
        let mut stage = stage();
        let judge = |stage: &Stage, name: &str| judge(&stage.world, &name.into(), false);
        assert_eq!(judge(&stage, "up"), wrong(NamingProblem::Unreplicated));
        assert_eq!(judge(&stage, "project-a"), wrong(NamingProblem::Unconfigured));
        assert_eq!(judge(&stage, "nobody"), Verdict::Fits);

        let deleted = super::judge(&stage.world, &"project-a".into(), true);
        assert_eq!(deleted, Verdict::Fits, "it has a report of its own");

        stage.tell(EventKind::WatchLost {
            cluster: "up".into(),
            kind: Kind::Connector,
            error: "cut".into(),
        });
        assert_eq!(judge(&stage, "up"), Verdict::Unknown);

        stage.shows("hub", connector("ns-1", "other", 2).of("up", "default", "lab"));
        assert_eq!(judge(&stage, "up"), Verdict::Fits);
    }

    #[test]
    fn a_name_is_judged_later_where_objects_may_still_come() {
        let unconfigured = wrong(NamingProblem::Unconfigured);
        for (verdict, is_discovering, wait_ms) in [
            (unconfigured, false, Some(5_000)),
            (unconfigured, true, Some(60_000)),
            (wrong(NamingProblem::Unreplicated), false, Some(60_000)),
            (Verdict::Unknown, false, None),
            (Verdict::Fits, false, None),
        ] {
            let mut memory = NamingMemory::default();
            memory.on_changed(&"a".into(), verdict, is_discovering, NOW);
            assert_eq!(memory.next_at(), wait_ms.map(|ms| NOW.plus(ms)), "{verdict:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_once_and_when_it_is_over() {
        let (mut stage, mut memory) = (stage(), NamingMemory::default());
        let name = ClusterName::from("project-a");
        let tell = |stage: &Stage, memory: &mut NamingMemory| {
            memory.on_changed(&name, wrong(NamingProblem::Unconfigured), false, NOW);
            let notes = memory.on_deadline(&stage.world, |_| false, NOW.plus(5_000));
            let told = notes.into_iter().map(|note| match note {
                NoteKind::Naming { over, upstreams, unnamed, .. } => {
                    (over, upstreams[0].connectors, unnamed)
                }
                note => panic!("{note:?}"),
            });
            told.collect::<Vec<_>>()
        };

        assert_eq!(tell(&stage, &mut memory), [(false, 1, vec!["up".into()])]);
        assert_eq!(tell(&stage, &mut memory), []);

        stage.add("project-a", &[Role::Upstream]);
        assert_eq!(tell(&stage, &mut memory), [(true, 0, vec![])]);
        assert_eq!(memory.next_at(), None);
    }
}
