//! An edge, as its own API server shows it, and the rule that touches its Gateways.

mod adopt;
mod announce;
mod gateway_class;
mod gateways;
mod observed;
mod outcome;
mod pause;
mod pending;
mod references;
mod rows;
mod stamps;
mod tables;
mod touch;
mod touch_queue;
pub(crate) mod touch_state;
mod touch_write;

pub(crate) use references::{hash_stamp, stamp_of};
pub(crate) use rows::EdgeConnector;
pub(crate) use tables::EdgeState;

use crate::context::Context;
use crate::data::cluster::ClusterState;
use crate::data::ids::{ClusterId, ClusterName, Role};
use crate::machine::Machine;
use crate::timers::Due;

/// An edge and everything its rules read, looked up once for each event.
struct Edge<'m> {
    id: ClusterId,
    cluster: &'m ClusterState,
    state: &'m mut EdgeState,
    ctx: &'m mut Context,
}

impl Machine {
    /// `None` for a cluster that is not an edge, or was removed.
    fn edge(&mut self, id: ClusterId) -> Option<Edge<'_>> {
        let cluster = self.clusters.get(id)?;
        debug_assert_eq!(cluster.has(Role::Edge), self.edges.contains_key(&id));
        Some(Edge { id, cluster, state: self.edges.get_mut(&id)?, ctx: &mut self.ctx })
    }

    /// The edge that a timer belongs to. An edge takes its timers with it when it is removed.
    fn edge_of_timer(&mut self, due: Due, id: ClusterId) -> Option<Edge<'_>> {
        if !self.edges.contains_key(&id) {
            let detail = format!("a timer outlived its edge: {due:?}");
            self.ctx.impossible(&ClusterName::from(""), detail);
        }
        self.edge(id)
    }
}
