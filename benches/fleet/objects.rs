//! The fleet's objects as JSON: settled at first, with statuses of about 1 KB.

use throughline::core::data::objects::{
    UPSTREAM_CLUSTER_NAME, UPSTREAM_GROUP, UPSTREAM_KIND, UPSTREAM_NAME, UPSTREAM_NAMESPACE,
    UPSTREAM_STATUS,
};
use throughline::core::status::trigger::{Trigger, connector_part, digest};

use crate::support;

/// The name of the n-th project.
pub(crate) fn project(n: usize) -> String {
    format!("project-{n:05}")
}

/// The uid of the project's namespace.
fn namespace_uid(project: usize) -> String {
    format!("{project:08x}-9e1f-4d55-8b57-3a0f5c1d2e4b")
}

/// The upstream's namespace at hub and edge.
pub(crate) fn hub_namespace(project: usize) -> String {
    format!("ns-{}", namespace_uid(project))
}

/// One connector of the fleet.
#[derive(Clone, Copy)]
pub(crate) struct Connector {
    pub(crate) project: usize,
    /// Of all connectors.
    pub(crate) number: usize,
}

impl Connector {
    pub(crate) fn name(self) -> String {
        format!("connector-{}", self.number)
    }

    fn uid(self, tier: usize) -> String {
        format!("{:08x}-{tier:04x}-4d55-8b57-3a0f5c1d2e4b", self.number)
    }

    pub(crate) fn status(self, version: usize) -> String {
        support::status(self.number, version.is_multiple_of(2), version)
    }

    pub(crate) fn upstream(self, version: usize) -> String {
        let (name, uid, status) = (self.name(), self.uid(1), self.status(version));
        format!(
            r#"{{"apiVersion":"networking.datumapis.com/v1alpha1","kind":"Connector","metadata":{{"creationTimestamp":"2026-11-21T09:19:30Z","name":"{name}","namespace":"default","uid":"{uid}"}},"spec":{{"connectorClassName":"datum-connect"}},"status":{status}}}"#
        )
    }

    /// At the hub (tier 2) or the edge (tier 3); without annotation, it was never mirrored.
    pub(crate) fn replica(self, tier: usize, version: Option<usize>) -> String {
        let (namespace, name, uid) = (hub_namespace(self.project), self.name(), self.uid(tier));
        let annotations = version.map_or_else(String::new, |version| {
            let status = serde_json::to_string(&self.status(version)).unwrap();
            format!(r#","annotations":{{"{UPSTREAM_STATUS}":{status}}}"#)
        });
        let project = project(self.project);
        format!(
            r#"{{"apiVersion":"networking.datumapis.com/v1alpha1","kind":"Connector","metadata":{{"creationTimestamp":"2026-11-21T09:19:30Z","name":"{name}","namespace":"{namespace}","uid":"{uid}","labels":{{"{UPSTREAM_CLUSTER_NAME}":"cluster-{project}","{UPSTREAM_GROUP}":"networking.datumapis.com","{UPSTREAM_KIND}":"Connector","{UPSTREAM_NAME}":"{name}","{UPSTREAM_NAMESPACE}":"default"}}{annotations}}},"spec":{{"connectorClassName":"datum-connect"}}}}"#
        )
    }

    pub(crate) fn proxy(self) -> String {
        let (namespace, n, uid) = (hub_namespace(self.project), self.number, self.uid(4));
        format!(
            r#"{{"apiVersion":"networking.datumapis.com/v1alpha","kind":"HTTPProxy","metadata":{{"creationTimestamp":"2026-11-21T09:19:30Z","name":"app-{n}","namespace":"{namespace}","uid":"{uid}"}},"spec":{{"hostnames":["app-{n}.example.test"],"rules":[{{"backends":[{{"connector":{{"name":"connector-{n}"}},"endpoint":"http://localhost:8080"}}]}}]}}}}"#
        )
    }

    /// As throughline leaves it: announced, and confirmed twice.
    pub(crate) fn gateway(self) -> String {
        let (namespace, n, uid) = (hub_namespace(self.project), self.number, self.uid(5));
        let digest = digest([connector_part(&self.name(), true, &format!("{n:064x}"))]);
        let trigger = Trigger { digest, n: 1, c: 2 };
        format!(
            r#"{{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{{"creationTimestamp":"2026-11-21T09:19:30Z","name":"app-{n}","namespace":"{namespace}","uid":"{uid}","annotations":{{"gateway.envoyproxy.io/connector-liveness":"{trigger}"}}}},"spec":{{"gatewayClassName":"edge","listeners":[{{"name":"http","port":80,"protocol":"HTTP"}}]}}}}"#
        )
    }
}

/// The project's namespace `default`, upstream.
pub(crate) fn upstream_namespace(project: usize) -> String {
    let uid = namespace_uid(project);
    format!(
        r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"default","uid":"{uid}"}}}}"#
    )
}

/// Its counterpart at hub and edge.
pub(crate) fn replica_namespace(project: usize) -> String {
    let (name, uid) =
        (hub_namespace(project), format!("{project:08x}-0007-4d55-8b57-3a0f5c1d2e4b"));
    format!(
        r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}","uid":"{uid}"}}}}"#
    )
}
