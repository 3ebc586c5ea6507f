//! One cluster by itself: whether it answers, its clock, the kinds it serves, our rights there.

use futures::future::join_all;
use serde_json::Value;

use super::ask::{Asked, texts};
use super::finding::Group;
use super::need::{Need, parts};
use super::{rights, title};
use crate::client::{CallError, path};
use crate::clock::millis;
use crate::config::Config;
use crate::core::ids::{Kind, Role};
use crate::report::{count, duration};
use crate::run::kinds_watched;

/// Clocks further apart than this are told. Half a second is lost in the answer's date.
const CLOCKS_APART_MS: u64 = 3_000;

/// A cluster after it was looked at.
pub(super) struct Look {
    pub(super) asked: Asked,
    /// It answers, and knows us.
    pub(super) reached: bool,
    /// How far our clock is ahead of its own, in milliseconds.
    pub(super) ahead_ms: i64,
    pub(super) group: Group,
}

impl Look {
    pub(super) fn has(&self, role: Role) -> bool {
        self.asked.cluster.roles().contains(&role)
    }

    pub(super) fn name(&self) -> &str {
        self.asked.cluster.name().as_str()
    }
}

/// Asks a cluster for everything that concerns it alone.
pub(super) async fn look(asked: Asked, config: &Config, needs: &[Need]) -> Look {
    let cluster = asked.cluster.clone();
    let title = title(cluster.name().as_str(), cluster.roles());
    let mut look =
        Look { asked, reached: false, ahead_ms: 0, group: Group::new(format!("cluster {title}")) };
    let hello = match look.asked.hello().await {
        Ok(hello) => hello,
        Err(error) => {
            unreachable(&mut look, &error);
            return look;
        }
    };
    look.reached = true;
    let took = duration(millis(hello.took));
    look.group.passed("reachable", format!("answers within {took}"));
    match hello.version {
        Some(version) => look.group.passed("version", format!("Kubernetes {version}")),
        None => {
            look.group.skipped("version", "its version can't be read", "GET /version is refused")
        }
    }
    look.ahead_ms = hello.ahead_ms.unwrap_or(0);
    clock(&mut look.group, hello.ahead_ms);
    let mine: Vec<&Need> = needs.iter().filter(|need| need.cluster == *cluster.name()).collect();
    let kinds = kinds_watched(cluster.roles(), &config.settings());
    let (served, rights) = tokio::join!(
        join_all(kinds.iter().map(|kind| serves(&look.asked, *kind))),
        rights::look(&look.asked, config, &mine),
    );
    for (kind, served) in kinds.into_iter().zip(served) {
        tell_served(&mut look.group, kind, served);
    }
    rights::tell(&mut look.group, &rights, &mine);
    look
}

fn unreachable(look: &mut Look, error: &CallError) {
    let (what, remedy) = match error {
        CallError::Status { code: 401, .. } => (
            "refuses who asks",
            "the credentials were refused: renew the token or certificate in the kubeconfig",
        ),
        CallError::NoClient(_) => (
            "can't be asked",
            "mend the kubeconfig: see kubeconfig, context and inCluster of the cluster",
        ),
        CallError::TimedOut(_) => (
            "does not answer",
            "see whether its API server is up and whether anything on the way drops packets: a \
             NetworkPolicy, a firewall, a proxy",
        ),
        CallError::Status { .. } => ("answers with an error", "see the API server's own log"),
        CallError::Unreachable(_) | CallError::Unreadable(_) => (
            "can't be reached",
            "see whether the kubeconfig's server is right and up, and can be reached from here: DNS, \
             NetworkPolicy, firewall, proxy",
        ),
    };
    look.group.failed("reachable", what, format!("GET /version: {error}"), remedy);
}

