//! Mirror: the `upstream-status` annotation of a hub Connector says what the `.status` of its
//! upstream Connector says (DOMAIN 5).
//!
//! [`plan`] is the whole rule. It finds out what is desired, compares that with what the hub shows,
//! and decides when the difference is written:
//!
//! | upstream's status | what becomes of the annotation |
//! |---|---|
//! | differs in what edges route by | written at once |
//! | differs in anything else | *deferred*: written 5 s later, so that it never delays one that routes |
//! | is gone, or its Connector is | removed after 5 s: a stale "online" keeps users on a dead tunnel |
//! | is not known | stays, and the [`Verdict`] says why |
//!
//! Absence needs an [`AbsenceProof`]: silence, an empty list and a restored server prove nothing.
//! While too many would go at once, a breaker is tripped and holds all of them.
//!
//! What a write waits for:
//!
//! | what happened | when the next write goes |
//! |---|---|
//! | nothing | at once, but 20 in 4 s for each Connector |
//! | it was mirrored less than 10 s before | in turn with others of its upstream (`Repeats`) |
//! | 403, 404, 5xx, no answer | in turn with others that failed (`Retries`), within 30 s |
//! | 409 | when the watch shows the change; after three in a row the annotation alone is compared |
//! | another writer changed it back, three times or more | after a pause that doubles (`Rewrites`) |
//! | the server was restored from a backup | statuses after 5 min or the next change; no removals |
//! | the Lease was lost, or a person paused the object | never; it is planned again afterwards |

use crate::circuit_breaker::BreakerState;
use crate::contract::action::{AnnotationBefore, Precondition, Urgency};
use crate::contract::event::Outcome;
use crate::contract::hold_reason::HoldReason;
use crate::contract::settings::{DEFER_MS_MIN, MirrorSettings, Settings};
use crate::data::ids::{ActionId, ClusterName, Kind};
use crate::data::object_ref::ObjectRef;
use crate::data::objects::UPSTREAM_STATUS;
use crate::data::time::UnixMillis;
use crate::next::plan::{Intent, Job, MirrorJob, Next, PlannedWrite, Turn, Write};
use crate::next::world::World;
use crate::next::world::absence::{
    AbsenceProof, Absent, Claim, NamespaceIdentity, NoProof, namespace_identity, prove_absence,
};
use crate::next::world::cluster::Cluster;
use crate::next::world::hub::{HubConnector, Link, UpstreamRef};
use crate::next::world::table::Row;
use crate::next::world::upstream::{Status, UpstreamConnector, UpstreamStatus};
use crate::next::write_queue::{Due, QueueKey, Rank};
use crate::next::write_state::{Completion, Contention, ContentionLimits, Retry, WriteState};
use crate::rate_limit::{Rate, RateLimiter};
use crate::status::digest::Digest;
use crate::status::go_json;
use crate::status::liveness::{self, Liveness, StatusDigest};

/// One Connector that flaps must not keep the hub busy for all others.
const CONNECTOR_RATE: Rate = Rate::every_ms(DEFER_MS_MIN, 20);

/// A Connector that was mirrored so recently waits in the queue of its upstream, and so does one
/// that waited there so recently: else one that flaps on and on would pass the queue every 10 s.
pub(crate) const REPEAT_MS: u64 = 10_000;

/// A hub Connector in the world, looked up once for all rules.
#[derive(Clone, Copy)]
pub(crate) struct Place<'w> {
    pub(crate) at: &'w ObjectRef,
    pub(crate) hub: &'w Cluster,
    pub(crate) row: &'w Row<HubConnector>,
    upstream: Option<Upstream<'w>>,
}

/// A hub Connector and all that the rule reads.
pub(crate) struct View<'w> {
    pub(crate) at: &'w ObjectRef,
    pub(crate) hub: &'w Cluster,
    pub(crate) row: &'w Row<HubConnector>,
    /// `None` while the cluster that its labels name is not in the run.
    pub(crate) upstream: Option<Upstream<'w>>,
    pub(crate) memory: &'w MirrorMemory,
    /// Whether removals of that upstream, or of the whole fleet, are too many.
    pub(crate) breaker: BreakerState,
    pub(crate) is_leader: bool,
    /// The queue that has room for it in this moment.
    pub(crate) admitted_by: Option<QueueKey>,
}

#[derive(Clone, Copy)]
pub(crate) struct Upstream<'w> {
    pub(crate) cluster: &'w Cluster,
    pub(crate) connector: Option<&'w UpstreamConnector>,
    world: &'w World,
    named: &'w UpstreamRef,
}

impl Upstream<'_> {
    /// When it came to say what it says, or to be absent.
    pub(crate) fn changed_at(&self) -> UnixMillis {
        self.connector.map_or_else(|| self.absent_since(), |connector| connector.changed_at)
    }

    fn absent_since(&self) -> UnixMillis {
        self.link().map(|link| link.absent_since).unwrap_or_default()
    }

    fn is_deletion_seen(&self) -> bool {
        self.link().is_some_and(|link| link.is_deletion_seen)
    }

    /// Looked up only where the Connector does not exist.
    fn link(&self) -> Option<&Link> {
        self.world.links.get(self.named)
    }
}

/// What throughline remembers of a hub Connector for this rule.
#[derive(Debug, Default)]
pub(crate) struct MirrorMemory {
    /// Shared with the nudge: one write to one object at a time.
    pub(crate) write: WriteState,
    writing: Option<Writing>,
    observed_text: ObservedText,
    /// Limits mirrors that route. Deferred ones wait for it, too, but do not count.
    limiter: RateLimiter,
    /// Until then a mirror that routes waits in the queue of its upstream.
    repeats_until: UnixMillis,
    pub(crate) sync: SyncState,
    pub(crate) deferred_since: Option<UnixMillis>,
    pub(crate) held: Option<HoldReason>,
    /// When a hold or a person's pause ended. Nothing was late before.
    unblocked_at: UnixMillis,
}

/// Whether the annotation routes as upstream says, as far as this instance has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SyncState {
    #[default]
    NotSeen,
    Behind,
    /// `None`: it did so when this instance first saw it.
    Right {
        since: Option<UnixMillis>,
    },
}

/// What the write in flight makes of the annotation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    pub(crate) job: MirrorJob,
    compares_annotation: bool,
}

/// The annotation as the watch last showed it, to the byte. Tracked while writes meet conflicts.
#[derive(Debug, Default)]
enum ObservedText {
    #[default]
    NotTracked,
    Absent,
    Value(Box<str>),
}

/// What is true of the annotation. The hop rule, the view, the breakers and the notes read this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Disabled,
    /// The hub's watch is not live, so not even the annotation is known. All stays as it was.
    HubNotLive,
    Paused,
    /// What is desired is not known: a watch of the upstream is not live, or the namespace belongs
    /// to another tier.
    UpstreamNotLive,
    UpstreamNotConfigured,
    /// Upstream seems to say something else, and that is not acted on.
    Held(HoldReason),
    /// Upstream has no status, but not for long enough.
    AbsenceGrace(Ground),
    /// Upstream has no status, and too many removals are due, or this one waits for its turn.
    RemovalHeld(HoldReason, Ground),
    /// Upstream has no status, and the annotation still has one.
    RemovalDue {
        since: UnixMillis,
        ground: Ground,
    },
    /// Neither side has a status.
    BothAbsent,
    InSync,
    /// The difference does not affect routing.
    Deferred {
        since: UnixMillis,
    },
    OutOfSync {
        since: UnixMillis,
    },
}

