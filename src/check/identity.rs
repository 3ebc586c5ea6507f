//! Checks whether each upstream cluster is the one that the hub Connectors were copied from: the
//! namespaces that their labels name exist there, with the uid in the name of their hub namespace; and
//! whether it holds the Connectors that they name.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;

use super::cluster::CheckedCluster;
use super::commands::Commands;
use super::election::not_reached;
use super::finding::{FindingGroup, join_first};
use super::probe_client::ListItem;
use crate::client::path;
use crate::core::cause::shell_word;
use crate::core::contract::hold_reason::HoldReason;
use crate::core::data::ids::{Kind, Role};
use crate::core::data::objects::{
    UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE, upstream_cluster_name,
};
use crate::report::{count, style};

/// A hub Connector, and the upstream namespace that it was copied from.
#[derive(Debug)]
struct HubConnector {
    key: String,
    upstream: String,
    namespace: String,
    /// The uid that the namespace had.
    uid: String,
    /// Namespace and name of its upstream Connector.
    source: String,
}

impl HubConnector {
    fn of(item: ListItem) -> Option<Self> {
        let meta = item.metadata;
        let label = |key: &str| meta.labels.get(key).filter(|value| !value.is_empty());
        let (namespace, name) = (label(UPSTREAM_NAMESPACE)?, label(UPSTREAM_NAME)?);
        Some(Self {
            upstream: upstream_cluster_name(label(UPSTREAM_CLUSTER_NAME)?)?,
            namespace: namespace.clone(),
            source: format!("{namespace}/{name}"),
            uid: meta.namespace.strip_prefix("ns-")?.to_owned(),
            key: meta.key(),
        })
    }
}

/// What an upstream cluster holds.
struct Held {
    /// By name, the uid of each namespace.
    namespaces: BTreeMap<String, String>,
    /// Namespace and name of each Connector.
    connectors: BTreeSet<String>,
}

impl Held {
    /// # Errors
    /// Why the objects could not be listed.
    async fn by(upstream: &CheckedCluster) -> Result<Self, String> {
        let uid = |item: ListItem| Some((item.metadata.name, item.metadata.uid));
        let key = |item: ListItem| Some(item.metadata.key());
        let (namespaces, connectors) = tokio::join!(
            list(upstream, Kind::Namespace, uid),
            list(upstream, Kind::Connector, key)
        );
        let (namespaces, connectors) = (namespaces?, connectors?);
        Ok(Self {
            namespaces: namespaces.into_iter().collect(),
            connectors: connectors.into_iter().collect(),
        })
    }
}

/// `followed`: the names of all upstreams that a run follows or may come to follow, if they are known.
pub(super) async fn check(
    clusters: &[CheckedCluster],
    followed: Option<&[String]>,
    commands: &Commands,
) -> FindingGroup {
    let mut group = FindingGroup::new("hub Connectors and their upstreams");
    let upstreams: Vec<_> = clusters.iter().filter(|c| c.has(Role::Upstream)).collect();
    let Some(hub) = clusters.iter().find(|cluster| cluster.has(Role::Hub)) else { return group };
    if upstreams.is_empty() {
        return group;
    }
    let connectors = list(hub, Kind::Connector, HubConnector::of).await;
    let connectors = match connectors {
        Ok(connectors) => connectors,
        Err(why) => {
            let what = format!("not known which Connectors {} holds", hub.name());
            group.skipped("identity", what, why);
            return group;
        }
    };
    let misnamed = match followed {
        Some(followed) => report_unconfigured(&mut group, &connectors, followed, commands),
        None => BTreeSet::new(),
    };
    // That no hub Connector names them is the same mistake.
    let upstreams: Vec<_> =
        upstreams.into_iter().filter(|c| !misnamed.contains(c.name())).collect();
    let held = upstreams.iter().map(|upstream| Held::by(upstream));
    for (upstream, held) in upstreams.iter().zip(join_all(held).await) {
        let name = upstream.name();
        match held {
            Ok(held) => {
                let of = connectors.iter().filter(|connector| connector.upstream == name);
                report(&mut group, name, &of.collect::<Vec<_>>(), &held, &commands.kubectl(name));
            }
            Err(why) => {
                let what = format!("not known whether {name} is what its hub Connectors come from");
                group.skipped("identity", what, why);
            }
        }
    }
    group
}

/// # Errors
/// Why the objects could not be listed.
async fn list<T>(
    cluster: &CheckedCluster,
    kind: Kind,
    take: impl Fn(ListItem) -> Option<T>,
) -> Result<Vec<T>, String> {
    if !cluster.reached {
        return Err(not_reached(cluster));
    }
    cluster.client.list(path(kind, None), take).await.map_err(|error| error.to_string())
}

