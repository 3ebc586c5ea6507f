//! A moment: one call of `handle_event` or `handle_timeout`. What it decides gets its numbers when it ends,
//! by cluster, kind, namespace and name, so that they depend on nothing else than what is written: not
//! on which name was seen first, nor on which rule or timer came first.

use super::context::WriteTarget;
use super::contract::action::Decision;
use super::data::ids::{ActionId, ClusterName, Kind, ObjectKey};
use super::machine::Machine;

impl Machine {
    /// Numbers what the moment decided. Until now the target of each has an id that is only valid
    /// within the moment.
    pub(crate) fn end_moment(&mut self) {
        let mut decided = self.ctx.take_decided();
        decided.sort_by(|(_, a), (_, b)| place(a).cmp(&place(b)));

        for (submitted, decision) in decided {
            let (target, decided_as) = (submitted.target, decision.action.id);
            let id = self.ctx.emit(submitted, decision);
            self.renumber(target, decided_as, id);
        }
    }

    fn renumber(&mut self, target: WriteTarget, from: ActionId, to: ActionId) {
        match target {
            WriteTarget::HubConnector(at) => {
                if let Some(hub) = self.hubs.get_mut(&at.cluster)
                    && let Some(connector) = hub.connectors.get_mut(&at.key)
                    && let Some(repair) = &mut connector.repair
                {
                    repair.flight.renumber(from, to);
                }
            }
            WriteTarget::Touch(edge, target) => {
                if let Some(edge) = self.edges.get_mut(&edge)
                    && let Some(touch) = edge.open_touch_mut(target)
                {
                    touch.flight.renumber(from, to);
                }
            }
            WriteTarget::Route(hub, key) => {
                if let Some(hub) = self.hubs.get_mut(&hub)
                    && let Some(route) = hub.routes.get_mut(&key)
                {
                    route.flight.renumber(from, to);
                }
            }
        }
    }
}

fn place(decision: &Decision) -> (&ClusterName, Kind, &ObjectKey) {
    let action = &decision.action;
    (&action.cluster, action.kind, &action.object)
}
