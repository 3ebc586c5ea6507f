//! One tenant's many changes make no other tenant wait: queues serve namespaces in turn, and a Connector
//! that changes again and again waits behind those of its own project alone.

use crate::fleet::{Fleet, name};
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

/// To another node each time.
fn moves(round: u64) -> Option<String> {
    Some(format!("n{round}"))
}

/// On and off.
fn flips(round: u64) -> Option<String> {
    (round % 2 == 1).then(|| "n1".to_owned())
}

/// The most that fall into one window of time.
fn most_within(times: &[u64], window_ms: u64) -> usize {
    let within =
        |start: u64| times.iter().filter(|at| (start..start + window_ms).contains(at)).count();
    times.iter().map(|start| within(*start)).max().unwrap_or(0)
}

#[test]
fn four_hundred_flapping_connectors_are_mirrored_at_twenty_a_second_and_end_right() {
    for node in [moves, flips] {
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

        fleet.run_to(fleet.now() + 30 * SECOND);
        fleet.assert_right();
    }
}

#[test]
fn another_project_does_not_wait_for_connectors_that_flap() {
    let mut fleet = fleet(&[(BUSY, 400), (OTHER, 1)]);
    flap(&mut fleet, 10 * SECOND, moves);
    for flip in 2..7 {
        let at = fleet.now();
        says(&mut fleet, OTHER, 0..1, &status(Some(&format!("n{flip}"))));
        assert_eq!(fleet.times(OTHER, at), [0], "flip {flip}");
        fleet.run_to(at + SECOND);
    }
}

/// Within one project, too, namespaces take turns.
#[test]
fn another_namespace_of_the_same_project_waits_for_one_of_them_at_most() {
    let mut fleet = fleet(&[(BUSY, 400), (NEIGHBOUR, 1)]);
    says(&mut fleet, NEIGHBOUR, 0..1, N2.unwrap());
    flap(&mut fleet, 4 * SECOND, moves);
    let at = fleet.now();
    says(&mut fleet, NEIGHBOUR, 0..1, N3.unwrap());
    fleet.run_to(at + SECOND);
    let times = fleet.times(NEIGHBOUR, at);
    assert!(matches!(times[..], [ms] if ms <= 100), "{times:?}");
}

