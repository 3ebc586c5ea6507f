//! One tenant's many changes make no other tenant wait: queues serve namespaces in turn, and a Connector
//! that changes again and again waits behind those of its own project alone.

use crate::fleet::Fleet;
use crate::stage::*;

const BUSY: Tenant = UP;
/// Another project.
const OTHER: Tenant =
    Tenant { cluster: "other", uid: "6bcb0b35-0000-4000-8000-000000000003", ..UP };

/// All Connectors were mirrored a minute ago.
fn fleet(tenants: &[(Tenant, usize)]) -> Fleet {
    let mut fleet = Fleet::of(Settings::default(), tenants);
    fleet.run_to(60 * SECOND);
    assert_eq!(fleet.written.len(), 0);
    fleet
}

/// These upstream Connectors say this, and what is decided then is carried out.
fn says(fleet: &mut Fleet, tenant: Tenant, numbers: Range<usize>, text: &str) {
    fleet.says(tenant, numbers, Some(text));
    fleet.take();
}

/// 400 Connectors all change again each second, for `ms`.
fn flap(fleet: &mut Fleet, ms: u64, node: impl Fn(u64) -> Option<String>) {
    let until = fleet.now() + ms;
    let mut round = 1;
    while fleet.now() < until {
        round += 1;
        for number in 0..400 {
            says(fleet, BUSY, number..number + 1, &status(node(round).as_deref()));
        }
        fleet.run_to(fleet.now() + SECOND);
    }
}

/// The most that fall into one window of time.
fn most_within(times: &[u64], window_ms: u64) -> usize {
    let within =
        |start: u64| times.iter().filter(|at| (start..start + window_ms).contains(at)).count();
    times.iter().map(|start| within(*start)).max().unwrap_or(0)
}

#[test]
fn four_hundred_flapping_connectors_are_mirrored_at_twenty_a_second_and_end_right() {
    // To another node each time; and on and off.
    let nodes: [fn(u64) -> Option<String>; 2] =
        [|round| Some(format!("n{round}")), |round| (round % 2 == 1).then(|| "n1".to_owned())];
    for node in nodes {
        let mut fleet = fleet(&[(BUSY, 400), (OTHER, 1)]);
        let start = fleet.now();
        flap(&mut fleet, 61 * SECOND, node);

        let (first, later): (Vec<_>, Vec<_>) =
            fleet.times(BUSY, start).into_iter().partition(|at| *at == 0);
        assert_eq!(first.len(), 400, "the first change of each is written at once");
        for (window_s, limit) in [(1, 40), (10, 220), (60, 1_220)] {
            let most = most_within(&later, window_s * SECOND);
            assert!(most <= limit, "{most} within {window_s} s");
        }
        // Those that flip may be right again when their turn comes.
        assert!(later.len() >= 20 * 55, "the queue is used: {}", later.len());

        // Another project does not wait for them.
        for flip in 2..7 {
            let at = fleet.now();
            says(&mut fleet, OTHER, 0..1, &status(Some(&format!("n{flip}"))));
            assert_eq!(fleet.times(OTHER, at), [0], "flip {flip}");
            fleet.run_to(at + SECOND);
        }

        fleet.run_to(fleet.now() + 30 * SECOND);
        fleet.assert_right();
    }
}

#[test]
fn a_connector_that_waits_for_the_others_of_its_upstream_is_late_like_any_other() {
    let mut fleet = fleet(&[(BUSY, 400)]);
    let start = fleet.now();
    for text in [N2, N3] {
        says(&mut fleet, BUSY, 0..400, text.unwrap());
    }
    fleet.stage.notes();
    fleet.run_to(start + 8 * SECOND);
    let late = fleet.stage.began(Cause::NotMirrored).remove(0);
    let sentence = "differs from its upstream status; last write: waits for its turn, as it changes again and again.";
    assert!(late.sentence().ends_with(sentence), "{}", late.sentence());
    assert_eq!(late.since.0, START + start);
    fleet.run_to(start + 30 * SECOND);
    fleet.assert_right();
}
