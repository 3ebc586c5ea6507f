//! Upstreams that are discovered: what their source shows of each, and what goes wrong there.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throughline::config::{Config, KubeconfigSecretsConfig, MiloConfig};
use throughline::core::contract::membership::JoinRule;
use throughline::core::data::ids::{ClusterName, NamespacedName, Role};
use throughline_sim::apiserver::{
    ApiVerb, Fault, Resource, SimApiServer, SimApiServerSettings, SimMilo,
};

use crate::fault_kind::FaultKind;
use crate::network::{Network, Serve};
use crate::random::Random;
use crate::stage::Stage;
use crate::world::World;

/// Where the instances find the upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Discovery {
    #[default]
    None,
    /// In kubeconfig Secrets at the hub.
    Secrets,
    /// As Projects at the root of a Milo.
    Projects,
}

#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) server: Arc<SimApiServer>,
    resource: Resource,
}

impl Source {
    fn put(&self, name: &str, address: &str, token: &str, shown: Shown) {
        let object = match self.resource {
            Resource::Secrets => secret(address, token, shown),
            _ => project(shown),
        };
        self.server.put_raw(self.resource, self.key(name), object);
    }

    fn remove(&self, name: &str) {
        self.server.remove(self.resource, &self.key(name));
    }

    fn key(&self, name: &str) -> NamespacedName {
        NamespacedName::new(if self.resource == Resource::Secrets { NAMESPACE } else { "" }, name)
    }
}

impl Discovery {
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

    pub(crate) fn start(
        self,
        servers: &[Arc<SimApiServer>],
        world: &World,
        settings: SimApiServerSettings,
        network: &Network,
    ) -> Option<Source> {
        let upstreams = &world.names.upstreams;
        match self {
            Self::None => None,
            Self::Secrets => {
                let server = servers[upstreams.len()].clone();
                server.set_served(Resource::Secrets, true);
                Some(Source { server, resource: Resource::Secrets })
            }
            Self::Projects => {
                let (clusters, called) = (world.clusters.clone(), servers[0].address());
                let milo = SimMilo::start_without_listener(clusters, called, settings);
                upstreams.iter().zip(servers).for_each(|(name, of)| milo.adopt(name.as_str(), of));
                let server = milo.root.clone();
                let serve: Serve = Arc::new(move |end, client| Box::pin(milo.serve(end, client)));
                network.add_server(&called.ip().to_string(), serve);
                Some(Source { server, resource: Resource::Projects })
            }
        }
    }
}

/// All projects are reached where the first one is.
const MILO_CONTEXT: &str = "project-0";
const NAMESPACE: &str = "default";
const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// What the source shows of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Right,
    Unlabelled,
    /// With a number where a text belongs.
    Undecodable,
    Deleted,
}

impl Stage {
    pub(crate) fn show_upstreams(&self) {
        (0..self.hub()).for_each(|upstream| self.show(upstream, Shown::Right));
    }

    pub(crate) fn show(&self, upstream: usize, shown: Shown) {
        let Some(source) = &self.source else { return };
        let name = self.world.names.upstreams[upstream].as_str();
        if shown == Shown::Deleted {
            return source.remove(name);
        }
        let token = self.tokens[upstream].to_string();
        // That of a Milo is the same for all its projects.
        if self.plan.discovery == Discovery::Secrets {
            self.servers[upstream].set_token(&token);
        }
        source.put(name, &self.address_of(upstream), &token, shown);
    }

    /// An upstream is shown otherwise for a while, and sometimes returns with another token. `Right`: its
    /// server takes another token from now on, and no other.
    pub(crate) fn disturb_upstream(
        &mut self,
        (kind, lasts): (FaultKind, Duration),
        shown: Shown,
        random: &mut Random,
    ) {
        if self.source.is_none() {
            return;
        }
        let upstream = random.below(self.hub());
        let has_new_token = shown == Shown::Right || random.one_in(2);
        if has_new_token && self.plan.discovery == Discovery::Secrets {
            self.tokens[upstream] += 1;
            self.servers[upstream].set_token(&self.tokens[upstream].to_string());
            // API servers end no watch for that; the next one shows it.
            self.servers[upstream].cut_watches(None);
        }
        self.show(upstream, shown);
        if shown != Shown::Right {
            self.until(kind, lasts, move |stage| stage.show(upstream, Shown::Right));
        }
    }

    pub(crate) fn add_stranger(&self) {
        if let Some(source) = &self.source {
            source.put(STRANGER, "stranger.invalid", "", Shown::Undecodable);
        }
    }

    /// The source does not answer, has forgotten its history, or breaks off inside a list.
    pub(crate) fn disturb_source(&mut self, kind: FaultKind, lasts: Duration, random: &mut Random) {
        let Some(Source { server, resource }) = self.source.clone() else { return };
        let (verbs, code) = match kind {
            FaultKind::SourceHangs => (vec![ApiVerb::List, ApiVerb::Watch], Fault::NO_RESPONSE),
            _ => (vec![ApiVerb::Watch], 410),
        };
        let resource = Some(resource);
        server.inject(&Fault { verbs, resource, ..Fault::on_writes(code) }, 1 + random.below(4));
        server.cut_watches(resource);
        if kind == FaultKind::SourceBreaksOff {
            // The list that follows the 410 does not arrive whole.
            let after = usize::try_from(random.between(300, 1_500)).unwrap();
            let host = server.address().ip().to_string();
            self.clients().for_each(|client| self.network.cut(&(client, host.clone()), after));
        }
        self.until(kind, lasts, move |_| server.clear_faults());
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
