//! Which node ids are the same.

use throughline_core::contract::settings::Settings;
use throughline_core::status::trigger::node_stand_in;

use super::{announces, settled, value};
use crate::stage::status;

/// Whoever writes a status chooses its node ids.
#[test]
fn a_node_id_that_equals_the_stand_in_of_another_is_touched() {
    let mut stage = settled(Settings::default());
    let stand_in = node_stand_in("n1", 0);
    stage.edge(Some(&status(Some(&stand_in))));
    stage.pass_to(100_100);
    assert_eq!(value(&stage.only_action()).digest, announces(true, &stand_in));
}
