//! How many objects one wrong input reaches: each against 1,000 connectors, and the writes of the
//! minute after it. The table in `blast_radius.expected` is reviewed by hand; no row may have more
//! than ten removals. `UPDATE_EXPECT=1` rewrites it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::io::Cursor;
use std::path::Path;

use serde_json::{Value, json};
use throughline::core::contract::action::Verb;
use throughline::core::data::time::UnixMillis;
use throughline::event_log::LogReader;
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

const START: u64 = 1_795_252_772_000;
/// When the mistake happens.
const MISTAKE: u64 = START + 60_000;
const CONNECTORS: usize = 1_000;
const REMOVALS_MAX: usize = 10;

/// A fleet of 1,000 connectors, in upstreams of the same size.
struct Fleet {
    upstreams: usize,
    lines: Vec<Value>,
    version: u64,
    at: u64,
}

fn status(online: bool, node: usize) -> Value {
    let ready = if online { "True" } else { "False" };
    json!({"conditions": [{"type": "Ready", "status": ready}],
           "connectionDetails": {"type": "PublicKey", "publicKey": {"id": format!("node-{node}")}}})
}

fn upstream(number: usize) -> String {
    format!("project-{number:04}")
}

fn uid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000001")
}

impl Fleet {
    fn new(upstreams: usize) -> Self {
        let mut clusters: Vec<_> = (0..upstreams)
            .map(|number| json!({"name": upstream(number), "roles": ["upstream"]}))
            .collect();
        clusters.push(json!({"name": "hub", "roles": ["hub"]}));
        let header = json!({"log": "throughline", "version": 1, "clusters": clusters});
        let mut fleet = Self { upstreams, lines: vec![header], version: 0, at: START };
        for number in 0..upstreams {
            fleet.list_namespaces(number, Some(&uid(number)));
            fleet.list_connectors(number, fleet.all(), true);
        }
        let hub = fleet.of_hub();
        fleet.list("hub", "Connector", hub, false);
        fleet.list("hub", "Namespace", Vec::new(), false);
        fleet.line(json!({"event": "leadership_acquired"}));
        fleet.at = MISTAKE;
        fleet
    }

    fn per_upstream(&self) -> usize {
        CONNECTORS / self.upstreams
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.per_upstream()
    }

    fn line(&mut self, mut line: Value) {
        line["at_ms"] = json!(self.at);
        self.lines.push(line);
    }

    fn version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn list(&mut self, cluster: &str, kind: &str, objects: Vec<Value>, is_older: bool) {
        self.line(json!({"event": "list_started", "cluster": cluster, "kind": kind}));
        for object in objects {
            self.line(json!({"event": "listed", "cluster": cluster, "object": object}));
        }
        if is_older {
            self.line(json!({"event": "went_back", "cluster": cluster, "kind": kind}));
        }
        self.line(json!({"event": "list_finished", "cluster": cluster, "kind": kind}));
    }

    fn namespace(&mut self, uid: &str) -> Value {
        let version = self.version();
        json!({"kind": "Namespace",
               "metadata": {"name": "default", "uid": uid, "resourceVersion": version}})
    }

    fn list_namespaces(&mut self, number: usize, uid: Option<&str>) {
        let namespaces = uid.map(|uid| self.namespace(uid)).into_iter().collect();
        self.list(&upstream(number), "Namespace", namespaces, false);
    }

    fn connector(&mut self, connector: usize, status: Option<Value>) -> Value {
        let version = self.version();
        let mut object = json!({"kind": "Connector", "metadata": {"namespace": "default",
            "name": format!("c{connector}"), "uid": format!("u-{connector}"),
            "resourceVersion": version}});
        if let Some(status) = status {
            object["status"] = status;
        }
        object
    }

    fn list_connectors(&mut self, number: usize, of: std::ops::Range<usize>, online: bool) {
        let objects = of.map(|c| self.connector(c, Some(status(online, c)))).collect();
        self.list(&upstream(number), "Connector", objects, false);
    }

    fn of_hub(&mut self) -> Vec<Value> {
        let mut objects = Vec::new();
        for number in 0..self.upstreams {
            for c in self.all() {
                let version = self.version();
                objects.push(json!({"kind": "Connector", "metadata": {
                    "namespace": format!("ns-{}", uid(number)), "name": format!("c{c}"),
                    "uid": format!("u-hub-{number}-{c}"), "resourceVersion": version,
                    "labels": {
                        "meta.datumapis.com/upstream-cluster-name":
                            format!("cluster-{}", upstream(number)),
                        "meta.datumapis.com/upstream-namespace": "default",
                        "meta.datumapis.com/upstream-name": format!("c{c}")},
                    "annotations": {"networking.datumapis.com/upstream-status":
                        status(true, c).to_string()}}}));
            }
        }
        objects
    }

