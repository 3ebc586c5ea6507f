//! Naming: whether hub Connectors and upstreams use the same names. An upstream that is configured
//! as `proj-a` but that hub labels call `project-a` counts as two upstreams: one without a cluster,
//! and one without hub Connectors. Neither makes a request fail, so both are reported.
//!
//! [`judge`] reads the world alone. [`NamingMemory`] decides when a name is judged: some time after
//! a change that concerns it, because objects come one by one.

use std::collections::BTreeSet;

use crate::data::ids::{ClusterName, Kind, Role, Uid};
use crate::data::time::UnixMillis;
use crate::timers::Timers;
use crate::world::World;
use crate::world::cluster::Cluster;

/// How long hub Connectors may name an upstream that is not configured before it is reported. Where
/// clusters are discovered, the cluster may be about to join.
const UNCONFIGURED_MS: u64 = 5_000;
const UNDISCOVERED_MS: u64 = 60_000;

/// How long the hub may have no Connector of an upstream: the replicator needs some time.
const UNREPLICATED_MS: u64 = 60_000;

/// Names that become right are collected for this long.
const OVER_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fits,
    /// Hub Connectors name it, but no such cluster is in the run.
    NotFollowed,
    /// It has Connectors, but no hub Connector names it.
    NotReplicated,
    /// The watches that would show it are not live, or a hub Connector that cannot be decoded may
    /// name it.
    Unknown,
}

/// `is_deleted`: the name is that of a deleted project, which is reported separately.
pub(crate) fn judge(world: &World, name: &ClusterName, is_deleted: bool) -> Verdict {
    let is_named = world.links.counts_of(name).connectors > 0;
    let Some(upstream) = world.upstream_named(name) else {
        return match is_named && !is_deleted {
            true => Verdict::NotFollowed,
            false => Verdict::Fits,
        };
    };

    if is_named {
        return Verdict::Fits;
    }
    if !upstream.is_live(Kind::Connector) || !upstream.is_live(Kind::Namespace) {
        return Verdict::Unknown;
    }
    let mut names = upstream.upstream_connectors.keys();
    let has_any = names.any(|name| world.keeps_replicas_of(upstream, name.namespace()));
    let is_any_unreadable = |hub: &Cluster| !hub.watch(Kind::Connector).unreadable.is_empty();
    match has_any {
        true if world.hubs().any(is_any_unreadable) => Verdict::Unknown,
        true => Verdict::NotReplicated,
        false => Verdict::Fits,
    }
}

/// Whether the sources of clusters show all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    Complete,
    /// What they lack may be about to join.
    Incomplete,
    /// One of them cannot list its clusters.
    Lost,
}

/// Whether the Connectors of every hub are known.
pub(crate) fn is_judged(world: &World) -> bool {
    let mut hubs = world.hubs().peekable();
    hubs.peek().is_some() && hubs.all(|hub| hub.is_live(Kind::Connector))
}

/// The names that are to be judged, and the names found wrong.
#[derive(Debug, Default)]
pub(crate) struct NamingMemory {
    due: Timers<ClusterName>,
    wrong: BTreeSet<ClusterName>,
}

impl NamingMemory {
    /// When [`NamingMemory::on_deadline`] must be called.
    pub(crate) fn next_at(&self) -> Option<UnixMillis> {
        self.due.next_at()
    }

    /// A change concerns a name. `is_discovering`: the cluster may be about to join.
    pub(crate) fn on_changed(
        &mut self,
        name: &ClusterName,
        verdict: Verdict,
        is_discovering: bool,
        now: UnixMillis,
    ) {
        let wait_ms = match verdict {
            _ if self.wrong.contains(name) => OVER_MS,
            // The names are judged anyway once the lists that decide are complete.
            Verdict::Fits | Verdict::Unknown => return,
            Verdict::NotFollowed if is_discovering => UNDISCOVERED_MS,
            Verdict::NotFollowed => UNCONFIGURED_MS,
            Verdict::NotReplicated => UNREPLICATED_MS,
        };

        self.due.set_no_later(name.clone(), now.plus(wait_ms));
    }

    /// A source has listed its clusters, so a cluster that hub Connectors name may be about to join.
    pub(crate) fn on_discovery_finished(&mut self, now: UnixMillis) {
        let not_before = now.plus(UNDISCOVERED_MS);
        for name in self.take_due(not_before) {
            let is_wrong = self.wrong.contains(&name);
            self.due.set(name, Some(if is_wrong { now.plus(OVER_MS) } else { not_before }));
        }
    }

