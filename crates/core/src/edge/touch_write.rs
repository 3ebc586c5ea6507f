//! A touch as it is written: the new trigger, what it replaces, and why.

use crate::context::{WriteRequest, WriteTarget};
use crate::contract::action::{Action, AnnotationBefore, Precondition, Urgency, Verb};
use crate::contract::settings::PlatformKeyMode;
use crate::data::ids::{ActionId, Kind};
use crate::data::objects::PLATFORM_KEY;
use crate::edge::pending::TouchCause;
use crate::edge::touch::Touching;
use crate::edge::touch_state::{TouchTarget, TriggerWrite};
use crate::status::trigger::Trigger;
use crate::write_queue::{QueueKey, Rank};

impl Touching<'_> {
    /// Writes the target with a value that it never had.
    pub(super) fn write(&mut self, desired: u64) {
        debug_assert!(self.may_touch() && self.state.is_adopted);
        let now = self.ctx.now;
        let announced = self.observed.trigger.filter(|trigger| trigger.digest == desired);
        let confirmed = announced.filter(|_| self.state.pending.is_none());
        let c = confirmed.map_or(0, |trigger| self.next_c(trigger.c));
        let trigger = Trigger { digest: desired, n: self.state.next_n(self.observed.trigger), c };
        debug_assert_ne!(Some(trigger), self.observed.trigger, "a trigger is used twice");
        let cause = self.state.pending.map(|pending| pending.cause);
        debug_assert_eq!(cause.is_some(), confirmed.is_none());
        let because = self.because(confirmed.is_some());
        let action = self.submit(trigger, because);
        let write = TriggerWrite { gateway: self.gateway, trigger, cause };
        self.state.flight.started(action, write);
        self.state.changed_since_write = false;
        self.state.confirms_again = false;
        self.state.last_touch_at = Some(now);
        if let Some(pending) = self.state.pending.take() {
            self.state.announced_at = Some(now);
            self.state.is_confirmed_once = pending.only_last;
            self.state.limiter.take(self.announcement_rate(), now);
            self.state.unproven = (!pending.is_cached).then_some(pending.subject);
            self.state.is_unverified = pending.cause.rank() == Rank::Low;
        }
    }

    fn because(&self, is_confirmation: bool) -> String {
        let pending = self.state.pending.map(|pending| pending.cause);
        let because = match pending {
            _ if is_confirmation && self.state.confirms_again => {
                "touched again after the edge's outage, in case a cache was back late"
            }
            _ if is_confirmation => "touched again in case a cache missed the first one",
            cause => cause.unwrap_or(TouchCause::LivenessChanged).because(),
        };
        match self.target {
            TouchTarget::Gateway(_) => because.to_owned(),
            TouchTarget::Class(_) => format!("{because}; this covers every Gateway of its class"),
        }
    }

    /// The trigger that is replaced. A touch that the network holds back, or that is sent again because
    /// its answer was lost, must not take the place of a newer one: Envoy Gateway would see a value that
    /// it has translated before. `None` where another writer's text stands there, which is not kept: then
    /// the object must not have changed at all.
    fn replaced(&self) -> Option<Box<AnnotationBefore>> {
        let key = self.ctx.settings.touch.key.clone();
        let value = self.observed.trigger.map(|trigger| trigger.to_string());
        let no_annotations = !self.observed.has_annotations;
        let before = AnnotationBefore { key, value, no_annotations };
        (!self.observed.has_foreign_value).then(|| Box::new(before))
    }

    fn submit(&mut self, trigger: Trigger, because: String) -> ActionId {
        let settings = &self.ctx.settings.touch;
        let mut annotations = vec![(settings.key.clone(), Some(trigger.to_string()))];
        if settings.platform_key == PlatformKeyMode::Write {
            let stamp = self.references.platform_stamp(self.gateway);
            annotations.push((PLATFORM_KEY.to_owned(), stamp));
        }
        let connectors: Vec<_> = match self.target {
            TouchTarget::Gateway(gateway) => self.references.keys(gateway).collect(),
            TouchTarget::Class(_) => self.state.waiting.clone(),
        };
        let connectors = connectors.into_iter().take(Action::CONNECTORS_MAX);
        let request = WriteRequest {
            target: WriteTarget::Touch(self.edge, self.target),
            verb: Verb::Touch,
            cluster: self.cluster.name.clone(),
            kind: Kind::Gateway,
            object: self.ctx.names.object_key(self.gateway),
            annotations,
            precondition: Precondition {
                uid: self.observed.uid.text(),
                resource_version: self
                    .observed
                    .rv
                    .text()
                    .filter(|_| self.observed.has_foreign_value),
                annotation: self.replaced(),
                ..Precondition::default()
            },
            connectors: connectors.map(|key| self.ctx.names.object_key(key)).collect(),
            queue: QueueKey::Touches(self.edge),
            urgency: match self.state.pending.map(|pending| pending.cause.rank()) {
                Some(Rank::Urgent) => Urgency::Routing,
                Some(Rank::Normal | Rank::Low) | None => Urgency::Confirmation,
            },
            because,
        };
        self.ctx.submit(request)
    }
}
