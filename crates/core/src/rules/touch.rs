//! Touch: the trigger of a Gateway announces the liveness of its connectors at the edge.
//!
//! Envoy Gateway translates a Gateway again when one of its annotations changes. The extension
//! server may not have the change in its cache by then, and gives no sign of it. So a touch is
//! repeated. The announcement is written after a short window, or when the platform's stamp shows
//! that the cache has the change. Confirmations follow after some seconds and after a minute. Each
//! touch writes a value that the object never had, because the same configuration is not translated
//! twice.
//!
//! A [`State`] records what has been announced. [`on`] is the table of its transitions, one
//! function for each group of rows; [`plan`] decides which touch is due. A [`Target`] is a Gateway
//! or a GatewayClass. [`view`] makes the same [`View`] of both, so no other code here distinguishes
//! them.
//!
//! A Gateway in the first complete list is trusted, so a restart writes nothing: its annotations
//! and `managedFields` replace the lost memory. A Gateway that appears later is not trusted,
//! whatever it has: after an edge's etcd was restored, Envoy Gateway translates it as a new one,
//! and the extension server may not have its connectors again yet.

pub(crate) mod edge_memory;

use crate::contract::action::{Action, AnnotationBefore, Precondition, Urgency};
use crate::contract::cause::{About, Cause, Problem};
use crate::contract::event::Outcome;
use crate::contract::settings::{PlatformKeyMode, Settings, TouchSettings};
use crate::data::ids::{ActionId, Kind, NamespacedName};
use crate::data::objects::PLATFORM_KEY;
use crate::data::time::UnixMillis;
use crate::plan::{Job, Next, TouchJob, Turn, Write};
use crate::rate_limit::{Rate, RateLimiter};
use crate::rules::findings::{Findings, Writes};
use crate::status::trigger::{Sequence, Trigger};
use crate::subject::Target;
use crate::world::World;
use crate::world::class::Class;
use crate::world::cluster::Cluster;
use crate::world::edge::{Annotations, Gateway};
use crate::world::edge_tables::EdgeTables;
use crate::world::table::Row;
use crate::write_queue::{Due, QueueKey, Rank};
use crate::write_state::{Completion, ContentionLimits, WriteState};

/// One announcement of a class covers all its Gateways, so its rate is higher.
const CLASS_RATE: Rate = Rate::every_ms(200, 1);

/// When one Gateway of a class is refused, this many others are tried without a pause. After that,
/// one is tried after each pause: the refusal most likely concerns all of them.
const OTHERS_AT_ONCE: u32 = 3;

/// A target as the watches of its edge show it.
pub(crate) struct View<'w> {
    pub(crate) target: &'w Target,
    pub(crate) cluster: &'w Cluster,
    /// The Gateway that carries the trigger.
    pub(crate) gateway: &'w NamespacedName,
    pub(crate) row: &'w Row<Gateway>,
    /// The digest to announce; `None` while no connector is referenced.
    pub(crate) desired: Option<u64>,
    /// Since when the lists of the edge are complete; `None` while they are not, or if the Gateway
    /// is in a namespace of another tier.
    pub(crate) ready_since: Option<UnixMillis>,
    pub(crate) class: Option<&'w Class>,
    pub(crate) settings: &'w Settings,
    pub(crate) now: UnixMillis,
}

#[derive(Debug, Default)]
pub(crate) struct TouchMemory {
    pub(crate) state: State,
    /// The latest announcement, set when its write starts.
    pub(crate) announced: Announced,
    pub(crate) write: WriteState,
    /// Limits announcements. Confirmations follow the last touch after a minimum interval instead.
    limiter: RateLimiter,
    /// The latest sequence number ever written or seen.
    latest: Option<Sequence>,
    last_touch_at: Option<UnixMillis>,
    /// Whether an operator had paused the carrying Gateway at the last look.
    is_paused: bool,
    /// Connectors whose latest change this target has yet to announce.
    pub(crate) waiting: Vec<NamespacedName>,
    /// Since when one of them waits, or since the end of a pause.
    pub(crate) waiting_since: Option<UnixMillis>,
    /// How many Gateways of a class were refused since the last write.
    refused_in_a_row: u32,
}

/// How a touch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) gateway: NamespacedName,
    /// `None`: it is not written.
    pub(crate) written: Option<Written>,
}

