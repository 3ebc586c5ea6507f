//! How fast touches leave: when a platform stamp ends the window, what one object's budget allows, and
//! what one edge takes.

mod edge;
mod returns;
mod stamps;
mod starts;

use std::collections::BTreeMap;

use edge::{Edge, OWNS_ANNOTATION, OWNS_LABEL, Site, connector, wrote};
use throughline_core::contract::action::{Decision, Urgency, Verb};
use throughline_core::contract::event::Outcome;
use throughline_core::contract::note::{NoteKind, StallCause};
use throughline_core::contract::settings::{Settings, TouchScope};
use throughline_core::data::time::UnixMillis;
use throughline_core::status::trigger::Trigger;

use crate::stage::{START, Stage, UID, status};

const KEY: &str = "gateway.envoyproxy.io/connector-liveness";
const STAMP: &str = "networking.datumapis.com/connector-ready-generation";
/// When the edge's lists are complete, after the start.
const LISTED: u64 = 100;

fn all_at(at: u64, gateways: usize) -> Vec<(u64, String)> {
    (0..gateways).map(|n| (at, format!("g{n:04}"))).collect()
}

fn class_scope() -> Settings {
    let mut settings = Settings::default();
    settings.touch.scope = TouchScope::GatewayClass;
    settings
}

#[test]
fn four_flips_of_a_gateway_are_announced_as_they_come_and_then_one_a_second() {
    let mut edge = Edge::settled(Settings::default(), 1, 1);
    let at = edge.now();
    for n in 0..6 {
        edge.pass_to(at + n * 150);
        edge.flip("c0", (n % 2 == 1).then_some("n1"));
    }
    edge.pass_to(at + 4_000);
    let times: Vec<_> = edge.touched(at).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [100, 250, 400, 550, 1_100], "the last two flips in one");
}

#[test]
fn a_connector_that_flaps_for_a_minute_costs_64_touches_and_ends_right() {
    // A class speaks for all its Gateways: five a second.
    for (scope, costs) in [(TouchScope::Gateway, 60..=64), (TouchScope::GatewayClass, 295..=300)] {
        let mut settings = Settings::default();
        settings.touch.scope = scope;
        let mut edge = Edge::settled(settings, 1, 1);
        let at = edge.now();
        for n in 0..600_u64 {
            edge.pass_to(at + n * 100);
            edge.flip("c0", (n % 2 == 1).then_some("n1"));
            // The extension server keeps up, which makes each flip due 20 ms later.
            edge.pass_to(at + n * 100 + 20);
            edge.stamp("g0000", if n % 2 == 1 { "true/n1" } else { "false/" });
        }
        edge.pass_to(at + 60_000);
        let touches = edge.touches.len();
        assert!(costs.contains(&touches), "{touches}");
        let values: std::collections::BTreeSet<_> =
            edge.touches.iter().map(|(.., trigger)| trigger.to_string()).collect();
        assert_eq!(values.len(), touches, "no value is used twice");
        edge.pass_to(at + 200_000);
        let confirmed = edge.touches.last().unwrap().2;
        assert_eq!(confirmed.c, 2, "{scope:?}");
        let whole = edge.stage.machine.view();
        let announced = format!("{:?}", whole.connectors[0].edges[0].gateways[0].announcement);
        assert_eq!(announced, "Announced");
    }
}

#[test]
fn confirmations_take_no_turn_from_announcements() {
    let mut settings = Settings::default();
    settings.touch.burst = 1;
    let mut edge = Edge::settled(settings, 1, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 5_100);
    edge.flip("c0", Some("n1"));
    edge.pass_to(at + 5_200);
    let times: Vec<_> = edge.touched(at).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [100, 5_100, 5_200], "announced, confirmed, announced");
}

#[test]
fn a_confirmation_that_would_follow_within_the_window_goes_along() {
    let mut edge = Edge::settled(Settings::default(), 2, 2);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 4_930);
    edge.flip("c1", None);
    edge.pass_to(at + 6_000);
    let first = |n: usize, ms| (ms, format!("g{n:04}"));
    assert_eq!(edge.touched(at), [first(0, 100), first(0, 5_030), first(1, 5_030)]);
}

