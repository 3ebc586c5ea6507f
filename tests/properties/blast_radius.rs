//! How many objects one wrong input reaches: each against 1,000 connectors and 1,000 routes, with
//! `orphans.mode` delete, and the writes of the minute after it. The table in `blast_radius.expected`
//! is reviewed by hand; no row may have more than ten writes. `UPDATE_EXPECT=1` rewrites it.

use std::fmt::Write as _;
use std::io::Cursor;
use std::ops::Range;

use expect_test::expect_file;
use serde_json::{Value, json};
use throughline::core::contract::action::{Action, Verb};
use throughline::core::data::time::UnixMillis;
use throughline::event_log::LogReader;
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

use crate::model;

const START: u64 = 1_795_252_772_000;
/// When the mistake happens.
const MISTAKE: u64 = START + 60_000;
const CONNECTORS: usize = 1_000;
const WRITES_MAX: usize = 10;

/// A fleet of 1,000 connectors and as many Gateways and routes, in upstreams of the same size.
struct Fleet {
    upstreams: usize,
    lines: Vec<Value>,
    at: u64,
}

fn upstream(number: usize) -> String {
    format!("project-{number:04}")
}

fn uid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000001")
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    json!({"kind": kind, "metadata": {"namespace": namespace, "name": name,
        "uid": format!("u-{kind}-{namespace}-{name}")}})
}

fn namespace(uid: &str) -> Value {
    json!({"kind": "Namespace", "metadata": {"name": "default", "uid": uid}})
}

fn status(online: bool) -> String {
    model::status(if online { 2 } else { 1 }).unwrap()
}

fn connector(c: usize, online: bool) -> Value {
    let mut object = object("Connector", "default", &format!("c{c}"));
    object["status"] = status(online).parse().unwrap();
    object
}

fn gateway(g: usize) -> Value {
    object("Gateway", "default", &format!("g{g}"))
}

/// What the hub holds of an upstream's object, an hour old.
fn hub_object(kind: &str, number: usize, name: &str) -> Value {
    let mut object = object(kind, &format!("ns-{}", uid(number)), name);
    object["metadata"]["creationTimestamp"] = json!(UnixMillis(START - 3_600_000).to_string());
    object["metadata"]["labels"] = model::labels(&upstream(number), "default", kind, name);
    object
}

fn hub_connector(number: usize, c: usize) -> Value {
    let mut object = hub_object("Connector", number, &format!("c{c}"));
    object["metadata"]["annotations"] =
        json!({"networking.datumapis.com/upstream-status": status(true)});
    object
}

/// A route whose one parent is a Gateway of this name and its number.
fn hub_route(number: usize, c: usize, parent: &str) -> Value {
    let mut object = hub_object("HTTPRoute", number, &format!("r{c}"));
    object["spec"] = json!({"parentRefs": [{"name": format!("{parent}{c}")}]});
    object
}

impl Fleet {
    fn new(upstreams: usize) -> Self {
        let spec = |number| json!({"name": upstream(number), "roles": ["upstream"]});
        let mut clusters: Vec<_> = (0..upstreams).map(spec).collect();
        clusters.push(json!({"name": "hub", "roles": ["hub"]}));
        let header = json!({"log": "throughline", "version": 1, "clusters": clusters,
            "settings": {"orphans": {"mode": "delete"}}});
        let mut fleet = Self { upstreams, lines: vec![header], at: START };
        for number in 0..upstreams {
            fleet.list_namespaces(number, Some(&uid(number)));
            fleet.list_connectors(number, fleet.all(), true);
            fleet.list_gateways(number, fleet.all(), false);
        }
        let each = fleet.per_upstream();
        let places = || (0..upstreams).flat_map(move |number| (0..each).map(move |c| (number, c)));
        fleet.list("hub", "Connector", places().map(|(n, c)| hub_connector(n, c)), false);
        fleet.list("hub", "HTTPRoute", places().map(|(n, c)| hub_route(n, c, "g")), false);
        fleet.list("hub", "Namespace", [], false);
        fleet.line(json!({"event": "leadership_acquired"}));
        fleet.at = MISTAKE;
        fleet
    }

    fn per_upstream(&self) -> usize {
        CONNECTORS / self.upstreams
    }

    fn all(&self) -> Range<usize> {
        0..self.per_upstream()
    }