fn clock(group: &mut Group, ahead_ms: Option<i64>) {
    let Some(ahead_ms) = ahead_ms else { return };
    let apart = ahead_ms.unsigned_abs();
    if apart <= CLOCKS_APART_MS {
        group.passed("clock", "its clock and ours agree");
        return;
    }
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    group.warned(
        "clock",
        format!("our clock is {} {side} its own", duration(apart)),
        "compared with the Date of its answer",
        "let both hosts keep time (NTP): a route's age is told by both, and logs of several clusters \
         can't be compared otherwise",
    );
}

/// What a cluster says of a kind.
enum Served {
    /// So many objects; `None` where it may not be listed.
    Yes(Option<u64>),
    /// Not in this version; those in which it is.
    No(Vec<String>),
    Unknown(CallError),
}

async fn serves(asked: &Asked, kind: Kind) -> Served {
    let (plural, group) = parts(kind.resource());
    let version = short(kind);
    match asked.count(&path(kind, None)).await {
        Ok(count) => Served::Yes(Some(count)),
        // Also said of what is not there, to those who may not list it.
        Err(CallError::Status { code: 403, .. }) if group.is_empty() => Served::Yes(None),
        Err(error @ CallError::Status { code: 403 | 404, .. }) => {
            match asked.serves(group, version, plural).await {
                Ok(true) if error.code() == 403 => Served::Yes(None),
                Ok(true) => Served::Unknown(error),
                Ok(false) => Served::No(versions(asked, group, plural).await),
                Err(error) => Served::Unknown(error),
            }
        }
        Err(error) => Served::Unknown(error),
    }
}

/// The version without the group.
fn short(kind: Kind) -> &'static str {
    let version = kind.api_version();
    version.rsplit('/').next().unwrap_or(version)
}

async fn versions(asked: &Asked, group: &str, plural: &str) -> Vec<String> {
    let Ok(found) = asked.get::<Value>(&format!("/apis/{group}")).await else { return Vec::new() };
    let mut versions = Vec::new();
    for version in texts(&found["versions"], "version") {
        if asked.serves(group, version, plural).await.unwrap_or(false) {
            versions.push(version.to_owned());
        }
    }
    versions
}

fn tell_served(group: &mut Group, kind: Kind, served: Served) {
    let (resource, version, short) = (kind.resource(), kind.api_version(), short(kind));
    match served {
        Served::Yes(Some(objects)) => {
            let objects = count(usize::try_from(objects).unwrap_or(usize::MAX), "object");
            group.passed("kind", format!("serves {resource} in {short}: {objects}"));
        }
        Served::Yes(None) => group.passed("kind", format!("serves {resource} in {short}")),
        Served::No(others) => {
            let what = format!("does not serve {resource} in {short}");
            let (detail, remedy) = if others.is_empty() {
                let detail = format!("GET /apis/{version}: nothing of that name");
                (detail, format!("install the CustomResourceDefinition {resource}"))
            } else {
                let detail = format!("it is served in {} only", others.join(", "));
                let remedy = format!(
                    "let the CustomResourceDefinition {resource} serve {short}: an older or newer \
                     platform is installed than throughline knows"
                );
                (detail, remedy)
            };
            group.failed("kind", what, detail, remedy);
        }
        Served::Unknown(error) => {
            let detail = format!("GET {}: {error}", path(kind, None));
            let remedy = error.remedy("list", kind).unwrap_or_else(|| {
                "see the API server's log: a conversion webhook, an aggregated API, etcd".to_owned()
            });
            group.failed("kind", format!("can't list {resource}"), detail, remedy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;

    #[test]
    fn clocks_that_lie_apart_are_told() {
        for (ahead_ms, level, told) in [
            (2_900, Level::Passed, "agree"),
            (-2_900, Level::Passed, "agree"),
            (61_000, Level::Warning, "ahead of"),
            (-61_000, Level::Warning, "behind"),
        ] {
            let mut group = Group::new("g");
            clock(&mut group, Some(ahead_ms));
            let finding = group.findings().remove(0);
            assert_eq!(finding.level, level);
            assert!(finding.what.contains(told), "{}", finding.what);
        }
    }
}
