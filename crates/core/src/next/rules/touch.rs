//! Touch: the trigger of a Gateway announces the liveness of its connectors at the edge (DOMAIN 7).
//!
//! Envoy Gateway translates a Gateway again when one of its annotations changes, but the extension
//! server may not have the change in its cache yet, and tells nobody. So a touch is repeated: the
//! announcement comes after a short window, or when the platform's stamp shows that the cache has
//! the change; confirmations follow after some seconds and after a minute. Each touch writes a
//! value that the object never had, because the same configuration is not translated twice.
//!
//! A [`State`] says what has been announced. [`on`] is the table of its transitions, one function
//! for each group of rows; [`plan`] says which touch is due. A [`Target`] is a Gateway or a
//! GatewayClass: [`view`] makes the same [`View`] of both, so nothing else here asks which it is.
//!
//! A Gateway that the first complete list shows is trusted, so that a restart writes nothing. What
//! its annotations and `managedFields` say takes the place of memory. One that appears later is not
//! trusted, whatever it carries: after an edge's etcd was restored, Envoy Gateway translates it as a
//! new one, and the extension server may not have its connectors again yet.

pub(crate) mod edge_memory;

use crate::contract::action::{Action, AnnotationBefore, Precondition, Urgency};
use crate::contract::event::Outcome;
use crate::contract::settings::{PlatformKeyMode, Settings, TouchSettings};
use crate::data::ids::{ActionId, Kind, ObjectKey};
use crate::data::name::NamespacedName;
use crate::data::object_ref::ObjectRef;
use crate::data::objects::PLATFORM_KEY;
use crate::data::time::UnixMillis;
use crate::next::plan::{Job, Next, TouchJob, TouchReason, Turn, Write};
use crate::next::subject::Target;
use crate::next::world::World;
use crate::next::world::class::Class;
use crate::next::world::cluster::Cluster;
use crate::next::world::edge::{Annotations, EdgeTables, Gateway};
use crate::next::world::table::Row;
use crate::next::write_queue::{Due, QueueKey, Rank};
use crate::next::write_state::{Completion, ContentionLimits, WriteState};
use crate::rate_limit::{Rate, RateLimiter};
use crate::status::trigger::{Sequence, Trigger};
pub(crate) use edge_memory::EdgeMemory;

/// A class speaks for all its Gateways, so it is announced more often than one Gateway.
const CLASS_RATE: Rate = Rate::every_ms(200, 1);

/// So many other Gateways of a class are tried at once when one is refused, then one after each
/// pause: most likely the refusal is about all of them.
const OTHERS_AT_ONCE: u32 = 3;

/// A target as the watches of its edge show it.
pub(crate) struct View<'w> {
    pub(crate) target: &'w Target,
    pub(crate) cluster: &'w Cluster,
    /// The Gateway that carries the trigger.
    pub(crate) gateway: &'w NamespacedName,
    pub(crate) row: &'w Row<Gateway>,
    /// What the trigger should announce; `None` while no connector is referenced.
    pub(crate) desired: Option<u64>,
    /// Since when the lists of the edge are complete; `None` while they are not, or where the
    /// Gateway is in a namespace of another tier.
    pub(crate) ready_since: Option<UnixMillis>,
    pub(crate) class: Option<&'w Class>,
    /// How often the target is announced.
    pub(crate) rate: Rate,
}

#[derive(Debug, Default)]
pub(crate) struct TouchMemory {
    pub(crate) state: State,
    /// The latest announcement, from the moment at which it is written.
    pub(crate) announced: Announced,
    pub(crate) write: WriteState,
    /// Limits announcements. Confirmations keep their distance from the touch before.
    limiter: RateLimiter,
    /// The latest number ever written or seen.
    latest: Option<Sequence>,
    last_touch_at: Option<UnixMillis>,
    /// A person had paused the carrying Gateway when it was last looked at.
    is_paused: bool,
    /// Connectors whose latest change waits for this target.
    pub(crate) waiting: Vec<NamespacedName>,
    /// How many Gateways of a class were refused since one was written.
    refused_in_a_row: u32,
}

/// What became of a touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) gateway: NamespacedName,
    pub(crate) trigger: Trigger,
    pub(crate) completion: Completion,
    /// The watch has shown another trigger since the touch was decided.
    pub(crate) is_trigger_seen: bool,
    /// It announces all that has changed so far.
    pub(crate) is_latest: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody has looked whether what the Gateway carries can be trusted.
    New {
        appeared_later: bool,
    },
    Pending(Announcement),
    InFlight(Box<OngoingTouch>),
    /// Which confirmations are left follows from the trigger.
    Announced,
    /// Nothing is due. Of the last announcement only what a late stamp needs is remembered.
    AtRest,
}

/// A change that is to be announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) reason: TouchReason,
    first_at: UnixMillis,
    last_at: UnixMillis,
    /// A trigger with a later number announces it, whoever wrote it.
    latest: Option<Sequence>,
    proof: ProofTarget,
    /// A stamp has shown that the extension server's cache has the change.
    is_cached: bool,
    /// Found at the start: every cache has had it for as long as we, so one confirmation is enough.
    only_last: bool,
}

/// A touch that is being written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OngoingTouch {
    pub(crate) gateway: NamespacedName,
    pub(crate) trigger: Trigger,
    /// `None`: a confirmation.
    pub(crate) reason: Option<TouchReason>,
    /// The watch has shown another trigger since.
    is_trigger_seen: bool,
    /// What changed meanwhile.
    next: Option<Announcement>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    /// `None`: a trigger of unknown age, which is confirmed at once.
    pub(crate) at: Option<UnixMillis>,
    only_last: bool,
    is_unverified: bool,
    /// What no stamp had shown before: a stamp that comes now touches once more.
    unproven: Option<ProofTarget>,
    /// One more confirmation, after an outage.
    once_more: bool,
    /// What the platform's stamp announced at the first look, while the Gateway carries no trigger.
    by_stamp: Option<u64>,
}

/// What a stamp must show before the extension server's cache is known to have a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProofTarget {
    /// The connector that changed last: caches see Connectors in order.
    Connector(NamespacedName),
    Target,
    /// Several changes whose order is not known. Nothing proves them.
    Several,
}

#[derive(Clone, Debug)]
pub(crate) enum Event<'e> {
    /// Anything about the target may have changed.
    Look,
    /// The Gateway, or one of the class, appeared. `is_later`: after the edge's first list.
    Appeared {
        is_later: bool,
        has_connectors: bool,
    },
    Changed {
        reason: TouchReason,
        proof: ProofTarget,
        is_ordered: bool,
    },
    /// The trigger of this Gateway has another value.
    TriggerSeen {
        gateway: &'e NamespacedName,
    },
    Stamped(Stamp<'e>),
}

/// Another writer changed the platform's stamp on a Gateway of this connector. The extension server
/// stamps a Gateway once its cache has the connector's change and every change before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp<'e> {
    pub(crate) connector: &'e NamespacedName,
    /// It shows the connector as it is.
    pub(crate) is_present: bool,
    /// It is on the target itself.
    pub(crate) is_own: bool,
}

