//! `throughline status`: the same state whichever way it is asked for, and a terminal whose clock runs.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};
use throughline::core::data::ids::Kind;
use throughline_sim::apiserver::{Fault, Resource};

use crate::constants;
use crate::environment::Environment;
use crate::http::Server;
use crate::program::{Running, program, run};
use crate::stage::{N1, OFFLINE, PAUSED, Settings, Stage, UP, with, with_uid};

const SOON: Duration = Duration::from_secs(30);

/// What `status --watch` prints into a pipe: its latest row.
struct Watching {
    _running: Running,
    rows: tokio::sync::mpsc::UnboundedReceiver<String>,
    last: Value,
}

impl Watching {
    fn start(environment: &Environment) -> Self {
        let mut command = program();
        command.args(["status", "--watch", "--output", "json", "--config"]);
        command.arg(environment.file("config.yaml")).stdout(Stdio::piped());
        constants::give(&mut command, Path::new(&environment.file("config.yaml")));
        let mut running = Running(command.spawn().unwrap());
        let out = std::io::BufReader::new(running.0.stdout.take().unwrap());
        let (sender, rows) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            std::io::BufRead::lines(out).map_while(Result::ok).try_for_each(|l| sender.send(l))
        });
        Self { _running: running, rows, last: Value::Null }
    }

    fn state(&mut self) -> String {
        while let Ok(row) = self.rows.try_recv() {
            self.last = serde_json::from_str(&row).unwrap();
        }
        self.last["state"].as_str().unwrap_or("-").to_owned()
    }
}

/// Of `status` and of `trace`, by the state of the only connector.
#[tokio::test(flavor = "multi_thread")]
async fn the_exit_codes_say_whether_somebody_has_to_look() {
    type Change = fn(&mut Stage);
    let rows: [(&str, i32, i32, Change); 6] = [
        ("ok", 0, 0, |_| {}),
        ("pending", 0, 1, |stage| _ = stage.upstream(OFFLINE)),
        ("paused", 0, 1, |stage| {
            let pause = json!({"metadata": {"annotations": { PAUSED: "true" }}});
            let hub = with_uid(with(UP.copy("lab", N1), pause), "u-hub");
            stage.applied("hub", hub).upstream(OFFLINE);
        }),
        ("held", 1, 1, |stage| _ = stage.leave("up")),
        ("unknown", 1, 1, |stage| _ = stage.lost("edge", "Gateway")),
        ("stuck", 1, 1, |stage| _ = stage.upstream(OFFLINE).pass(6_000)),
    ];
    for (name, of_status, of_trace, change) in rows {
        let mut stage = Stage::settled(Settings::default());
        change(&mut stage);
        let server = Server::with_loop(stage.machine).await;
        let url = format!("http://{}", server.address);
        let codes = tokio::task::spawn_blocking(move || {
            let status = run(&["status", "--state", &url]);
            let trace = run(&["trace", "connector", "default/lab", "--state", &url]);
            let missing = run(&["trace", "connector", "default/none", "--state", &url]);
            [status, trace, missing].map(|(code, ..)| code)
        });
        assert_eq!(codes.await.unwrap(), [of_status, of_trace, 2], "{name}");
        server.stop().await;
    }
}

