//! No mistake reaches many: the removals of small upstreams, and those of a fleet of small projects.

use std::collections::BTreeMap;

use serde_json::json;
use throughline_core::contract::action::{Decision, Verb};
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::contract::hold_reason::HoldReason;
use throughline_core::contract::note::{Hop, NoteKind};
use throughline_core::contract::settings::Settings;
use throughline_core::data::ids::Role;
use throughline_core::view::phase::Phase;

use crate::fleet::{Fleet, name};
use crate::stage::{START, Stage, UID, status};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60_000;
const GRACE: u64 = 5_000;
const ANNOTATION: &str = "networking.datumapis.com/upstream-status";

/// An instance that starts: the hub has so many annotated Connectors, and the upstream, which is fully
/// listed, has none of them.
fn started_beside_an_older_state(connectors: usize) -> Fleet {
    let mut fleet = Fleet::new(0);
    for number in 0..connectors {
        let object = fleet.at_hub(number, Some("n1"));
        fleet.stage.applied("hub", &object);
    }
    fleet
}

/// Its etcd was restored from a backup that is older than all of them, for example. 6 of 6 went within
/// five seconds.
#[test]
fn a_small_upstream_of_which_only_lists_lack_everything_loses_nothing() {
    for connectors in [2, 6, 9] {
        let mut fleet = Fleet::new(connectors);
        fleet.relist(0..0);
        assert_eq!(fleet.removed_until(60 * MINUTE), [] as [&str; 0], "an empty list");
        assert_eq!(fleet.held(), [(HoldReason::TooMany, connectors as u64)]);

        let mut fleet = started_beside_an_older_state(connectors);
        assert_eq!(fleet.removed_until(60 * MINUTE), [] as [&str; 0], "a restored upstream");
        assert_eq!(fleet.held(), [(HoldReason::TooMany, connectors as u64)]);
        // A restart forgets that it was restored.
        fleet.stage.lost("up", "Connector");
        fleet.relist(0..0);
        assert_eq!(fleet.removed_until(120 * MINUTE), [] as [&str; 0]);
    }
}

/// One list after another lacks one more.
#[test]
fn those_that_went_missing_within_ten_minutes_are_counted_together() {
    let mut fleet = Fleet::new(3);
    fleet.relist(1..3);
    assert_eq!(fleet.removed_until(MINUTE), ["c0"]);
    fleet.relist(0..0);
    assert_eq!(fleet.removed_until(9 * MINUTE), [] as [&str; 0]);
    assert_eq!(fleet.held(), [(HoldReason::TooMany, 2)]);
}

#[test]
fn the_same_connectors_deleted_under_its_eyes_are_removed_within_the_grace_period_and_said() {
    for connectors in [2, 6, 9] {
        let mut fleet = Fleet::new(connectors);
        for number in 0..connectors {
            let deleted_at = fleet.stage.now - START;
            fleet.delete_upstream(number..number + 1);
            assert_eq!(fleet.removed_until(deleted_at + GRACE + 500), [name(number)]);
            let is_said = |kind: &NoteKind| {
                matches!(kind, NoteKind::HopPassed { hop: Hop::Mirrored, online: false, connector, .. }
                    if connector.name == name(number))
            };
            assert!(fleet.stage.notes().into_iter().any(|note| is_said(&note.kind)));
            fleet.stage.pass_to(deleted_at + 12 * SECOND);
        }
        assert_eq!(fleet.stage.machine.phases()[&Phase::Offline], connectors as u64);
    }
}

/// A tenant deletes both of his connectors, and makes them again: their agents have not said anything
/// yet.
#[test]
fn a_status_that_a_watch_saw_vanish_is_seen() {
    let mut fleet = Fleet::new(2);
    for number in 0..2 {
        fleet.delete_upstream(number..number + 1);
        let version = fleet.stage.version();
        let name = name(number);
        fleet.stage.applied("up", &format!(
            r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"{name}","uid":"u-{name}-2","resourceVersion":"{version}"}}}}"#
        ));
    }
    assert_eq!(fleet.removed_until(GRACE + 500), ["c0", "c1"]);
}

