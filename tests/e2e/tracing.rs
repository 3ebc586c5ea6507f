//! `trace` and `status` on real API servers: for a break at every hop, live, by a running instance's
//! state and from the event log of the same run, they name the right hop.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::faults::Rule;
use crate::cluster::fleet::{Fleet, Spec, app};
use crate::cluster::follow::Task;
use crate::cluster::objects::{UPSTREAM_STATUS, proxy};
use crate::cluster::process::Folder;
use crate::cluster::rest::{CONNECTORS, PROXIES};
use crate::cluster::rights::{folders, without};
use crate::cluster::throughline::{Setup, Throughline, binary};
use crate::cluster::world::{Cluster, Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle, quiet};
use crate::leading::{Party, short};

/// What a trace is asked of.
struct Tracer {
    config: PathBuf,
    /// A running instance and its event log.
    state: Option<String>,
    log: Option<PathBuf>,
    _folder: Folder,
}

impl Tracer {
    fn of(world: &World, throughline: Option<&Throughline>) -> Self {
        let folder = Folder::new("tracer");
        let clusters: Vec<_> = world.clusters.iter().map(|cluster| cluster.config()).collect();
        let config = folder.path().join("config.yaml");
        std::fs::write(&config, json!({ "clusters": clusters }).to_string()).unwrap();
        Self {
            config,
            state: throughline.map(|t| format!("http://{}", t.admin())),
            log: throughline.map(|t| t.event_log().to_owned()),
            _folder: folder,
        }
    }

    fn live(&self) -> Vec<String> {
        vec!["--config".into(), self.config.display().to_string()]
    }

    /// The ways to ask, by their names.
    fn sources(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut sources = vec![("live", self.live())];
        sources.extend(self.state.iter().map(|url| ("state", vec!["--state".into(), url.clone()])));
        let log = self.log.iter().map(|log| log.display().to_string());
        sources.extend(log.map(|log| ("log", vec!["--log".into(), log])));
        sources
    }
}

async fn ask(words: &[&str], source: &[String]) -> (i32, String) {
    let mut command = Command::new(binary());
    command.args(words).args(source).env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let asked = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output { status, stdout, stderr } = asked.await.unwrap();
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let code = status.code().unwrap();
    assert!(code < 2, "{words:?} {source:?}: {out}{err}");
    (code, out)
}

async fn traced(words: &[&str], source: &[String]) -> (i32, Value) {
    let (code, out) = ask(&[words, &["--output", "json"]].concat(), source).await;
    (code, serde_json::from_str(&out).unwrap())
}

/// The hop that a trace names: which, where, how, why.
fn named(trace: &Value) -> [String; 4] {
    let hop = trace["first"].as_u64().map_or(Value::Null, |i| trace["hops"][i as usize].clone());
    ["hop", "cluster", "state", "cause"].map(|key| hop[key].as_str().unwrap_or("-").to_owned())
}

struct Break<'a> {
    world: &'a World,
    fleet: &'a Fleet,
    tracer: Tracer,
}

