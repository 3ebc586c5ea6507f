//! The Gateways of an edge and the HTTPProxies that they pair with, as the watches show them.

use std::collections::hash_map::Entry;

use crate::contract::settings::{PlatformKeyMode, TouchScope};
use crate::data::ids::{Kind, ResourceVersion, Uid};
use crate::data::interner::{Key, Sym};
use crate::data::objects::{Body, Object, PLATFORM_KEY};
use crate::data::one_or_many::OneOrMany;
use crate::edge::Edge;
use crate::edge::pending::{Subject, TouchCause};
use crate::edge::references::hash_stamp;
use crate::edge::rows::{EdgeGateway, ObservedGateway, Proxy};
use crate::edge::touch_state::TouchTarget;
use crate::status::trigger::Trigger;

impl Edge<'_> {
    pub(super) fn proxy_seen(&mut self, key: Key, object: &Object, listed: bool) {
        let Body::HttpProxy { connectors } = &object.body else {
            return self.wrong_kind(object, Kind::HttpProxy);
        };
        let connectors = connectors.iter().map(|name| self.ctx.names.intern(name)).collect();
        let listed_in = self.cluster.list(Kind::HttpProxy);
        let rv = ResourceVersion::new(&object.meta.resource_version);
        if let Some(known) = self.state.proxies.get_mut(&key)
            && !listed
            && rv.is_older_than(&known.rv)
        {
            known.listed_in = listed_in;
            return;
        }
        self.set_proxy(key, Some(Proxy { rv, listed_in, connectors }));
    }

    pub(super) fn set_proxy(&mut self, key: Key, proxy: Option<Proxy>) {
        let new = proxy.as_ref().map(|p| p.connectors.clone()).unwrap_or_default();
        let old = match proxy {
            Some(proxy) => self.state.proxies.insert(key, proxy),
            None => self.state.proxies.remove(&key),
        };
        let old = old.map(|p| p.connectors).unwrap_or_default();
        if old == new {
            return;
        }
        self.replace_references(key, &old, &new);
        self.state.update_class(&self.ctx.names, key);
        if let Some(target) = self.state.target_of(key) {
            let unreferenced = self.state.take_unreferenced(target);
            self.announced(unreferenced);
        }
        self.gateway_changed(key, TouchCause::ReferencesChanged, None, true);
    }

    fn replace_references(&mut self, proxy: Key, old: &OneOrMany<Sym>, new: &OneOrMany<Sym>) {
        let referrers = &mut self.state.referrers;
        for &name in old.as_slice() {
            if let Entry::Occupied(mut entry) = referrers.entry(Key { ns: proxy.ns, name }) {
                entry.get_mut().retain(|name| *name != proxy.name);
                if entry.get().is_empty() {
                    entry.remove();
                }
            } else {
                debug_assert!(false, "a referenced connector has no referrers");
            }
        }
        for &name in new.as_slice() {
            let proxies = referrers.entry(Key { ns: proxy.ns, name }).or_default();
            debug_assert!(!proxies.as_slice().contains(&proxy.name), "a reference counts once");
            proxies.push(proxy.name);
        }
    }

    pub(super) fn gateway_seen(&mut self, key: Key, object: &Object, listed: bool) {
        let Body::Gateway { class, is_programmed } = &object.body else {
            return self.wrong_kind(object, Kind::Gateway);
        };
        let class = self.ctx.names.intern(class);
        let settings = &self.ctx.settings.touch;
        let observes_stamp = settings.platform_key == PlatformKeyMode::Observe;
        let value = object.meta.annotations.get(&settings.key);
        let trigger = value.and_then(Trigger::parse);
        let has_foreign_value = value.is_some() && trigger.is_none();
        let platform_stamp = hash_stamp(object.meta.annotations.get(PLATFORM_KEY));
        let observed = ObservedGateway {
            uid: Uid::new(&object.meta.uid),
            rv: ResourceVersion::new(&object.meta.resource_version),
            listed_in: self.cluster.list(Kind::Gateway),
            class,
            trigger,
            is_paused: object.meta.is_paused(),
            is_programmed: *is_programmed,
            has_foreign_value,
            has_annotations: !object.meta.annotations.is_empty(),
            platform_stamp,
            we_wrote_at: object.meta.we_wrote_at().into(),
        };
        if self.state.gateways.get(&key).is_some_and(|old| old.observed.uid != observed.uid) {
            // Another object under the same name: nothing was ever announced on it.
            self.gateway_gone(key);
        }
        let former_carrier = self.state.carrier_of(class);
        let before = match self.state.gateways.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(EdgeGateway::new(observed));
                None
            }
            Entry::Occupied(entry) => {
                let gateway = entry.into_mut();
                if !listed && observed.rv.is_older_than(&gateway.observed.rv) {
                    gateway.observed.listed_in = observed.listed_in;
                    return;
                }
                let before = std::mem::replace(&mut gateway.observed, observed);
                if before.class != class {
                    let part = std::mem::take(&mut gateway.class_part);
                    self.state.leave_class(&self.ctx.names, key, before.class, part);
                }
                Some(before)
            }
        };
        self.state.update_class(&self.ctx.names, key);
        // What was announced on one that is not programmed may be lost.
        let is_carrier_lost = former_carrier
            .is_some_and(|former| !self.state.is_programmed(former))
            && self.state.carrier_of(class).is_some_and(|now| self.state.is_programmed(now));
        if let Some(before) = &before
            && before.class != class
        {
            self.class_left(before.class);
        }
        let is_stamped = observes_stamp
            && platform_stamp != 0
            && before.as_ref().is_some_and(|before| before.platform_stamp != platform_stamp);
        let was_listed = self.cluster.was_listed(Kind::Gateway);
        let target = self.state.target_in(key, class);
        self.update_pause(target);
        let mut announced = Vec::new();
        if let Some(mut touching) = self.touching(target) {
            match before {
                None => {
                    touching.state.appeared_later |= was_listed;
                    touching.changed(key, TouchCause::NotAnnounced, Subject::Target, false);
                }
                Some(before) => {
                    let values = (before.trigger, before.has_foreign_value);
                    if values != (trigger, has_foreign_value) {
                        announced = touching.trigger_changed(key);
                    }
                }
            }
            if is_carrier_lost {
                let carrier = touching.gateway;
                touching.changed(carrier, TouchCause::NotAnnounced, Subject::Target, false);
            }
            touching.evaluate();
        } else {
            self.unschedule(target);
        }
        self.announced(announced);
        self.evaluated(target);
        if is_stamped {
            self.stamped(key);
        }
    }

    pub(super) fn gateway_gone(&mut self, key: Key) {
        let Some(mut gateway) = self.state.gateways.remove(&key) else { return };
        let class = gateway.observed.class;
        self.unschedule(TouchTarget::Gateway(key));
        self.state.leave_class(&self.ctx.names, key, class, gateway.class_part);
        if let Some(touch) = gateway.touch.open_mut() {
            self.announced(touch.take_waiting());
        }
        self.class_left(class);
    }

    /// A Gateway left a class: the class has nothing to announce for connectors that only this
    /// Gateway referenced.
    fn class_left(&mut self, class: Sym) {
        if self.state.scope == TouchScope::GatewayClass {
            let target = TouchTarget::Class(class);
            let unreferenced = self.state.take_unreferenced(target);
            self.announced(unreferenced);
            self.evaluate_target(target);
        }
    }
}
