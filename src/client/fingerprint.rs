//! Detects changes of a kubeconfig that concern one cluster; cheap while nothing changes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use kube::config::Kubeconfig;
use xxhash_rust::xxh3::Xxh3Default;

use super::spec::{Credentials, Entries};
use crate::environment::blocking;

/// Kubernetes mounts the cluster's certificate authority here in every pod. kube itself reads the token
/// beside it again.
const POD_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The files that a client is made from, and a hash of the content that it uses.
pub(super) struct Fingerprint {
    pub(super) stamps: Stamps,
    hash: u64,
}

/// Distinguishes a file from its earlier version without reading it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    /// When the content or the inode changed, in seconds and nanoseconds; no program can set it.
    changed: (i64, i64),
}

/// Each file with its stamp; `None` while it can't be read.
#[derive(PartialEq, Eq)]
pub(super) struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

impl Stamps {
    pub(super) async fn read(files: Vec<PathBuf>) -> Self {
        blocking(move || Self::of(files)).await.unwrap_or(Self(Vec::new()))
    }

    fn of(files: impl IntoIterator<Item = PathBuf>) -> Self {
        let stamp = |path: &Path| {
            let file = fs::metadata(path).ok()?;
            let changed = (file.ctime(), file.ctime_nsec());
            Some(Stamp { inode: file.ino(), bytes: file.len(), changed })
        };
        Self(files.into_iter().map(|path| (stamp(&path), path)).map(|(s, p)| (p, s)).collect())
    }
}

impl Fingerprint {
    /// The fingerprint of the current files. A file that can't be read is part of it, too.
    pub(super) async fn read(credentials: &Credentials) -> Self {
        let credentials = credentials.clone();
        let fingerprint = blocking(move || Self::of(&credentials)).await;
        fingerprint.unwrap_or(Self { stamps: Stamps(Vec::new()), hash: 0 })
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.stamps.0.iter().map(|(path, _)| path.clone()).collect()
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
        // Before the content: a write in between is detected later.
        let mut stamps = Stamps::of(files);
        let mut hash = Xxh3Default::new();
        if let Credentials::Kubeconfig { file, context } = credentials
            && pipe_of(credentials).is_none()
            && let Some(kubeconfig) = kubeconfig(file.as_deref())
        {
            let Entries { context, cluster, user } = Entries::of(&kubeconfig, context.as_ref());
            let user = user.and_then(|user| user.auth_info.as_ref());
            // kube itself reads a token's file again.
            let named = [
                cluster.and_then(|cluster| cluster.certificate_authority.as_ref()),
                user.and_then(|user| user.client_certificate.as_ref()),
                user.and_then(|user| user.client_key.as_ref()),
            ];
            stamps.0.extend(Stamps::of(named.into_iter().flatten().map(PathBuf::from)).0);
            let text = serde_json::to_string(&(context, cluster, user)).unwrap_or_default();
            hash.update(text.as_bytes());
        }
        for (path, _) in stamps.0.iter().filter(|(path, _)| !kubeconfigs.contains(path)) {
            hash.update(&fs::read(path).unwrap_or_default());
        }
        Self { stamps, hash: hash.digest() }
    }
}

fn kubeconfig(file: Option<&Path>) -> Option<Kubeconfig> {
    match file {
        Some(path) => Kubeconfig::read_from(path).ok(),
        None => Kubeconfig::read().ok(),
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
