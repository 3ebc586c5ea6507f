//! Compares the hub's Connectors with their upstreams: the names in their labels, the uids of their
//! namespaces, and each Connector.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use kube::api::{DynamicObject, ObjectMeta};

use super::client::{Cluster, annotation, key, label};
use super::finding::{Check, Draft, about_objects};
use crate::config::Config;
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::data::ids::{ClusterName, Kind, NamespacedName, Role, Uid};
use crate::core::data::objects::{
    UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE, UPSTREAM_STATUS,
    upstream_cluster_name, upstream_selector,
};
use crate::report::style::{count, join_first};

/// A hub Connector.
struct HubConnector {
    key: NamespacedName,
    /// The uid of its upstream namespace, from the name of its namespace.
    uid: Uid,
    /// From its labels; an error is the first label that it lacks.
    source: Result<Source, &'static str>,
    has_status: bool,
}

/// The origin of a hub Connector.
struct Source {
    upstream: ClusterName,
    connector: NamespacedName,
}

impl HubConnector {
    /// `None` outside namespaces named after a uid.
    fn of(meta: &ObjectMeta) -> Option<Self> {
        let key = key(meta);
        if !Uid::names_hub_namespace(key.namespace()) {
            return None;
        }
        let uid = Uid::of_hub_namespace(key.namespace())?;
        let has_status = annotation(meta, UPSTREAM_STATUS).is_some();
        Some(Self { key, uid, source: Source::of(meta), has_status })
    }
}

impl Source {
    fn of(meta: &ObjectMeta) -> Result<Self, &'static str> {
        let label = |key| label(meta, key).ok_or(key);
        let upstream = upstream_cluster_name(label(UPSTREAM_CLUSTER_NAME)?);
        let upstream = upstream.ok_or(UPSTREAM_CLUSTER_NAME)?;
        Ok(Self {
            upstream: upstream.as_str().into(),
            connector: NamespacedName::new(label(UPSTREAM_NAMESPACE)?, label(UPSTREAM_NAME)?),
        })
    }
}

/// The objects of an upstream.
struct Held {
    /// The uid of each upstream namespace, by name.
    namespaces: BTreeMap<String, Uid>,
    connectors: BTreeSet<NamespacedName>,
}

impl Held {
    /// # Errors
    /// An object kind that is not visible.
    async fn by(upstream: &Cluster) -> Result<Self, String> {
        let (namespaces, connectors) =
            tokio::join!(upstream.objects(Kind::Namespace), upstream.objects(Kind::Connector));
        Ok(Self::of(&namespaces?, &connectors?))
    }

    /// If tiers share a cluster, the hub's namespaces are no upstream namespaces.
    fn of(namespaces: &[DynamicObject], connectors: &[DynamicObject]) -> Self {
        let is_upstream = |meta: &&ObjectMeta| label(meta, UPSTREAM_NAMESPACE).is_none();
        let namespaces = namespaces.iter().map(|object| &object.metadata).filter(is_upstream);
        let uid = |meta: &ObjectMeta| {
            let uid = Uid::new(meta.uid.as_deref().unwrap_or_default());
            (meta.name.clone().unwrap_or_default(), uid)
        };
        let namespaces: BTreeMap<_, _> = namespaces.map(uid).collect();
        let is_source = |key: &NamespacedName| {
            !Uid::names_hub_namespace(key.namespace()) && namespaces.contains_key(key.namespace())
        };
        let connectors = connectors.iter().map(|object| key(&object.metadata));
        let connectors = connectors.filter(is_source).collect();
        Self { namespaces, connectors }
    }

    /// The name of the namespace with this uid.
    fn namespace(&self, uid: &Uid) -> Option<&str> {
        let mut all = self.namespaces.iter();
        all.find(|(_, other)| *other == uid).map(|(name, _)| name.as_str())
    }

    /// The upstream Connector of a hub Connector, by name and namespace uid.
    fn source(&self, connector: &HubConnector) -> Option<NamespacedName> {
        let source = NamespacedName::new(self.namespace(&connector.uid)?, connector.key.name());
        self.connectors.contains(&source).then_some(source)
    }
}

