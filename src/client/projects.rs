//! The Projects of a Milo API server.

use std::sync::Arc;
use std::time::Duration;

use kube::core::ResourceExt;

use super::{AnyObject, CallError, ClusterClient, JSON, get};
use crate::core::data::ids::ClusterName;

pub(crate) const PROJECTS: &str = "projects.resourcemanager.miloapis.com";
pub(crate) const PROJECTS_PATH: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";

/// Whether an API server accepts the name.
pub(crate) fn is_project_name(name: &str) -> bool {
    let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.';
    name.bytes().all(is_name) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// The API server that holds the Projects, which are requested one by one: only they prove whether a
/// control plane belongs to a project. One that answers for every name, as a control plane does, is no
/// evidence.
#[derive(Debug)]
pub struct ProjectRoot {
    client: Arc<ClusterClient>,
    timeout: Duration,
}

impl ProjectRoot {
    /// Sends requests through `client`, and waits at most `timeout` for an answer.
    pub fn new(client: Arc<ClusterClient>, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    /// Whether a Project of this name exists, by a live GET.
    ///
    /// # Errors
    /// Any answer but the Project, or a 404 about that very Project.
    pub async fn exists(&self, project: &ClusterName) -> Result<bool, CallError> {
        let name = project.as_str();
        if !is_project_name(name) {
            return Err(CallError::Unreadable(format!("{name:?} cannot be a Project's name")));
        }
        let request = get(&format!("{PROJECTS_PATH}/{name}"), JSON)?;
        match self.client.call(request, self.timeout).await {
            Ok(answer) => {
                let project: Result<AnyObject, _> = serde_json::from_slice(&answer);
                if project.is_ok_and(|project| project.name_any() == name) {
                    return Ok(true);
                }
                Err(CallError::Unreadable("the answer is not that Project".to_owned()))
            }
            Err(error) if error.is_absence_of(PROJECTS, name) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
