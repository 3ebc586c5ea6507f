//! Many connectors of one upstream, on the stage.

use throughline_core::contract::action::Decision;
use throughline_core::contract::hold_reason::HoldReason;
use throughline_core::contract::note::NoteKind;
use throughline_core::contract::settings::Settings;
use throughline_core::view::phase::Phase;

use crate::stage::{self, Stage, UID, status};

/// A fleet of connectors, all online and mirrored.
pub(crate) struct Fleet {
    pub(crate) stage: Stage,
    size: usize,
}

pub(crate) fn name(number: usize) -> String {
    format!("c{number}")
}

impl Fleet {
    pub(crate) fn new(size: usize) -> Self {
        Self::with(Settings::default(), size)
    }

    pub(crate) fn with(settings: Settings, size: usize) -> Self {
        let mut fleet = Self { stage: Stage::new(settings), size };
        fleet.stage.pass_to(1);
        for number in 0..size {
            fleet.change(number, Some("n1"));
            let at_hub = fleet.at_hub(number, Some("n1"));
            fleet.stage.applied("hub", &at_hub);
        }
        fleet.stage.assert_no_action();
        fleet.stage.notes();
        fleet
    }

    pub(crate) fn upstream(&mut self, number: usize, node: Option<&str>) -> String {
        let (v, status) = (self.stage.version(), status(node));
        let name = name(number);
        format!(
            r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"{name}","uid":"u-{name}","resourceVersion":"{v}"}},"status":{status}}}"#
        )
    }

    /// The upstream Connector says this.
    pub(crate) fn change(&mut self, number: usize, node: Option<&str>) {
        let object = self.upstream(number, node);
        self.stage.applied("up", &object);
    }

    pub(crate) fn at_hub(&mut self, number: usize, node: Option<&str>) -> String {
        let v = self.stage.version();
        let name = name(number);
        let annotations = match node {
            Some(node) => serde_json::json!({
                "networking.datumapis.com/upstream-status": status(Some(node)),
            }),
            None => serde_json::json!({}),
        };
        serde_json::json!({"kind": "Connector", "metadata": {
        "namespace": format!("ns-{UID}"), "name": name, "uid": format!("u-hub-{name}"),
        "resourceVersion": v.to_string(), "annotations": annotations,
        "labels": {
            "meta.datumapis.com/upstream-cluster-name": "cluster-up",
            "meta.datumapis.com/upstream-namespace": "default",
            "meta.datumapis.com/upstream-name": name,
        }}})
        .to_string()
    }

    pub(crate) fn delete_upstream(&mut self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let object = self.upstream(number, Some("n1"));
            self.stage.deleted("up", &object);
        }
    }

    /// Relists the upstream Connectors, of which only these are there.
    pub(crate) fn relist(&mut self, numbers: std::ops::Range<usize>) {
        let objects: Vec<_> = numbers.map(|number| self.upstream(number, Some("n1"))).collect();
        let objects: Vec<_> = objects.iter().map(String::as_str).collect();
        self.stage.list("up", "Connector", &objects);
    }

    pub(crate) fn relist_namespaces(&mut self, namespaces: &[&str]) {
        self.stage.list("up", "Namespace", namespaces);
    }

    /// Lets time pass, and carries out what is decided meanwhile. Returns the names of the hub
    /// Connectors that lost their annotation.
    pub(crate) fn removed_until(&mut self, ms: u64) -> Vec<String> {
        let mut removed = Vec::new();
        while self.stage.now < stage::START + ms {
            let next = (self.stage.now - stage::START + 500).min(ms);
            self.stage.pass_to(next);
            for decision in self.stage.actions() {
                assert_eq!(decision.action.annotations[0].1, None, "{decision:?}");
                self.carry_out(&decision);
                removed.push(decision.action.object.name.clone());
            }
        }
        removed
    }

    pub(crate) fn carry_out(&mut self, decision: &Decision) {
        let number: usize = decision.action.object.name[1..].parse().unwrap();
        let object = self.at_hub(number, None);
        self.stage.applied("hub", &object);
        self.stage.succeed(decision);
    }

    pub(crate) fn allow(&mut self, value: &str) {
        let v = self.stage.version();
        let namespace = format!(
            r#"{{"kind":"Namespace","metadata":{{"name":"ns-{UID}","uid":"u-ns","resourceVersion":"{v}","annotations":{{"throughline.datumapis.com/allow-removals":"{value}"}}}}}}"#
        );
        self.stage.applied("hub", &namespace);
    }

    pub(crate) fn held(&mut self) -> Vec<(HoldReason, u64)> {
        let notes = self.stage.notes().into_iter();
        let held = notes.filter_map(|note| match note.kind {
            NoteKind::Held { reason, held, .. } => Some((reason, held)),
            _ => None,
        });
        held.collect()
    }

    pub(crate) fn assert_all_unproven(&self, reason: HoldReason) {
        let view = self.stage.machine.view();
        assert_eq!(view.connectors.len(), self.size);
        for connector in view.connectors {
            assert_eq!(connector.phase, Phase::Unproven);
            assert_eq!(connector.hubs[0].hold.as_ref().map(|hold| hold.reason), Some(reason));
        }
    }
}

pub(crate) fn namespace(uid: &str) -> String {
    format!(
        r#"{{"kind":"Namespace","metadata":{{"name":"default","uid":"{uid}","resourceVersion":"9"}}}}"#
    )
}
