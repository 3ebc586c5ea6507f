use super::*;
use crate::WatchNotice;
use throughline_core::contract::event::{ClusterSpec, EventKind};
use throughline_core::data::objects::{Object, WireObject};

const DELAY_MS: u64 = 50;

/// A hub with these Connectors, and an edge to which they were carried.
struct Carried {
    sim: SimClusters,
    /// What the edge's watch showed: when, which object, and its annotation.
    arrived: Vec<(u64, String, String)>,
}

fn carried(connectors: usize, rate: &str) -> Carried {
    let spec = |name, role| ClusterSpec { name: ClusterName::from(name), roles: vec![role] };
    let mut sim = SimClusters::new(&[spec("hub", Role::Hub), spec("edge", Role::Edge)], DELAY_MS);
    for i in 0..connectors {
        let text = format!(
            r#"{{"apiVersion":"networking.datumapis.com/v1alpha1","kind":"Connector",
                "metadata":{{"namespace":"n","name":"c{i}"}}}}"#
        );
        for cluster in ["hub", "edge"] {
            let wire: WireObject = serde_json::from_str(&text).unwrap();
            let object = Object::try_from(wire).unwrap();
            sim.put(&cluster.into(), object, "test", WatchNotice::Listed);
        }
    }
    if !rate.is_empty() {
        sim.limit_carrier(rate.parse().unwrap());
    }
    while sim.poll_event().is_some() {}
    Carried { sim, arrived: Vec::new() }
}

impl Carried {
    /// Changes the annotation of a Connector at the hub.
    fn change(&mut self, i: usize, value: &str) {
        let hub = ClusterName::from("hub");
        let key = NamespacedName::new("n", format!("c{i}"));
        let patch = [("k".to_owned(), Some(value.to_owned()))];
        let outcome = self.sim.patch(&hub, Kind::Connector, &key, &patch, "test");
        assert_eq!(outcome.name(), "applied");
    }

    /// Lets time pass, from one due time to the next.
    fn until(&mut self, end: u64) {
        while let Some(at) = self.sim.next_due().filter(|at| at.0 <= end) {
            self.sim.advance(at);
            self.see();
        }
        self.sim.advance(UnixMillis(end));
        self.see();
    }

    fn see(&mut self) {
        while let Some(event) = self.sim.poll_event() {
            if let EventKind::Applied { cluster, object } = event.kind
                && cluster.as_str() == "edge"
            {
                let value = object.meta.annotations.get("k").unwrap_or_default().to_owned();
                self.arrived.push((event.at.0, object.meta.name.to_string(), value));
            }
        }
    }

    fn arrivals(&mut self) -> Vec<(u64, String, String)> {
        std::mem::take(&mut self.arrived)
    }
}

fn arrival(at: u64, name: &str, value: &str) -> (u64, String, String) {
    (at, name.to_owned(), value.to_owned())
}

#[test]
fn a_flip_behind_100_address_changes_is_carried_five_seconds_later() {
    let mut carried = carried(101, "20");
    for i in 0..100 {
        carried.change(i, "address");
    }
    carried.change(100, "flip");
    carried.until(60_000);
    let arrivals = carried.arrivals();
    assert_eq!(arrivals.len(), 101);
    for (i, arrived) in arrivals[..100].iter().enumerate() {
        assert_eq!(*arrived, arrival(i as u64 * 50 + DELAY_MS, &format!("c{i}"), "address"));
    }
    assert_eq!(arrivals[100], arrival(5_000 + DELAY_MS, "c100", "flip"));
    // An idle carrier accumulates no burst.
    carried.change(0, "1");
    carried.change(1, "1");
    carried.until(70_000);
    assert_eq!(carried.arrivals(), [arrival(60_050, "c0", "1"), arrival(60_100, "c1", "1")]);
}

#[test]
fn an_object_that_changes_while_it_waits_keeps_its_place_and_is_carried_once() {
    let mut carried = carried(3, "2");
    for (i, value) in [(0, "a"), (1, "b"), (2, "c")] {
        carried.change(i, value);
    }
    carried.until(400);
    for value in ["b2", "b3"] {
        carried.change(1, value);
    }
    carried.until(5_000);
    let expected = [arrival(50, "c0", "a"), arrival(550, "c1", "b3"), arrival(1_050, "c2", "c")];
    assert_eq!(carried.arrivals(), expected);
}

#[test]
fn the_rate_is_exact_also_where_an_interval_has_no_whole_milliseconds() {
    let mut carried = carried(91, "30");
    (0..91).for_each(|i| carried.change(i, "v"));
    carried.until(60_000);
    assert_eq!(carried.arrivals().last(), Some(&arrival(3_000 + DELAY_MS, "c90", "v")));
}

#[test]
fn time_that_moves_on_in_one_step_carries_the_same() {
    let mut carried = carried(10, "20");
    (0..10).for_each(|i| carried.change(i, "v"));
    carried.sim.advance(UnixMillis(500));
    carried.see();
    assert_eq!(carried.arrivals().len(), 10);
    assert_eq!(carried.sim.next_due(), None);
}

#[test]
fn without_a_rate_all_are_carried_at_once() {
    let mut carried = carried(101, "");
    (0..101).for_each(|i| carried.change(i, "v"));
    carried.until(DELAY_MS);
    assert_eq!(carried.arrivals().len(), 101);
}

#[test]
fn a_cluster_that_leaves_takes_what_waits_with_it() {
    let mut carried = carried(10, "1");
    (0..10).for_each(|i| carried.change(i, "v"));
    carried.sim.remove_cluster(&"hub".into());
    assert_eq!(carried.sim.next_due(), None);
}

#[test]
fn a_rate_is_a_whole_number_from_1_to_1000() {
    for (good, said) in [("1", "1 change a second"), ("1000", "1000 changes a second")] {
        assert_eq!(good.parse::<CarrierRate>().unwrap().to_string(), said);
    }
    for bad in ["0", "-1", "1001", "0.5", "", "20/s"] {
        let error = bad.parse::<CarrierRate>().unwrap_err();
        assert!(error.contains("1 to 1000"), "{bad}: {error}");
    }
}
