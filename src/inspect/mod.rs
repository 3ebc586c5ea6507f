//! Reads the state of a fleet from the clusters or an event log, and prints it for `status` and `trace`.
//! ([`instance`](crate::instance) reads that of a running instance.)

pub mod clusters;
pub mod find;
pub mod judge;
pub mod log;
pub(crate) mod read_only;
pub mod status;
pub mod trace;
pub mod writers;

use crate::core::contract::settings::{OrphanMode, Settings};
use crate::core::data::shard::Shard;
use crate::core::view::fleet::{Fleet, Source};
use crate::outside_text::one_line;
use crate::report::{duration, moment};

const TEN_YEARS_MS: u64 = 315_000_000_000;

/// Settings under which a machine observes and never acts. Without leadership it mirrors nothing;
/// touches wait for a window that never closes, and a touch that is due earlier, because of a stamp, is
/// dropped and not decided again.
pub fn read_only_settings(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.orphans.mode = OrphanMode::Off;
    settings.mirror.nudge = false;
    settings.touch.window_ms = TEN_YEARS_MS;
    settings.touch.confirm_after_ms.clear();
    settings.touch.confirm_after_outage_ms = TEN_YEARS_MS;
    settings.retry.first_ms = TEN_YEARS_MS;
    settings
}

/// Why the queried instance, or any, does not write.
fn not_writing(fleet: &Fleet) -> Option<String> {
    if let Some(until) = fleet.leader.waits_until_ms {
        let wait = duration(until.since(fleet.at_ms));
        return Some(format!("no instance writes for {wait}: the Lease was not there before"));
    }
    let is_other = fleet.source == Source::Instance && !fleet.leader.leads;
    let holder = fleet.leader.holder.as_ref().filter(|_| is_other)?;
    Some(format!("this instance does not lead; {} does, and knows more", one_line(holder)))
}

/// The time and the source of the state, and its part of the fleet.
fn origin(fleet: &Fleet) -> String {
    let Shard { index, of } = fleet.shard;
    let shard = match fleet.shard.is_whole() {
        true => String::new(),
        false => {
            format!("; only shard {index} of {of}, counted from 0: ask the others for the rest")
        }
    };
    let source = match fleet.source {
        Source::Clusters => "from the clusters; a running instance knows more (--state)",
        Source::Instance => "from a running instance",
        Source::Log => "from a run's event log",
        Source::Recording => "from a recording without throughline",
    };
    format!("{} UTC, {source}{shard}", moment(fleet.at_ms))
}
