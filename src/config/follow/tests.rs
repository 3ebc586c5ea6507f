//! Tests with real files, without the pauses between checks.

use std::fs;
use std::path::PathBuf;

use super::*;

struct Bench {
    folder: PathBuf,
    file: PathBuf,
    follower: Follower,
    followed: mpsc::Receiver<Vec<ClusterConfig>>,
    metrics: Arc<Metrics>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A configuration in which the first name is the hub, the others are upstreams.
fn yaml(names: &[&str], more: &str) -> String {
    let cluster = |(i, name): (usize, &&str)| {
        let roles = if i == 0 { "[hub, edge]" } else { "[upstream]" };
        format!("  - {{name: {name}, roles: {roles}, context: {name}}}\n")
    };
    let clusters: String = names.iter().enumerate().map(cluster).collect();
    format!("clusters:\n{clusters}{more}\n")
}

fn names(clusters: &[ClusterConfig]) -> Vec<&str> {
    clusters.iter().map(|cluster| cluster.name.as_str()).collect()
}

impl Bench {
    async fn new(name: &str, set: &[&str]) -> Self {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("throughline-follow-{id}-{name}"));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("config.yaml");
        fs::write(&file, yaml(&["hub", "a", "b"], "")).unwrap();
        let set = set.iter().map(|&set| set.to_owned()).collect();
        let source = ConfigSource { file: Some(file.clone()), set, ..ConfigSource::default() };
        let started = source.load().unwrap();
        let metrics = Arc::new(Metrics::new());
        let (to, followed) = mpsc::channel(8);
        let follower = Follower::new(source, started, metrics.clone(), Outside::default(), to);
        let mut bench = Self { folder, file, follower, followed, metrics };
        // The first checks find the configuration of the start.
        assert_eq!(bench.checks(2).await, None);
        assert_eq!(bench.counts(), (0, 0));
        bench
    }

    fn write(&self, names: &[&str], more: &str) {
        self.write_text(&yaml(names, more));
    }

    fn write_text(&self, text: &str) {
        fs::write(&self.file, text).unwrap();
    }

    /// The clusters that the last of `checks` checks sends.
    async fn checks(&mut self, checks: usize) -> Option<Vec<ClusterConfig>> {
        for _ in 0..checks {
            self.follower.check().await;
        }
        self.followed.try_recv().ok()
    }

    async fn sighup(&mut self) -> Option<Vec<ClusterConfig>> {
        self.follower.check_now().await;
        self.followed.try_recv().ok()
    }

    /// Reloads applied and refused.
    fn counts(&self) -> (u64, u64) {
        let count = |result| self.metrics.config_reloads(result);
        (count(ReloadResult::Applied), count(ReloadResult::Refused))
    }

    fn names(&self) -> Vec<&str> {
        names(&self.follower.clusters)
    }
}

#[tokio::test]
async fn a_changed_file_is_taken_when_two_checks_show_the_same() {
    let mut bench = Bench::new("stable", &[]).await;
    bench.write(&["hub", "a", "b", "c"], "");
    assert_eq!(bench.checks(1).await, None);
    // The write continues.
    bench.write(&["hub", "a", "b", "c", "d"], "");
    assert_eq!(bench.checks(1).await, None);
    let clusters = bench.checks(1).await.unwrap();
    assert_eq!(names(&clusters), ["hub", "a", "b", "c", "d"]);
    assert_eq!(bench.checks(3).await, None);
    // Written again with the same content, or with comments only.
    bench.write(&["hub", "a", "b", "c", "d"], "");
    assert_eq!(bench.checks(3).await, None);
    assert_eq!(bench.counts(), (1, 0));
    bench.write(&["hub", "a", "b", "c", "d"], "# four");
    assert_eq!(bench.checks(3).await, None);
    assert_eq!(bench.counts(), (2, 0));
}

