//! A cluster described by a kubeconfig's text.

use std::hash::{BuildHasher, RandomState};

use http::Uri;
use kube::config::Kubeconfig;

use super::ledger::{Ledger, Offer};
use crate::client::{
    ConnectionSpec, Credentials, Entries, KubeconfigText, Server, read_kubeconfig, shortened,
};
use crate::config::ClusterConfig;
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::membership::OfferState;
use crate::core::data::ids::ClusterName;

/// An offer of the cluster that `text` describes. `holder` distinguishes its Secret or file from others
/// of the same name.
///
/// Another server is another cluster, even with the same name: the state of one is no evidence about
/// the other. So the uid combines the holder and the server. Other credentials for the same server do
/// not change it.
pub(super) fn offer(
    cluster: &str,
    holder: &str,
    shown_by: String,
    text: Result<String, String>,
    is_deleting: bool,
    ledger: &Ledger,
) -> Offer {
    let cluster = ClusterName::from(cluster);
    let text = text.and_then(|text| {
        // The error may quote a name of any length in the kubeconfig.
        let usable = KubeconfigText::parse(&text).map_err(shortened)?;
        Ok((server_hash(&text, &ledger.hash_key), usable))
    });
    let (uid, state, connection) = match text {
        Ok((server, text)) => {
            let state = if is_deleting { OfferState::Deleting } else { OfferState::Ready };
            let credentials = Credentials::Text(text);
            let server_is = Server::AsConfigured;
            let connection = ConnectionSpec { credentials, server: server_is };
            (format!("{holder}/{server:016x}"), state, Some(connection))
        }
        Err(error) => {
            // The server is unknown, so the uid keeps the server known before.
            let prefix = format!("{holder}/");
            let before = ledger.uid(&cluster).filter(|uid| uid.starts_with(&prefix));
            let error = RequestFailure::new(ErrorCause::Kubeconfig, error);
            (before.unwrap_or(prefix), OfferState::Broken { error }, None)
        }
    };
    Offer { cluster, uid, state, connection, shown_by }
}

/// A hash of the current context's server and of how it is reached, equal only within a run.
fn server_hash(text: &str, key: &RandomState) -> u64 {
    let kubeconfig = Kubeconfig::from_yaml(text).unwrap_or_default();
    let cluster = Entries::of(&kubeconfig, None).cluster;
    let server = cluster.map(|c| (&c.server, &c.proxy_url, &c.tls_server_name));
    key.hash_one(server)
}

/// The URL of the server that a configured cluster's kubeconfig names; `None` in a pod without one.
pub(crate) fn configured_server(config: &ClusterConfig) -> Option<Uri> {
    if config.in_cluster {
        return None;
    }
    let kubeconfig = read_kubeconfig(config.kubeconfig.as_deref()).ok()?;
    let Entries { cluster, .. } = Entries::of(&kubeconfig, config.context.as_ref());
    cluster?.server.as_ref()?.parse().ok()
}
