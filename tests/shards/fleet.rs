//! A fleet of two upstreams, each in a shard of its own, before one machine.

use std::io::Cursor;

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::event::{Event, EventKind, Outcome};
use throughline::core::contract::note::NoteKind;
use throughline::core::contract::settings::{OrphanMode, Settings};
use throughline::core::data::ids::Role;
use throughline::core::data::shard::{Shard, Shards};
use throughline::core::data::time::UnixMillis;
use throughline::core::machine::Machine;
use throughline::event_log::{LogEntry, LogReader};

pub(crate) const START: u64 = 1_795_252_772_000;
pub(crate) const A: Shard = Shard(0);
pub(crate) const B: Shard = Shard(1);

/// A name of the shard, of two.
pub(crate) fn name_in(shard: Shard, kind: &str) -> String {
    let two = Shards::try_from(2).unwrap();
    (0..).map(|i| format!("{kind}-{i}")).find(|name| two.of(name) == shard).unwrap()
}

pub(crate) fn uid(upstream: &str) -> String {
    let number =
        upstream.bytes().fold(0_u64, |number, byte| (number * 31 + u64::from(byte)) % (1 << 40));
    format!("6bcb0b35-0000-4000-8000-{number:012x}")
}

pub(crate) fn status(node: &str) -> String {
    format!(
        r#"{{"conditions":[{{"status":"True","type":"Ready"}}],"connectionDetails":{{"publicKey":{{"id":"{node}"}},"type":"PublicKey"}}}}"#
    )
}

/// One upstream in each of two shards, a hub with a Connector and a route of each, and an edge.
pub(crate) struct Fleet {
    pub(crate) machine: Machine,
    now: u64,
    version: u64,
    pub(crate) edge: String,
}

impl Fleet {
    /// Nothing is followed yet; the hub and the edge are listed and empty.
    pub(crate) fn new(settings: Settings) -> Self {
        let settings = Settings { shards: Shards::try_from(2).unwrap(), ..settings };
        let (machine, edge) = (Machine::new(settings), name_in(A, "edge"));
        let mut fleet = Self { machine, now: START, version: 0, edge: edge.clone() };
        fleet.event(EventKind::ClusterAdded { cluster: "hub".into(), roles: vec![Role::Hub] });
        fleet.event(EventKind::ClusterAdded {
            cluster: edge.as_str().into(),
            roles: vec![Role::Edge],
        });
        fleet.hub_is_empty();
        for kind in ["Connector", "HTTPProxy", "Gateway"] {
            fleet.list(&edge, kind, &[]);
        }
        fleet
    }

    pub(crate) fn event(&mut self, kind: EventKind) {
        self.machine.handle_event(&Event { at: UnixMillis(self.now), kind });
    }