#[tokio::test]
async fn a_broken_file_is_refused_once_and_the_former_stays() {
    let mut bench = Bench::new("broken", &[]).await;
    for (text, refused) in [("clusters: [", 1), ("clusters: 7\ntouch: {scope: all}", 2)] {
        bench.write_text(text);
        assert_eq!(bench.checks(5).await, None);
        assert_eq!((bench.counts(), bench.names().len()), ((0, refused), 3));
    }
    fs::remove_file(&bench.file).unwrap();
    assert_eq!(bench.checks(4).await, None);
    assert_eq!(bench.counts(), (0, 3));
    // The current content again.
    bench.write(&["hub", "a", "b"], "");
    assert_eq!(bench.checks(2).await, None);
    assert_eq!(bench.counts(), (1, 3));
}

/// A file written in two steps has no list of clusters in between. Even with a signal, no cluster
/// leaves because of it.
#[tokio::test]
async fn a_file_whose_clusters_vanish_changes_nothing_whoever_asks() {
    let mut bench = Bench::new("vanish", &[]).await;
    let texts = ["", "# all gone\n", "touch: {enabled: false}\n", "clusters: []\n", "clusters:\n"];
    for (i, text) in texts.into_iter().enumerate() {
        bench.write_text(text);
        assert_eq!(bench.checks(4).await, None, "{text}");
        assert_eq!(bench.sighup().await, None, "{text}");
        let refused = 2 * (i as u64 + 1);
        assert_eq!(
            (bench.counts(), bench.names()),
            ((0, refused), vec!["hub", "a", "b"]),
            "{text}"
        );
    }
    // The second step.
    bench.write(&["hub", "a", "b", "c"], "");
    assert_eq!(bench.checks(2).await.unwrap().len(), 4);
}

#[tokio::test]
async fn what_takes_away_the_hub_or_a_third_needs_a_persons_word() {
    let mut bench = Bench::new("harm", &[]).await;
    bench.write(&["hub"], "");
    assert_eq!(bench.checks(4).await, None);
    assert_eq!((bench.counts(), bench.names().len()), ((0, 1), 3));
    assert_eq!(bench.sighup().await.unwrap().len(), 1);
    assert_eq!(bench.counts(), (1, 1));
    // SIGHUP is enough for a change that was checked only once, but not for a broken file.
    bench.write(&["hub", "b"], "");
    assert_eq!(bench.sighup().await.unwrap().len(), 2);
    bench.write_text("clusters: [");
    assert_eq!(bench.sighup().await, None);
    assert_eq!(bench.sighup().await, None);
    assert_eq!(bench.counts(), (2, 3));

    bench.write_text("clusters: [{name: b, roles: [upstream], context: b}]");
    assert_eq!(bench.checks(3).await, None);
    assert_eq!(bench.names(), ["hub", "b"]);
    assert_eq!(names(&bench.sighup().await.unwrap()), ["b"]);
}

#[tokio::test]
async fn what_leaves_in_steps_counts_together_for_a_minute() {
    let mut bench = Bench::new("steps", &[]).await;
    let ten = ["hub", "a", "b", "c", "d", "e", "f", "g", "h", "i"];
    bench.write(&ten, "");
    assert_eq!(bench.checks(2).await.unwrap().len(), 10);
    bench.write(&ten[..8], "");
    assert_eq!(bench.checks(2).await.unwrap().len(), 8);
    bench.write(&ten[..6], "");
    assert_eq!(bench.checks(2).await, None);
    tokio::time::pause();
    tokio::time::advance(COUNTED_TOGETHER).await;
    tokio::time::resume();
    bench.write(&ten[..6], "# later");
    assert_eq!(bench.checks(2).await.unwrap().len(), 6);
    // What a person confirms no longer counts.
    bench.write(&ten[..4], "");
    assert_eq!(bench.sighup().await.unwrap().len(), 4);
    bench.write(&ten[..3], "");
    assert_eq!(bench.checks(2).await.unwrap().len(), 3);
}

