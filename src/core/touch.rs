//! The touch: a gateway's trigger should announce what its connectors are at the edge, in a value
//! that was never used before, after the edge's caches have settled, and be confirmed.

use super::action::{Action, AnomalyKind, Precondition, Verb};
use super::announcement::{Cause, Dirty, TargetKey, Touch};
use super::desk::{Aim, Target};
use super::flight::doubled;
use super::ids::{ClusterId, Key, Kind};
use super::machine::Machine;
use super::objects::PLATFORM_KEY;
use super::settings::PlatformKeyMode;
use super::time::UnixMillis;
use super::timers::Due;
use super::trigger::Trigger;

impl Machine {
    /// Something about a gateway changed that has to be announced. `connector`: whose change.
    pub(crate) fn mark(
        &mut self,
        id: ClusterId,
        gateway: Key,
        cause: Cause,
        connector: Option<Key>,
    ) {
        let now = self.desk.now;
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let Some(target) = edge.target_of(gateway) else { return };
        let n =
            edge.object_of(target).and_then(|g| edge.gateways.get(&g)?.value).map_or(0, |v| v.n);
        let has_connectors = !edge.connectors_of(gateway).is_empty();
        let Some(touch) = edge.touch(target) else { return };
        // Until the target was looked at once, `acquaint` decides; a change since then counts.
        if touch.known && has_connectors {
            // A write that may yet turn up is from before this change, too.
            let n = n.max(touch.highest_n);
            let dirty = touch.dirty.get_or_insert(Dirty { first_at: now, last_at: now, cause, n });
            (dirty.last_at, dirty.cause, dirty.n) = (now, cause, n);
            touch.flight.wish_changed();
        }
        if let Some(connector) = connector
            && touch.known
            && !touch.waiting.contains(&connector)
        {
            touch.waiting.push(connector);
            if let Some(found) = edge.connectors.get_mut(&connector) {
                found.unannounced += 1;
                let at = now.plus(self.desk.settings.stall.touched_ms);
                self.desk.timers.clear(Due::Announce(id, connector));
                self.desk.timers.no_later(Due::Announce(id, connector), at);
            }
        }
        self.evaluate_target(id, target);
    }

