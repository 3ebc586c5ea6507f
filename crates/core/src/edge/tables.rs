//! The tables of an edge: its Connectors, the HTTPProxies that reference them, and the Gateways of
//! those proxies. A Gateway and its HTTPProxy have the same namespace and name.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::error_cause::RequestFailure;
use crate::contract::settings::TouchScope;
use crate::data::ids::Kind;
use crate::data::interner::{Key, Names, Sym};
use crate::data::map::{Map, keys_where};
use crate::data::one_or_many::OneOrMany;
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::edge::gateway_class::{Fitness, GatewayClassState};
use crate::edge::references::References;
use crate::edge::rows::{EdgeConnector, EdgeGateway, Proxy};
use crate::edge::touch_queue::WaitingReport;
use crate::edge::touch_state::{TouchRecord, TouchState, TouchTarget};
use crate::status::trigger::gateway_part;

/// Everything known of an edge cluster.
pub(crate) struct EdgeState {
    pub(crate) scope: TouchScope,
    /// Every list of the edge is complete and followed.
    pub(crate) ready: bool,
    pub(crate) connectors: Map<Key, EdgeConnector>,
    pub(crate) proxies: Map<Key, Proxy>,
    /// The proxies that reference a connector.
    pub(crate) referrers: Map<Key, OneOrMany<Sym>>,
    pub(crate) gateways: Map<Key, EdgeGateway>,
    pub(super) classes: BTreeMap<Sym, GatewayClassState>,
    pub(super) waiting_report: WaitingReport,
    /// When a watch was lost. Changes since then may have gone unseen.
    pub(super) blind_since: Option<UnixMillis>,
    /// The start of an outage, from its end until its extra confirmation.
    pub(super) unconfirmed_outage_since: Option<UnixMillis>,
    /// The start of the first outage after that one, whose confirmation comes after that of the
    /// former. It must not put that off: a proxy that cuts watches every minute would do so for ever.
    pub(super) next_outage_since: Option<UnixMillis>,
}

impl HoldsNames for EdgeState {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            scope: _,
            ready: _,
            connectors,
            proxies,
            referrers,
            gateways,
            classes,
            waiting_report: _,
            blind_since: _,
            unconfirmed_outage_since: _,
            next_outage_since: _,
        } = self;
        connectors.mark(used);
        proxies.mark(used);
        referrers.mark(used);
        gateways.mark(used);
        classes.mark(used);
    }
}

impl EdgeState {
    pub(crate) fn new(scope: TouchScope) -> Self {
        Self {
            scope,
            ready: false,
            connectors: Map::default(),
            proxies: Map::default(),
            referrers: Map::default(),
            gateways: Map::default(),
            classes: BTreeMap::new(),
            waiting_report: WaitingReport::default(),
            blind_since: None,
            unconfirmed_outage_since: None,
            next_outage_since: None,
        }
    }

    /// A list brought an object again that can't be read: it is not missing.
    pub(crate) fn listed_again(&mut self, kind: Kind, key: Key, list: u32) {
        let listed_in = match kind {
            Kind::Connector => self.connectors.get_mut(&key).map(|c| &mut c.listed_in),
            Kind::HttpProxy => self.proxies.get_mut(&key).map(|p| &mut p.listed_in),
            Kind::Gateway => self.gateways.get_mut(&key).map(|g| &mut g.observed.listed_in),
            Kind::HttpRoute | Kind::Namespace => None,
        };
        if let Some(listed_in) = listed_in {
            *listed_in = list;
        }
    }

    pub(crate) fn missing_from_list(&self, kind: Kind, list: u32, gone: &mut BTreeSet<Key>) {
        match kind {
            Kind::Connector => gone.extend(keys_where(&self.connectors, |c| c.listed_in != list)),
            Kind::HttpProxy => gone.extend(keys_where(&self.proxies, |p| p.listed_in != list)),
            Kind::Gateway => {
                gone.extend(keys_where(&self.gateways, |g| g.observed.listed_in != list))
            }
            Kind::HttpRoute | Kind::Namespace => {}
        }
    }

