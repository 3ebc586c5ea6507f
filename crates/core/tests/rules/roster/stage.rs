//! A stage whose upstreams come from a discovery, and a shell that carries out who joins and leaves.

use crate::stage::*;

const SOURCE: SourceName = SourceName::Milo;

pub(crate) fn deletes(change: impl FnOnce(&mut Settings)) -> Settings {
    crate::orphans::deleting(|s| {
        s.orphans.deleted_projects = true;
        change(s);
    })
}

/// A hub object that names the project.
fn hub_object(project: &str, is_route: bool) -> Value {
    let tenant = Tenant { cluster: project.to_owned().leak(), ..UP };
    let object = match is_route {
        true => tenant.route("lab", START - HOUR, &["g"]),
        false => tenant.copy("lab", None),
    };
    with(object, json!({"metadata": {"namespace": format!("ns-{project}")}}))
}

/// A leader with an empty hub, and a Milo root whose list has begun.
pub(crate) fn listing(join: JoinRule, settings: Settings) -> Stage {
    let mut stage = Stage::new(settings);
    stage.leave("up").leave("edge").list("hub", "Namespace", []).notes();
    stage.started(join);
    stage
}

/// These projects are offered, and those that hub objects name are followed.
pub(crate) fn needed(names: &[&str]) -> Stage {
    let mut stage = listing(JoinRule::Needed, Settings::default());
    stage.offer_all(names).finished();
    stage
}

/// Every one of these projects is followed.
pub(crate) fn joined(names: &[&str]) -> Stage {
    joined_with(Settings::default(), names)
}

pub(crate) fn joined_with(settings: Settings, names: &[&str]) -> Stage {
    let mut stage = listing(JoinRule::All, settings);
    stage.offer_all(names).finished().carry_out();
    stage.notes();
    stage
}

/// A project that hub objects name is followed, deleted, and gone.
pub(crate) fn with_gone(settings: Settings) -> Stage {
    let mut stage = joined_with(settings, &["a", "b", "c", "d"]);
    stage.name("a").name_route("a").withdraw("a", "1").pass(2_000);
    stage.carry_out();
    stage.gone("a");
    stage
}

/// What a discovery shows, and what becomes of it.
impl Stage {
    /// A hub Connector names the project.
    pub(crate) fn name(&mut self, project: &str) -> &mut Self {
        self.applied("hub", hub_object(project, false))
    }

    pub(crate) fn unname(&mut self, project: &str) -> &mut Self {
        self.deleted("hub", hub_object(project, false))
    }

    /// A hub route names the project.
    pub(crate) fn name_route(&mut self, project: &str) -> &mut Self {
        self.applied("hub", hub_object(project, true))
    }

    pub(crate) fn unname_route(&mut self, project: &str) -> &mut Self {
        self.deleted("hub", hub_object(project, true))
    }

    pub(crate) fn started(&mut self, join: JoinRule) -> &mut Self {
        self.started_by(SOURCE, join)
    }

    pub(crate) fn started_by(&mut self, source: SourceName, join: JoinRule) -> &mut Self {
        self.event(EventKind::DiscoveryStarted { source, join })
    }

    pub(crate) fn finished(&mut self) -> &mut Self {
        self.event(EventKind::DiscoveryFinished { source: SOURCE })
    }

    /// A complete list.
    pub(crate) fn list_all(&mut self, names: &[&str]) -> &mut Self {
        self.started(JoinRule::All).offer_all(names).finished()
    }

    pub(crate) fn list_needed(&mut self, names: &[&str]) -> &mut Self {
        self.started(JoinRule::Needed).offer_all(names).finished()
    }

    pub(crate) fn offer_all(&mut self, names: &[&str]) -> &mut Self {
        for name in names {
            self.offer(name, "1", OfferState::Ready);
        }
        self
    }

    pub(crate) fn offer(&mut self, name: &str, uid: &str, state: OfferState) -> &mut Self {
        self.offer_from(SOURCE, name, uid, vec![Role::Upstream], state)
    }

    pub(crate) fn offer_from(
        &mut self,
        source: SourceName,
        name: &str,
        uid: &str,
        roles: Vec<Role>,
        state: OfferState,
    ) -> &mut Self {
        let cluster = name.into();
        let uid = uid.to_owned();
        self.event(EventKind::ClusterOffered { source, cluster, uid, roles, state })
    }

    pub(crate) fn withdraw(&mut self, name: &str, uid: &str) -> &mut Self {
        let cluster = name.into();
        self.event(EventKind::ClusterWithdrawn { source: SOURCE, cluster, uid: uid.to_owned() })
    }

    pub(crate) fn withdraw_all(&mut self, names: &[&str]) -> &mut Self {
        for name in names {
            self.withdraw(name, "1");
        }
        self
    }

    pub(crate) fn discovery_lost(&mut self) -> &mut Self {
        self.event(EventKind::DiscoveryLost { source: SOURCE, error: "403".into() })
    }

    pub(crate) fn discovery_resumed(&mut self) -> &mut Self {
        self.event(EventKind::DiscoveryResumed { source: SOURCE })
    }

    /// The root answers 404 about it.
    pub(crate) fn gone(&mut self, name: &str) -> &mut Self {
        self.event(EventKind::ClusterGone { source: SOURCE, cluster: name.into() })
    }

    pub(crate) fn memberships(&mut self) -> Vec<Membership> {
        std::iter::from_fn(|| self.machine.poll_membership()).collect()
    }

    /// Who joins and leaves since the last call. The shell carries it out.
    pub(crate) fn carry_out(&mut self) -> Vec<String> {
        let asked = self.memberships();
        self.obey(&asked);
        asked.iter().map(shown).collect()
    }

    pub(crate) fn obey(&mut self, changes: &[Membership]) {
        for change in changes.iter().cloned() {
            self.event(match change {
                Membership::Join { cluster, roles, .. } => {
                    EventKind::ClusterAdded { cluster, roles }
                }
                Membership::Leave { cluster, .. } => EventKind::ClusterRemoved { cluster },
            });
        }
    }
}

fn shown(change: &Membership) -> String {
    match change {
        Membership::Join { cluster, .. } => format!("join {cluster}"),
        Membership::Leave { cluster, reason } => format!("leave {cluster} {}", reason.as_str()),
    }
}

/// Names `p0`, `p1` …
pub(crate) fn projects(count: usize) -> Vec<&'static str> {
    (0..count).map(|n| &*format!("p{n}").leak()).collect()
}
