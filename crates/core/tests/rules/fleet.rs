//! Connectors of one or of many tenants at a hub, which carries out each write.

use crate::consistency::assert_consistent;
use crate::stage::*;

/// State and cause of the first hop, and whether the connector is online.
pub(crate) type Mirrored = (State, Option<Cause>, Option<bool>);

pub(crate) const ONLINE: Mirrored = (State::Ok, None, Some(true));
/// Its upstream Connector is gone, and so is its annotation.
pub(crate) const REMOVED: Mirrored = (State::Ok, Some(Cause::AnnotationRemoved), Some(false));

pub(crate) struct Fleet {
    pub(crate) stage: Stage,
    /// What the hub carried out.
    pub(crate) written: Vec<Decision>,
    /// By hub namespace.
    tenants: BTreeMap<String, Tenant>,
    /// What upstream and the hub say, by hub Connector.
    upstream: BTreeMap<NamespacedName, String>,
    pub(crate) hub: BTreeMap<NamespacedName, Option<String>>,
}

pub(crate) fn name(number: usize) -> String {
    format!("c{number}")
}

fn place(tenant: Tenant, number: usize) -> NamespacedName {
    NamespacedName::new(tenant.hub_namespace(), name(number))
}

impl Fleet {
    /// One upstream.
    pub(crate) fn new(size: usize) -> Self {
        Self::of(Settings::default(), &[(UP, size)])
    }

    /// Each tenant's Connectors, all online on node n1 and mirrored, without an edge.
    pub(crate) fn of(settings: Settings, tenants: &[(Tenant, usize)]) -> Self {
        let mut fleet = Self {
            stage: Stage::new(settings),
            written: Vec::new(),
            tenants: tenants.iter().map(|(tenant, _)| (tenant.hub_namespace(), *tenant)).collect(),
            upstream: BTreeMap::new(),
            hub: BTreeMap::new(),
        };
        fleet.stage.leave("edge").pass_to(1);
        let clusters: BTreeSet<_> = tenants.iter().map(|(tenant, _)| tenant.cluster).collect();
        for cluster in clusters {
            if cluster != UP.cluster {
                fleet.stage.join(cluster, Role::Upstream);
            }
            let namespaces = fleet.tenants.values().filter(|tenant| tenant.cluster == cluster);
            fleet.stage.list(cluster, "Namespace", namespaces.map(|tenant| tenant.namespace()));
            fleet.stage.list(cluster, "Connector", []);
        }
        for &(tenant, size) in tenants {
            fleet.says(tenant, 0..size, N1);
            fleet.shows(tenant, 0..size, N1);
        }
        fleet.stage.assert_no_action();
        fleet.stage.notes();
        fleet
    }

    /// The upstream Connectors say this.
    pub(crate) fn says(&mut self, tenant: Tenant, numbers: Range<usize>, status: Option<&str>) {
        for number in numbers {
            self.upstream.insert(place(tenant, number), status.unwrap_or("null").to_owned());
            self.stage.applied(tenant.cluster, tenant.connector(&name(number), status));
        }
    }

    /// The hub Connectors carry this status annotation.
    pub(crate) fn shows(&mut self, tenant: Tenant, numbers: Range<usize>, status: Option<&str>) {
        for number in numbers {
            self.hub.insert(place(tenant, number), status.map(str::to_owned));
            self.stage.applied("hub", tenant.copy(&name(number), status));
        }
    }

    pub(crate) fn delete(&mut self, tenant: Tenant, numbers: Range<usize>) {
        for number in numbers {
            self.stage.deleted(tenant.cluster, tenant.connector(&name(number), N1));
        }
    }

    /// A complete list of the upstream Connectors, of which only these are there.
    pub(crate) fn list(&mut self, tenant: Tenant, numbers: Range<usize>) {
        let objects = numbers.map(|number| tenant.connector(&name(number), N1));
        self.stage.list(tenant.cluster, "Connector", objects);
    }

    pub(crate) fn now(&self) -> u64 {
        self.stage.time()
    }

    /// Carries out what is decided now.
    pub(crate) fn take(&mut self) {
        self.run_to(self.now());
    }

    /// Lets time pass. Each write succeeds at once, and the hub's watch shows it.
    pub(crate) fn run_to(&mut self, ms: u64) {
        let Self { stage, hub, tenants, written: writes, .. } = self;
        stage.run_to(ms, |stage, decision| {
            let place = &decision.action.object;
            if decision.action.verb == Verb::Mirror {
                hub.insert(place.clone(), written(decision).map(str::to_owned));
            }
            let copy = tenants[place.namespace()].copy(place.name(), hub[place].as_deref());
            stage.applied("hub", copy).succeed(decision);
            writes.push(decision.clone());
        });
    }

    /// Lets time pass. Returns the names of the hub Connectors that lost their annotation, which is all
    /// that was written.
    pub(crate) fn removed_until(&mut self, ms: u64) -> Vec<String> {
        self.run_to(ms);
        let writes = std::mem::take(&mut self.written).into_iter();
        let removal = |write: Decision| {
            assert_eq!((write.action.verb, written(&write)), (Verb::Mirror, None));
            write.action.object.name().to_owned()
        };
        writes.map(removal).collect()
    }

    pub(crate) fn assert_none_removed_until(&mut self, ms: u64) {
        assert_eq!(self.removed_until(ms), [""; 0]);
    }

    /// A person allows the removals of the first tenant, or does not.
    pub(crate) fn allow(&mut self, value: &str) {
        let annotations = json!({"throughline.datumapis.com/allow-removals": value});
        let namespace = object("Namespace", "", &UP.hub_namespace());
        let namespace = with(namespace, json!({"metadata": {"annotations": annotations}}));
        self.stage.applied("hub", namespace);
    }

    /// What is wrong, and with how many Connectors. What a breaker holds counts once.
    pub(crate) fn held(&self) -> Vec<(Cause, usize)> {
        assert_consistent(&self.stage);
        let mut held = BTreeMap::<_, usize>::new();
        for Problem { cause, about, .. } in self.stage.open.values() {
            let count = held.entry(*cause).or_default();
            *count = if about.more > 0 { about.more + 1 } else { *count + 1 };
        }
        held.into_iter().collect()
    }

    /// What the first hop of each connector is in and why, and whether it is online.
    pub(crate) fn mirrored(&self) -> Vec<Mirrored> {
        assert_consistent(&self.stage);
        let connectors = self.stage.fleet().connectors.into_iter();
        let mirrored = connectors.map(|connector| {
            let hop = connector.hops_of(Hop::Mirrored).next().unwrap();
            (hop.state, hop.cause, connector.online)
        });
        mirrored.collect()
    }

    /// When the Connectors of a tenant were written, counted from `since`.
    pub(crate) fn times(&self, tenant: Tenant, since: u64) -> Vec<u64> {
        let is_of = |write: &&Decision| self.tenants[write.action.object.namespace()] == tenant;
        let times = self.written.iter().filter(is_of).map(time_of);
        times.filter(|at| *at >= since).map(|at| at - since).collect()
    }

    /// The hub says what upstream says.
    pub(crate) fn assert_right(&self) {
        let mean = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for (place, text) in &self.upstream {
            assert_eq!(mean(text), mean(self.hub[place].as_deref().unwrap()), "{place:?}");
        }
    }
}
