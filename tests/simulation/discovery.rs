//! Upstreams that are discovered: what their source shows of each, and what goes wrong there.

use std::sync::{Arc, Mutex};

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throughline::config::{Config, KubeconfigSecretsConfig, MiloConfig};
use throughline::core::contract::membership::JoinRule;
use throughline::core::data::ids::{ClusterName, ObjectKey, Role};
use throughline_sim::SimClusters;
use throughline_sim::apiserver::{
    ApiVerb, Fault, Resource, SimApiServerHandle, SimApiServerSettings, SimMilo,
};

use crate::fault_kind::FaultKind;
use crate::faults::End;
use crate::network::{Network, Serve};
use crate::random::Random;
use crate::stage::Stage;
use crate::world::Names;

/// Where the instances find the upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Discovery {
    /// In their configuration.
    #[default]
    None,
    /// In kubeconfig Secrets at the hub.
    Secrets,
    /// As Projects at the root of a Milo.
    Projects,
}

/// What shows the upstreams.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) server: Arc<SimApiServerHandle>,
    resource: Resource,
}

impl Source {
    fn put(&self, name: &str, object: Value) {
        self.server.put_raw(self.resource, self.key(name), object);
    }

    fn remove(&self, name: &str) {
        self.server.remove(self.resource, &self.key(name));
    }

    fn key(&self, name: &str) -> ObjectKey {
        let namespace = if self.resource == Resource::Secrets { NAMESPACE } else { "" };
        ObjectKey::new(namespace, name)
    }
}

impl Discovery {
    /// The configuration names the other clusters, and the source of the upstreams.
    pub(crate) fn set_up(self, config: &mut Config, hub: &ClusterName) {
        let Some(hub) = config.clusters.iter().find(|c| c.name == *hub).cloned() else { return };
        let label_selector = format!("{LABEL}=true");
        match self {
            Self::None => return,
            Self::Secrets => {
                config.discovery.kubeconfig_secrets = Some(KubeconfigSecretsConfig {
                    cluster: hub.name,
                    namespace: NAMESPACE.to_owned(),
                    label_selector,
                    roles: vec![Role::Upstream],
                });
            }
            Self::Projects => {
                config.discovery.milo = Some(MiloConfig {
                    kubeconfig: hub.kubeconfig,
                    context: Some(MILO_CONTEXT.to_owned()),
                    label_selector: Some(label_selector),
                    join: JoinRule::All,
                    ..MiloConfig::default()
                });
            }
        }
        config.clusters.retain(|cluster| !cluster.roles.contains(&Role::Upstream));
    }

    /// Starts what holds the sources; `at` is where a Milo is reached.
    pub(crate) fn start(
        self,
        servers: &[Arc<SimApiServerHandle>],
        names: &Names,
        at: &mut Milo<'_>,
    ) -> Option<Source> {
        match self {
            Self::None => None,
            Self::Secrets => {
                let server = servers[names.upstreams.len()].clone();
                server.set_served(Resource::Secrets, true);
                Some(Source { server, resource: Resource::Secrets })
            }
            Self::Projects => {
                let clusters = at.clusters.clone();
                let called = servers[0].address();
                let milo = SimMilo::start_without_listener(clusters, called, at.settings.clone());
                for (name, server) in names.upstreams.iter().zip(servers) {
                    milo.adopt(name.as_str(), server);
                }
                let server = Arc::new(milo.root());
                let serve: Serve = Arc::new(move |end, client| Box::pin(milo.serve(end, client)));
                at.network.add_server(&called.ip().to_string(), serve);
                Some(Source { server, resource: Resource::Projects })
            }
        }
    }
}

/// What a Milo is made from.
pub(crate) struct Milo<'a> {
    pub(crate) clusters: &'a Arc<Mutex<SimClusters>>,
    pub(crate) settings: SimApiServerSettings,
    pub(crate) network: &'a Network,
}

/// All projects are reached where the first one is.
const MILO_CONTEXT: &str = "project-0";
const NAMESPACE: &str = "default";
const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// What the source shows of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Right,
    /// Without the label.
    Unlabelled,
    /// With a number where a text belongs.
    Undecodable,
    Deleted,
}

impl Stage {
    /// Shows all upstreams as they are.
    pub(crate) fn show_upstreams(&self) {
        (0..self.world.names.upstreams.len())
            .for_each(|upstream| self.show(upstream, Shown::Right));
    }

