//! `trace` and `status` on real API servers: for a fault at each hop they name the right hop, from the
//! clusters, from the state of a running instance and from its event log.

use crate::cluster::objects::proxy;
use crate::prelude::*;

/// What a trace can read, the clusters, a running instance and its log: a name, and the flags.
type Source = (&'static str, Vec<String>);

fn sources(testbed: &Testbed, throughline: &Throughline) -> [Source; 3] {
    let config = testbed.config_file(&json!({})).display().to_string();
    let state = format!("http://{}", throughline.admin());
    let log = throughline.event_log().display().to_string();
    [
        ("live", vec!["--config".into(), config, "--timeout".into(), "5s".into()]),
        ("state", vec!["--state".into(), state]),
        ("log", vec!["--log".into(), log]),
    ]
}

/// The exit code and standard output; both verdicts are fine, errors are not.
async fn run(words: &[&str], source: &[String]) -> (i32, String) {
    let source = source.iter().map(String::as_str);
    let words: Vec<_> = words.iter().copied().chain(source).collect();
    let (code, out, err) = command(&words).await;
    assert!(code < 2, "{words:?}: {out}{err}");
    (code, out)
}

async fn run_json(words: &[&str], source: &[String]) -> (i32, Value) {
    let (code, out) = run(&[words, &["--output", "json"]].concat(), source).await;
    (code, serde_json::from_str(&out).unwrap())
}

/// Hop, cluster, state and cause of the hop that makes a connector's state: of the worst the first.
fn worst_hop(connector: &Value) -> [&str; 4] {
    let is_it = |hop: &&Value| hop["state"] == connector["state"] && hop["state"] != "ok";
    let hop = list(&connector["hops"]).find(is_it).unwrap_or(&Value::Null);
    ["hop", "cluster", "state", "cause"].map(|key| hop[key].as_str().unwrap_or("-"))
}

struct Scenario<'a> {
    testbed: &'a Testbed,
    fleet: &'a Fleet,
    sources: &'a [Source],
}

