//! `trace` and `status` on real API servers: for a fault at each hop they name the right hop, from the
//! clusters, from the state of a running instance and from its event log.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::faults::Rule;
use crate::cluster::fleet::{Fleet, Spec, app};
use crate::cluster::follow::Task;
use crate::cluster::objects::{UPSTREAM_STATUS, proxy};
use crate::cluster::process::Folder;
use crate::cluster::rest::{CONNECTORS, PROXIES};
use crate::cluster::rights::{folders, without};
use crate::cluster::testbed::{Cluster, Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline, binary};
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};
use crate::leading::{ElectionTest, short};

/// The sources that a trace can read.
pub(crate) struct Sources {
    config: PathBuf,
    /// The URL of a running instance.
    state: Option<String>,
    log: Option<PathBuf>,
    _folder: Folder,
}

impl Sources {
    pub(crate) fn of(testbed: &Testbed, throughline: Option<&Throughline>) -> Self {
        let folder = Folder::new("tracer");
        let clusters: Vec<_> = testbed.clusters.iter().map(|cluster| cluster.config()).collect();
        let config = folder.path().join("config.yaml");
        std::fs::write(&config, json!({ "clusters": clusters }).to_string()).unwrap();
        Self {
            config,
            state: throughline.map(|t| format!("http://{}", t.admin())),
            log: throughline.map(|t| t.event_log().to_owned()),
            _folder: folder,
        }
    }

    pub(crate) fn live_args(&self) -> Vec<String> {
        vec!["--config".into(), self.config.display().to_string()]
    }

    /// Each source's name and flags.
    pub(crate) fn all(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut sources = vec![("live", self.live_args())];
        sources.extend(self.state.iter().map(|url| ("state", vec!["--state".into(), url.clone()])));
        let log = self.log.iter().map(|log| log.display().to_string());
        sources.extend(log.map(|log| ("log", vec!["--log".into(), log])));
        sources
    }
}

/// The exit code and standard output; both verdicts are fine, errors are not.
pub(crate) async fn run(words: &[&str], source: &[String]) -> (i32, String) {
    let mut command = Command::new(binary());
    command.args(words).args(source).env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output { status, stdout, stderr } = output.await.unwrap();
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let code = status.code().unwrap();
    assert!(code < 2, "{words:?} {source:?}: {out}{err}");
    (code, out)
}

pub(crate) async fn run_json(words: &[&str], source: &[String]) -> (i32, Value) {
    let (code, out) = run(&[words, &["--output", "json"]].concat(), source).await;
    (code, serde_json::from_str(&out).unwrap())
}

/// Hop, cluster, state and cause of the hop that makes a connector's state: of the worst the first.
pub(crate) fn worst_hop(connector: &Value) -> [String; 4] {
    let is_it = |hop: &&Value| hop["state"] == connector["state"] && hop["state"] != "ok";
    let hop = connector["hops"].as_array().and_then(|hops| hops.iter().find(is_it));
    let hop = hop.unwrap_or(&Value::Null);
    ["hop", "cluster", "state", "cause"].map(|key| hop[key].as_str().unwrap_or("-").to_owned())
}

struct Scenario<'a> {
    testbed: &'a Testbed,
    fleet: &'a Fleet,
    sources: Sources,
}