    pub(super) fn references(&self) -> References<'_> {
        References { connectors: &self.connectors, proxies: &self.proxies }
    }

    /// The connectors that a Gateway's proxy references.
    pub(crate) fn connectors_of(&self, gateway: Key) -> &[Sym] {
        self.references().names(gateway)
    }

    /// The Gateways that a connector is referenced from, whether they exist or not.
    pub(crate) fn gateways_of(&self, connector: Key) -> impl Iterator<Item = Key> + '_ {
        let proxies = self.referrers.get(&connector).into_iter().flat_map(|p| p.as_slice());
        proxies.map(move |&name| Key { ns: connector.ns, name })
    }

    /// The target that announces a Gateway's connectors; `None` where the Gateway does not exist.
    pub(crate) fn target_of(&self, gateway: Key) -> Option<TouchTarget> {
        let found = self.gateways.get(&gateway)?;
        Some(self.target_in(gateway, found.observed.class))
    }

    /// The target that announces the connectors of a Gateway of this class.
    pub(super) fn target_in(&self, gateway: Key, class: Sym) -> TouchTarget {
        match self.scope {
            TouchScope::Gateway => TouchTarget::Gateway(gateway),
            TouchScope::GatewayClass => TouchTarget::Class(class),
        }
    }

    /// The Gateway that is written for a target.
    pub(crate) fn object_of(&self, target: TouchTarget) -> Option<Key> {
        match target {
            TouchTarget::Gateway(key) => self.gateways.contains_key(&key).then_some(key),
            TouchTarget::Class(class) => self.carrier_of(class),
        }
    }

    /// The Gateway that carries the trigger of a class.
    pub(super) fn carrier_of(&self, class: Sym) -> Option<Key> {
        self.classes.get(&class)?.representative()
    }

    pub(super) fn is_programmed(&self, gateway: Key) -> bool {
        self.gateways.get(&gateway).is_some_and(|gateway| gateway.observed.is_programmed)
    }

    /// Every target, in a fixed order.
    pub(super) fn targets(&self) -> Vec<TouchTarget> {
        let mut targets: Vec<_> = match self.scope {
            TouchScope::Gateway => self.gateways.keys().map(|&k| TouchTarget::Gateway(k)).collect(),
            TouchScope::GatewayClass => {
                self.classes.keys().map(|&c| TouchTarget::Class(c)).collect()
            }
        };
        targets.sort_unstable();
        targets
    }

    fn touch(&self, target: TouchTarget) -> Option<&TouchRecord> {
        match target {
            TouchTarget::Gateway(key) => self.gateways.get(&key).map(|gateway| &gateway.touch),
            TouchTarget::Class(class) => self.classes.get(&class).map(|class| &class.touch),
        }
    }

    fn touch_mut(&mut self, target: TouchTarget) -> Option<&mut TouchRecord> {
        match target {
            TouchTarget::Gateway(key) => self.gateways.get_mut(&key).map(|g| &mut g.touch),
            TouchTarget::Class(class) => self.classes.get_mut(&class).map(|c| &mut c.touch),
        }
    }

    /// The class that a target stands for; `None` for a Gateway.
    pub(super) fn class_mut(&mut self, target: TouchTarget) -> Option<&mut GatewayClassState> {
        match target {
            TouchTarget::Gateway(_) => None,
            TouchTarget::Class(class) => self.classes.get_mut(&class),
        }
    }

    /// `None` where the target is gone, or has announced and confirmed everything.
    pub(crate) fn open_touch(&self, target: TouchTarget) -> Option<&TouchState> {
        self.touch(target)?.open()
    }

    pub(crate) fn open_touch_mut(&mut self, target: TouchTarget) -> Option<&mut TouchState> {
        self.touch_mut(target)?.open_mut()
    }

    /// Keeps of a Gateway whose touches are all done and confirmed only what must be kept.
    pub(super) fn settle(&mut self, target: TouchTarget, now: UnixMillis) {
        // After an outage, what was announced around it is confirmed once more: when it was
        // announced must still be known.
        if self.ready
            && self.unconfirmed_outage_since.is_none()
            && let TouchTarget::Gateway(key) = target
            && let Some(gateway) = self.gateways.get_mut(&key)
        {
            gateway.touch.settle(now);
        }
    }

    /// Whether a target announces what it should, and no announcement of it is pending.
    pub(crate) fn is_announced(&self, names: &Names, target: TouchTarget) -> bool {
        let desired = match target {
            TouchTarget::Gateway(key) => self.references().digest(names, key),
            TouchTarget::Class(class) => self.classes.get(&class).and_then(|c| c.digest()),
        };
        desired.is_some() && self.announced_digest(target) == desired
    }

    /// What a target announces; `None` while an announcement is pending.
    fn announced_digest(&self, target: TouchTarget) -> Option<u64> {
        let observed = &self.gateways.get(&self.object_of(target)?)?.observed;
        let touch = self.touch(target)?;
        let announced = observed.trigger.map(|trigger| trigger.digest);
        announced.or(touch.platform_digest()).filter(|_| !touch.is_pending())
    }

    /// Takes the connectors that no Gateway of a target references any longer: the target has
    /// nothing to announce for them.
    pub(super) fn take_unreferenced(&mut self, target: TouchTarget) -> Vec<Key> {
        let waiting = self.open_touch_mut(target).map(TouchState::take_waiting).unwrap_or_default();
        let (referenced, unreferenced) = waiting.into_iter().partition(|&connector| {
            self.gateways_of(connector).any(|gateway| self.target_of(gateway) == Some(target))
        });
        if let Some(touch) = self.open_touch_mut(target) {
            touch.waiting = referenced;
        }
        unreferenced
    }

    /// The targets whose last touch failed, in order.
    pub(crate) fn failed_touches(&self) -> Vec<TouchTarget> {
        let has_failed =
            |touch: &TouchRecord| touch.open().is_some_and(|touch| touch.flight.error().is_some());
        let gateways = keys_where(&self.gateways, |gateway| has_failed(&gateway.touch));
        let classes = self.classes.iter().filter(|(_, class)| has_failed(&class.touch));
        let classes = classes.map(|(&class, _)| TouchTarget::Class(class));
        let mut targets: Vec<_> = gateways.map(TouchTarget::Gateway).chain(classes).collect();
        targets.sort_unstable();
        targets
    }

    /// The error of a failed write to one of a connector's Gateways.
    pub(super) fn touch_error(&self, connector: Key) -> Option<&RequestFailure> {
        self.gateways_of(connector).find_map(|gateway| {
            let touch = self.open_touch(self.target_of(gateway)?)?;
            touch.flight.error()
        })
    }

    /// Brings the class's digest up to date after a change to one of its Gateways: O(1).
    pub(super) fn update_class(&mut self, names: &Names, gateway: Key) {
        if self.scope != TouchScope::GatewayClass {
            return;
        }
        let digest = self.references().digest(names, gateway);
        // The proxy may come before its Gateway.
        let Some(found) = self.gateways.get_mut(&gateway) else { return };
        let (ns, name) = (names.text(gateway.ns), names.text(gateway.name));
        let part = digest.map_or(0, |digest| gateway_part(ns, name, digest));
        let before = std::mem::replace(&mut found.class_part, part);
        let class = self.classes.entry(found.observed.class).or_default();
        let fitness = Fitness {
            is_paused: found.observed.is_paused,
            is_programmed: found.observed.is_programmed,
            has_trigger: found.observed.trigger.is_some(),
        };
        class.update(gateway, (ns, name), Some(fitness), before, part);
    }

    /// Takes a Gateway's part out of the digest of a class that it no longer belongs to.
    pub(super) fn leave_class(&mut self, names: &Names, gateway: Key, class: Sym, part: u64) {
        if let Some(class) = self.classes.get_mut(&class) {
            let name = (names.text(gateway.ns), names.text(gateway.name));
            class.update(gateway, name, None, part, 0);
        }
    }
}
