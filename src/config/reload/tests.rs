//! Looks at real files, without the pauses between them.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::config::FlagValue;

struct Bench {
    folder: PathBuf,
    follower: Follower,
    configs: mpsc::Receiver<Config>,
    metrics: Arc<Metrics>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Contexts of a kubeconfig.
fn write_kubeconfig(folder: &Path, contexts: &[&str]) {
    let named: Vec<_> = contexts
        .iter()
        .map(|name| json!({ "name": name, "context": { "cluster": "c", "user": "u" } }))
        .collect();
    let content = json!({ "contexts": named, "current-context": contexts[0] });
    fs::write(folder.join("kubeconfig"), content.to_string()).unwrap();
}

/// A configuration in which each name is a context and a cluster; the first is the hub, the others are
/// upstreams.
fn yaml(folder: &Path, names: &[&str], more: &str) -> String {
    let kubeconfig = folder.join("kubeconfig").display().to_string();
    let cluster = |(i, name): (usize, &&str)| {
        let roles = if i == 0 { "[hub, edge]" } else { "[upstream]" };
        format!("  - {{name: {name}, roles: {roles}, kubeconfig: {kubeconfig}, context: {name}}}\n")
    };
    let clusters: String = names.iter().enumerate().map(cluster).collect();
    format!("clusters:\n{clusters}{more}\n")
}

impl Bench {
    async fn new(name: &str, overrides: Overrides) -> Self {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("throughline-reload-{id}-{name}"));
        fs::create_dir_all(&folder).unwrap();
        write_kubeconfig(&folder, &["hub", "a", "b", "c"]);
        let file = folder.join("config.yaml");
        fs::write(&file, yaml(&folder, &["hub", "a", "b"], "")).unwrap();
        let source = ConfigSource { file: Some(file.clone()), overrides: overrides.clone() };
        let in_force = source.load().unwrap().config;
        let metrics = Arc::new(Metrics::new());
        let (to, configs) = mpsc::channel(8);
        let follower = Follower::new(file, overrides, in_force, metrics.clone(), to);
        let mut bench = Self { folder, follower, configs, metrics };
        // The first looks find what was loaded at the start.
        assert_eq!(bench.looks(2).await, None);
        assert_eq!(bench.counts(), (0, 0));
        bench
    }

    fn write(&self, names: &[&str], more: &str) {
        self.write_text(&yaml(&self.folder, names, more));
    }

    fn write_text(&self, text: &str) {
        fs::write(&self.follower.file, text).unwrap();
    }

    /// The configuration that the last of so many looks sends on.
    async fn looks(&mut self, looks: usize) -> Option<Config> {
        for _ in 0..looks {
            self.follower.look().await;
        }
        self.configs.try_recv().ok()
    }

    async fn sighup(&mut self) -> Option<Config> {
        self.follower.look_now().await;
        self.configs.try_recv().ok()
    }

    /// Reloads applied and refused.
    fn counts(&self) -> (u64, u64) {
        let count = |result| self.metrics.config_reloads(result);
        (count(ReloadResult::Applied), count(ReloadResult::Refused))
    }

    fn names(&self) -> Vec<&str> {
        self.follower.in_force.clusters.iter().map(|cluster| cluster.name.as_str()).collect()
    }
}

#[tokio::test]
async fn a_changed_file_is_taken_when_two_looks_show_the_same() {
    let mut bench = Bench::new("stable", Overrides::default()).await;
    bench.write(&["hub", "a", "b", "c"], "");
    assert_eq!(bench.looks(1).await, None);
    // It goes on being written.
    bench.write(&["hub", "a", "b", "c"], "touch: {windowMs: 7}");
    assert_eq!(bench.looks(1).await, None);
    let config = bench.looks(1).await.unwrap();
    assert_eq!((config.clusters.len(), config.touch.window_ms), (4, 7));
    assert_eq!(bench.looks(3).await, None);
    // Written again with the same content, or with comments only.
    bench.write(&["hub", "a", "b", "c"], "touch: {windowMs: 7}");
    assert_eq!(bench.looks(3).await, None);
    assert_eq!(bench.counts(), (1, 0));
    bench.write(&["hub", "a", "b", "c"], "touch: {windowMs: 7} # fast");
    assert_eq!(bench.looks(3).await, None);
    assert_eq!(bench.counts(), (2, 0));
}

