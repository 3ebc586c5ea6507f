//! Whatever begins ends: when its subject is right again, when it is gone, and when its cluster left. The
//! stage holds each test to the rest: what ends was open, what is said again is news, every fact of a
//! sentence is known, and a hop waits for one cause.

mod random;

use crate::corners::carry_out;
use crate::stage::*;

/// Orphans are reported, and a status of two kilobytes is too large.
fn watchful() -> Settings {
    settings(|s| {
        s.orphans.mode = OrphanMode::Report;
        s.mirror.annotation_limit_bytes = 2_000;
    })
}

fn too_large() -> String {
    status(N1.map(|_| "n1"))
        .replace(r#"{"id""#, &format!(r#"{{"homeRelay":"{}","id""#, "r".repeat(3_000)))
}

/// Writes are refused or fail for a minute.
fn fails(stage: &mut Stage, outcome: &Outcome) {
    let to = stage.time() + MINUTE;
    stage.upstream(N2).run_to(to, |stage, decision| _ = stage.finish(decision, outcome.clone()));
}

fn overwritten(stage: &mut Stage) {
    for _ in 0..3 {
        carry_out(stage.upstream(N1).hub(Some("{}")).pass(10_000));
    }
}

/// A watch fails for this reason, which is about a kind of objects or about the whole cluster.
fn loses(stage: &mut Stage, cause: ErrorCause) {
    let error = RequestFailure::new(cause, "no");
    stage.event(EventKind::WatchLost { cluster: "up".into(), kind: Kind::Gateway, error });
}

pub(crate) fn paused(stage: &mut Stage) {
    let pause = json!({"metadata": {"annotations": { PAUSED: "true" }}});
    stage.applied("hub", with(with_uid(UP.copy("lab", N1), "u-hub"), pause));
}

pub(crate) fn without_labels(stage: &mut Stage) {
    let mut copy = with_uid(UP.copy("lab", N1), "u-hub");
    copy["metadata"]["labels"] = json!({});
    stage.applied("hub", copy);
}

/// All is as it should be, and every write succeeds.
fn put_right(stage: &mut Stage) {
    let connectors = |of_lab: Value, of: fn(&str) -> Value| [of_lab, of("a"), of("b")];
    let upstream = with_uid(UP.connector("lab", N1), "u-up");
    let upstream = connectors(upstream, |name| UP.connector(name, N1));
    let hub = connectors(with_uid(UP.copy("lab", N1), "u-hub"), |name| UP.copy(name, N1));
    let edge = connectors(with_uid(UP.copy("lab", N1), "u-edge"), |name| UP.copy(name, N1));

    stage.leads(true).list("up", "Namespace", [namespace(UID)]).list("up", "Gateway", []);
    stage.list("up", "Connector", upstream).list("hub", "Connector", hub);
    stage.list("hub", "HTTPRoute", []).list("edge", "Connector", edge);
    stage.list("edge", "HTTPProxy", [UP.proxy("app", &["lab"])]);
    stage.list("edge", "Gateway", [UP.gateway("app", json!({}))]);
    stage.settle_to(stage.time() + HOUR);
}

#[test]
fn every_cause_ends_with_what_is_right_with_what_is_gone_and_with_its_cluster() {
    use Cause::*;
    type Happens = fn(&mut Stage);
    let causes: [(Cause, Happens); 25] = [
        (CredentialsRejected, |stage| loses(stage, ErrorCause::Unauthorized)),
        (PermissionMissing, |stage| loses(stage, ErrorCause::Forbidden)),
        (KindNotServed, |stage| loses(stage, ErrorCause::NotFound)),
        (ClusterUnavailable, |stage| loses(stage, ErrorCause::TimedOut)),
        (KubeconfigInvalid, |stage| loses(stage, ErrorCause::Certificate)),
        (ObjectUnreadable, |stage| _ = stage.unreadable("lab", "status: a list")),
        (UpstreamUnknown, |stage| _ = stage.leave("up").pass(MINUTE)),
        (NotReplicated, |stage| _ = stage.list("hub", "Connector", []).pass(2 * MINUTE)),
        (LabelsMissing, without_labels),
        (NamespaceMissing, |stage| _ = stage.list("up", "Namespace", [])),
        (NamespaceMismatch, |stage| _ = stage.applied("up", namespace(OTHER_UID))),
        (StatusTooLarge, |stage| _ = stage.upstream(Some(&too_large()))),
        (Deferred, |stage| _ = stage.upstream(Some(&status_at("n1", 7)))),
        (NotMirrored, |stage| _ = stage.leads(false).upstream(N2).pass(5_000)),
        (WriteRefused, |stage| fails(stage, &forbidden())),
        (WriteFailing, |stage| fails(stage, &unavailable(None))),
        (Overwritten, overwritten),
        (NotCarried, |stage| _ = stage.edge(N2).pass(10_000)),
        (NotPlaced, |stage| _ = stage.list("edge", "Connector", []).pass(10_000)),
        (NotAnnounced, |stage| _ = stage.upstream(N2).hub(N2).edge(N2).pass(6_000)),
        (Orphaned, |stage| _ = stage.route(HOUR, &["gone"]).pass(MINUTE)),
        (RouteSettling, |stage| _ = stage.route(HOUR, &["gone"])),
        (Paused, paused),
        (AnnotationRemoved, |stage| {
            stage.deleted("up", with_uid(UP.connector("lab", N1), "u-up"));
            stage.settle_to(stage.time() + MINUTE);
        }),
        (Bug, |stage| _ = stage.lost("elsewhere", "Gateway")),
    ];
    let ends: [(&str, Happens); 3] = [
        ("right", |stage| {
            if stage.wrong().contains(&UpstreamUnknown) {
                stage.join("up", Role::Upstream);
            }
            put_right(stage);
        }),
        ("gone", |stage| {
            let at_hub = stage.deleted("hub", with_uid(UP.copy("lab", N1), "u-hub"));
            at_hub.deleted("up", with_uid(UP.connector("lab", N1), "u-up"));
            at_hub.deleted("edge", with_uid(UP.copy("lab", N1), "u-edge"));
            at_hub.deleted("edge", UP.gateway("app", json!({}))).resumed("up", "Gateway");
            at_hub.list("hub", "HTTPRoute", []).pass(2 * MINUTE);
        }),
        ("left", |stage| _ = stage.leave("up").leave("edge").leave("hub").pass(2 * MINUTE)),
    ];
    for (cause, begin) in causes {
        for (how, end) in ends {
            let mut stage = Stage::settled(watchful());
            assert_eq!(stage.wrong(), []);
            begin(&mut stage);
            assert!(stage.wrong().contains(&cause), "{cause:?}: {:?}", stage.wrong());
            end(&mut stage);
            let left: Vec<_> = stage.wrong().into_iter().filter(|left| *left != Bug).collect();
            assert_eq!(left, [], "{cause:?} {how}");
        }
    }
}
