//! `throughline status` and `trace` of clusters and of a running instance: a terminal whose clock runs, changes
//! in a pipe, and sources that cannot be read. `transcripts/inspect.transcript` has their exit codes.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use throughline::clock::wall_clock_now;
use throughline_sim::apiserver::Fault;

use crate::program::{Place, Running, lines_of};
use crate::sim_apiserver::TestServer;
use crate::stage::*;

const SOON: Duration = Duration::from_secs(30);
const LAB: [&str; 3] = ["trace", "connector", "default/lab"];

/// One connector, `default/lab`, which is online upstream and not mirrored yet.
struct Environment {
    up: TestServer,
    down: TestServer,
    place: Place,
}

impl Environment {
    async fn new() -> Self {
        let clusters = [("up", &[Role::Upstream][..]), ("down", &[Role::Hub, Role::Edge])];
        let config = json!({"leaderElection": {"enabled": false}, "touch": {"confirmAfterMs": []},
            "admin": {"address": "127.0.0.1:0"}, "log": {"format": "json"}});
        let (place, [up, down]) = Place::serve(clusters, wall_clock_now(), config).await;
        up.put(UP.namespace());
        up.put(UP.connector("lab", N1));
        down.put(UP.copy("lab", None));
        down.put(UP.proxy("app", &["lab"]));
        down.put(UP.gateway("app", json!({})));
        Self { up, down, place }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_redrawn_every_second() {
    let environment = Environment::new().await;
    let mut instance = environment.place.start(&["run"]);
    let mut lines = lines_of(instance.0.stderr.take().unwrap());
    let url = loop {
        let line: Value = serde_json::from_str(&lines.recv().await.unwrap()).unwrap();
        if line["message"] == "admin port listening" {
            break format!("http://{}", line["address"].as_str().unwrap());
        }
    };
    for source in [["--config", "config.yaml"], ["--state", &url]] {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let mut command = environment.place.command(&["status", "--watch", source[0], source[1]]);
        let running = Running(command.stdout(Stdio::from(terminal)).spawn().unwrap());
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
fn times(text: &str) -> BTreeSet<&str> {
    // As in `09:19:52.865 UTC, `.
    text.match_indices(" UTC, ").filter_map(|(end, _)| text.get(end - 12..end - 4)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_printed_into_a_pipe_and_what_cannot_be_read_is_named() {
    let environment = Environment::new().await;
    let mut running = environment.place.start(&["status", "--watch"]);
    let mut lines = lines_of(running.0.stdout.take().unwrap());
    let mut next = async |text: &str| loop {
        let line = tokio::time::timeout(SOON, lines.recv()).await;
        let line = line.unwrap_or_else(|_| panic!("{text} did not come")).unwrap();
        if line.contains(text) {
            return line;
        }
    };
    next("UPSTREAM").await;
    next("default/lab").await;
    next("1 connector: ").await;
    environment.up.put(UP.connector("another", None));
    let row = next("default/another").await;
    assert!(row.contains("  mirrored  "), "{row}");
    drop(running);

    // The Lease of each shard is read, and nobody holds one.
    let shards = ["enabled=true", "leaseNamespace=ns", "shards=2"];
    let shards = shards.map(|set| format!("leaderElection.{set}"));
    let mut args = vec!["status"];
    shards.iter().for_each(|set| args.extend(["--set", set.as_str()]));
    let (_, out, _) = environment.place.run(&args).await;
    assert!(out.contains("no_leader: No instance holds Lease ns/throughline and 1 more;"), "{out}");

    // A forbidden list is unknown and names the missing permission.
    environment.down.handle.inject(&Fault::on_watches(Kind::Connector, 403), 1_000);
    let (code, out, _) = environment.place.run(&LAB).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("  unknown  mirrored   down"), "{out}");
    let denied = "permission_missing: down does not allow throughline to list";
    assert!(out.contains(&format!("unknown at mirrored (down), {denied}")), "{out}");
    assert!(out.contains("→ As an administrator:"), "{out}");
    let (code, out, _) = environment.place.run(&["status"]).await;
    assert!(code == 1 && out.contains("\n2 connectors: 2 unknown\n"), "{out}");
    let line = "\ndown: permission_missing, 2 connectors: down does not allow throughline to list";
    assert!(out.contains(line) && out.matches("permission_missing").count() == 3, "{out}");

    // A URL without an instance is an error with a remedy.
    let url = environment.up.handle.url().to_owned();
    let of = async |url: &str| {
        environment.place.run(&[&LAB[..], &["--timeout", "200ms", "--state", url]].concat()).await
    };
    let (code, out, err) = of(&url).await;
    assert_eq!((code, &*out), (2, ""));
    let start = format!("throughline: cannot read {}/state; ", url.trim_end_matches('/'));
    assert!(err.starts_with(&start) && err.contains("it answers 404 Not Found"), "{err}");
    assert!(err.contains("kubectl port-forward"), "{err}");
    // It accepts the connection and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, _, err) = of(&silent.local_addr().unwrap().to_string()).await;
    assert!(code == 2 && err.contains("no answer within 200 ms"), "{err}");
}
