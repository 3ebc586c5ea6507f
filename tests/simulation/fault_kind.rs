//! The kinds of faults.

use serde::{Deserialize, Serialize};
use strum::VariantArray;
use throughline::core::contract::cause::Cause;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, VariantArray, Serialize, Deserialize)]
pub(crate) enum FaultKind {
    LinkSlow,
    LinkBlocked,
    RequestsLost,
    AnswersLost,
    ConnectionsReset,
    AnswerCutInside,
    ServerHangs,
    ServerDown,
    ServerSlow,
    RequestsRefused,
    /// 429, with and without Retry-After.
    RequestsThrottled,
    WriteAnswersHidden,
    RequestsHang,
    /// Writes are carried out twice, as by a proxy that repeats them after a time-out.
    WritesRepeated,
    WatchesCut,
    HistoryCompacted,
    KindNotServed,
    /// Watches show changes late; lists and writes use the newest state.
    WatchesLate,
    /// Lists and watches show an older state; writes use the newest.
    ReadsStale,
    /// Instances list again, and see an older state than they saw before.
    TimeTravel,
    BookmarksMissing,
    /// All pages of a list but the first get a 410.
    PagesExpire,
    InstanceKilled,
    /// All instances are killed as soon as one of them has touched a Gateway.
    KilledAfterTouch,
    InstanceStopped,
    InstanceFrozen,
    InstanceStartedTwice,
    WallClockJumps,
    /// No room for the event log, nor for the backup of a route.
    DiskFull,
    DiskHangs,
    LeaseDeleted,
    LeaseEdited,
    ReplicatorWrites,
    ReplicatorWritesOldStatus,
    TriggerOverwritten,
    /// An older throughline, or the carrier, puts an earlier trigger back.
    OldTriggerWritten,
    HostileWrite,
    EdgeAnnotationOverwritten,
    CarrierStuck,
    ExtensionServerLags,
    ConnectorMadeAgain,
    GatewayMadeAgain,
    ParentGone,
    /// All parents of a route go for good.
    TenantLeaves,
    UpstreamLeaves,
    UpstreamRestored,
    HubRestored,
    EdgeRestored,
    /// A cluster's etcd is empty for a while, and then as before.
    EtcdLost,
    /// What shows a discovered upstream goes for a while, and returns as another object.
    OfferDeleted,
    OfferUnlabelled,
    OfferUndecodable,
    /// The upstream's server takes another token, and no other.
    OfferTokenChanged,
    /// An object of nobody's that can't be decoded lies beside the others.
    StrangerUndecodable,
    SourceHangs,
    /// The watch of the source begins with a 410.
    SourceExpires,
    /// The same, and the list that follows breaks off inside.
    SourceBreaksOff,
}

const LATE: &[Cause] =
    &[Cause::NotMirrored, Cause::NotCarried, Cause::NotPlaced, Cause::NotAnnounced];
const UNREACHABLE: &[Cause] = &[
    Cause::ClusterUnavailable,
    Cause::DiscoveryFailing,
    Cause::LeaseUnusable,
    Cause::NoLeader,
    Cause::WriteFailing,
];
const REFUSED: &[Cause] =
    &[Cause::CredentialsRejected, Cause::PermissionMissing, Cause::WriteRefused];
const ORPHANED: &[Cause] = &[Cause::RouteSettling, Cause::Orphaned, Cause::DeletesHeld];
const ABSENT: &[Cause] = &[Cause::NamespaceMissing, Cause::RemovalsHeld, Cause::NotReplicated];
const CUT: &[Cause] = &[Cause::ClusterUnavailable];
const RESTORED: &[Cause] = &[Cause::ClusterUnavailable, Cause::UpstreamRestored];
/// Also by instances that see different states, and undo each other's writes.
const OVERWRITTEN: &[Cause] = &[Cause::Overwritten];
const LEADERLESS: &[Cause] = &[Cause::LeaseUnusable, Cause::NoLeader];
const UNDISCOVERED: &[Cause] = &[Cause::DiscoveryFailing, Cause::UpstreamUnknown];
const OFFERED: &[Cause] = &[
    Cause::ClusterUnavailable,
    Cause::ClustersMissing,
    Cause::CredentialsRejected,
    Cause::KubeconfigInvalid,
    Cause::ProjectMissing,
    Cause::UpstreamUnknown,
    Cause::NotMirrored,
    // A route is not deleted while the upstream's server rejects the token that would prove it.
    Cause::WriteFailing,
];