/// Names an upstream of hub Connectors that no run would follow: its name in the configuration is most
/// likely another one than in the hub's labels. Returns the names that are wrong.
fn report_unconfigured(
    group: &mut FindingGroup,
    connectors: &[HubConnector],
    followed: &[String],
    commands: &Commands,
) -> BTreeSet<String> {
    let mut misnamed = BTreeSet::new();
    let mut unconfigured = BTreeMap::<&str, Vec<&str>>::new();
    for connector in connectors.iter().filter(|c| !followed.contains(&c.upstream)) {
        unconfigured.entry(&connector.upstream).or_default().push(&connector.key);
    }
    let is_named = |name: &&String| connectors.iter().any(|c| c.upstream == **name);
    let unnamed: Vec<_> = followed.iter().filter(|name| !is_named(name)).cloned().collect();
    for (upstream, keys) in &unconfigured {
        let what = style::unconfigured(keys.len(), upstream);
        match style::meant(upstream, unconfigured.len(), &unnamed) {
            Some(guess) => {
                let setting = commands.cluster_key(guess).map(|key| format!("{key}.name={upstream}"));
                let again = setting.map(|setting| {
                    format!(". To try it:\n{}", commands.check_with(&[setting]))
                });
                let remedy = format!(
                    "did you mean {guess}? No hub Connector names that one; name the cluster in the \
                     configuration as the hub's labels do: {upstream}{}",
                    again.unwrap_or_default()
                );
                group.failed("configured", what, join_first(keys), remedy);
                misnamed.insert(guess.to_owned());
            }
            None => group.warned(
                "configured",
                what,
                join_first(keys),
                format!(
                    "configure the cluster {upstream}, unless another installation follows it; this one \
                     leaves these Connectors as they are"
                ),
            ),
        }
    }
    misnamed
}

fn report(
    group: &mut FindingGroup,
    upstream: &str,
    connectors: &[&HubConnector],
    held: &Held,
    kubectl: &str,
) {
    let all = count(connectors.len(), "hub Connector");
    let of_reason = |reason: HoldReason| {
        let is_it = |connector: &&&HubConnector| {
            let uid = held.namespaces.get(&connector.namespace);
            match reason {
                HoldReason::NamespaceMissing => uid.is_none(),
                _ => uid.is_some_and(|uid| *uid != connector.uid),
            }
        };
        let keys: Vec<_> = connectors.iter().filter(is_it).map(|c| c.key.as_str()).collect();
        (reason, keys)
    };
    let reasons = [HoldReason::NamespaceMissing, HoldReason::NamespaceDiffers];
    let wrong = reasons.map(of_reason).into_iter().filter(|(_, keys)| !keys.is_empty());
    let wrong: Vec<_> = wrong.collect();
    if connectors.is_empty() && !held.connectors.is_empty() {
        group.warned(
            "identity",
            style::unreplicated(held.connectors.len(), upstream),
            "no hub Connector names it",
            "wait if the replicator has just begun; otherwise look whether it copies this control plane, \
             and under which name; throughline status shows the upstreams that hub Connectors name",
        );
    } else if connectors.is_empty() {
        let what = format!("not known whether {upstream} is the right cluster");
        group.skipped("identity", what, "no hub Connector names it yet");
    } else if wrong.is_empty() {
        let what = format!("{upstream} holds the namespaces of its {all}, by name and uid");
        group.passed("identity", what);
    }
    // One tenant's namespace may have been deleted; all of them are another control plane.
    let is_all = wrong.iter().map(|(_, keys)| keys.len()).sum::<usize>() == connectors.len();
    let is_all = is_all && !connectors.is_empty();
    let wrong = match &wrong[..] {
        [_, _, ..] if is_all => {
            let keys = connectors.iter().map(|connector| connector.key.as_str());
            vec![(NONE_IS_THERE, keys.collect())]
        }
        _ => wrong.into_iter().map(|(reason, keys)| (reason.text(), keys)).collect::<Vec<_>>(),
    };
    for (reason, keys) in &wrong {
        let remedy = format!(
            "{}; a live run leaves the annotations of these Connectors as they are{}",
            HoldReason::NamespaceMissing.remedy(),
            uid_command(connectors, keys, kubectl)
        );
        let detail = join_first(keys);
        if is_all {
            let what = format!("none of {all} of {upstream} can be followed: {reason}");
            group.failed("identity", what, detail, remedy);
        } else {
            let what =
                format!("{} of {all} of {upstream} cannot be followed: {reason}", keys.len());
            group.warned("identity", what, detail, remedy);
        }
    }
    let in_place = connectors.iter().filter(|c| held.namespaces.get(&c.namespace) == Some(&c.uid));
    let missing = in_place.filter(|c| !held.connectors.contains(&c.source));
    let missing: Vec<_> = missing.map(|connector| connector.key.as_str()).collect();
    if !missing.is_empty() {
        let what = format!("{upstream} lacks the Connectors of {} of {all}", missing.len());
        let remedy = "wait if the replicator is about to delete them; a live run removes their status \
                      annotations, unless they are too many (mirror.maxShare): look whether the \
                      upstream cluster has lost objects";
        group.warned("identity", what, join_first(&missing), remedy);
    }
}