/// A touch that the API server stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) trigger: Trigger,
    /// The watch has shown another trigger since the touch was decided.
    pub(crate) is_trigger_seen: bool,
    /// The connectors that waited, if it announces every change so far.
    pub(crate) announced: Vec<NamespacedName>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not looked at yet: whether the Gateway's annotations can be trusted is open. They cannot if
    /// the Gateway appeared, or its connectors changed, after the edge's first list.
    New {
        is_untrusted: bool,
    },
    Pending(Box<Announcement>),
    InFlight(Box<OngoingTouch>),
    /// The trigger shows which confirmations remain.
    Announced,
    /// Nothing is due. Of the last announcement, only what a late stamp needs is kept.
    AtRest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) reason: TouchReason,
    first_at: UnixMillis,
    last_at: UnixMillis,
    /// A trigger with a later number announces the change, whoever wrote it.
    latest: Option<Sequence>,
    proof: ProofTarget,
    /// A stamp has shown that the extension server's cache has the change.
    is_cached: bool,
    /// Found at the start: every cache has had it as long as this instance, so one confirmation is
    /// enough.
    only_last: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OngoingTouch {
    pub(crate) gateway: NamespacedName,
    pub(crate) trigger: Trigger,
    purpose: Purpose,
    /// The watch has shown another trigger since the touch was decided.
    is_trigger_seen: bool,
    /// A further change, during the write.
    next: Option<Announcement>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Announces(TouchReason),
    Confirms,
    /// The confirmation after an outage.
    ConfirmsOnceMore,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    /// `None`: a trigger of unknown age, which is confirmed at once.
    pub(crate) at: Option<UnixMillis>,
    only_last: bool,
    is_unverified: bool,
    /// What no stamp has shown yet. A stamp that shows it later triggers one more touch.
    unproven: Option<ProofTarget>,
    /// One more confirmation is due, after an outage.
    once_more: bool,
    /// The digest that the platform's stamp announced at the first look, while the Gateway has no
    /// trigger.
    by_stamp: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TouchReason {
    LivenessChanged,
    WrittenWhileWatchLost,
    ReferencesChanged,
    NotAnnounced,
    PlatformStamp,
    Overwritten,
    WrittenSinceTouch,
    CameWithTrigger,
}

/// What a stamp must show before the extension server's cache is known to have a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProofTarget {
    /// The connector that changed last: caches see Connectors in order.
    Connector(NamespacedName),
    Target,
    /// Several changes in unknown order. No stamp proves them.
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
    /// The stamp matches the connector's current state.
    pub(crate) is_present: bool,
    /// The stamp is on the target itself.
    pub(crate) is_own: bool,
}

/// `None` if there is no such Gateway, or if the class has none.
pub(crate) fn view<'w>(world: &'w World, target: &'w Target, now: UnixMillis) -> Option<View<'w>> {
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
        desired: class.map_or(row.seen.desired, |class| Some(class.digest())),
        ready_since: edge.ready_since.filter(|_| is_of_edge),
        settings: &world.settings,
        now,
    })
}

/// The table of transitions, except for those that need no view: [`TouchMemory::on_started`],
/// [`TouchMemory::on_finished`], [`TouchMemory::on_outage_over`]. Returns the connectors that waited
/// and that another instance has announced.
pub(crate) fn on(
    memory: &mut TouchMemory,
    event: Event<'_>,
    view: &View<'_>,
) -> Vec<NamespacedName> {
    if memory.state == State::AtRest {
        // A trigger that another writer sets now may be of any age, so it is confirmed immediately.
        memory.latest = view.latest(memory);
    }
    match event {
        Event::Look => on_look(memory, view),
        Event::Appeared { is_later, has_connectors } => {
            on_appeared(memory, is_later, has_connectors, view);
        }
        // Before the first look there is nothing to compare with. What changes after the first list
        // is no longer what the annotations were written for.
        _ if matches!(memory.state, State::New { .. }) => {
            if matches!(event, Event::Changed { .. }) && view.ready_since.is_some() {
                memory.state = State::New { is_untrusted: true };
            }
        }
        Event::Changed { reason, proof, is_ordered } => {
            if let ProofTarget::Connector(name) = &proof {
                memory.add_waiting(name, view.now);
            }
            let latest = view.latest(memory);
            let change = Announcement { proof, latest, ..Announcement::new(reason, view.now) };
            on_change(memory, change, is_ordered);
        }
        // In a class, only the trigger of the carrying Gateway counts.
        Event::TriggerSeen { gateway } if gateway == view.gateway => {
            if on_trigger_seen(memory, view) {
                return memory.take_waiting(|_| true);
            }
        }
        Event::TriggerSeen { .. } => {}
        Event::Stamped(stamp) => on_stamp(memory, stamp, view),
    }
    Vec::new()
}

/// The first look at a Gateway. Later looks compare the announced digest with the desired one.
fn on_look(memory: &mut TouchMemory, view: &View<'_>) {
    let Some(desired) = view.digest_to_announce() else { return };

    match memory.state {
        State::New { is_untrusted } => first_look(memory, desired, is_untrusted, view),
        // The change is announced anyway.
        State::Pending(_) | State::InFlight(_) => {}
        State::Announced | State::AtRest => {
            if memory.announced_digest(view.trigger()) != Some(desired) {
                let change = Announcement::new(TouchReason::NotAnnounced, view.now);
                memory.state = State::Pending(change.into());
            }
        }
    }
}

fn on_appeared(memory: &mut TouchMemory, is_later: bool, has_connectors: bool, view: &View<'_>) {
    if let State::New { is_untrusted } = &mut memory.state {
        *is_untrusted |= is_later;
    } else if has_connectors {
        // A new Gateway of a class that was announced before. It may be the one that was missing.
        memory.write.on_object_changed();
        let change = Announcement::new(TouchReason::NotAnnounced, view.now);
        on_change(memory, Announcement { latest: view.latest(memory), ..change }, false);
    }
}

fn on_change(memory: &mut TouchMemory, change: Announcement, is_ordered: bool) {
    memory.write.on_desired_changed();
    // Two instances that see a change one after the other may overwrite each other once.
    memory.write.forget_contention();
    match &mut memory.state {
        State::Pending(old) => old.merge(change, is_ordered),
        State::InFlight(ongoing) => match &mut ongoing.next {
            Some(old) => old.merge(change, is_ordered),
            next => *next = Some(change),
        },
        state => *state = State::Pending(change.into()),
    }
}

