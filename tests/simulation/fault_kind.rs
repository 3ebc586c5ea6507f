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
}

impl FaultKind {
    pub(crate) const ALL: &[Self] = Self::VARIANTS;
}
