//! Naming: when the names of upstreams are compared with those in hub labels, and what is reported.

use super::state::Controller;
use super::whole;
use crate::data::ids::Kind;
use crate::rules::naming;
use crate::scheduler::Timer;
use crate::world::Change;

pub(super) fn on_change(c: &mut Controller, change: &Change) {
    match change {
        Change::NamingChanged { upstream } => {
            let is_deleted = c.roster.deleted_project(upstream).is_some();
            let verdict = naming::judge(&c.world, upstream, is_deleted);
            c.memory.naming.on_changed(upstream, verdict, c.roster.has_sources(), c.now);
            schedule(c);
        }
        // These names could not be judged before.
        Change::ClusterAnswers { kind: Kind::Connector | Kind::Namespace, .. } => schedule(c),
        _ => {}
    }
}

pub(super) fn on_discovery_started(c: &mut Controller) {
    if !c.roster.has_sources() {
        c.memory.naming.on_discovery_started(c.now);
        schedule(c);
    }
}

pub(super) fn report(c: &mut Controller) {
    if !naming::is_judged(&c.world) {
        // The names are judged with the next list of the hub.
        return;
    }

    let is_deleted = |name: &_| c.roster.deleted_project(name).is_some();
    for (upstream, verdict) in c.memory.naming.on_deadline(&c.world, is_deleted, c.now) {
        whole::on_named(c, &upstream, verdict);
    }
    schedule(c);
}

fn schedule(c: &mut Controller) {
    c.scheduler.timers.set(Timer::Naming, c.memory.naming.next_at());
}