/// What the controller has to do besides keeping the new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// The connectors in [`TouchMemory::waiting`] have been announced.
    Announced,
    /// Another writer changed the trigger.
    Overwritten {
        pause_ms: u64,
    },
}

/// `None` where there is no such Gateway, or the class has none.
pub(crate) fn view<'w>(
    world: &'w World,
    target: &'w Target,
    settings: &TouchSettings,
) -> Option<View<'w>> {
    let cluster = world.clusters.get(&target.cluster())?;
    let edge = &cluster.edge;
    let (gateway, class) = match target {
        Target::Gateway(at) => (&at.name, None),
        Target::Class(_, class) => {
            let class = edge.classes.get(class)?;
            (class.carrier()?, Some(class))
        }
    };
    let row = edge.gateways.get(gateway)?;

    let is_of_edge = cluster.is_hub_namespace(gateway.namespace());
    Some(View {
        target,
        cluster,
        gateway,
        row,
        class,
        desired: class.map_or(row.seen.desired, Class::digest),
        ready_since: edge.ready_since.filter(|_| is_of_edge),
        rate: match class {
            Some(_) => CLASS_RATE,
            None => Rate::every_ms(settings.min_interval_ms, u64::from(settings.burst).max(1)),
        },
    })
}

/// The table of transitions, but for those that need no view: [`TouchMemory::on_started`],
/// [`TouchMemory::on_finished`], [`TouchMemory::on_outage_over`].
pub(crate) fn on(
    memory: &mut TouchMemory,
    event: Event<'_>,
    view: &View<'_>,
    settings: &Settings,
    now: UnixMillis,
) -> Effect {
    if memory.state == State::AtRest {
        // A trigger that another writer puts there now may be of any age: it is confirmed at once.
        memory.latest = view.latest(memory);
    }
    match event {
        Event::Look => on_look(memory, view, &settings.touch, now),
        Event::Appeared { is_later, has_connectors } => {
            on_appeared(memory, is_later, has_connectors, view, now);
        }
        Event::Changed { reason, proof, is_ordered } => {
            let change = Announcement::new(reason, proof, view.latest(memory), now);
            on_change(memory, change, is_ordered);
        }
        // Of a class only the carrier counts.
        Event::TriggerSeen { gateway } if gateway == view.gateway => {
            return on_trigger_seen(memory, view, settings, now);
        }
        Event::TriggerSeen { .. } => {}
        Event::Stamped(stamp) => on_stamp(memory, stamp, view, now),
    }
    Effect::None
}

/// The first look at a Gateway; later the comparison of what is announced with what is desired.
fn on_look(memory: &mut TouchMemory, view: &View<'_>, settings: &TouchSettings, now: UnixMillis) {
    let Some(desired) = view.digest_to_announce(settings) else { return };

    match memory.state {
        State::New { appeared_later } => {
            first_look(memory, desired, appeared_later, view, settings, now);
        }
        // A change that is on its way is not compared.
        State::Pending(_) | State::InFlight(_) => {}
        State::Announced | State::AtRest => {
            if memory.announced_digest(view.trigger()) != Some(desired) {
                let reason = TouchReason::NotAnnounced;
                let change = Announcement::new(reason, ProofTarget::Target, None, now);
                memory.state = State::Pending(change);
            }
        }
    }
}

fn on_appeared(
    memory: &mut TouchMemory,
    is_later: bool,
    has_connectors: bool,
    view: &View<'_>,
    now: UnixMillis,
) {
    if let State::New { appeared_later } = &mut memory.state {
        *appeared_later |= is_later;
    } else if has_connectors {
        // Of a class that others have announced.
        let latest = view.latest(memory);
        let reason = TouchReason::NotAnnounced;
        let change = Announcement::new(reason, ProofTarget::Target, latest, now);
        on_change(memory, change, false);
    }
}

/// Until the first look there is nothing to compare with.
fn on_change(memory: &mut TouchMemory, change: Announcement, is_ordered: bool) {
    if memory.is_new() {
        return;
    }

    memory.write.on_desired_changed();
    memory.state = match std::mem::take(&mut memory.state) {
        State::Pending(old) => State::Pending(old.merge(change, is_ordered)),
        State::InFlight(ongoing) => State::InFlight(ongoing.followed_by(change, is_ordered)),
        State::New { .. } | State::Announced | State::AtRest => State::Pending(change),
    };
}

fn on_trigger_seen(
    memory: &mut TouchMemory,
    view: &View<'_>,
    settings: &Settings,
    now: UnixMillis,
) -> Effect {
    if let State::InFlight(ongoing) = &mut memory.state {
        ongoing.is_trigger_seen = true;
        // The watch may show a write before its outcome comes.
        if ongoing.gateway == *view.gateway && view.trigger() == Some(ongoing.trigger) {
            return Effect::None;
        }
    } else {
        memory.write.on_object_changed();
    }
    if memory.is_new() || view.desired.is_none() {
        return Effect::None;
    }

    match view.trigger() {
        Some(trigger) if Some(trigger.digest) == view.desired => {
            on_announced_elsewhere(memory, trigger, now)
        }
        _ => on_overwritten(memory, view, settings, now),
    }
}

/// Another instance announced what is desired. After our change that is as good as our own touch.
fn on_announced_elsewhere(memory: &mut TouchMemory, trigger: Trigger, now: UnixMillis) -> Effect {
    if announces_after(trigger, memory.latest) {
        let pending = memory.state.pending();
        memory.announced.only_last = pending.is_some_and(|pending| pending.only_last);
        memory.announced.at = Some(now);
        memory.last_touch_at = Some(now);
    }
    memory.latest = Sequence::latest(memory.latest, Sequence::of(trigger));

    let announces = |change: &Announcement| announces_after(trigger, change.latest);
    match &mut memory.state {
        State::Pending(change) if announces(change) => {
            memory.state = State::Announced;
            Effect::Announced
        }
        State::InFlight(ongoing) if ongoing.next.as_ref().is_some_and(announces) => {
            ongoing.next = None;
            Effect::Announced
        }
        _ => Effect::None,
    }
}

/// It is written again, after pauses that grow while this goes on.
fn on_overwritten(
    memory: &mut TouchMemory,
    view: &View<'_>,
    settings: &Settings,
    now: UnixMillis,
) -> Effect {
    memory.latest = view.latest(memory);
    if view.is_paused() {
        // Whoever paused it may try values of their own.
        return Effect::None;
    }

    let limits = ContentionLimits {
        pause_from: 1,
        first_ms: settings.touch.min_interval_ms,
        max_ms: settings.mirror.contention_backoff_max_ms,
        quiet_ms: settings.mirror.contention_quiet_ms,
    };
    let pause_ms = memory.write.on_overwritten(None, &limits, now).unwrap_or_default();

    let reason = TouchReason::Overwritten;
    let change = Announcement::new(reason, ProofTarget::Target, None, now);
    match &mut memory.state {
        State::Announced | State::AtRest => memory.state = State::Pending(change),
        State::InFlight(ongoing) => _ = ongoing.next.get_or_insert(change),
        State::New { .. } | State::Pending(_) => {}
    }
    Effect::Overwritten { pause_ms }
}