/// Why it is believed that upstream has no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// A person allowed the removal by an annotation of the hub namespace.
    Allowed,
    /// A watch showed that the status, its Connector or its namespace went.
    Seen,
    /// Lists lack it. Nobody saw it go.
    Listed,
}

/// What was true before a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) sync: SyncState,
    pub(crate) held: Option<HoldReason>,
    pub(crate) is_deferred: bool,
}

/// What a breaker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The annotation would go. `is_seen`: a watch showed the loss.
    Wanted { is_seen: bool },
    /// The same, and a person allowed it.
    Allowed,
    /// It is to be absent, and it is.
    Done,
    /// It stays.
    No,
    /// What upstream says is not known.
    Unknown,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) verdict: Verdict,
    /// `None` where it is not known, or not acted on, what upstream says.
    pub(crate) change: Option<StatusChange>,
    pub(crate) oversize: Option<Oversize>,
    pub(crate) next: Next,
}

/// How upstream came to say what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusChange {
    pub(crate) at: UnixMillis,
    /// The watch showed it. It did not come with a list.
    pub(crate) is_observed: bool,
    pub(crate) is_online: bool,
}

/// The status does not fit into the annotations of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Oversize {
    pub(crate) bytes: usize,
    pub(crate) room: usize,
    /// What routing needs fits.
    pub(crate) is_reduced: bool,
}

impl<'w> Place<'w> {
    /// `None` where there is no such hub Connector.
    pub(crate) fn find(world: &'w World, at: &'w ObjectRef) -> Option<Self> {
        let hub = world.clusters.get(&at.cluster)?;
        let row = hub.hub_connectors.get(&at.name)?;

        let upstream = row.seen.upstream.as_ref().and_then(|named| {
            let cluster = world.upstream_named(&named.cluster)?;
            let connector = cluster.upstream_connectors.get(&named.name).map(|row| &row.seen);
            Some(Upstream { cluster, connector, world, named })
        });
        Some(Self { at, hub, row, upstream })
    }

    /// The upstream that its labels name, whether or not it is in the run.
    pub(crate) fn named(self) -> Option<&'w ClusterName> {
        self.row.seen.upstream.as_ref().map(|named| &named.cluster)
    }

    pub(crate) fn view<'v>(self, memory: &'v MirrorMemory, is_leader: bool) -> View<'v>
    where
        'w: 'v,
    {
        let Self { at, hub, row, upstream } = self;
        let breaker = BreakerState::default();
        View { at, hub, row, upstream, memory, breaker, is_leader, admitted_by: None }
    }
}

pub(crate) fn plan(view: &View<'_>, settings: &Settings, now: UnixMillis) -> Plan {
    let desired = match desired(view, &settings.mirror, now) {
        Ok(desired) => desired,
        Err(undecided) => return undecided.leave(),
    };

    let change = Some(desired.change);
    let plan = match compare(view.row.seen.annotation, &desired) {
        Difference::None => Plan::in_sync(&desired),
        Difference::Removed => plan_removal(view, desired, &settings.mirror, now),
        Difference::Other if settings.mirror.defer_ms > 0 => {
            plan_deferred_mirror(view, desired, &settings.mirror, now)
        }
        Difference::Routing | Difference::Other => {
            plan_mirror(view, desired, &settings.mirror, now)
        }
    };
    Plan { change, ..plan }
}

/// How the annotation differs from what is desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    None,
    /// Upstream has no status any more.
    Removed,
    /// In what edges route by.
    Routing,
    /// In anything else.
    Other,
}

fn compare(observed: Option<StatusDigest>, desired: &Desired<'_>) -> Difference {
    match (observed, desired.annotation.digest) {
        (None, None) => Difference::None,
        (Some(observed), Some(desired)) if observed.all == desired.all => Difference::None,
        (Some(_), None) if desired.status.is_none() => Difference::Removed,
        // An annotation that does not decode may route, so it is never deferred.
        (Some(observed), Some(desired))
            if desired.routing.is_some() && observed.routing == desired.routing =>
        {
            Difference::Other
        }
        _ => Difference::Routing,
    }
}

/// Requests may go wrong until it is written.
fn plan_mirror(
    view: &View<'_>,
    desired: Desired<'_>,
    settings: &MirrorSettings,
    now: UnixMillis,
) -> Plan {
    let verdict = Verdict::OutOfSync { since: view.late_from(desired.since, now) };
    let oversize = desired.annotation.oversize;
    let limited_until = view.memory.limiter.ready_at(CONNECTOR_RATE);

    let next = match view.memory.write.retry() {
        Some(retry) if view.is_leader => plan_retry(view, desired, retry, now),
        _ => view.write_at(limited_until, now, || {
            let queue = queue_of(view, &desired, settings, now);
            view.in_queue(queue, Due::at(now), now, || mirror_write(view, desired))
        }),
    };
    Plan { oversize, next, ..Plan::leave(verdict) }
}

/// The last attempt failed. Its pause ends in a queue, so that of many that failed together each
/// has its turn.
fn plan_retry(view: &View<'_>, desired: Desired<'_>, retry: Retry, now: UnixMillis) -> Next {
    let Retry { at, early_from } = retry;
    let queue = QueueKey::Retries(view.at.cluster);

    match view.memory.write.paused_until() {
        Some(until) if until > now => Next::RequeueAt(until),
        _ => {
            let due = Due { rank: Rank::Urgent, at, early_from };
            Next::Write(view.in_queue(queue, due, now, || mirror_write(view, desired)))
        }
    }
}

/// No edge routes by the difference, so it waits and never delays one that routes.
fn plan_deferred_mirror(
    view: &View<'_>,
    desired: Desired<'_>,
    settings: &MirrorSettings,
    now: UnixMillis,
) -> Plan {
    let since = view.memory.deferred_since.unwrap_or(now);
    let oversize = desired.annotation.oversize;
    let due_at = since.plus(settings.defer_ms.max(DEFER_MS_MIN));
    let limited_until = view.memory.limiter.ready_at(CONNECTOR_RATE);

    let next = view.write_at(due_at.max(limited_until), now, || {
        let queue = QueueKey::Deferrable(view.at.cluster);
        view.in_queue(queue, Due::at(due_at), now, || deferred_write(view, desired, since, now))
    });
    Plan { oversize, next, ..Plan::leave(Verdict::Deferred { since }) }
}

/// A stale "online" keeps users on a dead tunnel.
fn plan_removal(
    view: &View<'_>,
    desired: Desired<'_>,
    settings: &MirrorSettings,
    now: UnixMillis,
) -> Plan {
    let ground = view.ground();
    let is_allowed = ground == Ground::Allowed;
    if view.breaker.is_tripped && !is_allowed {
        return Plan::leave(Verdict::RemovalHeld(HoldReason::TooMany, ground));
    }

    // The platform usually deletes the hub Connector itself within the grace period, which starts
    // again when removals were too many.
    let reset_at = view.breaker.reset_at.filter(|_| !is_allowed);
    let since = reset_at.map_or(desired.since, |reset_at| reset_at.max(desired.since));
    let due_at = since.plus(settings.absent_grace_ms);
    if now < due_at {
        let next = Next::RequeueAt(due_at);
        return Plan { next, ..Plan::leave(Verdict::AbsenceGrace(ground)) };
    }

    let next = view.write_at(now, now, || {
        let queue = if is_allowed { QueueKey::AllowedRemovals } else { QueueKey::Removals };
        view.in_queue(queue, Due::at(now), now, || removal_write(view, desired))
    });
    let verdict = match next {
        // Removals a minute are few, so who waits for them is held rather than late.
        Next::Write(Turn::Waits { queue: QueueKey::Removals, .. }) => {
            Verdict::RemovalHeld(HoldReason::Budget, ground)
        }
        _ => Verdict::RemovalDue { since: view.late_from(due_at, now), ground },
    };
    Plan { next, ..Plan::leave(verdict) }
}

