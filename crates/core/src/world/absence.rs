//! The proof that something does not exist.
//!
//! A removal or a delete *because something is missing* carries a proof. For objects, only
//! [`prove_absence`] creates one. The executor checks it live just before the write.
//!
//! Silence, a wrong kubeconfig, a restored API server or an empty list alone prove nothing. Each
//! step needs positive evidence that throughline looked in the right place: the lists are complete,
//! the namespace is the one that the hub object was made for, and no object of the kind is
//! unreadable.

use super::cluster::Cluster;
use crate::contract::action::{AbsentObjects, AbsentProject, Precondition};
use crate::data::ids::{Kind, Uid};
use crate::data::time::UnixMillis;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AbsenceProof {
    pub(crate) absent: Absent,
    /// Since when the objects are absent without a gap in the evidence.
    pub(crate) since: UnixMillis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    Objects(AbsentObjects),
    /// The whole project. Its control plane proves nothing any more; instead, the root answers 404.
    Project(AbsentProject),
}

/// The claim that objects of one upstream namespace do not exist, made for a hub object.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) hub_namespace: &'a str,
    pub(crate) namespace: &'a str,
    /// When the watch showed that the namespace itself was deleted.
    pub(crate) namespace_deleted_at: Option<UnixMillis>,
    pub(crate) kind: Kind,
    pub(crate) names: Vec<String>,
    /// Since when the tables lack the objects; `None`: since the lists are complete.
    pub(crate) absent_since: Option<UnixMillis>,
    /// The tables have at least one of the objects.
    pub(crate) exists: bool,
    pub(crate) is_deletion_seen: bool,
    /// How old the watch's last event may be.
    pub(crate) max_age_ms: Option<u64>,
}

/// The first step that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoProof {
    NotListed,
    NotUpstream,
    NamespaceDiffers,
    NamespaceMissing,
    Unreadable,
    Restored,
    Stale,
    Exists,
}

pub(crate) fn prove_absence(
    cluster: &Cluster,
    claim: Claim<'_>,
    now: UnixMillis,
) -> Result<AbsenceProof, NoProof> {
    let lists = [claim.kind, Kind::Namespace];
    let listed_since = cluster.all_live_since(&lists).ok_or(NoProof::NotListed)?;
    let deleted_at = namespace_deleted_at(cluster, &claim)?;

    if !lists.into_iter().all(|kind| cluster.watch(kind).unreadable.is_empty()) {
        return Err(NoProof::Unreadable);
    }
    if cluster.restored_at.is_some() && !claim.is_deletion_seen {
        return Err(NoProof::Restored);
    }
    if claim.max_age_ms.is_some_and(|ms| cluster.is_silent(claim.kind, ms, now)) {
        return Err(NoProof::Stale);
    }
    if claim.exists && deleted_at.is_none() {
        return Err(NoProof::Exists);
    }

    let since = deleted_at.or(claim.absent_since).map_or(listed_since, |at| at.max(listed_since));
    let absent = Absent::Objects(AbsentObjects {
        cluster: cluster.name.clone(),
        namespace: claim.namespace.to_owned(),
        namespace_uid: Uid::of_hub_namespace(claim.hub_namespace).and_then(|uid| uid.text()),
        namespace_deleted: deleted_at.is_some(),
        kind: claim.kind,
        names: claim.names,
    });
    Ok(AbsenceProof { absent, since })
}

/// When the namespace itself was deleted; `None` if it exists.
fn namespace_deleted_at(
    cluster: &Cluster,
    claim: &Claim<'_>,
) -> Result<Option<UnixMillis>, NoProof> {
    match prove_namespace(cluster, claim.hub_namespace, claim.namespace) {
        Ok(()) if cluster.is_upstream_namespace(claim.namespace) => Ok(None),
        Ok(()) => Err(NoProof::NotUpstream),
        Err(_) if claim.namespace_deleted_at.is_some() => Ok(claim.namespace_deleted_at),
        Err(no_proof) => Err(no_proof),
    }
}

