//! The data of an API server that ran once and has the CRDs. A server that starts with a copy of it needs
//! half the CPU time of one that starts with nothing.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use tokio::sync::OnceCell;

use super::super::objects;
use super::{ApiServer, assets};

/// Another one whenever `make` gives another result.
const VERSION: &str = "1";

/// The folder with the data, kept beside the API server's binary. The first call makes it.
pub(super) async fn data() -> &'static Path {
    static DATA: OnceCell<PathBuf> = OnceCell::const_new();
    DATA.get_or_init(async || {
        let path = assets().join(format!("data-{:016x}", hash()));
        if !path.exists() {
            make(&path).await;
        }
        path
    })
    .await
}

/// Of all that the data depend on.
fn hash() -> u64 {
    let mut hasher = DefaultHasher::new();
    VERSION.hash(&mut hasher);
    objects::BY_CRD.map(objects::crd).hash(&mut hasher);
    // The binaries are somebody's own where KUBEBUILDER_ASSETS names them.
    for binary in ["etcd", "kube-apiserver"] {
        let about = fs::metadata(assets().join(binary)).unwrap();
        (about.len(), about.modified().unwrap()).hash(&mut hasher);
    }
    hasher.finish()
}

async fn make(path: &Path) {
    let server = ApiServer::start("template").await;
    objects::install_crds(server.rest()).await;
    server.stop().await;
    // Each server makes its own when it starts, so that no two clusters share the uid of a namespace.
    for prefix in ["/registry/namespaces/", "/registry/leases/", "/registry/masterleases/"] {
        server.delete_keys(prefix).await;
    }
    let new = path.with_extension(std::process::id().to_string());
    server.into_data(&new).await;
    // Another process may have been quicker; its data are as good.
    if fs::rename(&new, path).is_err() {
        fs::remove_dir_all(&new).unwrap();
    }
    assert!(path.is_dir(), "{} cannot be written", path.display());
}
