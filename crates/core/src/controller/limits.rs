//! The limits of the queues and breakers.

use super::state::Machine;
use crate::contract::settings::TouchSettings;
use crate::data::object_ref::ClusterId;
use crate::rate_limit::Rate;
use crate::rules::nudge;
use crate::world::World;
use crate::write_queue::{Early, QueueKey, QueueLimit};

/// Each Connector of an upstream is mirrored again within this time, however many change.
const REPEATS_WITHIN_S: u64 = 30;
const REPEATS_PER_SECOND_MIN: u64 = 20;

/// The carrier's default rate. It applies to removals that an operator allowed, and to retries.
const CARRIER_RATE: Rate = Rate::every_ms(50, 20);

/// A tenth of the carrier's default rate.
const REWRITES_PER_SECOND: u32 = 2;

pub(super) fn limit_of(m: &Machine, queue: QueueKey) -> QueueLimit {
    let settings = &m.world.settings;
    match queue {
        QueueKey::Immediate => QueueLimit::of(Rate::UNLIMITED),
        QueueKey::Repeats(upstream) => {
            let per_second = repeats_per_second(upstream, &m.world);
            QueueLimit::of(Rate::per_second(per_second, per_second))
        }
        QueueKey::Retries(_) => {
            let early = Early::Spread { over_ms: settings.retry.max_ms };
            QueueLimit { early, ..QueueLimit::of(CARRIER_RATE) }
        }
        QueueKey::AllowedRemovals => QueueLimit::of(CARRIER_RATE),
        QueueKey::Rewrites(_) => QueueLimit::of(Rate::per_second(REWRITES_PER_SECOND, 1)),
        QueueKey::Deferrable(_) => {
            deferrable(settings.shard.part_of(settings.mirror.deferrable_per_second))
        }
        QueueKey::Nudges(hub) => {
            let carrier = m.memory.carriers.get(&hub);
            QueueLimit::of(nudge::rate(carrier.is_some_and(nudge::Carrier::is_silent)))
        }
        QueueKey::Touches(_) => touches(settings.shard.part_of(settings.touch.max_per_second)),
        QueueKey::Removals => {
            let n = settings.mirror.max_removals_per_minute;
            QueueLimit::at_most_per_minute(settings.shard.part_of(n))
        }
        QueueKey::Deletes => {
            QueueLimit::at_most_per_minute(settings.shard.part_of(settings.orphans.max_per_minute))
        }
    }
}

/// `mirror.deferredPerSecond`, with a burst of twice that, and at most as many in flight: a hub
/// that answers slowly gets no more. 0 lifts the limit.
fn deferrable(per_second: u32) -> QueueLimit {
    let at_once = per_second.saturating_mul(2);
    let limit = QueueLimit::of(Rate::per_second(per_second, at_once));
    match per_second {
        0 => limit,
        _ => QueueLimit { in_flight_max: at_once as usize, ..limit },
    }
}

/// Lower ranks leave half of the burst to urgent touches.
fn touches(per_second: u32) -> QueueLimit {
    let burst = per_second.saturating_mul(TouchSettings::BURST_SECONDS);
    let limit = QueueLimit::of(Rate::per_second(per_second, burst));
    QueueLimit { low_rank_rate: Rate::per_second(per_second, burst / 2), ..limit }
}

fn repeats_per_second(upstream: ClusterId, world: &World) -> u32 {
    let name = world.clusters.get(&upstream).map(|upstream| &upstream.name);
    let connectors = name.map_or(0, |name| world.links.counts_of(name).connectors);
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
        let mut m = Machine::default();
        m.world.settings.mirror.max_removals_per_minute = 0;
        m.world.settings.mirror.deferrable_per_second = 0;
        let deferrable = limit_of(&m, QueueKey::Deferrable(ClusterId(1)));

        assert_eq!(limit_of(&m, QueueKey::Removals).in_flight_max, 0);
        assert_eq!(deferrable.rate, Rate::UNLIMITED);
        assert_eq!(deferrable.in_flight_max, usize::MAX);
    }
}
