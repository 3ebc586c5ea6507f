//! Which of the discovered clusters join and leave: each rule, and what a wrong discovery does. `roster.txt`
//! has what is asked for, told and known after each step.

mod gone;
mod random;
mod stage;

use OfferState::{NotReady, Ready};

use crate::scenes::Row::{self, It, Scene};
use crate::scenes::assert_told;
use crate::stage::*;
use stage::{joined, listing, needed, projects, with_gone};

const SCENES: &[Row] = &[
    Scene("another uid makes another cluster", || joined(&["a"])),
    It("another uid", |f| _ = f.offer("a", "2", Ready)),
    It("another one that is not ready", |f| _ = f.offer("a", "3", NotReady)),
    It("ready", |f| _ = f.offer("a", "3", Ready)),
    It("the old one is withdrawn", |f| _ = f.withdraw("a", "2").pass(MINUTE)),
    Scene("other roles make another cluster", || joined(&["a"])),
    It("also an edge", |f| {
        f.offer_from(SourceName::Milo, "a", "1", vec![Role::Upstream, Role::Edge], Ready);
    }),
    It("what the shell drops by itself", |f| _ = f.leave("a")),
    It("joins again", |f| _ = f.pass(1_000)),
    Scene("a lost discovery changes nothing and is reported once", || joined(&["a", "b"])),
    It("back in time", |f| _ = f.discovery_lost().pass(9_999).discovery_resumed().pass(MINUTE)),
    It("lost, twice", |f| _ = f.discovery_lost().pass(HOUR).discovery_lost().pass(HOUR)),
    It("listed", |f| _ = f.list_all(&["a", "b"]).pass(MINUTE)),
    It("an offer shortly before", |f| _ = f.offer("b", "1", Ready).discovery_lost().pass(9_999)),
    It("its report does not take the place of the later one", |f| _ = f.pass(1)),
    Scene("a list that shrank by more than a third is not believed", || joined(&projects(30))),
    It("none", |f| lists_twice(f, 0)),
    It("all", lists_all),
    It("one", |f| lists_twice(f, 1)),
    It("all", lists_all),
    It("half", |f| lists_twice(f, 15)),
    It("all", lists_all),
    It("eleven lack", |f| lists_twice(f, 19)),
    It("all", lists_all),
    It("a third lacks", |f| _ = f.list_all(&projects(30)[10..])),
    It("later", |f| _ = f.pass(MINUTE)),
    It("half of the others lack", |f| _ = f.list_all(&projects(30)[20..]).pass(HOUR)),
    It("the watch shows seven of them again", |f| {
        f.offer_all(&projects(30)[10..17]).pass(MINUTE);
    }),
    // Few of many idle projects are followed: the source's whole list says whether it can be believed.
    Scene("one of one leaves, but with half of the list", || needed(&projects(30))),
    It("named", |f| _ = f.name("p0")),
    It("listed", |f| _ = f.list_needed(&projects(30)[15..])),
    Scene("two of four leave, but of a long list", || needed(&projects(30))),
    It("named", |f| _ = f.name("p0").name("p1").name("p2").name("p3")),
    It("listed", |f| _ = f.list_needed(&projects(30)[2..])),
    Scene("a control plane that is not listed is never asked", || needed(&projects(30))),
    It("named", |f| _ = f.list_needed(&[]).name("p3")),
    Scene("withdrawals within a minute count together", || joined(&projects(9))),
    It("a few seconds apart", |f| withdraws_each(f, 5_000)),
    Scene("one in each minute is no accident", || joined(&projects(9))),
    It("withdrawn", |f| withdraws_each(f, MINUTE + 5_000)),
    // The answer may come after they were too many.
    Scene("a 404 releases a project that is held and no other", || joined(&projects(9))),
    It("four of nine", |f| _ = f.withdraw_all(&projects(4)).pass(MINUTE)),
    It("three of eight are held", |f| _ = f.gone("p0")),
    It("two of seven are no reason to doubt", |f| _ = f.gone("p1").pass(MINUTE)),
    Scene("what is held stays while the discovery is lost", || joined(&projects(9))),
    It("one of nine", |f| _ = f.withdraw("p0", "1").pass(2_000)),
    It("four of nine within a minute", |f| _ = f.withdraw_all(&projects(4)[1..]).pass(2_000)),
    It("and then three of eight", |f| _ = f.discovery_lost().pass(MINUTE)),
    It("resumed", |f| _ = f.discovery_resumed()),
    It("one is back", |f| _ = f.offer("p1", "1", Ready).withdraw("p9", "1")),
    It("listed", |f| _ = f.list_all(&["p4", "p5", "p6", "p7", "p8", "p1"])),
    Scene("a cluster of the configuration file has its name, told once", || joined(&[])),
    It("joined", |f| _ = f.join("a", Role::Edge)),
    It("offered thrice", |f| (0..3).for_each(|_| _ = f.offer("a", "1", Ready).pass(MINUTE))),
    It("the file gives it up", |f| _ = f.leave("a").pass(2_000)),
    It("the file takes it", |f| _ = f.leave("a").join("a", Role::Edge).pass(MINUTE)),
    Scene("of two sources the first has the name", || joined(&["a"])),
    It("a second one", |f| {
        let source = SourceName::KubeconfigDir;
        f.started_by(source, JoinRule::default());
        f.offer_from(source, "a", "", vec![Role::Upstream], Ready);
        f.event(EventKind::DiscoveryFinished { source }).name("a");
    }),
    It("the first one lacks it", |f| _ = f.list_all(&[])),
    Scene("broken offers are counted and told", || joined(&["a"])),
    It("broken", |f| {
        for name in ["a", "b", "c"] {
            f.offer(name, "1", OfferState::Broken { error: "exec is not allowed".into() });
        }
        f.pass(MINUTE);
    }),
    It("repaired", |f| _ = f.list_all(&["a", "b", "c"]).pass(MINUTE)),
    Scene("what nothing names for ten minutes leaves", || needed(&["a"])),
    It("named", |f| _ = f.name("a")),
    It("in time", |f| _ = f.unname("a").pass(9 * MINUTE).name("a").pass(9 * MINUTE)),
    It("a moment before", |f| _ = f.unname("a").pass(10 * MINUTE - 1)),
    It("after ten minutes", |f| _ = f.pass(1)),
    Scene("nothing leaves while the hub's Connectors are not seen", || needed(&["a"])),
    It("named", |f| _ = f.name("a")),
    It("lost", |f| _ = f.unname("a").pass(9 * MINUTE).lost("hub", "Connector").pass(HOUR)),
    It("resumed", |f| _ = f.resumed("hub", "Connector").pass(10 * MINUTE - 1)),
    It("after ten minutes", |f| _ = f.pass(MINUTE)),
    Scene("nothing leaves while the hub's routes are not seen", || needed(&["a"])),
    It("named", |f| _ = f.name("a")),
    It("lost", |f| _ = f.unname("a").pass(9 * MINUTE).lost("hub", "HTTPRoute").pass(HOUR)),
    It("resumed", |f| _ = f.resumed("hub", "HTTPRoute").pass(10 * MINUTE - 1)),
    It("after ten minutes", |f| _ = f.pass(MINUTE)),
    Scene("nothing leaves without a hub", || needed(&["a"])),
    It("named", |f| _ = f.name("a")),
    It("left", |f| _ = f.leave("hub").pass(HOUR)),
    Scene("a deleted project that hub objects name is reported once", four),
    It("named", |f| _ = f.name("a").name_route("a")),
    It("withdrawn", |f| _ = f.withdraw("a", "1").pass(2_000)),
    It("gone", |f| _ = f.gone("a")),
    It("again", |f| _ = f.gone("a").pass(MINUTE)),
    Scene("its 404 may come before it has left", four),
    It("gone", |f| _ = f.name("a").withdraw("a", "1").gone("a")),
    It("left", |f| _ = f.pass(2_000)),
    Scene("a 404 says nothing about a name that is shown or followed", four),
    It("offered", |f| _ = f.name("a").gone("a")),
    It("in the file", |f| _ = f.join("f", Role::Upstream).name("f").gone("f")),
    It("named by nothing", |f| _ = f.gone("x")),
    It("named", |f| _ = f.name("x")),
    It("lost", |f| _ = f.discovery_lost()),
    It("gone", |f| _ = f.gone("x")),
    // Rather the root of another Milo than that many deletions.
    Scene("many upstreams that no source offers are not asked for", four),
    It("two of three are too many", |f| _ = f.name("x").name("a").name("y")),
    It("two of six are not", |f| _ = f.name("b").name("c").name("d")),
    It("one after another is as many", |f| _ = f.gone("x")),
    It("three of seven", |f| _ = f.name("z")),
    It("two of six, of which x is known", |f| _ = f.unname("y")),
    It("one whose deletion was seen is none of them", |f| _ = f.withdraw("a", "1").pass(2_000)),
    It("no list is complete", |f| _ = f.started_by(SourceName::KubeconfigDir, JoinRule::All)),
    Scene("what a source does not show yet may join", || {
        listing(JoinRule::Needed, Settings::default())
    }),
    It("named while the list lasts", |f| _ = f.name("x").pass(HOUR)),
    It("listed without it", |f| _ = f.finished().pass(MINUTE - 1)),
    It("a minute after the list", |f| _ = f.pass(1)),
    It("another while the source is lost", |f| _ = f.discovery_lost().name("y").pass(HOUR)),
    It("the first joins", |f| _ = f.join("x", Role::Upstream).pass(1_000)),
    It("the source is back", |f| _ = f.discovery_resumed().pass(MINUTE)),
    Scene("a deleted project that is offered again", || with_gone(Settings::default())),
    It("offered", |f| _ = f.offer("a", "2", NotReady)),
    Scene("a deleted project that nothing names", || with_gone(Settings::default())),
    It("an update is no end", |f| _ = f.unname("a").name_route("a")),
    It("the last one", |f| _ = f.unname_route("a")),
];

