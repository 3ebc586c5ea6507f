//! The rules of the election, each broken on purpose.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Exits on loss.
    ExitsOnLoss,
    /// Gives up after one failed renewal.
    GivesUp,
    /// Believes the record's own timestamps, by a clock that is ahead.
    TimestampsTrusted,
    /// Nothing ends the own claim but an answer.
    ClaimNeverEnds,
    /// Counts the own claim from the renewal's answer.
    ClaimFromAnswer,
    /// Leaves no room for the longest write.
    GateIsTheLease,
    /// Takes other clocks to be as fast as its own.
    ClocksAgree,
    /// Leads at once by a Lease that was deleted or edited.
    LeadsAtOnce,
    /// Gives up the Lease before its work has ended.
    ReleasedAtWork,
    /// Gives up a Lease that it did not lead by yet, so that the next one leads at once.
    ReleasedUnled,
    /// Updates whatever version there is.
    VersionIgnored,
    /// Looks at the gate when work is queued, and not when it is sent.
    GateAtQueueOnly,
    /// Writes objects without a precondition.
    NoFence,
    /// Work that failed once is not started again.
    WorkNotStartedAgain,
}
