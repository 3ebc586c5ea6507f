//! Instances share the upstreams of a fleet. An instance keeps of the hub only what names upstreams of
//! the shards that it follows, and writes only for those that it leads. That an object is not kept
//! proves nothing: nothing is written, removed or deleted because of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Cursor;

use proptest::prelude::*;
use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::event::{Event, EventKind, Outcome};
use throughline::core::contract::membership::{
    JoinRule, LeaveReason, Membership, OfferState, SourceName,
};
use throughline::core::contract::note::{NamingProblem, NoteKind};
use throughline::core::contract::settings::{OrphanMode, Settings};
use throughline::core::data::ids::Role;
use throughline::core::data::shard::{Shard, Shards};
use throughline::core::data::time::UnixMillis;
use throughline::core::machine::Machine;
use throughline::event_log::{LogEntry, LogReader};

const START: u64 = 1_795_252_772_000;
const A: Shard = Shard(0);
const B: Shard = Shard(1);

/// A name of the shard, of two.
fn name_in(shard: Shard, kind: &str) -> String {
    let two = Shards::try_from(2).unwrap();
    (0..).map(|i| format!("{kind}-{i}")).find(|name| two.of(name) == shard).unwrap()
}

fn uid(upstream: &str) -> String {
    let number =
        upstream.bytes().fold(0_u64, |number, byte| (number * 31 + u64::from(byte)) % (1 << 40));
    format!("6bcb0b35-0000-4000-8000-{number:012x}")
}

fn status(node: &str) -> String {
    format!(
        r#"{{"conditions":[{{"status":"True","type":"Ready"}}],"connectionDetails":{{"publicKey":{{"id":"{node}"}},"type":"PublicKey"}}}}"#
    )
}

/// One upstream in each of two shards, a hub with a Connector and a route of each, and an edge.
struct Fleet {
    machine: Machine,
    now: u64,
    version: u64,
    edge: String,
}