impl Scenario<'_> {
    fn name(&self, i: usize) -> String {
        let (namespace, name) = self.fleet.upstream_key(i);
        format!("{namespace}/{name}")
    }

    /// Waits until every source names this hop of connector `i`, and the status table shows it.
    /// `causes` are those of live, state and log.
    async fn is_bad_at(&self, i: usize, hop: &str, cluster: &str, state: &str, causes: [&str; 3]) {
        for ((source, args), cause) in self.sources.all().into_iter().zip(causes) {
            let name = self.name(i);
            eventually(&format!("{source} names {hop}, {cluster}: {cause}"), SOON, async || {
                let (code, json) = run_json(&["trace", "connector", &name], &args).await;
                let found = worst_hop(&json["connectors"][0]);
                ensure(code == 1 && found == [hop, cluster, state, cause], || format!("{found:?}"))
            })
            .await;
            let (_, text) = run(&["trace", "connector", &name], &args).await;
            if std::env::var_os("SHOW").is_some() {
                eprintln!("==== {source}\n{text}");
            }
            assert!(text.contains("\n  → "), "{source}: {text}");
            // Commands are not broken, so that they can be pasted.
            let mut prose = text.lines().filter(|line| !line.contains("kubectl "));
            assert!(prose.all(|line| line.chars().count() <= 100), "{source}: {text}");
            let (namespace, name) = self.fleet.upstream_key(i);
            let of = |connector: &&Value| {
                let up = &connector["upstream"];
                up["namespace"] == namespace && up["name"] == *name
            };
            // A live table judges by the times of writes, and so may call a hop late a little later.
            eventually(&format!("{source}: the status table shows it"), SOON, async || {
                let (code, fleet) = run_json(&["status", "--stuck"], &args).await;
                let connector = fleet["connectors"].as_array().unwrap().iter().find(of);
                let found = worst_hop(connector.unwrap_or(&Value::Null));
                ensure(code == 1 && found[0] == hop && found[2] == state, || format!("{fleet:#}"))
            })
            .await;
        }
    }

    /// Waits until every source says that no Gateway announces connector `i`, which is ok.
    async fn is_announced_by_none(&self, i: usize) {
        for (source, args) in self.sources.all() {
            eventually(&format!("{source} says that no Gateway announces it"), SOON, async || {
                let (code, json) = run_json(&["trace", "connector", &self.name(i)], &args).await;
                let hops = json["connectors"][0]["hops"].as_array().unwrap();
                let is_told = hops.iter().any(|hop| hop["cause"] == "no_gateway");
                ensure(code == 0 && is_told, || format!("{json:#}"))
            })
            .await;
        }
    }

    async fn every_hop_agrees(&self) {
        oracle::converges(self.testbed).await;
        wait_until_idle(self.testbed).await;
        for (source, args) in self.sources.all() {
            eventually(&format!("{source}: every hop agrees"), SOON, async || {
                let (code, json) = run_json(&["trace", "connector", &self.name(0)], &args).await;
                let trace = &json["connectors"][0];
                let ok = |hop: &Value| hop["state"] == "ok";
                let hops = trace["hops"].as_array().unwrap();
                ensure(code == 0 && hops.len() == 5 && hops.iter().all(ok), || format!("{json:#}"))
            })
            .await;
            let (code, out) = run(&["status"], &args).await;
            assert_eq!(code, 0, "{source}: {out}");
            assert!(out.contains("\n2 connectors: 2 ok\n"), "{source}: {out}");
        }
    }
}