fn on_stamp(memory: &mut TouchMemory, stamp: Stamp<'_>, view: &View<'_>, now: UnixMillis) {
    if memory.is_new() {
        return;
    }
    if let Some(change) = memory.state.pending_mut() {
        change.on_stamp(stamp);
        return;
    }
    let Some(proof) = memory.announced.on_stamp(stamp) else { return };

    // The last touch may have come before the cache had the change.
    let reason = TouchReason::PlatformStamp;
    let change = Announcement::new(reason, proof, view.latest(memory), now);
    on_change(memory, Announcement { is_cached: true, ..change }, true);
}

/// Decides whether what the Gateway carries can be trusted, or has to be announced again.
fn first_look(
    memory: &mut TouchMemory,
    desired: u64,
    appeared_later: bool,
    view: &View<'_>,
    settings: &TouchSettings,
    now: UnixMillis,
) {
    let found = Found::of(view);
    let mut announced = Announced::unverified();
    memory.latest = view.latest(memory);
    let reason = match view.trigger() {
        None if !appeared_later && found.is_announced_by_stamp(view, settings) => {
            announced.by_stamp = Some(desired);
            None
        }
        None => Some(TouchReason::NotAnnounced),
        Some(trigger) if trigger.digest != desired => Some(TouchReason::LivenessChanged),
        // The extension server may not have the connectors of a Gateway that came later.
        Some(_) if appeared_later => Some(TouchReason::CameWithTrigger),
        Some(trigger) => {
            announced.at = Some(view.announced_at(trigger, settings, now));
            found.is_written_after(trigger, view).then_some(TouchReason::WrittenSinceTouch)
        }
    };
    memory.announced = announced;

    let is_first_list = view.ready_since.is_some_and(|since| now <= since);
    let is_as_old = is_first_list && !appeared_later && !found.has_changed;
    memory.state = reason.map_or(State::Announced, |reason| {
        let only_last = reason.is_first_look() && is_as_old;
        let change = Announcement::new(reason, ProofTarget::Target, None, now);
        State::Pending(Announcement { only_last, ..change })
    });
}

/// What takes the place of memory at the first look.
struct Found {
    /// The liveness of a connector changed after the list of Connectors.
    has_changed: bool,
    /// When others last wrote one of the connectors, by the API server's clock (`managedFields`).
    others_wrote_at: Option<UnixMillis>,
    /// The platform's stamp says what the last connector says.
    is_stamp_right: bool,
}

/// Which touch is due, and when.
pub(crate) fn plan(
    view: &View<'_>,
    memory: &TouchMemory,
    admitted_by: Option<QueueKey>,
    settings: &TouchSettings,
    now: UnixMillis,
) -> Next {
    let Some(digest) = view.digest_to_announce(settings) else { return Next::AwaitChange };
    let due = match &memory.state {
        State::Pending(change) => Some(announcement(change, view, memory, settings)),
        State::Announced | State::AtRest => confirmation(view.trigger(), memory, settings, now),
        State::New { .. } | State::InFlight(_) => None,
    };
    let Some(touch) = due else { return Next::AwaitChange };

    let queue = QueueKey::Touches(view.target.cluster());
    let due = touch.due(memory.write.not_before(), settings);
    Next::Write(Turn::in_queue(queue, due, admitted_by, now, || {
        let n = Sequence::after(view.latest(memory)).get();
        let trigger = Trigger { digest, n, c: touch.confirmation };
        view.write(trigger, &touch, memory, settings)
    }))
}

struct DueTouch {
    rank: Rank,
    at: UnixMillis,
    /// Its rate limit.
    ready_at: Option<UnixMillis>,
    confirmation: u32,
    /// `None`: it confirms an announcement.
    reason: Option<TouchReason>,
    because: &'static str,
}

impl DueTouch {
    /// A confirmation joins other touches of the edge up to a window early, so that it does not
    /// cost a translation of its own.
    fn due(&self, paused_until: Option<UnixMillis>, settings: &TouchSettings) -> Due {
        let not_before = self.ready_at.max(paused_until).unwrap_or_default();
        let at = self.at.max(not_before);
        let early_ms = match self.rank {
            Rank::Normal => settings.window_ms,
            Rank::Urgent | Rank::Low => 0,
        };
        Due { rank: self.rank, at, early_from: minus(at, early_ms).max(not_before) }
    }
}

fn announcement(
    change: &Announcement,
    view: &View<'_>,
    memory: &TouchMemory,
    settings: &TouchSettings,
) -> DueTouch {
    DueTouch {
        rank: change.reason.rank(),
        at: change.due_at(settings),
        ready_at: Some(memory.limiter.ready_at(view.rate)),
        confirmation: 0,
        reason: Some(change.reason),
        because: change.reason.because(),
    }
}

/// `None`: all confirmations have been written. What only a stamp announces has none.
fn confirmation(
    trigger: Option<Trigger>,
    memory: &TouchMemory,
    settings: &TouchSettings,
    now: UnixMillis,
) -> Option<DueTouch> {
    let announced = &memory.announced;
    let last = settings.confirm_after_ms.len() as u32;
    let next = trigger?.c.saturating_add(1);
    let confirmation = if announced.only_last { next.max(last) } else { next };

    let at = if announced.once_more {
        now
    } else {
        let after_ms = *settings.confirm_after_ms.get(confirmation as usize - 1)?;
        announced.at.map_or(UnixMillis(0), |at| at.plus(after_ms))
    };
    Some(DueTouch {
        rank: if announced.is_unverified { Rank::Low } else { Rank::Normal },
        at,
        ready_at: memory.last_touch_at.map(|at| at.plus(settings.min_interval_ms)),
        confirmation,
        reason: None,
        because: if announced.once_more {
            "touched again after the edge's outage, in case a cache was back late"
        } else {
            "touched again in case a cache missed the first one"
        },
    })
}

