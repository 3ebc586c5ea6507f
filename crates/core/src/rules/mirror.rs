//! Mirror: keeps the `upstream-status` annotation of a hub Connector equal to the `.status` of its
//! upstream Connector.
//!
//! [`plan`] is the whole rule. It determines what is desired, compares that with what the hub
//! shows, and decides when to write the difference:
//!
//! | upstream's status | the annotation |
//! |---|---|
//! | differs in what edges route by | is written immediately |
//! | differs in anything else | is *deferred*: written 5 s later, so that it never delays a write that affects routing |
//! | is gone, or its Connector is | is removed after 5 s: a stale "online" keeps users on a dead tunnel |
//! | does not fit, not even the part that routes | is removed immediately: the value there is another one |
//! | is not known | stays as it is, and the [`Verdict`] has the reason |
//!
//! That a Connector is gone needs an [`AbsenceProof`]. A lost watch, a restored API server or an
//! empty list of namespaces prove nothing; complete lists of the right namespace do. While too many
//! removals are pending together, a breaker trips and holds all of them.
//!
//! When a write is sent:
//!
//! | what happened before | when the next write is sent |
//! |---|---|
//! | nothing | immediately; each Connector has a burst of 20, then one write in 200 ms |
//! | nothing, and upstream's status is gone | when the queue of all removals admits it, which admits few in a minute (`Removals`) |
//! | it was mirrored less than 10 s before | if it affects routing: from the queue of its upstream (`Repeats`) |
//! | 403, 404, 5xx, no answer | after a backoff of at most 30 s; if it affects routing: from the queue of retries (`Retries`) |
//! | 409 | after a backoff, or when the watch shows the change; after three in a row only the annotation is compared |
//! | another writer changed it back, three times or more | after a pause that doubles each time (`Rewrites`) |
//! | the server was restored from a backup | a status: after 5 min, or with its next change; an object that lists lack: never |
//! | the Lease was lost, or an operator paused the object | never; it is planned again afterwards |

use crate::circuit_breaker::BreakerState;
use crate::contract::action::{AnnotationBefore, Precondition, Urgency};
use crate::contract::cause::Cause;
use crate::contract::event::Outcome;
use crate::contract::settings::{DEFER_MS_MIN, MirrorSettings, Settings};
use crate::data::ids::{ActionId, ClusterName, Kind};
use crate::data::object_ref::ObjectRef;
use crate::data::objects::UPSTREAM_STATUS;
use crate::data::time::UnixMillis;
use crate::plan::{Intent, Job, MirrorJob, Next, Turn, Write};
use crate::rate_limit::{Rate, RateLimiter};
use crate::status::digest::Digest;
use crate::status::go_json;
use crate::status::liveness::StatusDigest;
use crate::world::World;
use crate::world::absence::{AbsenceProof, Absent, Claim, NoProof, prove_absence, prove_namespace};
use crate::world::cluster::Cluster;
use crate::world::hub::{HubConnector, UpstreamRef};
use crate::world::links::Link;
use crate::world::table::Row;
use crate::world::upstream::{Status, UpstreamConnector};
use crate::write_queue::{Due, QueueKey};
use crate::write_state::{Completion, ContentionLimits, WriteState};

/// One Connector that flaps must not keep the hub busy for all others: a burst of 20, then one
/// write each `DEFER_MS_MIN`.
const CONNECTOR_RATE: Rate = Rate::every_ms(DEFER_MS_MIN, 20);

/// A Connector that was mirrored this recently waits in the queue of its upstream, and so does one
/// that waited there this recently. Otherwise a flapping Connector would skip the queue every 10 s.
const REPEAT_MS: u64 = 10_000;

/// A hub Connector in the world, looked up once for all rules.
#[derive(Clone, Copy)]
pub(crate) struct Place<'w> {
    pub(crate) world: &'w World,
    pub(crate) at: &'w ObjectRef,
    pub(crate) hub: &'w Cluster,
    pub(crate) row: &'w Row<HubConnector>,
    /// `None` while the upstream that its labels name is not in the run.
    pub(crate) upstream: Option<Upstream<'w>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Upstream<'w> {
    pub(crate) cluster: &'w Cluster,
    pub(crate) connector: Option<&'w UpstreamConnector>,
    named: &'w UpstreamRef,
}

/// A hub Connector and all that the rule reads.
pub(crate) struct View<'w> {
    pub(crate) place: Place<'w>,
    pub(crate) memory: &'w MirrorMemory,
    pub(crate) now: UnixMillis,
    /// Whether too many removals of the upstream, or of the whole fleet, are pending.
    pub(crate) breaker: BreakerState,
    /// Removals of the whole fleet that are pending, or were within the breakers' window.
    pub(crate) removals: usize,
    pub(crate) is_leader: bool,
    /// The queue that admits the write now.
    pub(crate) admitted_by: Option<QueueKey>,
}

#[derive(Debug, Default)]
pub(crate) struct MirrorMemory {
    /// Shared with the nudge: one write to one object at a time.
    pub(crate) write: WriteState,
    /// The mirror in flight.
    writing: Option<MirrorJob>,
    /// The annotation as the watch last showed it, byte by byte. `None` unless writes meet
    /// conflicts.
    observed: Option<Box<AnnotationBefore>>,
    /// Limits mirrors that affect routing. Deferred mirrors wait for it, too, but do not count.
    limiter: RateLimiter,
    /// Until then, a mirror that affects routing waits in the queue of its upstream.
    repeats_until: UnixMillis,
    pub(crate) sync: SyncState,
    pub(crate) deferred_since: Option<UnixMillis>,
    is_held: bool,
    /// The end of a hold or of a pause by an operator. Nothing is late before.
    unblocked_at: UnixMillis,
}

/// Whether the annotation routes as upstream's status asks, as far as this instance has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SyncState {
    #[default]
    NotSeen,
    OutOfSync,
    /// `None`: it already did when this instance first saw it.
    InSync {
        since: Option<UnixMillis>,
    },
}

