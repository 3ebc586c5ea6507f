//! Event logs: the format, the log of a live run, and what a replay makes of recorded events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

mod agreement;
mod corpus;
mod event_log;
mod event_log_damage;
mod fixtures;
mod live_log;
#[path = "../support/read_log.rs"]
mod read_log;
mod reading;
mod shards;
#[path = "../support/temp_folder.rs"]
mod temp_folder;
