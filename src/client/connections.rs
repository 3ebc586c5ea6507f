//! The connections and followed kubeconfigs that clusters share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::credentials::SharedCredentials;
use super::pool::Pools;
use super::spec::Credentials;

/// Connections and followed kubeconfigs, shared by clusters with the same host or credentials. A clone
/// shares them, too. Those that no cluster uses are dropped.
#[derive(Clone, Default)]
pub struct Connections {
    followed: Arc<Mutex<HashMap<Credentials, Weak<SharedCredentials>>>>,
    pools: Pools,
}

impl Connections {
    /// The client made from the credentials, while any cluster holds it.
    pub(super) fn credentials(&self, credentials: &Credentials) -> Arc<SharedCredentials> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = followed.get(credentials).and_then(Weak::upgrade) {
            return shared;
        }
        if followed.len() == followed.capacity() {
            followed.retain(|_, shared| shared.strong_count() > 0);
        }
        let shared = Arc::new(SharedCredentials::new(credentials.clone(), self.pools.clone()));
        followed.insert(credentials.clone(), Arc::downgrade(&shared));
        shared
    }
}
