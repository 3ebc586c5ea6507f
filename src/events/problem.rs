//! What the reporter keeps of an object that has a problem, and the words for it.

use super::object::{ObjectReference, Severity};
use crate::core::contract::hold_reason::HoldReason;
use crate::core::contract::note::{Anomaly, AnomalyKind, Hop, Stall, StallCause};
use crate::core::contract::settings::{OrphanMode, Settings};
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::data::objects::{FIELD_MANAGER, UPSTREAM_STATUS};
use crate::core::view::involved_object::InvolvedObject;
use crate::grouping::Cause;
use crate::report::style;

/// A problem of one object.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) subject: InvolvedObject,
    pub(super) severity: Severity,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether an Event about it was posted on the object.
    pub(super) is_posted: bool,
}

impl Problem {
    pub(super) fn new(reason: &'static str, subject: &InvolvedObject, message: String) -> Self {
        let (subject, severity) = (subject.clone(), Severity::Warning);
        Self { subject, severity, reason, message, is_posted: false }
    }

    pub(super) fn of_stall(stall: &Stall, subject: &InvolvedObject, settings: &Settings) -> Self {
        let (times, cluster) = (&settings.stall, &stall.cluster);
        let (reason, late, ms) = match stall.hop {
            Hop::Mirrored if matches!(stall.cause, StallCause::Deferred { .. }) => (
                "StalledMirror",
                "upstream's status is not mirrored in full to the hub".to_owned(),
                times.deferred_ms,
            ),
            Hop::Upstream | Hop::Mirrored => (
                "StalledMirror",
                "upstream's status is not mirrored to the hub".to_owned(),
                times.mirrored_ms,
            ),
            Hop::Arrived => (
                "StalledArrival",
                format!("the mirrored status has not arrived at {cluster}"),
                times.arrived_ms,
            ),
            Hop::Touched => (
                "StalledTouch",
                format!("not every Gateway at {cluster} announces it"),
                times.touched_ms,
            ),
        };
        let message = format!("{late} within {} s: {}", ms / 1000, stall.reason);
        Self::new(reason, subject, message)
    }

    /// `None`: this kind of anomaly is not reported as an Event.
    pub(super) fn of_anomaly(
        anomaly: &Anomaly,
        subject: &InvolvedObject,
        settings: &Settings,
    ) -> Option<Self> {
        let (reason, message) = match anomaly.anomaly {
            AnomalyKind::OversizedStatus => ("StatusTooLarge", anomaly.detail.clone()),
            AnomalyKind::Contention => {
                let key = match subject.kind {
                    Kind::Gateway => &*settings.touch.key,
                    _ => UPSTREAM_STATUS,
                };
                let writer = match &anomaly.manager {
                    Some(manager) if **manager == *FIELD_MANAGER => {
                        "The other writer is another throughline, which follows another upstream of the \
                         same name, or another hub's: two installations must not share objects"
                            .to_owned()
                    }
                    Some(manager) => format!("The other writer's field manager is {manager}"),
                    None => "metadata.managedFields names the writer (kubectl get \
                             --show-managed-fields)"
                        .to_owned(),
                };
                let message = format!(
                    "another writer keeps changing {key}; throughline writes it again after growing \
                     pauses. {writer}"
                );
                ("Contention", message)
            }
            _ => return None,
        };
        Some(Self::new(reason, subject, message))
    }

    pub(super) fn of_orphan(subject: &InvolvedObject) -> Self {
        let message = "orphaned: none of its parents exists upstream. It stays, because \
                       orphans.mode is report; with delete it would be deleted. See \
                       throughline orphans";
        Self::new("Orphaned", subject, message.to_owned())
    }

    pub(super) fn of_held_deletes(
        upstream: &ClusterName,
        (orphans, routes): (u64, u64),
        subject: &InvolvedObject,
        settings: &Settings,
    ) -> Self {
        let effect = match settings.orphans.mode {
            OrphanMode::Delete => "none of them is deleted",
            OrphanMode::Report | OrphanMode::Off => {
                "with orphans.mode delete none would be deleted"
            }
        };
        let message = format!(
            "{orphans} of the {routes} routes of upstream cluster {upstream} are orphans, which is \
             more than limits.maxShare ({}): {effect}. If its Gateways were lost, restore them; if \
             the routes should go, raise limits.maxShare",
            settings.orphans.max_share
        );
        Self::new("DeletesHeld", subject, message)
    }

    pub(super) fn of_gone_cluster(
        upstream: &ClusterName,
        (connectors, routes): (u64, u64),
        subject: &InvolvedObject,
    ) -> Self {
        let count = |n, noun| style::count(usize::try_from(n).unwrap_or(usize::MAX), noun);
        let message = format!(
            "a deleted project can still serve traffic: {} and {} name {upstream}, which does \
             not exist any longer. throughline orphans lists the routes; orphans.deletedProjects has them \
             deleted",
            count(connectors, "hub Connector"),
            count(routes, "HTTPRoute")
        );
        Self::new("ClusterGone", subject, message)
    }

    pub(super) fn of_held_annotations(
        upstream: &ClusterName,
        reason: HoldReason,
        (held, named): (u64, u64),
        subject: &InvolvedObject,
    ) -> Self {
        let message = format!(
            "{held} of the {named} hub Connectors of {upstream} keep their status annotation: {}; {}",
            reason.text(),
            reason.remedy()
        );
        Self::new("AnnotationsHeld", subject, message)
    }

    /// The same problem of `count` objects, in words.
    pub(super) fn message_for_many(&self, cause: &Cause, count: usize) -> String {
        let list = match cause {
            Cause::Stall { .. } => ". throughline status --stuck lists them",
            _ => "",
        };
        let objects = style::count(count, self.subject.kind.as_str());
        format!("{objects}: {}{list}", self.message)
    }
}

/// The reason and message of the Event that says that a stall is over.
pub(super) fn recovered(stall: &Stall) -> (&'static str, String) {
    let message = match stall.hop {
        Hop::Upstream | Hop::Mirrored => "upstream's status is mirrored again".to_owned(),
        Hop::Arrived => format!("the mirrored status has arrived at {} again", stall.cluster),
        Hop::Touched => format!("every Gateway at {} announces it again", stall.cluster),
    };
    ("Recovered", message)
}

/// A Namespace as an Event names it.
pub(super) fn namespace_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        // An Event lies in the namespace of its object; for a Namespace, in that Namespace.
        namespace: name.to_owned(),
        name: name.to_owned(),
        ..ObjectReference::default()
    }
}
