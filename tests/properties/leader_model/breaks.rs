//! The rules of the election, each broken on purpose.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenRule {
    /// The process exits when it loses the Lease.
    ExitsOnLoss,
    /// The instance gives up after one failed renewal.
    GivesUp,
    /// It trusts the Lease's timestamps, with a clock that is ahead.
    TimestampsTrusted,
    /// Only a response ends the tenure.
    TenureNeverEnds,
    /// The tenure counts from the renewal's response.
    TenureFromResponse,
    /// The gate leaves no room for the longest write.
    GateIsTheLease,
    /// Other clocks are assumed to run at the same speed.
    ClocksAgree,
    /// A Lease that was deleted or edited is led at once.
    LeadsAtOnce,
    /// The Lease is released before the leader's writes have ended.
    ReleasedWhileWriting,
    /// A Lease that is not led yet is released, so that the next holder leads at once.
    ReleasedBeforeLeading,
    /// Updates ignore the resourceVersion.
    VersionIgnored,
    /// The gate is checked when a write is queued, and not when it is sent.
    GateAtQueueOnly,
    /// Writes to objects have no precondition.
    NoFence,
    /// A leader does not look at what it wrote before.
    NotPutRight,
    /// Work that failed once is not started again.
    WorkNotStartedAgain,
}
