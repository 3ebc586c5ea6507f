//! An upstream that is configured under another name than the hub's labels have: nothing fails, so
//! it is reported, once for each cause, when it begins and when it is over.

use throughline_core::contract::note::NamingProblem::{self, Unconfigured, Unreplicated};

use crate::stage::*;

const ELSEWHERE: Tenant = Tenant { cluster: "project-a", ..UP };

/// After how many milliseconds, what, whether it is over, of which upstreams with how many Connectors,
/// and which upstreams nothing names.
type Said = (u64, NamingProblem, bool, Vec<(String, u64)>, Vec<String>);

fn said(stage: &mut Stage) -> Vec<Said> {
    let notes = stage.notes().into_iter().filter_map(|note| match note.kind {
        NoteKind::Naming { problem, over, upstreams, unnamed } => {
            let upstreams = upstreams.into_iter().map(|u| (u.cluster.to_string(), u.connectors));
            let unnamed = unnamed.iter().map(ToString::to_string).collect();
            Some((note.at.0 - START, problem, over, upstreams.collect(), unnamed))
        }
        _ => None,
    });
    notes.collect()
}

/// That of one upstream, with this many Connectors.
fn expected(at: u64, problem: NamingProblem, is_over: bool, name: &str, connectors: u64) -> Said {
    let unnamed = matches!((problem, is_over), (Unconfigured, false)).then(|| "up".to_owned());
    (at, problem, is_over, vec![(name.to_owned(), connectors)], unnamed.into_iter().collect())
}

#[test]
fn hub_connectors_of_an_upstream_that_is_not_configured_are_told_once_and_when_it_is_over() {
    let mut stage = Stage::default();
    for n in 0..3 {
        stage.pass_to(n * SECOND).applied("hub", ELSEWHERE.copy(&format!("c{n}"), None));
    }
    stage.pass_to(600 * SECOND);
    assert_eq!(said(&mut stage), [expected(5_000, Unconfigured, false, "project-a", 3)]);
    for n in 0..3 {
        stage.deleted("hub", ELSEWHERE.copy(&format!("c{n}"), None));
    }
    stage.pass_to(700 * SECOND);
    assert_eq!(said(&mut stage), [expected(601_000, Unconfigured, true, "project-a", 0)]);
    assert_eq!(stage.machine.poll_deadline(), None);
}

#[test]
fn it_is_over_when_the_upstream_is_configured_and_begins_when_it_leaves() {
    let mut stage = Stage::default();
    stage.applied("hub", ELSEWHERE.copy("c", None)).pass_to(10 * SECOND);
    assert_eq!(said(&mut stage).len(), 1);
    stage.join("project-a", Role::Upstream).pass_to(20 * SECOND);
    assert!(matches!(said(&mut stage)[..], [(11_000, Unconfigured, true, ..)]));
    stage.leave("project-a").pass_to(30 * SECOND);
    assert!(matches!(said(&mut stage)[..], [(25_000, Unconfigured, false, ..)]));
}

#[test]
fn many_names_are_one_cause() {
    let mut stage = Stage::default();
    for n in 0..500 {
        stage.applied("hub", Tenant::of_project(n).copy(&format!("c{n}"), None));
    }
    stage.pass_to(60 * SECOND);
    let said = said(&mut stage);
    assert_eq!((said.len(), said[0].3.len()), (1, 500));
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
    assert_eq!(said(&mut stage), [expected(61_000, Unreplicated, false, "up", 1)]);
    stage.hub(None).settle_to(310 * SECOND);
    assert_eq!(said(&mut stage), [expected(301_000, Unreplicated, true, "up", 0)]);
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
