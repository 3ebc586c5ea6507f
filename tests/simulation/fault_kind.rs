//! The kinds of faults.

use strum::VariantArray;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, VariantArray)]
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
    /// A value that is made to mislead.
    HostileWrite,
    EdgeAnnotationOverwritten,
    CarrierStuck,
    ExtensionServerLags,
    ConnectorMadeAgain,
    GatewayMadeAgain,
    /// A parent of a route goes for a while.
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
    /// It loses its label, and gets it back.
    OfferUnlabelled,
    /// It holds a number where a text belongs.
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

impl FaultKind {
    pub(crate) const ALL: &[Self] = Self::VARIANTS;

    /// Those that need a source of upstreams.
    pub(crate) const OF_DISCOVERY: &[Self] = Self::VARIANTS.split_at(Self::OfferDeleted as usize).1;

    /// Those that every plan may have.
    pub(crate) const OF_CLUSTERS: &[Self] = Self::VARIANTS.split_at(Self::OfferDeleted as usize).0;
}