#[test]
fn a_thousand_connectors_that_change_once_are_written_at_once() {
    let mut fleet = fleet(&[(BUSY, 1_000)]);
    let start = fleet.now();
    // Ten seconds later each is a first one again. Earlier, they wait: 34 at once and 34 a second.
    for (ms, text, at_once) in [(0, OFFLINE, 1_000), (10_000, N2, 1_000), (19_999, N3, 34)] {
        fleet.run_to(start + ms);
        says(&mut fleet, BUSY, 0..1_000, text.unwrap());
        assert_eq!(fleet.times(BUSY, start + ms), vec![0; at_once]);
    }
    fleet.run_to(start + 49_999);
    fleet.assert_right();
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

#[test]
fn what_waits_is_written_as_it_is_when_its_turn_comes() {
    let mut fleet = fleet(&[(BUSY, 100)]);
    let n4 = status(Some("n4"));
    for text in [N2.unwrap(), N3.unwrap(), &n4] {
        says(&mut fleet, BUSY, 0..100, text);
    }
    // The last one comes to say again what the hub says: there is nothing left to write.
    says(&mut fleet, BUSY, 99..100, N2.unwrap());
    fleet.run_to(fleet.now() + 30 * SECOND);
    fleet.assert_right();
    assert_eq!(fleet.written.iter().filter(|w| w.place.1 == "c99").count(), 1);
    // 20 were written a second time with n3, before the others changed to n4.
    let written: BTreeSet<_> = fleet.written.iter().filter_map(|w| w.text.as_deref()).collect();
    assert_eq!(written, [N2.unwrap(), N3.unwrap(), &n4].into());
}

#[test]
fn a_change_that_routes_nothing_does_not_wait_for_another_tenants_hundred() {
    let mut fleet = fleet(&[(BUSY, 300), (OTHER, 3)]);
    let start = fleet.now();
    says(&mut fleet, BUSY, 0..300, &status_at("n1", 1));
    fleet.run_to(start + SECOND);
    says(&mut fleet, OTHER, 0..3, &status_at("n1", 1));
    fleet.run_to(start + 60 * SECOND);
    let times = fleet.times(OTHER, start);
    // Every other one of the 8 a second is theirs.
    assert!(times.len() == 3 && times.iter().all(|at| (6_000..=6_750).contains(at)), "{times:?}");
    fleet.assert_right();
}

#[test]
fn a_nudge_does_not_wait_for_another_tenants_hundred() {
    let mut fleet = fleet(&[(BUSY, 300), (OTHER, 1)]);
    let places: Vec<_> = fleet.hub.keys().cloned().collect();
    places.iter().for_each(|place| fleet.show_edge(place));
    let start = fleet.now();
    says(&mut fleet, BUSY, 0..300, N2.unwrap());
    fleet.run_to(start + 500);
    says(&mut fleet, OTHER, 0..1, N2.unwrap());

    let mut nudged = Vec::new();
    while nudged.len() < 30 {
        let seen = fleet.written.len();
        fleet.run_to(fleet.now() + 100);
        for write in fleet.written.split_off(seen) {
            assert_eq!(write.verb, Verb::Nudge);
            // The carrier takes each.
            fleet.show_edge(&write.place);
            nudged.push(write);
        }
    }
    let of_other = nudged.iter().find(|write| write.place.0 == OTHER.hub_namespace()).unwrap();
    let after = of_other.at - start;
    assert!((10_500..=10_900).contains(&after), "{after}");
}

#[test]
fn a_retry_does_not_wait_for_another_tenants_hundred() {
    let mut fleet = fleet(&[(BUSY, 300), (OTHER, 1)]);
    let start = fleet.now();
    let mut tried = Vec::new();
    let mut fail = |stage: &mut Stage, decision: &Decision| {
        tried.push((decision.action.object.namespace.clone(), time_of(decision) - start));
        stage.finish(decision, unavailable(None));
    };
    fleet.says(BUSY, 0..300, N2);
    fleet.stage.run_to(start + 500, &mut fail);
    fleet.says(OTHER, 0..1, N2);
    fleet.stage.run_to(start + 4 * SECOND, &mut fail);
    let of_other: Vec<_> =
        tried.iter().filter(|(ns, _)| *ns == OTHER.hub_namespace()).map(|(_, at)| *at).collect();
    assert!(matches!(of_other[..], [500, retry, ..] if retry <= 1_600), "{of_other:?}");
}

/// An edge whose Gateways each announce the one connector of their tenant.
struct Gateways {
    stage: Stage,
    /// When which tenant's Gateways were touched.
    touched: Vec<(u64, String)>,
}

impl Gateways {
    fn new(tenants: &[(Tenant, usize)]) -> Self {
        let mut all = Self { stage: Stage::default(), touched: Vec::new() };
        all.stage.pass_to(1);
        for &(tenant, size) in tenants {
            all.flip(tenant, 1);
            for number in 0..size {
                let name = name(number);
                all.stage.applied("edge", tenant.proxy(&name, &["lab"]));
                all.stage.applied("edge", tenant.gateway(&name, json!({})));
            }
        }
        all.pass_to(600 * SECOND);
        all
    }

    fn flip(&mut self, tenant: Tenant, node: u64) {
        let status = status(Some(&format!("n{node}")));
        self.stage.applied("edge", tenant.copy("lab", Some(&status)));
        self.pass_to(self.stage.time());
    }

    fn pass_to(&mut self, ms: u64) {
        let Self { stage, touched } = self;
        stage.run_to(ms, |stage, touch| {
            let namespace = touch.action.object.namespace.clone();
            let annotations = json!({ TRIGGER: written(touch) });
            let gateway = UP.gateway(name_of(touch), annotations);
            let gateway = with(gateway, json!({"metadata": {"namespace": namespace}}));
            stage.succeed(touch).applied("edge", gateway);
            touched.push((time_of(touch), namespace));
        });
    }
}

#[test]
fn a_tenant_whose_thousand_gateways_flip_each_second_makes_no_other_touch_wait() {
    let mut gateways = Gateways::new(&[(BUSY, 1_000), (OTHER, 1)]);
    let start = gateways.stage.time();
    for second in 0..30 {
        gateways.flip(BUSY, 2 + second);
        if second % 5 == 4 {
            let at = start + second * SECOND;
            gateways.flip(OTHER, 2 + second);
            gateways.touched.clear();
            gateways.pass_to(at + 999);
            let of_other = |(_, touched): &&(u64, String)| *touched == OTHER.hub_namespace();
            let touched = gateways.touched.iter().find(of_other);
            let (touched_at, _) = touched.expect("the other tenant is touched within a second");
            // The window of 100 ms, and one touch of the busy tenant.
            assert!(touched_at - at <= 140, "{} ms", touched_at - at);
        }
        gateways.pass_to(start + (second + 1) * SECOND);
    }
}
