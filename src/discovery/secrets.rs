//! Clusters whose kubeconfigs are Secrets in one namespace, as multicluster-runtime's kubeconfig
//! provider reads them.

use k8s_openapi::ByteString;
use serde::Deserialize;

use super::follow::{Objects, Reader};
use super::kubeconfig;
use super::ledger::{Ledger, Offer};
use crate::client::CallError;
use crate::config::KubeconfigSecretsConfig;
use crate::core::data::ids::ClusterName;

/// Of the Secret's data.
const KEY: &str = "kubeconfig";

pub(super) fn objects(config: &KubeconfigSecretsConfig) -> Objects {
    Objects {
        path: format!("/api/v1/namespaces/{}/secrets", config.namespace),
        resource: "secrets",
        label_selector: Some(config.label_selector.clone()),
    }
}

/// Reads Secrets. What they hold reaches no error text.
pub(super) struct SecretReader;

#[derive(Deserialize)]
struct Secret {
    metadata: Meta,
    #[serde(default)]
    data: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

fn parse(object: &str) -> Result<Secret, CallError> {
    serde_json::from_str(object).map_err(|e| {
        // serde's own text may quote a value.
        CallError::Unreadable(format!("a Secret: line {}, column {}", e.line(), e.column()))
    })
}

impl Secret {
    fn shown_by(&self) -> String {
        format!("Secret {}", self.metadata.name)
    }

    fn text(&self) -> Result<String, String> {
        let value = self.data.get(KEY).ok_or_else(|| format!("the Secret has no key {KEY}"))?;
        let bytes = ByteString::deserialize(value)
            .map_err(|_| format!("the Secret's {KEY} is not base64"))?;
        String::from_utf8(bytes.0).map_err(|_| format!("the Secret's {KEY} is not UTF-8"))
    }
}

impl Reader for SecretReader {
    fn offer(&self, object: &str, ledger: &Ledger) -> Result<Offer, CallError> {
        let secret = parse(object)?;
        let text = secret.text();
        let text = text.as_deref().map_err(Clone::clone);
        let Meta { name, uid, deletion_timestamp } = &secret.metadata;
        let is_deleting = deletion_timestamp.is_some();
        Ok(kubeconfig::offer(name, uid, secret.shown_by(), text, is_deleting, ledger))
    }

    fn deleted(&self, object: &str) -> Result<(ClusterName, String), CallError> {
        let secret = parse(object)?;
        Ok((ClusterName::from(&*secret.metadata.name), secret.shown_by()))
    }
}
