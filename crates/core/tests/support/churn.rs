//! Upstream clusters that join and leave, each under a name of its own, with ten Connectors each that the
//! hub and an edge hold, too.

use std::sync::Arc;

use serde_json::json;
use throughline_core::contract::event::{Event, EventKind, Outcome};
use throughline_core::data::ids::{ClusterName, Kind, Role};
use throughline_core::data::objects::{
    Object, UPSTREAM_CLUSTER_NAME, UPSTREAM_GROUP, UPSTREAM_KIND, UPSTREAM_NAME,
    UPSTREAM_NAMESPACE, UPSTREAM_STATUS, WireObject,
};
use throughline_core::data::time::UnixMillis;
use throughline_core::machine::Machine;

pub(crate) const CONNECTORS: usize = 10;
const START_MS: u64 = 1_795_252_772_000;

/// A machine with a hub and an edge that are fully listed, and the clusters that come and go.
pub(crate) struct Churn {
    pub(crate) machine: Machine,
    joined: usize,
    namespace: Object,
    upstream: Object,
    hub: Object,
}

fn object(value: &serde_json::Value) -> Object {
    let wire: WireObject = serde_json::from_str(&value.to_string()).expect("an object's JSON");
    Object::try_from(wire).expect("an object")
}

impl Churn {
    pub(crate) fn new(machine: Machine) -> Self {
        let status = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "r",
            "message": "m", "lastTransitionTime": "2026-11-21T09:19:30Z"}]});
        let connector = json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
            "metadata": {"name": "x", "namespace": "default", "resourceVersion": "1", "uid": "u",
                "annotations": {}, "labels": {}}, "status": status});
        let mut hub = connector.clone();
        hub["metadata"]["labels"] = json!({
            UPSTREAM_GROUP: "networking.datumapis.com",
            UPSTREAM_KIND: "Connector",
            UPSTREAM_NAMESPACE: "default"});
        hub["metadata"]["annotations"] = json!({UPSTREAM_STATUS: status.to_string()});
        let mut churn = Self {
            machine,
            joined: 0,
            namespace: object(&json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "default", "resourceVersion": "1"}})),
            upstream: object(&connector),
            hub: object(&hub),
        };
        for (name, role) in [("hub", Role::Hub), ("edge", Role::Edge)] {
            churn.feed(EventKind::ClusterAdded { cluster: name.into(), roles: vec![role] });
            for kind in [Kind::Connector, Kind::Gateway, Kind::HttpProxy, Kind::HttpRoute] {
                churn.list(&name.into(), kind, Vec::new());
            }
        }
        churn.feed(EventKind::LeadershipAcquired);
        churn
    }

    /// A second passes between one cluster and the next.
    fn now(&self) -> UnixMillis {
        UnixMillis(START_MS + self.joined as u64 * 1_000)
    }

    fn feed(&mut self, kind: EventKind) {
        let at = self.now();
        self.machine.handle_event(&Event { at, kind });
        while let Some(decision) = self.machine.poll_action() {
            let outcome = Outcome::Applied { resource_version: None };
            let kind = EventKind::ActionFinished { id: decision.action.id, outcome };
            self.machine.handle_event(&Event { at, kind });
        }
        while self.machine.poll_note().is_some() {}
        while self.machine.poll_membership().is_some() {}
        while self.machine.poll_answers().is_some() {}
    }

    fn list(&mut self, cluster: &ClusterName, kind: Kind, objects: Vec<Object>) {
        self.feed(EventKind::ListStarted { cluster: cluster.clone(), kind });
        for object in objects {
            self.feed(EventKind::Listed { cluster: cluster.clone(), object: Arc::new(object) });
        }
        self.feed(EventKind::ListFinished { cluster: cluster.clone(), kind });
    }

    /// One cluster joins, its objects are seen in all tiers, it leaves, and then they are deleted.
    pub(crate) fn join_and_leave(&mut self) {
        self.joined += 1;
        let n = self.joined;
        let (name, uid) = (format!("project-{n}"), format!("{n:08x}-0000-4000-8000-00000000aaaa"));
        let cluster = ClusterName::from(name.as_str());
        let named = |template: &Object, namespace: &str, c: usize| {
            let mut object = template.clone();
            object.meta.name = format!("connector-{n}-{c}").into();
            object.meta.namespace = namespace.into();
            if template.meta.labels.iter().next().is_some() {
                object.meta.labels.set(UPSTREAM_CLUSTER_NAME, Some(&format!("cluster-{name}")));
                object.meta.labels.set(UPSTREAM_NAME, Some(&object.meta.name));
            }
            object
        };
        let connectors =
            (0..CONNECTORS).map(|c| named(&self.upstream, "default", c)).collect::<Vec<_>>();
        let mut namespace = self.namespace.clone();
        namespace.meta.uid = uid.as_str().into();
        self.feed(EventKind::ClusterAdded {
            cluster: cluster.clone(),
            roles: vec![Role::Upstream],
        });
        self.list(&cluster, Kind::Namespace, vec![namespace]);
        self.list(&cluster, Kind::Connector, connectors);
        self.list(&cluster, Kind::Gateway, Vec::new());
        let copies: Vec<_> =
            (0..CONNECTORS).map(|c| Arc::new(named(&self.hub, &format!("ns-{uid}"), c))).collect();
        for place in ["hub", "edge"] {
            for object in &copies {
                let object = object.clone();
                self.feed(EventKind::Applied { cluster: place.into(), object });
            }
        }
        self.feed(EventKind::ClusterRemoved { cluster });
        for place in ["hub", "edge"] {
            for object in &copies {
                let object = object.clone();
                self.feed(EventKind::Deleted { cluster: place.into(), object });
            }
        }
    }
}