#[test]
fn the_platform_releases_what_is_held_by_deleting_its_hub_connectors() {
    let mut fleet = started_beside_an_older_state(6);
    assert_eq!(fleet.removed_until(MINUTE), [] as [&str; 0]);
    for number in 0..6 {
        let object = fleet.at_hub(number, Some("n1"));
        fleet.stage.deleted("hub", &object);
    }
    fleet.stage.pass_to(2 * MINUTE);
    assert_eq!(fleet.held(), [(HoldReason::TooMany, 6), (HoldReason::TooMany, 0)]);
    fleet.stage.assert_no_action();
}

#[test]
fn a_person_releases_what_is_held_without_a_restart() {
    let mut fleet = started_beside_an_older_state(6);
    assert_eq!(fleet.removed_until(MINUTE), [] as [&str; 0]);
    fleet.allow("true");
    assert_eq!(fleet.removed_until(MINUTE + 500).len(), 6);
}

/// A dead hub Connector has nothing to lose.
#[test]
fn hub_connectors_without_an_annotation_make_no_share_smaller() {
    let mut fleet = Fleet::new(10);
    for number in 10..40 {
        let object = fleet.at_hub(number, None);
        fleet.stage.applied("hub", &object);
    }
    fleet.delete_upstream(0..10);
    assert_eq!(fleet.removed_until(60 * MINUTE), [] as [&str; 0], "10 of 10, and 30 that are dead");
    assert_eq!(fleet.held(), [(HoldReason::TooMany, 10)]);
}

#[test]
fn removals_that_a_person_allowed_are_written_at_twenty_a_second() {
    let mut fleet = Fleet::new(50);
    fleet.relist(0..0);
    fleet.stage.pass_to(MINUTE);
    fleet.stage.assert_no_action();
    fleet.allow("true");
    let written = |fleet: &mut Fleet| {
        let decided = fleet.stage.actions();
        decided.iter().for_each(|decision| fleet.carry_out(decision));
        decided.len()
    };
    assert_eq!(written(&mut fleet), 20);
    fleet.stage.pass_to(MINUTE + SECOND);
    assert_eq!(written(&mut fleet), 20);
    fleet.stage.pass_to(MINUTE + 2 * SECOND);
    assert_eq!(written(&mut fleet), 10);
}

/// At most ten in any minute, half of them at once. What changed nothing does not count.
#[test]
fn removals_that_were_refused_do_not_use_up_what_the_others_may_do() {
    let settings = Settings::default();
    let mut fleet = Fleet::with(settings, 40);
    fleet.delete_upstream(0..9);
    fleet.stage.pass_to(GRACE + 1);
    let first = fleet.stage.actions();
    assert_eq!(first.len(), 5);
    assert_eq!(fleet.held(), []);
    fleet.stage.pass_to(GRACE + SECOND + 2);
    assert_eq!(fleet.held(), [], "that it waits for its turn is no news");
    for decision in &first {
        fleet.stage.finish(decision, Outcome::Refused { error: "403".into() });
    }
    assert_eq!(fleet.stage.actions().len(), 4, "the others, at once");
}

/// An instance that was stopped for a while wakes up to an event and to timers that are long due.
#[test]
fn whoever_wakes_late_counts_what_happened_before_it_writes() {
    let mut fleet = Fleet::new(20);
    fleet.delete_upstream(0..6);
    fleet.stage.pass_to(GRACE + 1);
    assert_eq!(fleet.stage.actions().len(), 5);
    // The sixth may go at 17 s. At 20 s, nothing has been decided meanwhile.
    fleet.stage.now = START + 20 * SECOND;
    fleet.delete_upstream(6..7);
    assert_eq!(fleet.stage.actions(), [], "seven of twenty");
}

/// Connectors of many small projects at one hub, each in its only namespace.
struct Projects {
    stage: Stage,
    connectors: usize,
    versions: BTreeMap<(usize, usize), u64>,
}