/// Returns whether another instance has announced what waited.
fn on_trigger_seen(memory: &mut TouchMemory, view: &View<'_>) -> bool {
    if let State::InFlight(ongoing) = &mut memory.state {
        ongoing.is_trigger_seen = true;
        // The watch may show a write before its outcome arrives.
        if ongoing.gateway == *view.gateway && view.trigger() == Some(ongoing.trigger) {
            return false;
        }
    }
    memory.write.on_object_changed();
    if view.desired.is_none() {
        return false;
    }

    match view.trigger() {
        Some(trigger) if Some(trigger.digest) == view.desired => {
            on_announced_elsewhere(memory, trigger, view.now)
        }
        _ => {
            on_overwritten(memory, view);
            false
        }
    }
}

/// Another instance announced the desired digest. After our change, this replaces our own touch.
fn on_announced_elsewhere(memory: &mut TouchMemory, trigger: Trigger, now: UnixMillis) -> bool {
    if announces_after(trigger, memory.latest) {
        let pending = memory.state.pending_mut();
        memory.announced.only_last = pending.is_some_and(|pending| pending.only_last);
        memory.announced.at = Some(now);
        memory.last_touch_at = Some(now);
    }
    memory.latest = Sequence::latest(memory.latest, Sequence::of(trigger));

    let announces = |change: &Announcement| announces_after(trigger, change.latest);
    match &mut memory.state {
        State::Pending(change) if announces(change) => {
            memory.state = State::Announced;
            true
        }
        State::InFlight(ongoing) if ongoing.next.as_ref().is_some_and(announces) => {
            ongoing.next = None;
            true
        }
        _ => false,
    }
}

/// The trigger is written again, after pauses that grow while the overwrites continue.
fn on_overwritten(memory: &mut TouchMemory, view: &View<'_>) {
    memory.latest = view.latest(memory);
    if view.is_paused() {
        // An operator may be trying values by hand.
        return;
    }

    let Settings { touch, mirror, .. } = view.settings;
    let limits = ContentionLimits {
        pause_from: 1,
        first_ms: touch.min_interval_ms,
        max_ms: mirror.contention_backoff_max_ms,
        quiet_ms: mirror.contention_quiet_ms,
    };
    memory.write.on_overwritten(None, &limits, view.now);

    let change = Announcement::new(TouchReason::Overwritten, view.now);
    match &mut memory.state {
        State::Announced | State::AtRest => memory.state = State::Pending(change.into()),
        State::InFlight(ongoing) => _ = ongoing.next.get_or_insert(change),
        State::New { .. } | State::Pending(_) => {}
    }
}

fn on_stamp(memory: &mut TouchMemory, stamp: Stamp<'_>, view: &View<'_>) {
    if let Some(change) = memory.state.pending_mut() {
        return change.on_stamp(stamp);
    }
    let is_at_rest = memory.state == State::AtRest;
    let Some(proof) = memory.announced.on_stamp(stamp, is_at_rest) else { return };

    // The last touch may have come before the cache had the change.
    let latest = view.latest(memory);
    let change = Announcement::new(TouchReason::PlatformStamp, view.now);
    on_change(memory, Announcement { proof, latest, is_cached: true, ..change }, true);
}

/// Decides whether the Gateway's annotations can be trusted, or whether to announce again.
fn first_look(memory: &mut TouchMemory, desired: u64, is_untrusted: bool, view: &View<'_>) {
    let unproven = Some(ProofTarget::Target);
    let mut announced = Announced { is_unverified: true, unproven, ..Announced::default() };
    let reason = match view.trigger() {
        None if !is_untrusted && view.is_announced_by_stamp() => {
            announced.by_stamp = Some(desired);
            None
        }
        None => Some(TouchReason::NotAnnounced),
        Some(trigger) if trigger.digest != desired => Some(TouchReason::LivenessChanged),
        // The extension server may not have the connectors of a Gateway that appeared later.
        Some(_) if is_untrusted => Some(TouchReason::CameWithTrigger),
        Some(trigger) => {
            announced.at = Some(view.announced_at(trigger));
            view.is_written_after(trigger).then_some(TouchReason::WrittenSinceTouch)
        }
    };
    memory.announced = announced;
    memory.latest = view.latest(memory);

    let is_as_old = !is_untrusted && view.is_as_first_listed();
    memory.state = reason.map_or(State::Announced, |reason| {
        let only_last = reason.is_first_look() && is_as_old;
        let change = Announcement { only_last, ..Announcement::new(reason, view.now) };
        State::Pending(change.into())
    });
}

/// Which touch is due, and when.
pub(crate) fn plan(view: &View<'_>, memory: &TouchMemory, admitted_by: Option<QueueKey>) -> Next {
    let Some(digest) = view.digest_to_announce() else { return Next::AWAIT_CHANGE };
    let touch = match &memory.state {
        State::Pending(change) => Some(announcement(change, view, memory)),
        State::Announced | State::AtRest => confirmation(view, memory),
        State::New { .. } | State::InFlight(_) => None,
    };
    let Some(touch) = touch else { return Next::AWAIT_CHANGE };

    let queue = QueueKey::Touches(view.target.cluster());
    Next::write(Turn::in_queue(queue, touch.due, admitted_by, view.now, || {
        let n = Sequence::after(view.latest(memory)).get();
        let trigger = Trigger { digest, n, c: touch.confirmation };
        view.write(trigger, &touch, memory)
    }))
}

struct DueTouch {
    due: Due,
    /// 0: an announcement.
    confirmation: u32,
    because: &'static str,
}