/// The state of the annotation. The hop rule, the view, the breakers and the notes read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Disabled,
    /// The hub's watch is not live, so even the annotation is unknown. Everything stays as it was.
    HubNotLive,
    Paused,
    /// What is desired is unknown: a watch of the upstream is not live, or the namespace belongs to
    /// another tier.
    UpstreamNotLive,
    UpstreamNotConfigured,
    /// Upstream seems to have another status, which is not mirrored for this cause.
    Held(Cause),
    /// Upstream has no status; the grace period is not over.
    AbsenceGrace(Ground),
    /// Upstream has no status; too many removals are due together.
    RemovalHeld(Ground),
    /// Upstream has no status; the removal waits for its rate limit.
    RemovalQueued(Ground),
    /// Upstream has no status; the annotation is to be removed.
    RemovalDue {
        since: UnixMillis,
        ground: Ground,
    },
    /// Neither upstream nor the annotation has a status.
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

/// The evidence that upstream has no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// An operator allowed the removal with an annotation on the hub namespace.
    Allowed,
    /// A watch showed that the status, its Connector or its namespace was removed.
    Seen,
    /// Only lists show its absence.
    Listed,
}

/// The state before a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) sync: SyncState,
    pub(crate) is_deferred: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) verdict: Verdict,
    /// `None` if upstream's status is unknown or not mirrored.
    pub(crate) change: Option<LastChange>,
    pub(crate) oversize: Option<Oversize>,
    pub(crate) next: Next,
}

/// When upstream's status last changed, and how this was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastChange {
    pub(crate) at: UnixMillis,
    /// A watch showed the change, rather than a list.
    pub(crate) is_observed: bool,
    pub(crate) is_online: bool,
}

/// The status does not fit into the object's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oversize {
    /// The part that routing needs does fit.
    Reduced,
    NothingFits,
}

impl<'w> Place<'w> {
    /// `None` if there is no such hub Connector.
    pub(crate) fn find(world: &'w World, at: &'w ObjectRef) -> Option<Self> {
        let hub = world.clusters.get(&at.cluster)?;
        let row = hub.hub_connectors.get(&at.name)?;

        let upstream = row.seen.upstream.as_ref().ok().and_then(|named| {
            let cluster = world.upstream_named(&named.cluster)?;
            let connector = cluster.upstream_connectors.get(&named.name).map(|row| &row.seen);
            Some(Upstream { cluster, connector, named })
        });
        Some(Self { world, at, hub, row, upstream })
    }

    /// The upstream that the labels name, whether or not it is in the run.
    pub(crate) fn named(self) -> Option<&'w ClusterName> {
        self.row.seen.cluster()
    }

    /// The digest of the annotation.
    pub(crate) fn digest(self) -> Option<Digest> {
        self.row.seen.annotation.map(|annotation| annotation.all)
    }

    /// Whether upstream's namespace is the one that the hub Connector was made from. Another
    /// namespace may have its name by now.
    fn is_copied_from(self, upstream: Upstream<'_>) -> bool {
        let Upstream { cluster, named, .. } = upstream;
        let hub_namespace = self.at.name.namespace();
        prove_namespace(cluster, hub_namespace, named.name.namespace()).is_ok()
    }

    /// Whether, by the tables, the Connector that it was made from does not exist.
    pub(crate) fn is_source_absent(self) -> bool {
        let is_it =
            |upstream: Upstream<'_>| upstream.connector.is_some() && self.is_copied_from(upstream);
        self.upstream.is_some_and(|upstream| !is_it(upstream))
    }

    fn ground(self) -> Ground {
        let is_loss_seen = self.upstream.is_some_and(|upstream| match upstream.connector {
            Some(connector) => connector.is_loss_seen,
            None => self.is_deletion_seen(),
        });
        if self.hub.allows_removals(self.at.name.namespace()) {
            Ground::Allowed
        } else if is_loss_seen || self.row.seen.namespace_deleted_at.is_some() {
            Ground::Seen
        } else {
            Ground::Listed
        }
    }

    /// When upstream's status last changed, or when it became absent.
    pub(crate) fn changed_at(self, upstream: Upstream<'_>) -> UnixMillis {
        upstream.connector.map_or_else(|| self.absent_since(), |connector| connector.changed_at)
    }

    fn absent_since(self) -> UnixMillis {
        self.link().map(|link| link.absent_since).unwrap_or_default()
    }

    fn is_deletion_seen(self) -> bool {
        self.link().is_some_and(|link| link.is_deletion_seen)
    }

    /// Needed only where the upstream Connector does not exist.
    fn link(self) -> Option<&'w Link> {
        self.world.links.get(self.row.seen.upstream.as_ref().ok()?)
    }
}

pub(crate) fn plan(view: &View<'_>) -> Plan {
    let desired = match desired(view) {
        Ok(desired) => desired,
        Err(plan) => return plan,
    };

    let change = Some(desired.change);
    let oversize = desired.oversize;
    let observed = view.place.row.seen.annotation;
    let plan = if desired.digest.map(|digest| digest.all) == view.place.digest() {
        let verdict = desired.status.map_or(Verdict::BothAbsent, |_| Verdict::InSync);
        verdict.into()
    } else if desired.status.is_none() {
        plan_removal(view, desired)
    } else if view.settings().mirror.defer_ms > 0 && routes_alike(observed, desired.digest) {
        plan_deferred_mirror(view, desired)
    } else {
        plan_mirror(view, desired)
    };
    Plan { change, oversize, ..plan }
}

/// An annotation that cannot be decoded may affect routing, so it is never deferred.
fn routes_alike(observed: Option<StatusDigest>, desired: Option<StatusDigest>) -> bool {
    let routing = |digest: Option<StatusDigest>| digest.and_then(|digest| digest.routing);
    routing(desired).is_some() && routing(observed) == routing(desired)
}