/// Which queue a mirror waits in.
fn queue_of(
    view: &View<'_>,
    desired: &Desired<'_>,
    settings: &MirrorSettings,
    now: UnixMillis,
) -> QueueKey {
    let is_overwritten = view.overwritten_at(desired).is_some();
    let overwrites = view.memory.write.contention().map_or(0, Contention::overwrites);

    // A writer that contends for one value often contends for a whole fleet's.
    if is_overwritten && overwrites >= settings.contention_count {
        QueueKey::Rewrites(view.at.cluster)
    } else if now < view.memory.repeats_until {
        QueueKey::Repeats(desired.upstream.cluster.id)
    } else {
        QueueKey::Immediate
    }
}

fn mirror_write(view: &View<'_>, desired: Desired<'_>) -> Write {
    let because = mirror_because(view, &desired);
    view.write(Intent::Mirror, desired, because)
}

fn deferred_write(
    view: &View<'_>,
    desired: Desired<'_>,
    since: UnixMillis,
    now: UnixMillis,
) -> Write {
    let changed = match view.overwritten_at(&desired) {
        Some(_) => "another writer changed the hub's annotation",
        None => "upstream's status changed",
    };
    let waited_s = now.since(since) / 1_000;
    let because = format!("{changed}, but not what routes; waited {waited_s} s");
    view.write(Intent::Deferred, desired, because)
}

fn removal_write(view: &View<'_>, desired: Desired<'_>) -> Write {
    let because = match desired.absent {
        Some(_) => "the Connector no longer exists upstream, so the hub may not claim a status",
        None => "upstream has no status, so the hub may not claim one",
    };
    view.write(Intent::Removal, desired, because.to_owned())
}

fn mirror_because(view: &View<'_>, desired: &Desired<'_>) -> String {
    let is_online = desired.status.is_some_and(|status| status.is_online);
    let says = if is_online { "online" } else { "offline" };

    if desired.annotation.digest.is_none() {
        "no part of upstream's status fits, and a stale one may not stay".to_owned()
    } else if view.overwritten_at(desired).is_some() {
        format!("another writer changed the hub's annotation; upstream says {says}")
    } else if view.row.seen.annotation.is_none() {
        format!("upstream says {says}, the hub has no annotation")
    } else {
        format!("upstream says {says}, the hub's annotation says something else")
    }
}

impl<'w> View<'w> {
    /// Only the leader writes.
    fn write_at(&self, at: UnixMillis, now: UnixMillis, turn: impl FnOnce() -> Turn) -> Next {
        if !self.is_leader {
            return Next::AwaitChange;
        }
        Next::write_at(at, self.memory.write.readiness(now), now, turn)
    }

    fn in_queue(
        &self,
        queue: QueueKey,
        due: Due,
        now: UnixMillis,
        write: impl FnOnce() -> Write,
    ) -> Turn {
        Turn::in_queue(queue, due, self.admitted_by, now, write)
    }

    fn write(&self, intent: Intent, desired: Desired<'_>, because: String) -> Write {
        let Desired { annotation: Annotation { text, digest, .. }, absent, .. } = desired;
        let mut precondition = self.precondition();
        if let Some(absent) = absent {
            absent.put_into(&mut precondition);
        }
        Write {
            job: Job::Mirror(self.at.clone(), MirrorJob { intent, digest }),
            annotations: vec![(UPSTREAM_STATUS.to_owned(), text.spelled())],
            precondition,
            connectors: vec![self.at.name.key()],
            urgency: match intent {
                Intent::Mirror | Intent::Removal => Urgency::Routing,
                Intent::Deferred => Urgency::Deferrable,
            },
            because,
        }
    }

    /// That the object has not changed, or, while others change it faster than a write takes, that
    /// the annotation has not.
    fn precondition(&self) -> Precondition {
        let unchanged = self.unchanged();
        let value = match &self.memory.observed_text {
            ObservedText::Absent => None,
            ObservedText::Value(text) => Some(text.as_ref().to_owned()),
            ObservedText::NotTracked => return unchanged,
        };
        if !self.memory.write.is_starving() {
            return unchanged;
        }

        let key = UPSTREAM_STATUS.to_owned();
        let before = AnnotationBefore { key, value, no_annotations: false };
        Precondition { resource_version: None, annotation: Some(Box::new(before)), ..unchanged }
    }

    /// That the object is as the watch shows it.
    pub(crate) fn unchanged(&self) -> Precondition {
        let Row { uid, version, .. } = self.row;
        Precondition {
            uid: uid.text(),
            resource_version: version.text(),
            ..Precondition::default()
        }
    }

    /// When another writer changed the annotation, if that was after upstream last changed.
    fn overwritten_at(&self, desired: &Desired<'_>) -> Option<UnixMillis> {
        let last_at = self.memory.write.contention().map(Contention::last_at)?;
        (last_at > desired.since).then_some(last_at)
    }

    /// Since when it is late, if it was right until another writer made it wrong.
    fn late_from(&self, since: UnixMillis, now: UnixMillis) -> UnixMillis {
        let overwritten_at = self.memory.write.contention().map(Contention::last_at);
        self.unblocked_from(since, now).max(overwritten_at.unwrap_or_default())
    }

    /// Nothing was late while it could not be known, was held or was paused.
    pub(crate) fn unblocked_from(&self, since: UnixMillis, now: UnixMillis) -> UnixMillis {
        let MirrorMemory { held, unblocked_at, .. } = self.memory;
        let hub_live_since = self.hub.live_since(Kind::Connector);
        // Held until now.
        let held_until = held.map(|_| now);

        let bounds = [Some(*unblocked_at), held_until, hub_live_since];
        bounds.into_iter().flatten().fold(since, UnixMillis::max)
    }

    pub(crate) fn digest(&self) -> Option<Digest> {
        self.row.seen.annotation.map(|annotation| annotation.all)
    }

    fn ground(&self) -> Ground {
        let is_loss_seen = self.upstream.is_some_and(|upstream| match upstream.connector {
            Some(connector) => connector.is_loss_seen,
            None => upstream.is_deletion_seen(),
        });
        if self.hub.allows_removals(self.at.name.namespace()) {
            Ground::Allowed
        } else if is_loss_seen || self.row.seen.namespace_deleted_at.is_some() {
            Ground::Seen
        } else {
            Ground::Listed
        }
    }
}

impl Plan {
    fn in_sync(desired: &Desired<'_>) -> Self {
        let verdict = match desired.status {
            Some(_) => Verdict::InSync,
            None => Verdict::BothAbsent,
        };
        Self { oversize: desired.annotation.oversize, ..Self::leave(verdict) }
    }

    /// The annotation stays as it is.
    fn leave(verdict: Verdict) -> Self {
        Self { verdict, change: None, oversize: None, next: Next::AwaitChange }
    }
}

impl Verdict {
    /// A removal counts from the moment at which the upstream status goes missing, not from the end
    /// of the grace period. `None`: all stays as it was.
    pub(crate) fn removal(self) -> Option<Removal> {
        Some(match self {
            Self::Disabled | Self::HubNotLive => return None,
            Self::UpstreamNotLive | Self::UpstreamNotConfigured => Removal::Unknown,
            Self::AbsenceGrace(ground)
            | Self::RemovalHeld(_, ground)
            | Self::RemovalDue { ground, .. } => match ground {
                Ground::Allowed => Removal::Allowed,
                Ground::Seen => Removal::Wanted { is_seen: true },
                Ground::Listed => Removal::Wanted { is_seen: false },
            },
            Self::BothAbsent => Removal::Done,
            Self::Paused
            | Self::Held(_)
            | Self::InSync
            | Self::Deferred { .. }
            | Self::OutOfSync { .. } => Removal::No,
        })
    }

