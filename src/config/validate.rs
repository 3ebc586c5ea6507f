//! Validation: values of the right type that make no sense, alone or together.

use std::path::Path;

use super::Config;
use super::kubeconfig::Kubeconfigs;
use super::merge::MergedValues;
use super::offline::Unchecked;
use super::problem::{ConfigProblem, nearest};
use super::role::role_name;
use crate::core::contract::settings::{OrphanMode, TouchScope};
use crate::core::data::ids::Role;
use crate::core::data::objects::{
    EXTENSION_PREFIX, PLATFORM_KEY, UPSTREAM_STATUS, upstream_cluster_name,
};

pub(super) struct Findings {
    pub(super) errors: Vec<ConfigProblem>,
    pub(super) warnings: Vec<ConfigProblem>,
    /// What a check without the other files did not see; empty after any other.
    pub(super) unchecked: Vec<String>,
}

/// Checks everything except the values that merging has already refused. `fallback` is the origin
/// of values that were not set anywhere. Offline, no other file is looked at.
pub(super) fn validate(
    config: &Config,
    merged: &MergedValues,
    fallback: &str,
    is_offline: bool,
) -> Findings {
    let findings = Findings { errors: Vec::new(), warnings: Vec::new(), unchecked: Vec::new() };
    let offline = is_offline.then(Unchecked::default);
    let kubeconfigs = Kubeconfigs::default();
    let mut validator = Validator { config, merged, fallback, offline, kubeconfigs, findings };
    validator.clusters();
    validator.operator_keys();
    validator.discovery();
    validator.topology();
    validator.edge_scopes();
    validator.annotation_keys();
    validator.minimums();
    validator.related_times();
    validator.log_and_event_log();
    validator.orphans();
    validator.leader_election();
    let unchecked = validator.offline.map_or_else(Vec::new, Unchecked::lines);
    Findings { unchecked, ..validator.findings }
}

/// Collects errors and warnings about a configuration.
pub(super) struct Validator<'a> {
    pub(super) config: &'a Config,
    pub(super) merged: &'a MergedValues,
    fallback: &'a str,
    /// Set if no other file may be looked at.
    pub(super) offline: Option<Unchecked>,
    pub(super) kubeconfigs: Kubeconfigs,
    findings: Findings,
}