    pub(crate) fn on_deadline(
        &mut self,
        world: &World,
        is_deleted: impl Fn(&ClusterName) -> bool,
        sources: Sources,
        now: UnixMillis,
    ) -> Vec<(ClusterName, Verdict)> {
        let mut judged = Vec::new();
        for name in self.take_due(now) {
            let verdict = judge(world, &name, is_deleted(&name));
            let is_wrong = self.wrong.contains(&name);
            let again_ms = match verdict {
                Verdict::NotFollowed if sources != Sources::Complete => Some(UNDISCOVERED_MS),
                Verdict::Unknown if is_wrong => Some(UNREPLICATED_MS),
                _ => None,
            };
            if let Some(ms) = again_ms {
                self.due.set(name.clone(), Some(now.plus(ms)));
            }
            match verdict {
                Verdict::NotFollowed if sources == Sources::Incomplete && !is_wrong => continue,
                Verdict::Unknown => {}
                Verdict::Fits => {
                    self.wrong.remove(&name);
                }
                Verdict::NotFollowed | Verdict::NotReplicated => {
                    self.wrong.insert(name.clone());
                }
            }
            judged.push((name, verdict));
        }
        judged
    }

    fn take_due(&mut self, now: UnixMillis) -> Vec<ClusterName> {
        let mut due: Vec<_> = std::iter::from_fn(|| self.due.pop(now)).collect();
        due.sort_unstable();
        due
    }
}

/// The upstream that hub Connectors call by another name: no hub Connector names it, and one of its
/// namespaces has the UID that the name of their hub namespace contains.
pub(crate) fn meant<'w>(world: &'w World, called: &ClusterName) -> Option<&'w ClusterName> {
    let first = world.links.linked_in(called, None).next()?;
    let uid = Uid::of_hub_namespace(first.name.namespace())?;
    let is_meant = |cluster: &&Cluster| {
        cluster.has(Role::Upstream)
            && world.links.counts_of(&cluster.name).connectors == 0
            && cluster.namespaces.iter().any(|(_, row)| row.uid == uid)
    };
    world.clusters.values().find(is_meant).map(|cluster| &cluster.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::event::EventKind;
    use crate::contract::settings::Settings;
    use crate::data::ids::NamespacedName;
    use crate::data::shard::Shard;
    use crate::world::fixture::{Stage, connector, namespace};

    /// The upstream `up` has one Connector, and the hub has one of `project-a`.
    fn stage() -> Stage {
        let mut stage = Stage::new(&Settings::default());
        stage.add("up", &[Role::Upstream]);
        stage.add("hub", &[Role::Hub]);
        stage.shows("up", connector("default", "lab", 1));
        stage.shows("hub", connector("ns-1", "lab", 1).of("project-a", "default", "lab"));
        stage
    }

    #[test]
    fn only_the_shard_that_keeps_the_replicas_misses_them() {
        let verdict = |index| {
            let shard = Shard { index, of: 2 };
            let mut stage = Stage::new(&Settings { shard, ..Settings::default() });
            stage.add("up", &[Role::Upstream]);
            stage.add("hub", &[Role::Hub]);
            stage.shows("up", namespace("default", "6bcb0b35", 1));
            stage.shows("up", connector("default", "lab", 1));
            (judge(&stage.world, &"up".into(), false), shard.owns("ns-6bcb0b35"))
        };
        let verdicts = [verdict(0), verdict(1)];
        assert!(verdicts.contains(&(Verdict::NotReplicated, true)), "{verdicts:?}");
        assert!(verdicts.contains(&(Verdict::Fits, false)), "{verdicts:?}");
    }

    #[test]
    fn a_name_is_wrong_where_only_one_side_has_it() {
        let mut stage = stage();
        let judge = |stage: &Stage, name: &str| judge(&stage.world, &name.into(), false);
        assert_eq!(judge(&stage, "up"), Verdict::NotReplicated);
        assert_eq!(judge(&stage, "project-a"), Verdict::NotFollowed);
        assert_eq!(judge(&stage, "nobody"), Verdict::Fits);

        let object = NamespacedName::new("ns-1", "bad");
        let (cluster, kind, error) = ("hub".into(), Kind::Connector, "a list".into());
        stage.tell(EventKind::Unreadable { cluster, kind, object, error });
        assert_eq!(judge(&stage, "up"), Verdict::Unknown, "it may be the one that is missing");
        stage.shows("hub", connector("ns-1", "bad", 2).of("project-a", "default", "bad"));
        assert_eq!(judge(&stage, "up"), Verdict::NotReplicated);

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
}