/// Until the write, requests may be routed wrongly.
fn plan_mirror(view: &View<'_>, desired: Desired<'_>) -> Plan {
    let verdict = Verdict::OutOfSync { since: view.late_from(desired.since) };
    let next = match view.memory.write.retry() {
        Some(due) if view.is_leader => plan_retry(view, due),
        _ => {
            let limited_until = view.memory.limiter.ready_at(CONNECTOR_RATE);
            let queue = queue_of(view, &desired);
            let write = || view.write(Intent::Mirror, desired);
            view.write_at(limited_until, queue, Due::at(view.now), write)
        }
    };
    Plan { next, ..verdict.into() }
}

/// The last attempt failed. After its backoff the write waits in a queue, so that many failed
/// writes are not retried together. Once admitted, it is planned like any other write.
fn plan_retry(view: &View<'_>, due: Due) -> Next {
    if let Some(until) = view.memory.write.paused_until()
        && until > view.now
    {
        return Next::requeue_at(until);
    }

    let queue = QueueKey::Retries(view.place.at.cluster);
    Next::write(Turn { queue, due, write: None })
}

fn queue_of(view: &View<'_>, desired: &Desired<'_>) -> QueueKey {
    let is_rewrite = view.overwritten_at(desired).is_some();
    let overwrites = view.memory.write.contention().map_or(0, |last| last.overwrites);

    // A writer that contends for one value often contends for the values of the whole fleet.
    if is_rewrite && overwrites >= view.settings().mirror.contention_count {
        QueueKey::Rewrites(view.place.at.cluster)
    } else if view.now < view.memory.repeats_until {
        QueueKey::Repeats(desired.upstream.cluster.id)
    } else {
        QueueKey::Immediate
    }
}

/// No edge routes by the difference, so it must not delay a write that affects routing.
fn plan_deferred_mirror(view: &View<'_>, desired: Desired<'_>) -> Plan {
    let since = view.memory.deferred_since.unwrap_or(view.now);
    let due_at = since.plus(view.settings().mirror.defer_ms.max(DEFER_MS_MIN));
    let at = due_at.max(view.memory.limiter.ready_at(CONNECTOR_RATE));

    let queue = QueueKey::Deferrable(view.place.at.cluster);
    let write = || view.write(Intent::Deferred, desired);
    let next = view.write_at(at, queue, Due::at(due_at), write);
    Plan { next, ..Verdict::Deferred { since }.into() }
}

/// A stale "online" keeps users on a dead tunnel.
fn plan_removal(view: &View<'_>, desired: Desired<'_>) -> Plan {
    let ground = view.place.ground();
    let is_allowed = ground == Ground::Allowed;
    if view.breaker.is_tripped && !is_allowed {
        return Verdict::RemovalHeld(ground).into();
    }

    // The platform usually deletes the hub Connector itself within the grace period. The period
    // starts again when the breaker resets.
    let reset_at = view.breaker.reset_at.filter(|_| !is_allowed).unwrap_or_default();
    let due_at = desired.since.max(reset_at).plus(view.settings().mirror.absent_grace_ms);
    if view.now < due_at {
        return Plan::requeue(Verdict::AbsenceGrace(ground), due_at);
    }

    let queue = if is_allowed { QueueKey::AllowedRemovals } else { QueueKey::Removals };
    let write = || view.write(Intent::Removal, desired);
    let next = view.write_at(view.now, queue, Due::at(view.now), write);
    let verdict = match next.turn {
        // Few removals are admitted in a minute, so one that waits for them is held, not late.
        Some(Turn { queue: QueueKey::Removals, write: None, .. }) => Verdict::RemovalQueued(ground),
        // Another instance cannot know which have been admitted, but how long all of them take.
        _ if !view.is_leader && !is_allowed => {
            let since = view.late_from(due_at.plus(view.removals_take_ms()));
            Verdict::RemovalDue { since, ground }
        }
        _ => Verdict::RemovalDue { since: view.late_from(due_at), ground },
    };
    Plan { next, ..verdict.into() }
}

impl<'w> View<'w> {
    pub(crate) fn new(
        place: Place<'w>,
        memory: &'w MirrorMemory,
        breaker: BreakerState,
        removals: usize,
        is_leader: bool,
        now: UnixMillis,
    ) -> Self {
        Self { place, memory, now, breaker, removals, is_leader, admitted_by: None }
    }

    /// How long the queue of removals takes at most for all that are pending. Half of those that it
    /// admits in a minute go at once.
    fn removals_take_ms(&self) -> u64 {
        let settings = self.settings();
        let per_minute = settings.shard.part_of(settings.mirror.max_removals_per_minute).max(1);
        2 * self.removals as u64 / u64::from(per_minute) * 60_000
    }

