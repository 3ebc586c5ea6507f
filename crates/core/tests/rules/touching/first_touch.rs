//! The first touch of a Gateway that was there at the start.

use super::*;

/// Every cache has had its state for as long as ours, whether or not the first write succeeds.
#[test]
fn a_first_touch_is_confirmed_once_also_when_it_had_to_be_written_twice() {
    for fails in [false, true] {
        let mut stage = Stage::before_the_edge(Settings::default());
        let copy = stage.connector_copy("u-edge", Some(&status(Some("n1"))));
        stage.list("edge", "Connector", &[&copy]);
        stage.list("edge", "HTTPProxy", &[]);
        stage.proxy(&["lab"]);
        let gateway = stage.gateway("");
        stage.list("edge", "Gateway", &[&gateway]);

        let mut touched_at = 100;
        stage.pass_to(touched_at);
        let touch = stage.only_action();
        if fails {
            stage.fail(touch.action.id);
            touched_at += 1_000;
            stage.pass_to(touched_at);
            let again = stage.only_action();
            assert_eq!(again.because, touch.because);
            stage.succeed(&again);
        } else {
            stage.succeed(&touch);
        }

        stage.pass_to(touched_at + 59_999);
        stage.assert_no_action();
        stage.pass_to(touched_at + 60_000);
        let confirmation = stage.only_action();
        assert_eq!(value(&confirmation).c, 2, "the last of two, written twice: {fails}");
        stage.succeed(&confirmation);
        stage.pass_to(600_000);
        stage.assert_no_action();
    }
}
