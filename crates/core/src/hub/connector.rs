//! A Connector at the hub, and what is kept of its repair.

use crate::contention::Contention;
use crate::contract::action::{Urgency, Verb};
use crate::contract::hold_reason::HoldReason;
use crate::contract::note::Stall;
use crate::data::ids::{ResourceVersion, Uid};
use crate::data::interner::{Key, Sym};
use crate::data::optional_millis::OptionalMillis;
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::flight::Flight;
use crate::rate_limit::RateLimiter;
use crate::status::digest::Digest;
use crate::status::liveness::Routing;

/// A Connector at the hub.
#[derive(Default)]
pub(crate) struct HubConnector {
    pub(crate) uid: Uid,
    pub(crate) rv: ResourceVersion,
    pub(super) listed_in: u32,
    /// The upstream Connector that the labels name.
    pub(crate) upstream: Option<UpstreamRef>,
    /// The status annotation.
    pub(crate) digest: Digest,
    /// What an edge reads from the annotation; `None` when it does not decode, or is absent.
    pub(super) routing: Option<Routing>,
    /// Bytes of all other annotations, which count against the same limit.
    pub(super) other_bytes: u32,
    /// The counter in the nudge annotation.
    pub(super) nudge: u32,
    /// A person has paused it: nothing is written to it.
    pub(crate) is_paused: bool,
    /// Whether the anomaly was reported, so that it is reported once.
    pub(super) oversize_reported: bool,
    /// Why the annotation is left as it is although upstream seems to say otherwise.
    pub(crate) held: Option<HoldReason>,
    /// When the watch showed that the upstream namespace with this object's uid was deleted.
    pub(crate) namespace_deleted_at: OptionalMillis,
    /// The annotation is behind because upstream was seen to change, not because of another
    /// writer. Only then is the hop's duration known.
    pub(crate) upstream_changed: bool,
    /// Since when the annotation says what upstream says, or routes as upstream says while the rest is
    /// deferred; `None` while it does not.
    pub(crate) mirrored_at: Option<UnixMillis>,
    /// It was mirrored shortly before, or waited because it had been: until then, a mirror that routes
    /// waits in the queue of its upstream.
    pub(super) repeats_until: UnixMillis,
    /// Limits mirrors that route. Deferred ones wait for it, too, but do not count.
    pub(super) limiter: RateLimiter,
    /// Kept only while something is behind.
    pub(crate) repair: Option<Box<Repair>>,
}

impl HubConnector {
    /// The upstream that it names, if it has an annotation.
    pub(super) fn annotated_of(&self, digest: Digest) -> Option<Sym> {
        let named = self.upstream.filter(|_| digest != Digest::ABSENT);
        named.map(|named| named.cluster)
    }
}

/// The upstream Connector that a hub Connector's labels name, whether or not it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamRef {
    pub(crate) cluster: Sym,
    pub(crate) key: Key,
}

/// What a mirror makes of the status annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Mirror,
    /// A change that does not affect routing.
    Deferred,
    Removal,
}

/// What a write to a hub Connector changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HubWrite {
    /// The status annotation, and what an edge reads from it; `None` when it does not decode.
    Status(Digest, Option<Routing>, Intent),
    Nudge,
}

impl HubWrite {
    pub(super) fn verb(self) -> Verb {
        match self {
            HubWrite::Status(..) => Verb::Mirror,
            HubWrite::Nudge => Verb::Nudge,
        }
    }

    pub(super) fn urgency(self) -> Urgency {
        match self {
            HubWrite::Status(_, _, Intent::Mirror | Intent::Removal) => Urgency::Routing,
            HubWrite::Status(_, _, Intent::Deferred) => Urgency::Deferrable,
            HubWrite::Nudge => Urgency::Nudge,
        }
    }
}

/// The repair of a hub Connector: writes, overwrites, nudges, and the stall, if it takes long.
#[derive(Default)]
pub(crate) struct Repair {
    pub(crate) flight: Flight<HubWrite>,
    /// The watch showed the object since the write in flight was decided.
    pub(super) changed_since_write: bool,
    /// The write in flight requires that the annotation is as it was, not that the object is.
    pub(super) guards_annotation: bool,
    /// The annotation as the watch last showed it, to the byte. `None`: not kept, because writes
    /// meet no conflicts.
    pub(super) observed_text: Option<Option<Box<str>>>,
    pub(crate) contention: Contention,
    pub(crate) stall: Option<Stall>,
    /// Since when the annotation differs in what routes nothing; see [`super::deferral`].
    pub(crate) deferred_since: OptionalMillis,
    /// Since when the annotation is no longer held: until then nothing was late.
    pub(super) free_since: UnixMillis,
    pub(crate) nudges: u32,
    pub(super) next_nudge_at: UnixMillis,
}

impl Repair {
    /// The last nudge is so recent that the pauses between nudges keep growing.
    pub(super) fn nudges_count(&self, now: UnixMillis, quiet_ms: u64) -> bool {
        self.nudges > 0 && now <= self.next_nudge_at.plus(quiet_ms)
    }
}

impl HoldsNames for HubConnector {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            uid: _,
            rv: _,
            listed_in: _,
            upstream,
            digest: _,
            routing: _,
            other_bytes: _,
            nudge: _,
            is_paused: _,
            oversize_reported: _,
            held: _,
            namespace_deleted_at: _,
            upstream_changed: _,
            mirrored_at: _,
            repeats_until: _,
            limiter: _,
            repair,
        } = self;
        upstream.mark(used);
        if let Some(repair) = repair {
            repair.mark(used);
        }
    }
}

impl HoldsNames for UpstreamRef {
    fn mark(&self, used: &mut UsedNames) {
        let Self { cluster, key } = self;
        cluster.mark(used);
        key.mark(used);
    }
}

impl HoldsNames for Repair {
    fn mark(&self, _: &mut UsedNames) {
        let Self {
            flight: _,
            changed_since_write: _,
            guards_annotation: _,
            observed_text: _,
            contention: _,
            stall: _,
            deferred_since: _,
            free_since: _,
            nudges: _,
            next_nudge_at: _,
        } = self;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_a_hub_has_100_000_times_stays_small() {
        assert!(size_of::<HubConnector>() <= 144, "{}", size_of::<HubConnector>());
    }
}