    pub(crate) fn settings(&self) -> &'w Settings {
        &self.place.world.settings
    }

    /// Plans the write if this instance leads; only the leader writes.
    fn write_at(
        &self,
        at: UnixMillis,
        queue: QueueKey,
        due: Due,
        write: impl FnOnce() -> Write,
    ) -> Next {
        if !self.is_leader {
            return Next::AWAIT_CHANGE;
        }
        Next::write_at(at, &self.memory.write, self.now, || {
            Turn::in_queue(queue, due, self.admitted_by, self.now, write)
        })
    }

    fn write(&self, intent: Intent, desired: Desired<'_>) -> Write {
        let because = self.because(intent, &desired);
        let text = desired.text();
        let mut precondition = self.precondition();
        let compares_annotation = precondition.annotation.is_some();
        if let Some(absent) = desired.absent {
            absent.put_into(&mut precondition);
        }

        let at = self.place.at;
        let job = MirrorJob { intent, digest: desired.digest, compares_annotation };
        Write {
            job: Job::Mirror(at.clone(), job),
            annotations: vec![(UPSTREAM_STATUS.to_owned(), text)],
            precondition,
            connectors: vec![at.name.clone()],
            urgency: match intent {
                Intent::Mirror | Intent::Removal => Urgency::Routing,
                Intent::Deferred => Urgency::Deferrable,
            },
            because,
        }
    }

    fn because(&self, intent: Intent, desired: &Desired<'_>) -> String {
        let is_rewrite = self.overwritten_at(desired).is_some();
        let is_online = desired.status.is_some_and(|status| status.stamp.is_online());
        let says = if is_online { "online" } else { "offline" };
        match intent {
            Intent::Removal if desired.absent.is_some() => {
                "the Connector no longer exists upstream, so the hub may not claim a status".into()
            }
            Intent::Removal => "upstream has no status, so the hub may not claim one".into(),
            Intent::Deferred => {
                let changed = match is_rewrite {
                    true => "another writer changed the hub's annotation",
                    false => "upstream's status changed",
                };
                let since = self.memory.deferred_since.unwrap_or(self.now);
                let waited_s = self.now.since(since) / 1_000;
                format!("{changed}, but not what routes; waited {waited_s} s")
            }
            Intent::Mirror if desired.digest.is_none() => {
                "no part of upstream's status fits, and a stale one may not stay".into()
            }
            Intent::Mirror if is_rewrite => {
                format!("another writer changed the hub's annotation; upstream says {says}")
            }
            Intent::Mirror if self.place.digest().is_none() => {
                format!("upstream says {says}, the hub has no annotation")
            }
            Intent::Mirror => {
                format!("upstream says {says}, the hub's annotation says something else")
            }
        }
    }

    /// The object must not have changed. Where others change it faster than a write takes, only the
    /// annotation must not have changed.
    fn precondition(&self) -> Precondition {
        let unchanged = self.place.row.unchanged();
        match self.memory.observed.clone() {
            Some(before) if self.memory.write.is_starving() => {
                Precondition { resource_version: None, annotation: Some(before), ..unchanged }
            }
            _ => unchanged,
        }
    }

    /// When another writer last changed the annotation, if that was after upstream's last change.
    fn overwritten_at(&self, desired: &Desired<'_>) -> Option<UnixMillis> {
        let last_at = self.memory.write.contention().map(|last| last.last_at)?;
        (last_at > desired.change.at).then_some(last_at)
    }

    /// From when lateness counts. Nothing is late while it is unknown, held or paused, and an
    /// annotation that another writer changed is late only from then on.
    fn late_from(&self, since: UnixMillis) -> UnixMillis {
        let hub_live_since = self.place.hub.live_since(Kind::Connector);
        let held_until = self.memory.is_held.then_some(self.now);
        let overwritten_at = self.memory.write.contention().map(|last| last.last_at);

        let bounds = [Some(self.memory.unblocked_at), held_until, hub_live_since, overwritten_at];
        bounds.into_iter().flatten().fold(since, UnixMillis::max)
    }
}

/// The annotation stays as it is.
impl From<Verdict> for Plan {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, change: None, oversize: None, next: Next::AWAIT_CHANGE }
    }
}

impl Plan {
    fn requeue(verdict: Verdict, at: UnixMillis) -> Self {
        Self { next: Next::requeue_at(at), ..Self::from(verdict) }
    }
}

impl Verdict {
    /// The evidence for a removal; `None` if the annotation stays. A removal counts as pending as
    /// soon as the upstream status disappears, not after the grace period.
    pub(crate) fn ground(self) -> Option<Ground> {
        match self {
            Self::AbsenceGrace(ground)
            | Self::RemovalHeld(ground)
            | Self::RemovalQueued(ground)
            | Self::RemovalDue { ground, .. } => Some(ground),
            _ => None,
        }
    }

    fn is_held(self) -> bool {
        matches!(self, Self::Held(_) | Self::RemovalHeld(_) | Self::RemovalQueued(_))
    }

    /// The annotation routes as upstream's status asks.
    pub(crate) fn routes_as_desired(self) -> bool {
        matches!(self, Self::InSync | Self::BothAbsent | Self::Deferred { .. })
    }
}

/// What the annotation should contain.
struct Desired<'w> {
    upstream: Upstream<'w>,
    /// `None`: upstream has no status.
    status: Option<&'w Status>,
    /// Digest of the part that fits into the annotation. `None`: nothing fits, or there is no
    /// status.
    digest: Option<StatusDigest>,
    oversize: Option<Oversize>,
    /// Set if the upstream Connector does not exist.
    absent: Option<Absent>,
    /// Since when it is desired: upstream had it, and its watch was live.
    since: UnixMillis,
    change: LastChange,
}

/// `Err`: what is desired is unknown, or is not written for now.
fn desired<'w>(view: &View<'w>) -> Result<Desired<'w>, Plan> {
    let place = view.place;
    if !view.settings().mirror.enabled {
        return Err(Verdict::Disabled.into());
    }
    if !place.hub.is_live(Kind::Connector) {
        return Err(Verdict::HubNotLive.into());
    }
    if place.row.seen.is_paused {
        return Err(Verdict::Paused.into());
    }
    let upstream = place.upstream.ok_or(Verdict::UpstreamNotConfigured)?;

    let live_since =
        upstream.cluster.live_since(Kind::Connector).ok_or(Verdict::UpstreamNotLive)?;
    if !place.hub.is_hub_namespace(place.at.name.namespace()) {
        return Err(Verdict::UpstreamNotLive.into());
    }
    let is_copied = place.is_copied_from(upstream);
    if is_copied && !upstream.cluster.is_upstream_namespace(upstream.named.name.namespace()) {
        return Err(Verdict::UpstreamNotLive.into());
    }

    match upstream.connector.filter(|_| is_copied) {
        Some(connector) => desired_by(connector, upstream, live_since, view),
        None => desired_by_absence(upstream, live_since, view),
    }
}

