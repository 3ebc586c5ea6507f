//! HTTPRoutes at the hub, the Gateways upstream that are their parents, and the proof that a delete of a
//! route needs.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline_sim::SimClusters;
use throughline_sim::apiserver::AuditedRequest;
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
    pub(crate) route: ObjectKey,
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
        let route = ObjectKey::new(hub_namespace, format!("route-{n}"));
        Self { upstream, cluster: cluster.clone(), route, parents, is_protected, deleted }
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.deleted.iter().all(|deleted| *deleted)
    }

    pub(crate) fn route_object(&self, created: &str) -> Value {
        let group = "gateway.networking.k8s.io";
        let mut labels = upstream_labels(&self.cluster, group, "HTTPRoute", &self.route.name);
        if self.is_protected {
            labels["resourcetemplate.karmada.io/deletion-protected"] = "Always".into();
        }
        let parents: Vec<_> = self.parents.iter().map(|name| json!({ "name": name })).collect();
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": self.route.namespace, "name": self.route.name,
                         "creationTimestamp": created, "labels": labels},
            "spec": {"parentRefs": parents}})
    }
}

/// The instance that asked, and the object that it asked for.
type Asked = (u32, ClusterName, Kind, String);

/// Checks that no route is deleted without proof that its parents are gone: the same instance asked the
/// upstream API server for its namespace and for each parent shortly before.
#[derive(Default)]
pub(crate) struct RouteGuard {
    sites: Vec<Site>,
    may_delete: bool,
    /// What each instance was last told about an object upstream: when, and whether it exists, if the API
    /// server said so, and so it was.
    answers: BTreeMap<Asked, (Instant, Option<bool>)>,
}

impl RouteGuard {
    pub(crate) fn new(sites: &[Site], mode: OrphanMode) -> Self {
        let may_delete = mode == OrphanMode::Delete;
        Self { sites: sites.to_vec(), may_delete, ..Self::default() }
    }

    /// Looks at a request that was answered. Returns what is wrong with it.
    pub(crate) fn see(
        &mut self,
        audited: &AuditedRequest,
        clusters: &Mutex<SimClusters>,
    ) -> Option<String> {
        let AuditedRequest { cluster, client, request, code, executed, .. } = audited;
        let path = request.uri().path();
        // A project's control plane behind its Milo.
        let path = path.split_once("/control-plane").map_or(path, |(_, path)| path);
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let (kind, key) = match parts[..] {
            ["api", "v1", "namespaces", name] => (Kind::Namespace, ObjectKey::new("", name)),
            ["apis", _, _, "namespaces", namespace, "gateways", name] => {
                (Kind::Gateway, ObjectKey::new(namespace, name))
            }
            ["apis", _, _, "namespaces", namespace, "httproutes", name] => {
                (Kind::HttpRoute, ObjectKey::new(namespace, name))
            }
            _ => return None,
        };
        match (request.method().as_str(), kind) {
            ("DELETE", Kind::HttpRoute) if *executed => {
                let wrong = self.judge(*client, &key)?;
                return Some(format!("instance {client} deleted route {key} {wrong}"));
            }
            ("GET", Kind::Namespace | Kind::Gateway) => {
                let is_there = clusters.lock().unwrap().get(cluster, kind, &key).is_some();
                let exists = match (*code, is_there) {
                    (200, true) => Some(true),
                    (404, false) => Some(false),
                    _ => None,
                };
                let asked = (*client, cluster.clone(), kind, key.name.clone());
                self.answers.insert(asked, (Instant::now(), exists));
            }
            _ => {}
        }
        None
    }

