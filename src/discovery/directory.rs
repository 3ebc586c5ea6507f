//! Clusters with kubeconfigs in the files of a directory, such as a mounted Secret.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::kubeconfig;
use super::ledger::{Ledger, Offer};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::environment::wall_clock;
use crate::file_stamp::FileStamp;

/// How often the directory is read.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// A file that changed more recently may still be incomplete.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// A file or a directory that takes longer to read counts as unreadable.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// The largest kubeconfig, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

const EXTENSIONS: [&str; 4] = ["yaml", "yml", "kubeconfig", "conf"];

/// How a file looks, or why it cannot be looked at, as a link in a loop. Such a file is broken.
type Look = Result<FileStamp, io::ErrorKind>;

/// By file name.
type Looks = BTreeMap<String, Look>;

/// A read that may never end, as on a mount that hangs, or of `/proc/kmsg`. It has a separate thread,
/// because the runtime waits for its threads when it ends. Neither the directory nor an unchanged file
/// is read again before the read has ended; meanwhile the directory is lost, and the file is broken.
struct Reading<T>(oneshot::Receiver<T>);

impl<T: Send + 'static> Reading<T> {
    fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (done, reading) = oneshot::channel();
        std::thread::spawn(move || done.send(work()));
        Self(reading)
    }

    /// `None` if it takes too long.
    async fn wait(&mut self) -> Option<T> {
        timeout(READ_WITHIN, &mut self.0).await.ok()?.ok()
    }

    fn is_ended(&mut self) -> bool {
        !matches!(self.0.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }
}

pub(super) struct Directory {
    path: PathBuf,
    ledger: Ledger,
    /// A read of the directory that has not ended.
    checking: Option<Reading<io::Result<Looks>>>,
    /// Reads of files that have not ended.
    reading: BTreeMap<String, (Look, Reading<Result<String, String>>)>,
    /// The files of the last list, each with its offer.
    listed: Option<BTreeMap<String, (Look, Offer)>>,
    /// The files that the last read of the directory found.
    found: Looks,
}

impl Directory {
    pub(super) fn new(path: PathBuf, ledger: Ledger) -> Self {
        let reading = BTreeMap::new();
        Self { path, ledger, checking: None, reading, listed: None, found: Looks::new() }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            self.check().await;
            sleep(CHECK_EVERY).await;
        }
    }

    async fn check(&mut self) {
        let path = self.path.clone();
        let checking = self.checking.get_or_insert_with(|| Reading::start(move || looks(&path)));
        let Some(found) = checking.wait().await else {
            return self.lost(&io::ErrorKind::TimedOut.into()).await;
        };
        self.checking = None;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.listed = None;
                return self.lost(&error).await;
            }
        };
        let before = std::mem::replace(&mut self.found, found);
        let now = wall_clock();
        let is_settled = |look: &Look| {
            look.is_ok_and(|stamp| now.saturating_sub(stamp.changed_at()) > SETTLED_AFTER)
        };
        // A file that may be incomplete, or cannot be looked at for a moment, keeps its earlier version; a
        // new one does not count yet.
        let mut settled = self.found.clone();
        settled.retain(|name, look| before.get(name) == Some(look) || is_settled(look));
        for (name, (look, _)) in self.listed.iter().flatten() {
            if self.found.contains_key(name) {
                settled.entry(name.clone()).or_insert(*look);
            }
        }
        self.forget_ended();
        let listed = self.listed.iter().flatten().map(|(name, (look, _))| (name, look));
        if self.ledger.is_lost() || self.listed.is_none() || !listed.eq(&settled) {
            self.list(settled).await;
        }
    }

    /// Reads a file again if its read ended late.
    fn forget_ended(&mut self) {
        self.reading.retain(|file, (_, reading)| {
            let is_ended = reading.is_ended();
            if is_ended && let Some(listed) = &mut self.listed {
                listed.remove(file);
            }
            !is_ended
        });
    }

    /// Sends all files as one list, so that files that disappear together count as one loss.
    async fn list(&mut self, files: Looks) {
        self.ledger.new_list().await;
        let mut before = self.listed.take().unwrap_or_default();
        let mut listed = BTreeMap::new();
        for (file, look) in files {
            let offer = match before.remove(&file) {
                Some((known, offer)) if known == look => offer,
                _ => {
                    let text = self.read(&file, look).await;
                    let shown_by = format!("file {file}");
                    kubeconfig::offer(cluster_of(&file), "", shown_by, text, false, &self.ledger)
                }
            };
            self.ledger.listed(offer.clone()).await;
            listed.insert(file, (look, offer));
        }
        self.listed = Some(listed);
        self.ledger.list_finished().await;
    }

    async fn read(&mut self, file: &str, look: Look) -> Result<String, String> {
        look.map_err(|error| format!("cannot look at the file: {error}"))?;
        if self.reading.get(file).is_none_or(|(begun, _)| *begun != look) {
            let path = self.path.join(file);
            let mut reading = Reading::start(move || read(&path));
            if let Some(text) = reading.wait().await {
                return text;
            }
            self.reading.insert(file.to_owned(), (look, reading));
        }
        Err("cannot read the file: it does not answer".to_owned())
    }

    async fn lost(&mut self, error: &io::Error) {
        let text = format!("cannot read the directory {}: {error}", self.path.display());
        let remedy = "check discovery.kubeconfigDir.path and the volume that is mounted there";
        self.ledger.lost(RequestFailure::new(ErrorCause::Kubeconfig, text), Some(remedy)).await;
    }
}

