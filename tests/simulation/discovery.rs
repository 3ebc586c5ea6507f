//! Upstreams that are discovered: what their source shows of each, and what goes wrong there.

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use throughline::config::{Config, DiscoveryConfig, KubeconfigSecretsConfig};
use throughline::core::data::ids::{ClusterName, ObjectKey, Role};
use throughline_sim::apiserver::{ApiVerb, Fault, Resource};

use crate::fault_kind::FaultKind;
use crate::faults::End;
use crate::random::Random;
use crate::stage::Stage;

/// Where the instances find the upstreams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// In their configuration.
    None,
    /// In kubeconfig Secrets at the hub.
    Secrets,
}

impl Discovery {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Secrets].into_iter().find(|one| format!("{one:?}") == name)
    }

    /// The configuration names the other clusters, and the source of the upstreams.
    pub(crate) fn set_up(self, config: &mut Config, hub: &ClusterName) {
        if self == Self::None {
            return;
        }
        config.clusters.retain(|cluster| !cluster.roles.contains(&Role::Upstream));
        let secrets = KubeconfigSecretsConfig {
            cluster: hub.clone(),
            namespace: NAMESPACE.to_owned(),
            label_selector: format!("{LABEL}=true"),
            roles: vec![Role::Upstream],
        };
        config.discovery =
            DiscoveryConfig { kubeconfig_secrets: Some(secrets), ..DiscoveryConfig::default() };
    }
}

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

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NAMESPACE, name)
}

impl Stage {
    pub(crate) fn hub_server(&self) -> usize {
        self.world.names.upstreams.len()
    }

    /// Shows all upstreams as they are.
    pub(crate) fn show_upstreams(&self) {
        if self.plan.discovery == Discovery::None {
            return;
        }
        self.servers[self.hub_server()].set_served(Resource::Secrets, true);
        (0..self.world.names.upstreams.len())
            .for_each(|upstream| self.show(upstream, Shown::Right));
    }

    pub(crate) fn show(&self, upstream: usize, shown: Shown) {
        let hub = &self.servers[self.hub_server()];
        let name = self.world.names.upstreams[upstream].to_string();
        let token = self.tokens[upstream].to_string();
        self.servers[upstream].set_token(&token);
        match shown {
            Shown::Deleted => hub.remove(Resource::Secrets, &key(&name)),
            _ => {
                let secret = secret(&self.address_of(upstream), &token, shown);
                hub.put_raw(Resource::Secrets, key(&name), secret);
            }
        }
    }

    /// Its server takes another token from now on, and no other.
    fn change_token(&mut self, upstream: usize) {
        self.tokens[upstream] += 1;
        self.servers[upstream].set_token(&self.tokens[upstream].to_string());
        // API servers end no watch for that; the next one shows it.
        self.servers[upstream].cut_watches(None);
    }

    /// An upstream is shown otherwise for a while, and returns with another token.
    pub(crate) fn disturb_upstream(&mut self, kind: FaultKind, random: &mut Random) -> Option<End> {
        if self.plan.discovery == Discovery::None {
            return None;
        }
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
        (shown != Shown::Right).then_some(End::Offer(upstream))
    }

    /// One that nobody can decode lies beside the others from now on.
    pub(crate) fn add_stranger(&self) {
        if self.plan.discovery != Discovery::None {
            let secret = secret("stranger.invalid", "", Shown::Undecodable);
            self.servers[self.hub_server()].put_raw(Resource::Secrets, key(STRANGER), secret);
        }
    }

    /// The source does not answer, has forgotten its history, or breaks off inside a list.
    pub(crate) fn disturb_source(&self, kind: FaultKind, random: &mut Random) {
        if self.plan.discovery == Discovery::None {
            return;
        }
        let server = &self.servers[self.hub_server()];
        let (verbs, code) = match kind {
            FaultKind::SourceHangs => (vec![ApiVerb::List, ApiVerb::Watch], Fault::NO_RESPONSE),
            _ => (vec![ApiVerb::Watch], 410),
        };
        let resource = Some(Resource::Secrets);
        let fault = Fault { verbs, resource, code, retry_after_s: None, executes: false };
        server.inject(&fault, 1 + random.below(4));
        server.cut_watches(resource);
        if kind == FaultKind::SourceBreaksOff {
            // The list that follows the 410 does not arrive whole.
            let after = usize::try_from(random.between(300, 1_500)).unwrap();
            for client in &self.clients {
                self.cut(*client, self.hub_server(), after);
            }
        }
    }
}

const STRANGER: &str = "a-stranger";

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
    let labels = match shown {
        Shown::Unlabelled => json!({}),
        _ => json!({ LABEL: "true" }),
    };
    let mut metadata = json!({ "labels": labels });
    if shown == Shown::Undecodable {
        metadata["deletionTimestamp"] = json!(1);
    }
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data })
}