impl Scenario<'_> {
    fn name(&self, i: usize) -> String {
        let (namespace, name) = self.fleet.upstream_key(i);
        format!("{namespace}/{name}")
    }

    /// Waits until every source names this hop of connector `i`, and the status table shows it. A cause of two
    /// words is that of the clusters, then that of the instance and its log.
    async fn is_bad_at(&self, i: usize, hop: &str, cluster: &str, state: &str, cause: &str) {
        let (of_clusters, of_instance) = cause.split_once(' ').unwrap_or((cause, cause));
        let name = self.name(i);
        for (source, args) in self.sources {
            let cause = if *source == "live" { of_clusters } else { of_instance };
            eventually(&format!("{source} names {hop}, {cluster}: {cause}"), SOON, async || {
                let (code, json) = run_json(&["trace", "connector", &name], args).await;
                let found = worst_hop(&json["connectors"][0]);
                ensure(code == 1 && found == [hop, cluster, state, cause], || format!("{found:?}"))
            })
            .await;
            let (_, text) = run(&["trace", "connector", &name], args).await;
            assert!(text.contains("\n  → "), "{source}: {text}");
            let of =
                |connector: &&Value| connector["upstream"]["name"] == self.fleet.upstream_key(i).1;
            // A live table judges by the times of writes, and so may call a hop late a little later.
            eventually(&format!("{source}: the status table shows it"), SOON, async || {
                let (code, fleet) = run_json(&["status", "--stuck"], args).await;
                let connector = list(&fleet["connectors"]).find(of).unwrap_or(&Value::Null);
                let found = worst_hop(connector);
                ensure(code == 1 && found[0] == hop && found[2] == state, || format!("{fleet:#}"))
            })
            .await;
        }
    }

    /// An edge that answers nothing is unknown, and so is what lies beyond it. Neither the carrier nor a Gateway
    /// is blamed for it.
    async fn edge_is_unknown(&self, i: usize) {
        self.is_bad_at(i, "carried", "edge", "unknown", "cluster_unavailable").await;
        for (source, args) in self.sources {
            let (_, json) = run_json(&["status"], args).await;
            for connector in list(&json["connectors"]) {
                assert_eq!(connector["state"], "unknown", "{source}: {json:#}");
                let mut at_edge = list(&connector["hops"]).filter(|hop| hop["cluster"] == "edge");
                assert!(at_edge.all(|hop| hop["state"] == "unknown"), "{source}: {json:#}");
            }
            let mut causes = list(&json["problems"]).map(|problem| &problem["cause"]);
            assert!(causes.all(|cause| cause == "cluster_unavailable"), "{source}: {json:#}");
        }
    }

    async fn every_hop_agrees(&self) {
        stays_converged(self.testbed).await;
        for (source, args) in self.sources {
            let agreed = (0, vec![json!("ok"); 5]);
            becomes(&format!("{source}: every hop agrees"), agreed, async || {
                let (code, json) = run_json(&["trace", "connector", &self.name(0)], args).await;
                (code, list(&json["connectors"][0]["hops"]).map(|h| h["state"].clone()).collect())
            })
            .await;
            let (code, out) = run(&["status"], args).await;
            assert_eq!(code, 0, "{source}: {out}");
            assert!(out.contains("\n2 connectors: 2 ok\n"), "{source}: {out}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_fault_at_each_hop_is_named_from_every_source() {
    // What is overwritten again and again is stuck until that is over for a while.
    let soon = json!({ "retry": { "firstMs": 500, "maxMs": 2_000 },
        "mirror": { "contentionQuietMs": 5_000 }, "executor": { "timeoutMs": 2_000 },
        "watch": { "silentAfterMs": 3_000, "timeoutMs": 30_000 } });
    // A mirror that is refused or overwritten may also be late.
    let provoked = [
        Cause::ClusterUnavailable,
        Cause::NotCarried,
        Cause::NotMirrored,
        Cause::Overwritten,
        Cause::WriteRefused,
    ];
    let spec = Spec { gateways: 2, ..Spec::of(2) };
    let (testbed, fleet, throughline) = in_sync(Topology::Three, spec, &soon, &provoked).await;
    let sources = sources(&testbed, &throughline);
    let mut scenario = Scenario { testbed: &testbed, fleet: &fleet, sources: &sources };
    let (hub, edge) = (testbed.hub(), testbed.edge());
    scenario.every_hop_agrees().await;
    let live = &sources[0].1;
    let (_, json) = run_json(&["trace", "connector", &scenario.name(0)], live).await;
    let writers: Vec<_> = list(&json["connectors"][0]["hops"]).map(|h| &h["writer"]).collect();
    assert!(writers.iter().all(|writer| writer["ofField"] == true), "{writers:#?}");
    assert_eq!(writers[3]["manager"], "throughline", "the trigger: {writers:#?}");

    // The permission to mirror is revoked.
    hub.without(Some(("networking.datumapis.com", "connectors", "patch"))).await;
    fleet.flip(0).await.unwrap();
    scenario.is_bad_at(0, "mirrored", "hub", "stuck", "not_mirrored write_refused").await;
    hub.without(None).await;
    scenario.every_hop_agrees().await;

    // Another writer keeps overwriting the annotation.
    let overwrite = async {
        for _ in 0_u64.. {
            annotate((hub.rest(), &fleet, 0), UPSTREAM_STATUS, Some("{}")).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    fleet.set(0, true, 7).await.unwrap();
    tokio::select! {
        () = overwrite => {}
        () = scenario.is_bad_at(0, "mirrored", "hub", "stuck", "not_mirrored overwritten") => {}
    }
    scenario.every_hop_agrees().await;

    // The carrier stops.
    testbed.carrier().pause();
    fleet.flip(1).await.unwrap();
    scenario.is_bad_at(1, "carried", "edge", "stuck", "not_carried").await;
    testbed.carrier().resume();
    scenario.every_hop_agrees().await;

    // The edge can't be reached; then it accepts requests and never answers. No trace hangs.
    edge.proxy.down();
    scenario.edge_is_unknown(0).await;
    edge.proxy.up();
    scenario.every_hop_agrees().await;
    edge.proxy.freeze();
    let began = Instant::now();
    run_json(&["trace", "connector", &scenario.name(0)], live).await;
    assert!(began.elapsed() < SOON / 2, "it hung for {:?}", began.elapsed());
    scenario.edge_is_unknown(0).await;
    edge.proxy.thaw();
    scenario.every_hop_agrees().await;

    // The permission to touch is revoked.
    edge.without(Some(("gateway.networking.k8s.io", "gateways", "patch"))).await;
    fleet.flip(1).await.unwrap();
    scenario.is_bad_at(1, "announced", "edge", "stuck", "not_announced write_refused").await;
    let gateway = format!("{}/{}", fleet.hub_key(1).0, app(1, 1));
    for (source, args) in &sources {
        let (code, json) = run_json(&["trace", "gateway", &gateway], args).await;
        let hop = worst_hop(&json["connectors"][0])[0];
        assert_eq!((code, hop), (1, "announced"), "{source}: {json:#}");
    }
    edge.without(None).await;
    scenario.every_hop_agrees().await;

    // The HTTPProxies are deleted: no Gateway announces the connector, which is ok.
    let (namespace, name) = fleet.hub_key(1);
    for g in 0..2 {
        edge.rest().delete(PROXIES, namespace, &app(1, g)).await.unwrap();
    }
    for (source, args) in &sources {
        eventually(&format!("{source} says that no Gateway announces it"), SOON, async || {
            let (code, json) = run_json(&["trace", "connector", &scenario.name(1)], args).await;
            let mut hops = list(&json["connectors"][0]["hops"]);
            let is_told = hops.any(|hop| hop["cause"] == "no_gateway");
            ensure(code == 0 && is_told, || format!("{json:#}"))
        })
        .await;
    }
    for g in 0..2 {
        let object = proxy(namespace, &app(1, g), &[&name]);
        edge.rest().create(PROXIES, object).await.unwrap();
    }
    scenario.every_hop_agrees().await;

    // Upstream can't be reached.
    testbed.upstream().proxy.down();
    scenario.is_bad_at(1, "upstream", "up", "unknown", "cluster_unavailable").await;
    testbed.upstream().proxy.up();
    scenario.every_hop_agrees().await;
    throughline.stop().await;

    // No instance runs: a live trace finds the stuck hop, and writes nothing.
    scenario.sources = &sources[..1];
    fleet.flip(0).await.unwrap();
    testbed.reset_counts();
    scenario.is_bad_at(0, "mirrored", "hub", "stuck", "not_mirrored").await;
    assert_eq!(testbed.writes().len(), 0, "{:#?}", testbed.writes());
}