fn announcement(change: &Announcement, view: &View<'_>, memory: &TouchMemory) -> DueTouch {
    let not_before = memory.write.not_before().unwrap_or_default();
    let ready_at = memory.limiter.ready_at(view.rate());
    let at = change.due_at(&view.settings.touch).max(ready_at).max(not_before);
    DueTouch {
        due: Due { rank: change.reason.rank(), ..Due::at(at) },
        confirmation: 0,
        because: change.reason.because(),
    }
}

/// `None`: all confirmations have been written, or only a stamp announces the target.
fn confirmation(view: &View<'_>, memory: &TouchMemory) -> Option<DueTouch> {
    let settings = &view.settings.touch;
    let announced = &memory.announced;
    let last = settings.confirm_after_ms.len() as u32;
    let next = view.trigger()?.c.saturating_add(1);
    let confirmation = if announced.only_last { next.max(last) } else { next };

    let at = if announced.once_more {
        view.now
    } else {
        let after_ms = *settings.confirm_after_ms.get(confirmation as usize - 1)?;
        announced.at.map_or(UnixMillis(0), |at| at.plus(after_ms))
    };
    let ready_at = memory.last_touch_at.map(|at| at.plus(settings.min_interval_ms));
    let not_before = ready_at.max(memory.write.not_before()).unwrap_or_default();
    // The confirmation joins other touches of the edge up to a window early, to save a separate
    // translation.
    let (rank, early_ms) = match announced.is_unverified {
        true => (Rank::Low, 0),
        false => (Rank::Normal, settings.window_ms),
    };
    let early_from = minus(at, early_ms).max(not_before);
    Some(DueTouch {
        due: Due { rank, at: at.max(not_before), early_from },
        confirmation,
        because: if announced.once_more {
            "touched again after the edge's outage, in case a cache was back late"
        } else {
            "touched again in case a cache missed the first one"
        },
    })
}

/// Finds problems with the announcements of a target. `is_queued`: it waits for the limit of its
/// edge, which is reported as a whole.
pub(crate) fn find(view: &View<'_>, memory: &TouchMemory, is_queued: bool) -> Findings {
    let mut found = Findings::default();
    let is_ready = view.ready_since.is_some() && view.desired.is_some();
    if !view.settings.touch.enabled || !is_ready {
        return found;
    }
    let about = about(view);
    if view.is_paused() {
        found.push(Problem::new(Cause::Paused, about, view.now));
        return found;
    }

    let is_wanted = memory.is_pending() || confirmation(view, memory).is_some();
    let wanted_since = is_wanted.then_some(memory.waiting_since.unwrap_or(view.now));
    let key = &view.settings.touch.key;
    let since = |waiting: UnixMillis| waiting.max(memory.last_touch_at.unwrap_or_default());
    let waiting_since = memory.waiting_since.map(since);
    let late_at = waiting_since.map(|since| since.plus(view.settings.late.announced_ms));
    let late_at = late_at.unwrap_or(UnixMillis::NEVER);
    let state = &memory.write;
    let writes = Writes { state, about: about.clone(), key, wanted_since, late_at };
    let is_failing = found.push_writes(&writes, &view.settings.mirror, view.now);
    if let Some(since) = waiting_since.filter(|_| !is_failing && !is_queued) {
        let mut problem = Problem::new(Cause::NotAnnounced, about, since);
        problem.facts.edge = Some(view.cluster.name.clone());
        problem.facts.what = Some(memory.last_touch().into());
        found.push_late(problem, late_at, view.now);
    }
    found
}

/// A problem of a class lasts while another of its Gateways carries the trigger.
fn about(view: &View<'_>) -> About {
    let whole = match view.target {
        Target::Gateway(_) => None,
        Target::Class(_, class) => Some(Box::from(&**class)),
    };
    let carrier = About::object(&view.cluster.name, Kind::Gateway, view.gateway.clone());
    About { whole, ..carrier }
}

