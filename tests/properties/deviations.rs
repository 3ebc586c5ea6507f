//! Where the simulated clusters deviate from what is desired, and how a test prints a run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use throughline::core::contract::action::Decision;
use throughline::core::contract::cause::{Problem, State};
use throughline::core::contract::note::NoteKind;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::core::data::objects::{Body, Object, UPSTREAM_STATUS};
use throughline::core::data::time::UnixMillis;
use throughline::core::status::trigger::NodeIds;

use crate::oracle::Oracle;
use crate::sim::{RecordedAction, START, Sim};

impl Sim {
    pub(crate) fn oracle(&self) -> Oracle<'_> {
        let has_written = |edge: &ClusterName, gateway: &Object| {
            self.touched.contains(&(edge.clone(), Some(gateway.meta.uid.to_string())))
        };
        Oracle {
            clusters: &self.clusters,
            settings: &self.settings,
            node_ids: NodeIds::Real,
            has_written: Box::new(has_written),
        }
    }

    /// All deviations from the desired state, as text.
    pub fn deviations(&self) -> Vec<String> {
        let mut deviations = self.stuck();
        deviations.extend(self.mirror_deviations());
        deviations.extend(self.oracle().touch_problems());
        let left = self.machine.poll_deadline();
        deviations.extend(left.map(|at| format!("a timer is set for {at}")));
        if self.machine.in_flight() > 0 {
            deviations.push("actions are in flight".into());
        }
        deviations
    }

    /// What makes connectors stuck, and has not ended.
    fn stuck(&self) -> Vec<String> {
        let mut open = BTreeMap::new();
        for note in &self.notes {
            match &note.kind {
                NoteKind::Began(problem) => _ = open.insert(problem.id(), problem),
                NoteKind::Ended(problem) => {
                    let ended = open.remove(&problem.id());
                    assert!(ended.is_some(), "ended, and never began: {problem:?}");
                }
                NoteKind::HopPassed { .. } | NoteKind::Symptom { .. } => {}
            }
        }
        let is_stuck = |problem: &&Problem| problem.cause.info().state == Some(State::Stuck);
        open.into_values().filter(is_stuck).map(Problem::sentence).collect()
    }

    /// Where the hub differs from upstream, or an edge from the hub.
    pub fn mirror_deviations(&self) -> Vec<String> {
        let mut deviations = self.oracle().mirror_problems(&BTreeSet::new());
        let says = |connector: &Object| {
            let text = connector.meta.annotations.get(UPSTREAM_STATUS)?;
            Some(text.parse().unwrap_or(Value::from("not JSON")))
        };
        for hub in self.clusters.with_role(Role::Hub) {
            for connector in self.clusters.objects(hub, Kind::Connector) {
                let (key, says_hub) = (connector.meta.key(), says(connector));
                for edge in self.clusters.with_role(Role::Edge) {
                    let copy = self.clusters.get(edge, Kind::Connector, &key);
                    if let Some(says_edge) = copy.map(|copy| says(copy))
                        && says_edge != says_hub
                    {
                        deviations.push(format!(
                            "{edge}: {key} is {says_hub:?} at the hub, {says_edge:?} here"
                        ));
                    }
                }
            }
        }
        deviations
    }

    /// Whether the proxy of a Gateway refers to a Connector.
    pub fn references(&self, edge: &ClusterName, gateway: &ObjectKey, c: &ObjectKey) -> bool {
        let proxy = self.clusters.get(edge, Kind::HttpProxy, gateway).map(|proxy| &proxy.body);
        let Some(Body::HttpProxy { connectors }) = proxy else { return false };
        gateway.namespace == c.namespace && connectors.iter().any(|name| **name == *c.name)
    }

    /// The actions, a line each.
    pub fn describe_actions(&self, from: usize) -> String {
        let line = |a: &RecordedAction| {
            let Decision { at, action, because, .. } = &a.decision;
            format!(
                "{} {:?} {} {} {:?}: {because}\n",
                at.since(UnixMillis(START)),
                action.verb,
                action.cluster,
                action.object,
                action.annotations
            )
        };
        self.actions[from..].iter().map(line).collect()
    }
}