impl Break<'_> {
    fn name(&self, i: usize) -> String {
        let (namespace, name) = self.fleet.key(i);
        format!("{namespace}/{name}")
    }

    /// Every source comes to name this hop of connector `i`, by its name upstream and as a replica, and
    /// the table has it as stuck. `causes`: live, by state, from the log.
    async fn is_at(&self, i: usize, hop: &str, cluster: &str, state: &str, causes: [&str; 3]) {
        for ((source, args), cause) in self.tracer.sources().into_iter().zip(causes) {
            let name = self.name(i);
            eventually(&format!("{source} names {hop}, {cluster}: {cause}"), SOON, async || {
                let (code, json) = traced(&["trace", "connector", &name], &args).await;
                let found = named(&json["traces"][0]);
                ensure(code == 1 && found == [hop, cluster, state, cause], || format!("{found:?}"))
            })
            .await;
            let (_, text) = ask(&["trace", "connector", &name], &args).await;
            if std::env::var_os("SHOW").is_some() {
                eprintln!("==== {source}\n{text}");
            }
            assert!(text.contains("What to do:\n  - "), "{source}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{source}: {text}");
            if cause == "notReferenced" {
                continue;
            }
            let (namespace, name) = self.fleet.key(i);
            let of = |row: &&Value| {
                let up = &row["upstream"];
                up["namespace"] == namespace && up["name"] == *name
            };
            // The times of writes are those of objects here: late may come later.
            eventually(&format!("{source}: the table has it"), SOON, async || {
                let (code, rows) = traced(&["status", "--stuck"], &args).await;
                let row = rows["connectors"].as_array().unwrap().iter().find(of);
                let stuck = row.map_or(Value::Null, |row| row["stuck"]["hop"].clone());
                ensure(code == 1 && stuck == hop, || format!("{rows:#}"))
            })
            .await;
        }
    }

    async fn all_is_well(&self) {
        oracle::converges(self.world).await;
        quiet(self.world).await;
        for (source, args) in self.tracer.sources() {
            eventually(&format!("{source}: every hop agrees"), SOON, async || {
                let (code, json) = traced(&["trace", "connector", &self.name(0)], &args).await;
                let trace = &json["traces"][0];
                let ok = |hop: &Value| hop["state"] == "ok";
                let hops = trace["hops"].as_array().unwrap();
                ensure(code == 0 && hops.len() == 5 && hops.iter().all(ok), || format!("{json:#}"))
            })
            .await;
            let (code, out) = ask(&["status"], &args).await;
            assert_eq!(code, 0, "{source}: {out}");
            assert!(out.contains("\n2 connectors, 0 stuck, 0 on their way  "), "{source}: {out}");
        }
    }
}