    pub(crate) fn line(&mut self, line: &str) {
        let names = [name_in(A, "up"), name_in(B, "up")];
        let ups =
            names.map(|name| format!(r#"{{"name":"{name}","roles":["upstream"]}}"#)).join(",");
        let text = format!(
            r#"{{"log":"throughline","version":1,"clusters":[{ups},{{"name":"hub","roles":["downstream"]}},{{"name":"{}","roles":["edge"]}}]}}
{{"at_ms":{},{line}}}
"#,
            self.edge, self.now
        );
        let mut reader = LogReader::new("shards", Cursor::new(text)).unwrap();
        while let Some(LogEntry::Event(event)) = reader.next_line().unwrap() {
            self.machine.handle_event(&event);
        }
    }

    pub(crate) fn list(&mut self, cluster: &str, kind: &str, objects: &[String]) {
        self.line(&format!(r#""event":"list_started","cluster":"{cluster}","kind":"{kind}""#));
        for object in objects {
            self.line(&format!(r#""event":"listed","cluster":"{cluster}","object":{object}"#));
        }
        self.line(&format!(r#""event":"list_finished","cluster":"{cluster}","kind":"{kind}""#));
    }

    pub(crate) fn applied(&mut self, cluster: &str, object: &str) {
        self.line(&format!(r#""event":"applied","cluster":"{cluster}","object":{object}"#));
    }

    pub(crate) fn version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    pub(crate) fn upstream_connector(&mut self, upstream: &str, node: &str) -> String {
        let (v, status) = (self.version(), status(node));
        format!(
            r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"lab","uid":"u-{upstream}","resourceVersion":"{v}"}},"status":{status}}}"#
        )
    }

    /// The upstream's clusters of this shard join, and are listed.
    pub(crate) fn join(&mut self, upstream: &str, connectors: &[String]) {
        self.event(EventKind::ClusterAdded {
            cluster: upstream.into(),
            roles: vec![Role::Upstream],
        });
        let uid = uid(upstream);
        let namespace = format!(
            r#"{{"kind":"Namespace","metadata":{{"name":"default","uid":"{uid}","resourceVersion":"1"}}}}"#
        );
        self.list(upstream, "Namespace", &[namespace]);
        self.list(upstream, "Connector", connectors);
        self.list(upstream, "Gateway", &[]);
    }

    pub(crate) fn hub_connector(&mut self, upstream: &str, node: Option<&str>) -> String {
        let v = self.version();
        let annotations = node.map_or(String::new(), |node| {
            let text = serde_json::to_string(&status(node)).unwrap();
            format!(r#","annotations":{{"networking.datumapis.com/upstream-status":{text}}}"#)
        });
        format!(
            r#"{{"kind":"Connector","metadata":{{"namespace":"ns-{}","name":"lab","uid":"h-{upstream}","resourceVersion":"{v}","labels":{{{}}}{annotations}}}}}"#,
            uid(upstream),
            labels(upstream, "lab"),
        )
    }

    /// A route that is an hour old, and whose Gateway does not exist upstream.
    pub(crate) fn orphan(&mut self, upstream: &str, name: &str) -> String {
        let (v, created) = (self.version(), UnixMillis(self.now - 3_600_000));
        format!(
            r#"{{"kind":"HTTPRoute","metadata":{{"namespace":"ns-{}","name":"{name}","uid":"r-{upstream}-{name}","resourceVersion":"{v}","creationTimestamp":"{created}","labels":{{{},"meta.datumapis.com/upstream-group":"gateway.networking.k8s.io","meta.datumapis.com/upstream-kind":"HTTPRoute"}}}},"spec":{{"parentRefs":[{{"name":"gone"}}]}}}}"#,
            uid(upstream),
            labels(upstream, name),
        )
    }

    pub(crate) fn hold(&mut self, shard: Shard) {
        self.event(EventKind::ShardFollowed { shard });
        self.event(EventKind::LeadershipAcquired { shard });
    }

    /// The hub is listed, and holds nothing.
    pub(crate) fn hub_is_empty(&mut self) {
        for kind in ["Connector", "HTTPRoute"] {
            self.list("hub", kind, &[]);
        }
    }

    pub(crate) fn decided(&mut self) -> Vec<Decision> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    pub(crate) fn succeed(&mut self, decision: &Decision) {
        let outcome = Outcome::Applied { resource_version: None };
        self.event(EventKind::ActionFinished { id: decision.action.id, outcome });
    }

    /// Lets time pass while every write succeeds at once.
    pub(crate) fn pass(&mut self, ms: u64) -> Vec<Decision> {
        let (end, mut all) = (self.now + ms, Vec::new());
        loop {
            let decided = self.decided();
            decided.iter().for_each(|decision| self.succeed(decision));
            let has_acted = !decided.is_empty();
            all.extend(decided);
            match self.machine.poll_deadline() {
                Some((at, _)) if at.0 <= end => {
                    self.now = self.now.max(at.0);
                    self.machine.handle_timeout(UnixMillis(self.now));
                }
                _ if !has_acted => break,
                _ => {}
            }
        }
        self.now = end;
        self.machine.handle_timeout(UnixMillis(end));
        all.extend(self.decided());
        all
    }

    pub(crate) fn notes(&mut self) -> Vec<NoteKind> {
        std::iter::from_fn(|| self.machine.poll_note()).map(|note| note.kind).collect()
    }

    pub(crate) fn hub_objects(&self) -> usize {
        self.machine.table_sizes().hub_objects
    }
}

pub(crate) fn labels(upstream: &str, name: &str) -> String {
    format!(
        r#""meta.datumapis.com/upstream-cluster-name":"cluster-{upstream}","meta.datumapis.com/upstream-namespace":"default","meta.datumapis.com/upstream-name":"{name}""#
    )
}

/// Two upstreams whose hub Connectors say `n1`, as their upstreams do, and all settled. Both shards are
/// held.
pub(crate) fn both_held() -> (Fleet, [String; 2]) {
    let ups = [name_in(A, "up"), name_in(B, "up")];
    let mut fleet = Fleet::new(deletes());
    [A, B].into_iter().for_each(|shard| fleet.hold(shard));
    fleet.hub_is_empty();
    for up in &ups {
        let connector = fleet.upstream_connector(up, "n1");
        fleet.join(up, &[connector]);
    }
    let connectors: Vec<_> = ups.iter().map(|up| fleet.hub_connector(up, Some("n1"))).collect();
    fleet.list("hub", "Connector", &connectors);
    assert_eq!(fleet.pass(120_000), []);
    (fleet, ups)
}

pub(crate) fn deletes() -> Settings {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    settings
}

pub(crate) fn verbs(decisions: &[Decision]) -> Vec<(Verb, Shard)> {
    decisions.iter().map(|d| (d.action.verb, d.action.shard)).collect()
}
