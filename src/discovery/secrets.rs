//! Clusters with kubeconfigs in Secrets of one namespace, in the format of multicluster-runtime's
//! kubeconfig provider.

use k8s_openapi::ByteString;
use kube::core::{ApiResource, Resource, ResourceExt};
use serde::Deserialize;

use super::follow::Objects;
use super::kubeconfig;
use super::ledger::{Ledger, Offer};
use crate::client::AnyObject;
use crate::config::KubeconfigSecretsConfig;

/// The key in the Secret's data.
const KEY: &str = "kubeconfig";

/// A page is read as a whole, at most 32 MiB, and etcd accepts at most 1.5 MiB for each Secret.
const PAGE_SIZE: u32 = 20;

pub(super) fn objects(config: &KubeconfigSecretsConfig) -> Objects {
    Objects {
        resource: ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
        namespace: Some(config.namespace.clone()),
        label_selector: Some(config.label_selector.clone()),
        page_size: PAGE_SIZE,
    }
}

/// The Secret's kubeconfig. No error text contains its data.
fn text(secret: &AnyObject) -> Result<String, String> {
    secret.metadata()?;
    let value =
        secret.value["data"].get(KEY).ok_or_else(|| format!("the Secret has no key {KEY}"))?;
    let bytes =
        ByteString::deserialize(value).map_err(|_| format!("the Secret's {KEY} is not base64"))?;
    String::from_utf8(bytes.0).map_err(|_| format!("the Secret's {KEY} is not UTF-8"))
}

pub(super) fn offer(secret: &AnyObject, ledger: &Ledger) -> Offer {
    let name = secret.name_any();
    let uid = secret.uid().unwrap_or_default();
    let is_deleting = secret.meta().deletion_timestamp.is_some();
    let shown_by = format!("Secret {name}");
    kubeconfig::offer(&name, &uid, shown_by, text(secret), is_deleting, ledger)
}
