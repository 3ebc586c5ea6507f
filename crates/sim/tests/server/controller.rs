//! Somebody else's controller against the simulated API server: it lists and watches, its writes meet
//! conflicts, its watches are cut, and in the end each object is as it should be.

#[allow(dead_code, reason = "its main function")]
#[path = "../../examples/controller.rs"]
mod example;

use std::time::Duration;

use example::{OWNER, gateways, reconcile, run};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use throughline_sim::apiserver::{ApiVerb, Resource, SimApiServer};

use crate::sim_apiserver::client;

struct Stage {
    server: SimApiServer,
    gateways: Api<DynamicObject>,
}

impl Stage {
    async fn new() -> Self {
        let server = SimApiServer::start_one().await.unwrap();
        Self { gateways: gateways(client(&server.url(), None)), server }
    }

    async fn create(&self, name: &str, team: &str) -> DynamicObject {
        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": name, "labels": {"team": team}}, "spec": {},
        });
        let gateway = serde_json::from_value(gateway).unwrap();
        self.gateways.create(&PostParams::default(), &gateway).await.unwrap()
    }

    async fn set_team(&self, name: &str, team: &str) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"team": team}}}));
        self.gateways.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn owner(&self, name: &str) -> Option<String> {
        self.gateways.get_opt(name).await.unwrap()?.annotations().get(OWNER).cloned()
    }

    /// Runs the controller until a Gateway has this owner.
    async fn run_until(&self, name: &str, owner: &str) {
        let has_owner = async {
            while self.owner(name).await.as_deref() != Some(owner) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            ended = run(&self.gateways) => panic!("the controller ended: {ended:?}"),
            () = has_owner => {}
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("{name} has no owner {owner}"),
        }
    }

    async fn until_watched(&self) {
        while self.server.load().watches == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn requests(&self, verb: ApiVerb) -> u64 {
        self.server.requests().get(&(verb, Resource::Gateways)).copied().unwrap_or_default()
    }
}

#[tokio::test]
async fn what_is_listed_and_what_the_watch_brings_is_written() {
    let stage = Stage::new().await;
    stage.create("listed", "payments").await;
    let later = async {
        stage.until_watched().await;
        stage.create("watched", "search").await;
    };
    tokio::join!(stage.run_until("watched", "search"), later);
    assert_eq!(stage.owner("listed").await.as_deref(), Some("payments"));
    assert_eq!(stage.requests(ApiVerb::List), 1);
    assert_eq!(stage.requests(ApiVerb::Patch), 2);
}

#[tokio::test]
async fn a_write_on_an_old_version_is_a_conflict_and_changes_nothing() {
    let stage = Stage::new().await;
    let old = stage.create("front", "payments").await;
    stage.set_team("front", "search").await;
    reconcile(&stage.gateways, &old).await.unwrap();
    assert_eq!(stage.owner("front").await, None);
    stage.run_until("front", "search").await;
}

#[tokio::test]
async fn after_a_watch_that_was_cut_nothing_is_missing() {
    let stage = Stage::new().await;
    stage.create("front", "payments").await;
    let cut = async {
        stage.until_watched().await;
        stage.server.cut_watches(Some(Resource::Gateways));
        stage.set_team("front", "search").await;
    };
    tokio::join!(stage.run_until("front", "search"), cut);
    assert!(stage.requests(ApiVerb::List) >= 2, "the controller did not list again");
}