/// Waits until an instance that has just started lists its connector, and its log has it.
async fn until_listed(environment: &Environment, url: &str) {
    let log = environment.file("events.jsonl");
    for source in [["--state", url], ["--log", &*log]] {
        let end = Instant::now() + SOON;
        loop {
            let (_, out, err) = environment.run(&["status", "--output", "json"], &source).await;
            let json: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
            if json["connectors"][0].is_object() {
                break;
            }
            assert!(Instant::now() < end, "{source:?} lists no connector: {out}{err}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Waits until the only connector is in this state whichever way it is asked for.
async fn all_say(environment: &Environment, url: &str, watching: &mut Watching, expected: &str) {
    let (config, log) = (environment.file("config.yaml"), environment.file("events.jsonl"));
    let sources = [["--config", &*config], ["--state", url], ["--log", &*log]];
    let end = Instant::now() + SOON;
    loop {
        let mut found = Vec::new();
        for source in &sources {
            let (_, out, err) = environment.run(&["status", "--output", "json"], source).await;
            let json: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
            found.push(json["connectors"][0]["state"].as_str().unwrap().to_owned());
        }
        found.push(watching.state());
        if found.iter().all(|state| state == expected) {
            return;
        }
        assert!(Instant::now() < end, "expected {expected}, found {found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_has_one_state_whichever_way_it_is_asked_for() {
    let environment = Environment::new().await;
    let (_instance, url) = environment.start_instance().await;
    until_listed(&environment, &url).await;
    let mut watching = Watching::start(&environment);
    all_say(&environment, &url, &mut watching, "ok").await;

    let connectors = Some(Resource::Connectors);
    let refuses = Fault { resource: connectors, ..Fault::on_writes(403) };
    // The hub refuses the mirror: late for the instance by what it saw, for a look by the time of the
    // last upstream write.
    environment.down.handle.inject(&refuses, 1_000_000);
    environment.set_online(false);
    all_say(&environment, &url, &mut watching, "stuck").await;

    // The hub cannot be listed by anybody.
    environment.down.handle.inject(&Fault::on_watches(Kind::Connector, 403), 1_000_000);
    environment.down.handle.cut_watches(connectors);
    all_say(&environment, &url, &mut watching, "unknown").await;
}

/// A first start: it waits for a Lease that was never there, and the connector that is not mirrored yet
/// waits with it, for longer than it takes to be late.
#[tokio::test(flavor = "multi_thread")]
async fn a_connector_waits_while_its_instance_waits_for_the_lease() {
    let environment = Environment::new().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tl"}});
    environment.down.put(namespace);
    let config = environment.file("config.yaml");
    let mut with_election: Value =
        serde_json::from_str(&std::fs::read_to_string(&config).unwrap()).unwrap();
    with_election["leaderElection"] = json!({"enabled": true, "leaseNamespace": "tl"});
    std::fs::write(&config, with_election.to_string()).unwrap();
    let (_instance, url) = environment.start_instance().await;
    until_listed(&environment, &url).await;
    let waiting = "the Lease was not there before";
    let end = Instant::now() + SOON;
    // The Lease is there once the instance waits; a look reads it once.
    while !environment.run(&["status"], &["--state", &url]).await.1.contains(waiting) {
        assert!(Instant::now() < end, "it does not wait");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut watching = Watching::start(&environment);
    all_say(&environment, &url, &mut watching, "pending").await;
    let (_, text, _) = environment.live(&["status"]).await;
    assert!(text.contains(waiting) && !text.contains("stuck"), "{text}");
    all_say(&environment, &url, &mut watching, "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_redrawn_every_second() {
    let environment = Environment::new().await;
    let (_instance, url) = environment.start_instance().await;
    let config = environment.file("config.yaml");
    for source in [["--config", &*config], ["--state", &url]] {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let mut command = program();
        command.args(["status", "--watch"]).args(source).stdout(Stdio::from(terminal));
        let running = Running(command.spawn().unwrap());
        drop(command);
        let reader = tokio::task::spawn_blocking(move || {
            let (mut master, mut text) = (File::from(master), String::new());
            let mut buffer = [0; 4096];
            let end = Instant::now() + SOON;
            // Nothing changes, and still the time of the summary does.
            while times(&text).len() < 4 && Instant::now() < end {
                let n = master.read(&mut buffer).unwrap();
                text += &String::from_utf8_lossy(&buffer[..n]);
            }
            text
        });
        let text = reader.await.unwrap();
        drop(running);
        let times = times(&text);
        assert!(times.len() >= 4, "{source:?}: {times:?} in {text:?}");
        assert!(text.matches("\x1b[H").count() >= 4, "{text:?}");
    }
}

/// The distinct times of day, to the second, that the summaries show.
fn times(text: &str) -> std::collections::BTreeSet<&str> {
    let before_utc = |piece: &'_ str| piece.len().checked_sub(12).map(|at| (at, piece.len() - 4));
    let pieces: Vec<_> = text.split(" UTC, ").collect();
    let all = pieces.iter().take(pieces.len().saturating_sub(1));
    all.filter_map(|piece| before_utc(piece).and_then(|(a, b)| piece.get(a..b))).collect()
}

/// Whoever forgets `--config` learns what is looked at instead.
#[test]
fn without_a_configuration_it_says_what_it_looks_at() {
    let folder = std::env::temp_dir().join(format!("throughline-context-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("kubeconfig.yaml");
    let config = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "kind-lab",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "kind-lab", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    std::fs::write(&file, config.to_string()).unwrap();
    let output =
        program().args(["status", "--timeout", "300ms"]).env("KUBECONFIG", &file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("looking at the kubeconfig context kind-lab as the only cluster; "),
        "{said}"
    );
    let (_, _, said) = run(&["status", "--log", "fixtures/incident-503.jsonl"]);
    assert!(!said.contains("looking at"), "{said}");
    let _ = std::fs::remove_dir_all(&folder);
}
