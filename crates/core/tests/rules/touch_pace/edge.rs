//! An edge that carries out each touch, and its Gateways.

use crate::stage::*;

/// When the edge's lists are complete, after the start.
pub(crate) const LISTED: u64 = 100;

/// An edge with many Gateways, which keeps what is written to them.
pub(crate) struct Edge {
    pub(crate) stage: Stage,
    pub(crate) gateways: BTreeMap<String, Site>,
    /// Every touch: when, of which Gateway, and the value.
    pub(crate) touches: Vec<(u64, String, Trigger)>,
    /// What times are counted from.
    since: u64,
}

/// A Gateway's connectors, its trigger and when that was written, and its stamp.
#[derive(Clone)]
pub(crate) struct Site {
    connectors: Vec<String>,
    /// The time counts from the start.
    pub(crate) trigger: Option<(Trigger, u64)>,
    stamp: &'static str,
}

impl Site {
    pub(crate) fn of(connectors: &[&str]) -> Self {
        let connectors = connectors.iter().map(|&name| name.to_owned()).collect();
        Self { connectors, trigger: None, stamp: "true/n1" }
    }

    fn object(&self, name: &str) -> Value {
        let gateway = UP.gateway(name, json!({ STAMP: self.stamp }));
        let Some((trigger, at)) = self.trigger else { return gateway };
        let entry = wrote("throughline", at / 1_000 * 1_000, "{}");
        let annotations = json!({ TRIGGER: trigger.to_string() });
        with(gateway, json!({"metadata": {"annotations": annotations, "managedFields": [entry]}}))
    }
}

fn carry_out(
    stage: &mut Stage,
    gateways: &mut BTreeMap<String, Site>,
    since: u64,
    touch: &Decision,
) -> (u64, String, Trigger) {
    assert_eq!(touch.action.verb, Verb::Touch);
    let trigger = Trigger::parse(written(touch).unwrap()).unwrap();
    let (at, name) = (time_of(touch), name_of(touch).to_owned());
    let site = gateways.get_mut(&name).unwrap();
    site.trigger = Some((trigger, at));
    stage.succeed(touch).applied("edge", site.object(&name));
    (at - since, name, trigger)
}

/// A Connector at the edge, and the times of its writers.
pub(crate) fn connector(name: &str, status: Option<&str>, managed_fields: &[Value]) -> Value {
    with(UP.copy(name, status), json!({"metadata": {"managedFields": managed_fields}}))
}

/// An entry of `managedFields`.
pub(crate) fn wrote(manager: &str, at: u64, fields: &str) -> Value {
    let fields: Value = serde_json::from_str(fields).unwrap();
    let time = UnixMillis(START + at).to_string();
    json!({"manager": manager, "time": time, "fieldsV1": fields})
}

pub(crate) const OWNS_ANNOTATION: &str =
    r#"{"f:metadata":{"f:annotations":{"f:networking.datumapis.com/upstream-status":{}}}}"#;
pub(crate) const OWNS_LABEL: &str = r#"{"f:metadata":{"f:labels":{"f:team":{}}}}"#;

/// In any window of time there are no more touches than the limit allows.
pub(crate) fn assert_paced(touches: &[(u64, String, Trigger)]) {
    for first in 0..touches.len() {
        for last in (first..touches.len()).step_by(37) {
            let count = last - first + 1;
            let ms = touches[last].0 - touches[first].0;
            assert!(count as u64 <= 200 + ms * 50 / 1_000 + 1, "{count} in {ms} ms");
        }
    }
}

impl Edge {
    /// Every Gateway references one of the connectors. `managed_fields`: those of every connector.
    pub(crate) fn listed(
        settings: Settings,
        gateways: BTreeMap<String, Site>,
        managed_fields: &[Value],
        at: u64,
    ) -> Self {
        let mut edge = Self::unlisted(settings, gateways, at);
        edge.list_connectors(managed_fields);
        edge.relist(&edge.names());
        edge
    }

    /// The same before the edge is listed.
    pub(crate) fn unlisted(settings: Settings, gateways: BTreeMap<String, Site>, at: u64) -> Self {
        let mut stage = Stage::before_the_edge(settings);
        stage.pass_to(at);
        Self { stage, gateways, touches: Vec::new(), since: 0 }
    }

    pub(crate) fn list_connectors(&mut self, managed_fields: &[Value]) {
        let names: BTreeSet<_> =
            self.gateways.values().flat_map(|site| site.connectors.iter()).collect();
        let connectors = names.into_iter().map(|name| connector(name, N1, managed_fields));
        self.stage.list("edge", "Connector", connectors);
        let proxies = self.gateways.iter().map(|(name, site)| {
            let connectors: Vec<_> = site.connectors.iter().map(String::as_str).collect();
            UP.proxy(name, &connectors)
        });
        self.stage.list("edge", "HTTPProxy", proxies);
    }

    /// Gateways `g0000` and so on, the n-th with connector `c` of n modulo `connectors`.
    pub(crate) fn new(settings: Settings, gateways: usize, connectors: usize) -> Self {
        let site = |n: usize| (format!("g{n:04}"), Site::of(&[&format!("c{}", n % connectors)]));
        let gateways = (0..gateways).map(site).collect();
        Self::listed(settings, gateways, &[wrote("carrier", 0, OWNS_ANNOTATION)], LISTED)
    }

    /// The same once everything is announced and confirmed, which times are counted from.
    pub(crate) fn settled(settings: Settings, gateways: usize, connectors: usize) -> Self {
        let mut edge = Self::new(settings, gateways, connectors);
        edge.settle();
        edge
    }

    pub(crate) fn settle(&mut self) {
        self.pass_to(1_000_000).touches.clear();
        self.since = 1_000_000;
        self.stage.notes();
    }

    /// The edge's Gateways are listed: these.
    pub(crate) fn relist(&mut self, names: &[String]) -> &mut Self {
        let list = names.iter().map(|name| self.gateway(name)).collect::<Vec<_>>();
        self.stage.list("edge", "Gateway", list);
        self.take()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.gateways.keys().cloned().collect()
    }

    pub(crate) fn gateway(&self, name: &str) -> Value {
        self.gateways[name].object(name)
    }

    pub(crate) fn flip(&mut self, name: &str, status: Option<&str>) -> &mut Self {
        self.stage.applied("edge", connector(name, status, &[]));
        self.take()
    }

    pub(crate) fn stamp(&mut self, gateway: &str, value: &'static str) -> &mut Self {
        self.gateways.get_mut(gateway).unwrap().stamp = value;
        self.stage.applied("edge", self.gateway(gateway));
        self.take()
    }

    fn take(&mut self) -> &mut Self {
        for touch in self.stage.actions() {
            self.touches.push(carry_out(&mut self.stage, &mut self.gateways, self.since, &touch));
        }
        self
    }

    /// Lets time pass. Each touch succeeds, and the watch shows it.
    pub(crate) fn pass_to(&mut self, ms: u64) -> &mut Self {
        let Self { stage, gateways, touches, since } = self;
        stage.run_to(*since + ms, |stage, touch| {
            touches.push(carry_out(stage, gateways, *since, touch));
        });
        self
    }

    /// When which Gateway was touched since the last call.
    pub(crate) fn touched(&mut self) -> Vec<(u64, String)> {
        self.touches.drain(..).map(|(at, name, _)| (at, name)).collect()
    }
}