    /// Adds a line; an object in it has a version of its own.
    fn line(&mut self, mut line: Value) {
        line["at_ms"] = json!(self.at);
        if let Some(meta) = line.pointer_mut("/object/metadata") {
            meta["resourceVersion"] = json!(self.lines.len().to_string());
        }
        self.lines.push(line);
    }

    /// Adds an event about an object.
    fn event(&mut self, event: &str, cluster: &str, object: Value) {
        self.line(json!({"event": event, "cluster": cluster, "object": object}));
    }

    fn list(
        &mut self,
        cluster: &str,
        kind: &str,
        objects: impl IntoIterator<Item = Value>,
        is_older: bool,
    ) {
        let of_kind = |event: &str| json!({"event": event, "cluster": cluster, "kind": kind});
        self.line(of_kind("list_started"));
        objects.into_iter().for_each(|object| self.event("listed", cluster, object));
        if is_older {
            self.line(of_kind("went_back"));
        }
        self.line(of_kind("list_finished"));
    }

    fn list_namespaces(&mut self, number: usize, uid: Option<&str>) {
        self.list(&upstream(number), "Namespace", uid.map(namespace), false);
    }

    fn list_connectors(&mut self, number: usize, of: Range<usize>, online: bool) {
        self.list(&upstream(number), "Connector", of.map(|c| connector(c, online)), false);
    }

    fn list_gateways(&mut self, number: usize, of: Range<usize>, is_older: bool) {
        self.list(&upstream(number), "Gateway", of.map(gateway), is_older);
    }

    fn list_unreadable(&mut self, number: usize, of: Range<usize>) {
        let cluster = upstream(number);
        for (kind, prefix) in [("Connector", "c"), ("Gateway", "g")] {
            self.line(json!({"event": "list_started", "cluster": cluster, "kind": kind}));
            for n in of.clone() {
                self.line(json!({"event": "unreadable", "cluster": cluster, "kind": kind,
                    "namespace": "default", "name": format!("{prefix}{n}"), "error": "x"}));
            }
            self.line(json!({"event": "list_finished", "cluster": cluster, "kind": kind}));
        }
    }

    /// Changes the labels of the hub objects of an upstream.
    fn relabel(&mut self, number: usize, change: impl Fn(&mut Value)) {
        for c in self.all() {
            for mut object in [hub_connector(number, c), hub_route(number, c, "g")] {
                change(&mut object["metadata"]["labels"]);
                self.event("applied", "hub", object);
            }
        }
    }