impl Validator<'_> {
    pub(super) fn error(&mut self, key: impl Into<String>, message: impl Into<String>) {
        let key = key.into();
        if self.is_usable(&key) {
            let problem = ConfigProblem::new(self.origin(&key), key, message);
            self.findings.errors.push(problem);
        }
    }

    pub(super) fn warning(&mut self, key: impl Into<String>, message: impl Into<String>) {
        let key = key.into();
        if self.is_usable(&key) {
            let problem = ConfigProblem::new(self.origin(&key), key, message);
            self.findings.warnings.push(problem);
        }
    }

    fn origin(&self, key: &str) -> &str {
        self.merged.origin(key).unwrap_or(self.fallback)
    }

    /// Whether the value at `key` is what was set: nothing was refused at the key, above or below it.
    pub(super) fn is_usable(&self, key: &str) -> bool {
        let contains = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|r| r.is_empty() || r.starts_with(['.', '[']))
        };
        let overlaps = |p: &ConfigProblem| contains(&p.key, key) || contains(key, &p.key);
        // A file that cannot be read may have set any key.
        let is_known = self.merged.is_complete || self.merged.origin(key).is_some();
        is_known && !self.merged.problems.iter().any(|p| !p.key.is_empty() && overlaps(p))
    }

    fn clusters(&mut self) {
        let config = self.config;
        for (i, cluster) in config.clusters.iter().enumerate() {
            let key = |name: &str| format!("clusters[{i}].{name}");
            let name = cluster.name.as_str();
            let first = config.clusters.iter().position(|c| c.name == cluster.name);
            if name.is_empty() {
                let message = "found no name; accepted: any unique name, for an upstream the one in \
                               the label meta.datumapis.com/upstream-cluster-name at the hub";
                self.error(key("name"), message);
            } else if let Some(first) = first.filter(|first| *first < i) {
                let message = format!(
                    "found {name:?}, which is already the name of clusters[{first}]; accepted: a \
                     unique name"
                );
                self.error(key("name"), message);
            }
            if cluster.roles.is_empty() {
                let message = "found no roles; accepted: one or more of upstream, hub, edge";
                self.error(key("roles"), message);
            }
            for (at, role) in cluster.roles.iter().enumerate() {
                if cluster.roles[..at].contains(role) {
                    let message =
                        format!("found {} twice; accepted: each role once", role_name(*role));
                    self.error(key("roles"), message);
                }
            }
            let label = format!("cluster-{}", name.replace('/', "_"));
            let name_from_label = upstream_cluster_name(&label).unwrap_or_default();
            if cluster.roles.contains(&Role::Upstream) && name_from_label != name {
                let message = format!(
                    "found {name:?}, but its label at the hub, {label}, is read as \
                     {name_from_label:?}, so no hub object would belong to this upstream"
                );
                self.warning(key("name"), message);
            }
            self.connection(i, cluster);
            let connection = |i: usize| {
                let cluster = &config.clusters[i];
                (&cluster.kubeconfig, &cluster.context, cluster.in_cluster)
            };
            if let Some(same) = (0..i).find(|before| connection(*before) == connection(i)) {
                let message = format!(
                    "uses the same kubeconfig and context as clusters[{same}]; list one cluster \
                     once, with all its roles"
                );
                self.warning(format!("clusters[{i}]"), message);
            }
        }
    }

    /// Which roles exist, and whether together they have anything to do.
    fn topology(&mut self) {
        let clusters = &self.config.clusters;
        let with_role = |role| {
            let has = |i: &usize| clusters[*i].roles.contains(&role);
            (0..clusters.len()).filter(has).collect::<Vec<_>>()
        };
        let (upstreams, hubs) = (with_role(Role::Upstream), with_role(Role::Hub));
        let edges = with_role(Role::Edge);
        let may_find = |role| self.config.discovery.may_find(role);
        let (has_upstream, has_hub) =
            (!upstreams.is_empty() || may_find(Role::Upstream), !hubs.is_empty());
        let has_edge = !edges.is_empty() || may_find(Role::Edge);
        for hub in hubs.iter().skip(1) {
            let message =
                format!("clusters[{}] already has the role hub; accepted: one hub", hubs[0]);
            self.error(format!("clusters[{hub}].roles"), message);
        }
        let message = match (has_upstream, has_hub, has_edge) {
            (false, true, _) => {
                "there is a hub but no cluster with the role upstream: nothing is mirrored"
            }
            (true, false, false) => {
                "upstream is the only role, so nothing is ever written: mirroring needs a hub, \
                 touching needs an edge"
            }
            (true, false, true) => {
                "there is an upstream but no cluster with the role hub: nothing is mirrored"
            }
            _ => return,
        };
        self.warning("clusters", message);
    }

    fn edge_scopes(&mut self) {
        let edges = self.config.clusters.iter().filter(|c| c.roles.contains(&Role::Edge));
        let edges: Vec<String> = edges.map(|c| c.name.to_string()).collect();
        // A refused cluster may have been the edge that is missing here.
        if !self.is_usable("clusters") {
            return;
        }
        let finds_edges = self.config.discovery.may_find(Role::Edge);
        for name in self.config.touch.edge_scopes.keys().filter(|_| !finds_edges) {
            if !edges.iter().any(|edge| edge == name.as_str()) {
                let suggestion = nearest(name.as_str(), &edges);
                let suggestion =
                    suggestion.map_or(String::new(), |name| format!(" (did you mean {name}?)"));
                let accepted = match edges.as_slice() {
                    [] => "no cluster has the role edge".to_owned(),
                    edges => format!("accepted: {}", edges.join(", ")),
                };
                let message = format!("no edge has this name{suggestion}; {accepted}");
                self.error(format!("touch.edgeScopes.{name}"), message);
            }
        }
        let scoped = self.config.touch.scope == TouchScope::GatewayClass;
        if scoped && edges.is_empty() && !finds_edges {
            let message = "gatewayClass has no effect: no cluster has the role edge";
            self.warning("touch.scope", message);
        }
    }

    fn annotation_keys(&mut self) {
        let (touch, nudge) = (&self.config.touch.key, &self.config.mirror.nudge_key);
        for (key, value) in [("touch.key", touch), ("mirror.nudgeKey", nudge)] {
            if let Some(defect) = annotation_key_defect(value) {
                let message = format!(
                    "found {value:?}, which {defect}; accepted: a DNS name, a slash and \
                     up to 63 letters, digits, -, _ and ."
                );
                self.error(key, message);
            } else if [UPSTREAM_STATUS, PLATFORM_KEY].contains(&value.as_str()) {
                let message = format!(
                    "found {value:?}, which the platform itself writes; accepted: a key that only \
                     throughline writes"
                );
                self.error(key, message);
            } else if key == "touch.key" && !value.starts_with(EXTENSION_PREFIX) {
                let message = format!(
                    "found {value:?}; Envoy Gateway calls its extension servers only for keys with \
                     the prefix {EXTENSION_PREFIX}, so touches would have no effect"
                );
                self.warning(key, message);
            }
        }
        if touch == nudge {
            let message =
                format!("found {nudge:?}, which is also touch.key; accepted: another key");
            self.error("mirror.nudgeKey", message);
        }
    }

    fn log_and_event_log(&mut self) {
        if let Err(message) = crate::logging::filter(&self.config.log.level) {
            self.error("log.level", message);
        }
        self.event_log_retention();
        if let Some(file) = &self.config.event_log.file {
            let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            let shown = file.display().to_string();
            let accepted = "accepted: a file in an existing directory";
            if let Some(unchecked) = &mut self.offline {
                unchecked.other(format!("{shown}: whether its directory exists"));
            } else if file.is_dir() || file.file_name().is_none() {
                self.error(
                    "eventLog.file",
                    format!("found {shown:?}, which is not a file; {accepted}"),
                );
            } else if !folder.unwrap_or(Path::new(".")).is_dir() {
                self.error(
                    "eventLog.file",
                    format!("found {shown:?}, whose directory does not exist; {accepted}"),
                );
            }
        }
    }

    fn event_log_retention(&mut self) {
        let log = &self.config.event_log;
        if log.keep_bytes < log.max_bytes && self.is_usable("eventLog.maxBytes") {
            let message = format!(
                "found {}; accepted: eventLog.maxBytes ({}) or more",
                log.keep_bytes, log.max_bytes
            );
            self.error("eventLog.keepBytes", message);
        }
        if self.merged.origin("eventLog.keep").is_some() {
            let message = match self.merged.origin("eventLog.keepBytes") {
                Some(_) => "has no effect beside eventLog.keepBytes; remove it".to_owned(),
                None => format!(
                    "is replaced by keepBytes, and counts as eventLog.keepBytes: {}",
                    log.keep_bytes
                ),
            };
            self.warning("eventLog.keep", message);
        }
    }

    fn orphans(&mut self) {
        if self.config.orphans.mode == OrphanMode::Delete
            && self.config.event_log.file.is_none()
            && !self.config.dry_run
        {
            let message = "found delete without eventLog.file: no route is deleted that is not \
                           recorded first; accepted: report, off, or delete with eventLog.file";
            self.error("orphans.mode", message);
        }
    }
}

/// Why an API server would refuse an annotation key; `None` if it would not.
fn annotation_key_defect(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let ends_alphanumeric = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let has_only = |text: &str, more: &[char]| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
    };
    if let Some(prefix) = prefix {
        let is_label = |label: &str| ends_alphanumeric(label) && has_only(label, &['-']);
        if prefix.len() > 253 || !prefix.split('.').all(is_label) {
            return Some("has a prefix that is not a DNS name");
        }
    }
    let is_name = (1..=63).contains(&name.len())
        && ends_alphanumeric(name)
        && has_only(name, &['-', '_', '.']);
    (!is_name).then_some("is not a valid annotation key")
}