fn desired_by<'w>(
    connector: &'w UpstreamConnector,
    upstream: Upstream<'w>,
    live_since: UnixMillis,
    view: &View<'w>,
) -> Result<Desired<'w>, Plan> {
    if connector.is_unreadable {
        return Err(Verdict::Held(Cause::ObjectUnreadable).into());
    }
    let status = connector.status.as_ref();

    let (digest, oversize) = fit(status, &view.place.row.seen, &view.settings().mirror);
    // A restored API server shows old statuses until the platform reports again.
    let differs = digest.map(|digest| digest.all) != view.place.digest();
    if let Some(restored_at) = upstream.cluster.restored_at
        && connector.is_before_restore
        && differs
    {
        let settled_at = restored_at.plus(view.settings().mirror.restored_settle_ms);
        if view.now < settled_at {
            return Err(Plan::requeue(Verdict::Held(Cause::UpstreamRestored), settled_at));
        }
    }

    let at = connector.changed_at;
    let since = at.max(live_since);
    let is_online = digest.is_some() && connector.was_online();
    let change = LastChange { at, is_observed: at > live_since, is_online };
    Ok(Desired { upstream, status, digest, oversize, absent: None, since, change })
}

/// Upstream has no such Connector. If that is proven, the annotation should be absent.
fn desired_by_absence<'w>(
    upstream: Upstream<'w>,
    live_since: UnixMillis,
    view: &View<'w>,
) -> Result<Desired<'w>, Plan> {
    let place = view.place;
    let name = &upstream.named.name;
    let HubConnector { annotation: observed, namespace_deleted_at, .. } = place.row.seen;
    let claim = Claim {
        hub_namespace: place.at.name.namespace(),
        namespace: name.namespace(),
        namespace_deleted_at,
        kind: Kind::Connector,
        names: vec![name.name().to_owned()],
        absent_since: Some(place.absent_since()),
        exists: upstream.connector.is_some(),
        is_deletion_seen: place.is_deletion_seen(),
        max_age_ms: None,
    };

    let at = place.changed_at(upstream);
    let is_in_place = || place.is_copied_from(upstream) || namespace_deleted_at.is_some();
    let (since, absent) = match prove_absence(upstream.cluster, claim, view.now) {
        Ok(AbsenceProof { since, absent }) => (since, Some(absent)),
        // The hub has no annotation either: this needs no proof.
        Err(_) if observed.is_none() && is_in_place() => (at, None),
        Err(no_proof) => return Err(verdict_without(no_proof).into()),
    };
    let change = LastChange { at, is_observed: at > live_since, is_online: false };
    Ok(Desired { upstream, status: None, digest: None, oversize: None, absent, since, change })
}

fn verdict_without(no_proof: NoProof) -> Verdict {
    match no_proof {
        NoProof::NamespaceMissing => Verdict::Held(Cause::NamespaceMissing),
        NoProof::NamespaceDiffers => Verdict::Held(Cause::NamespaceMismatch),
        NoProof::Unreadable => Verdict::Held(Cause::ObjectUnreadable),
        NoProof::Restored => Verdict::Held(Cause::UpstreamRestored),
        NoProof::NotListed | NoProof::NotUpstream | NoProof::Exists | NoProof::Stale => {
            Verdict::UpstreamNotLive
        }
    }
}

/// Fits a status into the annotation limit: whole, reduced to what routing needs, or not at all. No
/// annotation is better than a stale one.
fn fit(
    status: Option<&Status>,
    row: &HubConnector,
    settings: &MirrorSettings,
) -> (Option<StatusDigest>, Option<Oversize>) {
    let Some(status) = status else { return (None, None) };

    let other_bytes = row.other_annotation_bytes as usize + UPSTREAM_STATUS.len();
    let room = settings.annotation_limit_bytes.saturating_sub(other_bytes);
    if status.bytes as usize <= room {
        return (Some(status.digest), None);
    }

    match go_json::reduce(&status.text.text()).filter(|reduced| reduced.len() <= room) {
        Some(text) => (Some(Status::from(text).digest), Some(Oversize::Reduced)),
        None => (None, Some(Oversize::NothingFits)),
    }
}

impl Desired<'_> {
    /// Decoded only for the write, to save memory.
    fn text(&self) -> Option<String> {
        let text = self.status?.text.text();
        match self.oversize {
            None => Some(text),
            Some(Oversize::Reduced) => go_json::reduce(&text),
            Some(Oversize::NothingFits) => None,
        }
    }
}

impl SyncState {
    /// When this instance saw the annotation become right.
    pub(crate) fn in_sync_since(self) -> Option<UnixMillis> {
        match self {
            Self::InSync { since } => since,
            Self::NotSeen | Self::OutOfSync => None,
        }
    }
}

impl Before {
    /// A deferred difference no longer exists.
    pub(crate) fn was_deferred(self, verdict: Verdict) -> bool {
        self.is_deferred && !matches!(verdict, Verdict::Deferred { .. })
    }

    /// Whether the annotation becomes right with this verdict.
    pub(crate) fn is_mirrored(self, verdict: Verdict) -> bool {
        verdict.routes_as_desired()
            && (self.sync == SyncState::OutOfSync || self.was_deferred(verdict))
    }
}

impl MirrorMemory {
    /// The watch showed a new version of the object, with this annotation.
    pub(crate) fn on_seen(&mut self, annotation: Option<&str>) {
        self.write.on_object_changed();
        self.observed = self.write.is_conflicting().then(|| {
            let key = UPSTREAM_STATUS.to_owned();
            let value = annotation.map(str::to_owned);
            Box::new(AnnotationBefore { key, value, no_annotations: false })
        });
    }

    /// The object appeared, or an operator resumed it: differences are late only from now on.
    pub(crate) fn on_resumed(&mut self, now: UnixMillis) {
        self.unblocked_at = now;
    }