impl View<'_> {
    pub(crate) fn trigger(&self) -> Option<Trigger> {
        self.row.seen.trigger
    }

    /// An operator has paused it. The carrier of a class is paused only if all its Gateways are.
    pub(crate) fn is_paused(&self) -> bool {
        self.row.seen.is_paused
    }

    /// `None` while the target may not be touched.
    fn digest_to_announce(&self) -> Option<u64> {
        let is_enabled = self.settings.touch.enabled;
        let may_touch = is_enabled && !self.is_paused() && self.ready_since.is_some();
        self.desired.filter(|_| may_touch)
    }

    fn latest(&self, memory: &TouchMemory) -> Option<Sequence> {
        Sequence::latest(memory.latest, self.trigger().and_then(Sequence::of))
    }

    /// When a trigger that was there at the start was announced. Its age counts from our last
    /// write, so the confirmations continue where they stopped.
    fn announced_at(&self, trigger: Trigger) -> UnixMillis {
        let done = trigger.c.checked_sub(1);
        let done_ms = done.and_then(|done| self.settings.touch.confirm_after_ms.get(done as usize));
        // The time comes from the API server, whose clock may be ahead.
        let written_at = self.row.seen.written_at.map_or(self.now, |at| at.min(self.now));
        minus(written_at, done_ms.copied().unwrap_or(0))
    }

    /// Where the API server gives times of writes, only throughline's own trigger is trusted: the
    /// extension server, if it writes the stamp, does so before Envoy Gateway translates. The stamp
    /// on one Gateway proves nothing about the others of its class.
    fn is_announced_by_stamp(&self) -> bool {
        let stamp = self.row.seen.stamp;
        self.settings.touch.platform_key == PlatformKeyMode::Observe
            && self.class.is_none()
            && stamp.is_some()
            && stamp == self.cluster.edge.stamp_of(self.gateway)
            && self.latest_of(EdgeTables::others_wrote_at).is_none()
    }

    /// A status does not show that liveness changed and changed back; the times of the writes do.
    /// The API server gives them in whole seconds. After a confirmation, no other one would make up
    /// for a change in the same second.
    fn is_written_after(&self, trigger: Trigger) -> bool {
        let others_wrote_at = self.latest_of(EdgeTables::others_wrote_at);
        let times = self.row.seen.written_at.zip(others_wrote_at);
        times.is_some_and(|(we, others)| others > we || (others == we && trigger.c > 0))
    }

    /// The lists are the edge's first ones, and no connector's liveness has changed since.
    fn is_as_first_listed(&self) -> bool {
        let changed_at = self.latest_of(EdgeTables::changed_at);
        self.ready_since.is_some_and(|since| self.now <= since)
            && changed_at <= self.cluster.listed_since(Kind::Connector)
    }

    /// The latest such time of all Gateways that the target covers.
    fn latest_of(
        &self,
        time: impl Fn(&EdgeTables, &NamespacedName) -> Option<UnixMillis>,
    ) -> Option<UnixMillis> {
        let edge = &self.cluster.edge;
        match self.class {
            None => time(edge, self.gateway),
            Some(class) => class.gateways().filter_map(|gateway| time(edge, gateway)).max(),
        }
    }

    /// The rate limit of the target's announcements.
    fn rate(&self) -> Rate {
        let TouchSettings { min_interval_ms, burst, .. } = self.settings.touch;
        match self.class {
            Some(_) => CLASS_RATE,
            None => Rate::every_ms(min_interval_ms, u64::from(burst).max(1)),
        }
    }

    fn write(&self, trigger: Trigger, touch: &DueTouch, memory: &TouchMemory) -> Write {
        let settings = &self.settings.touch;
        let mut annotations = vec![(settings.key.clone(), Some(trigger.to_string()))];
        if settings.platform_key == PlatformKeyMode::Write {
            annotations
                .push((PLATFORM_KEY.to_owned(), self.cluster.edge.stamp_text_of(self.gateway)));
        }

        let gateway = self.cluster.object(Kind::Gateway, self.gateway);
        let job = TouchJob { gateway, trigger, rate: self.rate() };
        Write {
            job: Job::Touch(self.target.clone(), job),
            annotations,
            precondition: self.precondition(),
            connectors: self.connectors(memory),
            urgency: match touch.due.rank {
                Rank::Urgent => Urgency::Routing,
                Rank::Normal | Rank::Low => Urgency::Confirmation,
            },
            because: match self.class {
                None => touch.because.to_owned(),
                Some(_) => format!("{}; this covers every Gateway of its class", touch.because),
            },
        }
    }

    /// A touch that the network delays, or that is sent again because its answer was lost, must not
    /// replace a newer one: Envoy Gateway would see a value that it has already translated. A
    /// foreign trigger is not stored, so then the object must not have changed at all.
    fn precondition(&self) -> Precondition {
        let gateway = &self.row.seen;
        let unchanged = self.row.unchanged();
        if gateway.has_foreign_trigger() {
            return unchanged;
        }

        let before = AnnotationBefore {
            key: self.settings.touch.key.clone(),
            value: gateway.trigger.map(|trigger| trigger.to_string()),
            no_annotations: gateway.annotations == Annotations::Empty,
        };
        Precondition { resource_version: None, annotation: Some(Box::new(before)), ..unchanged }
    }

    fn connectors(&self, memory: &TouchMemory) -> Vec<NamespacedName> {
        let connectors = match self.class {
            None => self.cluster.edge.connectors_of(self.gateway),
            Some(_) => &memory.waiting,
        };
        connectors.iter().take(Action::CONNECTORS_MAX).cloned().collect()
    }
}

impl TouchMemory {
    fn last_touch(&self) -> &str {
        match (&self.state, self.write.failure()) {
            (State::InFlight(_), _) => "not answered yet",
            (_, Some(failure)) => &failure.error,
            _ if self.last_touch_at.is_some() => "before the change",
            _ => "none yet",
        }
    }

    /// Whether an announcement is due or has no outcome yet.
    pub(crate) fn is_pending(&self) -> bool {
        match &self.state {
            State::New { .. } | State::Pending(_) => true,
            State::InFlight(ongoing) => {
                matches!(ongoing.purpose, Purpose::Announces(_)) || ongoing.next.is_some()
            }
            State::Announced | State::AtRest => false,
        }
    }

    /// When the latest announcement was made, if it is still to be confirmed.
    pub(crate) fn unconfirmed_since(&self) -> Option<UnixMillis> {
        self.announced.at.filter(|_| self.state != State::AtRest)
    }

    /// The digest that a target has announced, given the trigger of its carrying Gateway.
    pub(crate) fn announced_digest(&self, trigger: Option<Trigger>) -> Option<u64> {
        trigger.map(|trigger| trigger.digest).or(self.announced.by_stamp)
    }

    fn add_waiting(&mut self, connector: &NamespacedName, now: UnixMillis) {
        self.waiting_since.get_or_insert(now);
        if !self.waiting.contains(connector) {
            self.waiting.push(connector.clone());
        }
    }

