//! Values that fit their keys and yet make no sense, alone or together.

use std::path::Path;

use super::layers::Layers;
use super::problem::{Problem, nearest};
use super::{Config, reach};
use crate::core::ids::Role;
use crate::core::objects::{PLATFORM_KEY, UPSTREAM_STATUS, upstream_cluster_name};
use crate::core::settings::{OrphanMode, TouchScope};

/// Annotations with this prefix alone reach Envoy Gateway's extension servers.
const REACHES_HOOK: &str = "gateway.envoyproxy.io/";

/// What the check found.
pub(super) struct Found {
    pub(super) errors: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

/// Checks all of it, but for what was refused already.
pub(super) fn check(config: &Config, layers: &Layers, fallback: &str) -> Found {
    let found = Found { errors: Vec::new(), warnings: Vec::new() };
    let mut checker = Checker { config, layers, fallback, found };
    checker.clusters();
    checker.roles_together();
    checker.edge_scopes();
    checker.annotation_keys();
    checker.numbers();
    checker.times_together();
    checker.rest();
    checker.orphans();
    checker.leader_election();
    checker.found
}

/// Collects what it finds.
pub(super) struct Checker<'a> {
    pub(super) config: &'a Config,
    pub(super) layers: &'a Layers,
    /// The origin of values that nobody gave.
    fallback: &'a str,
    found: Found,
}