    /// The mirror waits in `Repeats`, as the Connector keeps changing.
    pub(crate) fn on_waits_in_repeats(&mut self, now: UnixMillis) {
        self.repeats_until = now.plus(REPEAT_MS);
    }

    /// Returns the state before.
    pub(crate) fn on_verdict(&mut self, verdict: Verdict, now: UnixMillis) -> Before {
        let before = Before { sync: self.sync, is_deferred: self.deferred_since.is_some() };
        if matches!(verdict, Verdict::HubNotLive | Verdict::UpstreamNotLive) {
            return before;
        }

        if self.is_held && !verdict.is_held() {
            self.unblocked_at = now;
        }
        self.is_held = verdict.is_held();
        self.sync = self.sync_after(verdict, now);
        self.deferred_since = match verdict {
            Verdict::Deferred { since } => Some(since),
            _ => None,
        };
        if verdict == Verdict::Paused {
            // Failures before the pause do not count for writes after it.
            self.forget_writes();
        }
        before
    }

    fn sync_after(&self, verdict: Verdict, now: UnixMillis) -> SyncState {
        match verdict {
            Verdict::Disabled | Verdict::Paused | Verdict::UpstreamNotConfigured => {
                SyncState::NotSeen
            }
            Verdict::OutOfSync { .. } | Verdict::RemovalDue { .. } => SyncState::OutOfSync,
            Verdict::InSync | Verdict::BothAbsent if self.deferred_since.is_some() => {
                SyncState::InSync { since: Some(now) }
            }
            Verdict::InSync | Verdict::BothAbsent | Verdict::Deferred { .. } => match self.sync {
                SyncState::NotSeen => SyncState::InSync { since: None },
                SyncState::OutOfSync => SyncState::InSync { since: Some(now) },
                SyncState::InSync { .. } => self.sync,
            },
            _ => self.sync,
        }
    }

    /// `queue`: the one that admitted the mirror.
    pub(crate) fn on_started(
        &mut self,
        job: MirrorJob,
        queue: QueueKey,
        id: ActionId,
        now: UnixMillis,
    ) {
        self.write.on_started(id);
        self.writing = Some(job);

        if job.intent == Intent::Mirror {
            self.limiter.take(CONNECTOR_RATE, now);
        }
        if let QueueKey::Rewrites(_) = queue {
            let overwritten_at = self.write.contention().map(|last| last.last_at);
            let due_at = overwritten_at.max(self.write.not_before()).unwrap_or(now);
            self.write.on_rewrite_started(now.since(due_at));
        }
    }

