//! The actions of one moment are numbered by what they write, whatever was seen first and whichever
//! timer came first.

use throughline_core::contract::settings::Settings;
use throughline_core::data::time::UnixMillis;

use crate::stage::{START, Stage, UID, status};

/// A Gateway and its HTTPProxy, which references the connector.
fn gateway(stage: &mut Stage, name: &str) {
    let v = stage.version();
    let meta = |uid: &str| {
        format!(
            r#""metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"{uid}-{name}","resourceVersion":"{v}"}}"#
        )
    };
    let rules = r#""spec":{"rules":[{"backends":[{"connector":{"name":"lab"}}]}]}"#;
    stage.applied("edge", &format!(r#"{{"kind":"HTTPProxy",{},{rules}}}"#, meta("p")));
    stage.applied("edge", &format!(r#"{{"kind":"Gateway",{}}}"#, meta("g")));
}

#[test]
fn the_actions_of_one_moment_are_numbered_by_cluster_kind_and_name() {
    let mut stage = Stage::new(Settings::default());
    let [online, offline] = [Some("n1"), None].map(status);
    stage.upstream(Some(&online));
    stage.hub(Some(&online));
    stage.edge(Some(&online));
    gateway(&mut stage, "b");
    gateway(&mut stage, "a");
    stage.settle_to(600_000);

    for (minute, says, said) in [(1, &offline, &online), (2, &online, &offline)] {
        // A mirror that is due again after 1,000 ms, and two touches 50 ms later.
        let at = 600_000 + minute * 60_000;
        stage.settle_to(at);
        stage.upstream(Some(says));
        let mirror = stage.only_action();
        stage.fail(mirror.action.id);
        stage.pass_to(at + 950);
        stage.edge(Some(says));
        stage.assert_no_action();

        stage.now = START + at + 1_100;
        stage.machine.handle_timeout(UnixMillis(stage.now));
        let actions = stage.actions();
        let places =
            actions.iter().map(|a| format!("{}/{}", a.action.cluster, a.action.object.name));
        assert_eq!(places.collect::<Vec<_>>(), ["edge/a", "edge/b", "hub/lab"], "{said}");
        let ids: Vec<_> = actions.iter().map(|a| a.action.id.0).collect();
        assert_eq!(ids, [1, 2, 3].map(|n| mirror.action.id.0 + n));

        // Each outcome reaches the target that its action was decided for.
        stage.hub(Some(says));
        actions.iter().for_each(|action| stage.succeed(action));
        assert_eq!(stage.machine.in_flight(), 0);
    }
}
