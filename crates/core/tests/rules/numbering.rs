//! The actions of one moment are numbered by what they write, whatever was seen first and whichever
//! timer came first.

use crate::stage::*;

#[test]
fn the_actions_of_one_moment_are_numbered_by_cluster_kind_and_name() {
    let mut stage = Stage::default();
    stage.upstream(N1).hub(N1).edge(N1);
    for name in ["b", "a"] {
        stage
            .applied("edge", UP.proxy(name, &["lab"]))
            .applied("edge", UP.gateway(name, json!({})));
    }
    stage.settle_to(600_000);

    for (minute, status) in [(1, OFFLINE), (2, N1)] {
        // A mirror that is due again after 1,000 ms, and two touches 50 ms later.
        let at = 600_000 + minute * 60_000;
        stage.settle_to(at);
        let mirror = stage.upstream(status).only_action();
        stage.fail(mirror.action.id).pass_to(at + 950).edge(status).assert_no_action();

        stage.now = START + at + 1_100;
        stage.event(EventKind::TimedOut);
        let actions = stage.actions();
        let place = |d: &Decision| {
            (
                d.action.id.0 - mirror.action.id.0,
                format!("{}/{}", d.action.cluster, d.action.object.name),
            )
        };
        let expected = [(1, "edge/a"), (2, "edge/b"), (3, "hub/lab")];
        let expected = expected.map(|(id, place)| (id, place.to_owned()));
        assert_eq!(actions.iter().map(place).collect::<Vec<_>>(), expected);

        // Each outcome reaches the target that its action was decided for.
        stage.hub(status);
        actions.iter().for_each(|action| _ = stage.succeed(action));
        assert_eq!(stage.machine.in_flight(), 0);
    }
}