impl Checker<'_> {
    pub(super) fn error(&mut self, key: impl Into<String>, message: impl Into<String>) {
        let key = key.into();
        if self.is_sound(&key) {
            let problem = Problem::new(self.origin(&key), key, message);
            self.found.errors.push(problem);
        }
    }

    pub(super) fn warning(&mut self, key: impl Into<String>, message: impl Into<String>) {
        let key = key.into();
        if self.is_sound(&key) {
            let problem = Problem::new(self.origin(&key), key, message);
            self.found.warnings.push(problem);
        }
    }

    fn origin(&self, key: &str) -> &str {
        self.layers.origin(key).unwrap_or(self.fallback)
    }

    /// Nothing was refused there, above it or below: what is in effect is what was said.
    pub(super) fn is_sound(&self, key: &str) -> bool {
        let part = |of: &str, key: &str| {
            key.strip_prefix(of).is_some_and(|r| r.is_empty() || r.starts_with(['.', '[']))
        };
        let refused = |p: &Problem| part(&p.key, key) || part(key, &p.key);
        // Of a file that can't be read nothing is known.
        let said = self.layers.complete || self.layers.origin(key).is_some();
        said && !self.layers.problems.iter().any(|p| !p.key.is_empty() && refused(p))
    }

    fn clusters(&mut self) {
        let config = self.config;
        for (i, cluster) in config.clusters.iter().enumerate() {
            let key = |name: &str| format!("clusters[{i}].{name}");
            let name = cluster.name.as_str();
            let first = config.clusters.iter().position(|c| c.name == cluster.name);
            if name.is_empty() {
                let message = "found nothing; accepted: a name, for an upstream the \
                                one that replicas' labels carry";
                self.error(key("name"), message);
            } else if let Some(first) = first.filter(|first| *first < i) {
                let message = format!(
                    "found {name:?}, as clusters[{first}] has it; accepted: a name of its own"
                );
                self.error(key("name"), message);
            }
            if cluster.roles.is_empty() {
                let message = "found none; accepted: one or more of upstream, downstream, edge";
                self.error(key("roles"), message);
            }
            for (at, role) in cluster.roles.iter().enumerate() {
                if cluster.roles[..at].contains(role) {
                    let message = format!("found {} twice; accepted: once", word(*role));
                    self.error(key("roles"), message);
                }
            }
            let label = format!("cluster-{}", name.replace('/', "_"));
            let read = upstream_cluster_name(&label).unwrap_or_default();
            if cluster.roles.contains(&Role::Upstream) && read != name {
                let message = format!(
                    "found {name:?}; a replica's label would be read as {read:?}, \
                     so that none is of this upstream"
                );
                self.warning(key("name"), message);
            }
            reach::check(self, i, cluster);
            let way = |i: usize| {
                let cluster = &config.clusters[i];
                (&cluster.kubeconfig, &cluster.context, cluster.in_cluster)
            };
            if let Some(same) = (0..i).find(|before| way(*before) == way(i)) {
                let message = format!(
                    "the way to it is clusters[{same}]'s; is it the same cluster, \
                     and should be listed once with all its roles?"
                );
                self.warning(format!("clusters[{i}]"), message);
            }
        }
    }

    fn roles_together(&mut self) {
        let clusters = &self.config.clusters;
        let with = |role| {
            let has = |i: &usize| clusters[*i].roles.contains(&role);
            (0..clusters.len()).filter(has).collect::<Vec<_>>()
        };
        let (upstreams, hubs) = (with(Role::Upstream), with(Role::Downstream));
        let edges = with(Role::Edge);
        for hub in hubs.iter().skip(1) {
            let message = format!("downstream is clusters[{}] already; accepted: one hub", hubs[0]);
            self.error(format!("clusters[{hub}].roles"), message);
        }
        match (upstreams.as_slice(), hubs.as_slice(), edges.as_slice()) {
            ([], [_, ..], _) => {
                self.warning("clusters", "downstream and no upstream: there is nothing to mirror");
            }
            ([_, ..], [], []) => {
                let message = "upstream alone: nothing is ever written; mirroring needs a \
                               downstream, touching an edge";
                self.warning("clusters", message);
            }
            ([_, ..], [], _) => {
                self.warning(
                    "clusters",
                    "upstream and no downstream: there is nowhere to mirror to",
                );
            }
            _ => {}
        }
    }

    fn edge_scopes(&mut self) {
        let edges = self.config.clusters.iter().filter(|c| c.roles.contains(&Role::Edge));
        let edges: Vec<String> = edges.map(|c| c.name.to_string()).collect();
        // With a cluster refused, an edge may be missing here that was said.
        if !self.is_sound("clusters") {
            return;
        }
        for name in self.config.touch.edge_scopes.keys() {
            if !edges.iter().any(|edge| edge == name.as_str()) {
                let meant = nearest(name.as_str(), &edges);
                let meant =
                    meant.map_or(String::new(), |meant| format!(" (did you mean {meant}?)"));
                let accepted = match edges.as_slice() {
                    [] => "there are no edges".to_owned(),
                    edges => format!("accepted here: {}", edges.join(", ")),
                };
                let message = format!("no edge has this name{meant}; {accepted}");
                self.error(format!("touch.edgeScopes.{name}"), message);
            }
        }
        let scoped = self.config.touch.scope == TouchScope::GatewayClass;
        if scoped && edges.is_empty() {
            self.warning("touch.scope", "gatewayClass, and there is no edge to touch at");
        }
    }

    fn annotation_keys(&mut self) {
        let (touch, nudge) = (&self.config.touch.key, &self.config.mirror.nudge_key);
        for (key, value) in [("touch.key", touch), ("mirror.nudgeKey", nudge)] {
            if let Some(wrong) = wrong_annotation_key(value) {
                let message = format!(
                    "found {value:?}, which {wrong}; accepted: a DNS name, a slash and \
                     up to 63 letters, digits, -, _ and ."
                );
                self.error(key, message);
            } else if [UPSTREAM_STATUS, PLATFORM_KEY].contains(&value.as_str()) {
                let message = format!(
                    "found {value:?}, which the platform uses itself; accepted: \
                     an annotation of our own"
                );
                self.error(key, message);
            } else if key == "touch.key" && !value.starts_with(REACHES_HOOK) {
                let message = format!(
                    "found {value:?}; only keys with the prefix {REACHES_HOOK} make Envoy Gateway \
                     call its extension servers: touches would heal nothing"
                );
                self.warning(key, message);
            }
        }
        if touch == nudge {
            self.error(
                "mirror.nudgeKey",
                format!("found {nudge:?}, which is touch.key; accepted: a key of its own"),
            );
        }
    }

    fn rest(&mut self) {
        if let Err(message) = crate::logging::filter(&self.config.log.level) {
            self.error("log.level", message);
        }
        if let Some(file) = &self.config.event_log.file {
            let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            let shown = file.display().to_string();
            let accepted = "accepted: a file in a folder that exists";
            if file.is_dir() || file.file_name().is_none() {
                self.error(
                    "eventLog.file",
                    format!("found {shown:?}, which is no file; {accepted}"),
                );
            } else if !folder.unwrap_or(Path::new(".")).is_dir() {
                self.error(
                    "eventLog.file",
                    format!("found {shown:?}, whose folder is not there; {accepted}"),
                );
            }
        }
    }

    fn orphans(&mut self) {
        if self.config.orphans.mode == OrphanMode::Delete
            && self.config.event_log.file.is_none()
            && !self.config.dry_run
        {
            let message = "delete, and no eventLog.file is given: what is deleted can't be brought \
                           back (throughline orphans restore FILE)";
            self.warning("orphans.mode", message);
        }
    }
}

fn word(role: Role) -> &'static str {
    match role {
        Role::Upstream => "upstream",
        Role::Downstream => "downstream",
        Role::Edge => "edge",
    }
}

/// What an API server would say against an annotation's key; `None` when nothing.
fn wrong_annotation_key(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let ends_well = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let plain = |text: &str, more: &[char]| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
    };
    if let Some(prefix) = prefix {
        let label = |label: &str| ends_well(label) && plain(label, &['-']);
        if prefix.len() > 253 || !prefix.split('.').all(label) {
            return Some("has a prefix that is no DNS name");
        }
    }
    if name.is_empty() || name.len() > 63 || !ends_well(name) || !plain(name, &['-', '_', '.']) {
        return Some("is no annotation's key");
    }
    None
}
