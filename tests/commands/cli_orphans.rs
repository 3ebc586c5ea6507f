//! `throughline orphans`: what it lists, and its exit codes. `transcripts/restore.transcript` has what it restores.

use serde_json::{Value, json};
use throughline::core::data::ids::{Kind, Role};
use throughline_sim::apiserver::{ApiVerb, Fault};

use crate::program::{Ended, Place};
use crate::sim_apiserver::{START, TestServer};
use crate::stage::{Tenant, UP};

/// The namespace of the project.
const SHOP: Tenant = Tenant { namespace: "shop", ..UP };

/// A project and its hub, and the program.
pub(crate) struct Site {
    pub(crate) up: TestServer,
    pub(crate) hub: TestServer,
    pub(crate) place: Place,
}

impl Site {
    /// The project has the Gateway `site`, and the hub its route `alive`.
    pub(crate) async fn new(config: Value) -> Self {
        let clusters = [("up", &[Role::Upstream][..]), ("hub", &[Role::Hub])];
        let (place, [up, hub]) = Place::serve(clusters, START, config).await;
        up.put(SHOP.namespace());
        up.put(json!({"kind": "Gateway", "metadata": {"namespace": "shop", "name": "site"}}));
        hub.put(json!({"kind": "Namespace", "metadata": {"name": SHOP.hub_namespace()}}));
        hub.put(route("alive", "site"));
        Self { up, hub, place }
    }

    pub(crate) async fn orphans(&self, args: &[&str]) -> Ended {
        self.place.run(&[&["orphans"], args].concat()).await
    }

    pub(crate) async fn routes(&self) -> Vec<String> {
        let (_, list) = self.hub.get(&routes()).await;
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(name).collect()
    }
}

pub(crate) fn routes() -> String {
    let namespace = SHOP.hub_namespace();
    format!("/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/httproutes")
}

/// A route at the hub with this parent, old enough for an orphan.
pub(crate) fn route(name: &str, parent: &str) -> Value {
    SHOP.route(name, 1_577_934_245_000, &[parent])
}

#[tokio::test(flavor = "multi_thread")]
async fn each_candidate_is_listed_with_its_evidence() {
    let site = Site::new(json!({})).await;
    let (code, out, err) = site.orphans(&[]).await;
    assert_eq!((code, &*out, &*err), (0, "no orphaned routes\n", ""));

    site.hub.put(route("orphan", "gone"));
    let mut protected = route("protected", "gone");
    let label = "resourcetemplate.karmada.io/deletion-protected";
    protected["metadata"]["labels"][label] = "Always".into();
    site.hub.put(protected);
    let (code, out, _) = site.orphans(&[]).await;
    assert_eq!(code, 1);
    for text in [
        "ns-6bcb0b35-0000-4000-8000-000000000001/orphan at hub (created ",
        " ago)\n  orphan\n  parent Gateways: gone (does not exist)\n  \
         upstream namespace: shop in up, proven by its uid\n",
        "kept (route_protected): A label, ",
        "\n1 orphan, 1 kept\na run with `orphans.mode: delete` deletes orphans\n",
    ] {
        assert!(out.contains(text), "{text}: {out}");
    }
    assert!(!out.contains("alive"), "{out}");

    let (code, out, _) = site.orphans(&["--output", "json"]).await;
    assert_eq!(code, 1);
    let json: Value = serde_json::from_str(&out).unwrap();
    let candidates = json["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2);
    let orphan = &candidates[0];
    assert_eq!((&orphan["name"], &orphan["kept"]), (&json!("orphan"), &Value::Null));
    assert_eq!(orphan["parents"], json!([["gone", false]]));
    assert_eq!(orphan["namespace_proved"], true);
    assert!(orphan["heard_ms"].is_u64() && orphan["orphan_since_ms"].is_u64());
    assert_eq!(candidates[1]["kept"], "route_protected");

    let (_, of_up, _) = site.orphans(&["--upstream", "up"]).await;
    assert!(of_up.contains("/orphan at hub"), "{of_up}");
    let (code, out, err) = site.orphans(&["--upstream", "another"]).await;
    assert!(code == 2 && out.is_empty() && err.contains("no such upstream"), "{err}");
    // Whatever the configuration says, a look writes nothing.
    let delete = ["--set", "orphans.mode=delete", "--set", "eventLog.file=run.jsonl"];
    assert_eq!(site.orphans(&delete).await.0, 1);
    assert_eq!(site.routes().await, ["alive", "orphan", "protected"]);
    let requests = site.hub.handle.requests();
    let is_read = |verb: &ApiVerb| matches!(verb, ApiVerb::List | ApiVerb::Watch | ApiVerb::Get);
    assert!(requests.keys().all(|(verb, _)| is_read(verb)), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_that_cannot_be_judged_are_no_success() {
    let site = Site::new(json!({})).await;
    site.up.handle.inject(&Fault::on_watches(Kind::Gateway, 403), 1_000);
    let (code, out, err) = site.orphans(&[]).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("kept (route_unproven): The Gateways of up "), "{out}");
    assert!(out.contains("alive") && out.contains("parent Gateways: site (unknown)"), "{out}");
    assert!(err.contains("does not allow throughline"), "{err}");
}