impl Fleet {
    /// Nothing is followed yet; the hub and the edge are listed and empty.
    fn new(settings: Settings) -> Self {
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

    fn event(&mut self, kind: EventKind) {
        self.machine.handle_event(&Event { at: UnixMillis(self.now), kind });
    }

    fn line(&mut self, line: &str) {
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

    fn list(&mut self, cluster: &str, kind: &str, objects: &[String]) {
        self.line(&format!(r#""event":"list_started","cluster":"{cluster}","kind":"{kind}""#));
        for object in objects {
            self.line(&format!(r#""event":"listed","cluster":"{cluster}","object":{object}"#));
        }
        self.line(&format!(r#""event":"list_finished","cluster":"{cluster}","kind":"{kind}""#));
    }

    fn applied(&mut self, cluster: &str, object: &str) {
        self.line(&format!(r#""event":"applied","cluster":"{cluster}","object":{object}"#));
    }

    fn version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn upstream_connector(&mut self, upstream: &str, node: &str) -> String {
        let (v, status) = (self.version(), status(node));
        format!(
            r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"lab","uid":"u-{upstream}","resourceVersion":"{v}"}},"status":{status}}}"#
        )
    }

    /// The upstream's clusters of this shard join, and are listed.
    fn join(&mut self, upstream: &str, connectors: &[String]) {
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

    fn hub_connector(&mut self, upstream: &str, node: Option<&str>) -> String {
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
    fn orphan(&mut self, upstream: &str, name: &str) -> String {
        let (v, created) = (self.version(), UnixMillis(self.now - 3_600_000));
        format!(
            r#"{{"kind":"HTTPRoute","metadata":{{"namespace":"ns-{}","name":"{name}","uid":"r-{upstream}-{name}","resourceVersion":"{v}","creationTimestamp":"{created}","labels":{{{},"meta.datumapis.com/upstream-group":"gateway.networking.k8s.io","meta.datumapis.com/upstream-kind":"HTTPRoute"}}}},"spec":{{"parentRefs":[{{"name":"gone"}}]}}}}"#,
            uid(upstream),
            labels(upstream, name),
        )
    }

    fn hold(&mut self, shard: Shard) {
        self.event(EventKind::ShardFollowed { shard });
        self.event(EventKind::LeadershipAcquired { shard });
    }

    /// The hub is listed, and holds nothing.
    fn hub_is_empty(&mut self) {
        for kind in ["Connector", "HTTPRoute"] {
            self.list("hub", kind, &[]);
        }
    }

    fn decided(&mut self) -> Vec<Decision> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    fn succeed(&mut self, decision: &Decision) {
        let outcome = Outcome::Applied { resource_version: None, deleted: None };
        self.event(EventKind::ActionFinished { id: decision.action.id, outcome });
    }

    /// Lets time pass while every write succeeds at once.
    fn pass(&mut self, ms: u64) -> Vec<Decision> {
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

    fn notes(&mut self) -> Vec<NoteKind> {
        std::iter::from_fn(|| self.machine.poll_note()).map(|note| note.kind).collect()
    }

    fn hub_objects(&self) -> usize {
        self.machine.table_sizes().hub_objects
    }
}

fn labels(upstream: &str, name: &str) -> String {
    format!(
        r#""meta.datumapis.com/upstream-cluster-name":"cluster-{upstream}","meta.datumapis.com/upstream-namespace":"default","meta.datumapis.com/upstream-name":"{name}""#
    )
}

/// Two upstreams whose hub Connectors say `n1`, as their upstreams do, and all settled. Both shards are
/// held.
fn both_held() -> (Fleet, [String; 2]) {
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

fn deletes() -> Settings {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    settings
}

fn verbs(decisions: &[Decision]) -> Vec<(Verb, Shard)> {
    decisions.iter().map(|d| (d.action.verb, d.action.shard)).collect()
}

#[test]
fn an_instance_mirrors_the_upstreams_of_the_shard_that_it_leads_alone() {
    let ups = [name_in(A, "up"), name_in(B, "up")];
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(A);
    fleet.hub_is_empty();
    for up in &ups {
        let connector = fleet.upstream_connector(up, "n1");
        fleet.join(up, &[connector]);
    }
    for up in &ups {
        let (connector, route) = (fleet.hub_connector(up, None), fleet.orphan(up, "r"));
        fleet.applied("hub", &connector);
        fleet.applied("hub", &route);
    }
    assert_eq!(fleet.hub_objects(), 2, "of B nothing is kept");
    let decided = fleet.decided();
    assert_eq!(verbs(&decided), [(Verb::Mirror, A)]);
    assert_eq!(decided[0].action.connectors[0].namespace, format!("ns-{}", uid(&ups[0])));
    // Nobody is warned of upstreams that are another instance's.
    fleet.pass(300_000);
    let notes = fleet.notes();
    assert!(!notes.iter().any(|note| matches!(note, NoteKind::Naming { .. })), "{notes:?}");
}

#[test]
fn a_flip_is_mirrored_while_the_gate_of_another_shard_is_closed() {
    let (mut fleet, ups) = both_held();
    fleet.event(EventKind::LeadershipLost { shard: B });
    for up in &ups {
        let flipped = fleet.upstream_connector(up, "n2");
        fleet.applied(up, &flipped);
    }
    assert_eq!(verbs(&fleet.pass(1_000)), [(Verb::Mirror, A)]);
    // Its turn comes when the gate opens again.
    fleet.event(EventKind::LeadershipAcquired { shard: B });
    let (decided, b) = (fleet.pass(1_000), format!("ns-{}", uid(&ups[1])));
    let of_b: Vec<_> = decided.iter().filter(|d| d.action.object.namespace == b).collect();
    assert_eq!(
        of_b.iter().map(|d| (d.action.verb, d.action.shard)).collect::<Vec<_>>(),
        [(Verb::Mirror, B)]
    );
}

#[test]
fn a_shard_that_is_left_is_forgotten_and_nothing_is_written() {
    let (mut fleet, ups) = both_held();
    // B's route is an orphan, and about to be deleted; a removal of its annotation is about to be due.
    let route = fleet.orphan(&ups[1], "r");
    fleet.applied("hub", &route);
    let gone = fleet.upstream_connector(&ups[1], "n1");
    fleet.line(&format!(r#""event":"deleted","cluster":"{}","object":{gone}"#, ups[1]));
    fleet.notes();
    fleet.event(EventKind::ShardLeft { shard: B });
    assert_eq!(fleet.hub_objects(), 1);
    // What the shell does next, in either order with what the hub still shows.
    let late = fleet.hub_connector(&ups[1], Some("n1"));
    fleet.applied("hub", &late);
    fleet.event(EventKind::ClusterRemoved { cluster: ups[1].as_str().into() });
    fleet.applied("hub", &late);
    assert_eq!(fleet.pass(600_000), []);
    assert_eq!(fleet.hub_objects(), 1);
    let notes = fleet.notes();
    let tells = |note: &NoteKind| {
        matches!(
            note,
            NoteKind::Naming { over: false, .. } | NoteKind::Anomaly(_) | NoteKind::Stalled(_)
        )
    };
    assert!(!notes.iter().any(tells), "{notes:?}");
    // The other shard is as it was.
    let flipped = fleet.upstream_connector(&ups[0], "n2");
    fleet.applied(&ups[0], &flipped);
    assert_eq!(verbs(&fleet.pass(1_000)), [(Verb::Mirror, A)]);
}

#[test]
fn a_shard_that_is_followed_again_is_caught_up() {
    let (mut fleet, ups) = both_held();
    fleet.event(EventKind::ShardLeft { shard: B });
    fleet.event(EventKind::ClusterRemoved { cluster: ups[1].as_str().into() });
    fleet.pass(60_000);
    fleet.hold(B);
    let connector = fleet.upstream_connector(&ups[1], "n2");
    fleet.join(&ups[1], &[connector]);
    // The watch shows some of it before: a part of it would say the wrong thing about its share.
    let (early, route) = (fleet.hub_connector(&ups[1], Some("n1")), fleet.orphan(&ups[1], "r"));
    fleet.applied("hub", &early);
    fleet.applied("hub", &route);
    assert_eq!(fleet.pass(60_000), [], "the hub is not listed yet");
    assert_eq!(fleet.hub_objects(), 1);
    let connectors: Vec<_> = ups.iter().map(|up| fleet.hub_connector(up, Some("n1"))).collect();
    fleet.list("hub", "Connector", &connectors);
    let decided = fleet.pass(1_000);
    assert_eq!(verbs(&decided), [(Verb::Mirror, B)]);
    assert!(fleet.machine.table_sizes().hub_objects == 2);
}

#[test]
fn a_list_of_the_hub_without_a_followed_shard_removes_and_deletes_nothing() {
    let (mut fleet, ups) = both_held();
    // A filter that is a step behind: the list lacks B, which is followed.
    let connector = fleet.hub_connector(&ups[0], Some("n1"));
    fleet.list("hub", "Connector", &[connector]);
    fleet.list("hub", "HTTPRoute", &[]);
    assert_eq!(fleet.pass(600_000), []);
    let connectors: Vec<_> = ups.iter().map(|up| fleet.hub_connector(up, Some("n1"))).collect();
    fleet.list("hub", "Connector", &connectors);
    assert_eq!(fleet.pass(600_000), []);
    assert_eq!(fleet.hub_objects(), 2);
}

#[test]
fn a_hub_connector_that_comes_to_name_another_shard_is_forgotten() {
    let (mut fleet, ups) = both_held();
    fleet.event(EventKind::ShardLeft { shard: B });
    let moved = fleet
        .hub_connector(&ups[0], Some("n1"))
        .replace(&format!("cluster-{}\"", ups[0]), &format!("cluster-{}\"", ups[1]));
    fleet.applied("hub", &moved);
    assert_eq!(fleet.hub_objects(), 0);
    assert_eq!(fleet.pass(600_000), []);
}

#[test]
fn deletes_wait_with_the_leadership_of_their_shard() {
    let (mut fleet, ups) = both_held();
    fleet.event(EventKind::LeadershipLost { shard: B });
    for up in &ups {
        let route = fleet.orphan(up, "r");
        fleet.applied("hub", &route);
    }
    let decided = fleet.pass(60_000);
    assert_eq!(verbs(&decided), [(Verb::Delete, A)]);
    assert_eq!(decided[0].action.object.namespace, format!("ns-{}", uid(&ups[0])));
}

#[test]
fn the_fleets_deletes_in_a_minute_are_shared_out_as_the_shards_are() {
    for (led, at_most) in [(vec![A, B], 4), (vec![B], 2)] {
        let mut settings = deletes();
        settings.orphans.max_per_minute = 4;
        let up = name_in(B, "up");
        let mut fleet = Fleet::new(settings);
        led.into_iter().for_each(|shard| fleet.hold(shard));
        fleet.hub_is_empty();
        fleet.join(&up, &[]);
        for i in 0..8 {
            let route = fleet.orphan(&up, &format!("r{i}"));
            fleet.applied("hub", &route);
        }
        assert_eq!(fleet.pass(59_000).len(), at_most);
    }
}

#[test]
fn discovered_clusters_join_and_leave_with_their_shard() {
    let ups = [name_in(A, "up"), name_in(B, "up")];
    let mut fleet = Fleet::new(Settings::default());
    let source = SourceName::Milo;
    fleet.hold(A);
    fleet.event(EventKind::DiscoveryStarted { source, join: JoinRule::All });
    for up in &ups {
        let (cluster, uid) = (up.as_str().into(), uid(up));
        let (roles, state) = (vec![Role::Upstream], OfferState::Ready);
        fleet.event(EventKind::ClusterOffered { source, cluster, uid, roles, state });
    }
    fleet.event(EventKind::DiscoveryFinished { source });
    let joins = |fleet: &mut Fleet| {
        let changes = std::iter::from_fn(|| fleet.machine.poll_membership());
        let name = |change| match change {
            Membership::Join { cluster, .. } => (cluster.to_string(), None),
            Membership::Leave { cluster, reason } => (cluster.to_string(), Some(reason)),
        };
        changes.map(name).collect::<Vec<_>>()
    };
    assert_eq!(joins(&mut fleet), [(ups[0].clone(), None)]);
    fleet.event(EventKind::ShardFollowed { shard: B });
    assert_eq!(joins(&mut fleet), [(ups[1].clone(), None)]);
    fleet.event(EventKind::ClusterAdded {
        cluster: ups[1].as_str().into(),
        roles: vec![Role::Upstream],
    });
    fleet.event(EventKind::ShardLeft { shard: B });
    assert_eq!(joins(&mut fleet), [(ups[1].clone(), Some(LeaveReason::ShardLeft))]);
    fleet.event(EventKind::ClusterRemoved { cluster: ups[1].as_str().into() });
    fleet.pass(600_000);
    assert_eq!(joins(&mut fleet), []);
}

/// An edge with a Gateway whose connector goes online now.
fn with_a_change_at_the_edge(fleet: &mut Fleet) {
    let (ns, edge) = (format!("ns-{}", uid("up")), fleet.edge.clone());
    let v = fleet.version();
    let object = |kind: &str, name: &str, rest: &str| {
        format!(
            r#"{{"kind":"{kind}","metadata":{{"namespace":"{ns}","name":"{name}","uid":"e-{kind}","resourceVersion":"{v}"}}{rest}}}"#
        )
    };
    let backends = r#","spec":{"rules":[{"backends":[{"connector":{"name":"lab"}}]}]}"#;
    fleet.applied(&edge, &object("Connector", "lab", ""));
    fleet.applied(&edge, &object("HTTPProxy", "app", backends));
    fleet.applied(&edge, &object("Gateway", "app", r#","spec":{"gatewayClassName":"edge"}"#));
}

#[test]
fn the_leader_of_an_edges_shard_touches_first_and_others_stand_in() {
    let shard = A;
    // The leader at once.
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(shard);
    with_a_change_at_the_edge(&mut fleet);
    assert_eq!(verbs(&fleet.pass(1_000)), [(Verb::Touch, Shard::FIRST)]);
    // Another one after `touch.standInMs`.
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(B);
    with_a_change_at_the_edge(&mut fleet);
    assert_eq!(fleet.pass(2_900), []);
    assert_eq!(verbs(&fleet.pass(1_000)), [(Verb::Touch, Shard::FIRST)]);
    // At once when nobody can know the leader.
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(B);
    with_a_change_at_the_edge(&mut fleet);
    assert_eq!(fleet.pass(500), []);
    fleet.event(EventKind::LeaseApiLost);
    assert_eq!(verbs(&fleet.pass(500)), [(Verb::Touch, Shard::FIRST)]);
    // And when it comes to lead.
    let mut fleet = Fleet::new(Settings::default());
    with_a_change_at_the_edge(&mut fleet);
    assert_eq!(fleet.pass(500), []);
    fleet.hold(shard);
    assert_eq!(verbs(&fleet.pass(500)), [(Verb::Touch, Shard::FIRST)]);
}

#[test]
fn nobody_stands_in_for_what_the_gateway_announces_by_then() {
    let mut leader = Fleet::new(Settings::default());
    leader.hold(A);
    let mut other = Fleet::new(Settings::default());
    other.hold(B);
    [&mut leader, &mut other].into_iter().for_each(with_a_change_at_the_edge);
    let touch = leader.pass(1_000).remove(0);
    assert_eq!(other.pass(1_000), []);
    let (key, value) = touch.action.annotations[0].clone();
    let (ns, v) = (format!("ns-{}", uid("up")), 1_000);
    let value = serde_json::to_string(&value.unwrap()).unwrap();
    let edge = other.edge.clone();
    other.applied(&edge, &format!(
        r#"{{"kind":"Gateway","metadata":{{"namespace":"{ns}","name":"app","uid":"e-Gateway","resourceVersion":"{v}","annotations":{{"{key}":{value}}}}},"spec":{{"gatewayClassName":"edge"}}}}"#
    ));
    // The leader confirms after 5 s; so long nobody else writes.
    assert_eq!(other.pass(4_000), []);
}

#[test]
fn the_state_says_which_shards_are_followed_and_led_and_since_when() {
    let (mut fleet, _) = both_held();
    fleet.event(EventKind::LeadershipLost { shard: B });
    let view = fleet.machine.view();
    let followed = || view.shards.iter().filter(|shard| shard.followed_since_ms.is_some());
    let seen: Vec<_> = followed().map(|s| (s.shard, s.led_since_ms)).collect();
    assert_eq!(seen, [(A, Some(UnixMillis(START))), (B, None)]);
    assert!(followed().all(|shard| shard.followed_since_ms == Some(UnixMillis(START))));
    let numbers: Vec<_> = view.shards.iter().map(|shard| shard.shard).collect();
    assert_eq!(numbers, fleet.machine.settings().shards.all().collect::<Vec<_>>());
    assert!(view.leads);
}

#[test]
fn the_state_has_the_connectors_of_the_shards_that_are_followed() {
    let (mut fleet, ups) = both_held();
    let all = fleet.machine.view();
    assert_eq!(all.connectors.len(), 2);
    // The edge still has those of both.
    fleet.event(EventKind::ShardLeft { shard: B });
    fleet.event(EventKind::ClusterRemoved { cluster: ups[1].as_str().into() });
    let view = fleet.machine.view();
    let clusters: Vec<_> = view.connectors.iter().map(|c| c.upstream.as_ref().unwrap()).collect();
    assert_eq!(clusters.iter().map(|u| u.cluster.as_str()).collect::<Vec<_>>(), [&*ups[0]]);
    assert_eq!(view.phases, fleet.machine.phases());
    assert_eq!(view.phases.values().sum::<u64>(), 1);
}

#[test]
fn one_upstream_of_a_followed_shard_that_is_not_configured_is_reported() {
    let mut fleet = Fleet::new(Settings::default());
    fleet.hold(A);
    fleet.hub_is_empty();
    for up in [name_in(A, "up"), name_in(B, "up")] {
        let connector = fleet.hub_connector(&up, None);
        fleet.applied("hub", &connector);
    }
    fleet.pass(120_000);
    let unconfigured = fleet.notes().into_iter().find_map(|note| match note {
        NoteKind::Naming { problem: NamingProblem::Unconfigured, upstreams, .. } => Some(upstreams),
        _ => None,
    });
    let named: Vec<_> = unconfigured.unwrap().into_iter().map(|u| u.cluster.to_string()).collect();
    assert_eq!(named, [name_in(A, "up")]);
}

/// Whatever may happen to the shards, in any order with what the hub shows.
#[derive(Clone, Debug)]
enum Step {
    Followed(u16),
    Left(u16),
    Acquired(u16),
    Lost(u16),
    /// A list of the hub that brings the objects of these shards only.
    Listed([bool; 2]),
    Shown(usize),
    Flip(usize),
    LeaseApi(bool),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let shard = 0..2_u16;
    prop_oneof![
        shard.clone().prop_map(Step::Followed),
        shard.clone().prop_map(Step::Left),
        shard.clone().prop_map(Step::Acquired),
        shard.prop_map(Step::Lost),
        any::<[bool; 2]>().prop_map(Step::Listed),
        (0..2_usize).prop_map(Step::Shown),
        (0..2_usize).prop_map(Step::Flip),
        any::<bool>().prop_map(Step::LeaseApi),
        (0..120_000_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_written_without_its_shard_nor_removed_in_any_order(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let (mut fleet, ups) = both_held();
        let mut led = [true, true];
        let mut says = ["n1".to_owned(), "n1".to_owned()];
        for (number, step) in steps.into_iter().enumerate() {
            let mut decided = Vec::new();
            match step {
                Step::Followed(shard) => fleet.event(EventKind::ShardFollowed { shard: Shard(shard) }),
                Step::Left(shard) => {
                    fleet.event(EventKind::ShardLeft { shard: Shard(shard) });
                    led[usize::from(shard)] = false;
                }
                Step::Acquired(shard) => {
                    fleet.event(EventKind::LeadershipAcquired { shard: Shard(shard) });
                    led[usize::from(shard)] = true;
                }
                Step::Lost(shard) => {
                    fleet.event(EventKind::LeadershipLost { shard: Shard(shard) });
                    led[usize::from(shard)] = false;
                }
                Step::Listed(shown) => {
                    let shown = ups.iter().zip(shown).filter(|(_, is_shown)| *is_shown);
                    let shown: Vec<_> = shown.map(|(up, _)| up.clone()).collect();
                    let objects: Vec<_> =
                        shown.iter().map(|up| fleet.hub_connector(up, Some("n1"))).collect();
                    fleet.list("hub", "Connector", &objects);
                }
                Step::Shown(up) => {
                    let object = fleet.hub_connector(&ups[up], Some("n1"));
                    fleet.applied("hub", &object);
                }
                Step::Flip(up) => {
                    says[up] = format!("n{number}");
                    let object = fleet.upstream_connector(&ups[up], &says[up]);
                    fleet.applied(&ups[up], &object);
                }
                Step::LeaseApi(true) => fleet.event(EventKind::LeaseApiLost),
                Step::LeaseApi(false) => fleet.event(EventKind::LeaseApiReachable),
                Step::Pass(ms) => decided = fleet.pass(ms),
            }
            decided.extend(fleet.decided());
            for decision in &decided {
                let action = &decision.action;
                prop_assert!(led[usize::from(action.shard.0)], "{action:?}");
                prop_assert_eq!(action.verb, Verb::Mirror);
                prop_assert!(action.annotations.iter().all(|(_, value)| value.is_some()), "{action:?}");
                fleet.succeed(decision);
            }
        }
        // Held again and listed in full, everything is caught up.
        fleet.pass(600_000);
        [A, B].into_iter().for_each(|shard| fleet.hold(shard));
        let objects: Vec<_> = ups.iter().map(|up| fleet.hub_connector(up, Some("old"))).collect();
        fleet.list("hub", "Connector", &objects);
        let mirrored = fleet.pass(600_000);
        for (up, says) in ups.iter().zip(&says) {
            let ns = format!("ns-{}", uid(up));
            let mut of_up =
                mirrored.iter().rev().filter(|decision| decision.action.object.namespace == ns);
            let last = of_up.next().map(|decision| decision.action.annotations[0].1.clone());
            let is_caught_up = last.flatten().is_some_and(|text| text.contains(&format!("\"{says}\"")));
            prop_assert!(is_caught_up, "{} says {}: {:?}", up, says, mirrored);
        }
    }
}