impl View<'_> {
    pub(crate) fn trigger(&self) -> Option<Trigger> {
        self.row.seen.trigger
    }

    /// A person has paused it. Of a class the carrier is paused only if all are.
    pub(crate) fn is_paused(&self) -> bool {
        self.row.seen.is_paused
    }

    /// `None` while the target may not be touched.
    fn digest_to_announce(&self, settings: &TouchSettings) -> Option<u64> {
        let may_touch = settings.enabled && !self.is_paused() && self.ready_since.is_some();
        self.desired.filter(|_| may_touch)
    }

    fn latest(&self, memory: &TouchMemory) -> Option<Sequence> {
        Sequence::latest(memory.latest, self.trigger().and_then(Sequence::of))
    }

    /// When a trigger that was there at the start was announced. Its age is counted from our last
    /// write, so that the confirmations go on where they stopped.
    fn announced_at(
        &self,
        trigger: Trigger,
        settings: &TouchSettings,
        now: UnixMillis,
    ) -> UnixMillis {
        let done = trigger.c.checked_sub(1);
        let done_ms = done.and_then(|done| settings.confirm_after_ms.get(done as usize));
        // The time is the API server's, whose clock may be ahead.
        let written_at = self.row.seen.written_at.map_or(now, |at| at.min(now));
        minus(written_at, done_ms.copied().unwrap_or(0))
    }

    fn write(
        &self,
        trigger: Trigger,
        touch: &DueTouch,
        memory: &TouchMemory,
        settings: &TouchSettings,
    ) -> Write {
        let mut annotations = vec![(settings.key.clone(), Some(trigger.to_string()))];
        if settings.platform_key == PlatformKeyMode::Write {
            annotations
                .push((PLATFORM_KEY.to_owned(), self.cluster.edge.stamp_text_of(self.gateway)));
        }

        let at = ObjectRef {
            cluster: self.target.cluster(),
            kind: Kind::Gateway,
            name: self.gateway.clone(),
        };
        let job = TouchJob { gateway: at, trigger, reason: touch.reason, rate: self.rate };
        Write {
            job: Job::Touch(self.target.clone(), job),
            annotations,
            precondition: self.precondition(settings),
            connectors: self.connectors(memory),
            urgency: match touch.rank {
                Rank::Urgent => Urgency::Routing,
                Rank::Normal | Rank::Low => Urgency::Confirmation,
            },
            because: match self.class {
                None => touch.because.to_owned(),
                Some(_) => format!("{}; this covers every Gateway of its class", touch.because),
            },
        }
    }

    /// A touch that the network holds back, or that is sent again because its answer was lost, must
    /// not take the place of a newer one: Envoy Gateway would see a value that it has translated
    /// before. Another writer's text is not kept; then the object must not have changed at all.
    fn precondition(&self, settings: &TouchSettings) -> Precondition {
        let gateway = &self.row.seen;
        let replaced = AnnotationBefore {
            key: settings.key.clone(),
            value: gateway.trigger.map(|trigger| trigger.to_string()),
            no_annotations: gateway.annotations == Annotations::Empty,
        };
        let is_foreign = gateway.has_foreign_trigger();
        Precondition {
            uid: self.row.uid.text(),
            resource_version: self.row.version.text().filter(|_| is_foreign),
            annotation: (!is_foreign).then(|| Box::new(replaced)),
            ..Precondition::default()
        }
    }

    fn connectors(&self, memory: &TouchMemory) -> Vec<ObjectKey> {
        let connectors = match self.class {
            None => self.cluster.edge.connectors_of(self.gateway),
            Some(_) => &memory.waiting,
        };
        connectors.iter().take(Action::CONNECTORS_MAX).map(NamespacedName::key).collect()
    }
}

impl Found {
    fn of(view: &View<'_>) -> Self {
        let edge = &view.cluster.edge;
        let gateways: Vec<_> = match view.class {
            None => vec![view.gateway],
            Some(class) => class.gateways().collect(),
        };
        let changed_at = gateways.iter().filter_map(|gateway| edge.changed_at(gateway)).max();
        let stamp = view.row.seen.stamp;
        Self {
            has_changed: changed_at > view.cluster.listed_since(Kind::Connector),
            others_wrote_at: gateways
                .iter()
                .filter_map(|gateway| edge.others_wrote_at(gateway))
                .max(),
            is_stamp_right: stamp.is_some() && edge.stamp_of(view.gateway) == stamp,
        }
    }

    /// Where the API server gives times of writes, only throughline's own trigger is trusted: the
    /// extension server stamps the key before Envoy Gateway translates, if it does. The stamp on
    /// one Gateway says nothing about the others of its class.
    fn is_announced_by_stamp(&self, view: &View<'_>, settings: &TouchSettings) -> bool {
        settings.platform_key == PlatformKeyMode::Observe
            && view.class.is_none()
            && self.is_stamp_right
            && self.others_wrote_at.is_none()
    }

    /// A status does not show that liveness changed and changed back; the times of the writes do.
    /// They are whole seconds, and after a confirmation none follows that would make up for a
    /// change in the same second.
    fn is_written_after(&self, trigger: Trigger, view: &View<'_>) -> bool {
        let times = view.row.seen.written_at.zip(self.others_wrote_at);
        times.is_some_and(|(we, others)| others > we || (others == we && trigger.c > 0))
    }
}

impl TouchMemory {
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.state, State::New { .. })
    }

    /// Whether an announcement is still to be made or has no outcome yet.
    pub(crate) fn is_pending(&self) -> bool {
        match &self.state {
            State::New { .. } | State::Pending(_) => true,
            State::InFlight(ongoing) => ongoing.reason.is_some() || ongoing.next.is_some(),
            State::Announced | State::AtRest => false,
        }
    }

    /// When the latest announcement was made, while it is to be confirmed.
    pub(crate) fn unconfirmed_since(&self) -> Option<UnixMillis> {
        self.announced.at.filter(|_| self.state != State::AtRest)
    }

    /// What a target announces whose carrying Gateway shows this trigger.
    pub(crate) fn announced_digest(&self, trigger: Option<Trigger>) -> Option<u64> {
        trigger.map(|trigger| trigger.digest).or(self.announced.by_stamp)
    }

    /// Makes a connector wait for this target. Returns whether it did not wait already.
    pub(crate) fn add_waiting(&mut self, connector: &NamespacedName) -> bool {
        let is_new = !self.is_new() && !self.waiting.contains(connector);
        if is_new {
            self.waiting.push(connector.clone());
        }
        is_new
    }

    /// Takes over whether a person has paused the target. Returns whether that is new.
    pub(crate) fn on_paused(&mut self, is_paused: bool) -> bool {
        let was_paused = std::mem::replace(&mut self.is_paused, is_paused);
        if was_paused && !is_paused {
            // Nothing of before counts.
            self.write.end_pauses();
            self.write.forget_contention();
        }
        was_paused != is_paused
    }

    /// Whether a change waits to be announced.
    pub(crate) fn has_change(&self) -> bool {
        self.state.pending().is_some()
    }

    pub(crate) fn on_started(&mut self, job: &TouchJob, id: ActionId, now: UnixMillis) {
        self.write.on_started(id);
        self.latest = Sequence::of(job.trigger);
        self.last_touch_at = Some(now);
        self.announced.once_more = false;

        let state = std::mem::take(&mut self.state);
        debug_assert_eq!(job.reason, state.pending().map(|pending| pending.reason));
        if let State::Pending(change) = state {
            self.limiter.take(job.rate, now);
            self.announced = change.announced(self.announced.by_stamp, now);
        }
        self.state = State::InFlight(Box::new(OngoingTouch {
            gateway: job.gateway.name.clone(),
            trigger: job.trigger,
            reason: job.reason,
            is_trigger_seen: false,
            next: None,
        }));
    }

    /// Takes an outcome. `None`: no such action is in flight.
    pub(crate) fn on_finished(
        &mut self,
        id: ActionId,
        outcome: &Outcome,
        edge: &EdgeTables,
        settings: &Settings,
        now: UnixMillis,
    ) -> Option<Finished> {
        let State::InFlight(ongoing) = &self.state else { return None };
        let shown = edge.gateways.get(&ongoing.gateway).and_then(|row| row.seen.trigger);
        let outcome = ongoing.corrected(outcome, shown);
        let completion = self.write.on_finished(id, outcome, &settings.retry, now)?;
        let State::InFlight(ongoing) = std::mem::take(&mut self.state) else { return None };

        let OngoingTouch { gateway, trigger, reason, is_trigger_seen, next } = *ongoing;
        let is_written = matches!(completion, Completion::Written { .. });
        let again = reason.filter(|_| !is_written).map(|reason| self.announced.again(reason, now));
        if is_written {
            self.announced.on_written(trigger, &settings.touch);
            self.refused_in_a_row = 0;
        }
        let is_latest = is_written && next.is_none();
        self.state = next.or(again).map_or(State::Announced, State::Pending);
        Some(Finished { gateway, trigger, completion, is_trigger_seen, is_latest })
    }

    /// The API server refused to write one Gateway of a class. Returns whether another one is written
    /// at once: most likely the refusal is about all of them.
    pub(crate) fn on_member_refused(&mut self, has_another: bool) -> bool {
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        let is_replaced = has_another && self.refused_in_a_row <= OTHERS_AT_ONCE;
        if is_replaced {
            self.write.end_backoff();
        }
        is_replaced
    }

    /// What was announced shortly before an outage is confirmed once more after it.
    /// Returns whether it is.
    pub(crate) fn on_outage_over(&mut self, since: UnixMillis, settings: &TouchSettings) -> bool {
        let last_confirmation_ms = settings.confirm_after_ms.last().copied().unwrap_or(0);
        let announced_at = self.announced.at.filter(|_| self.last_touch_at.is_some());
        let is_around = announced_at.is_some_and(|at| at.plus(last_confirmation_ms) >= since);
        self.announced.once_more |= is_around;
        is_around
    }

    /// After each plan. `may_rest`: no touch is planned, and none of before is still to be confirmed.
    pub(crate) fn on_planned(&mut self, may_rest: bool, now: UnixMillis) {
        let is_at_rest = may_rest
            && self.limiter.ready_at(Rate::UNLIMITED) <= now
            && !self.announced.once_more
            && self.waiting.is_empty()
            && self.write.is_idle();
        match self.state {
            State::Announced if is_at_rest => {
                self.state = State::AtRest;
                self.announced.forget();
            }
            State::AtRest if !is_at_rest => self.state = State::Announced,
            _ => {}
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::New { appeared_later: false }
    }
}

