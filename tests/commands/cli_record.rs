//! `throughline record` on simulated API servers: its summary and its exit codes.
//! `tests/e2e/recording.rs` has its requests, its permissions and its replay.

use regex::Regex;
use serde_json::{Value, json};
use throughline::core::data::ids::Role;
use throughline_sim::apiserver::ServerMode;

use crate::program::Place;
use crate::sim_apiserver::{START, TestServer};
use crate::stage::{OFFLINE, UP};
use crate::waiting::{SOON, ensure, eventually};

/// One simulated cluster, upstream and edge, with an offline Connector.
struct Recorded {
    served: TestServer,
    place: Place,
}

impl Recorded {
    async fn new() -> Self {
        let clusters = [("one", &[Role::Upstream, Role::Edge][..])];
        let config = json!({ "eventLog": { "file": "live.jsonl" },
            "watch": { "backoffMaxMs": 300, "timeoutMs": 1000 } });
        let (place, [served]) = Place::serve(clusters, START, config).await;
        place.write("live.jsonl", "the live run's");
        served.put(UP.connector("a", OFFLINE));
        Self { served, place }
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.place.path(file)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until the file has `count` such events.
    async fn until(&self, file: &str, event: &str, count: usize) {
        eventually(&format!("{count} {event}"), SOON, async || {
            let lines = self.lines(file);
            let come = lines.iter().filter(|line| line["event"] == event).count();
            ensure(come >= count, || format!("{lines:#?}"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_overwrites_nothing_not_even_the_live_log() {
    let place = Recorded::new().await.place;
    place.write("old.jsonl", "evidence");
    place.write("new.jsonl.1", "evidence");
    for (file, taken) in [("old.jsonl", "old.jsonl"), ("new.jsonl", "new.jsonl.1")] {
        let (code, _, err) = place.run(&["record", file]).await;
        assert!(code == 2 && err.contains(&format!("{taken} exists")), "{err}");
        assert_eq!(place.read(taken), "evidence");
    }
    let (code, _, err) = place.run(&["record", "nowhere/new.jsonl"]).await;
    assert!(code == 2 && err.contains("nowhere/new.jsonl: cannot create the event log"), "{err}");

    // Without a file name it creates one of its own; `--for` ends it.
    let (code, _, err) = place.run(&["record", "--for", "1500ms"]).await;
    assert!(code < 2 && err.contains("; for 1.50 s, or until SIGINT"), "{err}");
    assert!(err.contains("\nrecorded "), "{err}");
    let own = Regex::new(r"throughline-record-[^ ]*\.jsonl").unwrap().find(&err).unwrap();
    assert!(!place.read(own.as_str()).is_empty());
    assert_eq!(place.read("live.jsonl"), "the live run's");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_recording_says_so() {
    let recorded = Recorded::new().await;
    recorded.served.handle.set_mode(ServerMode::Down);
    let running = recorded.place.start(&["record", "night.jsonl"]);
    recorded.until("night.jsonl", "watch_lost", 4).await;
    let (code, _, err) = running.stop().await;
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("0 of 4 watches live (lost 4 times)"), "{err}");
    assert!(err.contains("incomplete: Gateway in one was not being watched at the end"), "{err}");
    assert!(err.contains("watch lost; retrying"), "{err}");

    // The API server returns before the end: nothing is missing.
    let roles = "clusters[0].roles=[upstream, hub, edge]";
    let running = recorded.place.start(&["record", "day.jsonl", "--set", roles]);
    recorded.until("day.jsonl", "watch_lost", 5).await;
    recorded.served.handle.set_mode(ServerMode::Serving);
    recorded.until("day.jsonl", "list_finished", 5).await;
    let (code, out, err) = running.stop().await;
    assert_eq!((code, &*out), (0, ""), "{err}");
    assert!(err.starts_with("recording 1 cluster to day.jsonl; addresses"), "{err}");
    let ended =
        format!("\nrecorded {} events, 1 connector, ", recorded.lines("day.jsonl").len() - 1);
    assert!(err.contains(&ended) && err.contains(", 5 watches live"), "{err}");
    assert!(err.ends_with("\nreplay it: throughline replay day.jsonl\n"), "{err}");
    assert_eq!(recorded.served.handle.writes(), 0);
}