/// The files that may be kubeconfigs, by name. Kubernetes mounts a Secret's keys as links to files in a
/// hidden directory.
fn looks(path: &Path) -> io::Result<Looks> {
    let mut looks = Looks::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        let look = match fs::metadata(entry.path()) {
            Ok(file) if file.is_file() => Ok(FileStamp::from(&file)),
            Ok(_) => continue,
            // A link whose file disappears meanwhile counts as no link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => Err(error.kind()),
        };
        looks.insert(name.to_owned(), look);
    }
    Ok(looks)
}

/// The file's name without a kubeconfig's extension.
fn cluster_of(file: &str) -> &str {
    let extension = Path::new(file).extension().and_then(OsStr::to_str);
    match extension.filter(|extension| EXTENSIONS.contains(extension)) {
        Some(extension) => &file[..file.len() - extension.len() - 1],
        None => file,
    }
}

fn read(path: &Path) -> Result<String, String> {
    let told = |error: io::Error| format!("cannot read the file: {error}");
    let mut text = String::new();
    // Not by its length: the file may grow, or be a device without one.
    let mut file = fs::File::open(path).map_err(told)?.take(FILE_BYTES_MAX + 1);
    if file.read_to_string(&mut text).map_err(told)? as u64 > FILE_BYTES_MAX {
        return Err(format!("the file has more than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::super::ledger::Connectable;
    use super::*;
    use crate::core::contract::event::EventKind;
    use crate::core::contract::membership::{JoinRule, OfferState, SourceName};

    const TEXT: &str = "{current-context: c, contexts: [{name: c, context: {cluster: a}}],
        clusters: [{name: a, cluster: {server: 'https://one:6443'}}]}";

    /// Reads the directory twice, since new files count from the second read. Returns the offers, and
    /// the broken ones among them.
    async fn offered(
        directory: &mut Directory,
        events: &mut mpsc::Receiver<EventKind>,
    ) -> Vec<(String, bool)> {
        directory.check().await;
        directory.check().await;
        let mut offered = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let EventKind::ClusterOffered { cluster, state, .. } = event {
                offered.push((cluster.to_string(), matches!(state, OfferState::Broken { .. })));
            }
        }
        offered
    }

    #[tokio::test]
    async fn a_file_that_hangs_is_broken_until_it_answers_and_the_others_go_on() {
        let folder = std::env::temp_dir().join(format!("throughline-hang-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for file in ["good.yaml", "hung.yaml"] {
            fs::write(folder.join(file), TEXT).unwrap();
        }
        let (bus, mut events) = mpsc::channel(100);
        let source = SourceName::KubeconfigDir;
        let connections = Connectable::default();
        let ledger = Ledger::new(source, JoinRule::All, Vec::new(), None, bus, connections);
        let mut directory = Directory::new(folder.clone(), ledger);
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        let hung =
            Reading::start(move || gate.recv().map(|()| String::new()).map_err(|e| e.to_string()));
        let stamp = looks(&folder).unwrap()["hung.yaml"];
        directory.reading.insert("hung.yaml".to_owned(), (stamp, hung));
        let first = offered(&mut directory, &mut events).await;
        let second = offered(&mut directory, &mut events).await;
        go_on.send(()).unwrap();
        while !directory.reading.is_empty() {
            sleep(Duration::from_millis(5)).await;
            directory.forget_ended();
        }
        let third = offered(&mut directory, &mut events).await;
        // A read that takes too long gives no information about the files; the next one finds them
        // again.
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        let path = folder.clone();
        directory.checking = Some(Reading::start(move || {
            let _ = gate.recv();
            looks(&path)
        }));
        directory.check().await;
        assert!(directory.ledger.is_lost());
        go_on.send(()).unwrap();
        let fourth = offered(&mut directory, &mut events).await;
        fs::remove_dir_all(&folder).unwrap();
        let both = |is_broken| [("good".to_owned(), false), ("hung".to_owned(), is_broken)];
        assert_eq!(first, both(true));
        assert!(second.is_empty(), "nothing is reported again: {second:?}");
        assert_eq!(third, both(false));
        assert_eq!((fourth, directory.ledger.is_lost()), (both(false).to_vec(), false));
    }

    /// Here a link in a loop, as `chmod` hides nothing from root.
    #[tokio::test]
    async fn a_file_that_cannot_be_looked_at_is_broken_and_not_removed() {
        use std::os::unix::fs::symlink;
        let folder = std::env::temp_dir().join(format!("throughline-odd-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for file in ["good.yaml", "odd.yaml"] {
            fs::write(folder.join(file), TEXT).unwrap();
        }
        let (bus, mut events) = mpsc::channel(100);
        let source = SourceName::KubeconfigDir;
        let connections = Connectable::default();
        let ledger = Ledger::new(source, JoinRule::All, Vec::new(), None, bus, connections.clone());
        let mut directory = Directory::new(folder.clone(), ledger);
        offered(&mut directory, &mut events).await;
        let before = connections.get(source, &"odd".into());
        assert!(before.is_some());
        fs::remove_file(folder.join("odd.yaml")).unwrap();
        symlink("odd.yaml", folder.join("odd.yaml")).unwrap();
        let odd = offered(&mut directory, &mut events).await;
        let after = connections.get(source, &"odd".into());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(odd, [("good".to_owned(), false), ("odd".to_owned(), true)]);
        assert_eq!(after, before, "the last connection stays");
    }

    #[test]
    fn a_cluster_has_the_name_of_its_file() {
        for (file, cluster) in [
            ("shop.yaml", "shop"),
            ("shop.yml", "shop"),
            ("shop.eu.kubeconfig", "shop.eu"),
            ("shop.conf", "shop"),
            ("shop", "shop"),
            ("shop.eu", "shop.eu"),
        ] {
            assert_eq!(cluster_of(file), cluster);
        }
    }

    /// A kubelet mounts and replaces a Secret like this: all files change with one link.
    #[test]
    fn a_mounted_secret_changes_with_its_hidden_link() {
        use std::os::unix::fs::symlink;
        let folder = std::env::temp_dir().join(format!("throughline-dir-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for version in ["..1", "..2"] {
            fs::create_dir_all(folder.join(version)).unwrap();
            fs::write(folder.join(version).join("shop.yaml"), version).unwrap();
        }
        symlink("..1", folder.join("..data")).unwrap();
        symlink("..data/shop.yaml", folder.join("shop.yaml")).unwrap();
        symlink("..data/gone.yaml", folder.join("gone.yaml")).unwrap();
        fs::create_dir(folder.join("folder.yaml")).unwrap();
        let before = looks(&folder).unwrap();
        symlink("..2", folder.join("..new")).unwrap();
        fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
        let after = looks(&folder).unwrap();
        let text = read(&folder.join("shop.yaml"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(before.keys().collect::<Vec<_>>(), ["shop.yaml"]);
        assert_ne!(before, after);
        assert_eq!(text.as_deref(), Ok("..2"));
    }
}
