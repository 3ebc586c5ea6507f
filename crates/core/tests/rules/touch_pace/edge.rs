//! An edge that carries out each touch, and its Gateways.

use super::*;

/// An edge with many Gateways, which keeps what is written to them.
pub(crate) struct Edge {
    pub(crate) stage: Stage,
    /// By name: the connectors, the trigger, when it was written, and the stamp.
    pub(crate) gateways: BTreeMap<String, Site>,
    /// Every touch: when, of which Gateway, and the value.
    pub(crate) touches: Vec<(u64, String, Trigger)>,
}

#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) connectors: Vec<String>,
    pub(crate) trigger: Option<(Trigger, u64)>,
    pub(crate) stamp: String,
}

/// A Connector at the edge, and the times of its writers.
pub(crate) fn connector(
    name: &str,
    version: u64,
    node: Option<&str>,
    managed_fields: &str,
) -> String {
    let text = serde_json::to_string(&status(node)).unwrap();
    format!(
        r#"{{"kind":"Connector","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-{name}","resourceVersion":"{version}","annotations":{{"networking.datumapis.com/upstream-status":{text}}},"managedFields":[{managed_fields}]}}}}"#
    )
}

/// An entry of `managedFields`.
pub(crate) fn wrote(manager: &str, at: u64, fields: &str) -> String {
    let time = UnixMillis(START + at);
    format!(r#"{{"manager":"{manager}","time":"{time}","fieldsV1":{fields}}}"#)
}

pub(crate) const OWNS_ANNOTATION: &str =
    r#"{"f:metadata":{"f:annotations":{"f:networking.datumapis.com/upstream-status":{}}}}"#;
pub(crate) const OWNS_LABEL: &str = r#"{"f:metadata":{"f:labels":{"f:team":{}}}}"#;

impl Edge {
    /// Every Gateway references one of the connectors. `managed_fields`: those of every connector.
    pub(crate) fn listed(
        settings: Settings,
        gateways: BTreeMap<String, Site>,
        managed_fields: &str,
        at: u64,
    ) -> Self {
        let mut stage = Stage::before_the_edge(settings);
        stage.pass_to(at);
        let names: std::collections::BTreeSet<_> =
            gateways.values().flat_map(|site| site.connectors.clone()).collect();
        let connectors: Vec<_> = names
            .iter()
            .map(|name| connector(name, stage.version(), Some("n1"), managed_fields))
            .collect();
        let mut edge = Self { stage, gateways, touches: Vec::new() };
        let text = |list: &[String]| list.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        let proxies: Vec<_> = edge.gateways.keys().cloned().collect();
        let proxies: Vec<_> = proxies.iter().map(|name| edge.proxy(name)).collect();
        let names: Vec<_> = edge.gateways.keys().cloned().collect();
        let gateways: Vec<_> = names.iter().map(|name| edge.gateway(name)).collect();
        for (kind, list) in
            [("Connector", connectors), ("HTTPProxy", proxies), ("Gateway", gateways)]
        {
            let list = text(&list);
            edge.stage.list("edge", kind, &list.lines().collect::<Vec<_>>());
        }
        edge
    }

    /// Gateways `g0000` and so on, the n-th with connector `c` of n modulo `connectors`.
    pub(crate) fn new(settings: Settings, gateways: usize, connectors: usize) -> Self {
        let site = |n: usize| Site {
            connectors: vec![format!("c{}", n % connectors)],
            trigger: None,
            stamp: "true/n1".into(),
        };
        let gateways = (0..gateways).map(|n| (format!("g{n:04}"), site(n))).collect();
        Self::listed(settings, gateways, &wrote("carrier", 0, OWNS_ANNOTATION), LISTED)
    }

    /// The same once everything is announced and confirmed.
    pub(crate) fn settled(settings: Settings, gateways: usize, connectors: usize) -> Self {
        let mut edge = Self::new(settings, gateways, connectors);
        edge.pass_to(1_000_000);
        edge.touches.clear();
        edge.stage.notes();
        edge
    }

    pub(crate) fn proxy(&mut self, name: &str) -> String {
        let v = self.stage.version();
        let connectors = &self.gateways[name].connectors;
        let backends: Vec<_> =
            connectors.iter().map(|c| format!(r#"{{"connector":{{"name":"{c}"}}}}"#)).collect();
        format!(
            r#"{{"kind":"HTTPProxy","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-p-{name}","resourceVersion":"{v}"}},"spec":{{"rules":[{{"backends":[{}]}}]}}}}"#,
            backends.join(",")
        )
    }

    pub(crate) fn gateway(&mut self, name: &str) -> String {
        let v = self.stage.version();
        let Site { trigger, stamp, .. } = &self.gateways[name];
        let (value, entry) = match trigger {
            Some((trigger, at)) => {
                (format!(r#""{KEY}":"{trigger}","#), wrote("throughline", at / 1_000 * 1_000, "{}"))
            }
            None => (String::new(), String::new()),
        };
        format!(
            r#"{{"kind":"Gateway","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-{name}","resourceVersion":"{v}","annotations":{{{value}"{STAMP}":"{stamp}"}},"managedFields":[{entry}]}},"spec":{{"gatewayClassName":"edge"}}}}"#
        )
    }

    pub(crate) fn flip(&mut self, name: &str, node: Option<&str>) {
        let object = connector(name, self.stage.version(), node, "");
        self.stage.applied("edge", &object);
        self.take();
    }

    pub(crate) fn stamp(&mut self, gateway: &str, value: &str) {
        self.gateways.get_mut(gateway).unwrap().stamp = value.to_owned();
        let object = self.gateway(gateway);
        self.stage.applied("edge", &object);
        self.take();
    }

    pub(crate) fn now(&self) -> u64 {
        self.stage.now - START
    }

    /// Takes the touches that the machine has decided; each succeeds, and the watch shows it.
    pub(crate) fn take(&mut self) -> Vec<Decision> {
        let decided: Vec<_> =
            self.stage.actions().into_iter().filter(|d| d.action.verb == Verb::Touch).collect();
        for decision in &decided {
            let value = decision.action.annotations[0].1.as_deref().unwrap();
            let trigger = Trigger::parse(value).unwrap();
            let (at, name) = (decision.at.0 - START, decision.action.object.name.to_string());
            self.stage.succeed(decision);
            self.gateways.get_mut(&name).unwrap().trigger = Some((trigger, at));
            let object = self.gateway(&name);
            self.stage.applied("edge", &object);
            self.touches.push((at, name, trigger));
        }
        decided
    }

    pub(crate) fn pass_to(&mut self, ms: u64) {
        loop {
            self.take();
            let next = self.stage.machine.poll_deadline().map(|(at, _)| at.0);
            match next.filter(|at| *at <= START + ms) {
                Some(at) => self.stage.pass_to(at.max(self.stage.now) - START),
                None => break,
            }
        }
        self.stage.pass_to(ms);
        self.take();
    }

    /// When which Gateway was touched since the last call, counted from `since`.
    pub(crate) fn touched(&mut self, since: u64) -> Vec<(u64, String)> {
        self.touches.drain(..).map(|(at, name, _)| (at - since, name)).collect()
    }
}