impl Projects {
    fn new(projects: usize, connectors: usize) -> Self {
        let stage = Stage::new(Settings::default());
        let mut fleet = Self { stage, connectors, versions: BTreeMap::new() };
        fleet.stage.pass_to(1);
        for project in 0..projects {
            let cluster = project_name(project);
            let roles = vec![Role::Upstream];
            fleet.stage.event(EventKind::ClusterAdded { cluster: cluster.as_str().into(), roles });
            let namespace = json!({"kind": "Namespace", "metadata": {
                "name": "default", "uid": uid(project), "resourceVersion": "1"}});
            fleet.stage.list(&cluster, "Namespace", &[&namespace.to_string()]);
            fleet.list(project, 0..connectors);
            for connector in 0..connectors {
                fleet.put_at_hub(project, connector, true);
            }
        }
        fleet.stage.assert_no_action();
        fleet.stage.notes();
        fleet
    }

    fn upstream(&mut self, connector: usize) -> String {
        let version = self.stage.version().to_string();
        let name = name(connector);
        let status: serde_json::Value = serde_json::from_str(&status(Some("n1"))).unwrap();
        json!({"kind": "Connector", "status": status, "metadata": {"namespace": "default",
            "name": name, "uid": format!("u-{name}"), "resourceVersion": version}})
        .to_string()
    }

    /// A complete list of a project's Connectors.
    fn list(&mut self, project: usize, connectors: std::ops::Range<usize>) {
        let objects: Vec<_> = connectors.map(|connector| self.upstream(connector)).collect();
        let objects: Vec<_> = objects.iter().map(String::as_str).collect();
        self.stage.list(&project_name(project), "Connector", &objects);
    }

    fn delete(&mut self, project: usize, connector: usize) {
        let object = self.upstream(connector);
        self.stage.deleted(&project_name(project), &object);
    }

    fn put_at_hub(&mut self, project: usize, connector: usize, has_annotation: bool) {
        let version = self.stage.version();
        self.versions.insert((project, connector), version);
        let annotations = match has_annotation {
            true => json!({ANNOTATION: status(Some("n1"))}),
            false => json!({}),
        };
        let name = name(connector);
        let object = json!({"kind": "Connector", "metadata": {
            "namespace": format!("ns-{}", uid(project)), "name": name,
            "uid": format!("u-hub-{project}-{name}"), "resourceVersion": version.to_string(),
            "annotations": annotations, "labels": {
                "meta.datumapis.com/upstream-cluster-name":
                    format!("cluster-{}", project_name(project)),
                "meta.datumapis.com/upstream-namespace": "default",
                "meta.datumapis.com/upstream-name": name}}});
        self.stage.applied("hub", &object.to_string());
    }

    fn carry_out(&mut self, decision: &Decision) {
        let object = &decision.action.object;
        assert_eq!(decision.action.verb, Verb::Mirror);
        assert_eq!(decision.action.annotations[0].1, None, "{decision:?}");
        let (project, connector) = (number_of(&object.namespace), number_of(&object.name));
        self.put_at_hub(project, connector, false);
        self.stage.succeed(decision);
    }

    /// How many annotations go until then.
    fn removed_until(&mut self, ms: u64) -> usize {
        let mut removed = 0;
        while self.stage.now < START + ms {
            let next = (self.stage.now - START + SECOND).min(ms);
            self.stage.pass_to(next);
            for decision in self.stage.actions() {
                self.carry_out(&decision);
                removed += 1;
            }
        }
        removed
    }

    fn all(&self, projects: std::ops::Range<usize>) -> Vec<(usize, usize)> {
        let connectors = self.connectors;
        projects.flat_map(|project| (0..connectors).map(move |c| (project, c))).collect()
    }

    fn held(&mut self) -> u64 {
        let notes = self.stage.notes().into_iter();
        let held = notes.filter_map(|note| match note.kind {
            NoteKind::Held { reason: HoldReason::TooMany, held, .. } => Some(held),
            _ => None,
        });
        held.sum()
    }
}

fn project_name(project: usize) -> String {
    format!("p{project}")
}

fn uid(project: usize) -> String {
    format!("{project:08}-0000-4000-8000-000000000001")
}

/// The number in a Connector's name, or in its hub namespace's.
fn number_of(name: &str) -> usize {
    let digits = name.strip_prefix("ns-").and_then(|uid| uid.split('-').next());
    digits.unwrap_or(&name[1..]).parse().unwrap()
}