    pub(crate) fn hold_reason(self) -> Option<HoldReason> {
        match self {
            Self::Held(reason) | Self::RemovalHeld(reason, _) => Some(reason),
            _ => None,
        }
    }

    /// The annotation routes as upstream says.
    pub(crate) fn is_right(self) -> bool {
        matches!(self, Self::InSync | Self::BothAbsent | Self::Deferred { .. })
    }
}

/// What the annotation should say.
struct Desired<'w> {
    upstream: Upstream<'w>,
    /// `None`: upstream has no status.
    status: Option<&'w Status>,
    /// Its Connector does not exist.
    absent: Option<Absent>,
    /// Since when it is desired: upstream said it, and its watch was live.
    since: UnixMillis,
    change: StatusChange,
    annotation: Annotation<'w>,
}

/// Why it is not known what is desired, or not acted on.
struct Undecided {
    verdict: Verdict,
    until: Option<UnixMillis>,
}

impl Undecided {
    fn leave(self) -> Plan {
        let next = self.until.map_or(Next::AwaitChange, Next::RequeueAt);
        Plan { next, ..Plan::leave(self.verdict) }
    }
}

impl From<Verdict> for Undecided {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, until: None }
    }
}

fn desired<'w>(
    view: &View<'w>,
    settings: &MirrorSettings,
    now: UnixMillis,
) -> Result<Desired<'w>, Undecided> {
    if !settings.enabled {
        return Err(Verdict::Disabled.into());
    }
    if !view.hub.is_live(Kind::Connector) {
        return Err(Verdict::HubNotLive.into());
    }
    if view.row.seen.is_paused {
        return Err(Verdict::Paused.into());
    }
    let upstream = view.upstream.ok_or(Verdict::UpstreamNotConfigured)?;

    let hub_namespace = view.at.name.namespace();
    let live_since =
        upstream.cluster.live_since(Kind::Connector).ok_or(Verdict::UpstreamNotLive)?;
    if !view.hub.is_hub_namespace(hub_namespace) {
        return Err(Verdict::UpstreamNotLive.into());
    }

    match connector_in_place(&upstream, hub_namespace)? {
        Some(connector) => desired_by(connector, upstream, live_since, view, settings, now),
        None => desired_by_absence(upstream, live_since, view, now),
    }
}

/// The upstream Connector, if it is in the namespace that the hub Connector was copied from: a
/// namespace of the same name may be another place.
fn connector_in_place<'w>(
    upstream: &Upstream<'w>,
    hub_namespace: &str,
) -> Result<Option<&'w UpstreamConnector>, Verdict> {
    let namespace = upstream.named.name.namespace();
    let identity = namespace_identity(upstream.cluster, hub_namespace, namespace);
    if identity != NamespaceIdentity::Agrees {
        return Ok(None);
    }

    match upstream.cluster.is_upstream_namespace(namespace) {
        true => Ok(upstream.connector),
        false => Err(Verdict::UpstreamNotLive),
    }
}

fn desired_by<'w>(
    connector: &'w UpstreamConnector,
    upstream: Upstream<'w>,
    live_since: UnixMillis,
    view: &View<'w>,
    settings: &MirrorSettings,
    now: UnixMillis,
) -> Result<Desired<'w>, Undecided> {
    let status = match &connector.status {
        UpstreamStatus::Unreadable { .. } => {
            return Err(Verdict::Held(HoldReason::Unreadable).into());
        }
        UpstreamStatus::None => None,
        UpstreamStatus::Read(status) => Some(status),
    };

    // A restored API server shows old statuses until the platform reports again.
    let settled_at = upstream.cluster.restored_at.map(|at| at.plus(settings.restored_settle_ms));
    let differs = status.map(|status| status.digest.all) != view.digest();
    if connector.is_before_restore && differs && settled_at.is_some_and(|until| now < until) {
        return Err(Undecided { verdict: Verdict::Held(HoldReason::Restored), until: settled_at });
    }

    let UpstreamConnector { changed_at, .. } = *connector;
    let annotation = fit(status, &view.row.seen, settings);
    let is_online = annotation.digest.is_some() && connector.was_online();
    let change = StatusChange { at: changed_at, is_observed: changed_at > live_since, is_online };
    let since = changed_at.max(live_since);
    Ok(Desired { upstream, status, absent: None, since, change, annotation })
}

/// Upstream has no such Connector: then nothing is desired, if that can be proven.
fn desired_by_absence<'w>(
    upstream: Upstream<'w>,
    live_since: UnixMillis,
    view: &View<'w>,
    now: UnixMillis,
) -> Result<Desired<'w>, Undecided> {
    let Upstream { cluster, connector, named, .. } = upstream;
    let name = &named.name;
    let hub_namespace = view.at.name.namespace();
    let HubConnector { annotation: observed, namespace_deleted_at, .. } = view.row.seen;
    let claim = Claim {
        hub_namespace,
        namespace: name.namespace(),
        namespace_deleted_at,
        kind: Kind::Connector,
        names: vec![name.name().to_owned()],
        absent_since: Some(upstream.absent_since()),
        exists: connector.is_some(),
        is_deletion_seen: upstream.is_deletion_seen(),
        max_age_ms: None,
    };
    let identity = namespace_identity(cluster, hub_namespace, name.namespace());
    let is_in_place = identity == NamespaceIdentity::Agrees || namespace_deleted_at.is_some();

    let changed_at = upstream.changed_at();
    let (since, absent) = match prove_absence(cluster, claim, now) {
        Ok(AbsenceProof { since, absent }) => (since, Some(absent)),
        // The hub says nothing, either: that needs no proof.
        Err(_) if observed.is_none() && is_in_place => (changed_at, None),
        Err(no_proof) => return Err(verdict_without(no_proof).into()),
    };
    let change =
        StatusChange { at: changed_at, is_observed: changed_at > live_since, is_online: false };
    let annotation = Annotation::default();
    Ok(Desired { upstream, status: None, absent, since, change, annotation })
}

fn verdict_without(no_proof: NoProof) -> Verdict {
    match no_proof {
        NoProof::NamespaceMissing => Verdict::Held(HoldReason::NamespaceMissing),
        NoProof::NamespaceDiffers => Verdict::Held(HoldReason::NamespaceDiffers),
        NoProof::Unreadable => Verdict::Held(HoldReason::Unreadable),
        NoProof::Restored => Verdict::Held(HoldReason::Restored),
        NoProof::NotListed | NoProof::NotUpstream | NoProof::Exists | NoProof::Stale => {
            Verdict::UpstreamNotLive
        }
    }
}

/// What the annotation should be, to the byte. Nothing by default.
#[derive(Default)]
struct Annotation<'w> {
    text: Text<'w>,
    digest: Option<StatusDigest>,
    oversize: Option<Oversize>,
}

/// Spelled only where it is written.
#[derive(Default)]
enum Text<'w> {
    #[default]
    Nothing,
    Whole(&'w Status),
    Reduced(String),
}

impl Text<'_> {
    fn spelled(self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Whole(status) => Some(status.text.text()),
            Self::Reduced(text) => Some(text),
        }
    }
}