    /// Returns how the write ended, and the mirror that it was or `None` for a nudge. Returns
    /// `None` if the action is not in flight any more.
    pub(crate) fn on_finished(
        &mut self,
        id: ActionId,
        outcome: &Outcome,
        settings: &Settings,
        now: UnixMillis,
    ) -> Option<(Completion, Option<MirrorJob>)> {
        let completion = self.write.on_finished(id, outcome, &settings.retry, now)?;
        let writing = self.writing.take();

        if let Some(job) = writing
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
            // A difference that remains arose during this write, so its delay starts now.
            self.deferred_since = Some(now);
            self.sync = SyncState::InSync { since: Some(now) };
        }
    }

    /// Another writer changed an annotation that was in sync.
    pub(crate) fn on_overwritten(
        &mut self,
        manager: Option<&str>,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) {
        let limits = ContentionLimits {
            pause_from: settings.contention_count,
            first_ms: settings.contention_backoff_ms,
            max_ms: settings.contention_backoff_max_ms,
            quiet_ms: settings.contention_quiet_ms,
        };
        self.write.on_overwritten(manager, &limits, now);
    }

    /// Every edge is in sync with the hub. Forgets earlier failures, unless another writer recently
    /// overwrote the value.
    pub(crate) fn on_edges_in_sync(&mut self, settings: &MirrorSettings, now: UnixMillis) {
        let contention = self.write.contention();
        if !contention.is_some_and(|last| last.is_recent(settings.contention_quiet_ms, now)) {
            self.forget_writes();
        }
    }

    fn forget_writes(&mut self) {
        if !self.write.is_in_flight() {
            self.write = WriteState::default();
            self.observed = None;
        }
    }

    /// Whether another writer changed an annotation that was in sync. `before`: the annotation
    /// before the change.
    pub(crate) fn is_overwritten(&self, place: Place<'_>, before: Option<StatusDigest>) -> bool {
        let Some(upstream) = place.upstream else { return false };
        let status = upstream.connector.and_then(|connector| connector.status.as_ref());
        let (desired, _) = fit(status, &place.row.seen, &place.world.settings.mirror);
        let desired = desired.map(|desired| desired.all);
        let before = before.map(|before| before.all);
        let after = place.digest();

        // The watch shows our own write, and upstream has changed back meanwhile.
        let writes = |job: MirrorJob| job.digest.map(|digest| digest.all) == after;
        let is_own = self.writing.is_some_and(writes);
        // While another difference is deferred, the annotation is still in sync for routing.
        let is_deferred = self.deferred_since.is_some();
        let was_as_desired = before == desired || (is_deferred && after != desired);
        !is_own && before != after && was_as_desired && self.was_in_sync(place, upstream)
    }

    /// Nothing is remembered of an annotation at rest: it was in sync if everything was listed.
    fn was_in_sync(&self, place: Place<'_>, upstream: Upstream<'_>) -> bool {
        let is_listed = |cluster: &Cluster| cluster.listed_since(Kind::Connector).is_some();
        match self.sync {
            SyncState::InSync { .. } => true,
            SyncState::OutOfSync => false,
            SyncState::NotSeen => {
                !self.is_held
                    && is_listed(place.hub)
                    && is_listed(upstream.cluster)
                    && place.is_copied_from(upstream)
            }
        }
    }

    /// Whether an empty memory would lead to the same plan.
    pub(crate) fn is_at_rest(&self, now: UnixMillis) -> bool {
        let is_limited = self.limiter.ready_at(Rate::every_ms(DEFER_MS_MIN, 1)) > now;
        self.write.is_idle()
            && self.writing.is_none()
            && !is_limited
            && self.repeats_until <= now
            && self.sync != SyncState::OutOfSync
            && self.deferred_since.is_none()
            && !self.is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::event::EventKind;
    use crate::data::ids::{NamespacedName, Role};
    use crate::data::objects::{ALLOW_REMOVALS, PAUSED};
    use crate::world::fixture::{self, Builder, connector, namespace};
    use crate::write_state::FailureClass;

    const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
    const HUB_NAMESPACE: &str = "ns-6bcb0b35-0000-4000-8000-000000000001";

    /// One hub Connector and the upstream Connector that it names.
    struct Stage {
        stage: fixture::Stage,
        at: ObjectRef,
        memory: MirrorMemory,
        breaker: BreakerState,
        version: u64,
    }

    /// Online on a node, at an address.
    fn online(node: &str, address: u32) -> String {
        format!(
            r#"{{"conditions":[{{"status":"True","type":"Ready"}}],"connectionDetails":{{"publicKey":{{"homeRelay":"r{address}","id":"{node}"}},"type":"PublicKey"}}}}"#
        )
    }

    impl Stage {
        /// The upstream Connector does not exist, and the hub has an annotation.
        fn missing() -> Self {
            let mut stage = fixture::Stage::new(&Settings::default());
            stage.add("up", &[Role::Upstream]);
            let hub = stage.add("hub", &[Role::Hub]);
            stage.shows("up", namespace("default", UID, 100));

            let name = NamespacedName::new(HUB_NAMESPACE, "lab");
            let mut stage = Self {
                stage,
                at: ObjectRef { cluster: hub, kind: Kind::Connector, name },
                memory: MirrorMemory::default(),
                breaker: BreakerState::default(),
                version: 100,
            };
            stage.hub_says(Some(&online("n1", 1)));
            stage
        }

        /// Upstream has another node than the hub.
        fn flipped() -> Self {
            let mut stage = Self::missing();
            stage.upstream_says(&online("n2", 1));
            stage
        }

        fn upstream_says(&mut self, status: &str) {
            self.version += 1;
            let connector = connector("default", "lab", self.version).status(Some(status));
            self.stage.shows("up", connector);
        }

        fn hub_connector(&mut self) -> Builder {
            self.version += 1;
            let connector = connector(HUB_NAMESPACE, "lab", self.version).uid("u-hub");
            connector.of("up", "default", "lab")
        }

        fn hub_says(&mut self, annotation: Option<&str>) {
            let connector = self.hub_connector();
            let connector = match annotation {
                Some(text) => connector.annotation(UPSTREAM_STATUS, text),
                None => connector,
            };
            self.stage.shows("hub", connector);
        }

        fn lose(&mut self, cluster: &str, kind: Kind) {
            let error = "lost".into();
            self.stage.tell(EventKind::WatchLost { cluster: cluster.into(), kind, error });
        }

        fn restore(&mut self) {
            let kind = Kind::Connector;
            self.stage.tell(EventKind::ResourceVersionRegressed { cluster: "up".into(), kind });
        }

        fn now(&self) -> UnixMillis {
            self.stage.now
        }

        /// The view this long after the start.
        fn view(&self, ms: u64) -> View<'_> {
            let place = Place::find(&self.stage.world, &self.at).unwrap();
            let now = self.now().plus(ms);
            View::new(place, &self.memory, self.breaker, 0, true, now)
        }

        fn plan(&self, ms: u64) -> Plan {
            plan(&self.view(ms))
        }

        fn queue(&self, ms: u64) -> Option<QueueKey> {
            self.plan(ms).next.turn.map(|turn| turn.queue)
        }

        /// The write that is planned once its queue admits it.
        fn planned(&self, ms: u64) -> (QueueKey, Write) {
            let admitted = View { admitted_by: self.queue(ms), ..self.view(ms) };
            let turn = plan(&admitted).next.turn.unwrap();
            (turn.queue, *turn.write.expect("its queue admits it"))
        }

        fn write(&mut self, outcome: &Outcome) {
            let (queue, write) = self.planned(0);
            let Job::Mirror(_, job) = write.job else { panic!("no mirror") };
            let now = self.now();
            self.memory.on_started(job, queue, ActionId(1), now);
            self.memory.on_finished(ActionId(1), outcome, &self.stage.world.settings, now).unwrap();
        }

        fn overwrite(&mut self) {
            let now = self.now();
            self.memory.on_overwritten(None, &self.stage.world.settings.mirror, now);
        }
    }

    fn forbidden() -> Outcome {
        Outcome::Refused { error: "403".into() }
    }

    /// In the order of the guards.
    #[test]
    fn an_annotation_is_left_as_it_is_at_the_first_step_that_fails() {
        type Break = fn(&mut Stage);
        let steps: [(Verdict, Break); 11] = [
            (Verdict::Disabled, |s| s.stage.world.settings.mirror.enabled = false),
            (Verdict::HubNotLive, |s| s.lose("hub", Kind::Connector)),
            (Verdict::Paused, |s| {
                let paused = s.hub_connector().annotation(PAUSED, "true");
                s.stage.shows("hub", paused);
            }),
            (Verdict::UpstreamNotConfigured, |s| {
                let other = s.hub_connector().of("other", "default", "lab");
                s.stage.shows("hub", other);
            }),
            (Verdict::UpstreamNotLive, |s| s.lose("up", Kind::Connector)),
            (Verdict::UpstreamNotLive, |s| s.lose("up", Kind::Namespace)),
            (Verdict::Held(Cause::ObjectUnreadable), |s| {
                s.stage.tell(EventKind::Unreadable {
                    cluster: "up".into(),
                    kind: Kind::Connector,
                    object: NamespacedName::new("default", "other"),
                    error: "broken".into(),
                });
            }),
            (Verdict::Held(Cause::ObjectUnreadable), |s| {
                s.upstream_says(&format!("{}{}", "[".repeat(200), "]".repeat(200)));
            }),
            (Verdict::Held(Cause::UpstreamRestored), Stage::restore),
            (Verdict::Held(Cause::NamespaceMissing), |s| {
                s.stage.list("up", Kind::Namespace, []);
            }),
            (Verdict::BothAbsent, |s| {
                s.hub_says(None);
                s.lose("up", Kind::Namespace);
            }),
        ];
        for (verdict, break_it) in steps {
            let mut stage = Stage::missing();
            break_it(&mut stage);

            let plan = stage.plan(60_000);
            assert_eq!((plan.verdict, plan.next), (verdict, Next::AWAIT_CHANGE));
        }
    }

    #[test]
    fn a_removal_waits_for_its_breaker_and_its_queue_unless_a_person_allowed_it() {
        let mut stage = Stage::missing();
        let queued = Verdict::RemovalQueued(Ground::Listed);
        assert_eq!(stage.plan(5_000).verdict, queued, "it is not late");
        let admitted = View { admitted_by: Some(QueueKey::Removals), ..stage.view(5_000) };
        let plan = plan(&admitted);
        assert!(matches!(plan.verdict, Verdict::RemovalDue { .. }), "{plan:?}");

        let reset_at = stage.now().plus(60_000);
        stage.breaker.reset_at = Some(reset_at);
        assert_eq!(stage.plan(60_000).next, Next::requeue_at(reset_at.plus(5_000)), "once more");

        stage.breaker.is_tripped = true;
        let held = Verdict::RemovalHeld(Ground::Listed);
        assert_eq!(stage.plan(5_000).verdict, held);
        let allowing = namespace(HUB_NAMESPACE, "u-ns", 100).annotation(ALLOW_REMOVALS, "true");
        stage.stage.shows("hub", allowing);
        assert_eq!(stage.queue(5_000), Some(QueueKey::AllowedRemovals));
    }

    #[test]
    fn a_mirror_waits_in_the_queue_that_its_past_asks_for() {
        let conflict = Outcome::Conflict { error: "409".into() };
        let mut stage = Stage::flipped();
        let up = stage.stage.world.id_of(&"up".into()).unwrap();
        let hub = stage.at.cluster;
        stage.write(&conflict);
        stage.memory.on_seen(None);
        assert_eq!(stage.queue(0), Some(QueueKey::Immediate), "it was not mirrored");

        stage.write(&Outcome::Unchanged);
        assert_eq!(stage.queue(9_999), Some(QueueKey::Repeats(up)));
        assert_eq!(stage.queue(10_000), Some(QueueKey::Immediate));

        stage.stage.now = stage.now().plus(60_000);
        let queues = [1, 2, 3].map(|_| {
            stage.overwrite();
            stage.queue(60_000).unwrap()
        });
        assert_eq!(queues, [QueueKey::Immediate, QueueKey::Immediate, QueueKey::Rewrites(hub)]);

        let mut stage = Stage::flipped();
        stage.write(&forbidden());
        assert_eq!(stage.queue(0), Some(QueueKey::Retries(hub)));
        stage.memory.write.on_api_answers(FailureClass::Refused, stage.stage.now);
        assert_eq!(stage.queue(0), Some(QueueKey::Immediate), "a success elsewhere released it");
    }

    #[test]
    fn a_foreign_value_in_place_of_a_right_one_is_an_overwrite() {
        let mut stage = Stage::flipped();
        let upstream = stage.view(0).place.upstream.unwrap();
        let right = upstream.connector.unwrap().status.as_ref().map(|status| status.digest);
        for (sync, before, expected) in [
            (SyncState::NotSeen, right, true),
            (SyncState::OutOfSync, right, false),
            (SyncState::InSync { since: None }, right, true),
            (SyncState::InSync { since: None }, None, false),
        ] {
            stage.memory.sync = sync;
            let is_overwritten = stage.memory.is_overwritten(stage.view(0).place, before);
            assert_eq!(is_overwritten, expected, "{sync:?} {before:?}");
        }
    }

    #[test]
    fn a_status_that_does_not_fit_is_reduced_or_removed() {
        let mut stage = Stage::flipped();
        let status = online("n3", 1).replacen('{', r#"{"capabilities":[{"type":"x"}],"#, 1);
        stage.upstream_says(&status);
        let reduced = online("n3", 1);

        for (room, text) in [(reduced.len(), Some(reduced)), (3, None)] {
            stage.stage.world.settings.mirror.annotation_limit_bytes = UPSTREAM_STATUS.len() + room;
            let oversize = if text.is_some() { Oversize::Reduced } else { Oversize::NothingFits };
            assert_eq!(stage.plan(0).oversize, Some(oversize));
            let (_, write) = stage.planned(0);
            assert_eq!(write.annotations, [(UPSTREAM_STATUS.to_owned(), text)]);
        }
    }

    #[test]
    fn a_reduced_status_is_right_also_after_a_restore_and_can_be_overwritten() {
        let mut stage = Stage::flipped();
        let reduced = online("n3", 1);
        stage.upstream_says(&reduced.replacen('{', r#"{"capabilities":[{"type":"x"}],"#, 1));
        stage.stage.world.settings.mirror.annotation_limit_bytes =
            UPSTREAM_STATUS.len() + reduced.len();
        stage.hub_says(Some(&reduced));
        stage.restore();
        assert_eq!(stage.plan(0).verdict, Verdict::InSync);

        let right = stage.view(0).place.row.seen.annotation;
        stage.hub_says(Some("{}"));
        assert!(stage.memory.is_overwritten(stage.view(0).place, right));
    }

    #[test]
    fn memory_stays_small() {
        assert!(size_of::<MirrorMemory>() <= 240, "{}", size_of::<MirrorMemory>());
    }
}