    /// Takes over whether an operator has paused the target. Returns whether that changed.
    pub(crate) fn on_paused(&mut self, is_paused: bool, now: UnixMillis) -> bool {
        let was_paused = std::mem::replace(&mut self.is_paused, is_paused);
        if was_paused && !is_paused {
            // Failures, contention and waiting time before the pause do not count.
            self.write.end_pauses();
            self.write.forget_contention();
            self.waiting_since = self.waiting_since.map(|_| now);
        }
        was_paused != is_paused
    }

    pub(crate) fn on_started(&mut self, job: &TouchJob, id: ActionId, now: UnixMillis) {
        self.write.on_started(id);
        self.latest = Sequence::of(job.trigger);
        self.last_touch_at = Some(now);

        let purpose = match std::mem::take(&mut self.state) {
            State::Pending(change) => {
                let purpose = Purpose::Announces(change.reason);
                self.limiter.take(job.rate, now);
                self.announced = change.announced(self.announced.by_stamp, now);
                purpose
            }
            _ if std::mem::take(&mut self.announced.once_more) => Purpose::ConfirmsOnceMore,
            _ => Purpose::Confirms,
        };
        self.state = State::InFlight(Box::new(OngoingTouch {
            gateway: job.gateway.name.clone(),
            trigger: job.trigger,
            purpose,
            is_trigger_seen: false,
            next: None,
        }));
    }

    /// `None`: this action is not in flight.
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

        let OngoingTouch { gateway, trigger, purpose, is_trigger_seen, next } = *ongoing;
        let is_written = matches!(completion, Completion::Written { .. });
        let again = match purpose {
            Purpose::Announces(reason) if !is_written => Some(self.announced.again(reason, now)),
            _ => None,
        };
        self.announced.once_more |= purpose == Purpose::ConfirmsOnceMore && !is_written;
        let is_latest = next.is_none();
        let change = match (again, next) {
            (Some(mut failed), Some(next)) => {
                failed.merge(next, false);
                Some(failed)
            }
            (failed, next) => failed.or(next),
        };
        self.state = change.map_or(State::Announced, |change| State::Pending(change.into()));
        let written = is_written.then(|| {
            self.announced.on_written(trigger, &settings.touch);
            self.refused_in_a_row = 0;
            let announced = self.take_waiting(|_| is_latest);
            Written { trigger, is_trigger_seen, announced }
        });
        Some(Finished { gateway, written })
    }

    /// Takes out the connectors that no longer wait.
    pub(crate) fn take_waiting(
        &mut self,
        is_over: impl Fn(&NamespacedName) -> bool,
    ) -> Vec<NamespacedName> {
        let over = self.waiting.extract_if(.., |name| is_over(name)).collect();
        self.waiting_since = self.waiting_since.filter(|_| !self.waiting.is_empty());
        over
    }

    /// The API server refused to write one Gateway of a class. Another one is tried without a
    /// pause. After a few refusals, none is: they most likely concern all Gateways.
    pub(crate) fn on_member_refused(&mut self, has_another: bool) {
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        if has_another && self.refused_in_a_row <= OTHERS_AT_ONCE {
            self.write.end_backoff();
        }
    }

    /// Schedules one more confirmation if the last announcement was around the outage. Returns
    /// whether it was.
    pub(crate) fn on_outage_over(&mut self, since: UnixMillis, settings: &TouchSettings) -> bool {
        let last_confirmation_ms = settings.confirm_after_ms.last().copied().unwrap_or(0);
        let announced_at = self.announced.at.filter(|_| self.last_touch_at.is_some());
        let is_around = announced_at.is_some_and(|at| at.plus(last_confirmation_ms) >= since);
        self.announced.once_more |= is_around;
        is_around
    }

    /// Called after each plan. `may_rest`: no touch is planned, and no earlier one is still to be
    /// confirmed.
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
        Self::New { is_untrusted: false }
    }
}

impl State {
    /// The change that the next announcement covers.
    fn pending_mut(&mut self) -> Option<&mut Announcement> {
        match self {
            Self::Pending(change) => Some(change.as_mut()),
            Self::InFlight(ongoing) => ongoing.next.as_mut(),
            Self::New { .. } | Self::Announced | Self::AtRest => None,
        }
    }
}

impl OngoingTouch {
    /// The outcome, corrected by the trigger that the watch shows: an earlier attempt may have
    /// succeeded, or another instance may have written the same value.
    fn corrected<'o>(&self, outcome: &'o Outcome, shown: Option<Trigger>) -> &'o Outcome {
        let is_doubtful = matches!(
            outcome,
            Outcome::Conflict { .. } | Outcome::Failed { .. } | Outcome::Unanswered { .. }
        );
        if is_doubtful && shown == Some(self.trigger) { &Outcome::Unchanged } else { outcome }
    }
}

impl Announcement {
    fn new(reason: TouchReason, now: UnixMillis) -> Self {
        Self {
            reason,
            first_at: now,
            last_at: now,
            latest: None,
            proof: ProofTarget::Target,
            is_cached: false,
            only_last: false,
        }
    }

    /// Adds a further change before this one is announced.
    fn merge(&mut self, newer: Self, is_ordered: bool) {
        let are_connectors = matches!(
            (&self.proof, &newer.proof),
            (ProofTarget::Connector(_), ProofTarget::Connector(_))
        );
        let old = std::mem::replace(self, newer);
        let proves_both = old.proof == self.proof
            || (is_ordered && (are_connectors || old.reason.is_first_look()));
        if !proves_both {
            self.proof = ProofTarget::Several;
        }
        if !old.reason.is_first_look() {
            self.first_at = old.first_at;
        }
        if old.reason.rank() < self.reason.rank() {
            self.reason = old.reason;
        }
    }