    /// The watches of an upstream.
    fn lose(&mut self, number: usize, error: &str) {
        for kind in ["Connector", "Gateway", "Namespace"] {
            let (event, cluster) = ("watch_lost", upstream(number));
            self.line(json!({"event": event, "cluster": cluster, "kind": kind, "error": error}));
        }
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

const MISTAKES: [Mistake; 26] = [
    ("none (the control)", |_, _| {}),
    ("an empty control plane", |fleet, number| {
        fleet.list_connectors(number, 0..0, true);
        fleet.list_gateways(number, 0..0, false);
        fleet.list_namespaces(number, None);
    }),
    ("the same, Namespaces first", |fleet, number| {
        fleet.list_namespaces(number, None);
        fleet.list_gateways(number, 0..0, false);
        fleet.list_connectors(number, 0..0, true);
    }),
    ("another control plane, same names, all offline", |fleet, number| {
        fleet.list_namespaces(number, Some("ffffffff-0000-4000-8000-000000000001"));
        fleet.list_connectors(number, fleet.all(), false);
        fleet.list_gateways(number, 0..0, false);
    }),
    ("an emptied etcd", |fleet, number| {
        for kind in ["Connector", "Gateway", "Namespace"] {
            fleet.list(&upstream(number), kind, [], true);
        }
    }),
    ("a restored etcd: older statuses, half of the objects", |fleet, number| {
        let half = 0..fleet.per_upstream() / 2;
        let old = half.clone().map(|c| connector(c, false));
        fleet.list(&upstream(number), "Connector", old, true);
        fleet.list_gateways(number, half, true);
    }),
    ("half of the Connectors in the list", |fleet, number| {
        fleet.list_connectors(number, 0..fleet.per_upstream() / 2, true);
    }),
    ("three in ten Connectors are missing in the list", |fleet, number| {
        fleet.list_connectors(number, 0..fleet.per_upstream() * 7 / 10, true);
    }),
    ("no Connector in the list, Namespaces as ever", |fleet, number| {
        fleet.list_connectors(number, 0..0, true);
    }),
    ("every Connector is deleted", |fleet, number| {
        for c in fleet.all() {
            fleet.event("deleted", &upstream(number), connector(c, true));
        }
    }),
    ("every Namespace is deleted", |fleet, number| {
        fleet.event("deleted", &upstream(number), namespace(&uid(number)));
    }),
    ("every status vanishes", |fleet, number| {
        for c in fleet.all() {
            let object = object("Connector", "default", &format!("c{c}"));
            fleet.event("applied", &upstream(number), object);
        }
    }),
    ("one object can't be read, the others are not listed", |fleet, number| {
        fleet.list_unreadable(number, 0..1);
    }),
    ("no object can be read", |fleet, number| fleet.list_unreadable(number, fleet.all())),
    ("page 2 of every list expires", |fleet, number| {
        for kind in ["Connector", "Gateway", "Namespace"] {
            let cluster = upstream(number);
            fleet.line(json!({"event": "list_started", "cluster": cluster, "kind": kind}));
        }
        fleet.lose(number, "410 Expired: the provided continue parameter is too old");
    }),
    ("every request is forbidden", |fleet, number| {
        fleet.lose(number, "403 Forbidden: connectors is forbidden");
    }),
    ("every path answers 404", |fleet, number| {
        fleet.lose(number, "404 NotFound: the server could not find the requested resource");
    }),
    ("half of the Gateways in the list", |fleet, number| {
        fleet.list_gateways(number, 0..fleet.per_upstream() / 2, false);
    }),
    ("three in ten Gateways are missing in the list", |fleet, number| {
        fleet.list_gateways(number, 0..fleet.per_upstream() * 7 / 10, false);
    }),
    ("no Gateway in the list, Namespaces as ever", |fleet, number| {
        fleet.list_gateways(number, 0..0, false);
    }),
    ("every Gateway is deleted", |fleet, number| {
        for g in fleet.all() {
            fleet.event("deleted", &upstream(number), gateway(g));
        }
    }),
    ("every Gateway has another name", |fleet, number| {
        fleet.list_gateways(number, 5_000..5_000 + fleet.per_upstream(), false);
    }),
    ("every route names another parent", |fleet, number| {
        for c in fleet.all() {
            fleet.event("applied", "hub", hub_route(number, c, "wrong"));
        }
    }),
    ("every hub object names the next upstream", |fleet, number| {
        let next = format!("cluster-{}", upstream((number + 1) % fleet.upstreams));
        fleet.relabel(number, |labels| {
            labels["meta.datumapis.com/upstream-cluster-name"] = json!(next);
        });
    }),
    ("every hub object loses its labels", |fleet, number| {
        fleet.relabel(number, |labels| *labels = json!({}));
    }),
    ("the hub is an empty cluster", |fleet, number| {
        // Once: there is one hub.
        if number == 0 {
            fleet.list("hub", "Connector", [], false);
            fleet.list("hub", "HTTPRoute", [], false);
        }
    }),
];

#[test]
fn no_mistake_reaches_more_than_ten_objects_a_minute() {
    let mut table = String::from(
        "# The writes in the minute after a mistake, of 1,000 connectors and 1,000 routes: removed\n\
         # annotations, deleted routes, other mirrors. Upstreams × connectors and routes of each.\n",
    );
    for (name, mistake) in MISTAKES {
        for upstreams in [1, 50, 200, 500] {
            let mut fleet = Fleet::new(upstreams);
            (0..upstreams).for_each(|number| mistake(&mut fleet, number));
            let replay = fleet.replayed();
            let decisions = replay.actions.iter().map(|record| &record.decision);
            let (before, after): (Vec<_>, Vec<_>) =
                decisions.partition(|decision| decision.at < UnixMillis(MISTAKE));
            assert_eq!(before.len(), 0, "{name}");
            let count = |is: fn(&Action) -> bool| after.iter().filter(|d| is(&d.action)).count();
            let removed = count(|a| a.verb == Verb::Mirror && a.annotations[0].1.is_none());
            let deleted = count(|a| a.verb == Verb::Delete);
            let others = after.len() - removed - deleted;
            let size = format!("{upstreams} × {}", CONNECTORS / upstreams);
            let counts = format!("{removed:>3} removed {deleted:>3} deleted {others:>4} other");
            writeln!(table, "{name:<55} {size:>9} {counts}").unwrap();
            assert!(after.len() <= WRITES_MAX, "{name}, {size}: {counts}");
        }
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties");
    expect_file![format!("{folder}/blast_radius.expected")].assert_eq(&table);
}
