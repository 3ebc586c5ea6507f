//! Generated worlds, with faults, restarts and clusters that leave, through today's core and the new
//! one. `TWO_CORES=actions` compares them in every other property as well.

use proptest::prelude::*;

use crate::generate::{change, fault, other_writer, schedule, setup, write_faults};
use crate::sim::SECOND;
use crate::two_cores::always_compare;
use crate::{config, leaving, model, settings};

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn two_cores_decide_the_same_under_any_settings(
        setup in setup(),
        settings in settings::settings(),
        write_faults in write_faults(),
        schedule in schedule(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 25),
    ) {
        always_compare();
        let mut sim = setup.build_with(&settings);
        sim.add_clusters();
        sim.lead(true);
        sim.list_everything();
        sim.write_faults = write_faults;
        model::play(&mut sim, setup.topology, &schedule);
        sim.heal();
        sim.advance_by(1_000 * SECOND);
    }

    #[test]
    fn two_cores_decide_the_same_while_clusters_leave_and_join(
        setup in setup(),
        write_faults in write_faults(),
        steps in leaving::steps(prop_oneof![4 => change(), 2 => other_writer(), 2 => fault()], 25),
    ) {
        always_compare();
        let mut sim = leaving::deleting(&setup);
        sim.write_faults = write_faults;
        leaving::play(&mut sim, setup.topology, &steps);
        sim.heal();
        sim.advance_by(1_000 * SECOND);
    }
}
