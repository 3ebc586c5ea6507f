//! An upstream that is configured under another name than the hub's labels have: nothing fails, so
//! it is a problem of each upstream, from when the other side may be expected.

use throughline_core::contract::cause::Cause::{NotReplicated, UpstreamUnknown};

use crate::stage::*;

const ELSEWHERE: Tenant = Tenant { cluster: "project-a", ..UP };

/// After how many milliseconds, whether it began, what, and of how many Connectors of which upstream.
type Said = (u64, bool, Cause, usize, String);

fn said(stage: &mut Stage) -> Vec<Said> {
    let notes = stage.notes().into_iter().filter_map(|note| {
        let (is_begin, problem) = match note.kind {
            NoteKind::Began(problem) => (true, problem),
            NoteKind::Ended(problem) => (false, problem),
            NoteKind::HopPassed { .. } => return None,
        };
        let Problem { cause, about, .. } = problem;
        let is_naming = matches!(cause, UpstreamUnknown | NotReplicated);
        let connectors = about.more + 1;
        is_naming
            .then(|| (note.at.0 - START, is_begin, cause, connectors, about.cluster.to_string()))
    });
    notes.collect()
}

fn expected(at: u64, began: bool, cause: Cause, connectors: usize, name: &str) -> Said {
    (at, began, cause, connectors, name.to_owned())
}

#[test]
fn hub_connectors_of_an_upstream_that_is_not_configured_are_told_once_and_when_it_is_over() {
    let mut stage = Stage::default();
    for n in 0..3 {
        stage.pass_to(n * SECOND).applied("hub", ELSEWHERE.copy(&format!("c{n}"), None));
    }
    stage.pass_to(600 * SECOND);
    assert_eq!(said(&mut stage), [expected(5_000, true, UpstreamUnknown, 3, "project-a")]);
    for n in 0..3 {
        stage.deleted("hub", ELSEWHERE.copy(&format!("c{n}"), None));
    }
    stage.pass_to(700 * SECOND);
    assert_eq!(said(&mut stage), [expected(601_000, false, UpstreamUnknown, 3, "project-a")]);
    assert_eq!(stage.machine.poll_deadline(), None);
}

#[test]
fn it_is_over_when_the_upstream_is_configured_and_begins_when_it_leaves() {
    let mut stage = Stage::default();
    stage.applied("hub", ELSEWHERE.copy("c", None)).pass_to(10 * SECOND);
    assert_eq!(said(&mut stage).len(), 1);
    stage.join("project-a", Role::Upstream).pass_to(20 * SECOND);
    assert!(matches!(said(&mut stage)[..], [(11_000, false, UpstreamUnknown, ..)]));
    stage.leave("project-a").pass_to(30 * SECOND);
    assert!(matches!(said(&mut stage)[..], [(25_000, true, UpstreamUnknown, ..)]));
}

/// Nothing names it any longer, and nothing is listed there yet.
#[test]
fn an_upstream_that_is_followed_is_not_unknown() {
    let mut stage = Stage::default();
    stage.applied("hub", ELSEWHERE.copy("c", None)).pass_to(10 * SECOND);
    stage.join("project-a", Role::Upstream).deleted("hub", ELSEWHERE.copy("c", None));
    assert_eq!(stage.pass_to(20 * SECOND).wrong(), []);
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
        assert_eq!(stage.began(UpstreamUnknown)[0].facts.what.as_deref(), meant);
    }
}

#[test]
fn nothing_is_said_before_the_hub_is_listed_nor_again_after_its_watch_was_lost() {
    let mut stage = Stage::default();
    let object = ELSEWHERE.copy("c", None);
    stage.lost("hub", "Connector").applied("hub", &object).pass_to(60 * SECOND);
    assert_eq!(said(&mut stage), []);
    for _ in 0..3 {
        stage.list("hub", "Connector", [object.clone()]).pass(60 * SECOND);
    }
    assert_eq!(said(&mut stage).len(), 1);
}

#[test]
fn an_upstream_of_which_the_hub_has_nothing_is_told_and_when_it_is_over() {
    let mut stage = Stage::default();
    stage.pass_to(SECOND).upstream(N1).pass_to(60 * SECOND);
    assert_eq!(said(&mut stage), [], "the replicator takes its time");
    stage.pass_to(300 * SECOND);
    assert_eq!(said(&mut stage), [expected(61_000, true, NotReplicated, 1, "up")]);
    stage.hub(None).settle_to(310 * SECOND);
    assert_eq!(said(&mut stage), [expected(301_000, false, NotReplicated, 1, "up")]);
}

/// Its watch is lost: whether it still has Connectors is not known, so nothing is over.
#[test]
fn a_lost_watch_of_the_upstream_ends_nothing() {
    let mut stage = Stage::default();
    stage.upstream(N1).pass_to(100 * SECOND);
    assert_eq!(said(&mut stage).len(), 1);
    stage.lost("up", "Connector").pass_to(200 * SECOND).resumed("up", "Connector");
    stage.pass_to(400 * SECOND);
    assert_eq!(said(&mut stage), []);
}
