//! What an instance does wrong on purpose.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenRule {
    /// An election that takes part again keeps the tenure that it had before.
    RejoinKeepsTenure,
    /// Whatever is free is taken, and nothing is given up.
    QuotaIgnored,
    /// A shard is released while its last writes are still under way.
    ReleasedWhileWriting,
    /// A write asks whether the instance leads any shard.
    OneGate,
    /// A dead member counts for ever.
    MembersNeverDie,
    /// What is given up may be taken back at once.
    TakesBack,
}
