use super::*;
use crate::contract::settings::TouchSettings;
use crate::data::objects::Meta;
use crate::status::liveness::Liveness;
use crate::world::fixture::{watched, with_uid};

const CLASS: &str = "shared";

struct Edge {
    tables: EdgeTables,
    version: u64,
}

fn name(name: &str) -> NamespacedName {
    NamespacedName::new("ns", name)
}

fn gateway_of_class() -> Gateway {
    Gateway::new(&Meta::default(), CLASS, true, &TouchSettings::default())
}

fn carries_trigger(gateway: &mut Gateway) {
    gateway.trigger = Some(Trigger { digest: 1, n: 1, c: 0 });
}

impl Edge {
    /// Gateways `a`, `b` and `c`, each with a connector of the same name.
    fn new() -> Self {
        let tables = EdgeTables { is_by_class: true, ..EdgeTables::default() };
        let mut edge = Self { tables, version: 0 };
        for gateway in ["a", "b", "c"] {
            edge.references(gateway, &[gateway]);
        }
        edge
    }

    fn references(&mut self, gateway: &str, connectors: &[&str]) -> bool {
        self.version += 1;
        let connectors = connectors.iter().map(|connector| name(connector)).collect();
        self.tables.on_proxy(&name(gateway), watched(self.version), connectors)
    }

    fn says(&mut self, connector: &str, part: u64) -> ConnectorChange {
        self.version += 1;
        let liveness = Liveness { online: true, node_id: "node".into() };
        let seen = EdgeConnector::new(liveness, part, false);
        let sighting = watched(self.version);
        self.tables.on_connector(&name(connector), sighting, seen, UnixMillis(1)).unwrap()
    }

    fn shows(&mut self, gateway: &str, change: impl FnOnce(&mut Gateway)) {
        let mut seen = gateway_of_class();
        change(&mut seen);
        self.version += 1;
        let sighting = watched(self.version);
        self.tables.on_gateway(&name(gateway), sighting, seen).unwrap();
    }

    /// The digest of the class, computed again from its Gateways.
    fn recount(&self) -> Option<u64> {
        let part = |(name, row): (&NamespacedName, &Row<Gateway>)| {
            let is_member = &*row.seen.class == CLASS;
            let connectors = self.tables.connectors_of(name).iter();
            let parts: Vec<_> = connectors.map(|name| self.tables.part_of(name)).collect();
            let is_member = is_member && !parts.is_empty();
            let part = trigger::gateway_part(name.namespace(), name.name(), trigger::digest(parts));
            is_member.then_some(part)
        };
        let parts: Vec<_> = self.tables.gateways.iter().filter_map(part).collect();
        (!parts.is_empty()).then(|| trigger::digest(parts))
    }

    fn digest(&self) -> Option<u64> {
        self.tables.classes.get(CLASS).map(Class::digest)
    }
}

#[test]
fn the_gateway_that_does_it_best_carries_the_trigger() {
    type Step = fn(&mut Edge);
    let a: Step = |edge| edge.shows("a", |_| ());
    let b: Step = |edge| edge.shows("b", |_| ());
    let b_has_trigger: Step = |edge| edge.shows("b", carries_trigger);
    let b_is_paused: Step = |edge| {
        edge.shows("b", |gateway| {
            carries_trigger(gateway);
            gateway.is_paused = true;
        });
    };
    let a_is_useless: Step = |edge| edge.shows("a", |gateway| gateway.is_programmed = false);
    let a_is_refused: Step = |edge| _ = edge.tables.on_refused(CLASS, &name("a"));
    let b_is_refused: Step = |edge| _ = edge.tables.on_refused(CLASS, &name("b"));
    let a_rejoins: Step = |edge| assert!(edge.references("a", &[]) && edge.references("a", &["a"]));
    let a_is_another: Step = |edge| {
        let sighting = with_uid("another", watched(9));
        edge.tables.on_gateway(&name("a"), sighting, gateway_of_class());
    };

    let cases: [(&str, &[Step], &str); 9] = [
        ("the first", &[a, b], "a"),
        ("one that is programmed", &[a_is_useless, b], "b"),
        ("where none is, any other", &[a_is_useless], "a"),
        ("the one that has it", &[a, b_has_trigger], "b"),
        ("unless it was refused", &[a, b_has_trigger, b_is_refused], "a"),
        (
            "of two that were, the one that has it",
            &[a, b_has_trigger, b_is_refused, a_is_refused],
            "b",
        ),
        ("unless it is paused", &[a, b_has_trigger, b_is_paused], "a"),
        ("one that rejoined was never refused", &[a, b, a_is_refused, a_rejoins], "a"),
        ("nor was another object", &[a, b, a_is_refused, a_is_another], "a"),
    ];
    for (which, steps, carrier) in cases {
        let mut edge = Edge::new();
        steps.iter().for_each(|step| step(&mut edge));
        assert_eq!(edge.tables.carrier(CLASS), Some(&name(carrier)), "{which}");
    }
}

#[test]
fn a_class_says_what_its_gateways_say_together() {
    let mut edge = Edge::new();
    let steps: [fn(&mut Edge); 8] = [
        |edge| edge.shows("a", |_| ()),
        |edge| edge.shows("b", |_| ()),
        |edge| assert_eq!(edge.says("a", 7), ConnectorChange::Liveness),
        |edge| assert!(edge.references("b", &["a", "b"])),
        |edge| drop(edge.tables.on_connector_gone(&name("a"))),
        |edge| edge.shows("b", |gateway| gateway.class = "other".into()),
        |edge| assert!(edge.tables.on_proxy_gone(&name("a"))),
        |edge| drop(edge.tables.on_gateway_gone(&name("b"))),
    ];
    for (number, step) in steps.into_iter().enumerate() {
        step(&mut edge);
        assert_eq!(edge.digest(), edge.recount(), "after step {number}");
    }
    assert!(edge.tables.classes.is_empty());
}

#[test]
fn references_lead_there_and_back() {
    let mut edge = Edge::new();
    assert!(edge.references("b", &["a", "b"]));
    assert!(!edge.references("b", &["a", "b"]), "it is as before");
    assert_eq!(edge.tables.gateways_of(&name("a")), [name("a"), name("b")]);

    edge.says("b", 7);
    assert_eq!(edge.tables.stamp_of(&name("b")), Some(Stamp::of("true/node")), "the last one's");

    assert!(edge.references("b", &[]));
    assert_eq!(edge.tables.gateways_of(&name("a")), [name("a")]);
    assert_eq!(edge.tables.gateways_of(&name("b")), []);
    assert_eq!(edge.tables.connectors_of(&name("b")), []);
}
