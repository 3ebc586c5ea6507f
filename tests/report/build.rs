//! Replays by hand, and the reports of them.

use serde_json::Value;
use throughline::core::action::{Action, Decision, Hop, Note, Noted, Precondition, Verb};
use throughline::core::event::Outcome;
use throughline::core::ids::{ActionId, Kind, ObjectKey, Role};
use throughline::core::settings::Settings;
use throughline::core::time::UnixMillis;
use throughline::event_log::ClusterSpec;
use throughline::outage::{Outage, OutageKind};
use throughline::replay::{Done, Mode, Replay, Verdict, Way};
use throughline::report::{self, Options};

pub(crate) const START: u64 = 1_795_252_772_865; // 2026-11-21T09:19:32.865Z
pub(crate) const NS: &str = "ns-c8119df3";
pub(crate) const TRIGGER: &str = "gateway.envoyproxy.io/connector-liveness";
pub(crate) const CHANGED: &str = "liveness changed at the edge; announces its proxy's connectors";
pub(crate) const LATE: &str = "confirmed with a new value, for caches that were late";

pub(crate) fn at(ms: u64) -> UnixMillis {
    UnixMillis(START + ms)
}

pub(crate) fn replica(name: &str) -> ObjectKey {
    ObjectKey::new(NS, name)
}

pub(crate) fn way(name: &str) -> Way {
    Way {
        upstream: Some(("project-a".into(), ObjectKey::new("default", name))),
        replica: replica(name),
    }
}

pub(crate) fn cluster(name: &str, roles: &[Role]) -> ClusterSpec {
    ClusterSpec { name: name.into(), roles: roles.to_vec() }
}

pub(crate) fn empty() -> Replay {
    Replay {
        file: "incident-503.jsonl".into(),
        mode: Mode::WhatIf,
        clusters: vec![
            cluster("project-a", &[Role::Upstream]),
            cluster("edge", &[Role::Downstream, Role::Edge]),
        ],
        settings: Settings::default(),
        events: 0,
        first_at: at(0),
        last_at: at(0),
        ended_at: at(0),
        actions: vec![],
        notes: vec![],
        warnings: vec![],
        ways: vec![],
        recorded: vec![],
        replayed: vec![],
        requests: vec![],
        verdict: Verdict { good: true, problems: vec![] },
    }
}

pub(crate) fn hop(ms: u64, hop: Hop, name: &str, online: bool) -> Note {
    let (cluster, connector) = match hop {
        Hop::Upstream => ("project-a", ObjectKey::new("default", name)),
        _ => ("edge", replica(name)),
    };
    let cluster = cluster.into();
    Note { at: at(ms), what: Noted::HopPassed { cluster, connector, hop, online, after_ms: None } }
}

pub(crate) fn applied() -> Outcome {
    Outcome::Applied { resource_version: None, deleted: None }
}

impl Script {
    pub(crate) fn act(
        &mut self,
        ms: u64,
        verb: Verb,
        name: &str,
        value: &str,
        because: &str,
    ) -> &mut Done {
        let (kind, key) = match verb {
            Verb::Touch => (Kind::Gateway, TRIGGER),
            Verb::Delete => (Kind::HttpRoute, ""),
            _ => (Kind::Connector, "networking.datumapis.com/upstream-status"),
        };
        let annotations = match verb {
            Verb::Delete => vec![],
            _ => vec![(key.to_owned(), Some(value.to_owned()))],
        };
        let connectors = match verb {
            Verb::Touch => vec![replica("home-lab")],
            Verb::Delete => vec![],
            _ => vec![replica(name)],
        };
        let action = Action {
            id: ActionId(self.0.actions.len() as u64 + 1),
            verb,
            cluster: "edge".into(),
            kind,
            object: replica(name),
            annotations,
            precondition: Precondition::default(),
            connectors,
        };
        let decision = Decision { at: at(ms), action, because: because.into() };
        self.0.actions.push(Done { decision, finished: Some((at(ms), applied())) });
        self.0.actions.last_mut().unwrap()
    }

    /// One change of `home-lab`, carried through: mirrored, touched, confirmed.
    pub(crate) fn flip(&mut self, ms: u64, online: bool, n: u32) {
        let said = if online { "online" } else { "offline" };
        self.0.notes.push(hop(ms, Hop::Upstream, "home-lab", online));
        let because = format!("upstream says {said}, the hub's annotation says something else");
        self.act(ms, Verb::Mirror, "home-lab", "{}", &because);
        self.0.notes.push(hop(ms, Hop::Mirrored, "home-lab", online));
        self.0.notes.push(hop(ms, Hop::Arrived, "home-lab", online));
        for (after_ms, c, because) in [(100, 0, CHANGED), (5_100, 1, LATE)] {
            for gateway in 0..26 {
                let value = format!("9f2c41d07be5a630-{n}-{c}");
                self.act(ms + after_ms, Verb::Touch, &format!("app-{gateway:02}"), &value, because);
            }
        }
        self.0.notes.push(hop(ms + 100, Hop::Touched, "home-lab", online));
    }
}

pub(crate) struct Script(pub(crate) Replay);

pub(crate) fn outage(
    name: &str,
    kind: OutageKind,
    from: u64,
    first: Option<u64>,
    until: Option<u64>,
) -> Outage {
    Outage {
        edge: "edge".into(),
        connector: replica(name),
        kind,
        from: at(from),
        first_right: first.map(at),
        until: until.map(at),
        gateways: 26,
        by_platform_key: false,
    }
}

pub(crate) fn incident() -> Replay {
    let mut script = Script(empty());
    let replay = &mut script.0;
    (replay.events, replay.last_at, replay.ended_at) = (168, at(68_000), at(70_161));
    replay.ways = vec![way("home-lab"), way("office")];
    let by_hand = outage("home-lab", OutageKind::Offline, 10_061, Some(60_060), Some(62_240));
    replay.recorded = vec![Outage { by_platform_key: true, ..by_hand }];
    replay.replayed =
        vec![outage("home-lab", OutageKind::Offline, 10_061, Some(10_161), Some(10_161))];
    script.flip(2_061, false, 1);
    script.flip(10_061, true, 2);
    for gateway in 0..26 {
        let name = format!("app-{gateway:02}");
        script.act(70_161, Verb::Touch, &name, "9f2c41d07be5a630-2-2", LATE);
    }
    script.0
}

pub(crate) fn options(connector: Option<&str>) -> Options {
    let connector = connector.and_then(|text| text.split_once('/'));
    Options {
        color: false,
        width: 400,
        connector: connector.map(|(namespace, name)| ObjectKey::new(namespace, name)),
    }
}

pub(crate) fn text_with(replay: &Replay, options: &Options) -> String {
    let mut out = Vec::new();
    report::text(replay, options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

pub(crate) fn text(replay: &Replay) -> String {
    text_with(replay, &options(None))
}

pub(crate) fn json(replay: &Replay, connector: Option<&str>) -> Value {
    let mut out = Vec::new();
    report::json(replay, &options(connector), &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

pub(crate) fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in:\n{text}");
}

pub(crate) fn has_not(text: &str, part: &str) {
    assert!(!text.contains(part), "{part:?} is in:\n{text}");
}