#[test]
fn three_hundred_gateways_of_one_flip_leave_in_an_even_stream() {
    let mut edge = Edge::settled(Settings::default(), 300, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at).len(), 200, "the burst");
    edge.pass_to(at + 1_100);
    assert_eq!(edge.touched(at).len(), 50);
    edge.pass_to(at + 2_100);
    assert_eq!(edge.touched(at).len(), 50);
    let waiting: Vec<_> = edge
        .stage
        .notes()
        .into_iter()
        .filter_map(|note| match note.kind {
            NoteKind::TouchesWaiting { waiting, .. } => Some(waiting.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(
        waiting,
        ["100 touches wait; about 2 s at 50 a second", "no touch waits any longer"]
    );
}

#[test]
fn a_flip_goes_ahead_of_what_a_start_finds_and_of_confirmations() {
    let mut edge = Edge::new(Settings::default(), 2_000, 2_000);
    edge.pass_to(LISTED + 10_000);
    let before = edge.touches.len();
    assert!((590..=600).contains(&before), "{before}");
    // The last one in the stream, and one that is touched already: both have room at once.
    let at = edge.now();
    edge.flip("c1999", None);
    edge.flip("c0", None);
    edge.touches.clear();
    edge.pass_to(at + 100);
    let touched: Vec<_> = edge.touched(at).into_iter().filter(|(ms, _)| *ms == 100).collect();
    assert!(touched.contains(&(100, "g1999".into())), "{touched:?}");
    assert!(touched.contains(&(100, "g0000".into())), "{touched:?}");
}

#[test]
fn while_changes_fill_the_pace_one_touch_in_sixteen_is_another() {
    let mut edge = Edge::settled(Settings::default(), 401, 401);
    let at = edge.now();
    edge.flip("c400", None);
    // Every Gateway changes each second: more than the edge takes.
    for second in 0..30_u64 {
        edge.pass_to(at + 4_500 + second * 1_000);
        for n in 0..400 {
            edge.flip(&format!("c{n}"), (second % 2 == 1).then_some("n1"));
        }
    }
    let confirmed = edge.touches.iter().find(|(_, name, t)| name == "g0400" && t.c == 1).unwrap();
    assert!(confirmed.0 - at <= 6_000, "{}", confirmed.0 - at);
}

#[test]
fn a_stall_says_that_the_edge_takes_no_more_and_how_long_it_takes() {
    let mut edge = Edge::settled(Settings::default(), 1_000, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 5_000);
    let stall = edge.stage.notes().into_iter().find_map(|note| match note.kind {
        NoteKind::Stalled(stall) => Some(stall),
        _ => None,
    });
    let stall = stall.unwrap();
    assert_eq!(stall.cause, StallCause::TouchesWait { cluster: "edge".into() });
    assert_eq!(
        stall.reason,
        "the edge takes no more touches: 555 touches wait; about 12 s at 50 a second"
    );
    let view = edge.stage.machine.view();
    let cluster = view.clusters.iter().find(|c| c.name == "edge".into()).unwrap();
    assert_eq!(cluster.touches_waiting.unwrap().touches, 555);
    edge.pass_to(at + 60_000);
    assert!(edge.stage.notes().iter().any(|note| matches!(note.kind, NoteKind::StallEnded(_))));
}

#[test]
fn without_a_limit_all_leave_at_once() {
    let mut settings = Settings::default();
    settings.touch.max_per_second = 0;
    let mut edge = Edge::settled(settings, 1_000, 1);
    let at = edge.now();
    edge.flip("c0", None);
    edge.pass_to(at + 100);
    assert_eq!(edge.touched(at).len(), 1_000);
}

/// The most touches in any window of time, with what the limit allows.
fn assert_paced(touches: &[(u64, String, Trigger)]) {
    for first in 0..touches.len() {
        for last in (first..touches.len()).step_by(37) {
            let (count, ms) = (last - first + 1, touches[last].0 - touches[first].0);
            assert!(count as u64 <= 200 + ms * 50 / 1_000 + 1, "{count} in {ms} ms");
        }
    }
}

#[test]
fn an_announcement_that_the_api_server_refuses_keeps_its_place() {
    let mut edge = Edge::settled(Settings::default(), 1, 1);
    let at = edge.now();
    edge.stage.edge(None);
    let object = connector("c0", edge.stage.version(), None, "");
    edge.stage.applied("edge", &object);
    edge.stage.pass_to(at + 100);
    let touch = edge.stage.only_action();
    assert_eq!(touch.urgency, Urgency::Routing);
    edge.stage.finish(&touch, Outcome::Failed { error: "503".into(), retry_after_ms: None });
    edge.pass_to(at + 10_000);
    let times: Vec<_> = edge.touched(at).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [1_100, 6_100], "announced again, and confirmed 5 s later");
}