/// Takes one of throughline's rights at a cluster away, or gives all of them back.
async fn forbid(cluster: &Cluster, right: Option<(&str, &str, &str)>) {
    without(cluster.rest(), &folders(cluster.roles), right).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_break_at_each_hop_is_named_from_every_source() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec { gateways: 2, ..Spec::of(2) }).await;
    let soon = json!({ "retry": { "firstMs": 500, "maxMs": 2_000, "refusedMs": 2_000 } });
    let setup = Setup::of(&world).set(&soon).allow("refused: mend the permission");
    let throughline = setup.ready().await;
    let tracer = Tracer::of(&world, Some(&throughline));
    let all = Break { world: &world, fleet: &fleet, tracer };
    let (hub, edge) = (world.hub(), world.edge());
    all.all_is_well().await;
    let (_, live) = traced(&["trace", "connector", &all.name(0)], &all.tracer.live()).await;
    let writers: Vec<_> =
        live["traces"][0]["hops"].as_array().unwrap().iter().map(|h| &h["writer"]).collect();
    assert!(writers.iter().all(|writer| writer["ofField"] == true), "{writers:#?}");
    assert_eq!(writers[3]["manager"], "throughline", "of the trigger: {writers:#?}");

    // The right to mirror is taken away.
    forbid(hub, Some(("networking.datumapis.com", "connectors", "patch"))).await;
    fleet.flip(0).await.unwrap();
    all.is_at(0, "mirrored", "hub", "wrong", ["notWritten", "refused", "refused"]).await;
    forbid(hub, None).await;
    all.all_is_well().await;

    // Another writer keeps at it.
    let (namespace, name) = fleet.replica(0);
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
    all.is_at(0, "mirrored", "hub", "wrong", ["contention"; 3]).await;
    drop(other);
    all.all_is_well().await;

    // The carrier carries nothing.
    world.carrier().stop();
    fleet.flip(1).await.unwrap();
    all.is_at(1, "arrived", "edge", "wrong", ["notCarried"; 3]).await;
    world.carrier().go_on();
    all.all_is_well().await;

    // The edge can't be reached, and then takes requests and says nothing: no trace hangs.
    edge.proxy.down();
    all.is_at(0, "arrived", "edge", "unknown", ["unseen"; 3]).await;
    edge.proxy.up();
    all.all_is_well().await;
    edge.proxy.freeze();
    let began = Instant::now();
    let args = [all.tracer.live(), vec!["--timeout".into(), "2s".into()]].concat();
    let (code, json) = traced(&["trace", "connector", &all.name(0)], &args).await;
    let found = named(&json["traces"][0]);
    assert_eq!((code, found), (1, ["arrived", "edge", "unknown", "unseen"].map(str::to_owned)));
    assert!(began.elapsed() < SOON / 2, "it hung for {:?}", began.elapsed());
    edge.proxy.thaw();
    all.all_is_well().await;

    // The right to touch is taken away.
    forbid(edge, Some(("gateway.networking.k8s.io", "gateways", "patch"))).await;
    fleet.flip(1).await.unwrap();
    all.is_at(1, "touched", "edge", "wrong", ["notWritten", "refused", "refused"]).await;
    let gateway = format!("{}/{}", fleet.replica(1).0, app(1, 1));
    for (source, args) in all.tracer.sources() {
        let (code, json) = traced(&["trace", "gateway", &gateway], &args).await;
        assert_eq!((code, &*named(&json["traces"][0])[0]), (1, "touched"), "{source}: {json:#}");
    }
    forbid(edge, None).await;
    all.all_is_well().await;

    // The proxies are gone.
    let (namespace, name) = fleet.replica(1);
    for g in 0..2 {
        edge.rest().delete(PROXIES, namespace, &app(1, g)).await.unwrap();
    }
    all.is_at(1, "touched", "edge", "wrong", ["notReferenced"; 3]).await;
    for g in 0..2 {
        let object = proxy(namespace, &app(1, g), &[&name]);
        edge.rest().create(PROXIES, object).await.unwrap();
    }
    all.all_is_well().await;

    // Upstream can't be reached.
    world.upstream().proxy.down();
    all.is_at(1, "upstream", "up", "unknown", ["unseen"; 3]).await;
    world.upstream().proxy.up();
    all.all_is_well().await;
    throughline.stop().await;

    // Nobody runs: the look finds it, and writes nothing.
    let nobody = Break { tracer: Tracer::of(&world, None), ..all };
    fleet.flip(0).await.unwrap();
    world.forget();
    nobody.is_at(0, "mirrored", "hub", "wrong", ["notWritten", "", ""]).await;
    assert_eq!(world.writes().len(), 0, "{:#?}", world.writes());
}

/// Of two replicas the one that doesn't lead says who does; so does a look at the Lease.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn who_leads_is_told_by_who_does_not() {
    let party = Party::with(Topology::Three, 2, short()).await;
    let leader = party.somebody_leads().await;
    let other = &party.replicas[1 - leader];
    let holder = party.replicas[leader].identity.clone();
    eventually("the other knows", SOON, async || {
        let state = other.throughline().state().await;
        ensure(state["holder"] == *holder && state["leads"] == false, || {
            state["holder"].to_string()
        })
    })
    .await;
    // The leader's mirror writes fail, and its Lease doesn't.
    let hub = party.replicas[leader].hub();
    let rule = hub.add(Rule::status(503).method("PATCH").resource("connectors"));
    party.fleet.flip(0).await.unwrap();
    let (namespace, name) = party.fleet.key(0);
    let name = format!("{namespace}/{name}");
    let tracer = Tracer::of(&party.world, Some(other.throughline()));
    for (source, args) in tracer.sources() {
        eventually(&format!("{source} names the leader"), SOON, async || {
            let (_, text) = ask(&["trace", "connector", &name], &args).await;
            let named = source == "log" || text.contains(&holder);
            ensure(named && text.contains("Stuck at mirrored, hub: "), || text)
        })
        .await;
    }
    hub.remove(rule);
    oracle::converges(&party.world).await;
    party.end().await;
}