    /// What stands under the trigger's key changed.
    pub(crate) fn value_changed(&mut self, id: ClusterId, gateway: Key, value: Option<Trigger>) {
        let now = self.desk.now;
        let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) else { return };
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let Some(target) = edge.target_of(gateway) else { return };
        if edge.object_of(target) != Some(gateway) {
            return;
        }
        let wish = edge.digest_of(&self.desk.names, target);
        let Some(touch) = edge.touch(target) else { return };
        touch.flight.seen();
        let Some(wish) = wish.filter(|_| touch.known) else { return };
        if value.is_some_and(|v| touch.writing == Some((gateway, v))) {
            return;
        }
        if let Some(value) = value.filter(|v| v.digest == wish) {
            // Another replica announced the same, after the change that is still to be announced.
            let newer = touch.dirty.is_some_and(|d| value.n > d.n) && value.c == 0;
            if newer {
                touch.dirty = None;
            }
            if value.n > touch.highest_n && value.c == 0 {
                touch.announced_at = now;
                touch.last_touch_at = now;
            }
            touch.highest_n = touch.highest_n.max(value.n);
            if newer {
                let waiting = touch.take_waiting();
                self.announced(id, waiting);
            }
            return;
        }
        touch.highest_n = touch.highest_n.max(value.map_or(0, |v| v.n));
        let settings = &self.desk.settings;
        if now.since(touch.spoiled_at) > settings.mirror.contention_quiet_ms {
            touch.spoils = 0;
        }
        touch.spoils += 1;
        touch.spoiled_at = now;
        let spoils = touch.spoils;
        let times = spoils.saturating_sub(1);
        let max_ms = settings.mirror.contention_backoff_max_ms;
        let pause_ms = doubled(settings.touch.min_interval_ms, times, max_ms);
        touch.flight.pause_until(now.plus(pause_ms));
        let dirty = Dirty { first_at: now, last_at: now, cause: Cause::Spoiled, n: 0 };
        touch.dirty.get_or_insert(dirty);
        if settings.mirror.contention_is_told(spoils) {
            let detail = format!(
                "another writer keeps changing {} ({spoils} times by now); it is written again \
                 after a pause of {pause_ms} ms",
                settings.touch.key
            );
            self.desk.anomaly(AnomalyKind::Contention, &cluster, Some(gateway), detail);
        }
    }

    pub(crate) fn evaluate_gateway(&mut self, id: ClusterId, gateway: Key) {
        if let Some(target) = self.edges.get(&id).and_then(|e| e.target_of(gateway)) {
            self.evaluate_target(id, target);
        }
    }

    /// Compares what a target announces with what it should, and schedules the difference.
    pub(crate) fn evaluate_target(&mut self, id: ClusterId, target: TargetKey) {
        let at = self.due_at(id, target);
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let scheduled = edge.touch(target).map(|touch| std::mem::replace(&mut touch.scheduled, at));
        if let Some(Some(old)) = scheduled {
            edge.bundle.remove(&(old, target));
        }
        if let Some(at) = at {
            edge.bundle.insert((at, target));
        }
        edge.rest(target);
        self.schedule_bundle(id);
    }

    fn schedule_bundle(&mut self, id: ClusterId) {
        self.desk.timers.clear(Due::Bundle(id));
        if let Some(edge) = self.edges.get(&id)
            && let Some(&(at, _)) = edge.bundle.first()
        {
            let window_ms = self.desk.settings.touch.window_ms;
            let at = at.max(edge.last_bundle_at.plus(window_ms));
            self.desk.timers.no_later(Due::Bundle(id), at);
        }
    }

    /// When a target is to be written, if it is.
    fn due_at(&mut self, id: ClusterId, target: TargetKey) -> Option<UnixMillis> {
        let now = self.desk.now;
        let replica_ns = |key: Key| self.cluster(id).and_then(|c| c.is_replica_namespace(key.ns));
        let edge = self.edges.get(&id)?;
        let gateway = edge.object_of(target)?;
        let placed = replica_ns(gateway) == Some(true);
        (edge.ready && placed && self.desk.settings.touch.enabled).then_some(())?;
        let wish = edge.digest_of(&self.desk.names, target)?;
        let edge = self.edges.get_mut(&id)?;
        if edge.touch(target).is_some_and(|t| !t.known) {
            self.acquaint(id, target, gateway, wish);
        }
        let settings = &self.desk.settings.touch;
        let edge = self.edges.get_mut(&id)?;
        let value = edge.gateways.get(&gateway)?.value;
        let touch = edge.touch(target)?;
        if touch.flight.in_flight.is_some() {
            return None;
        }
        // Two writes of one object are apart.
        let apart = touch.last_touch_at.plus(settings.min_interval_ms);
        let no_sooner = touch.flight.not_before.max(apart);
        let announced = value.map(|v| v.digest).or(touch.adopted) == Some(wish);
        if !announced {
            let dirty = Dirty { first_at: now, last_at: now, cause: Cause::Created, n: 0 };
            touch.dirty.get_or_insert(dirty);
        }
        if let Some(dirty) = touch.dirty {
            let settled = dirty.last_at.plus(settings.window_ms);
            // A connector that never stops changing is announced all the same.
            let at_most = dirty.first_at.plus(settings.window_ms.max(settings.min_interval_ms));
            return Some(settled.min(at_most).max(no_sooner));
        }
        let value = value?;
        if touch.extra {
            return Some(now.max(no_sooner));
        }
        let after_ms = *settings.confirm_after_ms.get(value.c as usize)?;
        Some(touch.announced_at.plus(after_ms).max(no_sooner))
    }

    /// First sight of a target: is what it carries to be trusted?
    fn acquaint(&mut self, id: ClusterId, target: TargetKey, gateway: Key, wish: u64) {
        let now = self.desk.now;
        let settings = &self.desk.settings.touch;
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let Some(found) = edge.gateways.get(&gateway) else { return };
        let (value, we_wrote_at) = (found.value, found.we_wrote_at);
        // Nothing in a status tells away-and-back from never-away; the times of the writes do.
        let others = edge.others_wrote_at(target);
        let distrusted = matches!((we_wrote_at, others), (Some(we), Some(they)) if they > we);
        let by_platform = settings.platform_key == PlatformKeyMode::Observe
            && matches!(target, TargetKey::Gateway(_))
            && edge.is_stamped(gateway);
        let confirm_after = |c: u32| settings.confirm_after_ms.get(c as usize).copied();
        let Some(touch) = edge.touch(target) else { return };
        touch.known = true;
        let dirty = |cause| Some(Dirty { first_at: now, last_at: now, cause, n: 0 });
        match value {
            Some(value) if value.digest == wish => {
                touch.highest_n = value.n;
                // Confirmations go on from where they were, counted from the last write.
                let since = match value.c.checked_sub(1).and_then(confirm_after) {
                    Some(done_ms) => {
                        UnixMillis(we_wrote_at.unwrap_or(now).0.saturating_sub(done_ms))
                    }
                    None => we_wrote_at.unwrap_or(now),
                };
                touch.announced_at = since;
                touch.dirty = if distrusted { dirty(Cause::Distrusted) } else { None };
            }
            Some(value) => {
                touch.highest_n = value.n;
                touch.dirty = dirty(Cause::Changed);
            }
            None if by_platform => touch.adopted = Some(wish),
            None => touch.dirty = dirty(Cause::Created),
        }
    }

    /// The window closed: writes everything of the edge that is due, in one bundle.
    pub(crate) fn emit_bundle(&mut self, id: ClusterId) {
        let now = self.desk.now;
        let mut due = Vec::new();
        if let Some(edge) = self.edges.get_mut(&id) {
            while edge.bundle.first().is_some_and(|(at, _)| *at <= now) {
                due.extend(edge.bundle.pop_first());
            }
            if !due.is_empty() {
                edge.last_bundle_at = now;
            }
        }
        for (_, target) in due {
            if let Some(touch) = self.edges.get_mut(&id).and_then(|e| e.touch(target)) {
                touch.scheduled = None;
            }
            // What was scheduled is decided by what is now.
            match self.due_at(id, target) {
                Some(at) if at <= now => self.emit_touch(id, target),
                _ => self.evaluate_target(id, target),
            }
        }
        self.schedule_bundle(id);
    }

    fn emit_touch(&mut self, id: ClusterId, target: TargetKey) {
        let now = self.desk.now;
        let Some(cluster) = self.cluster(id).map(|c| c.name.clone()) else { return };
        let Some(edge) = self.edges.get_mut(&id) else { return };
        let (Some(gateway), Some(wish)) =
            (edge.object_of(target), edge.digest_of(&self.desk.names, target))
        else {
            return;
        };
        let stamp = edge.stamp(gateway);
        let behind = match target {
            TargetKey::Gateway(_) => edge.connectors_behind(target),
            TargetKey::Class(_) => Vec::new(),
        };
        let Some(found) = edge.gateways.get(&gateway) else { return };
        let (uid, value) = (found.uid.text(), found.value);
        let Some(touch) = edge.touch(target) else { return };
        let announced = value.filter(|v| v.digest == wish && touch.dirty.is_none());
        // Anybody can write a value with the highest number there is: the count begins anew.
        touch.highest_n = touch.highest_n.max(value.map_or(0, |v| v.n)).wrapping_add(1);
        let c = announced.map_or(0, |v| v.c.saturating_add(1));
        let trigger = Trigger { digest: wish, n: touch.highest_n, c };
        let because = because(touch, target, announced.is_some());
        if announced.is_none() {
            touch.announced_at = now;
        }
        touch.writing = Some((gateway, trigger));
        touch.dirty = None;
        touch.extra = false;
        touch.last_touch_at = now;
        let waiting = if behind.is_empty() { touch.waiting.clone() } else { behind };
        let settings = &self.desk.settings.touch;
        let mut annotations = vec![(settings.key.clone(), Some(trigger.to_string()))];
        if settings.platform_key == PlatformKeyMode::Write {
            annotations.push((PLATFORM_KEY.to_owned(), stamp));
        }
        let keys = waiting.into_iter().take(Action::CONNECTORS_MAX);
        let connectors = keys.map(|key| self.desk.names.object_key(key)).collect();
        let aim = Aim {
            target: Target::Touch(id, target),
            cluster,
            kind: Kind::Gateway,
            object: self.desk.names.object_key(gateway),
            precondition: Precondition { uid, ..Precondition::default() },
            connectors,
        };
        let action = self.desk.submit(aim, Verb::Touch, annotations, because);
        if let Some(touch) = self.edges.get_mut(&id).and_then(|e| e.touch(target)) {
            touch.flight.launch(action);
        }
    }
}

fn because(touch: &Touch, target: TargetKey, confirms: bool) -> String {
    let why = match touch.dirty.map_or(Cause::Changed, |d| d.cause) {
        _ if confirms && touch.extra => "confirmed once more after the edge's outage",
        _ if confirms => "confirmed with a new value, for caches that were late",
        Cause::Changed => "liveness changed at the edge",
        Cause::Unseen => "a connector was written while its watch was lost",
        Cause::Referenced => "the proxy references other connectors",
        Cause::Created => "nothing was announced on it yet",
        Cause::Sign => "the extension server has stamped it: its cache has the change now",
        Cause::Spoiled => "another writer changed the trigger",
        Cause::Distrusted => "a connector was written after the last announcement",
    };
    match target {
        TargetKey::Gateway(_) => why.to_owned(),
        TargetKey::Class(_) => format!("{why}; for all gateways of the class"),
    }
}
