//! How many objects one wrong input reaches: each against 1,000 connectors and 1,000 routes, with
//! `orphans.mode` delete, and the writes of the minute after it. The table in `blast_radius.expected`
//! is reviewed by hand; no row may have more than ten writes. `UPDATE_EXPECT=1` rewrites it.

use std::fmt::Write as _;
use std::io::Cursor;
use std::ops::Range;

use expect_test::expect_file;
use serde_json::{Value, json};
use throughline::core::contract::action::{Action, Verb};
use throughline::core::data::objects::UPSTREAM_STATUS;
use throughline::core::data::time::UnixMillis;
use throughline::event_log::LogReader;
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

use crate::model::{self, uid};

const START: u64 = 1_795_252_772_000;
/// When the mistake happens.
const MISTAKE: u64 = START + 60_000;
const CONNECTORS: usize = 1_000;
const WRITES_MAX: usize = 10;

/// The kinds that are watched in an upstream.
const KINDS: [&str; 3] = ["Connector", "Gateway", "Namespace"];

/// A fleet of 1,000 connectors and as many Gateways and routes, in upstreams of the same size.
struct Fleet {
    upstreams: usize,
    lines: Vec<Value>,
    at: u64,
    /// Whether each list is older than what the watch has shown.
    is_older: bool,
}

