//! Many orphans at once.

use super::{SHOP, Site, wait_for_kept};
use crate::prelude::*;

const MANY: usize = 100;
/// `limits.maxPerMinute` by default, and how many of them go at once.
const BUDGET: usize = 10;
const AT_ONCE: usize = 5;

/// All Gateways are lost at once: nothing is deleted, and the log says why. They come back, and
/// nothing has happened. Then a person raises the limit, and the orphans are deleted at the set rate.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_by_the_hundred_are_held_and_then_deleted_slowly() {
    let site = Site::start().await;
    let (up, hub) = (site.testbed.upstream().rest(), site.testbed.hub().rest());
    let name = |i: usize| format!("app-{i}");
    let create = async |i| up.create(GATEWAYS, gateway(SHOP, &name(i))).await;
    let delete = async |i| up.delete(GATEWAYS, SHOP, &name(i)).await;
    let route = async |i| hub.create(ROUTES, site.made_route(&name(i), &[&name(i)])).await;
    run_concurrently(MANY, &create).await.unwrap();
    run_concurrently(MANY, &route).await.unwrap();
    let slow = json!({ "orphans": { "settleMs": 5_000 } });
    let remaining = async || hub.items(ROUTES).await.unwrap().len();

    let throughline = site.setup().set(&slow).provokes(&[Cause::ClusterUnavailable]).ready().await;
    // With the watches cut, all of them are gone before the first route can settle.
    wait_for_kept(&throughline, Cause::RouteUnproven, 0).await;
    site.testbed.upstream().proxy.down();
    run_concurrently(MANY, &delete).await.unwrap();
    site.testbed.upstream().proxy.up();
    let held = async || throughline.open(Cause::DeletesHeld, "up").await.is_some();
    until("deletes are held", held).await;
    wait_for_kept(&throughline, Cause::DeletesHeld, MANY).await;
    throughline.logs("100 of 100 routes of up look orphaned; none is deleted.", 1).await;
    assert_eq!(throughline.get("/readyz").await.unwrap().0, 200);
    run_concurrently(MANY, &create).await.unwrap();
    until("deletes are no longer held", async || !held().await).await;
    assert_eq!(site.delete_requests(), [""; 0]);
    run_concurrently(MANY, &delete).await.unwrap();
    wait_for_kept(&throughline, Cause::DeletesHeld, MANY).await;
    assert_eq!((remaining().await, site.delete_requests().len()), (MANY, 0));
    // A hundred orphans, held twice: at most one Event each time, and one when that ended.
    let events = site.testbed.events();
    let reasons: Vec<_> = events.iter().filter_map(|w| w.body["reason"].as_str()).collect();
    assert!(events.len() <= 3 && reasons.first() == Some(&"DeletesHeld"), "{events:#?}");
    let said = events[0].body["message"].as_str().unwrap();
    assert!(said.contains("routes of up look orphaned") && said.contains("maxShare"), "{said}");
    throughline.stop().await;

    let raised = json!({ "limits": { "maxShare": 1.0 } });
    let throughline = site.setup().set(&raised).ready().await;
    wait_for_kept(&throughline, Cause::RouteSettling, MANY - AT_ONCE).await;
    eventually("more than ten are deleted", 2 * SOON, async || {
        let remaining = remaining().await;
        ensure(remaining < MANY - BUDGET, || format!("{remaining} remain"))
    })
    .await;
    let deletes = site.testbed.hub().proxy.writes();
    let at: Vec<_> = deletes.iter().filter(|w| w.target.method == "DELETE").map(|w| w.at).collect();
    for one_more in at.windows(BUDGET + 1) {
        // The decisions are a minute apart at least; the requests may take different times.
        let apart = one_more[BUDGET] - one_more[0];
        assert!(apart > Duration::from_secs(57), "{} deletes in {apart:?}", BUDGET + 1);
    }
    throughline.stop().await;
}
