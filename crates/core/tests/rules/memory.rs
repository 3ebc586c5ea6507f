//! Nothing is kept of a cluster that left.

use throughline_core::contract::settings::Settings;
use throughline_core::machine::Machine;

use crate::churn::{self, Churn};

/// Ten Connectors, their namespaces and labels: as many names come with each cluster.
const NAMES_PER_CLUSTER: usize = churn::CONNECTORS + 2;

/// After this many clusters have joined and left: the machine, and the most names that it ever had.
fn after(clusters: usize) -> (Machine, usize) {
    let mut churn = Churn::new(Machine::new(Settings::default()));
    let names = (0..clusters).map(|_| {
        churn.join_and_leave();
        churn.machine.table_sizes().names
    });
    let names_max = names.max().unwrap();
    (churn.machine, names_max)
}

#[test]
fn after_many_joins_and_leaves_the_tables_are_as_after_a_few() {
    let [(many, names_max), (few, _)] = [5_000, 50].map(after);
    // A sweep is due at 2,048 names; a cluster's own come on top.
    assert!(names_max <= 2_048 + 2 * NAMES_PER_CLUSTER, "{names_max}");
    let sizes = [many, few].map(|mut machine| {
        machine.sweep_names();
        machine.table_sizes()
    });
    assert_eq!(sizes[0], sizes[1]);
}
