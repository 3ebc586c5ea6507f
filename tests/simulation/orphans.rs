//! HTTPRoutes at the hub, the Gateways upstream that are their parents, and the proof that a delete of a
//! route needs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ClusterName, NamespacedName};
use tokio::time::Instant;

use crate::random::Random;
use crate::world::upstream_labels;

/// Where Gateways are upstream.
pub(crate) const UPSTREAM_NAMESPACE: &str = "default";

/// A proof may be this old when the delete is carried out: the route's backup and the DELETE take up to
/// `executor.timeoutMs` each (docs/explanation/orphans.md), the network holds a request that long at
/// most, and the instance's clock may be slow.
const PROOF_LASTS: Duration = Duration::from_millis(2 * 5_000 + 12_000 + 1_000);

#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) upstream: usize,
    pub(crate) cluster: ClusterName,
    pub(crate) route: NamespacedName,
    pub(crate) parents: Vec<String>,
    pub(crate) is_protected: bool,
    /// Which of the parents the tenant has deleted.
    pub(crate) deleted: Vec<bool>,
}

impl Site {
    pub(crate) fn new(
        n: usize,
        (upstream, cluster): (usize, &ClusterName),
        hub_namespace: &str,
        random: &mut Random,
    ) -> Self {
        let parents: Vec<_> =
            (0..random.between(1, 2)).map(|parent| format!("site-{n}-{parent}")).collect();
        let is_protected = random.one_in(6);
        let deleted = vec![false; parents.len()];
        let route = NamespacedName::new(hub_namespace, format!("route-{n}"));
        Self { upstream, cluster: cluster.clone(), route, parents, is_protected, deleted }
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.deleted.iter().all(|deleted| *deleted)
    }

    pub(crate) fn route_object(&self, created: &str) -> Value {
        let group = "gateway.networking.k8s.io";
        let mut labels = upstream_labels(&self.cluster, group, "HTTPRoute", self.route.name());
        if self.is_protected {
            labels["resourcetemplate.karmada.io/deletion-protected"] = "Always".into();
        }
        let parents: Vec<_> = self.parents.iter().map(|name| json!({ "name": name })).collect();
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": self.route.namespace(), "name": self.route.name(),
                         "creationTimestamp": created, "labels": labels},
            "spec": {"parentRefs": parents}})
    }
}

/// The instance that asked, and the object that it asked for: its cluster, its resource, its name.
type Asked = (u32, ClusterName, String, NamespacedName);

/// Checks that no route is deleted without proof that its parents are gone: the same instance asked the
/// upstream API server for its namespace and for each parent shortly before.
#[derive(Default)]
pub(crate) struct RouteGuard {
    pub(crate) sites: Vec<Site>,
    may_delete: bool,
    /// What each instance was last told about an object: when, and whether it exists, if the API server
    /// said so, and so it was.
    answers: BTreeMap<Asked, (Instant, Option<bool>)>,
}

impl RouteGuard {
    pub(crate) fn new(sites: &[Site], mode: OrphanMode) -> Self {
        let may_delete = mode == OrphanMode::Delete;
        Self { sites: sites.to_vec(), may_delete, ..Self::default() }
    }

    pub(crate) fn answered(&mut self, asked: Asked, at: Instant, code: u16, exists: bool) {
        let said = match (code, exists) {
            (200, true) | (404, false) => Some(exists),
            _ => None,
        };
        self.answers.insert(asked, (at, said));
    }

    /// What is wrong with the delete of a route.
    pub(crate) fn judge(&self, at: Instant, client: u32, route: &NamespacedName) -> Option<String> {
        let Some(site) = self.sites.iter().find(|site| site.route == *route) else {
            return Some("is no route of a tenant's".to_owned());
        };
        let is_proved = |resource: &str, key: NamespacedName, exists| {
            let asked = (client, site.cluster.clone(), resource.to_owned(), key);
            let answer = self.answers.get(&asked);
            answer.is_some_and(|(told, said)| *said == Some(exists) && at - *told <= PROOF_LASTS)
        };
        let is_gone = |parent: &&String| {
            is_proved("gateways", NamespacedName::new(UPSTREAM_NAMESPACE, parent.as_str()), false)
        };
        let unproved = site.parents.iter().find(|parent| !is_gone(parent));
        if !self.may_delete {
            Some("although orphans.mode is not delete".to_owned())
        } else if site.is_protected {
            Some("although it is protected".to_owned())
        } else if !is_proved("namespaces", NamespacedName::new("", UPSTREAM_NAMESPACE), true) {
            Some("without proof of its upstream namespace".to_owned())
        } else {
            unproved.map(|name| format!("without proof that its parent {name} is gone"))
        }
    }
}
