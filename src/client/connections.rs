//! The connections and followed kubeconfigs that clusters share.

use std::sync::Arc;

use http::Uri;
use http::uri::{Authority, Scheme};

use super::credentials::SharedCredentials;
use super::pool::Host;
use super::spec::Credentials;
use super::tls::Tls;
use super::weak_map::WeakMap;

/// Connections and followed kubeconfigs, shared by clusters with the same host or credentials. A clone
/// shares them, too. Those that no cluster uses are dropped.
#[derive(Clone, Default)]
pub struct Connections {
    followed: Arc<WeakMap<Credentials, SharedCredentials>>,
    hosts: Arc<WeakMap<HostKey, Host>>,
}

/// The properties that a connection depends on. A token is not among them: each request carries one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct HostKey {
    scheme: Scheme,
    authority: Authority,
    tls: u128,
}

impl Connections {
    /// The client made from the credentials, while any cluster holds it.
    pub(super) fn credentials(&self, credentials: &Credentials) -> Arc<SharedCredentials> {
        self.followed.get(credentials.clone(), || SharedCredentials::new(credentials.clone()))
    }

    /// The connections to the URL's host, while any cluster holds them.
    ///
    /// # Errors
    /// The URL has no host, or one that no certificate can be issued for.
    pub(super) fn host(&self, url: &Uri, tls: &Arc<Tls>) -> Result<Arc<Host>, String> {
        let (Some(scheme), Some(authority)) = (url.scheme(), url.authority()) else {
            return Err("the server's URL has no host".to_owned());
        };
        let scheme = scheme.clone();
        let authority = authority.clone();
        let key = HostKey { scheme, authority, tls: tls.identity };
        let host = Host::new(url, tls.clone())?;
        Ok(self.hosts.get(key, || host))
    }
}
