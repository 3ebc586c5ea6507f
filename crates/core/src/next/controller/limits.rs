//! Which limit each queue and each breaker has.

use super::Memory;
use crate::circuit_breaker::BreakerLimit;
use crate::contract::settings::{MirrorSettings, OrphanSettings, Settings, TouchSettings};
use crate::data::ids::ClusterName;
use crate::data::object_ref::ClusterId;
use crate::next::rules::nudge;
use crate::next::world::World;
use crate::next::write_queue::{Early, QueueKey, QueueLimit};
use crate::rate_limit::Rate;

/// What was removed within this time counts with what would be.
const REMOVAL_WINDOW_MS: u64 = 600_000;

/// Each Connector of an upstream is mirrored again within this time, however many change.
const REPEATS_WITHIN_S: u64 = 30;
const REPEATS_PER_SECOND_MIN: u64 = 20;

/// What the carrier takes: removals that a person allowed, and retries.
const CARRIER_RATE: Rate = Rate::every_ms(50, 20);

/// A tenth of what the carrier takes.
const REWRITES_PER_SECOND: u32 = 2;

pub(crate) fn queue_limit(
    key: QueueKey,
    settings: &Settings,
    world: &World,
    memory: &Memory,
) -> QueueLimit {
    match key {
        QueueKey::Immediate => QueueLimit::of(Rate::UNLIMITED),
        QueueKey::Repeats(upstream) => {
            let per_second = repeats_per_second(upstream, world);
            QueueLimit::of(Rate::per_second(per_second, per_second))
        }
        QueueKey::Retries(_) => {
            let early = Early::Spread { over_ms: settings.retry.max_ms };
            QueueLimit { early, ..QueueLimit::of(CARRIER_RATE) }
        }
        QueueKey::AllowedRemovals => QueueLimit::of(CARRIER_RATE),
        QueueKey::Rewrites(_) => QueueLimit::of(Rate::per_second(REWRITES_PER_SECOND, 1)),
        QueueKey::Deferrable(_) => deferrable(&settings.mirror),
        QueueKey::Nudges(hub) => {
            let carrier = memory.carriers.get(&hub);
            QueueLimit::of(nudge::rate(carrier.is_some_and(nudge::Carrier::is_silent)))
        }
        QueueKey::Touches(_) => touches(&settings.touch),
        QueueKey::Removals => {
            QueueLimit::at_most_per_minute(settings.mirror.max_removals_per_minute)
        }
        QueueKey::Deletes => QueueLimit::at_most_per_minute(settings.orphans.max_per_minute),
    }
}

pub(crate) fn removal_limit(settings: &MirrorSettings) -> BreakerLimit {
    let share = BreakerLimit::of_share(settings.max_share, settings.share_from.into());
    BreakerLimit { window_ms: REMOVAL_WINDOW_MS, guards_all: true, ..share }
}

/// The share applies to populations of more than `share_from`.
pub(crate) fn orphan_limit(settings: &OrphanSettings) -> BreakerLimit {
    BreakerLimit::of_share(settings.max_share, u64::from(settings.share_from) + 1)
}

/// `mirror.deferredPerSecond`, twice that at once, and as many without an outcome, so that a hub
/// that answers slowly is not given ever more of them. 0 lifts the limit.
fn deferrable(settings: &MirrorSettings) -> QueueLimit {
    let per_second = settings.deferrable_per_second;
    let at_once = per_second.saturating_mul(2);
    let limit = QueueLimit::of(Rate::per_second(per_second, at_once));
    match per_second {
        0 => limit,
        _ => QueueLimit { in_flight_max: at_once as usize, ..limit },
    }
}

/// Lower ranks leave half of the burst to urgent touches.
fn touches(settings: &TouchSettings) -> QueueLimit {
    let per_second = settings.max_per_second;
    let burst = per_second.saturating_mul(TouchSettings::BURST_SECONDS);
    let limit = QueueLimit::of(Rate::per_second(per_second, burst));
    QueueLimit { low_rank_rate: Rate::per_second(per_second, burst / 2), ..limit }
}

pub(super) fn repeats_per_second(upstream: ClusterId, world: &World) -> u32 {
    let name = world.clusters.get(&upstream).map(|upstream| &upstream.name);
    let connectors = name.map_or(0, |name: &ClusterName| world.counts_of(name).connectors);
    per_second_for(connectors)
}

fn per_second_for(connectors: u64) -> u32 {
    let per_second = connectors.div_ceil(REPEATS_WITHIN_S).max(REPEATS_PER_SECOND_MIN);
    u32::try_from(per_second).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connector_of_a_large_upstream_is_mirrored_again_within_30_s() {
        assert_eq!([0, 600, 601, 3_000].map(per_second_for), [20, 20, 21, 100]);
    }

    #[test]
    fn a_limit_of_0_closes_a_queue_of_removals_and_lifts_that_of_deferred_mirrors() {
        let mut settings = Settings::default();
        settings.mirror.max_removals_per_minute = 0;
        settings.mirror.deferrable_per_second = 0;
        let hub = ClusterId(1);
        let limit_of = |key| queue_limit(key, &settings, &World::default(), &Memory::default());

        assert_eq!(limit_of(QueueKey::Removals).in_flight_max, 0);
        assert_eq!(limit_of(QueueKey::Deferrable(hub)).rate, Rate::UNLIMITED);
        assert_eq!(limit_of(QueueKey::Deferrable(hub)).in_flight_max, usize::MAX);
    }
}
