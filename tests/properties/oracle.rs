//! Which status annotation and which trigger is right for the objects of the simulated clusters, and where
//! they deviate from that. It shares liveness and digests with the core, and none of its rules.

use std::collections::BTreeMap;

use serde_json::Value;

use throughline::core::contract::cause::{Problem, State};
use throughline::core::contract::note::NoteKind;
use throughline::core::contract::settings::{PlatformKeyMode, TouchScope};
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use throughline::core::data::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use throughline::core::status::go_json;
use throughline::core::status::liveness::{self, Liveness};
use throughline::core::status::trigger::{NodeIds, Trigger, digest, gateway_part};

use crate::sim::Sim;

impl Sim {
    /// All deviations from the desired state, as text.
    pub fn deviations(&self) -> Vec<String> {
        let mut deviations = self.stuck();
        deviations.extend(self.mirror_deviations());
        deviations.extend(self.touch_deviations());
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

    /// Whether the upstream namespace of a project is the one that the hub knows.
    pub fn has_namespace(&self, project: u8) -> bool {
        let (up, namespace, uid) = self.topology.project(project);
        let found = self.clusters.get(&up, Kind::Namespace, &NamespacedName::new("", namespace));
        found.is_some_and(|found| *found.meta.uid == *uid)
    }

    /// Whether a Gateway exists upstream that a route of a project names as its parent.
    pub fn has_parent(&self, project: u8, route: &Object) -> bool {
        let (up, namespace, _) = self.topology.project(project);
        let exists = |name: &str| {
            self.clusters.get(&up, Kind::Gateway, &NamespacedName::new(namespace, name)).is_some()
        };
        let Body::HttpRoute { parents } = &route.body else { return false };
        parents.iter().any(|parent| exists(&parent.name))
    }

    /// Where the hub differs from upstream, or an edge from the hub.
    pub fn mirror_deviations(&self) -> Vec<String> {
        let mut deviations = Vec::new();
        let says = |connector: &Object| {
            let text = connector.meta.annotations.get(UPSTREAM_STATUS)?;
            Some(text.parse().unwrap_or(Value::from("not JSON")))
        };
        for connector in self.clusters.objects(&self.topology.hub(), Kind::Connector) {
            deviations.extend(self.annotation_deviation(connector));
            let (key, says_hub) = (connector.meta.key(), says(connector));
            for edge in self.topology.edges() {
                let copy = self.clusters.get(&edge, Kind::Connector, &key);
                if let Some(says_edge) = copy.map(|copy| says(copy))
                    && says_edge != says_hub
                {
                    deviations.push(format!(
                        "{edge}: {key} is {says_hub:?} at the hub, {says_edge:?} here"
                    ));
                }
            }
        }
        deviations
    }

    /// A sentence for each Gateway, or GatewayClass, with a wrong trigger.
    pub fn touch_deviations(&self) -> Vec<String> {
        let mut deviations = Vec::new();
        for edge in &self.topology.edges() {
            match self.settings.touch.scope_of(edge) {
                TouchScope::Gateway => {
                    let gateways = self.clusters.objects(edge, Kind::Gateway);
                    deviations.extend(gateways.filter_map(|g| self.gateway_deviation(edge, g)));
                }
                TouchScope::GatewayClass => deviations.extend(self.class_deviations(edge)),
            }
        }
        deviations
    }

    fn annotation_deviation(&self, connector: &Object) -> Option<String> {
        let Object { meta, .. } = connector;
        if meta.is_paused() {
            return None;
        }
        let (upstream, namespace, name) = meta.upstream().ok()?;
        let upstream = ClusterName::from(upstream.as_str());
        self.clusters.with_role(Role::Upstream).find(|cluster| **cluster == upstream)?;
        let of_namespace = NamespacedName::new("", namespace);
        let found = self.clusters.get(&upstream, Kind::Namespace, &of_namespace);
        if found.is_some_and(|found| *meta.namespace != *format!("ns-{}", found.meta.uid)) {
            return None;
        }

        let key = NamespacedName::new(namespace, name);
        let status = self.clusters.get(&upstream, Kind::Connector, &key).and_then(|c| c.status());
        let expected = match status {
            // What it says is not known where it cannot be spelled.
            Some(status) => Some(go_json::canonical(status)?),
            None => None,
        };
        let actual = meta.annotations.get(UPSTREAM_STATUS);
        // Compare bytes first: most are equal, and Go's own -0.0 reads back as 0.
        if actual == expected.as_deref() {
            return None;
        }
        if let (Some(actual), Some(expected)) = (actual, &expected) {
            let bytes = meta.annotations.bytes() - actual.len() + expected.len();
            let is_too_long = bytes > self.settings.mirror.annotation_limit_bytes;
            let reduced = status.filter(|_| is_too_long).and_then(go_json::reduce);
            let actual = go_json::canonical(actual);
            if actual.as_ref() == Some(expected) || (actual.is_some() && actual == reduced) {
                return None;
            }
        }
        Some(format!(
            "the status annotation of Connector {} does not match the status of {key} in {upstream}: \
             {actual:?}, expected {expected:?}",
            meta.key()
        ))
    }

    /// The Connectors of a Gateway's HTTPProxy, in order, with what the edge knows of them. None if
    /// throughline does not write the Gateway.
    fn connectors(&self, edge: &ClusterName, gateway: &NamespacedName) -> Vec<(&str, Liveness)> {
        let is_upstream_too = self.clusters.with_role(Role::Upstream).any(|c| c == edge);
        let namespace = NamespacedName::new("", gateway.namespace());
        let namespace = self.clusters.get(edge, Kind::Namespace, &namespace);
        if is_upstream_too && !namespace.is_some_and(|n| n.meta.is_hub_namespace()) {
            return Vec::new();
        }
        let proxy = self.clusters.get(edge, Kind::HttpProxy, gateway).map(|proxy| &proxy.body);
        let Some(Body::HttpProxy { connectors }) = proxy else { return Vec::new() };
        let read = |name: &str| {
            let key = NamespacedName::new(gateway.namespace(), name);
            self.clusters.get(edge, Kind::Connector, &key).map(|c| liveness_of(c))
        };
        connectors.iter().map(|name| (&**name, read(name).unwrap_or_default())).collect()
    }

    /// Whether the proxy of a Gateway refers to a Connector.
    pub fn references(
        &self,
        edge: &ClusterName,
        gateway: &NamespacedName,
        c: &NamespacedName,
    ) -> bool {
        let names = self.connectors(edge, gateway);
        gateway.namespace() == c.namespace() && names.iter().any(|(name, _)| *name == c.name())
    }

    /// The digest that a Gateway should announce.
    pub fn digest_of(&self, edge: &ClusterName, gateway: &NamespacedName) -> Option<u64> {
        let connectors = self.connectors(edge, gateway);
        let part = |(name, says): &(&str, Liveness)| {
            NodeIds::Real.connector_part(name, says.online, &says.node_id)
        };
        (!connectors.is_empty()).then(|| digest(connectors.iter().map(part)))
    }

    /// The stamp that the platform's extension server writes on a Gateway.
    pub fn stamp_of(&self, edge: &ClusterName, gateway: &NamespacedName) -> Option<String> {
        let connectors = self.connectors(edge, gateway);
        let (_, Liveness { online, node_id }) = connectors.last()?;
        Some(if *online { format!("true/{node_id}") } else { "false/".to_owned() })
    }

    pub fn trigger_of(&self, gateway: &Object) -> Option<Trigger> {
        Trigger::parse(gateway.meta.annotations.get(&self.settings.touch.key)?)
    }

    fn gateway_deviation(&self, edge: &ClusterName, gateway: &Object) -> Option<String> {
        let key = gateway.meta.key();
        if gateway.meta.is_paused() {
            return None;
        }
        let expected = self.digest_of(edge, &key)?;
        let confirmations = self.settings.touch.confirm_after_ms.len();
        match self.trigger_of(gateway) {
            Some(is) if is.digest != expected => Some(format!(
                "{edge}: Gateway {key} announces an outdated state of its connectors: {is}, expected \
                 {expected:016x}"
            )),
            Some(is) if (is.c as usize) < confirmations => Some(format!(
                "{edge}: Gateway {key} is not fully confirmed ({} of {confirmations} confirmations)",
                is.c
            )),
            Some(_) => None,
            // The gateway was right before throughline started, and the platform's stamp says so.
            None if self.settings.touch.platform_key == PlatformKeyMode::Observe
                && !self.touched.contains(&(edge.clone(), Some(gateway.meta.uid.to_string())))
                && gateway.meta.annotations.get(PLATFORM_KEY)
                    == self.stamp_of(edge, &key).as_deref() =>
            {
                None
            }
            None => Some(format!("{edge}: Gateway {key} has no trigger annotation")),
        }
    }

    fn class_deviations(&self, edge: &ClusterName) -> Vec<String> {
        // A class waits while all its Gateways are paused.
        let mut classes: BTreeMap<&str, (bool, u64, Vec<Trigger>)> = BTreeMap::new();
        for gateway in self.clusters.objects(edge, Kind::Gateway) {
            let Body::Gateway { class, .. } = &gateway.body else { continue };
            let key = gateway.meta.key();
            let Some(expected) = self.digest_of(edge, &key) else { continue };
            let (is_active, sum, triggers) = classes.entry(class).or_default();
            *is_active |= !gateway.meta.is_paused();
            *sum = sum.wrapping_add(gateway_part(key.namespace(), key.name(), expected));
            triggers.extend(self.trigger_of(gateway));
        }
        let confirmations = self.settings.touch.confirm_after_ms.len();
        let mut deviations = Vec::new();
        for (class, (is_active, sum, triggers)) in classes {
            let expected = digest([sum]);
            let is_right = |is: &Trigger| is.digest == expected && is.c as usize >= confirmations;
            if is_active && !triggers.iter().any(is_right) {
                deviations.push(format!(
                    "{edge}: no Gateway of class {class} announces the current state of its \
                     connectors: {triggers:?}"
                ));
            }
        }
        deviations
    }
}

/// What a Connector at an edge says: by its status annotation, or else by its status.
pub fn liveness_of(connector: &Object) -> Liveness {
    liveness::read(connector.meta.annotations.get(UPSTREAM_STATUS), connector.status())
}