    pub(crate) fn show(&self, upstream: usize, shown: Shown) {
        let Some(source) = &self.source else { return };
        let name = self.world.names.upstreams[upstream].as_str();
        match self.plan.discovery {
            _ if shown == Shown::Deleted => source.remove(name),
            Discovery::None => {}
            Discovery::Projects => source.put(name, project(shown)),
            Discovery::Secrets => {
                let token = self.tokens[upstream].to_string();
                self.servers[upstream].set_token(&token);
                source.put(name, secret(&self.address_of(upstream), &token, shown));
            }
        }
    }

    /// Its server takes another token from now on, and no other.
    fn change_token(&mut self, upstream: usize) {
        // That of a Milo is the same for all its projects.
        if self.plan.discovery != Discovery::Secrets {
            return;
        }
        self.tokens[upstream] += 1;
        self.servers[upstream].set_token(&self.tokens[upstream].to_string());
        // API servers end no watch for that; the next one shows it.
        self.servers[upstream].cut_watches(None);
    }

    /// An upstream is shown otherwise for a while, and returns with another token.
    pub(crate) fn disturb_upstream(&mut self, kind: FaultKind, random: &mut Random) -> Option<End> {
        self.source.as_ref()?;
        let upstream = random.below(self.world.names.upstreams.len());
        let shown = match kind {
            FaultKind::OfferDeleted => Shown::Deleted,
            FaultKind::OfferUnlabelled => Shown::Unlabelled,
            FaultKind::OfferUndecodable => Shown::Undecodable,
            _ => Shown::Right,
        };
        if shown == Shown::Right || random.one_in(2) {
            self.change_token(upstream);
        }
        self.show(upstream, shown);
        let end = move |stage: &mut Self| stage.show(upstream, Shown::Right);
        (shown != Shown::Right).then(|| Box::new(end) as End)
    }

    /// One that nobody can decode lies beside the others from now on.
    pub(crate) fn add_stranger(&self) {
        let Some(source) = &self.source else { return };
        match self.plan.discovery {
            Discovery::Projects => source.put(STRANGER, project(Shown::Undecodable)),
            _ => source.put(STRANGER, secret("stranger.invalid", "", Shown::Undecodable)),
        }
    }

    /// The source does not answer, has forgotten its history, or breaks off inside a list.
    pub(crate) fn disturb_source(&self, kind: FaultKind, random: &mut Random) {
        let Some(Source { server, resource }) = &self.source else { return };
        let (verbs, code) = match kind {
            FaultKind::SourceHangs => (vec![ApiVerb::List, ApiVerb::Watch], Fault::NO_RESPONSE),
            _ => (vec![ApiVerb::Watch], 410),
        };
        let resource = Some(*resource);
        let fault = Fault { verbs, resource, code, retry_after_s: None, executes: false };
        server.inject(&fault, 1 + random.below(4));
        server.cut_watches(resource);
        if kind == FaultKind::SourceBreaksOff {
            // The list that follows the 410 does not arrive whole.
            let after = usize::try_from(random.between(300, 1_500)).unwrap();
            for client in self.clients() {
                let host = server.address().ip().to_string();
                self.network.cut(&(client, host), after);
            }
        }
    }

    /// The requests that were to be disturbed, and were not made meanwhile, succeed.
    pub(crate) fn calm_source(&self) {
        if let Some(Source { server, .. }) = &self.source {
            server.clear_faults();
        }
    }
}

pub(crate) const STRANGER: &str = "a-stranger";

fn labels(shown: Shown) -> Value {
    if shown == Shown::Unlabelled { json!({}) } else { json!({ LABEL: "true" }) }
}

fn project(shown: Shown) -> Value {
    let conditions = match shown {
        Shown::Undecodable => json!("oops"),
        _ => json!([{ "type": "Ready", "status": "True", "reason": "Ready", "message": "" }]),
    };
    json!({ "apiVersion": "resourcemanager.miloapis.com/v1alpha1", "kind": "Project",
            "metadata": { "labels": labels(shown) }, "status": { "conditions": conditions } })
}

fn secret(address: &str, token: &str, shown: Shown) -> Value {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": { "token": token } }],
    });
    let data = match shown {
        Shown::Undecodable => json!(7),
        _ => json!({ "kubeconfig": ByteString(kubeconfig.to_string().into_bytes()) }),
    };
    let mut metadata = json!({ "labels": labels(shown) });
    if shown == Shown::Undecodable {
        metadata["deletionTimestamp"] = json!(1);
    }
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data })
}