    fn each(mut self, mistake: impl Fn(&mut Self, usize)) -> Self {
        for number in 0..self.upstreams {
            mistake(&mut self, number);
        }
        self
    }

    /// Replays it as a what-if, for a minute after the mistake.
    fn replayed(mut self) -> Replay {
        self.at = MISTAKE + 60_000;
        self.line(json!({"event": "timed_out"}));
        let log: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        let mut reader = LogReader::new("fleet", Cursor::new(log)).unwrap();
        let mode = Some(ReplayMode::WhatIf);
        let options = ReplayOptions { mode, run_on_ms: 0, ..ReplayOptions::default() };
        replay(&mut reader, "fleet", |_| Ok(()), &options, None::<Vec<u8>>, |_| {}).unwrap()
    }
}

type Mistake = (&'static str, fn(&mut Fleet, usize));

const MISTAKES: [Mistake; 12] = [
    ("none (the control)", |_, _| {}),
    ("an empty control plane", |fleet, number| {
        fleet.list_connectors(number, 0..0, true);
        fleet.list_namespaces(number, None);
    }),
    ("the same, Namespaces first", |fleet, number| {
        fleet.list_namespaces(number, None);
        fleet.list_connectors(number, 0..0, true);
    }),
    ("another control plane, same names, all offline", |fleet, number| {
        fleet.list_namespaces(number, Some("ffffffff-0000-4000-8000-000000000001"));
        fleet.list_connectors(number, fleet.all(), false);
    }),
    ("an emptied etcd", |fleet, number| {
        let cluster = upstream(number);
        fleet.list(&cluster, "Connector", Vec::new(), true);
        fleet.list(&cluster, "Namespace", Vec::new(), true);
    }),
    ("a restored etcd: older statuses, half of the Connectors", |fleet, number| {
        let half = 0..fleet.per_upstream() / 2;
        let old = half.map(|c| fleet.connector(c, Some(status(false, c)))).collect();
        fleet.list(&upstream(number), "Connector", old, true);
    }),
    ("half a list", |fleet, number| {
        fleet.list_connectors(number, 0..fleet.per_upstream() / 2, true);
    }),
    ("no Connector in the list, Namespaces as ever", |fleet, number| {
        fleet.list_connectors(number, 0..0, true);
    }),
    ("every Connector is deleted", |fleet, number| {
        for c in fleet.all() {
            let object = fleet.connector(c, Some(status(true, c)));
            fleet.line(json!({"event": "deleted", "cluster": upstream(number), "object": object}));
        }
    }),
    ("every Namespace is deleted", |fleet, number| {
        let namespace = fleet.namespace(&uid(number));
        fleet.line(json!({"event": "deleted", "cluster": upstream(number), "object": namespace}));
    }),
    ("every status vanishes", |fleet, number| {
        for c in fleet.all() {
            let object = fleet.connector(c, None);
            fleet.line(json!({"event": "applied", "cluster": upstream(number), "object": object}));
        }
    }),
    ("one object can't be read, the others are not listed", |fleet, number| {
        let cluster = upstream(number);
        fleet.line(json!({"event": "list_started", "cluster": cluster, "kind": "Connector"}));
        fleet.line(json!({"event": "unreadable", "cluster": cluster, "kind": "Connector",
            "namespace": "default", "name": "c0", "error": "x"}));
        fleet.line(json!({"event": "list_finished", "cluster": cluster, "kind": "Connector"}));
    }),
];

#[test]
fn no_mistake_reaches_more_than_ten_objects_a_minute() {
    let mut table = String::from(
        "# The writes in the minute after a mistake, of 1,000 connectors: removed annotations, other\n\
         # mirrors. Upstreams × connectors of each.\n",
    );
    for (name, mistake) in MISTAKES {
        for upstreams in [1, 50, 500] {
            let replay = Fleet::new(upstreams).each(mistake).replayed();
            let after = replay.actions.iter().map(|record| &record.decision);
            let after = after.filter(|decision| decision.at >= UnixMillis(MISTAKE));
            let actions: Vec<_> = after.map(|decision| &decision.action).collect();
            assert!(actions.iter().all(|action| action.verb == Verb::Mirror), "{name}");
            let removed = actions.iter().filter(|action| action.annotations[0].1.is_none()).count();
            let size = format!("{upstreams} × {}", CONNECTORS / upstreams);
            let others = actions.len() - removed;
            writeln!(table, "{name:<57} {size:>9}  {removed:>3} removed  {others:>4} other")
                .unwrap();
            assert!(removed <= REMOVALS_MAX, "{name}, {size}: {removed} removals");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blast_radius.expected");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), table, "UPDATE_EXPECT=1 rewrites it");
}