/// A hub Connector whose labels name an upstream Connector.
type Named<'a> = (&'a HubConnector, &'a Source);

/// The objects read from the tiers.
struct Tiers<'a> {
    hub: &'a ClusterName,
    connectors: Vec<HubConnector>,
    upstreams: Vec<(&'a Cluster, Result<Held, String>)>,
}

/// `followed`: the names of all upstreams that a run follows or may follow later, if known.
pub(super) async fn check(
    config: &Config,
    clusters: &[Cluster],
    followed: Option<&[ClusterName]>,
) -> Vec<Draft> {
    let checks = [Check::Upstreams, Check::Identity, Check::Replication];
    let upstreams: Vec<_> = clusters.iter().filter(|c| c.has(Role::Upstream)).collect();
    let may_have_upstreams = !upstreams.is_empty() || config.discovery.may_find(Role::Upstream);
    let hub = clusters.iter().find(|cluster| cluster.has(Role::Hub) && may_have_upstreams);
    let Some(hub) = hub else {
        let what = "no hub or no upstream is configured here: nothing to compare";
        return checks.map(|check| Draft::passed(check, None, what)).into();
    };
    let connectors = match hub.objects(Kind::Connector).await {
        Ok(objects) => objects.iter().filter_map(|o| HubConnector::of(&o.metadata)).collect(),
        Err(unseen) => {
            let skip = |check| Draft::skipped(check, Some(hub.name()), unseen.as_str());
            return checks.map(skip).into();
        }
    };
    let held = join_all(upstreams.iter().map(|upstream| Held::by(upstream))).await;
    let upstreams = upstreams.into_iter().zip(held).collect();
    let tiers = Tiers { hub: hub.name(), connectors, upstreams };
    let (mut drafts, misnamed) = tiers.names(config, followed);
    if tiers.upstreams.is_empty() {
        let unseen = "an upstream (discovery shows none that a run joins)";
        let skip = |check| Draft::skipped(check, Some(tiers.hub), unseen);
        drafts.extend([Check::Identity, Check::Replication].map(skip));
    }
    for (upstream, held) in &tiers.upstreams {
        // An upstream that no hub Connector names is the same mistake.
        if misnamed.contains(upstream.name()) {
            continue;
        }
        match held {
            Ok(held) => drafts.extend(tiers.compare(upstream.name(), held)),
            Err(unseen) => {
                let skip = |check| Draft::skipped(check, Some(upstream.name()), unseen.as_str());
                drafts.extend([Check::Identity, Check::Replication].map(skip));
            }
        }
    }
    drafts
}

