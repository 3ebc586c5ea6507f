//! Detects changes of a kubeconfig that concern one cluster; cheap while nothing changes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use xxhash_rust::xxh3::Xxh3Default;

use super::spec::{Credentials, Entries, read_kubeconfig};
use crate::environment::blocking;
use crate::file_stamp::FileStamp;

/// Kubernetes mounts the cluster's certificate authority here in every pod. kube itself reads the token
/// beside it again.
const POD_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The files that a client is made from, and a hash of the content that it uses.
#[derive(Default)]
pub(super) struct Fingerprint {
    /// `None` for a file that can't be read.
    stamps: Vec<(PathBuf, Option<FileStamp>)>,
    hash: u64,
}

impl Fingerprint {
    /// The fingerprint of the current files. A file that can't be read is part of it, too.
    pub(super) async fn read(credentials: &Credentials) -> Self {
        let credentials = credentials.clone();
        blocking(move || Self::of(&credentials)).await.unwrap_or_default()
    }

    /// Whether no file has changed.
    pub(super) async fn is_current(&self) -> bool {
        let stamps = self.stamps.clone();
        let is_current = move || stamps.iter().all(|(path, stamp)| FileStamp::of(path) == *stamp);
        blocking(is_current).await.unwrap_or(false)
    }

    pub(super) fn is_same_content(&self, other: &Self) -> bool {
        self.hash == other.hash
    }

    fn of(credentials: &Credentials) -> Self {
        let kubeconfigs = kubeconfigs(credentials);
        let mut files: BTreeSet<PathBuf> = kubeconfigs.iter().cloned().collect();
        if matches!(
            credentials,
            Credentials::InCluster | Credentials::Kubeconfig { file: None, context: None }
        ) {
            files.insert(POD_CA.into());
        }
        let stamped = |path: PathBuf| {
            let stamp = FileStamp::of(&path);
            (path, stamp)
        };
        // Before the content: a write in between is detected later.
        let mut stamps: Vec<_> = files.into_iter().map(stamped).collect();
        let mut hash = Xxh3Default::new();
        if let Credentials::Kubeconfig { file, context } = credentials
            && pipe_of(credentials).is_none()
            && let Ok(kubeconfig) = read_kubeconfig(file.as_deref())
        {
            let Entries { context, cluster, user } = Entries::of(&kubeconfig, context.as_ref());
            let user = user.and_then(|user| user.auth_info.as_ref());
            // kube itself reads a token's file again.
            let named = [
                cluster.and_then(|cluster| cluster.certificate_authority.as_ref()),
                user.and_then(|user| user.client_certificate.as_ref()),
                user.and_then(|user| user.client_key.as_ref()),
            ];
            stamps.extend(named.into_iter().flatten().map(PathBuf::from).map(stamped));
            let text = serde_json::to_string(&(context, cluster, user)).unwrap_or_default();
            hash.update(text.as_bytes());
        }
        for (path, _) in stamps.iter().filter(|(path, _)| !kubeconfigs.contains(path)) {
            hash.update(&fs::read(path).unwrap_or_default());
        }
        Self { stamps, hash: hash.digest() }
    }
}

/// A kubeconfig that is a pipe: opening it blocks until a process writes to it, and no time-out ends
/// that.
pub(super) fn pipe_of(credentials: &Credentials) -> Option<PathBuf> {
    let is_pipe = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| file.file_type().is_fifo());
    kubeconfigs(credentials).into_iter().find(is_pipe)
}

/// The kubeconfig files: the configured one, or kubectl's.
pub(super) fn kubeconfigs(credentials: &Credentials) -> Vec<PathBuf> {
    match credentials {
        Credentials::InCluster | Credentials::Text(_) => Vec::new(),
        Credentials::Kubeconfig { file: Some(path), .. } => vec![path.clone()],
        Credentials::Kubeconfig { file: None, .. } => {
            let listed = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
            let listed = listed.map(|list| std::env::split_paths(&list).collect());
            let own = || std::env::home_dir().map(|home| home.join(".kube/config"));
            listed.unwrap_or_else(|| own().into_iter().collect())
        }
    }
}