fn four() -> Stage {
    joined(&["a", "b", "c", "d"])
}

fn lists_all(fleet: &mut Stage) {
    fleet.list_all(&projects(30)).pass(MINUTE);
}

/// The same wrong list twice.
fn lists_twice(fleet: &mut Stage, shown: usize) {
    for _ in 0..2 {
        fleet.list_all(&projects(30)[..shown]).pass(HOUR);
    }
}

fn withdraws_each(fleet: &mut Stage, apart_ms: u64) {
    for name in projects(9) {
        fleet.withdraw(name, "1").pass(apart_ms);
    }
}

#[test]
fn who_joins_and_leaves_after_each_step() {
    assert_told(String::new(), SCENES, "roster.txt");
}

/// Each project's Connectors are seen in all tiers; those at the hub and the edge are deleted only after
/// the project has left.
#[test]
fn nothing_is_kept_of_a_thousand_projects_that_came_and_went() {
    let mut fleet = joined(&["stays", "too", "three", "four"]);
    fleet.join("edge", Role::Edge);
    for kind in ["Connector", "HTTPProxy", "Gateway"] {
        fleet.list("edge", kind, []);
    }
    let before = fleet.pass(10 * MINUTE).machine.table_sizes();
    for n in 0..1_000 {
        let tenant = Tenant::of_project(n);
        let project = tenant.cluster;
        fleet.offer(project, "1", Ready).carry_out();
        fleet.list(project, "Namespace", [tenant.namespace()]);
        fleet.list(project, "Connector", ["a", "b"].map(|name| tenant.connector(name, N1)));
        let copies = ["a", "b"].map(|name| tenant.copy(name, N1));
        let places =
            || ["hub", "edge"].into_iter().flat_map(|at| copies.iter().map(move |it| (at, it)));
        places().for_each(|(at, copy)| _ = fleet.applied(at, copy));
        fleet.withdraw(project, "1").pass(2 * MINUTE);
        assert_eq!(fleet.carry_out(), [format!("leave {project} withdrawn")]);
        places().for_each(|(at, copy)| _ = fleet.deleted(at, copy));
    }
    assert_eq!(fleet.actions(), []);
    assert_eq!(fleet.pass(10 * MINUTE).machine.table_sizes(), before);
    assert_eq!(fleet.machine.membership_counts().len(), 1);
}