/// The leader of a hub is elected only if the hub was there at the start.
#[tokio::test]
async fn another_hub_needs_a_restart_whoever_asks() {
    let mut bench = Bench::new("hubs", &[]).await;
    bench.write(&["other", "hub", "a", "b"], "");
    assert_eq!((bench.checks(3).await, bench.sighup().await), (None, None));
    // The hub of the start may leave and return.
    bench.write_text("clusters: [{name: a, roles: [upstream]}, {name: b, roles: [upstream]}]");
    assert_eq!(names(&bench.sighup().await.unwrap()), ["a", "b"]);
    bench.write(&["other", "a", "b"], "");
    assert_eq!((bench.checks(3).await, bench.sighup().await), (None, None));
    bench.write(&["hub", "a", "b"], "");
    assert_eq!(bench.checks(2).await.unwrap().len(), 3);

    // So does the first hub, unless nobody elects.
    for (elects, hub) in
        [("", false), ("leaderElection: {enabled: false}", true), ("dryRun: true", true)]
    {
        let alone = format!("clusters: [{{name: a, roles: [edge]}}]\n{elects}");
        bench.follower.started = read(&alone);
        bench.follower.clusters = bench.follower.started.clusters.clone();
        assert_eq!(bench.sighup().await.is_some(), hub, "{elects}");
    }
}

#[tokio::test]
async fn clusters_from_a_flag_stay_whatever_the_file_says() {
    let mut bench = Bench::new("flags", &["clusters=[{name: one, roles: [edge]}]"]).await;
    for text in ["", "clusters: [{name: two, roles: [edge]}]", "touch: {enabled: false}"] {
        bench.write_text(text);
        assert_eq!(bench.checks(2).await, None, "{text}");
    }
    assert_eq!((bench.counts(), bench.names()), ((3, 0), vec!["one"]));
}

fn read(text: &str) -> Config {
    ConfigSource::default().load_text(text).unwrap()
}

#[test]
fn only_clusters_are_followed_and_the_other_keys_are_named() {
    let before = read(&yaml(&["hub", "a"], "touch: {enabled: false}"));
    let after = read(&yaml(&["hub", "a", "b"], "limits: {maxShare: 0.5}\nlog: {level: debug}"));
    let named = ["limits.maxShare", "log.level", "touch.enabled"];
    assert_eq!(changed_keys(&before, &after), named);
    assert_eq!(changed_keys(&before, &before), Vec::<String>::new());
}

#[test]
fn who_joins_leaves_and_is_reached_in_another_way() {
    let clusters = |text: &str| read(&format!("clusters: [{text}]")).clusters;
    let before = clusters(
        "{name: a, roles: [hub, edge]}, {name: b, roles: [upstream]}, {name: c, roles: [upstream]}, \
         {name: d, roles: [edge]}",
    );
    let after = clusters(
        "{name: a, roles: [edge, hub]}, {name: b, roles: [upstream], context: x}, \
         {name: d, roles: [upstream]}, {name: e, roles: [edge]}",
    );
    let change = ClusterChange::between(&before, &after);
    let text = "2 clusters joined (d, e), 2 left (c, d), 1 reached in another way (b)";
    assert_eq!(change.describe(), text);
    let same = ClusterChange::between(&before, &before);
    assert!(same.is_empty());
    assert_eq!(same.describe(), "the clusters are the same");
}

/// The Lease stays in its cluster of the start.
#[tokio::test]
async fn the_cluster_of_the_lease_keeps_its_connection() {
    let mut bench = Bench::new("lease", &[]).await;
    let moved = yaml(&["hub", "a", "b", "c"], "").replace("context: hub", "context: other");
    bench.write_text(&moved);
    let clusters = bench.checks(2).await.unwrap();
    assert_eq!(clusters[0].context.as_deref(), Some("hub"));
    assert_eq!(clusters.len(), 4);
}