impl State {
    /// The change that the next announcement is about.
    fn pending(&self) -> Option<&Announcement> {
        match self {
            Self::Pending(change) => Some(change),
            Self::InFlight(ongoing) => ongoing.next.as_ref(),
            Self::New { .. } | Self::Announced | Self::AtRest => None,
        }
    }

    fn pending_mut(&mut self) -> Option<&mut Announcement> {
        match self {
            Self::Pending(change) => Some(change),
            Self::InFlight(ongoing) => ongoing.next.as_mut(),
            Self::New { .. } | Self::Announced | Self::AtRest => None,
        }
    }
}

impl OngoingTouch {
    fn followed_by(mut self: Box<Self>, change: Announcement, is_ordered: bool) -> Box<Self> {
        self.next = Some(match self.next.take() {
            Some(old) => old.merge(change, is_ordered),
            None => change,
        });
        self
    }

    /// An outcome corrected by what the watch shows: it may have been faster, an earlier attempt
    /// may have got through, or another instance may have written the same.
    fn corrected<'o>(&self, outcome: &'o Outcome, shown: Option<Trigger>) -> &'o Outcome {
        let is_doubtful = matches!(
            outcome,
            Outcome::Conflict { .. } | Outcome::Failed { .. } | Outcome::Unanswered { .. }
        );
        if is_doubtful && shown == Some(self.trigger) { &Outcome::Unchanged } else { outcome }
    }
}

impl Announcement {
    fn new(
        reason: TouchReason,
        proof: ProofTarget,
        latest: Option<Sequence>,
        now: UnixMillis,
    ) -> Self {
        Self {
            reason,
            first_at: now,
            last_at: now,
            latest,
            proof,
            is_cached: false,
            only_last: false,
        }
    }

    /// A further change comes before this one is announced.
    fn merge(self, newer: Self, is_ordered: bool) -> Self {
        let are_connectors = matches!(
            (&self.proof, &newer.proof),
            (ProofTarget::Connector(_), ProofTarget::Connector(_))
        );
        let proves_both = self.proof == newer.proof
            || (is_ordered && (are_connectors || self.reason.is_first_look()));
        let is_as_urgent = newer.reason.rank() <= self.reason.rank();

        Self {
            reason: if is_as_urgent { newer.reason } else { self.reason },
            first_at: if self.reason.is_first_look() { newer.first_at } else { self.first_at },
            proof: if proves_both { newer.proof } else { ProofTarget::Several },
            ..newer
        }
    }

    /// When the caches have it: once a stamp shows it, else after the window. Changes that never
    /// stop are announced all the same.
    fn due_at(&self, settings: &TouchSettings) -> UnixMillis {
        if self.is_cached {
            return self.last_at;
        }
        let at_latest = self.first_at.plus(settings.window_ms.max(settings.min_interval_ms));
        self.last_at.plus(settings.window_ms).min(at_latest)
    }

    fn on_stamp(&mut self, stamp: Stamp<'_>) {
        if stamp.is_present {
            self.is_cached |= stamp.shows(&self.proof);
        } else if self.proof == ProofTarget::Connector(stamp.connector.clone()) {
            self.is_cached = false;
        }
    }

    /// What is announced once it is written.
    fn announced(self, by_stamp: Option<u64>, now: UnixMillis) -> Announced {
        Announced {
            at: Some(now),
            only_last: self.only_last,
            is_unverified: self.reason.rank() == Rank::Low,
            unproven: (!self.is_cached).then_some(self.proof),
            once_more: false,
            by_stamp,
        }
    }
}

impl Announced {
    /// What is found at the start.
    fn unverified() -> Self {
        let unproven = Some(ProofTarget::Target);
        Self { is_unverified: true, unproven, ..Self::default() }
    }

    /// Its touch failed. The API server may have stored it all the same, but the next value is new
    /// in any case.
    fn again(&self, reason: TouchReason, now: UnixMillis) -> Announcement {
        let proof = self.unproven.clone().unwrap_or(ProofTarget::Target);
        let is_cached = self.unproven.is_none();
        let change = Announcement::new(reason, proof, None, now);
        Announcement { is_cached, only_last: self.only_last, ..change }
    }

    /// From the last confirmation on only a stamp on the target itself says that a cache was late.
    fn on_written(&mut self, trigger: Trigger, settings: &TouchSettings) {
        self.by_stamp = None;
        if trigger.c as usize >= settings.confirm_after_ms.len() && self.unproven.is_some() {
            self.unproven = Some(ProofTarget::Target);
        }
    }

    fn forget(&mut self) {
        let unproven = self.unproven.take().map(|_| ProofTarget::Target);
        *self = Self { unproven, by_stamp: self.by_stamp, ..Self::default() };
    }

    /// Returns what was announced before a stamp showed it, and is shown now. A stamp of another
    /// value takes the proof back: the cache is on its way.
    fn on_stamp(&mut self, stamp: Stamp<'_>) -> Option<ProofTarget> {
        if stamp.is_present {
            return self.unproven.clone().filter(|proof| stamp.shows(proof));
        }
        self.unproven.get_or_insert_with(|| ProofTarget::Connector(stamp.connector.clone()));
        None
    }
}

