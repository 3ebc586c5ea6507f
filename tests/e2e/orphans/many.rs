//! Many orphans at once.

use std::time::Duration;

use serde_json::json;

use super::{SHOP, Site, kept, said};
use crate::cluster::objects::{gateway, replica_of, route};
use crate::cluster::rest::{GATEWAYS, ROUTES, each};
use crate::cluster::{SOON, ensure, eventually};

const MANY: usize = 100;
const HELD: &str = r#"throughline_orphan_deletes_held{cluster="up"}"#;

/// All Gateways are lost at once: nothing is deleted, and it is said so; when they are back all is
/// as before. A person raises the bound: they go, so many a minute.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_by_the_hundred_are_held_and_then_go_slowly() {
    let site = Site::start().await;
    let (up, hub) = (site.world.upstream().rest(), site.world.hub().rest());
    let name = |i: usize| format!("app-{i}");
    let gateways =
        async || each(MANY, async |i| up.create(GATEWAYS, gateway(SHOP, &name(i))).await).await;
    let no_gateways =
        async || each(MANY, async |i| up.delete(GATEWAYS, SHOP, &name(i)).await).await;
    gateways().await.unwrap();
    each(MANY, async |i| {
        let kind = ("gateway.networking.k8s.io", "HTTPRoute");
        let made = route(&site.ns, &name(i), &[&name(i)]);
        hub.create(ROUTES, replica_of(made, "up", kind, (SHOP, &name(i)))).await
    })
    .await
    .unwrap();
    let slow = json!({ "orphans": { "settleMs": 5_000 } });
    let standing = async || hub.items(ROUTES).await.unwrap().len();

    let throughline = site.setup().set(&slow).allow("too many orphans").ready().await;
    // They are gone before the first could have settled: creations and deletions take a while.
    kept(&throughline, "lists_incomplete", 0).await;
    site.world.upstream().proxy.down();
    no_gateways().await.unwrap();
    site.world.upstream().proxy.up();
    eventually("it is held", SOON, async || {
        let metrics = throughline.metrics().await;
        ensure(metrics.get(HELD) == Some(&1.0), || "not yet".to_owned())
    })
    .await;
    kept(&throughline, "share_exceeded", MANY).await;
    said(&throughline, "too many orphans: nothing of this upstream cluster is deleted").await;
    assert_eq!(throughline.get("/readyz").await.unwrap().0, 200);
    gateways().await.unwrap();
    eventually("it is over", SOON, async || {
        let metrics = throughline.metrics().await;
        ensure(metrics.get(HELD) == Some(&0.0), || "not yet".to_owned())
    })
    .await;
    assert_eq!(site.deletes(), [""; 0]);
    no_gateways().await.unwrap();
    kept(&throughline, "share_exceeded", MANY).await;
    assert_eq!((standing().await, site.deletes().len()), (MANY, 0));
    // A hundred orphans, held twice: one Event each time, and one when it was over.
    let told = site.world.events();
    let reasons: Vec<_> = told.iter().filter_map(|w| w.body["reason"].as_str()).collect();
    assert!(
        told.len() <= 3 && reasons.starts_with(&["DeletesHeld", "DeletesNotHeld"]),
        "{told:#?}"
    );
    let held = told[0].body["message"].as_str().unwrap();
    assert!(
        held.contains("routes of upstream cluster up are orphans") && held.contains("maxShare")
    );
    throughline.stop().await;

    let raised = json!({ "orphans": { "maxShare": 1.0 } });
    let throughline = site.setup().set(&raised).ready().await;
    kept(&throughline, "budget", MANY - 20).await;
    eventually("the second twenty go", 2 * SOON, async || {
        let standing = standing().await;
        ensure(standing <= MANY - 40, || format!("{standing} stand"))
    })
    .await;
    let deletes = site.world.hub().proxy.writes();
    let at: Vec<_> = deletes.iter().filter(|w| w.target.method == "DELETE").map(|w| w.at).collect();
    for twenty_one in at.windows(21) {
        // Decided a minute apart; on their way one may be faster than the other.
        let apart = twenty_one[20] - twenty_one[0];
        assert!(apart > Duration::from_secs(57), "21 deletes in {apart:?}");
    }
    throughline.stop().await;
}