/// Fits a status under the annotation limit: whole, reduced to what routing needs, or not at all.
/// No annotation is better than a stale one.
fn fit<'w>(
    status: Option<&'w Status>,
    row: &HubConnector,
    settings: &MirrorSettings,
) -> Annotation<'w> {
    let Some(status) = status else { return Annotation::default() };

    let other_bytes = row.other_annotation_bytes as usize + UPSTREAM_STATUS.len();
    let room = settings.annotation_limit_bytes.saturating_sub(other_bytes);
    let bytes = status.bytes as usize;
    if bytes <= room {
        let text = Text::Whole(status);
        return Annotation { text, digest: Some(status.digest), oversize: None };
    }

    let reduced = go_json::reduce(&status.text.text()).filter(|reduced| reduced.len() <= room);
    let oversize = Some(Oversize { bytes, room, is_reduced: reduced.is_some() });
    let digest = reduced.as_deref().map(digest_of);
    let text = reduced.map_or(Text::Nothing, Text::Reduced);
    Annotation { text, digest, oversize }
}

fn digest_of(text: &str) -> StatusDigest {
    let routing = liveness::decode(text).as_ref().map(Liveness::routing);
    StatusDigest { all: Digest::of_bytes(text), routing }
}

/// Whether another writer changed an annotation that was right.
pub(crate) fn is_overwritten(view: &View<'_>, before: Option<StatusDigest>) -> bool {
    let Some(upstream) = view.upstream else { return false };
    let said = upstream.connector.and_then(UpstreamConnector::said);
    let desired = said.map(|status| status.digest.all);
    let before = before.map(|before| before.all);
    let after = view.digest();

    // While the rest is deferred, the annotation still routes as it should.
    let is_deferred = view.memory.deferred_since.is_some() && !view.memory.is_writing(after);
    let was_as_desired = before == desired || (is_deferred && after != desired);
    before != after && was_as_desired && view.was_right(upstream)
}

impl View<'_> {
    /// Nothing is remembered of one that is at rest: once all was listed, it was right.
    fn was_right(&self, upstream: Upstream<'_>) -> bool {
        match self.memory.sync {
            SyncState::Right { .. } => true,
            SyncState::Behind => false,
            SyncState::NotSeen => {
                let clusters = [self.hub, upstream.cluster];
                let is_listed = |cluster: &Cluster| cluster.listed_since(Kind::Connector).is_some();
                self.memory.held.is_none()
                    && clusters.into_iter().all(is_listed)
                    && self.is_in_place(upstream)
            }
        }
    }

    /// Whether upstream's namespace is known, and is the one that the hub Connector was copied from.
    fn is_in_place(&self, upstream: Upstream<'_>) -> bool {
        let Upstream { cluster, named, .. } = upstream;
        let hub_namespace = self.at.name.namespace();
        let identity = namespace_identity(cluster, hub_namespace, named.name.namespace());
        identity == NamespaceIdentity::Agrees
    }
}

impl SyncState {
    /// When this instance saw it come to route as upstream says.
    pub(crate) fn right_since(self) -> Option<UnixMillis> {
        match self {
            Self::Right { since } => since,
            Self::NotSeen | Self::Behind => None,
        }
    }

    /// The annotation is right now.
    fn right(self, now: UnixMillis) -> Self {
        match self {
            Self::NotSeen => Self::Right { since: None },
            Self::Behind => Self::Right { since: Some(now) },
            Self::Right { .. } => self,
        }
    }
}

impl Before {
    /// The difference that waited is gone.
    pub(crate) fn was_deferred(self, verdict: Verdict) -> bool {
        self.is_deferred && !matches!(verdict, Verdict::Deferred { .. })
    }

    /// Whether the annotation comes to say what upstream says with this verdict, or to route alike.
    pub(crate) fn is_mirrored(self, verdict: Verdict) -> bool {
        verdict.is_right() && (self.sync == SyncState::Behind || self.was_deferred(verdict))
    }
}

impl MirrorMemory {
    /// The watch showed the object in a new version, with this annotation.
    pub(crate) fn on_seen(&mut self, annotation: Option<&str>) {
        self.write.on_object_changed();
        self.observed_text = match annotation {
            _ if !self.write.is_conflicting() => ObservedText::NotTracked,
            None => ObservedText::Absent,
            Some(text) => ObservedText::Value(text.into()),
        };
    }

    /// A person's pause ended: what is out of sync counts as late from now on.
    pub(crate) fn on_resumed(&mut self, now: UnixMillis) {
        self.unblocked_at = now;
    }

    /// It waits among those of its upstream that change again and again.
    pub(crate) fn on_waits_in_repeats(&mut self, now: UnixMillis) {
        self.repeats_until = now.plus(REPEAT_MS);
    }

    pub(crate) fn before(&self) -> Before {
        let is_deferred = self.deferred_since.is_some();
        Before { sync: self.sync, held: self.held, is_deferred }
    }

    /// Nobody knows any longer what is desired.
    pub(crate) fn on_upstream_left(&mut self) {
        self.sync = SyncState::NotSeen;
    }

    pub(crate) fn on_verdict(&mut self, verdict: Verdict, now: UnixMillis) {
        if matches!(verdict, Verdict::HubNotLive | Verdict::UpstreamNotLive) {
            return;
        }

        let held = verdict.hold_reason();
        if self.held.is_some() && held.is_none() {
            self.unblocked_at = now;
        }
        self.held = held;
        self.sync = self.sync_after(verdict, now);
        self.deferred_since = match verdict {
            Verdict::Deferred { since } => Some(since),
            _ => None,
        };
        if verdict == Verdict::Paused {
            // What went wrong before says nothing about the time after.
            self.forget_writes();
        }
    }

    fn sync_after(&self, verdict: Verdict, now: UnixMillis) -> SyncState {
        match verdict {
            Verdict::Disabled | Verdict::Paused | Verdict::UpstreamNotConfigured => {
                SyncState::NotSeen
            }
            Verdict::OutOfSync { .. } | Verdict::RemovalDue { .. } => SyncState::Behind,
            Verdict::InSync | Verdict::BothAbsent if self.deferred_since.is_some() => {
                SyncState::Right { since: Some(now) }
            }
            verdict if verdict.is_right() => self.sync.right(now),
            _ => self.sync,
        }
    }

    pub(crate) fn on_decided(&mut self, planned: &PlannedWrite, now: UnixMillis) {
        let Job::Mirror(_, job) = &planned.write.job else { return };
        let compares_annotation = planned.write.precondition.annotation.is_some();
        self.writing = Some(Writing { job: *job, compares_annotation });

        if job.intent == Intent::Mirror {
            self.limiter.take(CONNECTOR_RATE, now);
        }
        if let QueueKey::Rewrites(_) = planned.queue {
            let overwritten_at = self.write.contention().map(Contention::last_at);
            let due_at = overwritten_at.max(self.write.not_before()).unwrap_or(now);
            self.write.on_rewrite_queued(now.since(due_at));
        }
    }

    /// Returns what became of the write, and what it makes of the annotation; the latter is `None`
    /// for a nudge. `None`: the action was given up before.
    pub(crate) fn on_finished(
        &mut self,
        id: ActionId,
        outcome: &Outcome,
        settings: &Settings,
        now: UnixMillis,
    ) -> Option<(Completion, Option<Writing>)> {
        let completion = self.write.on_finished(id, outcome, &settings.retry, now)?;
        let writing = self.writing.take();

        if let Some(Writing { job, .. }) = writing
            && let Completion::Written { .. } = completion
        {
            self.on_written(job.intent, now);
        }
        Some((completion, writing))
    }