impl Stamp<'_> {
    fn shows(self, proof: &ProofTarget) -> bool {
        match proof {
            ProofTarget::Connector(name) => name == self.connector,
            ProofTarget::Target => self.is_own,
            ProofTarget::Several => false,
        }
    }
}

impl TouchReason {
    pub(crate) fn rank(self) -> Rank {
        match self {
            Self::LivenessChanged
            | Self::ReferencesChanged
            | Self::PlatformStamp
            | Self::Overwritten => Rank::Urgent,
            Self::WrittenWhileWatchLost
            | Self::NotAnnounced
            | Self::WrittenSinceTouch
            | Self::CameWithTrigger => Rank::Low,
        }
    }

    /// Nothing is known to have changed, and the state may be as old as the Gateway.
    fn is_first_look(self) -> bool {
        matches!(self, Self::NotAnnounced | Self::WrittenSinceTouch | Self::CameWithTrigger)
    }

    fn because(self) -> &'static str {
        match self {
            Self::LivenessChanged => "liveness changed at the edge",
            Self::WrittenWhileWatchLost => "a connector was written while its watch was lost",
            Self::ReferencesChanged => "the HTTPProxy references other connectors than before",
            Self::NotAnnounced => "the Gateway does not announce its connectors yet",
            Self::PlatformStamp => {
                "the extension server updated its own key, so its cache is current; touching once \
                 more"
            }
            Self::Overwritten => "another writer changed the trigger",
            Self::WrittenSinceTouch => "a connector was written after the Gateway's last touch",
            Self::CameWithTrigger => {
                "the Gateway appeared with this trigger after the edge was listed, and a cache may \
                 have been late"
            }
        }
    }
}

/// Whether a trigger announces what was the case when `latest` was the latest number. A
/// confirmation announces nothing.
fn announces_after(trigger: Trigger, latest: Option<Sequence>) -> bool {
    trigger.c == 0 && Sequence::of(trigger).is_some_and(|sequence| sequence.is_after(latest))
}