/// Proves that the hub namespace was made for the upstream namespace that has this name now.
pub(crate) fn prove_namespace(
    cluster: &Cluster,
    hub_namespace: &str,
    namespace: &str,
) -> Result<(), NoProof> {
    let uid = cluster.namespace_uid(namespace).ok_or(NoProof::NamespaceMissing)?;
    match Uid::of_hub_namespace(hub_namespace).as_ref() == Some(uid) {
        true => Ok(()),
        false => Err(NoProof::NamespaceDiffers),
    }
}

impl Absent {
    /// Makes the executor check the absence live before the write.
    pub(crate) fn put_into(self, precondition: &mut Precondition) {
        match self {
            Self::Objects(objects) => precondition.absent = Some(objects),
            Self::Project(project) => precondition.absent_project = Some(project),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ids::{NamespacedName, Role};
    use crate::world::cluster::Namespace;
    use crate::world::fixture::{live_cluster, watched, with_uid};

    const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
    const HUB_NAMESPACE: &str = "ns-6bcb0b35-0000-4000-8000-000000000001";
    const NOW: UnixMillis = UnixMillis(2_000_000);
    const ABSENT_SINCE: UnixMillis = UnixMillis(1_000_000);

    fn upstream() -> Cluster {
        let mut cluster = live_cluster(1, "up");
        cluster.roles = vec![Role::Upstream];
        let name = NamespacedName::new("", "default");
        cluster.namespaces.put(&name, with_uid(UID, watched(1)), Namespace::default());
        cluster
    }

    fn claim() -> Claim<'static> {
        Claim {
            hub_namespace: HUB_NAMESPACE,
            namespace: "default",
            namespace_deleted_at: None,
            kind: Kind::Connector,
            names: vec!["lab".to_owned()],
            absent_since: Some(ABSENT_SINCE),
            exists: false,
            is_deletion_seen: false,
            max_age_ms: None,
        }
    }

    #[test]
    fn what_complete_lists_lack_in_the_right_namespace_is_absent() {
        let proof = prove_absence(&upstream(), claim(), NOW).unwrap();

        assert_eq!(proof.since, ABSENT_SINCE);
        let mut precondition = Precondition::default();
        proof.absent.put_into(&mut precondition);
        let absent = precondition.absent.unwrap();
        assert_eq!(absent.namespace_uid.as_deref(), Some(UID));
        assert!(!absent.namespace_deleted);
    }

    #[test]
    fn each_step_needs_evidence() {
        type Change = fn(&mut Cluster, &mut Claim<'static>);
        let cases: [(NoProof, Change); 8] = [
            (NoProof::NotListed, |up, _| up.watches[Kind::Connector].on_lost(NOW)),
            (NoProof::NotListed, |up, _| up.watches[Kind::Namespace].on_lost(NOW)),
            (NoProof::NamespaceDiffers, |_, claim| claim.hub_namespace = "ns-another"),
            (NoProof::NamespaceMissing, |_, claim| claim.namespace = "other"),
            (NoProof::Unreadable, |up, _| {
                let name = NamespacedName::new("default", "odd");
                up.watches[Kind::Connector].unreadable.insert(name);
            }),
            (NoProof::Restored, |up, _| up.restored_at = Some(ABSENT_SINCE)),
            (NoProof::Stale, |_, claim| claim.max_age_ms = Some(60_000)),
            (NoProof::Exists, |_, claim| claim.exists = true),
        ];
        for (expected, change) in cases {
            let mut cluster = upstream();
            let mut claim = claim();
            change(&mut cluster, &mut claim);
            assert_eq!(prove_absence(&cluster, claim, NOW), Err(expected));
        }
    }

    #[test]
    fn a_deletion_that_was_seen_outlives_a_restore() {
        let mut cluster = upstream();
        cluster.restored_at = Some(NOW);
        let claim = Claim { is_deletion_seen: true, ..claim() };

        assert!(prove_absence(&cluster, claim, NOW).is_ok());
    }
}