impl Tiers<'_> {
    /// Compares the names in the labels with those of followed upstreams. Also returns the upstreams
    /// with wrong names.
    fn names(
        &self,
        config: &Config,
        followed: Option<&[ClusterName]>,
    ) -> (Vec<Draft>, BTreeSet<ClusterName>) {
        let mut named = BTreeMap::<&ClusterName, Vec<&HubConnector>>::new();
        for connector in &self.connectors {
            if let Ok(source) = &connector.source {
                named.entry(&source.upstream).or_default().push(connector);
            }
        }
        let mut drafts = self.unlabelled();
        let counts: Vec<_> =
            named.iter().map(|(name, of)| format!("{name} ({})", of.len())).collect();
        let mut evidence = count(self.connectors.len(), "hub Connector");
        if !counts.is_empty() {
            evidence += &format!(", of {}", join_first(&counts));
        }
        let Some(followed) = followed else {
            let unseen = format!("{evidence}; which clusters the sources show");
            drafts.push(Draft::skipped(Check::Upstreams, Some(self.hub), unseen));
            return (drafts, BTreeSet::new());
        };
        if self.connectors.is_empty() && self.upstreams.is_empty() {
            let unseen = "a hub Connector or an upstream (there is none yet)";
            drafts.push(Draft::skipped(Check::Upstreams, Some(self.hub), unseen));
        }
        let mut misnamed = BTreeSet::new();
        for (upstream, of) in named.iter().filter(|(name, _)| !followed.contains(name)) {
            let mut facts = Facts { upstream: Some((*upstream).clone()), ..Facts::default() };
            if let Some(other) = self.other_name(of, &named) {
                let at = config.clusters.iter().position(|cluster| cluster.name == *other);
                facts.key = at.map(|at| format!("clusters[{at}].name").into());
                facts.what = Some(other.as_str().into());
                misnamed.insert(other.clone());
            }
            let keys: Vec<_> = of.iter().map(|connector| &connector.key).collect();
            let names = format!("named by {}", join_first(&keys));
            let subject = about_objects(self.hub, Kind::Connector, &keys);
            let cause = Cause::UpstreamUnknown;
            drafts.push(Draft::failed(Check::Upstreams, cause, subject, facts, names));
        }
        if drafts.is_empty() {
            drafts.push(Draft::passed(Check::Upstreams, Some(self.hub), evidence));
        }
        (drafts, misnamed)
    }

    /// An upstream that no hub Connector names and that has the namespace of one of these.
    fn other_name(
        &self,
        of: &[&HubConnector],
        named: &BTreeMap<&ClusterName, Vec<&HubConnector>>,
    ) -> Option<&ClusterName> {
        let has = |held: &Held| of.iter().any(|c| held.namespace(&c.uid).is_some());
        let mut unnamed = self.upstreams.iter().filter(|(c, _)| !named.contains_key(c.name()));
        let (cluster, _) = unnamed.find(|(_, held)| held.as_ref().is_ok_and(has))?;
        Some(cluster.name())
    }

    /// One failure for each label that hub Connectors lack.
    fn unlabelled(&self) -> Vec<Draft> {
        let mut lacking = BTreeMap::<&str, Vec<&HubConnector>>::new();
        for connector in &self.connectors {
            if let Err(label) = connector.source {
                lacking.entry(label).or_default().push(connector);
            }
        }
        let draft = |(label, connectors): (&str, Vec<&HubConnector>)| {
            let mut facts = Facts { key: Some(label.into()), ..Facts::default() };
            let source = self.upstreams.iter().find_map(|(upstream, held)| {
                let source = held.as_ref().ok()?.source(connectors.first()?)?;
                Some((upstream.name(), source))
            });
            if let Some((upstream, source)) = source {
                facts.what = Some(source.to_string().into());
                facts.upstream = Some(upstream.clone());
            }
            let keys: Vec<_> = connectors.iter().map(|connector| &connector.key).collect();
            let all = count(self.connectors.len(), "hub Connector");
            let evidence = format!("{} of {all}: {}", keys.len(), join_first(&keys));
            let subject = about_objects(self.hub, Kind::Connector, &keys);
            Draft::failed(Check::Upstreams, Cause::LabelsMissing, subject, facts, evidence)
        };
        lacking.into_iter().map(draft).collect()
    }

    /// Compares an upstream with the hub Connectors that name it.
    fn compare(&self, upstream: &ClusterName, held: &Held) -> Vec<Draft> {
        let named = self.connectors.iter();
        let named =
            named.filter_map(|connector| Some((connector, connector.source.as_ref().ok()?)));
        let named: Vec<Named<'_>> = named.filter(|(_, of)| of.upstream == *upstream).collect();
        let mut drafts = self.identity(upstream, &named, held);
        // Objects compared with another control plane always differ.
        if !drafts.iter().any(Draft::is_problem) {
            drafts.extend(self.replication(upstream, &named, held));
        }
        drafts
    }

    fn identity(&self, upstream: &ClusterName, named: &[Named<'_>], held: &Held) -> Vec<Draft> {
        if named.is_empty() {
            let unseen = format!("no hub Connector names {upstream} yet");
            return vec![Draft::skipped(Check::Identity, Some(upstream), unseen)];
        }
        let mut missing = Vec::new();
        let mut other = Vec::new();
        for (connector, source) in named {
            match held.namespaces.get(source.connector.namespace()) {
                None => missing.push((connector, &source.connector)),
                Some(uid) if *uid != connector.uid => other.push((connector, &source.connector)),
                Some(_) => {}
            }
        }
        let all = count(named.len(), "hub Connector");
        // If all of them are missing or different, this is another control plane.
        if !other.is_empty() && missing.len() + other.len() == named.len() {
            other.append(&mut missing);
        }
        let wrong =
            [(Cause::NamespaceMissing, missing), (Cause::NamespaceMismatch, other)].into_iter();
        let drafts = wrong.filter(|(_, wrong)| !wrong.is_empty()).map(|(cause, wrong)| {
            let keys: Vec<_> = wrong.iter().map(|(connector, _)| &connector.key).collect();
            let facts = Facts {
                upstream: Some(upstream.clone()),
                what: wrong.first().map(|(_, source)| source.namespace().into()),
                ..Facts::default()
            };
            let uid = wrong.first().and_then(|(connector, _)| connector.uid.text());
            let uid = uid.unwrap_or_default();
            let evidence = format!("{} of {all}; the uid should be {uid}", keys.len());
            let subject = about_objects(self.hub, Kind::Connector, &keys);
            let mut draft = Draft::failed(Check::Identity, cause, subject, facts, evidence);
            draft.cluster = Some(upstream.clone());
            draft
        });
        let drafts: Vec<_> = drafts.collect();
        if drafts.is_empty() {
            let evidence = format!("has the namespaces of {all}, by name and uid");
            return vec![Draft::passed(Check::Identity, Some(upstream), evidence)];
        }
        drafts
    }

    fn replication(&self, upstream: &ClusterName, named: &[Named<'_>], held: &Held) -> Vec<Draft> {
        let mut lacking = Vec::new();
        let mut gone = 0_usize;
        let mut replicated = BTreeSet::new();
        for (connector, source) in named {
            if held.connectors.contains(&source.connector) {
                replicated.insert(source.connector.clone());
            } else if connector.has_status {
                lacking.push(&connector.key);
            } else {
                gone += 1;
            }
        }
        // Missing labels are a separate failure.
        let unlabelled = self.connectors.iter().filter(|c| c.source.is_err());
        replicated.extend(unlabelled.filter_map(|connector| held.source(connector)));
        let missing: Vec<_> = held.connectors.difference(&replicated).collect();
        let counts = format!("{} upstream, {} at the hub", held.connectors.len(), named.len());
        let mut drafts = Vec::new();
        if !missing.is_empty() {
            let facts = Facts { upstream: Some(upstream.clone()), ..Facts::default() };
            let subject = about_objects(upstream, Kind::Connector, &missing);
            let evidence = format!("{counts}; not at the hub: {}", join_first(&missing));
            let is_part = missing.len() < held.connectors.len();
            let cause = Cause::NotReplicated;
            let draft = Draft::failed(Check::Replication, cause, subject, facts, evidence);
            drafts.push(if is_part { draft.into_warning() } else { draft });
        }
        if !lacking.is_empty() {
            let facts = Facts {
                upstream: Some(upstream.clone()),
                hub: Some(self.hub.clone()),
                what: Some(upstream_selector(upstream).into()),
                part: lacking.len(),
                whole: named.len(),
                ..Facts::default()
            };
            let evidence = format!("{counts}; lacking upstream: {}", join_first(&lacking));
            let is_part = lacking.len() < named.len();
            let cause = Cause::RemovalsHeld;
            let subject = About::cluster(upstream);
            let draft = Draft::failed(Check::Replication, cause, subject, facts, evidence);
            drafts.push(if is_part { draft.into_warning() } else { draft });
        }
        if drafts.is_empty() {
            let gone = match gone {
                0 => String::new(),
                gone => format!("; {gone} of these are gone upstream and have no annotation left"),
            };
            let evidence = format!("Connectors: {counts}{gone}");
            drafts.push(Draft::passed(Check::Replication, Some(upstream), evidence));
        }
        drafts
    }
}
