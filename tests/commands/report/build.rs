//! Replays built by hand, and their reports.

use serde_json::Value;
use throughline::core::contract::action::{Action, Decision, Precondition, Urgency, Verb};
use throughline::core::contract::cause::{About, Cause, Hop, Problem};
use throughline::core::contract::event::{ClusterSpec, Outcome};
use throughline::core::contract::note::{Note, NoteKind};
use throughline::core::contract::settings::Settings;
use throughline::core::contract::symptom::Symptom;
use throughline::core::data::ids::{ActionId, Kind, ObjectKey, Role};
use throughline::core::data::time::UnixMillis;
use throughline::replay::{
    ActionRecord, ConnectorNames, Outage, Replay, ReplayMode, ReplayVerdict,
};
use throughline::report::{self, ReportOptions};

pub(crate) const START: u64 = 1_795_252_772_865; // 2026-11-21T09:19:32.865Z
pub(crate) const NS: &str = "ns-c8119df3";
pub(crate) const TRIGGER: &str = "gateway.envoyproxy.io/connector-liveness";
pub(crate) const CHANGED: &str = "liveness changed at the edge; announces its proxy's connectors";
pub(crate) const LATE: &str = "touched again in case a cache missed the first one";

pub(crate) fn at(ms: u64) -> UnixMillis {
    UnixMillis(START + ms)
}

pub(crate) fn hub_key(name: &str) -> ObjectKey {
    ObjectKey::new(NS, name)
}

pub(crate) fn names(name: &str) -> ConnectorNames {
    ConnectorNames {
        upstream: Some(("project-a".into(), ObjectKey::new("default", name))),
        hub: hub_key(name),
    }
}

pub(crate) fn cluster(name: &str, roles: &[Role]) -> ClusterSpec {
    ClusterSpec { name: name.into(), roles: roles.to_vec() }
}

pub(crate) fn empty() -> Replay {
    Replay {
        file: "incident-503.jsonl".into(),
        mode: ReplayMode::WhatIf,
        clusters: vec![
            cluster("project-a", &[Role::Upstream]),
            cluster("edge", &[Role::Hub, Role::Edge]),
        ],
        settings: Settings::default(),
        carrier_rate: None,
        events: 0,
        first_at: at(0),
        last_at: at(0),
        ended_at: at(0),
        actions: vec![],
        notes: vec![],
        memberships: vec![],
        warnings: vec![],
        connectors: vec![],
        recorded: vec![],
        replayed: vec![],
        requests: vec![],
        held: 0,
        verdict: ReplayVerdict { good: true, problems: vec![] },
    }
}

pub(crate) fn hop(ms: u64, hop: Hop, name: &str, online: bool) -> Note {
    let (cluster, connector) = match hop {
        Hop::Upstream => ("project-a", ObjectKey::new("default", name)),
        _ => ("edge", hub_key(name)),
    };
    let cluster = cluster.into();
    Note {
        at: at(ms),
        kind: NoteKind::HopPassed { cluster, connector, hop, online, after_ms: None },
    }
}

pub(crate) fn problem(cause: Cause, since: u64, kind: Kind, name: &str) -> Problem {
    Problem::new(cause, About::object(&"edge".into(), kind, hub_key(name)), at(since))
}

pub(crate) fn began(replay: &mut Replay, ms: u64, problem: &Problem) {
    replay.notes.push(Note { at: at(ms), kind: NoteKind::Began(problem.clone()) });
}

pub(crate) fn ended(replay: &mut Replay, ms: u64, problem: &Problem) {
    replay.notes.push(Note { at: at(ms), kind: NoteKind::Ended(problem.clone()) });
}

pub(crate) fn applied() -> Outcome {
    Outcome::Applied { resource_version: None }
}

impl Script {
    pub(crate) fn act(
        &mut self,
        ms: u64,
        verb: Verb,
        name: &str,
        value: &str,
        because: &str,
    ) -> &mut ActionRecord {
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
            Verb::Touch => vec![hub_key("home-lab")],
            Verb::Delete => vec![],
            _ => vec![hub_key(name)],
        };
        let action = Action {
            id: ActionId(self.0.actions.len() as u64 + 1),
            verb,
            cluster: "edge".into(),
            kind,
            object: hub_key(name),
            annotations,
            precondition: Precondition::default(),
            connectors,
        };
        let decision = Decision {
            at: at(ms),
            urgency: Urgency::of(action.verb),
            action,
            because: because.into(),
        };
        self.0.actions.push(ActionRecord { decision, finished: Some((at(ms), applied())) });
        self.0.actions.last_mut().unwrap()
    }

    /// One change of `home-lab` through all hops: mirrored, carried, touched, confirmed.
    pub(crate) fn flip(&mut self, ms: u64, online: bool, n: u32) {
        let state = if online { "online" } else { "offline" };
        self.0.notes.push(hop(ms, Hop::Upstream, "home-lab", online));
        let because = format!("upstream is {state}, the hub annotation differs");
        self.act(ms, Verb::Mirror, "home-lab", "{}", &because);
        self.0.notes.push(hop(ms, Hop::Mirrored, "home-lab", online));
        self.0.notes.push(hop(ms, Hop::Carried, "home-lab", online));
        for (after_ms, c, because) in [(100, 0, CHANGED), (5_100, 1, LATE)] {
            for gateway in 0..26 {
                let value = format!("9f2c41d07be5a630-{n}-{c}");
                self.act(ms + after_ms, Verb::Touch, &format!("app-{gateway:02}"), &value, because);
            }
        }
        self.0.notes.push(hop(ms + 100, Hop::Announced, "home-lab", online));
    }
}

pub(crate) struct Script(pub(crate) Replay);

pub(crate) fn outage(
    name: &str,
    symptom: Symptom,
    from: u64,
    first: Option<u64>,
    until: Option<u64>,
) -> Outage {
    Outage {
        edge: "edge".into(),
        connector: hub_key(name),
        symptom,
        from: at(from),
        first_recovered: first.map(at),
        until: until.map(at),
        gateways: 26,
        by_platform_key: false,
    }
}

pub(crate) fn incident() -> Replay {
    let mut script = Script(empty());
    let replay = &mut script.0;
    (replay.events, replay.last_at, replay.ended_at) = (168, at(68_000), at(70_161));
    replay.connectors = vec![names("home-lab"), names("office")];
    let by_hand = outage("home-lab", Symptom::Offline, 10_061, Some(60_060), Some(62_240));
    replay.recorded = vec![Outage { by_platform_key: true, ..by_hand }];
    replay.replayed =
        vec![outage("home-lab", Symptom::Offline, 10_061, Some(10_161), Some(10_161))];
    script.flip(2_061, false, 1);
    script.flip(10_061, true, 2);
    for gateway in 0..26 {
        let name = format!("app-{gateway:02}");
        script.act(70_161, Verb::Touch, &name, "9f2c41d07be5a630-2-2", LATE);
    }
    script.0
}

pub(crate) fn options(connector: Option<&str>) -> ReportOptions {
    let connector = connector.and_then(|text| text.split_once('/'));
    ReportOptions {
        color: false,
        width: 400,
        connector: connector.map(|(namespace, name)| ObjectKey::new(namespace, name)),
    }
}

pub(crate) fn text_with(replay: &Replay, options: &ReportOptions) -> String {
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