/// 300 of 300 annotations went within half an hour: each project is within its limits.
#[test]
fn a_mistake_in_every_small_project_is_one_of_the_fleet() {
    let mut fleet = Projects::new(60, 5);
    for (project, connector) in fleet.all(0..60) {
        fleet.delete(project, connector);
    }
    assert_eq!(fleet.removed_until(30 * MINUTE), 0);
    assert_eq!(fleet.held(), 300);
    // Below the share of the fleet, each project's own limits count.
    let mut fleet = Projects::new(60, 5);
    for (project, connector) in fleet.all(0..18) {
        fleet.delete(project, connector);
    }
    assert_eq!(fleet.removed_until(30 * MINUTE), 90);
}

/// However slowly the mistake proceeds, within ten minutes.
#[test]
fn the_fleet_counts_what_went_within_ten_minutes() {
    let mut fleet = Projects::new(20, 1);
    for project in 0..9 {
        fleet.delete(project, 0);
        fleet.removed_until(fleet.stage.now - START + MINUTE);
    }
    assert_eq!(fleet.held(), 3, "six of twenty went, and then none");
}

/// Whose removals are held by the fleet waits for no upstream that can't be reached, but for the window.
#[test]
fn an_upstream_that_is_not_live_counts_for_the_window_alone() {
    let mut fleet = Projects::new(22, 1);
    for project in 0..7 {
        fleet.delete(project, 0);
    }
    assert_eq!(fleet.removed_until(MINUTE), 0, "seven of 22");
    for project in 1..7 {
        fleet.stage.lost(&project_name(project), "Connector");
    }
    assert_eq!(fleet.removed_until(11 * MINUTE), 0, "they count for ten minutes");
    assert_eq!(fleet.removed_until(11 * MINUTE + 2 * GRACE), 1, "the only one that is live");
    // They are back, and gone as before: nothing of it is too many for its own project.
    for project in 1..7 {
        fleet.list(project, 0..0);
    }
    assert_eq!(fleet.removed_until(20 * MINUTE), 0, "seven of 22");
    assert_eq!(fleet.removed_until(60 * MINUTE), 6, "after the window of the first");
}

/// The breaker of an upstream waits for its watches, whatever the fleet's does.
#[test]
fn removals_stay_held_while_their_upstream_is_not_live() {
    let mut fleet = Projects::new(20, 4);
    fleet.list(0, 0..0);
    assert_eq!(fleet.removed_until(MINUTE), 0, "only a list lacks all four");
    fleet.stage.lost("p0", "Connector");
    assert_eq!(fleet.removed_until(30 * MINUTE), 0);
    fleet.list(0, 0..0);
    assert_eq!(fleet.removed_until(60 * MINUTE), 0);
    // Three of them are there again: the fourth alone may go, after its grace period.
    let back = fleet.stage.now - START;
    fleet.list(0, 0..3);
    assert_eq!(fleet.removed_until(back + GRACE - 1), 0);
    assert_eq!(fleet.removed_until(back + 2 * GRACE), 1);
}

/// What a person allowed in one namespace counts neither among those that would go nor among all.
#[test]
fn what_a_person_allowed_does_not_hide_that_all_the_others_would_go() {
    let mut fleet = Fleet::new(4);
    let other = "6bcb0b35-0000-4000-8000-000000000002";
    let namespaces = [("default", UID), ("second", other)].map(|(name, uid)| {
        json!({"kind": "Namespace", "metadata": {"name": name, "uid": uid, "resourceVersion": "9"}})
            .to_string()
    });
    fleet.relist_namespaces(&namespaces.each_ref().map(String::as_str));
    for number in 4..6 {
        let object = fleet.at_hub(number, Some("n1"));
        let object = object.replace(&format!("ns-{UID}"), &format!("ns-{other}"));
        let object = object.replace(r#""default""#, r#""second""#);
        fleet.stage.applied("hub", &object);
    }
    fleet.relist(0..0);
    fleet.stage.pass_to(MINUTE);
    fleet.stage.assert_no_action();
    fleet.allow("true");
    fleet.stage.pass_to(2 * MINUTE);
    let removed = fleet.stage.actions();
    let removed: Vec<_> = removed.iter().map(|d| d.action.object.name.clone()).collect();
    assert_eq!(removed, ["c0", "c1", "c2", "c3"]);
}
