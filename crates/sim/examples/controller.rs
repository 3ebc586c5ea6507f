//! Somebody else's controller, and how its tests run it: on an API server that is a value in the test.
//!
//! It carries the label `team` of each Gateway into an annotation. As every controller, it lists and
//! watches, writes on the version that it read, and goes on after a conflict and after a watch that was
//! cut. `tests/server/controller.rs` does all of that to it.

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::{Client, Config, Error, ResourceExt};
use serde_json::json;
use throughline_sim::apiserver::SimApiServer;

pub(crate) const OWNER: &str = "example.com/owner";

/// Runs until it is dropped.
pub(crate) async fn run(gateways: &Api<DynamicObject>) -> Result<(), Error> {
    loop {
        let list = gateways.list(&ListParams::default()).await?;
        for gateway in &list.items {
            reconcile(gateways, gateway).await?;
        }
        // A watch that breaks is followed by another list.
        let _ = watch(gateways, &list.metadata.resource_version.unwrap_or_default()).await;
    }
}

async fn watch(gateways: &Api<DynamicObject>, version: &str) -> Result<(), Error> {
    let mut events = pin!(gateways.watch(&WatchParams::default(), version).await?);
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(gateway) | WatchEvent::Modified(gateway) = event {
            reconcile(gateways, &gateway).await?;
        }
    }
    Ok(())
}

/// Writes what is missing, unless the Gateway has changed since it was read: then the watch brings it
/// again.
pub(crate) async fn reconcile(
    gateways: &Api<DynamicObject>,
    gateway: &DynamicObject,
) -> Result<(), Error> {
    let owner = gateway.labels().get("team");
    if owner.is_none() || gateway.annotations().get(OWNER) == owner {
        return Ok(());
    }
    let version = gateway.resource_version();
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": {OWNER: owner}}});
    match gateways.patch(&gateway.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(Error::Api(status)) if status.is_conflict() => Ok(()),
        written => written.map(drop),
    }
}

/// The Gateways of the namespace `default`.
pub(crate) fn gateways(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "Gateway");
    Api::default_namespaced_with(client, &ApiResource::from_gvk(&kind))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = SimApiServer::start_one().await?;
    let gateways = gateways(Client::try_from(Config::new(server.url().parse()?))?);
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "front", "labels": {"team": "payments"}}, "spec": {}
    });
    gateways.create(&PostParams::default(), &serde_json::from_value(gateway)?).await?;
    // Five seconds of a controller that would run for ever.
    let _ = tokio::time::timeout(Duration::from_secs(5), run(&gateways)).await;
    println!("{}", serde_json::to_string_pretty(&gateways.get("front").await?)?);
    Ok(())
}
