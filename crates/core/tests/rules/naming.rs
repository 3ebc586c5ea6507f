//! An upstream that is configured under another name than the hub's labels have: nothing fails, so
//! it is a problem of each upstream, from when the other side may be expected.

use crate::stage::*;

const ELSEWHERE: Tenant = Tenant { cluster: "project-a", ..UP };

/// What began (`+`) and ended: after how many milliseconds, and of how many Connectors of which upstream.
fn said(stage: &mut Stage) -> Vec<String> {
    let notes = stage.notes().into_iter().filter_map(|note| {
        let (sign, Problem { cause, about, .. }) = match note.kind {
            NoteKind::Began(problem) => ('+', problem),
            NoteKind::Ended(problem) => ('-', problem),
            NoteKind::HopPassed { .. } | NoteKind::Symptom { .. } => return None,
        };
        let (cause, ms) = (cause.as_str(), note.at.0 - START);
        let said = format!("{ms} {sign}{cause} {} {}", about.more + 1, about.cluster);
        ["upstream_unknown", "not_replicated"].contains(&cause).then_some(said)
    });
    notes.collect()
}

#[test]
fn it_is_over_when_the_upstream_is_configured_and_begins_when_it_leaves() {
    let mut stage = Stage::default();
    stage.applied("hub", ELSEWHERE.copy("c", None)).pass_to(10 * SECOND);
    assert_eq!(said(&mut stage).len(), 1);
    stage.join("project-a", Role::Upstream).pass_to(20 * SECOND);
    assert_eq!(said(&mut stage), ["11000 -upstream_unknown 1 project-a"]);
    stage.leave("project-a").pass_to(30 * SECOND);
    assert_eq!(said(&mut stage), ["25000 +upstream_unknown 1 project-a"]);
}

/// None names `up`, and a hub namespace is named after the uid of one of its namespaces.
#[test]
fn the_upstream_that_is_meant_is_said_only_where_a_namespace_proves_it() {
    type Change = fn(&mut Stage) -> &mut Stage;
    let changes: [(Change, Option<&str>); 3] = [
        (|stage| stage, Some("up")),
        (|stage| stage.applied("up", namespace(OTHER_UID)), None),
        (|stage| stage.hub(None), None),
    ];
    for (change, meant) in changes {
        let mut stage = Stage::default();
        change(&mut stage).applied("hub", ELSEWHERE.copy("c", None)).pass_to(10 * SECOND);
        assert_eq!(stage.began(Cause::UpstreamUnknown)[0].facts.what.as_deref(), meant);
    }
}

#[test]
fn nothing_is_said_before_the_hub_is_listed_nor_again_after_its_watch_was_lost() {
    let mut stage = Stage::default();
    let object = ELSEWHERE.copy("c", None);
    stage.lost("hub", "Connector").applied("hub", &object).pass_to(60 * SECOND);
    assert_eq!(said(&mut stage), [""; 0]);
    for _ in 0..3 {
        stage.list("hub", "Connector", [object.clone()]).pass(60 * SECOND);
    }
    assert_eq!(said(&mut stage).len(), 1);
}

#[test]
fn an_upstream_of_which_the_hub_has_nothing_is_told_and_when_it_is_over() {
    let mut stage = Stage::default();
    stage.pass_to(SECOND).upstream(N1).pass_to(60 * SECOND);
    assert_eq!(said(&mut stage), [""; 0], "the replicator takes its time");
    stage.pass_to(300 * SECOND);
    assert_eq!(said(&mut stage), ["61000 +not_replicated 1 up"]);
    stage.hub(None).settle_to(310 * SECOND);
    assert_eq!(said(&mut stage), ["301000 -not_replicated 1 up"]);
}