#[tokio::test]
async fn a_swapped_directory_behind_symbolic_links_is_a_change() {
    let mut bench = Bench::new("swap", Overrides::default()).await;
    let folder = bench.folder.clone();
    let version = |name: &str, names: &[&str]| {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("config.yaml"), yaml(&folder, names, "")).unwrap();
        symlink(name, folder.join("..new")).unwrap();
        fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    };
    version("..1", &["hub", "a", "b"]);
    fs::remove_file(&bench.follower.file).unwrap();
    symlink("..data/config.yaml", &bench.follower.file).unwrap();
    assert_eq!(bench.looks(2).await, None);
    version("..2", &["hub", "a", "c"]);
    fs::remove_dir_all(folder.join("..1")).unwrap();
    assert_eq!(bench.looks(2).await.unwrap().clusters.len(), 3);
    assert_eq!(bench.names(), ["hub", "a", "c"]);
}

#[tokio::test]
async fn a_broken_file_is_refused_once_and_the_former_stays() {
    let mut bench = Bench::new("broken", Overrides::default()).await;
    for (text, refused) in [("clusters: [", 1), ("clusters: 7\ntouch: {windowMs: soon}", 2)] {
        bench.write_text(text);
        assert_eq!(bench.looks(5).await, None);
        assert_eq!((bench.counts(), bench.names().len()), ((0, refused), 3));
    }
    fs::remove_file(&bench.follower.file).unwrap();
    assert_eq!(bench.looks(4).await, None);
    assert_eq!(bench.counts(), (0, 3));
    // The same as in force again.
    bench.write(&["hub", "a", "b"], "");
    assert_eq!(bench.looks(2).await, None);
    assert_eq!(bench.counts(), (1, 3));
}

/// A ConfigMap and the Secret beside it arrive one after the other.
#[tokio::test]
async fn a_refused_file_is_used_once_its_kubeconfig_has_the_context() {
    let mut bench = Bench::new("later", Overrides::default()).await;
    bench.write(&["hub", "a", "b", "later"], "");
    assert_eq!(bench.looks(4).await, None);
    assert_eq!(bench.counts(), (0, 1));
    write_kubeconfig(&bench.folder, &["hub", "a", "b", "c", "later"]);
    assert_eq!(bench.looks(1).await.unwrap().clusters.len(), 4);
    assert_eq!(bench.counts(), (1, 1));
}

#[tokio::test]
async fn what_would_make_the_fleet_leave_needs_a_persons_word() {
    let mut bench = Bench::new("harm", Overrides::default()).await;
    bench.write_text("");
    assert_eq!(bench.looks(4).await, None);
    assert_eq!((bench.counts(), bench.names().len()), ((0, 1), 3));
    bench.write(&["hub"], "");
    assert_eq!(bench.looks(4).await, None);
    assert_eq!((bench.counts(), bench.names().len()), ((0, 2), 3));
    let config = bench.sighup().await.unwrap();
    assert_eq!((config.clusters.len(), bench.counts()), (1, (1, 2)));
    // A person's word is enough for a change that nobody looked at twice, not for a broken file.
    bench.write(&["hub", "b"], "");
    assert_eq!(bench.sighup().await.unwrap().clusters.len(), 2);
    bench.write_text("clusters: [");
    assert_eq!(bench.sighup().await, None);
    assert_eq!(bench.sighup().await, None);
    assert_eq!(bench.counts(), (2, 4));
}

#[tokio::test]
async fn flags_keep_overriding_the_file() {
    let values = vec![FlagValue::Set("touch.windowMs=9".to_owned())];
    let mut bench = Bench::new("flags", Overrides { values, ..Overrides::default() }).await;
    bench.write(&["hub", "a", "b"], "touch: {windowMs: 7, minIntervalMs: 8}");
    let config = bench.looks(2).await.unwrap();
    assert_eq!((config.touch.window_ms, config.touch.min_interval_ms), (9, 8));
}