fn upstream(number: usize) -> String {
    format!("project-{number:04}")
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

/// An upstream's Connectors.
fn connectors(of: Range<usize>, online: bool) -> Vec<Value> {
    let status: Value = status(online).parse().unwrap();
    let connector = |c| {
        let mut connector = object("Connector", "default", &format!("c{c}"));
        connector["status"] = status.clone();
        connector
    };
    of.map(connector).collect()
}

/// An upstream's Gateways.
fn gateways(of: Range<usize>) -> Vec<Value> {
    of.map(|g| object("Gateway", "default", &format!("g{g}"))).collect()
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
    object["metadata"]["annotations"] = json!({UPSTREAM_STATUS: status(true)});
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
        let mut fleet = Self { upstreams, lines: vec![header], at: START, is_older: false };
        for number in 0..upstreams {
            fleet.list(&upstream(number), "Namespace", [namespace(&uid(number))]);
            fleet.list(&upstream(number), "Connector", connectors(fleet.all(), true));
            fleet.list(&upstream(number), "Gateway", gateways(fleet.all()));
        }
        let each = fleet.all().end;
        let places = || (0..upstreams).flat_map(move |number| (0..each).map(move |c| (number, c)));
        fleet.list("hub", "Connector", places().map(|(n, c)| hub_connector(n, c)));
        fleet.list("hub", "HTTPRoute", places().map(|(n, c)| hub_route(n, c, "g")));
        fleet.list("hub", "Namespace", []);
        fleet.line(json!({"event": "leadership_acquired"}));
        fleet.at = MISTAKE;
        fleet
    }

    /// All objects of a kind in an upstream, by number.
    fn all(&self) -> Range<usize> {
        self.tenths(10)
    }

    /// The first tenths of them.
    fn tenths(&self, tenths: usize) -> Range<usize> {
        0..CONNECTORS / self.upstreams * tenths / 10
    }

    /// Adds a line; an object in it has a version of its own.
    fn line(&mut self, mut line: Value) {
        line["at_ms"] = json!(self.at);
        if let Some(meta) = line.pointer_mut("/object/metadata") {
            meta["resourceVersion"] = json!(self.lines.len().to_string());
        }
        self.lines.push(line);
    }

    /// Adds events about objects.
    fn events(&mut self, event: &str, cluster: &str, objects: impl IntoIterator<Item = Value>) {
        for object in objects {
            self.line(json!({"event": event, "cluster": cluster, "object": object}));
        }
    }

    /// Adds an event about a kind.
    fn of_kind(&mut self, event: &str, cluster: &str, kind: &str) {
        self.line(json!({"event": event, "cluster": cluster, "kind": kind}));
    }

    fn list(&mut self, cluster: &str, kind: &str, objects: impl IntoIterator<Item = Value>) {
        self.of_kind("list_started", cluster, kind);
        self.events("listed", cluster, objects);
        if self.is_older {
            self.of_kind("went_back", cluster, kind);
        }
        self.of_kind("list_finished", cluster, kind);
    }

    fn list_unreadable(&mut self, cluster: &str, of: Range<usize>) {
        for (kind, prefix) in [("Connector", "c"), ("Gateway", "g")] {
            self.of_kind("list_started", cluster, kind);
            for n in of.clone() {
                self.line(json!({"event": "unreadable", "cluster": cluster, "kind": kind,
                    "namespace": "default", "name": format!("{prefix}{n}"), "error": "x"}));
            }
            self.of_kind("list_finished", cluster, kind);
        }
    }

    /// Changes the labels of the hub objects of an upstream.
    fn relabel(&mut self, number: usize, change: impl Fn(&mut Value)) {
        for c in self.all() {
            let mut objects = [hub_connector(number, c), hub_route(number, c, "g")];
            objects.iter_mut().for_each(|object| change(&mut object["metadata"]["labels"]));
            self.events("applied", "hub", objects);
        }
    }

    /// The watches of an upstream.
    fn lose(&mut self, cluster: &str, error: &str) {
        for kind in KINDS {
            self.line(json!({"event": "watch_lost", "cluster": cluster, "kind": kind,
                "error": error}));
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
        replay(&mut reader, "fleet", |_| Ok(()), &options, None, |_| {}).unwrap()
    }
}

/// A mistake in an upstream, or in what the hub holds of it.
type Mistake = fn(&mut Fleet, &str, usize);

const MISTAKES: [(&str, Mistake); 26] = [
    ("none (the control)", |_, _, _| {}),
    ("an empty control plane", |fleet, up, _| {
        KINDS.iter().for_each(|kind| fleet.list(up, kind, []));
    }),
    ("the same, Namespaces first", |fleet, up, _| {
        KINDS.iter().rev().for_each(|kind| fleet.list(up, kind, []));
    }),
    ("another control plane, same names, all offline", |fleet, up, _| {
        fleet.list(up, "Namespace", [namespace("ffffffff-0000-4000-8000-000000000001")]);
        fleet.list(up, "Connector", connectors(fleet.all(), false));
        fleet.list(up, "Gateway", []);
    }),
    ("an emptied etcd", |fleet, up, _| {
        fleet.is_older = true;
        KINDS.iter().for_each(|kind| fleet.list(up, kind, []));
    }),
    ("a restored etcd: older statuses, half of the objects", |fleet, up, _| {
        fleet.is_older = true;
        fleet.list(up, "Connector", connectors(fleet.tenths(5), false));
        fleet.list(up, "Gateway", gateways(fleet.tenths(5)));
    }),
    ("half of the Connectors in the list", |fleet, up, _| {
        fleet.list(up, "Connector", connectors(fleet.tenths(5), true));
    }),
    ("three in ten Connectors are missing in the list", |fleet, up, _| {
        fleet.list(up, "Connector", connectors(fleet.tenths(7), true));
    }),
    ("no Connector in the list, Namespaces as ever", |fleet, up, _| {
        fleet.list(up, "Connector", []);
    }),
    ("every Connector is deleted", |fleet, up, _| {
        fleet.events("deleted", up, connectors(fleet.all(), true));
    }),
    ("every Namespace is deleted", |fleet, up, number| {
        fleet.events("deleted", up, [namespace(&uid(number))]);
    }),
    ("every status vanishes", |fleet, up, _| {
        let without_status = |c| object("Connector", "default", &format!("c{c}"));
        fleet.events("applied", up, fleet.all().map(without_status));
    }),
    ("one object can't be read, the others are not listed", |fleet, up, _| {
        fleet.list_unreadable(up, 0..1);
    }),
    ("no object can be read", |fleet, up, _| fleet.list_unreadable(up, fleet.all())),
    ("page 2 of every list expires", |fleet, up, _| {
        KINDS.iter().for_each(|kind| fleet.of_kind("list_started", up, kind));
        fleet.lose(up, "410 Expired: the provided continue parameter is too old");
    }),
    ("every request is forbidden", |fleet, up, _| {
        fleet.lose(up, "403 Forbidden: connectors is forbidden");
    }),
    ("every path answers 404", |fleet, up, _| {
        fleet.lose(up, "404 NotFound: the server could not find the requested resource");
    }),
    ("half of the Gateways in the list", |fleet, up, _| {
        fleet.list(up, "Gateway", gateways(fleet.tenths(5)));
    }),
    ("three in ten Gateways are missing in the list", |fleet, up, _| {
        fleet.list(up, "Gateway", gateways(fleet.tenths(7)));
    }),
    ("no Gateway in the list, Namespaces as ever", |fleet, up, _| {
        fleet.list(up, "Gateway", []);
    }),
    ("every Gateway is deleted", |fleet, up, _| {
        fleet.events("deleted", up, gateways(fleet.all()));
    }),
    ("every Gateway has another name", |fleet, up, _| {
        fleet.list(up, "Gateway", gateways(5_000..5_000 + fleet.all().end));
    }),
    ("every route names another parent", |fleet, _, number| {
        fleet.events("applied", "hub", fleet.all().map(|c| hub_route(number, c, "wrong")));
    }),
    ("every hub object names the next upstream", |fleet, _, number| {
        let next = format!("cluster-{}", upstream((number + 1) % fleet.upstreams));
        fleet.relabel(number, |labels| {
            labels["meta.datumapis.com/upstream-cluster-name"] = json!(next);
        });
    }),
    ("every hub object loses its labels", |fleet, _, number| {
        fleet.relabel(number, |labels| *labels = json!({}));
    }),
    ("the hub is an empty cluster", |fleet, _, number| {
        // Once: there is one hub.
        if number == 0 {
            fleet.list("hub", "Connector", []);
            fleet.list("hub", "HTTPRoute", []);
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
            (0..upstreams).for_each(|number| mistake(&mut fleet, &upstream(number), number));
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
    expect_file!["blast_radius.expected"].assert_eq(&table);
}
