//! Project control planes of a Milo API server, found by its Project objects, or by the
//! ProjectControlPlanes in the cluster that it runs in.
//!
//! A control plane answers 200 under any name, even for a Project that never existed, and keeps caches
//! for that name permanently. So no request here goes to one without a Project.

use kube::core::{ApiResource, GroupVersionKind, ResourceExt};
use serde::Deserialize;

use super::follow::Objects;
use super::ledger::Offer;
use crate::client::projects::{PROJECTS_PATH, is_project_name};
use crate::client::{AnyObject, CallError, ConnectionSpec, Credentials, Server};
use crate::config::MiloConfig;
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::membership::OfferState;
use crate::core::data::ids::ClusterName;

/// The path of a project's control plane at the Milo API server.
pub(crate) fn control_plane_path(project: &str) -> String {
    format!("{PROJECTS_PATH}/{project}/control-plane")
}

/// The project whose control plane a server's path names, and the path of the API server that holds the
/// Project: the part before it, or `/`.
pub(crate) fn project_of_path(path: &str) -> Option<(&str, &str)> {
    let (root, rest) = path.split_once("/apis/resourcemanager.miloapis.com/")?;
    let (_version, rest) = rest.split_once("/projects/")?;
    let (project, rest) = rest.split_once('/')?;
    let is_control_plane =
        rest.trim_end_matches('/') == "control-plane" && is_project_name(project);
    is_control_plane.then_some((project, if root.is_empty() { "/" } else { root }))
}

/// The API server that holds the Projects.
pub(crate) fn root(config: &MiloConfig) -> ConnectionSpec {
    let credentials = config.credentials();
    let server = if config.internal_service_discovery {
        Server::AsConfigured
    } else {
        // A kubeconfig for one project, or for an organization, has a path.
        Server::Path("/".to_owned())
    };
    ConnectionSpec { credentials, server }
}

pub(super) fn objects(config: &MiloConfig, page_size: u32) -> Objects {
    let (group, kind, plural) = if config.internal_service_discovery {
        ("infrastructure.miloapis.com", "ProjectControlPlane", "projectcontrolplanes")
    } else {
        ("resourcemanager.miloapis.com", "Project", "projects")
    };
    let kind = GroupVersionKind::gvk(group, "v1alpha1", kind);
    Objects {
        resource: ApiResource::from_gvk_with_plural(&kind, plural),
        namespace: None,
        label_selector: config.label_selector.clone(),
        page_size,
    }
}

/// Reads Projects, or ProjectControlPlanes.
pub(super) struct ProjectReader {
    credentials: Credentials,
    internal: bool,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    name: String,
    status: String,
}

impl ProjectReader {
    pub(super) fn new(config: &MiloConfig) -> Self {
        Self {
            credentials: config.project_credentials(),
            internal: config.internal_service_discovery,
        }
    }

    fn connection(&self, project: &str) -> ConnectionSpec {
        let server = if self.internal {
            Server::Url(format!("https://milo-apiserver.project-{project}.svc.cluster.local:6443"))
        } else {
            Server::Path(control_plane_path(project))
        };
        ConnectionSpec { credentials: self.credentials.clone(), server }
    }

    fn condition(&self) -> &'static str {
        if self.internal { "ControlPlaneReady" } else { "Ready" }
    }

    /// # Errors
    /// Its name or its conditions are invalid.
    fn state(&self, project: &AnyObject) -> Result<OfferState, RequestFailure> {
        if !is_project_name(&project.name_any()) {
            let error = "its name cannot be part of a path";
            return Err(RequestFailure::new(ErrorCause::Invalid, error));
        }
        let metadata = project.metadata().map_err(|e| CallError::Unreadable(e).failure())?;
        if metadata.deletion_timestamp.is_some() {
            return Ok(OfferState::Deleting);
        }
        let status = Option::<Status>::deserialize(&project.value["status"])
            .map_err(|e| CallError::Unreadable(format!("its status: {e}")).failure())?;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let is_ready = |c: &Condition| c.name == self.condition() && c.status == "True";
        Ok(match conditions.iter().any(is_ready) {
            true => OfferState::Ready,
            false => OfferState::NotReady,
        })
    }

    pub(super) fn offer(&self, project: &AnyObject) -> Offer {
        let name = project.name_any();
        let state = self.state(project);
        Offer {
            cluster: ClusterName::from(&*name),
            uid: project.uid().unwrap_or_default(),
            connection: state.is_ok().then(|| self.connection(&name)),
            state: state.unwrap_or_else(|error| OfferState::Broken { error }),
            shown_by: match project.namespace() {
                None => name,
                Some(namespace) => format!("{namespace}/{name}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_plane_path_names_its_project() {
        let path = control_plane_path("shop-1");
        assert_eq!(project_of_path(&path), Some(("shop-1", "/")));
        assert_eq!(project_of_path(&format!("/milo{path}/")), Some(("shop-1", "/milo")));
        for path in ["/", "", "/clusters/a", &path[..path.len() - 2], &format!("{path}/api")] {
            assert_eq!(project_of_path(path), None, "{path}");
        }
    }

    #[test]
    fn a_project_is_ready_by_its_condition_and_stays_until_it_is_gone() {
        let reader = |internal| {
            let config =
                MiloConfig { internal_service_discovery: internal, ..MiloConfig::default() };
            ProjectReader::new(&config)
        };
        let state = |internal, object: &str| {
            reader(internal).state(&serde_json::from_str(object).unwrap()).unwrap()
        };
        let with = |condition: &str, status: &str| {
            format!(
                r#"{{"metadata":{{"name":"shop","uid":"u"}},"status":{{"conditions":[{{"type":"{condition}","status":"{status}"}}]}}}}"#
            )
        };
        assert_eq!(state(false, &with("Ready", "True")), OfferState::Ready);
        assert_eq!(state(false, &with("Ready", "False")), OfferState::NotReady);
        assert_eq!(state(false, &with("ControlPlaneReady", "True")), OfferState::NotReady);
        assert_eq!(state(true, &with("ControlPlaneReady", "True")), OfferState::Ready);
        assert_eq!(state(false, r#"{"metadata":{"name":"shop"}}"#), OfferState::NotReady);
        let deleted = r#"{"metadata":{"name":"shop","deletionTimestamp":"2026-11-21T10:00:00Z"},
            "status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
        assert_eq!(state(false, deleted), OfferState::Deleting);
        assert_eq!(
            reader(true).connection("shop").server,
            Server::Url("https://milo-apiserver.project-shop.svc.cluster.local:6443".to_owned())
        );
    }
}