    fn judge(&self, client: u32, route: &ObjectKey) -> Option<String> {
        let Some(site) = self.sites.iter().find(|site| site.route == *route) else {
            return Some("that is no route of a tenant's".to_owned());
        };
        let is_proved = |kind, name: &str, exists| {
            let asked = (client, site.cluster.clone(), kind, name.to_owned());
            let answer = self.answers.get(&asked);
            answer.is_some_and(|(at, said)| *said == Some(exists) && at.elapsed() <= PROOF_LASTS)
        };
        let unproved = site.parents.iter().find(|name| !is_proved(Kind::Gateway, name, false));
        if !self.may_delete {
            Some("although orphans.mode is not delete".to_owned())
        } else if site.is_protected {
            Some("that is protected".to_owned())
        } else if !is_proved(Kind::Namespace, UPSTREAM_NAMESPACE, true) {
            Some("without proof of its upstream namespace".to_owned())
        } else {
            unproved.map(|name| format!("without proof that its parent {name} is gone"))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use http::Request;

    use super::*;
    use crate::world::{Names, World};

    const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/site-9-0";
    const NAMESPACE: &str = "/api/v1/namespaces/default";
    const MILO: &str =
        "/apis/resourcemanager.miloapis.com/v1alpha1/projects/project-0/control-plane";
    const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/ns-1/httproutes/route-9";

    struct Trace {
        guard: RouteGuard,
        world: World,
    }

    impl Trace {
        fn new(mode: OrphanMode, is_protected: bool) -> Self {
            let (names, now) = (Names::new(1, 1), throughline::core::data::time::UnixMillis(0));
            let world = World::new(names, 1, now, &mut Random::new(1));
            let cluster = (0, &world.names.upstreams[0]);
            let mut site = Site::new(9, cluster, "ns-1", &mut Random::new(1));
            site.parents.truncate(1);
            site.is_protected = is_protected;
            Self { guard: RouteGuard::new(&[site], mode), world }
        }

        fn request(&mut self, client: u32, method: &str, path: &str, code: u16) -> Option<String> {
            let request = Request::builder().method(method).uri(path).body(Bytes::new()).unwrap();
            let name = if method == "DELETE" { "hub" } else { "project-0" };
            let (cluster, executed) = (ClusterName::from(name), code == 200);
            let is_repeat = false;
            let audited = AuditedRequest { cluster, client, request, code, executed, is_repeat };
            self.guard.see(&audited, &self.world.clusters)
        }

        /// Asks for the namespace, and for the parent, which is answered with this code.
        fn asks(&mut self, client: u32, at: &str, code: u16) {
            assert_eq!(self.request(client, "GET", &format!("{at}{NAMESPACE}"), 200), None);
            assert_eq!(self.request(client, "GET", &format!("{at}{GATEWAY}"), code), None);
        }

        #[track_caller]
        fn assert_delete(&mut self, client: u32, wrong: &str) {
            let said = self.request(client, "DELETE", ROUTE, 200).unwrap_or_default();
            assert_eq!(said.is_empty(), wrong.is_empty(), "{said}");
            assert!(said.contains(wrong), "{said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delete_without_a_fresh_proof_of_ones_own_is_rejected() {
        let mut trace = Trace::new(OrphanMode::Delete, false);
        trace.assert_delete(1, "without proof of its upstream namespace");
        trace.asks(1, "", 404);
        trace.assert_delete(1, "");
        trace.assert_delete(2, "without proof");
        trace.asks(2, MILO, 404);
        trace.assert_delete(2, "");
        // Neither a 403 nor the 404 of a kind that is not served proves anything.
        trace.asks(1, "", 403);
        trace.assert_delete(1, "without proof that its parent site-9-0 is gone");
        trace.asks(1, "", 404);
        tokio::time::advance(PROOF_LASTS + Duration::from_millis(1)).await;
        trace.assert_delete(1, "without proof");
        for (mode, is_protected, wrong) in
            [(OrphanMode::Delete, true, "protected"), (OrphanMode::Report, false, "orphans.mode")]
        {
            let mut trace = Trace::new(mode, is_protected);
            trace.asks(1, "", 404);
            trace.assert_delete(1, wrong);
        }
    }
}