    fn on_written(&mut self, intent: Intent, now: UnixMillis) {
        if intent == Intent::Mirror {
            self.repeats_until = now.plus(REPEAT_MS);
        }
        if self.deferred_since.is_some() {
            // What upstream says by now is another difference.
            self.deferred_since = Some(now);
            self.sync = SyncState::Right { since: Some(now) };
        }
    }

    /// Another writer changed an annotation that was right. Returns how long the next write waits,
    /// if it has to.
    pub(crate) fn on_overwritten(
        &mut self,
        manager: Option<&str>,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) -> Option<u64> {
        let limits = ContentionLimits {
            pause_from: settings.contention_count,
            first_ms: settings.contention_backoff_ms,
            max_ms: settings.contention_backoff_max_ms,
            quiet_ms: settings.contention_quiet_ms,
        };
        self.write.on_overwritten(manager, &limits, now)
    }

    /// Every edge says what the hub says. What went wrong before is over, unless another writer may
    /// undo it again.
    pub(crate) fn on_settled(&mut self, settings: &MirrorSettings, now: UnixMillis) {
        let contention = self.write.contention();
        if !contention.is_some_and(|last| last.is_recent(settings.contention_quiet_ms, now)) {
            self.forget_writes();
        }
    }

    fn forget_writes(&mut self) {
        if !self.write.is_in_flight() {
            self.write = WriteState::default();
            self.observed_text = ObservedText::NotTracked;
        }
    }

    fn is_writing(&self, annotation: Option<Digest>) -> bool {
        let writes = |writing: Writing| writing.job.digest.map(|digest| digest.all) == annotation;
        self.writing.is_some_and(writes)
    }

    /// Without this memory the same would be planned.
    pub(crate) fn is_at_rest(&self, now: UnixMillis) -> bool {
        let is_limited = self.limiter.ready_at(Rate::every_ms(DEFER_MS_MIN, 1)) > now;
        self.write.is_idle()
            && self.writing.is_none()
            && !is_limited
            && self.repeats_until <= now
            && self.sync != SyncState::Behind
            && self.deferred_since.is_none()
            && self.held.is_none()
    }
}

