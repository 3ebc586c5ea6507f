//! Nothing is kept of a cluster that left.

use throughline_core::contract::settings::Settings;
use throughline_core::leaving::TableSizes;
use throughline_core::machine::Machine;

use crate::churn::{self, Churn};

/// Ten Connectors, their namespaces and labels: so many names come with each cluster.
const NAMES_PER_CLUSTER: usize = churn::CONNECTORS + 2;

fn after(clusters: usize) -> TableSizes {
    let mut churn = Churn::new(Machine::new(Settings::default()));
    for _ in 0..clusters {
        churn.join_and_leave();
    }
    churn.machine.sweep_names();
    churn.machine.table_sizes()
}

#[test]
fn after_many_joins_and_leaves_the_tables_are_as_after_a_few() {
    assert_eq!(after(5_000), after(50));
}

#[test]
fn the_names_of_clusters_that_left_are_dropped_without_being_asked() {
    let mut churn = Churn::new(Machine::new(Settings::default()));
    let mut names_max = 0;
    for _ in 0..5_000 {
        churn.join_and_leave();
        names_max = names_max.max(churn.machine.table_sizes().names);
    }
    // A sweep is due at 2,048 names; a cluster's own come on top.
    assert!(names_max <= 2_048 + 2 * NAMES_PER_CLUSTER, "{names_max}");
}
