//! A Milo API server, as far as throughline sees one: the proxy of the API server that holds the Projects
//! maps the paths of their control planes to other API servers. Under the name of a project that it does
//! not have, it answers 200 with an empty list, as Milo does.

use std::path::PathBuf;

use serde_json::json;

use super::apiserver::{ApiServer, THROUGHLINE, token, write_kubeconfig};
use super::objects::install_loose;
use super::proxy::FaultProxy;
use super::rest::Resource;
use super::rights;

pub(crate) const PROJECTS: Resource =
    Resource::new("resourcemanager.miloapis.com/v1alpha1", "projects", "Project");

pub(crate) struct Milo {
    /// Holds the Projects.
    pub(crate) root: ApiServer,
    pub(crate) proxy: FaultProxy,
}

impl Milo {
    /// throughline may list the Projects.
    pub(crate) async fn start() -> Self {
        let root = ApiServer::start("milo").await;
        install_loose(root.rest(), PROJECTS, "Cluster").await;
        rights::grant(root.rest(), &["discovery-milo"]).await.unwrap();
        let proxy = FaultProxy::start(&root).await;
        Self { root, proxy }
    }

    /// throughline's kubeconfig for a path of this server.
    pub(crate) fn kubeconfig(&self, path: &str) -> PathBuf {
        let file = self.root.folder().join(format!("milo{}.kubeconfig", path.replace('/', "_")));
        write_kubeconfig(&file, &format!("{}{path}", self.proxy.url()), None, &token(THROUGHLINE));
        file
    }

    /// Creates a Project that is Ready; returns its uid.
    pub(crate) async fn create(&self, name: &str) -> String {
        let object = json!({ "metadata": { "name": name } });
        let made = self.root.rest().create(PROJECTS, object).await.unwrap();
        let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        self.root.rest().merge_status(PROJECTS, ("", name), &status).await.unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }
}