impl FaultKind {
    /// Those that need a source of upstreams.
    pub(crate) const OF_DISCOVERY: &[Self] = Self::VARIANTS.split_at(Self::OfferDeleted as usize).1;

    /// Those that every plan may have.
    pub(crate) const OF_CLUSTERS: &[Self] = Self::VARIANTS.split_at(Self::OfferDeleted as usize).0;

    /// What may begin while it lasts, and shortly after.
    pub(crate) const fn causes(self) -> &'static [&'static [Cause]] {
        match self {
            Self::LinkSlow
            | Self::LinkBlocked
            | Self::RequestsLost
            | Self::AnswersLost
            | Self::AnswerCutInside
            | Self::ServerHangs
            | Self::ServerDown
            | Self::ServerSlow
            | Self::RequestsThrottled
            | Self::WriteAnswersHidden
            | Self::RequestsHang
            | Self::WritesRepeated => &[UNREACHABLE, LATE, OVERWRITTEN],
            Self::RequestsRefused => &[UNREACHABLE, LATE, REFUSED],
            Self::ConnectionsReset
            | Self::WatchesCut
            | Self::HistoryCompacted
            | Self::PagesExpire => &[CUT, LATE, OVERWRITTEN],
            Self::KindNotServed => &[CUT, LATE, OVERWRITTEN, &[Cause::KindNotServed]],
            Self::WatchesLate => &[LATE, OVERWRITTEN],
            Self::ReadsStale | Self::TimeTravel => &[RESTORED, LATE, OVERWRITTEN],
            Self::InstanceKilled
            | Self::KilledAfterTouch
            | Self::InstanceStopped
            | Self::LeaseDeleted
            | Self::LeaseEdited => &[LEADERLESS, LATE],
            Self::InstanceFrozen => &[LEADERLESS, LATE, OVERWRITTEN],
            // No route is deleted that could not be written down first.
            Self::DiskFull | Self::DiskHangs => &[&[Cause::EventLogFailing, Cause::WriteFailing]],
            Self::ReplicatorWrites
            | Self::ReplicatorWritesOldStatus
            | Self::TriggerOverwritten
            | Self::OldTriggerWritten
            | Self::HostileWrite => &[OVERWRITTEN],
            Self::EdgeAnnotationOverwritten | Self::CarrierStuck => &[&[Cause::NotCarried]],
            Self::ParentGone | Self::TenantLeaves => &[ORPHANED],
            // The second that leaves a source of two within a minute is held.
            Self::UpstreamLeaves => {
                &[&[Cause::UpstreamUnknown, Cause::ClustersMissing, Cause::ProjectMissing], LATE]
            }
            Self::UpstreamRestored => &[RESTORED, LATE, ORPHANED],
            // Several restores in a row undo what this instance wrote, as another would.
            Self::HubRestored => &[RESTORED, LATE, ORPHANED, OVERWRITTEN],
            Self::EdgeRestored => &[CUT, LATE, OVERWRITTEN],
            // The hub may hold the Secrets that show the upstreams.
            Self::EtcdLost => {
                &[RESTORED, LATE, ABSENT, ORPHANED, LEADERLESS, &[Cause::ClustersMissing]]
            }
            Self::OfferDeleted
            | Self::OfferUnlabelled
            | Self::OfferUndecodable
            | Self::OfferTokenChanged
            | Self::StrangerUndecodable => &[OFFERED],
            Self::SourceHangs | Self::SourceExpires => &[UNDISCOVERED],
            Self::SourceBreaksOff => &[UNREACHABLE],
            Self::BookmarksMissing
            | Self::InstanceStartedTwice
            | Self::WallClockJumps
            | Self::ExtensionServerLags
            | Self::ConnectorMadeAgain
            | Self::GatewayMadeAgain => &[],
        }
    }
}
