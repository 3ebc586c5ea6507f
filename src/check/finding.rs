//! The findings of the checks.

use serde::Serialize;

use crate::core::contract::cause::{About, Cause, Facts, Kubectl};
use crate::core::data::closed_list::closed_list;
use crate::core::data::ids::{ClusterName, Kind, NamespacedName};

/// The checks, in the order of the report. The names do not change between versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Check {
    Configuration,
    EventLog,
    Discovery,
    Project,
    Reachable,
    Kinds,
    Permissions,
    LeastPrivilege,
    Lease,
    Leader,
    Upstreams,
    Identity,
    Replication,
    Trigger,
    TouchScope,
    Carrier,
    Retention,
}

closed_list!(Check);

/// In ascending order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Passed,
    /// The objects that the check needs are not visible.
    Skipped,
    /// It works badly, or works and may be intended.
    Warning,
    /// A live run would not work, or not fully.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: Check,
    /// `None` if the finding is not about one cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    pub level: Level,
    /// Set for a warning or failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The cause's sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The evidence; for a skipped check, the invisible objects.
    pub evidence: String,
    /// The remedy, in one line; commands and keys are in backticks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All findings, in the order of the checks.
#[derive(Clone, Debug)]
pub struct CheckReport {
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Whether nothing failed.
    pub fn is_passed(&self) -> bool {
        self.count(Level::Failed) == 0
    }

    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|f| f.level == level).count()
    }
}

/// A finding without its texts.
pub(super) struct Draft {
    pub(super) check: Check,
    pub(super) cluster: Option<ClusterName>,
    pub(super) level: Level,
    pub(super) evidence: String,
    problem: Option<Box<(Cause, About, Facts)>>,
}

impl Draft {
    pub(super) fn passed(
        check: Check,
        cluster: Option<&ClusterName>,
        evidence: impl Into<String>,
    ) -> Self {
        let cluster = cluster.cloned();
        Self { check, cluster, level: Level::Passed, evidence: evidence.into(), problem: None }
    }

    /// `unseen`: the invisible objects, with the reason.
    pub(super) fn skipped(
        check: Check,
        cluster: Option<&ClusterName>,
        unseen: impl Into<String>,
    ) -> Self {
        Self { level: Level::Skipped, ..Self::passed(check, cluster, unseen) }
    }

    pub(super) fn failed(
        check: Check,
        cause: Cause,
        about: About,
        facts: Facts,
        evidence: impl Into<String>,
    ) -> Self {
        let level = Level::Failed;
        let evidence = evidence.into();
        let cluster = Some(about.cluster.clone());
        Self { check, cluster, level, evidence, problem: Some(Box::new((cause, about, facts))) }
    }

    /// Turns a failure into a warning.
    pub(super) fn into_warning(self) -> Self {
        Self { level: Level::Warning, ..self }
    }

    /// Marks a finding about this instance or a source.
    pub(super) fn of_no_cluster(self) -> Self {
        Self { cluster: None, ..self }
    }

    pub(super) fn is_problem(&self) -> bool {
        self.problem.is_some()
    }

    pub(super) fn finding(self, kubectl: Kubectl<'_>) -> Finding {
        let Self { check, cluster, level, evidence, problem } = self;
        let problem = problem.as_deref();
        let cause = problem.map(|(cause, ..)| *cause);
        let message = problem.map(|(cause, about, facts)| cause.sentence(about, facts));
        let remedy = problem.and_then(|(cause, about, facts)| cause.remedy(about, facts, kubectl));
        // Answers of API servers may have several lines.
        let evidence = evidence.split_whitespace().collect::<Vec<_>>().join(" ");
        Finding { check, cluster, level, cause, message, evidence, remedy }
    }
}

/// Objects as the subject of a problem. `objects` must not be empty.
pub(super) fn about_objects(
    cluster: &ClusterName,
    kind: Kind,
    objects: &[&NamespacedName],
) -> About {
    let object = objects.first().map(|first| (*first).clone());
    let more = objects.len().saturating_sub(1);
    About { kind: Some(kind), object, more, ..About::cluster(cluster) }
}
