//! What a start costs, and what a clock that is ahead delays.

use super::*;

/// What 5,000 Gateways cost: at a first install; after a restart; after a label on every Connector and a
/// restart; after the status annotation of every Connector was written and a restart.
#[test]
fn five_thousand_gateways_cost_two_touches_each_at_a_first_install_and_none_after_a_label() {
    const COUNT: usize = 5_000;
    let mut edge = Edge::new(Settings::default(), COUNT, 1_000);
    assert_paced(&edge.pass_to(400_000).touches);
    assert_eq!(edge.touches.len(), 2 * COUNT, "one touch and one confirmation");
    let all_done = edge.touches.last().unwrap().0;
    assert!(all_done <= 200_000, "{all_done}");

    let annotation = wrote("carrier", 0, OWNS_ANNOTATION);
    let label = wrote("kubectl-label", 500_000, OWNS_LABEL);
    let again = wrote("carrier", 500_000, OWNS_ANNOTATION);
    for (fields, touches) in [
        (vec![annotation.clone()], 0),
        (vec![annotation, label.clone()], 0),
        (vec![again, label], 2 * COUNT),
    ] {
        let gateways = edge.gateways.clone();
        let mut restarted = Edge::listed(Settings::default(), gateways, &fields, 600_000);
        assert_paced(&restarted.pass_to(1_000_000).touches);
        assert_eq!(restarted.touches.len(), touches, "{fields:?}");
    }
}

/// Times of writes are whole seconds. A confirmation may have come before another write of its second: the
/// instance that wrote it had not seen that the connector went online and offline again, and ended.
#[test]
fn a_confirmation_in_the_second_of_another_write_is_not_trusted_after_a_restart() {
    let edge = Edge::settled(Settings::default(), 1, 1);
    let (trigger, confirmed_at) = edge.gateways["g0000"].trigger.unwrap();
    assert!(trigger.c > 0);
    let second = confirmed_at / 1_000 * 1_000;
    for (written_at, touches) in [(second - 1_000, 0), (second, 2), (second + 1_000, 2)] {
        let fields = [wrote("carrier", written_at, OWNS_ANNOTATION)];
        let restart = |gateways, at| {
            let mut edge = Edge::listed(Settings::default(), gateways, &fields, at);
            edge.pass_to(at + 500_000);
            edge
        };
        let restarted = restart(edge.gateways.clone(), 2_000_000);
        assert_eq!(restarted.touches.len(), touches, "written at {written_at}");
        assert_eq!(restart(restarted.gateways, 3_000_000).touches, [], "once is enough");
    }
}

/// The API server's clock is thirty days ahead, and with it the time of our own write.
#[test]
fn a_clock_that_is_ahead_does_not_delay_a_confirmation() {
    let mut edge = Edge::new(Settings::default(), 1, 1);
    let mut gateways = edge.pass_to(1_000).gateways.clone();
    let (trigger, written_at) = gateways["g0000"].trigger.unwrap();
    assert_eq!(trigger.c, 0);
    let ahead = 30 * 86_400_000;
    gateways.get_mut("g0000").unwrap().trigger = Some((trigger, written_at + ahead));
    let fields = [wrote("carrier", ahead, OWNS_ANNOTATION)];
    let mut restarted = Edge::listed(Settings::default(), gateways, &fields, 2_000);
    let last = restarted.pass_to(70_000).touches.last().unwrap().2;
    assert_eq!((last.digest, last.c), (trigger.digest, 2));
}

#[test]
fn a_relist_during_a_first_install_costs_one_more_touch_each() {
    const COUNT: usize = 1_000;
    let mut edge = Edge::new(Settings::default(), COUNT, 10);
    edge.pass_to(30_000).stage.lost("edge", "Gateway");
    let names = edge.names();
    edge.pass_to(31_000).relist(&names).pass_to(600_000);
    assert_eq!(edge.touches.len(), 3 * COUNT);
    assert_paced(&edge.touches);
}