impl Writing {
    /// The annotation itself is not what the watch showed: that is more than a busy object. Without
    /// this, two writers would go at each other's speed.
    pub(crate) fn shows_overwrite(self, outcome: &Outcome) -> bool {
        self.compares_annotation && matches!(outcome, Outcome::Conflict { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::event::EventKind;
    use crate::data::ids::Role;
    use crate::data::name::NamespacedName;
    use crate::data::objects::{ALLOW_REMOVALS, PAUSED};
    use crate::next::world::fixture::{self, Builder, connector, namespace};
    use crate::next::write_state::{FailureClass, Readiness};

    const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
    const UPSTREAM_NAMESPACE: &str = "default";

    /// One hub Connector and the upstream Connector that it names.
    struct Stage {
        stage: fixture::Stage,
        at: ObjectRef,
        memory: MirrorMemory,
        breaker: BreakerState,
        is_leader: bool,
        settings: Settings,
        version: u64,
    }

    fn hub_namespace() -> String {
        format!("ns-{UID}")
    }

    /// Online on a node, at an address.
    fn online(node: &str, address: u32) -> String {
        format!(
            r#"{{"conditions":[{{"status":"True","type":"Ready"}}],"connectionDetails":{{"publicKey":{{"homeRelay":"r{address}","id":"{node}"}},"type":"PublicKey"}}}}"#
        )
    }

    fn conflict() -> Outcome {
        Outcome::Conflict { error: "409".into() }
    }

    fn forbidden() -> Outcome {
        Outcome::Refused { error: "403".into() }
    }

    impl Stage {
        fn new() -> Self {
            let settings = Settings::default();
            let mut stage = fixture::Stage::new(&settings);
            stage.add("up", &[Role::Upstream]);
            let hub = stage.add("hub", &[Role::Hub]);
            let name = NamespacedName::new(&hub_namespace(), "lab");
            let at = ObjectRef { cluster: hub, kind: Kind::Connector, name };

            let mut stage = Self {
                stage,
                at,
                memory: MirrorMemory::default(),
                breaker: BreakerState::default(),
                is_leader: true,
                settings,
                version: 100,
            };
            stage.shows_namespace();
            stage
        }

        /// Upstream says another node than the hub.
        fn flipped() -> Self {
            let mut stage = Self::new();
            stage.upstream_says(Some(&online("n2", 1)));
            stage.hub_says(Some(&online("n1", 1)));
            stage
        }

        /// Upstream's Connector does not exist, and the hub has an annotation.
        fn missing() -> Self {
            let mut stage = Self::new();
            stage.hub_says(Some(&online("n1", 1)));
            stage
        }

        fn next_version(&mut self) -> u64 {
            self.version += 1;
            self.version
        }

        fn shows_namespace(&mut self) {
            let version = self.next_version();
            self.stage.shows("up", namespace(UPSTREAM_NAMESPACE, UID, version));
        }

        fn upstream_connector(&mut self) -> Builder {
            let version = self.next_version();
            connector(UPSTREAM_NAMESPACE, "lab", version)
        }

        fn upstream_says(&mut self, status: Option<&str>) {
            let connector = self.upstream_connector().status(status);
            self.stage.shows("up", connector);
        }

        fn hub_connector(&mut self, annotation: Option<&str>) -> Builder {
            let version = self.next_version();
            let connector = connector(&hub_namespace(), "lab", version).uid("u-hub");
            let connector = connector.of("up", UPSTREAM_NAMESPACE, "lab");
            match annotation {
                Some(text) => connector.annotation(UPSTREAM_STATUS, text),
                None => connector,
            }
        }

        fn hub_says(&mut self, annotation: Option<&str>) {
            let connector = self.hub_connector(annotation);
            self.stage.shows("hub", connector);
        }

        fn lose(&mut self, kind: Kind) {
            let error = "lost".into();
            self.stage.tell(EventKind::WatchLost { cluster: "up".into(), kind, error });
        }

        fn now(&self) -> UnixMillis {
            self.stage.now
        }

        fn later(&self, ms: u64) -> UnixMillis {
            self.stage.now.plus(ms)
        }

        fn view(&self) -> View<'_> {
            let place = Place::find(&self.stage.world, &self.at).unwrap();
            View { breaker: self.breaker, ..place.view(&self.memory, self.is_leader) }
        }

        fn plan(&self, now: UnixMillis) -> Plan {
            plan(&self.view(), &self.settings, now)
        }

        fn verdict(&self, now: UnixMillis) -> Verdict {
            self.plan(now).verdict
        }

        fn turn(&self, now: UnixMillis) -> Option<(QueueKey, Due)> {
            match self.plan(now).next {
                Next::Write(Turn::Goes(planned)) => Some((planned.queue, planned.due)),
                Next::Write(Turn::Waits { queue, due }) => Some((queue, due)),
                Next::AwaitChange | Next::RequeueAt(_) => None,
            }
        }

        fn queue(&self, now: UnixMillis) -> Option<QueueKey> {
            self.turn(now).map(|(queue, _)| queue)
        }

        /// The write that goes once its queue has room for it.
        fn planned(&self, now: UnixMillis) -> Option<PlannedWrite> {
            let admitted_by = self.queue(now);
            match plan(&View { admitted_by, ..self.view() }, &self.settings, now).next {
                Next::Write(Turn::Goes(planned)) => Some(*planned),
                _ => None,
            }
        }

        fn write(&mut self, outcome: &Outcome, now: UnixMillis) {
            let planned = self.planned(now).expect("a write is planned");
            self.memory.on_decided(&planned, now);
            self.memory.write.on_started(ActionId(1));
            self.memory.on_finished(ActionId(1), outcome, &self.settings, now).unwrap();
        }

        fn overwrite(&mut self, now: UnixMillis) -> Option<u64> {
            self.memory.on_overwritten(None, &self.settings.mirror, now)
        }
    }

    #[test]
    fn a_flip_is_written_at_once_by_the_leader() {
        let mut stage = Stage::flipped();

        let PlannedWrite { write, queue, .. } = stage.planned(stage.now()).unwrap();
        assert_eq!(queue, QueueKey::Immediate);
        assert_eq!(write.annotations, [(UPSTREAM_STATUS.to_owned(), Some(online("n2", 1)))]);
        assert_eq!(write.urgency, Urgency::Routing);
        assert_eq!(write.precondition.uid.as_deref(), Some("u-hub"));
        assert!(write.precondition.resource_version.is_some());
        assert_eq!(write.because, "upstream says online, the hub's annotation says something else");

        stage.is_leader = false;
        assert_eq!(stage.plan(stage.now()).next, Next::AwaitChange);
    }

    #[test]
    fn a_change_that_does_not_route_is_written_after_5_s() {
        let mut stage = Stage::flipped();
        stage.hub_says(Some(&online("n2", 7)));
        let now = stage.now();

        let plan = stage.plan(now);
        assert_eq!(plan.verdict, Verdict::Deferred { since: now });
        assert_eq!(plan.next, Next::RequeueAt(now.plus(5_000)));

        stage.memory.on_verdict(plan.verdict, now);
        let planned = stage.planned(now.plus(5_000)).unwrap();
        assert_eq!(planned.queue, QueueKey::Deferrable(stage.at.cluster));
        assert_eq!(
            planned.write.because,
            "upstream's status changed, but not what routes; waited 5 s"
        );
    }

    #[test]
    fn an_annotation_that_says_the_same_is_in_sync_however_it_is_spelled() {
        let mut stage = Stage::flipped();
        stage.hub_says(Some(&online("n2", 1).replace(':', " : ")));

        assert_eq!(stage.verdict(stage.now()), Verdict::InSync);
    }

    #[test]
    fn an_annotation_that_does_not_decode_is_never_deferred() {
        let mut stage = Stage::flipped();
        stage.hub_says(Some("[]"));

        assert_eq!(stage.queue(stage.now()), Some(QueueKey::Immediate));
    }

    #[test]
    fn an_annotation_is_removed_with_a_proof_after_the_grace_period() {
        let stage = Stage::missing();

        let plan = stage.plan(stage.now());
        assert_eq!(plan.verdict, Verdict::AbsenceGrace(Ground::Listed));
        let Next::RequeueAt(due_at) = plan.next else { panic!("{plan:?}") };

        let PlannedWrite { write, queue, .. } = stage.planned(due_at).unwrap();
        assert_eq!(queue, QueueKey::Removals);
        assert_eq!(write.annotations, [(UPSTREAM_STATUS.to_owned(), None)]);
        let absent = write.precondition.absent.unwrap();
        assert_eq!(absent.namespace_uid.as_deref(), Some(UID));
        assert_eq!((absent.kind, absent.names), (Kind::Connector, vec!["lab".to_owned()]));
    }

    #[test]
    fn who_waits_for_the_limit_of_removals_is_held_and_not_late() {
        let stage = Stage::missing();
        let now = stage.later(60_000);
        let held = Verdict::RemovalHeld(HoldReason::Budget, Ground::Listed);
        assert_eq!(stage.verdict(now), held);

        let admitted = View { admitted_by: Some(QueueKey::Removals), ..stage.view() };
        let plan = plan(&admitted, &stage.settings, now);
        assert!(matches!(plan.verdict, Verdict::RemovalDue { .. }), "{plan:?}");
    }

    #[test]
    fn a_removal_waits_while_too_many_would_go_unless_a_person_allowed_it() {
        let mut stage = Stage::missing();
        stage.breaker.is_tripped = true;
        let held = Verdict::RemovalHeld(HoldReason::TooMany, Ground::Listed);
        assert_eq!(stage.verdict(stage.later(5_000)), held);

        let version = stage.next_version();
        let allowing = namespace(&hub_namespace(), "u-ns", version);
        stage.stage.shows("hub", allowing.annotation(ALLOW_REMOVALS, "true"));

        assert_eq!(stage.queue(stage.later(5_000)), Some(QueueKey::AllowedRemovals));
    }

    #[test]
    fn the_grace_period_starts_again_when_removals_were_too_many() {
        let mut stage = Stage::missing();
        let reset_at = stage.later(60_000);
        stage.breaker.reset_at = Some(reset_at);

        assert_eq!(stage.plan(reset_at).next, Next::RequeueAt(reset_at.plus(5_000)));
    }

    #[test]
    fn absence_that_is_not_proven_removes_nothing() {
        type Case = (fn(&mut Stage), Verdict);
        let cases: [Case; 5] = [
            (|stage| stage.lose(Kind::Connector), Verdict::UpstreamNotLive),
            (|stage| stage.lose(Kind::Namespace), Verdict::UpstreamNotLive),
            (
                |stage| {
                    let kind = Kind::Connector;
                    let object = crate::data::ids::ObjectKey::new(UPSTREAM_NAMESPACE, "other");
                    let (cluster, error) = ("up".into(), "broken".into());
                    stage.stage.tell(EventKind::Unreadable { cluster, kind, object, error });
                },
                Verdict::Held(HoldReason::Unreadable),
            ),
            (
                |stage| {
                    let (cluster, kind) = ("up".into(), Kind::Connector);
                    stage.stage.tell(EventKind::ResourceVersionRegressed { cluster, kind });
                },
                Verdict::Held(HoldReason::Restored),
            ),
            (
                |stage| _ = stage.stage.list("up", Kind::Namespace, []),
                Verdict::Held(HoldReason::NamespaceMissing),
            ),
        ];
        for (change, verdict) in cases {
            let mut stage = Stage::missing();
            change(&mut stage);

            let plan = stage.plan(stage.later(60_000));
            assert_eq!((plan.verdict, plan.next), (verdict, Next::AwaitChange));
        }
    }

    #[test]
    fn an_annotation_that_is_absent_needs_no_proof() {
        let mut stage = Stage::new();
        stage.hub_says(None);
        stage.lose(Kind::Namespace);

        assert_eq!(stage.verdict(stage.now()), Verdict::BothAbsent);
    }

    #[test]
    fn what_a_restored_server_says_waits_for_five_minutes_or_the_next_change() {
        let mut stage = Stage::flipped();
        let (cluster, kind) = ("up".into(), Kind::Connector);
        stage.stage.tell(EventKind::ResourceVersionRegressed { cluster, kind });
        let settled_at = stage.later(300_000);

        let plan = stage.plan(stage.now());
        assert_eq!(plan.verdict, Verdict::Held(HoldReason::Restored));
        assert_eq!(plan.next, Next::RequeueAt(settled_at));
        assert_eq!(stage.queue(settled_at), Some(QueueKey::Immediate));

        stage.upstream_says(Some(&online("n3", 1)));
        assert_eq!(stage.queue(stage.now()), Some(QueueKey::Immediate));
    }

    #[test]
    fn an_object_that_a_person_paused_is_left_alone() {
        let mut stage = Stage::flipped();
        stage.write(&forbidden(), stage.now());
        let paused = stage.hub_connector(Some("{}")).annotation(PAUSED, "true");
        stage.stage.shows("hub", paused);

        let plan = stage.plan(stage.now());
        assert_eq!((plan.verdict, plan.next), (Verdict::Paused, Next::AwaitChange));

        stage.memory.on_verdict(plan.verdict, stage.now());
        stage.hub_says(Some("{}"));
        assert_eq!(stage.queue(stage.now()), Some(QueueKey::Immediate), "nothing of before counts");
    }

    #[test]
    fn a_connector_that_was_mirrored_just_before_waits_in_the_queue_of_its_upstream() {
        let mut stage = Stage::flipped();
        let now = stage.now();
        stage.write(&conflict(), now);
        stage.memory.on_seen(None);
        assert_eq!(stage.queue(now), Some(QueueKey::Immediate), "it was not mirrored");

        stage.write(&Outcome::Unchanged, now);

        let up = stage.stage.world.id_of(&"up".into()).unwrap();
        assert_eq!(stage.queue(now.plus(9_999)), Some(QueueKey::Repeats(up)));
        assert_eq!(stage.queue(now.plus(10_000)), Some(QueueKey::Immediate));
    }

    #[test]
    fn a_value_is_contended_from_the_third_overwrite_on() {
        let mut stage = Stage::flipped();
        let overwritten_at = stage.later(1_000);

        let queues = [1, 2, 3].map(|_| {
            stage.overwrite(overwritten_at);
            stage.queue(overwritten_at.plus(60_000)).unwrap()
        });

        let rewrites = QueueKey::Rewrites(stage.at.cluster);
        assert_eq!(queues, [QueueKey::Immediate, QueueKey::Immediate, rewrites]);
    }

    #[test]
    fn a_retry_waits_for_its_turn_unless_a_success_elsewhere_released_it() {
        let mut stage = Stage::flipped();
        let now = stage.now();
        stage.write(&forbidden(), now);
        let (queue, due) = stage.turn(now).unwrap();
        assert_eq!(queue, QueueKey::Retries(stage.at.cluster));
        assert_eq!((due.at, due.early_from), (now.plus(30_000), now));

        stage.memory.write.on_api_answers(FailureClass::Refused, now);

        assert_eq!(stage.queue(now), Some(QueueKey::Immediate));
    }

    #[test]
    fn after_three_conflicts_the_annotation_alone_is_compared() {
        let mut stage = Stage::flipped();
        for _ in 0..3 {
            stage.write(&conflict(), stage.now());
            stage.memory.on_seen(Some("theirs"));
        }

        let precondition = stage.planned(stage.now()).unwrap().write.precondition;

        assert_eq!(precondition.annotation.unwrap().value.as_deref(), Some("theirs"));
        assert_eq!(precondition.resource_version, None);
    }

    #[test]
    fn a_conflict_about_the_annotation_shows_another_writer() {
        let writing = |compares_annotation| {
            let job = MirrorJob { intent: Intent::Mirror, digest: None };
            Writing { job, compares_annotation }
        };

        assert!(writing(true).shows_overwrite(&conflict()));
        assert!(!writing(false).shows_overwrite(&conflict()));
        assert!(!writing(true).shows_overwrite(&forbidden()));
    }

    #[test]
    fn a_foreign_value_in_place_of_a_right_one_is_an_overwrite() {
        let mut stage = Stage::flipped();
        let right = stage.view().upstream.unwrap().connector.unwrap().said().map(|s| s.digest);
        assert!(is_overwritten(&stage.view(), right), "at rest it was right");

        stage.memory.sync = SyncState::Behind;
        assert!(!is_overwritten(&stage.view(), right));
        stage.memory.sync = SyncState::Right { since: None };
        assert!(!is_overwritten(&stage.view(), None), "it was wrong before");

        assert_eq!(stage.overwrite(stage.now()), None);
        assert_eq!(stage.overwrite(stage.now()), None);
        assert_eq!(stage.overwrite(stage.now()), Some(1_000));
        let paused = Readiness::NotBefore(stage.later(1_000));
        assert_eq!(stage.memory.write.readiness(stage.now()), paused);
    }

    #[test]
    fn a_status_that_cannot_be_spelled_holds_its_own_mirror_and_no_other() {
        let mut stage = Stage::missing();
        let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
        stage.upstream_says(Some(&nested));
        assert_eq!(stage.verdict(stage.now()), Verdict::Held(HoldReason::Unreadable));

        let connector = stage.upstream_connector();
        stage.stage.deletes("up", connector);
        let version = stage.next_version();
        let other = connector_named("other", version).status(Some(&nested));
        stage.stage.shows("up", other);

        assert_eq!(stage.verdict(stage.now()), Verdict::AbsenceGrace(Ground::Seen));
    }

    fn connector_named(name: &str, version: u64) -> Builder {
        connector(UPSTREAM_NAMESPACE, name, version)
    }

    #[test]
    fn a_status_that_does_not_fit_is_reduced_or_removed() {
        let mut stage = Stage::flipped();
        let full = r#"{"capabilities":[{"type":"x"}],"conditions":[],"#;
        let status = online("n3", 1).replacen(r#"{"conditions":["#, full, 1);
        assert!(status.len() > online("n3", 1).len());
        stage.upstream_says(Some(&status.replacen(r#""conditions":[],"#, r#""conditions":["#, 1)));
        let room = |bytes: usize| UPSTREAM_STATUS.len() + bytes;

        stage.settings.mirror.annotation_limit_bytes = room(online("n3", 1).len());
        let plan = stage.plan(stage.now());
        assert!(plan.oversize.is_some_and(|oversize| oversize.is_reduced), "{plan:?}");

        stage.settings.mirror.annotation_limit_bytes = room(3);
        let plan = stage.plan(stage.now());
        assert!(plan.oversize.is_some_and(|oversize| !oversize.is_reduced), "{plan:?}");
        let write = stage.planned(stage.now()).unwrap().write;
        assert_eq!(write.annotations, [(UPSTREAM_STATUS.to_owned(), None)]);
    }

    #[test]
    fn a_deferred_difference_counts_from_the_write_before() {
        let mut stage = Stage::flipped();
        stage.hub_says(Some(&online("n2", 7)));
        stage.memory.on_verdict(stage.verdict(stage.now()), stage.now());
        let written_at = stage.later(6_000);

        stage.write(&Outcome::DryRun, written_at);

        assert_eq!(stage.memory.deferred_since, Some(written_at));
        assert_eq!(stage.plan(written_at).next, Next::RequeueAt(written_at.plus(5_000)));
    }

    #[test]
    fn what_a_breaker_counts_follows_from_the_verdict() {
        let since = UnixMillis(1);
        let cases = [
            (Verdict::HubNotLive, None),
            (Verdict::UpstreamNotLive, Some(Removal::Unknown)),
            (Verdict::AbsenceGrace(Ground::Seen), Some(Removal::Wanted { is_seen: true })),
            (
                Verdict::RemovalHeld(HoldReason::TooMany, Ground::Listed),
                Some(Removal::Wanted { is_seen: false }),
            ),
            (Verdict::RemovalDue { since, ground: Ground::Allowed }, Some(Removal::Allowed)),
            (Verdict::BothAbsent, Some(Removal::Done)),
            (Verdict::InSync, Some(Removal::No)),
        ];
        for (verdict, removal) in cases {
            assert_eq!(verdict.removal(), removal, "{verdict:?}");
        }
    }

    #[test]
    fn memory_stays_small() {
        assert!(size_of::<MirrorMemory>() <= 240, "{}", size_of::<MirrorMemory>());
    }
}
