//! The connections and followed kubeconfigs that clusters share.

use std::sync::Arc;

use super::credentials::SharedCredentials;
use super::pool::Pools;
use super::spec::Credentials;
use super::weak_map::WeakMap;

/// Connections and followed kubeconfigs, shared by clusters with the same host or credentials. A clone
/// shares them, too. Those that no cluster uses are dropped.
#[derive(Clone, Default)]
pub struct Connections {
    followed: Arc<WeakMap<Credentials, SharedCredentials>>,
    pub(super) pools: Pools,
}

impl Connections {
    /// The client made from the credentials, while any cluster holds it.
    pub(super) fn credentials(&self, credentials: &Credentials) -> Arc<SharedCredentials> {
        self.followed.get(credentials.clone(), || SharedCredentials::new(credentials.clone()))
    }
}