/// Revokes one of throughline's permissions at a cluster; `None` grants all of them again.
pub(crate) async fn revoke(cluster: &Cluster, permission: Option<(&str, &str, &str)>) {
    without(cluster.rest(), &folders(cluster.roles), permission).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_fault_at_each_hop_is_named_from_every_source() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec { gateways: 2, ..Spec::of(2) }).await;
    // What is overwritten again and again is stuck until that is over for a while.
    let soon = json!({ "retry": { "firstMs": 500, "maxMs": 2_000 },
        "mirror": { "contentionQuietMs": 5_000 } });
    let setup = Setup::of(&testbed).set(&soon).provokes(&[
        Cause::ClusterUnavailable,
        Cause::NotCarried,
        Cause::Overwritten,
        Cause::WriteRefused,
    ]);
    let throughline = setup.ready().await;
    let sources = Sources::of(&testbed, Some(&throughline));
    let scenario = Scenario { testbed: &testbed, fleet: &fleet, sources };
    let (hub, edge) = (testbed.hub(), testbed.edge());
    scenario.every_hop_agrees().await;
    let (_, live) =
        run_json(&["trace", "connector", &scenario.name(0)], &scenario.sources.live_args()).await;
    let writers: Vec<_> =
        live["connectors"][0]["hops"].as_array().unwrap().iter().map(|h| &h["writer"]).collect();
    assert!(writers.iter().all(|writer| writer["ofField"] == true), "{writers:#?}");
    assert_eq!(writers[3]["manager"], "throughline", "the trigger: {writers:#?}");

    // The permission to mirror is revoked.
    revoke(hub, Some(("networking.datumapis.com", "connectors", "patch"))).await;
    fleet.flip(0).await.unwrap();
    scenario
        .is_bad_at(
            0,
            "mirrored",
            "hub",
            "stuck",
            ["not_mirrored", "write_refused", "write_refused"],
        )
        .await;
    revoke(hub, None).await;
    scenario.every_hop_agrees().await;

    // Another writer keeps overwriting the annotation.
    let (namespace, name) = fleet.hub_key(0);
    let other = {
        let (rest, namespace, name) = (hub.rest().clone(), namespace.to_owned(), name.clone());
        Task::spawn(async move {
            loop {
                let of = (&*namespace, &*name);
                let _ = rest.annotate(CONNECTORS, of, UPSTREAM_STATUS, Some("{}")).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
    };
    fleet.set(0, true, 7).await.unwrap();
    scenario
        .is_bad_at(0, "mirrored", "hub", "stuck", ["not_mirrored", "overwritten", "overwritten"])
        .await;
    drop(other);
    scenario.every_hop_agrees().await;

    // The carrier stops.
    testbed.carrier().pause();
    fleet.flip(1).await.unwrap();
    scenario.is_bad_at(1, "carried", "edge", "stuck", ["not_carried"; 3]).await;
    testbed.carrier().resume();
    scenario.every_hop_agrees().await;

    // The edge can't be reached; then it accepts requests and never answers. No trace hangs.
    edge.proxy.down();
    scenario.is_bad_at(0, "carried", "edge", "unknown", ["cluster_unavailable"; 3]).await;
    edge.proxy.up();
    scenario.every_hop_agrees().await;
    edge.proxy.freeze();
    let began = Instant::now();
    let args = [scenario.sources.live_args(), vec!["--timeout".into(), "2s".into()]].concat();
    let (code, json) = run_json(&["trace", "connector", &scenario.name(0)], &args).await;
    let found = worst_hop(&json["connectors"][0]);
    assert_eq!((code, &found[..3]), (1, &["carried", "edge", "unknown"].map(str::to_owned)[..]));
    assert!(began.elapsed() < SOON / 2, "it hung for {:?}", began.elapsed());
    edge.proxy.thaw();
    scenario.every_hop_agrees().await;

    // The permission to touch is revoked.
    revoke(edge, Some(("gateway.networking.k8s.io", "gateways", "patch"))).await;
    fleet.flip(1).await.unwrap();
    scenario
        .is_bad_at(
            1,
            "announced",
            "edge",
            "stuck",
            ["not_announced", "write_refused", "write_refused"],
        )
        .await;
    let gateway = format!("{}/{}", fleet.hub_key(1).0, app(1, 1));
    for (source, args) in scenario.sources.all() {
        let (code, json) = run_json(&["trace", "gateway", &gateway], &args).await;
        assert_eq!(
            (code, &*worst_hop(&json["connectors"][0])[0]),
            (1, "announced"),
            "{source}: {json:#}"
        );
    }
    revoke(edge, None).await;
    scenario.every_hop_agrees().await;

    // The HTTPProxies are deleted.
    let (namespace, name) = fleet.hub_key(1);
    for g in 0..2 {
        edge.rest().delete(PROXIES, namespace, &app(1, g)).await.unwrap();
    }
    scenario.is_announced_by_none(1).await;
    for g in 0..2 {
        let object = proxy(namespace, &app(1, g), &[&name]);
        edge.rest().create(PROXIES, object).await.unwrap();
    }
    scenario.every_hop_agrees().await;

    // Upstream can't be reached.
    testbed.upstream().proxy.down();
    scenario.is_bad_at(1, "upstream", "up", "unknown", ["cluster_unavailable"; 3]).await;
    testbed.upstream().proxy.up();
    scenario.every_hop_agrees().await;
    throughline.stop().await;

    // No instance runs: a live trace finds the stuck hop, and writes nothing.
    let without_instance = Scenario { sources: Sources::of(&testbed, None), ..scenario };
    fleet.flip(0).await.unwrap();
    testbed.reset_counts();
    without_instance.is_bad_at(0, "mirrored", "hub", "stuck", ["not_mirrored", "", ""]).await;
    assert_eq!(testbed.writes().len(), 0, "{:#?}", testbed.writes());
}

/// An instance that does not lead names the leader; so does a live trace, which reads the Lease.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_leader_is_named_by_other_instances() {
    let election = ElectionTest::with(Topology::Three, 2, short()).await;
    let election = election.provokes(&[Cause::NotMirrored, Cause::WriteFailing]);
    let leader = election.somebody_leads().await;
    let other = &election.instances[1 - leader];
    let holder = election.instances[leader].identity.clone();
    eventually("the other instance knows the leader", SOON, async || {
        let state = other.throughline().state().await;
        let leader = &state["leader"];
        ensure(leader["holder"] == *holder && leader["leads"] == false, || leader.to_string())
    })
    .await;
    // The leader's mirror writes fail; its Lease requests do not.
    let hub = election.instances[leader].hub();
    let rule = hub.add(Rule::status(503).method("PATCH").resource("connectors"));
    election.fleet.flip(0).await.unwrap();
    let (namespace, name) = election.fleet.upstream_key(0);
    let name = format!("{namespace}/{name}");
    let sources = Sources::of(&election.testbed, Some(other.throughline()));
    for (source, args) in sources.all() {
        eventually(&format!("{source} names the leader"), SOON, async || {
            let (_, text) = run(&["trace", "connector", &name], &args).await;
            let named = source == "log" || text.contains(&holder);
            ensure(named && text.contains("stuck at mirrored (hub), "), || text)
        })
        .await;
    }
    hub.remove(rule);
    oracle::converges(&election.testbed).await;
    election.end().await;
}