    /// When the caches should have the change: once a stamp shows it, otherwise after the window. A
    /// continuous series of changes is announced nevertheless.
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

    /// The record of this announcement for the time after its write.
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
    /// Its touch failed. The API server may have stored it nevertheless, but the next value is new
    /// in any case.
    fn again(&self, reason: TouchReason, now: UnixMillis) -> Announcement {
        let proof = self.unproven.clone().unwrap_or(ProofTarget::Target);
        let is_cached = self.unproven.is_none();
        let change = Announcement::new(reason, now);
        Announcement { proof, is_cached, only_last: self.only_last, ..change }
    }

    /// After the last confirmation, only a stamp on the target itself shows that a cache was late.
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

    /// Returns what this stamp shows for the first time since it was announced. A stamp that does
    /// not match the connector withdraws the proof: the cache is still updating. At rest, only a
    /// stamp on the target itself shows that the cache was late.
    fn on_stamp(&mut self, stamp: Stamp<'_>, is_at_rest: bool) -> Option<ProofTarget> {
        if stamp.is_present {
            return self.unproven.clone().filter(|proof| stamp.shows(proof));
        }
        self.unproven.get_or_insert_with(|| match is_at_rest {
            true => ProofTarget::Target,
            false => ProofTarget::Connector(stamp.connector.clone()),
        });
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

    /// No change is known, and the state may be as old as the Gateway.
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
                "the trigger may be older than the state that it announces, and a cache may have \
                 been late"
            }
        }
    }
}

