//! Naming: when the names of upstreams are compared with those in hub labels, and what is reported.

use super::state::Machine;
use super::whole;
use crate::data::ids::Kind;
use crate::rules::naming::{self, Sources};
use crate::scheduler::Timer;
use crate::world::Change;

pub(super) fn on_change(m: &mut Machine, change: &Change) {
    match change {
        Change::NamingChanged { upstream } => {
            let is_deleted = m.roster.deleted_project(upstream).is_some();
            let verdict = naming::judge(&m.world, upstream, is_deleted);
            m.memory.naming.on_changed(upstream, verdict, m.roster.has_sources(), m.now);
            schedule(m);
        }
        // These names could not be judged before.
        Change::ClusterAnswers { kind: Kind::Connector | Kind::Namespace, .. } => schedule(m),
        _ => {}
    }
}

pub(super) fn on_discovery_finished(m: &mut Machine) {
    m.memory.naming.on_discovery_finished(m.now);
    schedule(m);
}

pub(super) fn report(m: &mut Machine) {
    if !naming::is_judged(&m.world) {
        // The names are judged with the next list of the hub.
        return;
    }

    let roster = &m.roster;
    let is_deleted = |name: &_| roster.deleted_project(name).is_some();
    let sources = match roster.lost_source() {
        Some(_) => Sources::Lost,
        None if roster.are_sources_live() => Sources::Complete,
        None => Sources::Incomplete,
    };
    for (upstream, verdict) in m.memory.naming.on_deadline(&m.world, is_deleted, sources, m.now) {
        whole::on_named(m, &upstream, verdict);
    }
    schedule(m);
}

fn schedule(m: &mut Machine) {
    m.scheduler.timers.set(Timer::Naming, m.memory.naming.next_at());
}