/// Some of the namespaces do not exist, and the others are of another control plane.
const NONE_IS_THERE: &str = "the namespaces that their labels name do not exist in the upstream \
                             cluster, or have other uids";

/// How to see whether the kubeconfig is right: the uid that the namespace of the first Connector has.
fn uid_command(connectors: &[&HubConnector], keys: &[&str], kubectl: &str) -> String {
    let first = connectors.iter().find(|connector| keys.first() == Some(&connector.key.as_str()));
    first.map_or_else(String::new, |HubConnector { namespace, uid, .. }| {
        let (namespace, path) = (shell_word(namespace), "'{.metadata.uid}'");
        format!(
            ". This prints {uid} in the right control plane:\n\
             {kubectl} get namespace {namespace} -o jsonpath={path}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Level;
    use crate::config::Config;

    fn connector(upstream: &str, namespace: &str, uid: &str) -> HubConnector {
        HubConnector {
            key: format!("ns-{uid}/c"),
            upstream: upstream.to_owned(),
            namespace: namespace.to_owned(),
            uid: uid.to_owned(),
            source: format!("{namespace}/c"),
        }
    }

    #[test]
    fn an_upstream_that_is_configured_under_another_name_is_a_failure() {
        let connectors =
            ["project-a", "project-a", "project-b"].map(|name| connector(name, "a", "1"));
        for (followed, expected) in [
            (&["project-a", "project-b", "other"][..], &[][..]),
            (&["proj-a", "project-b"], &[(Level::Failed, "2", "proj-a")]),
            (&["project_a", "x", "project-b"], &[(Level::Failed, "2", "project_a")]),
            (&["project-a"], &[(Level::Warning, "1", "another installation")]),
            (
                &["elsewhere"],
                &[(Level::Warning, "2", "configure"), (Level::Warning, "1", "configure")],
            ),
        ] {
            let mut group = FindingGroup::new("g");
            let followed: Vec<_> = followed.iter().map(ToString::to_string).collect();
            let commands = Commands::new("throughline check", &Config::default());
            let misnamed = report_unconfigured(&mut group, &connectors, &followed, &commands);
            let failed = expected.iter().filter(|(level, ..)| *level == Level::Failed);
            assert_eq!(misnamed.len(), failed.count(), "{misnamed:?}");
            let found = group.into_findings();
            assert_eq!(found.len(), expected.len(), "{followed:?}: {found:?}");
            for (finding, (level, count, remedy)) in found.iter().zip(expected) {
                assert_eq!(finding.level, *level, "{finding:?}");
                assert!(finding.what.starts_with(count), "{finding:?}");
                assert!(finding.remedy.as_ref().unwrap().contains(remedy), "{finding:?}");
            }
        }
    }

    #[test]
    fn another_control_plane_is_a_failure_and_what_is_missing_a_warning() {
        let (a, b) = (connector("up", "a", "1"), connector("up", "b", "2"));
        let both = &["a/c", "b/c"][..];
        for (namespaces, present, levels) in [
            (vec![("a", "1"), ("b", "2")], both, vec![Level::Passed]),
            (vec![("a", "1"), ("b", "2")], &both[..1], vec![Level::Passed, Level::Warning]),
            (vec![("a", "1")], both, vec![Level::Warning]),
            (vec![], both, vec![Level::Failed]),
            (vec![("a", "8"), ("b", "9")], both, vec![Level::Failed]),
            (vec![("a", "8")], both, vec![Level::Failed]),
            (vec![("a", "8"), ("b", "2")], both, vec![Level::Warning]),
        ] {
            let mut group = FindingGroup::new("g");
            let namespaces = namespaces.iter().map(|(n, u)| ((*n).to_owned(), (*u).to_owned()));
            let connectors = present.iter().map(|key| (*key).to_owned()).collect();
            let held = Held { namespaces: namespaces.collect(), connectors };
            report(&mut group, "up", &[&a, &b], &held, "kubectl");
            let found: Vec<_> = group.into_findings().iter().map(|f| f.level).collect();
            assert_eq!(found, levels);
        }
    }
}
