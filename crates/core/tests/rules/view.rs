//! What the fleet shows of a connector: each hop's state, since when, and why. `view.txt` has it.

use crate::causes::without_labels;
use crate::scenes::Row::{self, It, Scene};
use crate::scenes::assert_told;
use crate::stage::*;

const EXPIRED: &str =
    r#"{"conditions":[{"message":"Gone.","reason":"Expired","status":"False","type":"Ready"}]}"#;

const SCENES: &[Row] = &[
    Scene("a connector that no HTTPProxy references", Stage::default),
    It("carried", |s| _ = s.upstream(N1).hub(N1).edge(N1)),
    It("a proxy without a Gateway", |s| _ = s.proxy(&["lab"])),
    It("a Gateway that does not announce it yet", |s| _ = s.gateway("")),
    It("the proxies are lost", |s| _ = s.lost("edge", "HTTPProxy")),
    Scene("what the hub Connector says of its upstream", Stage::default),
    It("no labels", without_labels),
    It("labels", |s| _ = s.upstream(N1).hub(N1)),
    It("another namespace has the name", |s| _ = s.applied("up", namespace(OTHER_UID))),
    Scene("a connector that only its upstream has", Stage::default),
    It("offline", |s| _ = s.upstream(Some(EXPIRED))),
    It("the hub is lost", |s| _ = s.pass(1).lost("hub", "Connector")),
    It("an edge has it, by the uid of its namespace", |s| _ = s.pass(1).edge(N1)),
    Scene("a hub Connector that cannot be decoded is not missing", Stage::default),
    It("upstream has it", |s| {
        let object = NamespacedName::new(UP.hub_namespace(), "lab");
        let (cluster, kind, error) = ("hub".into(), Kind::Connector, "a list".into());
        s.upstream(N1).event(EventKind::Unreadable { cluster, kind, object, error }).pass(MINUTE);
    }),
    It("an edge has it", |s| _ = s.edge(N1)),
    Scene("two upstreams have a namespace with one uid", Stage::default),
    It("one is shown at the place that both have, the other alone", |s| {
        let other = Tenant { cluster: "other", ..UP };
        s.join("other", Role::Upstream).list("other", "Namespace", [other.namespace()]);
        s.list("other", "Connector", [other.connector("lab", N2)]).upstream(N1).edge(N1);
    }),
    Scene("a connector that no edge has", Stage::default),
    It("mirrored", |s| _ = s.upstream(N1).hub(N1)),
    It("for longer than the carrier takes", |s| _ = s.pass(10 * SECOND)),
    It("the hub is lost", |s| _ = s.lost("hub", "Connector")),
    It("resumed", |s| _ = s.resumed("hub", "Connector")),
    It("another edge may have it", |s| _ = s.join("far", Role::Edge)),
    It("the first edge may have it", |s| _ = s.leave("far").lost("edge", "Connector")),
    It("it does, and the carrier decides which edges do", |s| {
        add_edge(s.edge(N1), "far").resumed("edge", "Connector");
    }),
    Scene("no edge lacks a Connector without an annotation", Stage::default),
    It("not annotated", |s| _ = s.hub(None)),
    Scene("without an edge nothing is missing", Stage::default),
    It("mirrored", |s| _ = s.leave("edge").upstream(N1).hub(N1)),
    Scene("a hop is unknown since the first watch that it needs was lost", || {
        Stage::settled(Settings::default())
    }),
    It("the hub is lost", |s| _ = s.lost("hub", "Connector")),
    It("the edge is lost", |s| _ = s.pass(1).lost("edge", "Gateway")),
    It("a list runs", |s| _ = s.pass(1).list_started("hub", "Connector")),
    Scene("a cluster that leaves ends only the problems of its own", || {
        Stage::settled(Settings::default())
    }),
    It("both are lost", |s| _ = s.lost("hub", "Connector").lost("edge", "Gateway")),
    It("the edge leaves", |s| _ = s.leave("edge")),
    It("the hub is resumed", |s| _ = s.resumed("hub", "Connector")),
    Scene("hops are sorted by the way, then by cluster, then by object", Stage::default),
    It("two edges", |s| {
        add_edge(s.upstream(N1).hub(N1).edge(N1), "aside").applied("aside", UP.copy("lab", N1));
        for proxy in ["b", "a"].map(|name| UP.proxy(name, &["lab"])) {
            s.applied("edge", &proxy).applied("aside", &proxy);
        }
    }),
    Scene("Gateways and HTTPProxies without a counterpart", Stage::default),
    It("a Connector is missing", |s| _ = s.edge(N1).proxy(&["lab", "missing"])),
    It("no HTTPProxy", |s| _ = s.applied("edge", UP.gateway("bare", json!({})))),
    It("no connector", |s| _ = s.applied("edge", UP.proxy("idle", &[]))),
    // A missing object may exist.
    It("the edge is lost", |s| _ = s.pass(1).lost("edge", "Connector")),
    Scene("rules that are off make nothing wait", || {
        let mut off = Settings::default();
        off.mirror.enabled = false;
        off.touch.enabled = false;
        Stage::new(off)
    }),
    It("not mirrored", |s| _ = s.upstream(OFFLINE).hub(N1).edge(N1)),
    It("not announced", |s| _ = s.proxy(&["lab"]).gateway("")),
];

/// An edge whose lists are complete.
fn add_edge<'s>(stage: &'s mut Stage, name: &str) -> &'s mut Stage {
    stage.join(name, Role::Edge);
    for kind in ["Connector", "HTTPProxy", "Gateway"] {
        stage.list(name, kind, []);
    }
    stage
}

#[test]
fn what_is_shown_of_each_hop() {
    assert_told(String::new(), SCENES, "view.txt");
}
