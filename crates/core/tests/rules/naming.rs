//! An upstream that is configured under another name than the hub's labels have: nothing fails, so
//! it is reported, once for each cause, when it begins and when it is over.

use serde_json::{Value, json};
use throughline_core::contract::event::EventKind;
use throughline_core::contract::note::{NamedUpstream, NamingProblem, NoteKind};
use throughline_core::contract::settings::Settings;
use throughline_core::data::ids::Role;

use crate::stage::{START, Stage, UID, status};

const SECOND: u64 = 1_000;

/// A hub Connector whose labels name this upstream.
fn hub_connector(stage: &mut Stage, upstream: &str, name: &str) -> Value {
    let v = stage.version().to_string();
    let object = json!({"kind": "Connector", "metadata": {"namespace": format!("ns-{UID}"),
        "name": name, "uid": format!("u-{name}"), "resourceVersion": v, "labels": {
            "meta.datumapis.com/upstream-cluster-name": format!("cluster-{upstream}"),
            "meta.datumapis.com/upstream-namespace": "default",
            "meta.datumapis.com/upstream-name": name}}});
    stage.applied("hub", &object.to_string());
    object
}

type Said = (u64, NamingProblem, bool, Vec<(String, u64)>, Vec<String>);

/// What was said of names since the last call, and how many milliseconds after the start.
fn said(stage: &mut Stage) -> Vec<Said> {
    let notes = stage.notes().into_iter().filter_map(|note| match note.kind {
        NoteKind::Naming { problem, over, upstreams, unnamed } => {
            let of = |u: NamedUpstream| (u.cluster.to_string(), u.connectors);
            let unnamed = unnamed.iter().map(ToString::to_string).collect();
            let upstreams = upstreams.into_iter().map(of).collect();
            Some((note.at.0 - START, problem, over, upstreams, unnamed))
        }
        _ => None,
    });
    notes.collect()
}

#[test]
fn hub_connectors_of_an_upstream_that_is_not_configured_are_told_once_and_when_it_is_over() {
    let mut stage = Stage::new(Settings::default());
    let mut objects = Vec::new();
    for n in 0..3 {
        stage.pass_to(n * SECOND);
        objects.push(hub_connector(&mut stage, "project-a", &format!("c{n}")));
    }
    stage.pass_to(600 * SECOND);
    let problem = NamingProblem::Unconfigured;
    let named = vec![("project-a".to_owned(), 3)];
    assert_eq!(said(&mut stage), [(5_000, problem, false, named, vec!["up".to_owned()])]);
    for object in &objects {
        stage.deleted("hub", &object.to_string());
    }
    stage.pass_to(700 * SECOND);
    let named = vec![("project-a".to_owned(), 0)];
    assert_eq!(said(&mut stage), [(601_000, problem, true, named, vec![])]);
    assert_eq!(stage.machine.poll_deadline(), None);
}

#[test]
fn it_is_over_when_the_upstream_is_configured_and_begins_when_it_leaves() {
    let mut stage = Stage::new(Settings::default());
    hub_connector(&mut stage, "project-a", "c");
    stage.pass_to(10 * SECOND);
    assert_eq!(said(&mut stage).len(), 1);
    let cluster = || "project-a".into();
    stage.event(EventKind::ClusterAdded { cluster: cluster(), roles: vec![Role::Upstream] });
    stage.pass_to(20 * SECOND);
    assert!(matches!(&said(&mut stage)[..], [(11_000, _, true, ..)]));
    stage.event(EventKind::ClusterRemoved { cluster: cluster() });
    stage.pass_to(30 * SECOND);
    let said = said(&mut stage);
    assert!(matches!(&said[..], [(25_000, NamingProblem::Unconfigured, false, ..)]), "{said:?}");
}

#[test]
fn many_names_are_one_cause() {
    let mut stage = Stage::new(Settings::default());
    for n in 0..500 {
        hub_connector(&mut stage, &format!("p{n}"), &format!("c{n}"));
    }
    stage.pass_to(60 * SECOND);
    let said = said(&mut stage);
    assert_eq!((said.len(), said[0].3.len()), (1, 500));
}

/// Until the hub is listed, nothing is said; after a lost watch nothing is said again.
#[test]
fn nothing_is_said_before_the_hub_is_listed_nor_again_after_its_watch_was_lost() {
    let mut stage = Stage::new(Settings::default());
    stage.lost("hub", "Connector");
    let object = hub_connector(&mut stage, "project-a", "c").to_string();
    stage.pass_to(60 * SECOND);
    assert_eq!(said(&mut stage), []);
    for _ in 0..3 {
        stage.list("hub", "Connector", &[&object]);
        stage.pass_to(stage.now - START + 60 * SECOND);
    }
    assert_eq!(said(&mut stage).len(), 1);
}

#[test]
fn an_upstream_of_which_the_hub_has_nothing_is_told_and_when_it_is_over() {
    let mut stage = Stage::new(Settings::default());
    stage.pass_to(SECOND);
    stage.upstream(Some(&status(Some("n1"))));
    stage.pass_to(60 * SECOND);
    assert_eq!(said(&mut stage), [], "the replicator takes its time");
    stage.pass_to(300 * SECOND);
    let problem = NamingProblem::Unreplicated;
    assert_eq!(said(&mut stage), [(61_000, problem, false, vec![("up".to_owned(), 1)], vec![])]);
    stage.hub(None);
    stage.settle_to(310 * SECOND);
    let over = said(&mut stage);
    assert_eq!(over, [(301_000, problem, true, vec![("up".to_owned(), 0)], vec![])]);
}

#[test]
fn an_upstream_that_is_replicated_in_time_is_not_told() {
    let mut stage = Stage::new(Settings::default());
    stage.upstream(Some(&status(Some("n1"))));
    stage.pass_to(50 * SECOND);
    stage.hub(None);
    stage.settle_to(600 * SECOND);
    assert_eq!(said(&mut stage), []);
}

/// Its watch is lost: whether it still has Connectors is not known, so nothing is over.
#[test]
fn a_lost_watch_of_the_upstream_ends_nothing() {
    let mut stage = Stage::new(Settings::default());
    stage.upstream(Some(&status(Some("n1"))));
    stage.pass_to(100 * SECOND);
    assert_eq!(said(&mut stage).len(), 1);
    stage.lost("up", "Connector");
    stage.pass_to(200 * SECOND);
    stage.resumed("up", "Connector");
    stage.pass_to(400 * SECOND);
    assert_eq!(said(&mut stage), []);
}