/// Whether a trigger announces the state at the time when `latest` was the latest number. A
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
    use crate::data::object_ref::{ClusterId, ObjectRef};
    use crate::world::edge::{EdgeConnector, Stamp as StampHash};
    use crate::world::table::{Shown, Sighting};

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

    fn refused() -> Outcome {
        Outcome::Refused { error: "403".into() }
    }

    fn conflict() -> Outcome {
        Outcome::Conflict { error: "409".into() }
    }

    fn sighting() -> Sighting {
        let version = ResourceVersion::Number(7);
        Sighting { uid: Uid::new("u-g"), version, shown: Shown::Listed }
    }

    impl Stage {
        /// Not looked at yet. The trigger announces 1, which is right, and is confirmed.
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
                refusals: 0,
                desired: None,
                written_at: None,
            };
            cluster.edge.connectors.put(&connector(), sighting(), EdgeConnector::default());
            cluster.edge.proxies.put(&name, sighting(), [connector()].into());
            cluster.edge.gateways.put(&name, sighting(), gateway);

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

        /// Returns whether another instance has announced the connector.
        fn on(&mut self, event: Event<'_>) -> bool {
            let mut memory = std::mem::take(&mut self.memory);
            let announced = on(&mut memory, event, &self.view(self.now));
            self.memory = memory;
            announced == [connector()]
        }

        fn view(&self, now: UnixMillis) -> View<'_> {
            View {
                target: &self.target,
                cluster: &self.cluster,
                gateway: &self.name,
                row: self.cluster.edge.gateways.get(&self.name).unwrap(),
                desired: Some(self.desired),
                ready_since: self.ready_since,
                class: None,
                settings: &self.settings,
                now,
            }
        }

        fn gateway(&mut self) -> &mut Gateway {
            self.cluster.edge.gateways.seen_mut(&self.name).unwrap()
        }

        /// Returns whether the trigger announces the waiting connectors.
        fn shows(&mut self, trigger: Trigger) -> bool {
            self.gateway().trigger = Some(trigger);
            let name = self.name.clone();
            self.on(Event::TriggerSeen { gateway: &name })
        }

        fn plan(&self, admitted_by: Option<QueueKey>, now: UnixMillis) -> Next {
            plan(&self.view(now), &self.memory, admitted_by)
        }

        /// When the next touch is due, and its write.
        fn planned(&mut self) -> Option<(UnixMillis, Write)> {
            self.on(Event::Look);
            let Turn { queue, due, .. } = self.plan(None, self.now).turn?;
            let turn = self.plan(Some(queue), self.now.max(due.at)).turn.unwrap();
            Some((due.at, *turn.write.expect("a touch that is due goes")))
        }

        /// When the next touch is due, and its value.
        fn next(&mut self) -> Option<(u64, Trigger)> {
            let (at, write) = self.planned()?;
            let Job::Touch(_, job) = write.job else { panic!("no touch") };
            Some((at.0, job.trigger))
        }

        fn touch(&mut self) -> Trigger {
            let (at, _) = self.planned().expect("a touch is planned");
            self.now = self.now.max(at);
            let (_, write) = self.planned().expect("a touch is planned");
            let Job::Touch(_, job) = write.job else { panic!("no touch") };
            self.memory.on_started(&job, ActionId(1), self.now);
            job.trigger
        }

        fn finish(&mut self, outcome: &Outcome) -> Finished {
            let Self { memory, settings, cluster, now, .. } = self;
            let finished = memory.on_finished(ActionId(1), outcome, &cluster.edge, settings, *now);
            let finished = finished.expect("a touch is in flight");
            if let Some(written) = &finished.written {
                self.gateway().trigger = Some(written.trigger);
            }
            finished
        }

        fn succeed(&mut self) {
            self.touch();
            self.finish(&Outcome::Unchanged);
        }

        fn flips(&mut self, digest: u64) {
            self.desired = digest;
            let proof = ProofTarget::Connector(connector());
            let reason = TouchReason::LivenessChanged;
            self.on(Event::Changed { reason, proof, is_ordered: true });
        }

        fn stamp_is_seen(&mut self, is_own: bool) {
            let connector = connector();
            self.on(Event::Stamped(Stamp { connector: &connector, is_present: true, is_own }));
        }
    }

    #[test]
    fn a_change_during_a_touch_is_announced_next() {
        let mut stage = Stage::touching();
        stage.flips(3);

        let written = stage.finish(&Outcome::Unchanged).written.unwrap();
        assert_eq!(written.announced, [], "it announces an earlier change");
        assert_eq!(stage.next(), Some((100_200, trigger(3, 6, 0))));
    }

    #[test]
    fn a_confirmation_that_failed_is_written_again_as_one() {
        let error = RequestFailure::default();
        let failed = Outcome::Failed { error, retry_after_ms: None };
        for (outcome, at) in [(failed, 106_100), (refused(), 135_100)] {
            let mut stage = Stage::touching();
            stage.finish(&Outcome::Unchanged);
            stage.touch();
            stage.finish(&outcome);

            assert_eq!(stage.next(), Some((at, trigger(2, 7, 1))));
        }
    }

    #[test]
    fn what_changes_ends_the_pause_after_a_failure() {
        type Change = fn(&mut Stage);
        let appears: Change = |stage| {
            _ = stage.on(Event::Appeared { is_later: true, has_connectors: true });
        };
        let changes: [(Outcome, Change, u64); 6] = [
            (Outcome::NotFound, |_| (), 130_100),
            (Outcome::NotFound, appears, 100_200),
            (refused(), |_| (), 130_100),
            (refused(), |stage| stage.flips(3), 100_200),
            (conflict(), |_| (), 101_100),
            (conflict(), |stage| _ = stage.shows(trigger(2, 9, 3)), 100_200),
        ];
        for (outcome, change, at) in changes {
            let mut stage = Stage::touching();
            stage.finish(&outcome);
            change(&mut stage);

            assert_eq!(stage.next().map(|(at, _)| at), Some(at), "{outcome:?}");
        }
    }

    #[test]
    fn a_touch_that_the_watch_shows_is_written_whatever_its_outcome() {
        for outcome in [conflict(), Outcome::Unanswered { error: RequestFailure::default() }] {
            let mut stage = Stage::new();
            stage.flips(2);
            let touched = stage.touch();
            assert!(!stage.shows(touched));

            let written = stage.finish(&outcome).written.unwrap();
            assert_eq!(written.announced, [connector()]);
        }
    }

    #[test]
    fn what_is_found_at_the_start_is_trusted_unless_others_wrote_later() {
        // When others last wrote (we wrote at 50 s), and the number of confirmations.
        for (others, c, is_touched) in [
            (None, 0, false),
            (Some(49_000), 2, false),
            (Some(50_000), 0, false),
            (Some(50_000), 2, true),
            (Some(51_000), 0, true),
        ] {
            let mut stage = Stage::unseen();
            stage.gateway().trigger = Some(trigger(1, 4, c));
            stage.gateway().written_at = Some(UnixMillis(50_000));
            let row = stage.cluster.edge.connectors.seen_mut(&connector()).unwrap();
            row.others_wrote_at = others.map(UnixMillis);

            let is_announcement = stage.next().is_some_and(|(_, trigger)| trigger.c == 0);
            assert_eq!(is_announcement, is_touched, "{others:?} {c}");
        }
    }

    #[test]
    fn what_only_a_right_stamp_announces_is_not_touched() {
        for (stamp, is_touched) in [("false/", false), ("true/n1", true)] {
            let mut stage = Stage::unseen();
            stage.gateway().trigger = None;
            stage.gateway().stamp = Some(StampHash::of(stamp));

            assert_eq!(stage.next().is_some(), is_touched, "{stamp}");
        }
    }

    /// A connector flaps, and the watch shows the trigger of another instance before each change.
    #[test]
    fn instances_that_see_changes_one_after_the_other_do_not_contend() {
        let mut stage = Stage::new();
        for n in 5..15 {
            stage.shows(trigger(n.into(), n, 0));
            stage.flips(n.into());
            assert_eq!(stage.memory.write.contention().map(|c| c.overwrites), None, "{n}");
        }
        for n in 15..18 {
            stage.shows(trigger(1, n, 0));
        }
        assert_eq!(stage.memory.write.contention().map(|c| c.overwrites), Some(3));
    }

    #[test]
    fn what_is_paused_is_not_touched_and_nothing_of_before_counts() {
        let mut stage = Stage::new();
        stage.shows(trigger(7, 4, 0));
        stage.gateway().is_paused = true;
        stage.memory.on_paused(true, stage.now);
        assert_eq!(stage.next(), None);
        assert!(!stage.shows(trigger(8, 4, 0)), "that is no contention");

        stage.gateway().is_paused = false;
        assert!(stage.memory.on_paused(false, stage.now));
        assert_eq!(stage.next(), Some((100_100, trigger(1, 5, 0))));
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

        stage.stamp_is_seen(false);
        assert_eq!(stage.next(), None);

        stage.stamp_is_seen(true);
        assert!(stage.next().is_some());
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
        assert!(size_of::<State>() <= 16, "{}", size_of::<State>());
        assert!(size_of::<TouchMemory>() <= 208, "{}", size_of::<TouchMemory>());
    }
}