fn minus(at: UnixMillis, ms: u64) -> UnixMillis {
    UnixMillis(at.0.saturating_sub(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::error_cause::RequestFailure;
    use crate::data::ids::{ResourceVersion, Role, Uid};
    use crate::data::object_ref::ClusterId;
    use crate::next::world::edge::{EdgeConnector, Proxy};
    use crate::next::world::table::{Shown, Sighting};
    use crate::next::write_state::Readiness;

    /// One Gateway of an edge and its connector, as their watches show them.
    struct Stage {
        memory: TouchMemory,
        target: Target,
        cluster: Cluster,
        name: NamespacedName,
        desired: u64,
        ready_since: Option<UnixMillis>,
        settings: Settings,
        now: UnixMillis,
    }

    fn trigger(digest: u64, n: u32, c: u32) -> Trigger {
        Trigger { digest, n, c }
    }

    fn connector() -> NamespacedName {
        NamespacedName::new("ns", "lab")
    }

    fn failed(retry_after_ms: Option<u64>) -> Outcome {
        Outcome::Failed { error: RequestFailure::default(), retry_after_ms }
    }

    fn refused() -> Outcome {
        Outcome::Refused { error: "403".into() }
    }

    fn conflict() -> Outcome {
        Outcome::Conflict { error: "409".into() }
    }

    fn sighting<T>(seen: T) -> Sighting<T> {
        let version = ResourceVersion::Number(7);
        Sighting { uid: Uid::new("u-g"), version, shown: Shown::Listed, list: 1, seen }
    }

    impl Stage {
        /// Nobody has looked at it. The trigger announces 1, which is right, and is confirmed.
        fn unseen() -> Self {
            let id = ClusterId(1);
            let name = NamespacedName::new("ns", "app");
            let mut cluster = Cluster::new(id, "edge".into(), &[Role::Edge]);
            let gateway = Gateway {
                class: "edge".into(),
                trigger: Some(trigger(1, 4, 2)),
                annotations: Annotations::Some,
                stamp: None,
                is_paused: false,
                is_programmed: true,
                desired: None,
                written_at: None,
            };
            let proxy = Proxy { connectors: [connector()].into() };
            cluster.edge.connectors.put(&connector(), sighting(EdgeConnector::default()));
            cluster.edge.proxies.put(&name, sighting(proxy));
            cluster.edge.gateways.put(&name, sighting(gateway));

            let at = ObjectRef { cluster: id, kind: Kind::Gateway, name: name.clone() };
            Self {
                memory: TouchMemory::default(),
                target: Target::Gateway(at),
                cluster,
                name,
                desired: 1,
                ready_since: Some(UnixMillis(100_000)),
                settings: Settings::default(),
                now: UnixMillis(100_000),
            }
        }

        /// Announced and confirmed before the start.
        fn new() -> Self {
            let mut stage = Self::unseen();
            assert_eq!(stage.next(), None, "a restart writes nothing");
            stage
        }

        /// A connector changed, and its announcement is in flight.
        fn touching() -> Self {
            let mut stage = Self::new();
            stage.flips(2);
            stage.touch();
            stage
        }

        fn on(&mut self, event: Event<'_>) -> Effect {
            let mut memory = std::mem::take(&mut self.memory);
            let effect = on(&mut memory, event, &self.view(), &self.settings, self.now);
            self.memory = memory;
            effect
        }

        fn view(&self) -> View<'_> {
            View {
                target: &self.target,
                cluster: &self.cluster,
                gateway: &self.name,
                row: self.cluster.edge.gateways.get(&self.name).unwrap(),
                desired: Some(self.desired),
                ready_since: self.ready_since,
                class: None,
                rate: Rate::every_ms(1_000, 4),
            }
        }

        fn gateway(&mut self) -> &mut Gateway {
            self.cluster.edge.gateways.seen_mut(&self.name).unwrap()
        }

        fn shows(&mut self, trigger: Trigger) -> Effect {
            self.gateway().trigger = Some(trigger);
            let name = self.name.clone();
            self.on(Event::TriggerSeen { gateway: &name })
        }

        fn plan(&self, admitted_by: Option<QueueKey>, now: UnixMillis) -> Next {
            plan(&self.view(), &self.memory, admitted_by, &self.settings.touch, now)
        }

        /// When the next touch is due, and what is written then.
        fn planned(&mut self) -> Option<(Due, Write)> {
            self.on(Event::Look);
            let Next::Write(Turn::Waits { queue, due }) = self.plan(None, self.now) else {
                return None;
            };
            match self.plan(Some(queue), self.now.max(due.at)) {
                Next::Write(Turn::Goes(planned)) => Some((due, planned.write)),
                next => panic!("a touch that is due does not go: {next:?}"),
            }
        }

        fn job(&mut self) -> Option<(Due, TouchJob)> {
            let (due, write) = self.planned()?;
            let Job::Touch(_, job) = write.job else { panic!("no touch") };
            Some((due, job))
        }

        /// When the next touch is due, and its value.
        fn next(&mut self) -> Option<(u64, Trigger)> {
            self.job().map(|(due, job)| (due.at.0, job.trigger))
        }

        fn next_at(&mut self) -> u64 {
            self.next().expect("a touch is planned").0
        }

        fn touch(&mut self) -> Trigger {
            let (due, _) = self.planned().expect("a touch is planned");
            self.now = self.now.max(due.at);
            let (_, job) = self.job().expect("a touch is planned");
            self.memory.on_started(&job, ActionId(1), self.now);
            job.trigger
        }

        fn finish(&mut self, outcome: Outcome) -> Finished {
            let settings = &self.settings;
            let edge = &self.cluster.edge;
            let finished = self.memory.on_finished(ActionId(1), &outcome, edge, settings, self.now);
            let finished = finished.expect("a touch is in flight");
            if let Completion::Written { .. } = finished.completion {
                self.gateway().trigger = Some(finished.trigger);
            }
            finished
        }

        fn succeed(&mut self) -> Trigger {
            let trigger = self.touch();
            self.finish(Outcome::Unchanged);
            trigger
        }

        fn flips(&mut self, digest: u64) {
            self.desired = digest;
            let proof = ProofTarget::Connector(connector());
            let reason = TouchReason::LivenessChanged;
            self.on(Event::Changed { reason, proof, is_ordered: true });
        }

        fn is_stamped(&mut self, is_own: bool) {
            let connector = connector();
            self.on(Event::Stamped(Stamp { connector: &connector, is_present: true, is_own }));
        }
    }

    #[test]
    fn a_change_is_announced_after_the_window_and_confirmed_twice() {
        let mut stage = Stage::new();
        stage.flips(2);
        assert_eq!(stage.next(), Some((100_100, trigger(2, 5, 0))));

        stage.touch();
        assert!(stage.finish(Outcome::Unchanged).is_latest);

        for (at, n, c) in [(105_100, 6, 1), (160_100, 7, 2)] {
            assert_eq!(stage.next(), Some((at, trigger(2, n, c))));
            stage.succeed();
        }
        assert_eq!(stage.next(), None);
    }

    #[test]
    fn a_change_that_is_undone_within_the_window_is_still_announced() {
        let mut stage = Stage::new();
        stage.flips(2);
        stage.flips(1);

        assert_eq!(stage.next(), Some((100_100, trigger(1, 5, 0))));
    }

    #[test]
    fn changes_that_never_stop_are_announced_after_a_second() {
        let mut stage = Stage::new();
        for n in 0..15 {
            stage.now = UnixMillis(100_000 + 70 * n);
            stage.flips(2 + n);
        }

        assert_eq!(stage.next_at(), 101_000);
    }

    #[test]
    fn a_change_during_a_touch_is_announced_next() {
        let mut stage = Stage::touching();
        stage.flips(3);

        assert!(!stage.finish(Outcome::Unchanged).is_latest);
        assert_eq!(stage.next(), Some((100_200, trigger(3, 6, 0))));
    }

    #[test]
    fn a_failed_touch_is_written_again_with_a_new_value() {
        let mut stage = Stage::touching();
        stage.finish(failed(Some(2_500)));

        assert_eq!(stage.next(), Some((102_600, trigger(2, 6, 0))));
    }

    #[test]
    fn a_failed_confirmation_is_written_again_as_a_confirmation() {
        let mut stage = Stage::touching();
        stage.finish(Outcome::Unchanged);
        stage.touch();
        stage.finish(failed(None));

        assert_eq!(stage.next(), Some((106_100, trigger(2, 7, 1))));
    }

    #[test]
    fn a_confirmation_goes_along_with_other_touches_up_to_a_window_early() {
        let mut stage = Stage::touching();
        stage.finish(Outcome::Unchanged);

        let (due, _) = stage.planned().unwrap();

        assert_eq!((due.rank, due.at.0, due.early_from.0), (Rank::Normal, 105_100, 105_000));
    }

    #[test]
    fn a_touch_replaces_only_what_was_seen() {
        let mut stage = Stage::new();
        stage.flips(2);
        let (_, write) = stage.planned().unwrap();

        assert_eq!(write.because, "liveness changed at the edge");
        assert_eq!(write.urgency, Urgency::Routing);
        assert_eq!(write.connectors, [connector().key()]);
        assert_eq!(write.precondition.uid.as_deref(), Some("u-g"));
        assert_eq!(write.precondition.resource_version, None);
        let before = write.precondition.annotation.unwrap();
        assert_eq!(before.value, Some(trigger(1, 4, 2).to_string()));

        stage.gateway().trigger = None;
        stage.gateway().annotations = Annotations::ForeignTrigger;
        let (_, Write { precondition, .. }) = stage.planned().unwrap();
        assert_eq!(precondition.resource_version.as_deref(), Some("7"));
        assert_eq!(precondition.annotation, None, "another writer's text is not kept");
    }

    #[test]
    fn what_is_found_at_the_start_is_trusted_unless_others_wrote_later() {
        // Our last write, that of others, and what it is confirmed by.
        for (we, others, c, is_touched) in [
            (Some(50_000), None, 0, false),
            (Some(50_000), Some(49_000), 2, false),
            (Some(50_000), Some(50_000), 0, false),
            (Some(50_000), Some(50_000), 2, true),
            (Some(50_000), Some(51_000), 0, true),
        ] {
            let mut stage = Stage::unseen();
            stage.gateway().trigger = Some(trigger(1, 4, c));
            stage.gateway().written_at = we.map(UnixMillis);
            let row = stage.cluster.edge.connectors.seen_mut(&connector()).unwrap();
            row.others_wrote_at = others.map(UnixMillis);

            let is_announcement = stage.next().is_some_and(|(_, trigger)| trigger.c == 0);
            assert_eq!(is_announcement, is_touched, "{we:?} {others:?} {c}");
        }
    }

    #[test]
    fn confirmations_of_what_is_found_go_on_where_they_stopped() {
        for (c, at) in [(0, Some(95_000)), (1, Some(145_000)), (2, None)] {
            let mut stage = Stage::unseen();
            stage.gateway().trigger = Some(trigger(1, 4, c));
            stage.gateway().written_at = Some(UnixMillis(90_000));

            assert_eq!(stage.next().map(|(at, _)| at), at, "{c} confirmations");
        }
    }

    #[test]
    fn the_first_touch_after_the_start_is_confirmed_once_and_a_later_gateway_twice() {
        for (is_later, confirmed) in [(false, vec![2]), (true, vec![1, 2])] {
            let mut stage = Stage::unseen();
            stage.gateway().trigger = None;
            stage.on(Event::Appeared { is_later, has_connectors: true });
            assert_eq!(stage.succeed().c, 0);

            let numbers = std::iter::from_fn(|| {
                stage.planned()?;
                Some(stage.succeed().c)
            });
            assert_eq!(numbers.collect::<Vec<_>>(), confirmed);
        }
    }

    #[test]
    fn a_gateway_that_comes_later_with_its_trigger_is_announced_again() {
        let mut stage = Stage::unseen();
        stage.on(Event::Appeared { is_later: true, has_connectors: true });

        let (due, write) = stage.planned().unwrap();
        assert_eq!(due.rank, Rank::Low);
        assert!(write.because.contains("appeared with this trigger"));
    }

    #[test]
    fn what_only_a_right_stamp_announces_is_not_touched() {
        for (stamp, is_touched) in [("false/", false), ("true/n1", true)] {
            let mut stage = Stage::unseen();
            stage.gateway().trigger = None;
            stage.gateway().stamp = Some(crate::next::world::edge::Stamp::of(stamp));

            assert_eq!(stage.next().is_some(), is_touched, "{stamp}");
        }
    }

    #[test]
    fn an_announcement_by_another_instance_is_enough() {
        for n in [5, 9] {
            let mut stage = Stage::new();
            stage.flips(2);
            stage.now = UnixMillis(100_050);

            assert_eq!(stage.shows(trigger(2, n, 0)), Effect::Announced);
            assert_eq!(stage.next(), Some((105_050, trigger(2, n + 1, 1))));
        }
    }

    #[test]
    fn a_confirmation_or_an_old_announcement_by_another_instance_is_not() {
        for (n, c) in [(5, 1), (4, 0)] {
            let mut stage = Stage::new();
            stage.flips(2);
            stage.now = UnixMillis(100_050);

            assert_eq!(stage.shows(trigger(2, n, c)), Effect::None);
            assert_eq!(stage.next(), Some((100_100, trigger(2, n + 1, 0))));
        }
    }

    #[test]
    fn another_value_is_overwritten_after_pauses_that_grow() {
        let mut stage = Stage::new();
        for pause_ms in [1_000, 2_000, 4_000] {
            let n = stage.gateway().trigger.unwrap().n;
            assert_eq!(stage.shows(trigger(7, n, 0)), Effect::Overwritten { pause_ms });
            let at = stage.now.plus(pause_ms).0;
            assert_eq!(stage.next(), Some((at, trigger(1, n + 1, 0))));
            stage.succeed();
        }
    }

    #[test]
    fn what_is_paused_is_not_touched_and_nothing_of_before_counts() {
        let mut stage = Stage::new();
        stage.shows(trigger(7, 4, 0));
        stage.gateway().is_paused = true;
        stage.memory.on_paused(true);
        assert_eq!(stage.next(), None);
        assert_eq!(stage.shows(trigger(8, 4, 0)), Effect::None, "that is no contention");

        stage.gateway().is_paused = false;
        assert!(stage.memory.on_paused(false));
        assert_eq!(stage.next(), Some((100_100, trigger(1, 5, 0))));
    }

    #[test]
    fn a_stamp_ends_the_window() {
        let mut stage = Stage::new();
        stage.flips(2);
        stage.now = UnixMillis(100_020);

        stage.is_stamped(true);

        assert_eq!(stage.next_at(), 100_000);
    }

    #[test]
    fn a_stamp_that_comes_after_the_announcement_touches_again() {
        let mut stage = Stage::touching();
        stage.finish(Outcome::Unchanged);
        stage.now = UnixMillis(101_500);

        stage.is_stamped(false);

        assert_eq!(stage.next(), Some((101_500, trigger(2, 6, 0))));
    }

    #[test]
    fn after_the_last_confirmation_only_a_stamp_on_the_target_itself_touches_again() {
        let mut stage = Stage::new();
        stage.flips(2);
        for _ in 0..3 {
            stage.succeed();
        }
        stage.now = stage.now.plus(1_000);
        stage.memory.on_planned(true, stage.now);

        stage.is_stamped(false);
        assert_eq!(stage.next(), None);

        stage.is_stamped(true);
        assert!(stage.next().is_some());
    }

    #[test]
    fn a_refused_touch_is_written_again_when_a_connector_changes() {
        let mut stage = Stage::touching();
        stage.finish(refused());
        assert_eq!(stage.next_at(), 130_100);

        stage.flips(3);

        assert_eq!(stage.next_at(), 100_200);
    }

    #[test]
    fn a_refused_confirmation_is_written_again_when_a_stamp_shows_the_change() {
        let mut stage = Stage::touching();
        stage.finish(Outcome::Unchanged);
        stage.touch();
        stage.finish(refused());
        assert_eq!(stage.next_at(), 135_100);

        stage.is_stamped(true);

        assert_eq!(stage.next_at(), 105_100);
    }

    #[test]
    fn a_conflict_ends_when_the_watch_shows_another_trigger() {
        let mut stage = Stage::touching();
        stage.finish(conflict());
        assert_eq!(stage.next_at(), 101_100);

        stage.shows(trigger(2, 9, 3));

        assert_eq!(stage.memory.write.readiness(stage.now), Readiness::Ready);
    }

    #[test]
    fn a_touch_that_the_watch_shows_is_written_whatever_its_outcome() {
        for outcome in [conflict(), Outcome::Unanswered { error: RequestFailure::default() }] {
            let mut stage = Stage::new();
            stage.flips(2);
            let touched = stage.touch();
            assert_eq!(stage.shows(touched), Effect::None);

            assert!(stage.finish(outcome).is_latest);
        }
    }

    #[test]
    fn a_late_outcome_of_an_action_that_was_given_up_changes_nothing() {
        let mut stage = Stage::touching();
        let edge = &stage.cluster.edge;

        let outcome = Outcome::Unchanged;
        let settings = &stage.settings;
        let finished = stage.memory.on_finished(ActionId(9), &outcome, edge, settings, stage.now);

        assert_eq!(finished, None);
        assert!(matches!(stage.memory.state, State::InFlight(_)));
    }

    #[test]
    fn a_few_gateways_of_a_class_are_written_instead_of_one_that_is_refused() {
        let mut stage = Stage::touching();
        stage.finish(refused());

        let replaced: Vec<_> = (0..5).map(|_| stage.memory.on_member_refused(true)).collect();

        assert_eq!(replaced, [true, true, true, false, false]);
        assert_eq!(stage.next_at(), 100_200, "its pause is over");
    }

    #[test]
    fn what_was_announced_shortly_before_an_outage_is_confirmed_once_more() {
        for (since, is_confirmed) in [(160_100, true), (160_101, false)] {
            let mut stage = Stage::new();
            stage.flips(2);
            for _ in 0..3 {
                stage.succeed();
            }
            assert_eq!(stage.next(), None);

            stage.memory.on_outage_over(UnixMillis(since), &stage.settings.touch);

            let because = stage.planned().map(|(_, write)| write.because);
            assert_eq!(because.is_some_and(|because| because.contains("outage")), is_confirmed);
        }
    }

    #[test]
    fn nothing_is_compared_while_the_edge_is_not_ready() {
        let mut stage = Stage::new();
        stage.desired = 7;
        stage.ready_since = None;
        assert_eq!(stage.next(), None);
        assert_eq!(stage.memory.state, State::Announced);

        stage.ready_since = Some(stage.now);
        let (_, write) = stage.planned().unwrap();
        assert!(write.because.contains("does not announce"));
    }

    #[test]
    fn memory_and_state_stay_small() {
        assert!(size_of::<State>() <= 56, "{}", size_of::<State>());
        assert!(size_of::<TouchMemory>() <= 248, "{}", size_of::<TouchMemory>());
    }
}
