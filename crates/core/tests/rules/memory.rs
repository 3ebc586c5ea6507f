//! Nothing is kept of a cluster that left.

use throughline_core::contract::settings::Settings;
use throughline_core::machine::{Machine, TableSizes};

use crate::churn::Churn;

fn after(clusters: usize) -> TableSizes {
    let mut churn = Churn::new(Machine::new(Settings::default()));
    for _ in 0..clusters {
        churn.join_and_leave();
    }
    churn.machine.table_sizes()
}

#[test]
fn after_many_joins_and_leaves_the_tables_are_as_after_a_few() {
    assert_eq!(after(5_000), after(50));
}
