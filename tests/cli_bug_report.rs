//! `throughline bug-report`, from the command line.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/incident.rs"]
mod incident;
#[path = "support/sim_apiserver/mod.rs"]
mod sim_apiserver;

use std::io::Read;
use std::time::{Duration, Instant};

use incident::{Fleet, SECRETS, namespace, post_event};
use serde_json::{Value, json};
use throughline::sim::apiserver::{Fault, Resource};

/// The files of an archive, the event log as text.
fn files(archive: &str) -> Vec<(String, String)> {
    let archive = flate2::read::GzDecoder::new(std::fs::File::open(archive).unwrap());
    let mut archive = tar::Archive::new(archive);
    let mut files = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let name = name.strip_prefix("throughline-bug-report/").unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if name.ends_with(".zst") {
            content = zstd::decode_all(&*content).unwrap();
        }
        files.push((name, String::from_utf8(content).unwrap()));
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_report_holds_everything_but_secrets() {
    let fleet = Fleet::new().await;
    let ns = namespace();
    let (instance, url) = fleet.start_instance().await;
    let end = Instant::now() + Duration::from_secs(60);
    while fleet.run(&["status", "--state", &url]).await.0 != 0
        && fleet.hub.sim.lock().unwrap().version(&fleet.hub.cluster) < 3
    {
        assert!(Instant::now() < end, "nothing is mirrored");
    }
    let planted = format!("denied by {}: token {} at {}", SECRETS[2], SECRETS[3], SECRETS[0]);
    post_event(&fleet.hub, ("Connector", &ns, "lab"), 20, &planted).await;
    post_event(&fleet.up, ("Connector", "default", "lab"), 21, SECRETS[5]).await;
    let (config, archive) = (fleet.file("config.yaml"), fleet.file("report.tar.gz"));
    let args = ["bug-report", "--config", &config, "--state", &url, "-o", &archive];
    // Nothing carries from hub to edge here, so the connector is stuck.
    while fleet.run(&["status", "--config", &config]).await.0 != 1 {
        assert!(Instant::now() < end, "nothing is stuck");
    }
    let (code, out, err) = fleet.run(&args).await;
    assert_eq!((code, &*out), (0, ""), "{err}");
    let files = files(&archive);
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "README.txt",
        "version.yaml",
        "instance/status.txt",
        "instance/state.yaml",
        "instance/traces.txt",
        "instance/metrics.txt",
        "config.yaml",
        "clusters/check.txt",
        "clusters/status.txt",
        "clusters/state.yaml",
        "clusters/traces.txt",
        "clusters/events.yaml",
        "event-log.jsonl.zst",
    ];
    assert_eq!(names, expected);
    let content = |name: &str| &files.iter().find(|(n, _)| n == name).unwrap().1;
    for (name, part) in [
        ("clusters/events.yaml", "Reason20"),
        ("clusters/status.txt", "default/lab"),
        ("clusters/traces.txt", "1 connector of 1 stuck"),
        ("clusters/check.txt", "hub"),
        ("instance/metrics.txt", "throughline_build_info"),
        ("event-log.jsonl.zst", "\"listed\""),
        ("config.yaml", "leaderElection"),
    ] {
        assert!(content(name).contains(part), "{name}: {}", content(name));
    }
    // The test can see them: they are where the report reads.
    let log = std::fs::read_to_string(fleet.file("events.jsonl")).unwrap();
    assert!(log.contains(SECRETS[0]) && log.contains(SECRETS[1]) && log.contains(SECRETS[5]));
    for (name, text) in &files {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} is in {name}: {text}");
        }
    }
    // The log still replays to the same actions.
    let log = fleet.file("extracted.jsonl");
    std::fs::write(&log, content("event-log.jsonl.zst")).unwrap();
    let (code, replay, err_of_replay) = fleet.run(&["replay", &log, "-o", "json"]).await;
    let replay: Value = serde_json::from_str(&replay).unwrap();
    assert_eq!((code, &replay["mode"]), (0, &json!("verify")), "{err_of_replay} {replay:#}");
    for name in &names[1..] {
        assert!(err.contains(name) && content("README.txt").contains(name), "{name}: {err}");
    }
    assert!(err.contains("is sent nowhere") && err.contains("names are not"), "{err}");
    let (code, _, err) = fleet.run(&args).await;
    assert!(code == 2 && err.contains("report.tar.gz"), "an archive is not overwritten: {err}");

    // What cannot be had is said.
    drop(instance);
    fleet.hub.handle.inject(&Fault::on_watches(Resource::Events, 403), 1_000);
    let archive = fleet.file("second.tar.gz");
    let args = ["bug-report", "--config", &config, "--state", &url, "-o", &archive];
    let (code, _, err) = fleet.run(&args).await;
    assert_eq!(code, 1, "{err}");
    let files = self::files(&archive);
    for name in ["instance/status.txt", "instance/metrics.txt", "event-log.jsonl.zst"] {
        assert!(err.contains(&format!("missing: {name}: ")), "{name}: {err}");
        let part = files.iter().find(|(n, _)| *n == format!("{name}.error.txt"));
        assert!(part.is_some_and(|(_, text)| text.contains("admin port")), "{name}: {part:?}");
    }
    let events = files.iter().find(|(n, _)| n == "clusters/events.yaml.error.txt").unwrap();
    assert!(events.1.contains("hub: 403"), "{events:?}");
}
